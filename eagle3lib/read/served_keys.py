"""What engines say of their drafting, and under which keys: one row for each saying, by key and never by position.

*Rounds* are verifications by the target, *accepted* are drafts without the token that the target adds to each round, *drafted*
are drafts proposed. Where a key has changed its name, all its names are given, the newest first; a dot goes into an object.
"""

from dataclasses import dataclass

LOG, METRICS, ANSWER, TOTALS, BENCHMARK, STATES = "log", "metrics", "answers", "iterations", "benchmark", "server_info"
BY_COUNT = "1 + accepted / rounds"


@dataclass(frozen=True)
class Saying:
    """One thing that one engine says. `keys`: what -> its names. It is this saying where everything in `needs` is there."""

    engine: str
    where: str  # LOG: a line; METRICS: a page for Prometheus; the others: a JSON object, one for each of what the word says
    keys: dict[str, tuple[str, ...]]
    needs: tuple[str, ...]
    source: str
    counts: str = BY_COUNT  # what its accept length counts
    mark: str = ""  # of LOG: the words that begin what such a line says


SPEED = ("output_throughput",)
SAYINGS = (
    Saying("vLLM", LOG, {"accepted": ("Accepted",), "drafted": ("Drafted",), "rates": ("Per-position acceptance rate",),
                         "rate": ("Draft acceptance rate",), "length": ("Mean acceptance length",)},
           ("accepted", "drafted", "rates", "rate"), "vllm-project/vllm vllm/v1/spec_decode/metrics.py",
           "1 + accepted / rounds, intervals summed; rounds are drafted / K", "SpecDecoding metrics:"),
    # `accept rate`, beside it, is (accepted + rounds) / (rounds (K + 1)) in older versions and accepted / (rounds K) in newer
    # ones: measure/serving.py has both. It tells nothing that the length does not, so it is not read.
    Saying("SGLang", LOG, {"running": ("#running-req",), "length": ("accept len",), "speed": ("gen throughput (token/s)",)},
           ("running", "length"), "sgl-project/sglang srt/observability/scheduler_metrics_mixin.py, srt/managers before",
           "mean of intervals, weighted by running requests", "Decode batch"),
    Saying("vLLM", METRICS, {"rounds": ("vllm:spec_decode_num_drafts",), "drafted": ("vllm:spec_decode_num_draft_tokens",),
                             "accepted": ("vllm:spec_decode_num_accepted_tokens",),
                             "accepted at": ("vllm:spec_decode_num_accepted_tokens_per_pos",)},
           ("rounds", "accepted"), "vllm-project/vllm vllm/v1/spec_decode/metrics.py"),
    Saying("SGLang", METRICS, {"rounds": ("sglang:spec_verify_calls",), "tokens": ("sglang:generation_tokens",),
                               "requests": ("sglang:num_requests",), "steps": ("sglang:spec_num_steps",)},
           ("rounds", "tokens", "requests"), "sgl-project/sglang srt/observability/metrics_collector.py",
           "tokens after each request's first / rounds; a round that the end cut short counts what it gave"),
    Saying("SGLang", METRICS, {"length": ("sglang:spec_accept_length",), "steps": ("sglang:spec_num_steps",)}, ("length",),
           "sgl-project/sglang srt/observability/metrics_collector.py", "mean of the last interval only"),
    Saying("TensorRT-LLM", METRICS, {"accepted at": ("trtllm_spec_decode_accepted_tokens",),
                                     "drafted at": ("trtllm_spec_decode_drafted_tokens",)},
           ("drafted at",), "NVIDIA/TensorRT-LLM tensorrt_llm/metrics/collector.py",
           "1 + accepted / rounds; rounds are those that drafted at all"),
    Saying("TensorRT-LLM", METRICS, {"length": ("trtllm_spec_decode_acceptance_length",)}, ("length",),
           "NVIDIA/TensorRT-LLM tensorrt_llm/metrics/collector.py", "mean of the last iteration only"),
    Saying("SGLang", ANSWER, {"rounds": ("spec_verify_ct",),
                              "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
                              "drafted": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
                              "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram")},
           ("rounds", "accepted"), "sgl-project/sglang srt/managers/tokenizer_manager.py: meta_info, sglext.spec_tokens_details"),
    Saying("SGLang", ANSWER, {"rounds": ("spec_verify_ct",), "tokens": ("completion_tokens",)}, ("rounds", "tokens"),
           "sgl-project/sglang srt/managers/tokenizer_manager.py, before it counted accepted drafts",
           "tokens after each request's first / rounds; a round that the end cut short counts what it gave"),
    # Also AIPerf's SpecDecodeAcceptanceRecord, which keeps vLLM's names.
    Saying("vLLM", ANSWER, {"rounds": ("num_spec_steps",), "accepted": ("num_accepted_draft_tokens",),
                            "drafted": ("num_draft_tokens",), "histogram": ("acceptance_histogram",),
                            "steps": ("num_spec_tokens",)},
           ("rounds", "accepted"), "vllm-project/vllm#48915: metrics.speculative_decoding; ai-dynamo/aiperf common/models"),
    Saying("TensorRT-LLM", ANSWER, {"rounds": ("num_spec_steps",), "accepted": ("total_accepted_draft_tokens",),
                                    "drafted": ("total_draft_tokens",), "histogram": ("acceptance_histogram",),
                                    "steps": ("num_spec_tokens",)},
           ("rounds", "accepted"), "NVIDIA/TensorRT-LLM, as ai-dynamo/aiperf spec_decode/trtllm_adapter.py reads it"),
    Saying("TensorRT-LLM", TOTALS, {"rounds": ("numRequestsWithDraftTokens",), "accepted": ("numAcceptedTokens",),
                                    "drafted": ("numDraftTokens",)},
           ("rounds", "accepted"), "NVIDIA/TensorRT-LLM cpp/include/tensorrt_llm/executor/types.h: specDecodingStats"),
    Saying("vLLM", BENCHMARK, {"rounds": ("spec_decode_num_drafts",), "accepted": ("spec_decode_accepted_tokens",),
                               "drafted": ("spec_decode_draft_tokens",), "length": ("spec_decode_acceptance_length",),
                               "rates": ("spec_decode_per_position_acceptance_rates",), "speed": SPEED},
           ("length",), "vllm-project/vllm vllm/benchmarks/serve.py: vllm bench serve"),
    Saying("SGLang", BENCHMARK, {"length": ("accept_length",), "speed": SPEED, "steps": ("server_info.speculative_num_steps",)},
           ("length", "speed"), "sgl-project/sglang python/sglang/bench_serving.py; sgl-project/SpecForge benchmarks/",
           "mean since the server started, or of the benchmark's own requests"),
    Saying("SGLang", STATES, {"states": ("internal_states",), "length": ("avg_spec_accept_length",),
                              "steps": ("speculative_num_steps",)},
           ("states",), "sgl-project/sglang srt/managers/scheduler.py: /server_info, before /get_server_info",
           "mean since the server started"),
)  # fmt: skip
