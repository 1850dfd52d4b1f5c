"""A launch line of SGLang, vLLM or TensorRT-LLM: what was asked for, and what will really be drafted."""

import json
import re
import shlex
from dataclasses import dataclass, replace

from .errors import InputError

# Engine, spelling, what it asks for, and whether that is a count. Where the spellings are defined:
SOURCES = {
    "SGLang": "sgl-project/sglang python/sglang/srt/server_args.py",
    "vLLM": "vllm-project/vllm vllm/engine/arg_utils.py, vllm/config/speculative.py",
    "TensorRT-LLM": "NVIDIA/TensorRT-LLM llmapi Eagle3DecodingConfig",
}
SPELLINGS = (
    ("SGLang", "--speculative-algorithm", "algorithm", False),
    ("SGLang", "--speculative-algo", "algorithm", False),
    ("SGLang", "--speculative-draft-model-path", "drafter", False),
    ("SGLang", "--speculative-draft-model", "drafter", False),
    ("SGLang", "--speculative-num-steps", "steps", True),
    ("SGLang", "--speculative-eagle-topk", "topk", True),
    ("SGLang", "--speculative-num-draft-tokens", "draft_tokens", True),
    ("SGLang", "--speculative-accept-threshold-single", "threshold_single", False),
    ("SGLang", "--speculative-accept-threshold-acc", "threshold_acc", False),
    ("SGLang", "--attention-backend", "attention_backend", False),
    ("SGLang", "--page-size", "page_size", True),
    ("SGLang", "--context-length", "context", True),
    ("vLLM", "--speculative-config", "config", False),
    ("vLLM", "-sc", "config", False),
    ("vLLM", "--spec-method", "algorithm", False),
    ("vLLM", "--spec-model", "drafter", False),
    ("vLLM", "--spec-tokens", "steps", True),
    ("vLLM", "--speculative-model", "drafter", False),  # before --speculative-config came
    ("vLLM", "--num-speculative-tokens", "steps", True),  # likewise
    ("vLLM", "--tensor-parallel-size", "tensor_parallel", True),
    ("vLLM", "-tp", "tensor_parallel", True),
    ("vLLM", "--max-model-len", "context", True),
)
# Fields of the configs that vLLM takes as JSON and TensorRT-LLM as YAML, by this library's names; others keep their own.
FIELDS = {
    "vLLM": {"method": "algorithm", "model": "drafter", "num_speculative_tokens": "steps"},
    "TensorRT-LLM": {"decoding_type": "algorithm", "speculative_model": "drafter", "speculative_model_dir": "drafter",
                     "max_draft_len": "steps", "dynamic_tree_max_topK": "topk", "max_total_draft_tokens": "draft_tokens"},
}  # fmt: skip
OWN = {
    "vLLM": (
        "draft_tensor_parallel_size",
        "rejection_sample_method",
        "draft_sample_method",
        "parallel_drafting",
        "synthetic_acceptance_length",
        "speculative_token_tree",
    ),
    "TensorRT-LLM": ("use_dynamic_tree", "eagle_choices", "acceptance_rate_threshold", "max_concurrency"),
}
COUNTS = ("steps", "topk", "draft_tokens", "draft_tensor_parallel_size")
SPECULATIVE = re.compile(r"(?:^|\s)(?:--spec|-sc\b|--num[-_]spec)")
# Set before the command. Source: sgl-project/sglang python/sglang/srt/environ.py, srt/speculative
VARIABLES = (
    (re.compile(r"^(?:SGLANG_)?SIMULATE_ACC_LEN=(?!-)(.+)$"), "simulated"),
    (re.compile(r"^SGLANG_ENABLE_SPEC_V2=(1|true|True|yes)$"), "spec_v2"),
)
# What SGLang drafts where --speculative-num-steps is left out: (steps, top-k, tokens) by the target's architecture; older
# versions, newer ones. Source: sgl-project/sglang python/sglang/srt/server_args.py auto_choose_speculative_params
CHOSEN = (
    (("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"), (5, 4, 8), (5, 4, 8)),
    (("DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM"), (3, 1, 4), (3, 1, 4)),
    ((), (5, 4, 8), (3, 1, 4)),  # any other
)
CHAINS = ("EAGLE3", "EAGLE", "NEXTN", "STANDALONE")  # SGLang's algorithms that draft one token a step


