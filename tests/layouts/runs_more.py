"""Layouts that must open, continued: TorchSpec, Model-Optimizer, speculators. `runs_wide.py` has the last of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from . import sources
from .files import as_is, midlayer, one_file, shards, without, write_json
from .parts import GPT_OSS, LLAMA_8B, QWEN_4B, QWEN_8B, Widths, config
from .quantised import fp8_file, int8_file, stands_for
from .ropes import Wanted, dynamic, linear, llama3, plain, yarn
from .row import Layout

KIMI = Widths(H=56, heads=8, kv=8, D=8, I=96, Vd=96)  # 7168 as 64/64 heads of 128
BOTH = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
IDS = "eagle_aux_hidden_state_layer_ids"

# --- TorchSpec --------------------------------------------------------------------------------------------------------

TORCHSPEC = partial(config, _torchspec_version="0.0.1", torch_dtype="bfloat16")
torchspec = partial(Layout, producer="TorchSpec", spelled=midlayer, target_layers=61,
                    save=partial(one_file, metadata={"format": "pt", "torchspec_version": "0.0.1"}))  # fmt: skip
KIMI_YARN = {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
             "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
KIMI_KEYS = {"target_keys": ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight")}
NATIVE = TORCHSPEC(
    KIMI, rope_theta=50000.0, rope_scaling=KIMI_YARN, eagle_config={IDS: [1, 29, 57], "use_aux_hidden_state": True}
)


def unscaled(name: str, about: str, rope: Wanted, scaling: dict, theta: float) -> Layout:
    """A pruned TorchSpec drafter whose base was not the configured one."""
    about_it = TORCHSPEC(QWEN_8B, rope_theta=theta, rope_scaling=scaling, max_position_embeddings=4096)
    return torchspec(name, about, sources.TORCHSPEC_MODEL, w=QWEN_8B, config=about_it, parts={"embed": "own"},
                     target_layers=36, expects={"streams": (2, 18, 33), "rope": rope})  # fmt: skip


TORCHSPEC_ROWS = (
    torchspec("torchspec-native", "whole vocabulary without maps, yarn of the configured base",
              sources.TORCHSPEC_EXPORT,
              w=KIMI, config=NATIVE, parts={"embed": "target", "maps": False}, **KIMI_KEYS,
              expects={"streams": (2, 30, 58), "eps": 1e-6, "rope": yarn(5e4, 8, 64, 4096, gain=1.0)}),
    torchspec("torchspec-vllm", "layers.0., boundary ids",
              sources.TORCHSPEC_EXPORT, w=KIMI, parts={"embed": "target", "maps": False},
              **KIMI_KEYS, config=NATIVE | {"eagle_config": {IDS: [2, 30, 58], "use_aux_hidden_state": True}}, spelled=as_is,
              same_as="torchspec-native", expects={"streams": (2, 30, 58)}),
    unscaled("torchspec-linear", "pruned vocabulary; linear scaling of base 10000", linear(1e4, 8, 2),
             {"type": "linear", "factor": 2.0}, 1e6),
    unscaled("torchspec-dynamic", "dynamic of base 10000", dynamic(1e4, 8, 4096), {"type": "dynamic", "factor": 2.0}, 1e6),
    unscaled("torchspec-mrope", "mrope of base 10000", plain(1e4, 8), {"type": "mrope", "mrope_section": [1, 1, 2]}, 1e6),
    unscaled("torchspec-llama3", "llama3 of the configured base", llama3(5e5, 8, 8), {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}, 5e5),
)  # fmt: skip

# --- Model-Optimizer --------------------------------------------------------------------------------------------------

NESTED = {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
          "use_mtp_layernorm": False, "next_layer_regular": True, "parallel_draft_step": 1,
          "parallel_draft_heads_num_layers": 1}  # fmt: skip
INJECTED = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048}
MODELOPT = partial(config, rms_norm_eps=1e-5, mlp_bias=False, pretraining_tp=None, pad_token_id=None, rope_theta=10000.0,
                   attention_dropout=None, initializer_range=None)  # fmt: skip
modelopt = partial(Layout, producer="ModelOpt")
HF = {"streams": (2, 16, 29), "eps": 1e-5}
no_t2d = without("t2d")


def lora_beside(folder: Path) -> None:
    """A LoRA of the target, which Model-Optimizer leaves next to the drafter it was trained with."""
    start = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    save_file(
        {f"{start}A.weight": torch.zeros(2, 32), f"{start}B.weight": torch.zeros(32, 2)}, folder / "adapter_model.safetensors"
    )
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]})


EXPORT = MODELOPT(LLAMA_8B, eagle_config={IDS: [1, 15, 28]} | NESTED, rope_scaling=INJECTED)
TWO = replace(LLAMA_8B, layers=2)
TWO_EXPORT = MODELOPT(TWO, eagle_config={IDS: [1, 15, 28]} | NESTED, rope_scaling={"rope_type": "default"})
WHOLE = replace(LLAMA_8B, Vd=96)
FP8 = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
       "ignore": ["lm_head", "fc"]}  # fmt: skip
FP8_EXPORT = MODELOPT(LLAMA_8B, eagle_config={IDS: [1, 15, 28]} | NESTED, rope_scaling={"rope_type": "default"})
INT8 = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["re:.*lm_head", "re:.*fc"]}
NVIDIA_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                 "original_max_position_embeddings": 8192}  # fmt: skip
eight_bits = {"expects": HF | {"rope": plain(1e4, 8)}}

MODELOPT_ROWS = (
    modelopt("modelopt-hf", "layers.0., no t2d, no embedding, nulls, an injected yarn whose gain is 0.1 ln f + 1",
             f"{sources.MODELOPT_EXPORT}; NVIDIA/Model-Optimizer#1238", w=LLAMA_8B, config=EXPORT,
             change=no_t2d,
             expects=HF | {"rope": yarn(1e4, 8, 32, 2048)}),
    modelopt("modelopt-midlayer", "midlayer., as before 2025-12-19",
             "NVIDIA/Model-Optimizer#689", w=LLAMA_8B, config=EXPORT, change=no_t2d,
             spelled=midlayer, same_as="modelopt-hf", expects=HF | {"rope": yarn(1e4, 8, 32, 2048)}),
    modelopt("modelopt-null-ids", "layer ids null: the engines' default",
             "NVIDIA/Model-Optimizer modelopt/torch/export/plugins/hf_spec_configs.py",
             w=LLAMA_8B, change=no_t2d, same_as="modelopt-hf",
             config=EXPORT | {"eagle_config": {IDS: None} | NESTED}, expects=HF),
    modelopt("modelopt-two-layers", "a plain layer after the fused one",
             sources.MODELOPT_EXPORT, w=TWO, config=TWO_EXPORT, change=no_t2d,
             expects=HF | {"rope": plain(1e4, 8)}),
    modelopt("modelopt-whole", "whole vocabulary: no maps at all; a LoRA of the target beside", sources.MODELOPT_EXPORT, w=WHOLE,
             config=MODELOPT(WHOLE, eagle_config={IDS: [1, 15, 28]} | NESTED, rope_scaling=None),
             parts={"maps": False, "head": "target"}, beside=lora_beside, expects=HF | {"rope": plain(1e4, 8)}),
    modelopt("modelopt-megatron", "midlayer., the config of a Llama 3.1", sources.MODELOPT_MEGATRON, w=LLAMA_8B,
             config=MODELOPT(LLAMA_8B, eagle_config={IDS: [1, 15, 28]} | NESTED, rope_theta=5e5, rope_scaling=NVIDIA_LLAMA3),
             change=no_t2d, spelled=midlayer, expects=HF | {"rope": llama3(5e5, 8, 8)}),
    modelopt("nvidia-gpt-oss", "norm_before_fc in eagle_config; a stream after the last layer",
             "nvidia/gpt-oss-120b-Eagle3-v3; sgl-project/sglang#32334",
             w=replace(GPT_OSS, Vd=96), change=no_t2d, parts={"streams_norm": "input_norm", "maps": False}, target_layers=36,
             config=MODELOPT(replace(GPT_OSS, Vd=96), rope_theta=5e5, rope_scaling=NVIDIA_LLAMA3,
                             eagle_config={IDS: [24, 30, 36], "norm_before_fc": True} | NESTED),
             expects={"streams": (24, 30, 36), "norm_before_fc": True, "rope": llama3(5e5, 8, 8)}),
    modelopt("modelopt-fp8", "float8 weights with weight_scale, input_scale, and the key-value cache's scales",
             f"{sources.MODELOPT_QUANTISED}; vllm-project/vllm#28435",
             w=LLAMA_8B, config=FP8_EXPORT | {"quantization_config": FP8}, change=lambda found: fp8_file(no_t2d(found)),
             effective=stands_for(torch.float8_e4m3fn), beside=lambda f: write_json(f / "hf_quant_config.json", FP8),
             **eight_bits),
    modelopt("modelopt-fp8-undone", "the same, multiplied out",
             sources.MODELOPT_QUANTISED, w=LLAMA_8B, config=FP8_EXPORT, change=no_t2d,
             dtype=torch.float32, effective=stands_for(torch.float8_e4m3fn), same_as="modelopt-fp8", **eight_bits),
    modelopt("int8-channels", "int8 weights with a weight_scale for each row",
             "compressed-tensors' int-quantized format", w=LLAMA_8B,
             producer=None, config=FP8_EXPORT | {"quantization_config": INT8}, change=lambda found: int8_file(no_t2d(found)),
             effective=stands_for(torch.int8), **eight_bits),
    modelopt("int8-channels-undone", "the same, multiplied out",
             "compressed-tensors' int-quantized format", w=LLAMA_8B, producer=None, config=FP8_EXPORT,
             change=no_t2d, dtype=torch.float32, effective=stands_for(torch.int8), same_as="int8-channels", **eight_bits),
)  # fmt: skip

# --- speculators ------------------------------------------------------------------------------------------------------

VERIFIER = {"algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1}],
            "verifier": {"architectures": [], "name_or_path": "a/target"}}  # fmt: skip
TOP = ("architectures", "draft_vocab_size", "tie_word_embeddings", "torch_dtype", "transformers_version")


def speculators_config(w: Widths, inner: dict | None = None, **changes) -> dict:
    """The decoder's fields in transformer_layer_config (`inner` changes them), those of TOP and the rest outside."""
    rope = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
    inside_it = config(w, **dict.fromkeys(TOP, ...) | rope | (inner or {}))
    top = {
        "architectures": ["Eagle3Speculator"], "draft_vocab_size": w.Vd, "dtype": "bfloat16", IDS: None,
        "embed_requires_grad": False, "fc_norm": False, "model_type": "speculator_model", "norm_before_fc": False,
        "norm_before_residual": False, "norm_output": False, "speculators_config": VERIFIER, "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0", "target_hidden_size": None, "tie_word_embeddings": False,
        "transformer_layer_config": inside_it, "transformers_version": "4.57.6",
    }  # fmt: skip
    return {key: value for key, value in (top | changes).items() if value is not ...}


