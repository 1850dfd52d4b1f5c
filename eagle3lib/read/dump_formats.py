"""The formats that other tools dump hidden states in, one row each: keys, axes, shift, and what the last state is."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .dump_beside import Sidecar
from .dump_sglang import answered
from .dump_states import Reader, alone, in_slots, joined, side_by_side, tensorrt


@dataclass(frozen=True)
class Format:
    """One tool's files. A file is of this format when it has the suffix and all `keys`, and its name begins with `name`."""

    producer: str
    suffix: str  # .ckpt stands for .ckpt.gz too
    keys: tuple[str, ...]
    read: Reader
    last_kind: str  # of the last state; "none": no slot is one unless the caller says so
    looks: str  # its files' names, for people
    source: str
    name: str = ""  # pattern
    beside: Sidecar | None = None  # the file beside them that tells which streams they hold
    arrow: bool = False  # the loss masks are in the arrow dataset beside them
    padded: bool = False  # texts may be padded on the right, and no attention mask tells
    several: bool = False  # a file may hold several samples: as a list, or stacked
    stacked: bool = False  # it does: sample i is index i of each tensor's first axis
    shift: int = 0  # token ids and loss mask lie this many rows early, the states in place
    rows_short: int = 0  # the last tokens, this many, may have no states: nothing was computed from them
    mask_from: str = "in the file"


