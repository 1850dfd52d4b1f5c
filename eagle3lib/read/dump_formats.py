"""The formats that other tools dump hidden states in, one row each, and the few ways of laying out states in a file."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from .errors import InputError

Slots = tuple[list[Tensor], Tensor | None]  # states [T, Ht] in the file's order, and the last state where it is kept apart


def in_slots(held: Mapping, T: int) -> Slots:
    """`hidden_states` is a list of [T, Ht], or one tensor [T, S, Ht] or [S, T, Ht]; the last of them may be the last state."""
    states = held["hidden_states"]
    if isinstance(states, list | tuple) and states and all(isinstance(state, Tensor) for state in states):
        return list(states), None
    if not isinstance(states, Tensor) or states.ndim != 3 or T not in states.shape[:2]:
        what = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
        raise InputError(f"hidden_states is {what} for {T} tokens, expected [T, slots, width] or [slots, T, width]")
    if "hidden_states_scales" in held:  # [T, 1, 1]: speculators' connector that writes float8
        states = states.float() * held["hidden_states_scales"].float()
    return list(states.unbind(1 if states.shape[0] == T else 0)), None


def side_by_side(aux: str, last: str) -> Callable[[Mapping, int], Slots]:
    """`aux` [T, n Ht] holds states side by side and `last` [T, Ht] the last one, each perhaps with a batch of 1 before T."""

    def read(held: Mapping, T: int) -> Slots:
        joined, end = (held[name] for name in (aux, last))
        if not isinstance(joined, Tensor) or not isinstance(end, Tensor):
            raise InputError(f"{aux} is a {type(joined).__name__} and {last} a {type(end).__name__}, expected tensors")
        shapes = f"{aux} is {list(joined.shape)} and {last} {list(end.shape)}"
        joined, end = (x[0] if x.ndim == 3 and len(x) == 1 else x for x in (joined, end))
        if joined.ndim != 2 or end.ndim != 2 or not joined.numel() or not end.numel() or joined.shape[1] % end.shape[1]:
            raise InputError(
                f"{shapes}, expected the first a multiple of the second in width: the states that a drafter takes were not "
                "dumped, or are of another model"
            )
        return list(joined.split(end.shape[1], dim=1)), end

    return read


@dataclass(frozen=True)
class Format:
    """One tool's files. A file is of this format when it has the suffix and all `keys`, and its name begins with `name`."""

    producer: str
    suffix: str  # .ckpt stands for .ckpt.gz too
    keys: tuple[str, ...]
    read: Callable[[Mapping, int], Slots]
    last_kind: str  # of the last state; "none": no slot is one unless the caller says so
    looks: str  # for people
    source: str
    name: str = ""  # pattern
    beside: str = ""  # what lies beside the files: "arrow", loss masks; "data_config.json", which streams
    padded: bool = False  # texts may be padded on the right


# The first row that a file fits is taken.
FORMATS = (
    Format(
        "speculators", ".safetensors", ("hidden_states", "token_ids"), in_slots, "pre_norm",
        "hs_{i}.safetensors with hidden_states [T, slots, width] and token_ids", name=r"hs_\d+\.", beside="arrow",
        source="speculators 0.9 `cli/generate_offline_data.py`, `train/data.py`: slots [:-1] feed the drafter, [-1] is r_L",
    ),
    Format(
        "vLLM", ".safetensors", ("hidden_states", "token_ids"), in_slots, "none",
        "{request}.safetensors with hidden_states and token_ids",
        source="vLLM ExampleHiddenStatesConnector: slots as asked for, ascending; [S, T, Ht] in its first version, 806715e",
    ),
    Format(
        "SpecForge", ".ckpt", ("input_ids", "loss_mask", "aux_hidden_state", "hidden_state"),
        side_by_side("aux_hidden_state", "hidden_state"), "post_norm",
        "rows_*/data_{i}.ckpt or .ckpt.gz with input_ids, loss_mask, aux_hidden_state and hidden_state", padded=True,
        source="SpecForge `scripts/prepare_hidden_states.py`, `runtime/data_plane/feature_store.py`",
    ),
    Format(
        "ModelOpt", ".pt", ("input_ids", "hidden_states", "aux_hidden_states"),
        side_by_side("aux_hidden_states", "hidden_states"), "unknown",
        "{conversation}.pt with input_ids, hidden_states and aux_hidden_states",
        source="Model-Optimizer `collect_hidden_states/compute_hidden_states_hf.py` (after the norm) and `_vllm.py` (before it)",
    ),
    Format(
        "speculators 0.3", ".pt", ("input_ids", "hidden_states", "loss_mask"), in_slots, "unknown",
        "data_{i}.pt with input_ids, loss_mask and a list hidden_states", beside="data_config.json",
        source="speculators 0.2, 0.3 `data_generation/config_generator.py`: list[:-1] feed the drafter, [-1] is r_L or f",
    ),
)  # fmt: skip

NOT_SAMPLES = ("d2t.pt", "t2d.pt", "token_freq.pt", "vocab_mapping.pt", "cache.pt")  # vocabularies, which lie beside dumps


def suffix_of(file: Path) -> str:
    return Path(file.stem).suffix if file.suffix == ".gz" else file.suffix


def format_of(file: Path, keys: Iterable) -> Format | None:
    """The row that `file`, which holds `keys`, is of."""
    keys = set(keys)
    fits = (f for f in FORMATS if suffix_of(file) == f.suffix and keys.issuperset(f.keys) and re.match(f.name, file.name))
    return next(fits, None)


def known_formats() -> str:
    """All rows in a line, for people who gave another folder."""
    return "; ".join(f"{f.producer}, {f.looks}" for f in FORMATS)