speculators = partial(Layout, producer="speculators")
VERIFIED = {"embed": "target", "head": "target"}
FIRST = speculators_config(LLAMA_8B, norm_before_residual=True, **{IDS: [2, 16, 29]})
RESIDUAL = {"streams": (2, 16, 29), "eps": 1e-6, "norm_before_residual": True, "rope": plain(1e4, 8)}
CLASS_LLAMA = Widths(H=32, heads=32, kv=32, D=4, I=96, V=32000)
CLASS_QWEN3 = Widths(H=32, heads=32, kv=32, D=128, I=96)
FIVE = replace(LLAMA_8B, n=5, Vd=96)
ONE = replace(LLAMA_8B, n=1)
FACTOR = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768,
          "attention_factor": 1.25}  # fmt: skip
PARTIAL = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
CONVERTED = partial(speculators_config, model_type="eagle3", speculators_version="0.1.0", dtype=..., torch_dtype="float16",
                    embed_requires_grad=..., fc_norm=..., norm_output=..., norm_before_fc=..., norm_before_residual=...,
                    **{IDS: ...})  # fmt: skip
LEFT_OUT = ("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "hidden_act", "rope_parameters", "attention_bias",
            "initializer_range", "max_position_embeddings", "num_hidden_layers", "use_cache", "bos_token_id",
            "eos_token_id")  # fmt: skip
