"""Is a launch line what its writer thinks it is? Rules as rows, each with where it is known from."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import SimpleNamespace

from ..read.checkpoint import Checkpoint
from ..read.flags import CHAINS, SOURCES, SPELLINGS, Flags, chosen
from .finding import Finding, Findings
from .heads import LONGEST

SGLANG, VLLM, TENSORRT = SOURCES.values()
USUAL = 3  # draft steps of most published heads: judge/heads.py
TREES = ("flashinfer", "fa3", "triton")  # SGLang's backends that take a tree in pages


def launch_line(engine: str, steps: int) -> str:
    """The flags for a chain of K = `steps` with an EAGLE-3 drafter."""
    return {
        "SGLang": f"--speculative-algorithm EAGLE3 --speculative-num-steps {steps} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {steps + 1}",
        "vLLM": f'--speculative-config \'{{"method": "eagle3", "model": "DRAFTER", "num_speculative_tokens": {steps}}}\'',
        "TensorRT-LLM": f"speculative_config: {{decoding_type: Eagle3, max_draft_len: {steps}, speculative_model: DRAFTER}}",
    }[engine]


@dataclass(frozen=True)
class Rule:
    """Fires when `when` is true of the facts; `what` and `change` are filled from them."""

    engine: str | None  # None: any
    level: str
    when: Callable[[SimpleNamespace], object]
    what: str
    change: str
    source: str
    name: str = "flags"  # of the Finding


RULES = (
    Rule("SGLang", "fault", lambda f: not f.tree and f.K == 1 and (f.tokens or 0) > 2,
         "asked for {tokens} draft tokens, but --speculative-num-steps 1 with top-k 1 drafts K = 1: they are forced to 2, the "
         "root and one draft, so accept length is at most 2", "{usual}", f"{SGLANG}; THUDM/slime#1017", "draft steps"),
    Rule("SGLang", "warning", lambda f: not f.tree and f.K and f.K > 1 and f.tokens not in (None, f.K + 1),
         "asked for {tokens} draft tokens, but --speculative-num-steps {K} with top-k 1 drafts K = {K}: they are forced to "
         "{verified}, the root and {K} drafts", "--speculative-num-draft-tokens {verified}",
         f"{SGLANG}; THUDM/slime#1017", "draft steps"),
    Rule("SGLang", "fault", lambda f: f.tree and f.tokens and f.tokens > f.cap,
         "asked to verify {tokens} tokens, but a tree of {K} steps with top-k {topk} has only {cap}: the server stops there",
         "--speculative-num-draft-tokens {cap}", "sgl-project/sglang speculative/: topk + topk^2 * (steps - 1) and the root"),
    Rule(None, "note", lambda f: f.tree,
         "drafts a tree: accept lengths are higher than those of a chain of the same depth and not to be compared with them "
         "(one EAGLE-1 head: 2.14 and 1.69)", "{chain}", "SafeAILab/EAGLE#143"),
    Rule("SGLang", "fault", lambda f: f.tree and f.a.get("attention_backend") == "trtllm_mha",
         "top-k {topk} with --attention-backend trtllm_mha: SGLang refuses to start", "--speculative-eagle-topk 1", SGLANG),
    Rule("SGLang", "warning", lambda f: f.tree and f.a.get("page_size", 1) > 1 and f.a.get("attention_backend") not in TREES,
         "top-k {topk} with pages of {page_size}: only the backends flashinfer, fa3 and triton take it, older versions fewer",
         "--page-size 1", SGLANG),
    Rule("SGLang", "fault", lambda f: f.algorithm is None,
         "no --speculative-algorithm: nothing is drafted", "{chain}", SGLANG),
    Rule("SGLang", "fault", lambda f: f.algorithm in CHAINS and f.K is None and (f.topk or f.tokens),
         "top-k or draft tokens without --speculative-num-steps: SGLang takes all three or none, and stops", "{usual}", SGLANG),
    Rule("SGLang", "warning", lambda f: f.left_out and f.chosen,
         "no --speculative-num-steps: for a {architecture} SGLang chooses {chosen}", "{usual}", SGLANG),
    Rule("SGLang", "warning", lambda f: f.left_out and not f.chosen,
         "no --speculative-num-steps: SGLang chooses by target and version, a tree of 5 steps, top-k 4 and 8 tokens or a chain "
         "of K = 3: nobody can tell K from this line", "{usual}", SGLANG),
    Rule("SGLang", "warning", lambda f: f.tree and f.tokens is None,
         "top-k {topk} without --speculative-num-draft-tokens: nothing tells how large a tree is verified", "{chain}", SGLANG),
    Rule("SGLang", "warning", lambda f: f.tree and f.tokens and f.K and f.tokens < f.K + 1,
         "drafts {K} steps deep, but verifies only {tokens} tokens, the root among them: accept length is at most {tokens}, and "
         "the deepest steps are thrown away", "--speculative-num-draft-tokens {deep}, or more", SGLANG),
    Rule("SGLang", "warning", lambda f: f.tree and f.a.get("spec_v2"),
         "top-k {topk} with SGLANG_ENABLE_SPEC_V2: that scheduler takes top-k 1 only; older versions refuse to start, newer ones "
         "fall back to the one without overlap", "{chain}", SGLANG),
    Rule("SGLang", "warning", lambda f: f.K is not None and f.a.get("topk") is None,
         "no --speculative-eagle-topk beside --speculative-num-steps: read as 1 here, a chain", "{chain}", SGLANG),
    Rule("SGLang", "fault", lambda f: f.algorithm in ("EAGLE", "NEXTN") and f.eagle3,
         "--speculative-algorithm {algorithm} with an EAGLE-3 drafter: one state is fed where fc.weight takes several, and "
         "accept length is 1.00", "--speculative-algorithm EAGLE3", "sgl-project/sglang#21272", "algorithm"),
    Rule("SGLang", "fault", lambda f: f.algorithm not in (None, "EAGLE3", "EAGLE", "NEXTN") and f.eagle3,
         "--speculative-algorithm {algorithm} has no use for an EAGLE-3 drafter", "--speculative-algorithm EAGLE3", SGLANG,
         "algorithm"),
    Rule("SGLang", "warning", lambda f: "simulated" not in f.a and any(_below_one(f.a.get(k)) for k in THRESHOLDS),
         "an accept threshold below 1 lets drafts through that the target would not have chosen: accept length is too high, and "
         "the text not the target's own", "--speculative-accept-threshold-single 1.0 --speculative-accept-threshold-acc 1.0",
         SGLANG),
    Rule("SGLang", "fault", lambda f: "simulated" in f.a,
         "SIMULATE_ACC_LEN is set: accept lengths of this server are made up and no evidence", "unset SGLANG_SIMULATE_ACC_LEN",
         "sgl-project/sglang python/sglang/srt/speculative"),
    Rule("vLLM", "fault", lambda f: f.a.get("rejection_sample_method") == "synthetic",
         "rejection_sample_method is synthetic: accept lengths of this server are made up and no evidence",
         '"rejection_sample_method": "standard"', VLLM),
    Rule("vLLM", "fault", lambda f: _outside(f.a.get("synthetic_acceptance_length"), f.K),
         "synthetic_acceptance_length {synthetic} is not between 1 and K + 1: vLLM refuses to start", "leave it out", VLLM),
    Rule("vLLM", "note", lambda f: f.a.get("rejection_sample_method") == "block",
         "rejection_sample_method is block: drafts of a round are judged together, so at a temperature above 0 more are accepted "
         "than one by one, and accept lengths predicted here are too low", '"rejection_sample_method": "standard"', VLLM),
    Rule("vLLM", "warning", lambda f: f.a.get("speculative_token_tree"),
         "speculative_token_tree: a field of older versions; newer ones do not have it and draft chains", "leave it out", VLLM),
    Rule("vLLM", "fault", lambda f: f.K is None and f.given and not f.n_predict,
         "no num_speculative_tokens, and the drafter's config.json has no n_predict: vLLM refuses to start", "{usual}", VLLM),
    Rule("vLLM", "warning", lambda f: f.K is None and not f.given,
         "no num_speculative_tokens: K is the drafter's n_predict, where its config.json has one", "{usual}", VLLM),
    Rule("vLLM", "fault", lambda f: f.K and f.n_predict and f.n_predict < f.K and f.K % f.n_predict,
         "num_speculative_tokens {K} is no multiple of the drafter's n_predict {n_predict}: vLLM refuses to start",
         '"num_speculative_tokens": {n_predict}', VLLM),
    Rule("SGLang", "warning", lambda f: f.algorithm == "EAGLE3" and not f.a.get("drafter"),
         "names no drafter: SGLang then loads the target's own checkpoint as one, and stops as it starts",
         "--speculative-draft-model-path DRAFTER", "sgl-project/sglang#36528"),
    Rule("vLLM", "warning", lambda f: f.algorithm == "eagle3" and not f.a.get("drafter"),
         "names no drafter: vLLM refuses to start", '"model": "DRAFTER"', VLLM),
    Rule("vLLM", "warning", lambda f: f.algorithm is None,
         "no method: vLLM guesses it from the drafter's name and model type", '"method": "eagle3"', VLLM),
    Rule("vLLM", "fault", lambda f: f.algorithm not in (None, "eagle3") and f.eagle3,
         "method is {algorithm}, but the drafter is EAGLE-3: the states it needs are not taken from the target",
         '"method": "eagle3"', VLLM),
    Rule("vLLM", "fault", lambda f: "tensor_parallel_size" in f.a,
         "tensor_parallel_size within --speculative-config: vLLM refuses it", '"draft_tensor_parallel_size": 1', VLLM),
    Rule("vLLM", "fault", lambda f: f.draft_tp not in (None, 1, f.tp),
         "draft_tensor_parallel_size {draft_tp} with a target over {tp}: vLLM takes 1 or {tp}",
         '"draft_tensor_parallel_size": {tp}', VLLM),
    Rule("vLLM", "warning", lambda f: f.a.get("parallel_drafting") is True,
         "parallel_drafting makes all drafts in one pass, which a drafter must be trained for: accept lengths predicted for a "
         "chain do not hold", '"parallel_drafting": false', VLLM),
    Rule("vLLM", "note", lambda f: f.a.get("num_speculative_tokens_per_batch_size"),
         "num_speculative_tokens_per_batch_size: K changes with the number of requests", "leave it out while measuring", VLLM),
    Rule("vLLM", "note", lambda f: f.a.get("draft_sample_method") == "probabilistic",
         "draft_sample_method is probabilistic: drafts are sampled, so the greedy chain's accept length is another one",
         '"draft_sample_method": "greedy"', VLLM),
    Rule("TensorRT-LLM", "warning", lambda f: f.a.get("acceptance_rate_threshold"),
         "acceptance_rate_threshold: drafting is switched off for good once the rate falls below it", "leave it out", TENSORRT),
    Rule("TensorRT-LLM", "fault", lambda f: f.a.get("use_dynamic_tree") and f.a.get("eagle_choices"),
         "use_dynamic_tree and eagle_choices: a tree is dynamic or given; TensorRT-LLM refuses to start", "{chain}", TENSORRT),
    Rule("TensorRT-LLM", "fault", lambda f: f.a.get("use_dynamic_tree") and not f.topk,
         "use_dynamic_tree without dynamic_tree_max_topK: TensorRT-LLM refuses to start", "{chain}", TENSORRT),
    Rule("TensorRT-LLM", "fault", lambda f: f.tree and f.topk and f.K and f.tokens
         and not f.K <= f.tokens <= f.topk * f.K,
         "max_total_draft_tokens {tokens}: a dynamic tree {K} deep with top-k {topk} needs {K} to {product}",
         "max_total_draft_tokens: {product}", TENSORRT),
    Rule("TensorRT-LLM", "warning", lambda f: f.tokens and f.K and not f.tree and f.tokens != f.K,
         "max_total_draft_tokens {tokens} without a tree: a chain drafts max_draft_len, K = {K}", "leave it out", TENSORRT),
    Rule("TensorRT-LLM", "warning", lambda f: f.K is None,
         "no max_draft_len: K is not told", "{usual}", TENSORRT),
    Rule(None, "fault", lambda f: f.engine != "vLLM" and f.context and f.positions and f.positions < f.context,
         "the drafter's max_position_embeddings is {positions}, but {context} tokens are served: past it accept length falls",
         '"max_position_embeddings": {context} in the drafter\'s config.json', "sgl-project/SpecForge#249"),
    Rule("vLLM", "warning", lambda f: f.context and f.positions and f.positions < f.context,
         "the drafter's max_position_embeddings is {positions}, but {context} tokens are served: versions that do not raise it "
         "read past its table", '"max_position_embeddings": {context} in the drafter\'s config.json', "vllm-project/vllm#48894"),
    Rule(None, "note", lambda f: f.K and not f.tree and f.K > LONGEST,
         f"K = {{K}} is longer than any published chain (K = {LONGEST}): a late draft counts only if all before it are right, "
         "and each costs a step", "{usual}", "judge/heads.py"),
    Rule(None, "ok", lambda f: f.K,
         "drafts K = {K} tokens deep and verifies {verified} tokens a round: accept length is at most {most}", "", "these flags"),
)  # fmt: skip
SLIP = 0.9  # likeness (difflib) of two flags that differ in a letter or two; SGLang's own differ more from each other
# Flags that do nothing here. Source: sgl-project/sglang python/sglang/srt/speculative/eagle_worker.py
IGNORED = {"--speculative-token-map": "is ignored with EAGLE3: the draft vocabulary is the drafter's own d2t"}
THRESHOLDS = ("threshold_single", "threshold_acc")


def _outside(length: object, steps: int | None) -> bool:
    try:
        return length is not None and steps is not None and not 1 <= float(length) <= steps + 1
    except (TypeError, ValueError):
        return True


def _below_one(value: object) -> bool:
    try:
        return value is not None and float(value) < 1
    except ValueError:
        return False


def check_flags(flags: Flags, ckpt: Checkpoint | None = None) -> Findings:
    """What is wrong, odd or worth knowing in a launch line; with the drafter given, what does not fit it."""
    facts = _facts(flags, ckpt)
    told = vars(facts)
    unknown = [_unknown(flag, flags.engine) for flag in flags.unknown]
    return Findings(
        unknown
        + [
            Finding(
                rule.level,
                "flags",
                rule.what.format_map(told),
                {"source": rule.source},
                change=rule.change.format_map(told),
                name=rule.name,
            )  # fmt: skip
            for rule in RULES
            if rule.engine in (None, flags.engine) and rule.when(facts)
        ]
    )


def _unknown(flag: str, engine: str) -> Finding:
    """A flag that this library does not know: a slip where one that it knows is spelled nearly so, else merely unknown."""
    if flag in IGNORED:
        return Finding("note", "flags", f"{flag} {IGNORED[flag]}", change="leave it out", name="unknown flag")
    near = get_close_matches(flag.replace("_", "-"), [row[1] for row in SPELLINGS if row[0] == engine], 1, SLIP)
    if near:
        what = f"{flag} is no flag of {engine}: {near[0]} is spelled nearly so"
        return Finding("warning", "flags", what, change=f"{near[0]} in place of {flag}", name="unknown flag")
    return Finding("note", "flags", f"{flag} is not known here, so what it does was not judged", name="unknown flag")


def as_chosen(flags: Flags, ckpt: Checkpoint | None) -> Flags:
    """The flags with what SGLang chooses by itself for this target, where all its versions choose the same."""
    facts = _facts(flags, ckpt)
    if not (facts.left_out and facts.architecture):
        return flags
    older, newer = chosen(facts.architecture)
    steps, topk, tokens = newer
    return flags if older != newer else replace(flags, steps=steps, topk=topk, verified=tokens, tree=topk > 1)


def _chosen(architecture: str) -> str:
    old, new = ("{} steps, top-k {} and {} tokens".format(*choice) for choice in chosen(architecture))
    return old if old == new else f"{new}, older versions {old}"


def _facts(flags: Flags, ckpt: Checkpoint | None) -> SimpleNamespace:
    asked, K, topk = flags.asked, flags.steps, flags.topk
    config = ckpt.config if ckpt else {}
    nested = config.get("transformer_layer_config")
    positions = config.get("max_position_embeddings") or (nested or {}).get("max_position_embeddings")
    named = re.search(r"eagle[-_]?3(?![0-9b])", str(asked.get("drafter", "")).lower())  # not a model of 3 billion
    whole = {"positions": positions, "n_predict": config.get("n_predict")}
    tokens = asked.get("draft_tokens")
    left_out = flags.engine == "SGLang" and flags.algorithm in CHAINS and K is None and not (topk or tokens)
    kinds = ckpt.target.config.get("architectures") if ckpt and ckpt.target else None
    architecture = kinds[0] if isinstance(kinds, list) and kinds and isinstance(kinds[0], str) else None
    return SimpleNamespace(
        engine=flags.engine, algorithm=flags.algorithm, a=asked, K=K, topk=topk, tree=flags.tree,
        tokens=tokens, deep=(K or 0) + 1, verified=flags.verified or "an unknown number of", product=(topk or 0) * (K or 0),
        most=min((K or 0) + 1, flags.verified or (K or 0) + 1), synthetic=asked.get("synthetic_acceptance_length"),
        left_out=left_out, architecture=architecture, chosen=_chosen(architecture) if left_out and architecture else None,
        cap=topk + topk**2 * (K - 1) + 1 if flags.tree and K and topk else None,
        given=ckpt is not None, eagle3=ckpt is not None or named is not None,
        context=asked.get("context"), page_size=asked.get("page_size"),
        tp=asked.get("tensor_parallel", 1), draft_tp=asked.get("draft_tensor_parallel_size"),
        usual=launch_line(flags.engine, USUAL), chain=launch_line(flags.engine, K or USUAL),
        **{key: value if type(value) is int and value > 0 else None for key, value in whole.items()},
    )  # fmt: skip
