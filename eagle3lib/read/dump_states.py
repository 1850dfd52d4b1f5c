"""The few ways in which hidden states lie in a dumped file, each as a function from what the file holds to its states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InputError


@dataclass(frozen=True)
class States:
    """What a file holds for one sample."""

    slots: list[Tensor]  # [R, Ht] each, in the file's order; the last of them may be the last state
    last: Tensor | None = None  # the last state, where it is kept apart
    kind: str | None = None  # of `last`, where the file tells more than its tool does
    note: str = ""  # what whoever uses them should know


Reader = Callable[[Mapping, int, int | None], States]  # from what is held, its number of tokens, that of streams if known


def in_slots(tokens_first: bool = False) -> Reader:
    """`hidden_states` is a list of [T, Ht], or a tensor [T, S, Ht] or [S, T, Ht]. `tokens_first`: where T = S it is the first."""

    def read(held: Mapping, T: int, count: int | None) -> States:
        states = held["hidden_states"]
        if isinstance(states, list | tuple) and states and all(isinstance(state, Tensor) for state in states):
            return States(list(states))
        if not isinstance(states, Tensor) or states.ndim != 3 or T not in states.shape[:2]:
            what = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
            raise InputError(f"hidden_states is {what} for {T} tokens, expected [T, slots, width] or [slots, T, width]")
        if states.shape[0] == states.shape[1] and not tokens_first:
            raise InputError(
                f"hidden_states is {list(states.shape)} for {T} tokens: vLLM's first version wrote slots first, later ones "
                "tokens first, and here nothing tells which: leave this file out"
            )
        if "hidden_states_scales" in held:  # [T, 1, 1]: speculators' connector that writes float8
            states = states.float() * held["hidden_states_scales"].float()
        return States(list(states.unbind(1 if states.shape[0] == T else 0)))

    return read


def side_by_side(aux: str, last: str) -> Reader:
    """`aux` [T, n Ht] holds states side by side and `last` [T, Ht] the last one, each perhaps with a batch of 1 before T."""

    def read(held: Mapping, T: int, count: int | None) -> States:
        joined, end = (held[name] for name in (aux, last))
        if not isinstance(joined, Tensor) or not isinstance(end, Tensor):
            raise InputError(f"{aux} is a {type(joined).__name__} and {last} a {type(end).__name__}, expected tensors")
        shapes = f"{aux} is {list(joined.shape)} and {last} {list(end.shape)}"
        joined, end = _without_batch(joined), _without_batch(end)
        if joined.ndim != 2 or end.ndim != 2 or not joined.numel() or not end.numel() or joined.shape[1] % end.shape[1]:
            raise InputError(
                f"{shapes}, expected the first a multiple of the second in width: the states that a drafter takes were not "
                "dumped, or are of another model"
            )
        return States(list(joined.split(end.shape[1], dim=1)), end)

    return read


def joined(name: str) -> Reader:
    """`name` [R, n Ht] holds states side by side, and no tensor tells Ht: n is the number of streams, where that is known."""

    def read(held: Mapping, T: int, count: int | None) -> States:
        states = _matrix(held, name)
        width = states.shape[1]
        if count is None:
            return States([states], note=f"{width} wide: of how many streams side by side is not in the file; streams= says it")
        if width % count:
            raise InputError(f"{name} is {list(held[name].shape)}, no multiple in width of the {count} streams: name each")
        return States(list(states.split(width // count, dim=1)))

    return read


def alone(name: str) -> Reader:
    """`name` [T, Ht] is the one state that was dumped."""
    return lambda held, T, count: States([_matrix(held, name)])


def tensorrt(held: Mapping, T: int, count: int | None) -> States:
    """`hidden_state` [T, Ht] beside the captured layers [T, n Ht], ascending; the last state is among them, at the end, where
    the user listed it (layer -1).

    Its first version could write the last captured layer as `hidden_state` too: under its name for the layers, a repeated last
    slice may be either. Source: TensorRT-LLM `_torch/speculative/save_hidden_state.py`.
    """
    name = next((name for name in ("aux_hidden_states", "hidden_state_features") if name in held), None)
    if name is None:  # one layer was captured: the last
        return States([_matrix(held, "hidden_state")])
    found = side_by_side(name, "hidden_state")(held, T, count)
    again = torch.equal(found.slots[-1], found.last)
    kind = "unknown" if again and name == "hidden_state_features" else None
    if not again or count == len(found.slots) or len(found.slots) == 1:
        return States(found.slots, found.last, kind)
    note = f"the last of {len(found.slots)} captured layers is hidden_state once more, and is left out of the streams"
    return States(found.slots[:-1], found.last, kind, note)


def _matrix(held: Mapping, name: str) -> Tensor:
    """`held[name]` as [T, W], from that or [1, T, W]. Raises InputError for anything else or nothing."""
    found = held[name]
    states = _without_batch(found) if isinstance(found, Tensor) else None
    if states is None or states.ndim != 2 or not states.numel():
        what = list(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise InputError(f"{name} is {what}, expected [T, width]")
    return states


def _without_batch(states: Tensor) -> Tensor:
    return states[0] if states.ndim == 3 and len(states) == 1 else states