# The first row that a file fits is taken.
FORMATS = (
    Format(
        "speculators", ".safetensors", ("hidden_states", "token_ids"), in_slots(tokens_first=True), "pre_norm",
        "hs_{i}.safetensors", name=r"hs_\d+\.", arrow=True,
        source="speculators 0.9 `cli/generate_offline_data.py`, `train/data.py`: slots [:-1] feed the drafter, [-1] is r_L",
    ),
    Format(
        "vLLM", ".safetensors", ("hidden_states", "token_ids"), in_slots(), "none",
        "{request}.safetensors",
        source="vLLM ExampleHiddenStatesConnector: slots as asked for, ascending; [S, T, Ht] in its first version, 806715e",
    ),
    Format(
        "NeMo Automodel", ".safetensors", ("input_ids", "attention_mask", "loss_mask", "aux_hidden_states"),
        joined("aux_hidden_states"), "none", "shard-{i}.safetensors and manifest.json",
        beside=Sidecar("manifest.json", ("aux_layer_ids",), version=("format_version", 2), count="num_samples"),
        several=True, stacked=True, shift=1,
        source="Automodel `components/datasets/llm/eagle3_cache.py`, `components/speculative/eagle/target.py`: hooks, so n = "
        "id + 1, in the list's order; ids and loss mask moved left by one, attention mask and states not; no last state",
    ),
    Format(
        "SpecForge", ".ckpt", ("input_ids", "loss_mask", "aux_hidden_state", "hidden_state"),
        side_by_side("aux_hidden_state", "hidden_state"), "post_norm",
        "rows_*/data_{i}.ckpt or .ckpt.gz", padded=True,
        source="SpecForge `scripts/prepare_hidden_states.py`, `runtime/data_plane/feature_store.py`",
    ),
    Format(
        "AngelSlim", ".ckpt", ("input_ids", "loss_mask", "hidden_states", "target_hiddens"),
        side_by_side("hidden_states", "target_hiddens"), "post_norm",
        "rank_*/rows_*/data_{i}.ckpt",
        source="AngelSlim `tools/generate_hidden_for_draft_model.py`: hidden_states[-1] of transformers, after the norm; a "
        "sample a file, never padded",
    ),
    Format(
        "SpecForge, DSpark", ".ckpt", ("input_ids", "loss_mask", "hidden_states", "target_last_hidden_states"),
        side_by_side("hidden_states", "target_last_hidden_states"), "post_norm",
        "rows_*/data_{i}.ckpt", padded=True,
        source="SpecForge `runtime/data_plane/feature_store.py`",
    ),
    Format(
        "SpecForge, DFlash", ".ckpt", ("input_ids", "loss_mask", "hidden_states"), joined("hidden_states"), "none",
        "rows_*/data_{i}.ckpt", padded=True,
        source="SpecForge `runtime/data_plane/feature_store.py`: no last state",
    ),
    Format(
        "SafeAILab EAGLE-1 or 2", ".ckpt", ("input_ids", "loss_mask", "hidden_state"), alone("hidden_state"), "post_norm",
        "{index}/data_{i}.ckpt",
        source="SafeAILab/EAGLE `ge_data/ge_data_all_llama2chat.py`: hidden_states[-1] of transformers, after the norm",
    ),
    Format(
        "ModelOpt", ".pt", ("input_ids", "hidden_states", "aux_hidden_states"),
        side_by_side("aux_hidden_states", "hidden_states"), "unknown",
        "{conversation}.pt",
        source="Model-Optimizer `collect_hidden_states/compute_hidden_states_hf.py`, `_trtllm.py` (after the norm) and "
        "`_vllm.py` (before it)",
    ),
    Format(
        "TensorRT-LLM", ".pt", ("id", "input_ids", "hidden_state"), tensorrt, "post_norm",
        "data_{n}.pt, a list", several=True,
        source="TensorRT-LLM `_torch/speculative/save_hidden_state.py`: layers ascending, -1 (after the norm) moved to the end",
    ),
    Format(
        "TorchSpec", ".pt", ("input_ids", "hidden_states", "last_hidden_states"),
        side_by_side("hidden_states", "last_hidden_states"), "unknown",
        "sglang_{label}.pt",
        source="TorchSpec's test tools; the last state is after the norm with SGLang and transformers, before it with vLLM",
    ),
    Format(
        "speculators 0.3", ".pt", ("input_ids", "hidden_states", "loss_mask"), in_slots(), "unknown",
        "data_{i}.pt and data_config.json",
        beside=Sidecar("data_config.json", ("hidden_states", "layer_ids"), last=True),
        source="speculators 0.2, 0.3 `data_generation/config_generator.py`: list[:-1] feed the drafter, [-1] is r_L or f",
    ),
    Format(
        "DeepSpec", ".idx", ("input_ids", "loss_mask", "target_hidden_states", "target_last_hidden_states"),
        side_by_side("target_hidden_states", "target_last_hidden_states"), "post_norm",
        "samples.idx, shard-{i}.bin and manifest.json", name=r"samples\.",
        beside=Sidecar("manifest.json", ("target_layer_ids",), lowest=-1), several=True,
        source="DeepSpec `deepspec/data/target_cache_dataset.py`, `scripts/data/prepare_target_cache.py`: hooks, so n = id + 1, "
        "and -1 is the embedding",
    ),
    Format(
        "SGLang", ".json", ("token_ids", "hidden_states", "meta_info"), answered, "none",
        "{answer}.json with meta_info.hidden_states and input_ids",
        rows_short=1, mask_from="what the server wrote after the prompt",
        source="SGLang `managers/scheduler_output_processor_mixin.py`: with an EAGLE-3 drafter the joined streams, else f",
    ),
)  # fmt: skip

# Vocabularies and weights, which lie beside dumps.
NOT_SAMPLES = ("d2t.pt", "t2d.pt", "token_freq.pt", "vocab_mapping.pt", "cache.pt", "target_embeddings.safetensors")


def suffix_of(file: Path) -> str:
    return Path(file.stem).suffix if file.suffix == ".gz" else file.suffix


def format_of(file: Path, keys: Iterable) -> Format | None:
    """The row that `file`, whose samples hold `keys`, is of."""
    keys = set(keys)
    fits = (f for f in FORMATS if suffix_of(file) == f.suffix and keys.issuperset(f.keys) and re.match(f.name, file.name))
    return next(fits, None)


def known_formats() -> str:
    """All rows in a line, for people who gave another folder."""
    return "; ".join(f"{f.producer}, {f.looks}" for f in FORMATS)
