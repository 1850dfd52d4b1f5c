"""One recorded sample to one Row of whole numbers: all that is counted of it, on one processor, several, or many machines.

Rows merge by being added, so totals depend neither on order nor on who counted, and a sample that was counted twice is seen by
its key. Ratios and intervals are made once, of all Rows (`tables`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..read.capture import Capture, Label
from ..read.captures import Captures
from ..read.dump_files import Part
from ..read.errors import InputError
from ..read.tensors import UNREADABLE
from ..run.chain import ROWS, Hits, check_steps, hits_together
from ..run.device import MemoryShortError
from ..run.drafter import Drafter
from . import acceptance, accuracy

MOST = 128  # samples in a group: files that cannot be read have no tokens, and are told of soon
Read = tuple["Row", Capture | None]


@dataclass(frozen=True)
class Row:
    """`counts`: what Accuracy counts, 6 x K; then Acceptance's rounds by accepted drafts for K = 1, 2, ..., 2 + 3 + ... numbers,
    of walks, then of all starts. Empty where `error` says why the sample has none.
    """

    key: str  # its file, and behind "#" its name or number in it
    stamp: str  # of the file, and how it was read: another stamp, another sample
    tokens: int = 0
    counts: Int[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0, np.int32))
    error: str = ""

    def line(self) -> str:
        """The Row as one line of JSON; `Row.of` reads it."""
        return json.dumps({**vars(self), "counts": self.counts.tolist()})

    def rounds(self, steps: int) -> int:
        """Of K = 1; 0 where the target wrote no two tokens in a row."""
        walks = ends(steps)[0]
        return int(self.counts[walks : walks + 2].sum())

    @classmethod
    def of(cls, line: str | bytes) -> "Row":
        """Raises ValueError, TypeError, LookupError or OverflowError for a line that is no Row."""
        told = json.loads(line)
        row = cls(**{**told, "counts": np.array([int(count) for count in told["counts"]], np.int32)})
        words = all(isinstance(word, str) for word in (row.key, row.stamp, row.error))
        if not words or (row.counts < 0).any() or row.counts.tolist() != told["counts"]:
            raise ValueError("no Row")
        return row


def ends(steps: int) -> tuple[int, int, int]:
    """Where the counts of a Row end for K = 1 to `steps`: those of Accuracy, of walks, of all starts."""
    firsts, rounds = 6 * steps, steps * (steps + 3) // 2
    return firsts, firsts + rounds, firsts + 2 * rounds


def unscored(captures: Captures, i: int) -> Row:
    """Sample `i`'s key and stamp: size and time of change (ns) of its file, and of the masks' beside it; not read yet.

    No hash: a header has only shapes, which other states share, and to hash the rest is to read it. A copy whose time is new is
    scored again, which is safe.
    """
    sample = captures.samples[i]
    file, inside = (sample.file, sample.number) if isinstance(sample, Part) else (sample, "")
    if isinstance(sample, Mapping):  # this library's own format
        file, inside = captures.folder / sample["file"], sample["name"]
    row, masks = Row(f"{file.absolute()}#{inside}", ""), getattr(captures.read, "masks", None)
    try:
        found = [one.stat() for one in (file, *([masks.folder / "state.json"] if masks else []))]
    except OSError as error:
        return replace(row, error=_sentence(error))
    return replace(row, stamp=" ".join([*(f"{one.st_size} {one.st_mtime_ns}" for one in found), captures.title]))


def score(drafter: Drafter, captures: Captures, steps: int, which: Iterable[int]) -> Iterator[Row]:
    """The Row of each sample `which` (numbers in `captures`), in no order, for K = 1 to `steps`. A sample that cannot be scored
    is a Row with an error. Some 2,048 tokens are drafted together, since few rows use a processor badly, and the next are read
    meanwhile.
    """
    check_steps(steps)
    groups = _groups(captures, which, drafter.recipe.streams or ())
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, groups, None)
        while group := coming.result():
            coming = reader.submit(next, groups, None)
            yield from (row for row, capture in group if capture is None)
            yield from _together(drafter, [one for one in group if one[1] is not None], steps)


def _groups(captures: Captures, which: Iterable[int], wanted: Sequence[Label]) -> Iterator[list[Read]]:
    """The samples with their states in memory, in groups of some 2,048 tokens; one that cannot be read has no Capture."""
    group: list[Read] = []
    for i in which:
        row = unscored(captures, i)
        try:
            capture = captures.read(captures.samples[i])
            labels = wanted if all(n in capture.streams for n in wanted) else ()  # else joining them says what is missing
            states = {n: _in_memory(capture.streams[n]) for n in labels or capture.streams}
            capture = capture.replace(streams=states, last=None, last_kind="none")
            group.append((replace(row, tokens=len(capture.token_ids)), capture))
        except UNREADABLE as error:
            group.append((replace(row, error=_sentence(error)), None))
        if len(group) == MOST or sum(row.tokens for row, _ in group) >= ROWS:
            yield group
            group = []
    if group:
        yield group


def _in_memory(states: Tensor) -> Tensor:
    """A copy, made by one thread: `clone` would start a second team of threads, which take the drafting's cores."""
    if not states.numel():
        return states
    return torch.from_numpy(states.view(torch.uint8).numpy().copy()).view(states.dtype)


def _sentence(error: Exception) -> str:
    """Why a sample has no counts."""
    told = " ".join(str(error).split())
    return told if isinstance(error, InputError) else f"{type(error).__name__}: {told}"


def _together(drafter: Drafter, group: Sequence[Read], steps: int) -> list[Row]:
    """Their Rows; where the group fails each is tried alone, so that one bad sample does not spoil the others."""
    if not group:
        return []
    try:
        found = hits_together(drafter, [capture for _, capture in group], steps)
    except MemoryShortError:  # no fault of a sample's
        raise
    except UNREADABLE as error:
        if len(group) == 1:
            return [replace(group[0][0], error=_sentence(error))]
        return [_together(drafter, [one], steps)[0] for one in group]
    return [replace(row, counts=_counts(hits, steps)) for (row, _), hits in zip(group, found, strict=True)]


def _counts(hits: Hits, steps: int) -> Int[np.ndarray, " N"]:
    told = acceptance.count(hits, steps)
    rounds = [kind[K][hits.name] for kind in (told.walks, told.starts) for K in range(1, steps + 1)]
    return np.concatenate([*accuracy.count(hits), *rounds]).astype(np.int32)


def tables(rows: Sequence[Row], steps: int) -> tuple[accuracy.Accuracy, acceptance.Acceptance]:
    """Accuracies and accept lengths of all Rows that have counts, in this order; samples are called by their keys.

    Raises InputError when there is none, with the first error, and when none has a row to draft from.
    """
    good = [row for row in rows if not row.error]
    if not good:
        raise InputError(
            f"{rows[0].error if rows else 'captures: no sample'} ({len(rows)} of {len(rows)} samples cannot be scored)"
        )
    names, counts = tuple(row.key for row in good), np.stack([row.counts for row in good])
    firsts, walks, starts = np.split(counts, ends(steps)[:2], axis=1)
    told = acceptance.Acceptance.of_counts(names, walks, starts)
    return accuracy.Accuracy(names, *firsts.reshape(-1, 6, steps).swapaxes(0, 1)), told
