"""Two recordings of the same tokens, slot by slot: which recorded stream each slot is, at which lag and at which scale.

Distance of rows a and b: the median over rows of |a - s b| / |s b| with one scale s for all rows, the first row left out (its
size is another: the attention sink). Two layers apart are far from each other by it, also where their cosine is 0.9.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ..read.capture import Capture, Label

LAGS = (0, -1, 1, -2, 2)
FORMS = {
    "as it is": "",
    "one size": "each row scaled",  # by itself: a norm
    "without residual": "without its residual",  # r_n - r_{n-1}
    "part": "with a part of its layer's sum only",  # r_{n-1} + c (r_n - r_{n-1}), c well between 0 and 1
    "another basis": "in another basis",  # the same angles and sizes between rows, other channels
}
UNLIKE = 0.5
FEWEST = 16  # tokens in common from the beginning: fewer make no sample comparable
SIMPLER = 1.5  # the simplest form within so many times the least distance: rounding alone makes richer ones fit a little better
GRAM = 64  # rows whose products with each other are compared
PART = (0.1, 0.9)
SAMPLES, ROWS, OTHERS = 4, 96, 24  # samples compared, rows of each, samples whose states they might be


@dataclass(frozen=True)
class Likeness:
    """What one slot is nearest to."""

    slot: Label
    stream: Label  # of the other recording
    form: str  # one of FORMS
    lag: int  # row t is the other's row t + lag
    scale: float  # of the form "part": how much of the layer's own sum is there
    distance: float
    second: float  # distance to the nearest other stream


def alike(mine: Sequence[Capture], theirs: Sequence[Capture]) -> list[Likeness]:
    """For each stream of `mine`, in order, what it is in `theirs`, by the first four samples that both have (`all_paired`).

    Empty where no two samples have 16 tokens in common.
    """
    pairs = paired(mine, theirs)
    if not pairs:
        return []
    found = []
    others = [{label: b.stream(label)[:rows] for label in b.streams} for _, b, rows in pairs]
    for slot in pairs[0][0].streams:
        states = [a.stream(slot)[:rows] for a, _, rows in pairs]
        tried = list(_candidates(states, others))
        best = min(one[-1] for one in tried)
        simple = sorted(tried, key=lambda one: (list(FORMS).index(one[1]), abs(one[2]), one[-1]))
        stream, form, lag, scale, distance = next(one for one in simple if one[-1] <= SIMPLER * best + 1e-6)
        second = min((d for n, *_, d in tried if n != stream), default=float("nan"))
        found.append(Likeness(slot, stream, form, lag, scale, distance, second))
    return found


def paired(mine: Sequence[Capture], theirs: Sequence[Capture]) -> list[tuple[Capture, Capture, int]]:
    """The first few of `all_paired`."""
    return list(islice(all_paired(mine, theirs), SAMPLES))


def all_paired(mine: Sequence[Capture], theirs: Sequence[Capture]) -> Iterator[tuple[Capture, Capture, int]]:
    """Samples of one name, or, where no name is common, whose texts begin with the same 16 tokens; and how many rows they have
    in common: 16 tokens or more from the beginning.
    """
    names = {capture.name for capture in mine}
    by_name = {capture.name: capture for capture in theirs if capture.name in names}
    begins = {} if by_name else {tuple(capture.token_ids[:FEWEST].tolist()): capture for capture in theirs}
    for one in mine:
        other = by_name.get(one.name) if by_name else begins.get(tuple(one.token_ids[:FEWEST].tolist()))
        if other is not None and (n := together(one, other)) >= FEWEST:
            yield one, other, n


def token_lag(mine: Sequence[Capture], theirs: Sequence[Capture]) -> int:
    """At which lag the tokens of samples of one name agree, where they do not as they stand: token t is the other's t + lag.

    0 where they do, or where no lag of 1 or 2 makes nine of ten agree.
    """
    by_name = {capture.name: capture.token_ids for capture in theirs}
    pairs = [(one.token_ids, by_name[one.name]) for one in mine if one.name in by_name][:SAMPLES]
    pairs = [(a[2:-2], b) for a, b in pairs if len(a) == len(b) >= 16]
    shares = {lag: _agree(pairs, lag) for lag in LAGS}
    best = max(LAGS, key=lambda lag: shares[lag])
    return best if shares[best] > 0.9 > shares[0] else 0


def _agree(pairs: list[tuple[Tensor, Tensor]], lag: int) -> float:
    same = [(a == b[2 + lag : 2 + lag + len(a)]).float() for a, b in pairs]
    return float(torch.cat(same).mean()) if same else 0.0


def of_another(mine: Sequence[Capture], theirs: Sequence[Capture], near: float) -> tuple[str, str] | None:
    """A sample of `mine` whose states are those of another sample of `theirs`, and that one's name."""
    by_name = {capture.name: capture for capture in theirs[:OTHERS]}
    for one in mine[:SAMPLES]:
        slot = one.stream(next(iter(one.streams)))
        for name, other in by_name.items():
            for label in other.streams if name != one.name else ():
                rows = min(len(slot), len(other.stream(label)), ROWS)
                if rows > 8 and _apart([slot[:rows]], [other.stream(label)[:rows]], 0)[1] < near:
                    return one.name, name
    return None