converted = partial(Layout, producer="speculators converted", dtype=torch.float16)

SPECULATORS_ROWS = (
    speculators("speculators-llama", "the target's embedding and rows of its head; norm_before_residual",
                sources.SPECULATORS_MODEL, w=LLAMA_8B, config=FIRST, parts=VERIFIED, expects=RESIDUAL),
    speculators("speculators-saved-again", "architecture as transformers rewrites it, three files",
                "RedHatAI/gpt-oss-20b-speculator.eagle3", w=LLAMA_8B,
                save=shards, config=FIRST | {"architectures": ["Eagle3DraftModel"]}, parts=VERIFIED, same_as="speculators-llama",
                expects=RESIDUAL),
    speculators("speculators-borrowed", "neither embedding nor head in the file",
                "vllm-project/speculators src/speculators/model.py", w=LLAMA_8B, config=FIRST,
                parts={"head": ""}, same_as="speculators-llama", expects=RESIDUAL),
    speculators("speculators-no-flag", "norm_before_residual left out: false",
                f"{sources.SPECULATORS_CONFIG}; vllm-project/vllm#25961", w=LLAMA_8B, parts=VERIFIED,
                config=speculators_config(LLAMA_8B, norm_before_residual=..., **{IDS: [2, 16, 29]}),
                expects={"streams": (2, 16, 29), "norm_before_residual": False}),
    speculators("speculators-class-llama", "what equals LlamaConfig's own is left out: 32 heads, 32,000 tokens, eps, rope",
                sources.SPECULATORS_CONFIG,
                w=CLASS_LLAMA, config=speculators_config(CLASS_LLAMA, dict.fromkeys((*LEFT_OUT, "vocab_size"), ...)),
                parts={"head": "target"}, expects={"streams": (2, 16, 29), "eps": 1e-6, "rope": plain(1e4, 4)}),
    speculators("speculators-class-qwen3", "what equals Qwen3Config's own is left out: heads of 128; norms of each head",
                sources.SPECULATORS_CONFIG, w=CLASS_QWEN3, parts=VERIFIED | {"head_norms": True}, target_layers=36,
                config=speculators_config(CLASS_QWEN3, dict.fromkeys((*LEFT_OUT, "head_dim"), ...) | {"model_type": "qwen3"}),
                expects={"streams": (2, 18, 33), "eps": 1e-6, "rope": plain(1e4, 128)}),
    speculators("speculators-qwen3", "norms of each head", "vllm-project/vllm#43132", w=QWEN_4B, target_layers=36,
                config=speculators_config(QWEN_4B, {"model_type": "qwen3", "rope_parameters": {"rope_theta": 1e6,
                "rope_type": "default"}}),
                parts=VERIFIED | {"head_norms": True}, expects={"streams": (2, 18, 33), "rope": plain(1e6, 8)}),
    speculators("speculators-norm-before-fc", "input_norm; its own embedding",
                f"{sources.SPECULATORS_MODEL}; vllm-project/vllm#28549",
                w=GPT_OSS, parts={"embed": "own", "streams_norm": "input_norm"}, target_layers=24,
                config=speculators_config(GPT_OSS, {"rms_norm_eps": 1e-5}, norm_before_fc=True, norm_before_residual=True),
                expects={"streams": (2, 12, 21), "eps": 1e-5, "norm_before_fc": True, "norm_before_residual": True}),
    speculators("speculators-3.1", "fc_norm and norm_output", "vllm-project/speculators#610", w=LLAMA_8B,
                config=speculators_config(LLAMA_8B, fc_norm=True, norm_output=True), parts=VERIFIED | {"streams_norm": "fc_norm"},
                expects={"streams": (2, 16, 29), "fc_norm": True, "norm_output": True}),
    speculators("speculators-biases", "a bias on every matrix of the layer",
                "vllm-project/speculators src/speculators/models/eagle3/model_definitions.py", w=LLAMA_8B,
                config=speculators_config(LLAMA_8B, {"attention_bias": True, "mlp_bias": True}),
                parts=VERIFIED | {"bias": BOTH + MLP}),
    speculators("speculators-five-streams", "five streams, the whole vocabulary, no maps", sources.SPECULATORS_MODEL, w=FIVE,
                config=speculators_config(FIVE, **{IDS: [2, 9, 16, 23, 29]}), parts=VERIFIED | {"maps": False},
                expects={"streams": (2, 9, 16, 23, 29)}),
    speculators("speculators-one-stream", "one stream, as wide as the drafter, and still through fc",
                sources.SPECULATORS_MODEL, w=ONE,
                config=speculators_config(ONE, **{IDS: [16]}), parts=VERIFIED, expects={"streams": (16,)}),
    speculators("speculators-partial", "half of each head is turned",
                "vllm-project/speculators src/speculators/models/eagle3/rotary_partial.py", w=LLAMA_8B,
                parts=VERIFIED,
                config=speculators_config(LLAMA_8B, {"rope_parameters": PARTIAL}), expects={"rope": plain(1e6, 4)}),
    speculators("speculators-yarn", "yarn with attention_factor",
                "huggingface/transformers src/transformers/modeling_rope_utils.py", w=LLAMA_8B, parts=VERIFIED,
                config=speculators_config(LLAMA_8B, {"rope_parameters": FACTOR}), expects={"rope": yarn(1e6, 8, 4, 32768,
                gain=1.25)}),
    converted("speculators-converted", "no embedding, no layer ids, norm_before_residual left out",
              "vllm-project/speculators src/speculators/convert/eagle/eagle3_converter.py", w=LLAMA_8B,
              config=CONVERTED(LLAMA_8B, {"rope_parameters": ..., "rope_theta": 10000.0}),
              expects={"streams": (2, 16, 29), "eps": 1e-6, "rope": plain(1e4, 8)}),
    converted("speculators-converted-ids", "ids of another dialect, passed through",
              "vllm-project/speculators#142",
              w=WHOLE, parts={"maps": False}, target_layers=48, config=CONVERTED(WHOLE, **{IDS: [1, 23, 44]}),
              expects={"streams": (2, 24, 45)}),
)  # fmt: skip

MORE: tuple[Layout, ...] = (*TORCHSPEC_ROWS, *MODELOPT_ROWS, *SPECULATORS_ROWS)