@dataclass(frozen=True)
class Flags:
    """What a launch line asks of drafting, and what it gets."""

    engine: str  # SGLang, vLLM or TensorRT-LLM
    algorithm: str | None
    asked: dict[str, object]  # as asked, under this library's names
    steps: int | None  # K that will be drafted; None where the line does not tell
    topk: int | None
    verified: int | None  # tokens that the target verifies in a round, the root among them
    tree: bool
    notes: tuple[str, ...]
    version: str | None = None
    unknown: tuple[str, ...] = ()  # speculative flags that this library does not know


def read_flags(text: str, version: str | None = None) -> Flags:
    """The launch line `text`: `python -m sglang.launch_server ...`, `vllm serve ...`, or a `speculative_config` of
    TensorRT-LLM or of vLLM in Python. Flags that have nothing to do with drafting are passed over.

    Raises InputError when it asks for no drafting, or when a value is not what its flag takes.
    """
    if SPECULATIVE.search(text):
        engine, asked = _line(text)
    else:
        engine, asked = _config(text)
    for name in COUNTS:
        if asked.get(name) is not None:
            asked[name] = _count(name, asked[name])
    if asked.get("algorithm") is not None:
        asked["algorithm"] = str(asked["algorithm"])
    unknown = asked.pop("unknown", ())
    return replace(RESOLVE[engine](asked, version), unknown=unknown)


def _line(text: str) -> tuple[str, dict[str, object]]:
    """Engine and values of a command line. The last of a flag given twice holds, as in argparse."""
    try:
        words = shlex.split(re.sub(r"\\\r?\n", " ", text))
    except ValueError as error:
        raise InputError(f"launch line: {error}; expected it as a shell takes it: close the quote") from None
    words = [part for w in words if w != "-" for part in (w.split("=", 1) if w.startswith("-") else [w])]  # -: lists in YAML
    engines = {row[0] for word in words if (row := _spelled(word)) and ("spec" in row[1] or row[1] == "-sc")}
    if len(engines) != 1:
        which = " and ".join(sorted(engines)) or "no engine that this library knows"
        raise InputError(f"launch line: holds speculative flags of {which}; expected those of one of {', '.join(SOURCES)}")
    engine = engines.pop()
    asked: dict[str, object] = {}
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if (row := _spelled(word, engine)) is None:
            continue
        _, flag, name, counted = row
        if not value or (value.startswith("-") and not value[1:2].isdigit()):
            raise InputError(f"launch line: {flag} has no value; expected one after it")
        if name == "config":
            asked.update(_json(word, flag, value))
        elif name == "context":
            asked[name] = _length(value)
        else:
            asked[name] = _count(flag, value) if counted else value
    asked["unknown"] = tuple(w for w in words if re.match(r"--spec", w) and _spelled(w, engine) is None)
    for word in words:
        for pattern, name in VARIABLES if engine == "SGLang" else ():
            if m := pattern.match(word):
                asked[name] = m.group(1)
    return engine, asked


def _spelled(word: str, engine: str | None = None) -> tuple[str, str, str, bool] | None:
    """The row of a flag: as written, with underscores, dotted (vLLM), or cut short where only one row begins so (argparse)."""
    if not word.startswith("-"):
        return None
    name = word.split(".")[0].replace("_", "-")
    rows = [row for row in SPELLINGS if engine in (None, row[0])]
    exact = [row for row in rows if row[1] == name]
    short = [row for row in rows if row[1].startswith(name)] if name.count("-") > 2 else []
    return exact[0] if exact else short[0] if len({row[2] for row in short}) == 1 else None


def _json(word: str, flag: str, value: str) -> dict[str, object]:
    """`--speculative-config '{"method": ...}'`, or one field of it as `--speculative-config.method eagle3`."""
    if "." in word:
        config = {word.split(".", 1)[1].replace("-", "_"): _scalar(value)}
    else:
        try:
            config = json.loads(value)
        except (ValueError, RecursionError):
            config = None
    if not isinstance(config, dict):
        raise InputError(
            f'{flag}: {value[:60]!r} is no JSON object; expected \'{{"method": "eagle3", ...}}\' between single quotes'
        )
    taken = {row[2] for row in SPELLINGS}
    return {FIELDS["vLLM"].get(field, field): v for field, v in config.items() if field not in taken}