def together(a: Capture, b: Capture) -> int:
    """How many tokens two samples begin with alike, at most 96."""
    n = min(len(a.token_ids), len(b.token_ids), ROWS)
    other = (a.token_ids[:n] != b.token_ids[:n]).nonzero()
    rows = int(other[0]) if len(other) else n
    return min(rows, *(len(t) for t in (a.stream(next(iter(a.streams))), b.stream(next(iter(b.streams))))))


def _candidates(states: list[Tensor], others: list[dict[Label, Tensor]]) -> Iterator[tuple]:
    """Every stream, form and lag: stream, form, lag, scale, distance."""
    for label in others[0]:
        if not all(label in streams and streams[label].shape == x.shape for x, streams in zip(states, others, strict=True)):
            continue
        rows = [streams[label] for streams in others]
        plain = [(label, "as it is", lag, *_apart(states, rows, lag)) for lag in LAGS]
        yield from plain
        yield label, "one size", 0, *_apart(states, rows, 0, each=True)
        if min(distance for *_, distance in plain) > UNLIKE:  # what is like as it stands keeps its products, too
            yield label, "another basis", 0, 1.0, _basis_apart(states, rows)
        if isinstance(label, int) and all(label - 1 in streams for streams in others):
            before = [streams[label - 1] for streams in others]
            update = [s - b for s, b in zip(rows, before, strict=True)]
            yield label, "without residual", 0, *_apart(states, update, 0)
            share, distance = _apart([a - b for a, b in zip(states, before, strict=True)], update, 0)
            if PART[0] < share < PART[1]:
                whole = torch.cat(rows).norm(dim=-1).median() / torch.cat(update).norm(dim=-1).median()
                yield label, "part", 0, share, distance * share / float(whole)  # as a share of the whole state, as the others


def _basis_apart(mine: list[Float[Tensor, "R Ht"]], theirs: list[Float[Tensor, "R Ht"]]) -> float:
    """How far the products of rows with each other are apart, as a share: 0 for one recording turned into another basis.

    Nearly nothing else keeps them; but of raw states a few huge channels make most of each product, so rows are taken less their
    mean and at one size. Infinite where they then still point the same way: only those few channels differ (8 bits by channel).
    """

    def rows(parts: list[Tensor]) -> Tensor:
        x = torch.cat(parts)[:GRAM]
        x = x - x.mean(0)
        return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)  # [N, Ht]

    x, y = rows(mine), rows(theirs)
    if float((x * y).sum(-1).median()) > UNLIKE:
        return float("inf")
    a, b = x @ x.T, y @ y.T  # [N, N]
    return float((a - b).norm() / (b - torch.eye(len(b))).norm().clamp(min=1e-12))


def distances(mine: Sequence[Capture], theirs: Sequence[Capture]) -> pd.DataFrame:
    """Distance of each stream of `mine` (rows) to each of `theirs` (columns), as they stand, over samples of one name whose
    tokens begin alike. Empty where there are none.
    """
    pairs = paired(mine, theirs)

    def distance(slot: Label, other: Label) -> float:
        states, rows = [a.stream(slot)[:n] for a, _, n in pairs], [b.stream(other)[:n] for _, b, n in pairs]
        return _apart(states, rows, 0)[1] if states[0].shape == rows[0].shape else float("nan")

    slots, streams = (list(one.streams) for one in pairs[0][:2]) if pairs else ([], [])
    return pd.DataFrame({other: {slot: distance(slot, other) for slot in slots} for other in streams})


def apart(mine: Float[Tensor, "R Ht"], theirs: Float[Tensor, "R Ht"]) -> float:
    """Distance of the rows of two samples, as they stand; infinite for another width, or too few rows."""
    return _apart([mine], [theirs], 0)[1] if mine.shape == theirs.shape and len(mine) > 4 else float("inf")


def _apart(mine: list[Float[Tensor, "R Ht"]], theirs: list[Float[Tensor, "R Ht"]], lag: int, each: bool = False):
    """Scale and distance; with `each`, a scale for every row."""
    keep = [torch.arange(2, len(x) - 2) for x in mine]  # rows that every lag has
    a = torch.cat([x[rows] for x, rows in zip(mine, keep, strict=True)])
    b = torch.cat([x[rows + lag] for x, rows in zip(theirs, keep, strict=True)])
    dots, squares = (a * b).sum(-1, keepdim=True), b.pow(2).sum(-1, keepdim=True)
    scale = dots / squares.clamp(min=1e-12) if each else dots.sum() / squares.sum().clamp(min=1e-12)
    fitted = scale * b
    distance = (a - fitted).norm(dim=-1) / fitted.norm(dim=-1)  # nothing is like zeros: 0 / 0 is no distance
    return float(scale.median()), float(distance.median().nan_to_num(nan=float("inf")))
