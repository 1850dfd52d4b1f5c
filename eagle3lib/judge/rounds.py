"""The first round in which an engine did something else than the prediction, and what that points at."""

from collections.abc import Iterator, Sequence

import torch

from ..read.capture import Capture
from ..run.chain import chain_hits
from ..run.drafter import Drafter, Memory
from ..run.rounds import Round, rounds_of
from .finding import Finding

NEAR = 1e-3  # relative distance of a row received from the recorded one; float32 in another order of sums leaves 1e-6
SUMS = 2.0  # a gap of logits below so many times the difference between two ways to compute them is a tie


def first_difference(
    drafter: Drafter, capture: Capture, engine: Sequence[Round], end: int | None = None, served: Capture | None = None
) -> Finding:
    """Hold an engine's rounds over one request against the prediction from `capture`, its text and states, in one Finding.

    `end`: tokens of the request, where the capture goes on past it. `served`: the rows that the engine handed its drafter, in
    slots in the drafter's order. Level "ok": every round the same; "note": they part at a near tie of the drafter's logits;
    "fault": the rows received differ (captured states), or they are the same and the drafts differ (draft keys, positions,
    weights), or drafts are the same and others were accepted (verification); "open": the drafts differ and no rows were given.
    """
    steps = max((len(one.drafts) for one in engine), default=1)
    predicted = rounds_of(chain_hits(drafter, capture, steps), capture.token_ids.tolist(), steps, end)
    theirs = [_as_far_as_told(one, len(capture.token_ids)) for one in engine]
    for number, (mine, yours) in enumerate(zip(predicted, theirs, strict=False)):
        if (mine.row, mine.drafts, mine.accepted) != (yours.row, yours.drafts, yours.accepted):
            return _parted(drafter, capture, number, mine, yours, served)
    if len(predicted) != len(theirs):
        what = f"{capture.name}: the engine ran {len(theirs)} rounds and {len(predicted)} were predicted, alike as far as both go"
        return Finding("open", "engine", what, {}, settle="where the request ended", name="rounds")
    accepted = sum(one.accepted for one in predicted)
    what = f"{capture.name}: all {len(predicted)} rounds are as predicted, {accepted} accepted drafts"
    return Finding("ok", "engine", what, {"rounds": len(predicted), "accepted": accepted})


def _as_far_as_told(one: Round, tokens: int) -> Round:
    """An engine's round without what follows its first miss, or the end of a text of so many tokens."""
    told = tokens - 2 - one.row
    return Round(one.row, one.drafts[: min(one.accepted + 1, told)], min(one.accepted, told), one.after)


def _parted(drafter: Drafter, capture: Capture, number: int, mine: Round, yours: Round, served: Capture | None) -> Finding:
    place = f"{capture.name}, round {number}, row {mine.row}"
    step = next((k for k, (a, b) in enumerate(zip(mine.drafts, yours.drafts, strict=False)) if a != b), None)
    if mine.row != yours.row or step is None:
        what = (
            f"the same drafts {list(mine.drafts)}, but {yours.accepted} were accepted where the text has {mine.accepted} of them"
        )
        if mine.row != yours.row:
            what = f"the engine's round starts at row {yours.row}: it wrote another text, or rounds are missing"
        return Finding("fault", "engine", f"{place}: {what}", settle="both texts, token by token", name="verification")
    gap, apart = margin(drafter, capture, mine.row, step, mine.drafts[step], yours.drafts[step])
    told = f"{place}: draft {step + 1} is {yours.drafts[step]} in the engine, {mine.drafts[step]} by hand"
    by = f"by a gap of {gap:.3g}" if gap < float("inf") else "and the draft vocabulary has not both"
    evidence = {"gap of their logits": gap, "two ways to compute differ by": apart}
    if gap <= SUMS * apart:
        return Finding("note", "engine", f"{told}: a near tie (gap {gap:.1g})", evidence, name="near tie")
    if served is None:
        settle = "the rows that the engine handed its drafter (served=)"
        return Finding("open", "engine", f"{told}, {by}", evidence, settle=settle, name="drafts")
    far = next(_rows_apart(drafter, capture, served, mine.row), None)
    if far:
        row, distance = far
        what = f"{told}; the first row received that differs is {row}, by {distance:.2g} of its size"
        settle = "compare_captures says which states they are"
        return Finding("fault", "serving capture", what, evidence, settle=settle, name="rows")
    suspect = "embedding, weights or head" if mine.row < 2 else "draft keys, positions, weights or head"
    suspect = "the drafter's own keys and positions, or the state fed back" if step else suspect
    what = f"{told}, {by}; all rows received are as recorded: {suspect}"
    return Finding("fault", "engine", what, evidence, name="draft keys" if step else "drafts")


@torch.inference_mode()
def margin(drafter: Drafter, capture: Capture, row: int, step: int, mine: int, yours: int) -> tuple[float, float]:
    """How far apart the logits of two tokens are at one row and step, and how far two ways to compute that are from each other.

    Infinite for a token that the draft vocabulary has not. True tokens are fed up to `step`.
    """
    g, ids = capture.joined(drafter.recipe)[: row + 1].to(drafter.device, drafter.dtype), capture.token_ids.to(drafter.device)
    rows = torch.arange(row + 1, device=drafter.device)
    out = drafter.forward(drafter.fuse(g), ids[rows + 1], rows, Memory())
    last = out.rows(slice(-1, None))
    for k in range(1, step + 1):
        out = drafter.forward(out.feed, ids[(rows + 1 + k).clamp(max=len(ids) - 1)], rows, out.memory, k)
        last = drafter.forward(last.feed, ids[row + 1 + k : row + 2 + k], rows[-1:], last.memory, k)
    together, alone = drafter.logits(out.normed[-1:])[0], drafter.logits(last.normed)[0]
    places = [(drafter.target_ids == token).nonzero()[:, 0] for token in (mine, yours)]
    if not all(len(place) for place in places):
        return float("inf"), float((together - alone).abs().max())
    a, b = (together[place[0]] for place in places)
    return float((a - b).abs()), float((together - alone).abs().max())


def _rows_apart(drafter: Drafter, capture: Capture, served: Capture, upto: int) -> Iterator[tuple[int, float]]:
    """Each row up to `upto` whose joined streams differ, and by how much."""
    mine, theirs = (one.joined(drafter.recipe)[: upto + 1] for one in (capture, served))
    R = min(len(mine), len(theirs))
    distance = (mine[:R] - theirs[:R]).norm(dim=-1) / mine[:R].norm(dim=-1).clamp(min=1e-12)
    yield from ((row, away) for row, away in enumerate(distance.tolist()) if away > NEAR)