def _config(text: str) -> tuple[str, dict[str, object]]:
    """Engine and values of a `speculative_config` in YAML, JSON or Python, one scalar for each field."""
    after = text.split("speculative_config", 1)[-1]
    for engine, sure in (("TensorRT-LLM", ("decoding_type", "max_draft_len")), ("vLLM", ("num_speculative_tokens",))):
        keys = "|".join((*FIELDS[engine], *OWN[engine]))
        pairs = re.findall(rf"\b({keys})\b[\\\\\"']*\s*[:=]\s*[\\\\\"']*([\w./\[-]+)", after)
        if any(key in sure for key, _ in pairs):
            return engine, {FIELDS[engine].get(key, key): _scalar(value) for key, value in pairs}
    if re.search(r"\.ya?ml\b", text):
        raise InputError("launch line: names a YAML file, which is not read: give the text of its speculative_config")
    raise InputError(
        "launch line: asks for no speculative decoding; expected SGLang's --speculative-..., vLLM's --speculative-config or "
        "TensorRT-LLM's speculative_config: give the line that started the server"
    )


def _scalar(value: str) -> object:
    lowered = value.lower()
    if lowered in ("true", "false", "none", "null"):
        return {"true": True, "false": False}.get(lowered)
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value


def _count(flag: str, value: object) -> int:
    """A whole number above zero."""
    written = str(value).replace("_", "")
    if isinstance(value, bool) or not (written.isascii() and written.isdigit() and len(written) < 10) or int(written) < 1:
        raise InputError(f"{flag}: {str(value)[:40]!r} is no whole number above zero; give one")
    return int(written)


def _length(value: str) -> int | None:
    """A context length as the engines take it: 4096, 131_072, or vLLM's 32k (thousands) and 32K (1024); None for auto."""
    m = re.fullmatch(r"([0-9_]{1,12}?)([kKmM]?)", value)
    digits = m.group(1).replace("_", "") if m else ""
    return int(digits) * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[m.group(2)] if digits else None


def chosen(architecture: str) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(steps, top-k, tokens) that SGLang chooses for a target's `architecture` by itself: in older versions, in newer ones."""
    return next((old, new) for names, old, new in CHOSEN if architecture in names or not names)


def _sglang(asked: dict, version: str | None) -> Flags:
    algorithm = str(asked["algorithm"]).upper() if "algorithm" in asked else None
    steps, topk, notes = asked.get("steps"), asked.get("topk"), []
    if algorithm not in CHAINS:
        notes.append("no --speculative-algorithm: nothing is drafted" if algorithm is None else f"{algorithm}: not read further")
        return Flags("SGLang", algorithm, asked, None, None, None, False, tuple(notes), version)
    if steps is None:
        notes.append(
            "no --speculative-num-steps: SGLang chooses by the target's architecture, (steps, top-k, tokens) = (5, 4, 8) for "
            "Llama and Grok, (3, 1, 4) for others; older versions (5, 4, 8) for those too"
        )
        return Flags("SGLang", algorithm, asked, None, topk, None, False, tuple(notes), version)
    if topk is None:
        topk = 1
        notes.append("no --speculative-eagle-topk: read as 1, a chain")
    if topk > 1:
        return Flags("SGLang", algorithm, asked, steps, topk, asked.get("draft_tokens"), True, tuple(notes), version)
    if asked.get("draft_tokens") not in (None, steps + 1):
        notes.append(f"--speculative-num-draft-tokens {asked['draft_tokens']} becomes {steps + 1}: steps + 1 where top-k is 1")
    return Flags("SGLang", algorithm, asked, steps, 1, steps + 1, False, tuple(notes), version)


def _vllm(asked: dict, version: str | None) -> Flags:
    steps = asked.get("steps")
    verified = steps + 1 if steps else None
    return Flags("vLLM", asked.get("algorithm"), asked, steps, 1, verified, False, (), version)


def _tensorrt(asked: dict, version: str | None) -> Flags:
    steps, topk = asked.get("steps"), asked.get("topk")
    tree = bool(asked.get("use_dynamic_tree") or asked.get("eagle_choices") or topk)  # the top-k alone asks for one
    nodes = asked.get("draft_tokens") or (topk * steps if topk and steps else None) if tree else steps
    verified = nodes + 1 if nodes else None
    topk = topk if tree else 1
    return Flags("TensorRT-LLM", asked.get("algorithm"), asked, steps, topk, verified, tree, (), version)


RESOLVE = {"SGLang": _sglang, "vLLM": _vllm, "TensorRT-LLM": _tensorrt}
