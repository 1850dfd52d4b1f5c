"""The samples that are dumped, and what a reader should make of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tiny
import torch

import eagle3lib as e3

STREAMS = (2, 3, 4)
EVERY = "none in the file: every token counted"


def rounded(states: torch.Tensor) -> torch.Tensor:
    """Numbers that bfloat16 and float16 hold exactly: what a tool stores is what is compared."""
    return (states * 32).round().clamp(-127, 127) / 32


def samples(count: int = 3, T: int = 18) -> list[e3.Capture]:
    """Samples of T, T + 1, … tokens."""
    made = [tiny.capture(T=T + i, seed=i, streams=STREAMS) for i in range(count)]
    return [c.replace(streams={n: rounded(s) for n, s in c.streams.items()}, last=rounded(c.last)) for c in made]


def aux(capture: e3.Capture) -> torch.Tensor:
    """[T, 3 Ht]"""
    return torch.cat([capture.streams[n] for n in STREAMS], dim=1)


def slots(capture: e3.Capture) -> torch.Tensor:
    """[T, 4, Ht], the last state at the end."""
    return torch.stack([*(capture.streams[n] for n in STREAMS), capture.last], dim=1)


@dataclass(frozen=True)
class Made:
    """One tool's way of dumping, and what its files tell."""

    write: Callable[[Path, list[e3.Capture]], None]
    last: str  # what the last state is; "none" where there is none
    layers: str = ""  # how the files tell them, as a Capture's `known`
    mask: str = "in the file"  # as a Capture's `about`
    first: bool = True  # the first token is in the file
    ends: int = 0  # the last tokens, this many, have no states
    widths: bool = True  # the files tell how many streams lie side by side
    alone: bool = False  # the last state is the only one
    of_one: bool = True  # a file holds one sample
    mapped: bool = True  # tensors are read from disk as they are used

    def expected(self, capture: e3.Capture) -> e3.Capture:
        """What should be read where `capture` was dumped, its streams named."""
        ids, mask, R = capture.token_ids.clone(), capture.loss_mask.clone(), len(capture.token_ids) - self.ends
        if not self.first:
            ids[0], mask[0] = 0, False
        if self.mask == EVERY:
            mask = torch.arange(len(ids)) > 0
        streams = {"slot0": capture.last} if self.alone else {n: s[:R] for n, s in capture.streams.items()}
        last = capture.last if self.last != "none" else None
        return capture.replace(token_ids=ids, loss_mask=mask, streams=streams, last=last, last_kind=self.last)

    def read(self, folder: Path, named: bool = True) -> e3.Captures:
        """The dump in `folder`, its streams named where its files do not tell them."""
        return e3.read_captures(folder, streams=STREAMS if named and not self.layers and not self.alone else None)


def same(found: e3.Capture, expected: e3.Capture) -> bool:
    """Whether two captures hold the same tokens and states under the same labels."""
    pairs = [(found.token_ids, expected.token_ids), (found.loss_mask, expected.loss_mask)]
    pairs += [(found.stream(n), s) for n, s in expected.streams.items() if n in found.streams]
    if expected.last is not None and found.last is not None:
        pairs.append((found.last.float(), expected.last))
    whole = list(found.streams) == list(expected.streams) and (found.last is None) == (expected.last is None)
    return whole and all(torch.equal(mine, theirs) for mine, theirs in pairs)
