"""Two recordings of the same tokens, in one answer with its number: the same, or how the one differs from the other."""

from collections.abc import Iterator, Sequence

import torch

from ..measure.alike import FORMS, UNLIKE, Likeness, alike, all_paired, apart, of_another, token_lag
from ..read.capture import Capture, Label
from ..read.errors import InputError
from .finding import Finding
from .hypotheses import config_line, name_of

EXACT = 1e-3  # a slot this near to a recorded stream is it to the last digit of half precision's sums
NEAR = 0.05  # and this near it is it, in eight bits or after sums in another order
HALF = 0.02  # bfloat16 leaves 0.01 at most
SCALED = 0.1  # a scale this far from 1 is another one, of states that were rounded
FAINT = 0.005  # and of states that were not
OTHER_FORM = {  # form of `alike` -> name, and what to do
    "one size": ("normed states", "capture before any norm"),
    "without residual": ("residual", "capture hidden_states + residual"),
    "part": ("residual", "sum over all ranks before capturing: one rank's part of the layer's sum is recorded"),
    "another basis": ("another target", "states of one and the same target: weights that were turned or merged are another one"),
}


def compare_captures(
    mine: Sequence[Capture],
    theirs: Sequence[Capture],
    expected: Sequence[Label] | None = None,
    who: tuple[str, str] = ("the first recording", "the second"),
) -> Finding:
    """What stands in each slot of `mine`, by the streams of `theirs` on the same tokens; one Finding.

    `expected`: what each slot should be; by default the streams of the same names, or, where slots have none, those of `theirs`
    in order. Tokens are aligned first, at lags of up to two; the first rows, the attention sink, are left out. Level "ok": the
    same (evidence: each distance), "note": the same in another precision, "open": no tokens in common, "fault": anything else.
    """
    me, them = who
    if lag := token_lag(mine, theirs):
        what = f"token ids of {me} are {abs(lag)} {'late' if lag < 0 else 'early'}: token t is token t{lag:+d} of {them}"
        return Finding("fault", "captures", what, {"lag": lag}, change="hand over row t with token t", name="tokens")
    found = alike(mine, theirs)
    if not found:
        what = f"{me} and {them} have no sample of one name whose first 16 tokens are the same: not the same text"
        return Finding("open", "captures", what, settle="the same prompts, recorded on both sides", name="text")
    evidence = {f"{one.slot}: distance to {said(one)}": one.distance for one in found}
    slots, streams = [one.slot for one in found], list(theirs[0].streams)
    if expected is None and len(slots) != len(streams) and all(isinstance(slot, str) for slot in slots):
        told_of = ", ".join(f"{_place(one)} is {said(one) if told(one) else 'none of them'}" for one in found)
        what = f"{me} has {len(slots)} slots, {them} {len(streams)} streams, and nobody said which belong: {told_of}"
        settle = "expected=, the streams that belong in the slots"
        return Finding("note", "captures", what, evidence, settle=settle, name="streams")
    expected = tuple(expected or (slots if set(slots) <= set(streams) else streams[: len(slots)]))
    if len(expected) > len(found):
        raise InputError(f"expected: {len(expected)} streams for the {len(found)} slots of {me}: name one for each slot")
    found = found[: len(expected)]
    gravest = next(_faults(found, expected, mine, theirs, who), None)
    if gravest:
        name, what, change = gravest
        return Finding("fault", "captures", what, evidence, change=change, name=name)
    return _differing(found, mine, theirs, evidence, who) or _same(found, evidence, who)


def _empty(mine: Sequence[Capture], found: Sequence[Likeness]) -> str:
    """A slot that holds nothing, or no numbers."""
    for one in found:
        rows = mine[0].stream(one.slot)[1:]
        if len(rows) and not bool(torch.isfinite(rows).all()):
            return f"{_place(one)} holds NaN or infinite numbers"
        if len(rows) and not bool(rows.any()):
            return f"{_place(one)} is all zeros"
    return ""


def _differing(
    found: Sequence[Likeness], mine: Sequence[Capture], theirs: Sequence[Capture], evidence: dict, who: tuple[str, str]
) -> Finding | None:
    """Samples that are not as the first few are, which told what each slot is: all are held against that."""
    counted, wrong, most = 0, [], max(NEAR, 4 * max(one.distance for one in found))
    for a, b, rows in all_paired(mine, theirs):
        counted += 1
        if any(apart(a.stream(one.slot)[:rows], b.stream(one.stream)[:rows]) > most for one in found):
            wrong.append(a.name)
    evidence["samples"] = counted
    if not wrong:
        return None
    what = (
        f"in {len(wrong)} of {counted} samples ({wrong[0]}) states of {who[0]} are not those of {who[1]}; in the others they are"
    )
    change = "one request at a time, and look for what mixes or shifts them"
    return Finding("fault", "captures", what, {**evidence, "other": len(wrong)}, change=change, name="rows of other tokens")


def _faults(
    found: Sequence[Likeness], expected: tuple, mine: Sequence[Capture], theirs: Sequence[Capture], who: tuple[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Name, sentence and change of each thing that differs, the gravest first."""
    me, them = who
    if empty := _empty(mine, found):
        yield "zero rows", f"{empty} of {me}", "record them again"
    far = [one for one in found if not told(one)]
    if far and (pair := of_another(mine, theirs, NEAR)):
        change = "one request at a time, and look for what mixes them: batching, overlap, a cache of prefixes"
        yield "rows of other tokens", f"the states of {me} for {pair[0]} are those of {pair[1]} in {them}", change
    exact = [one for one in found if one not in far and one.form == "as it is" and not one.lag and abs(one.scale - 1) < SCALED]
    misplaced = [one for one in exact if one.stream != expected[found.index(one)]]
    if far and misplaced:
        here = tuple(one.stream if one in exact else None for one in found)
        what = f"{_place(misplaced[0])} of {me} is {said(misplaced[0])} of {them}{_shifted(here, expected)}"
        yield "streams", f"{what}; {_place(far[0])} was not recorded there", config_line(expected)
    if far and exact and far[0].stream != expected[found.index(far[0])]:
        # rows, scale and basis are right, so the other slots are streams too
        what = f"{_place(far[0])} of {me} is no stream that was recorded in {them}, {_place(exact[0])} is {said(exact[0])}"
        yield "streams", what, config_line(expected)
    for one in far:
        yield "unknown", f"{_place(one)} of {me} is none of the streams of {them} (distance {one.distance:.2f})", ""
    here = tuple(one.stream for one in found)
    if here != expected:
        what = f"{me} holds {name_of(here)}, where {name_of(expected)} belong{_shifted(here, expected)}"
        yield "streams", what, config_line(expected)
    for one in found:
        if one.form != "as it is":
            name, change = OTHER_FORM[one.form]
            yield name, f"{_place(one)} of {me} is {said(one)} of {them}", change
    for one in found:
        if one.lag:
            what = f"rows of {me} are {abs(one.lag)} {'late' if one.lag < 0 else 'early'}: row t is row t{one.lag:+d} of {them}"
            yield "rows", what, "hand over row t with token t"
    for one in found:
        if abs(one.scale - 1) > SCALED:
            what = f"states of {me} are {one.scale:.3g} times as large as in {them}, {_place(one)}"
            yield "scale", what, "find what scales or sums them: a reduction over ranks done twice, or not done"


def told(one: Likeness) -> bool:
    """Whether a slot is what it is nearest to: nearly it, or, as it stands, much nearer than to any other stream."""
    much = one.form == "as it is" and one.distance < min(one.second / 4, UNLIKE)
    return one.distance < NEAR or much


def _place(one: Likeness) -> str:
    return f"r_{one.slot}" if isinstance(one.slot, int) else one.slot if one.slot.startswith("slot") else f"slot {one.slot}"


def _shifted(here: tuple, expected: tuple) -> str:
    """Whether slots stand one place on: the published case."""
    if len(here) > 1 and (here[:-1] == expected[1:] or here[1:] == expected[:-1]):
        return ": every slot one place on"
    return ": the same ones in another order" if set(here) == set(expected) else ""


def _same(found: Sequence[Likeness], evidence: dict, who: tuple[str, str]) -> Finding:
    most = max(one.distance for one in found)
    scale = max((one.scale for one in found), key=lambda value: abs(value - 1))
    if most < EXACT and abs(scale - 1) < FAINT:
        return Finding("ok", "captures", f"states of {who[0]} are those of {who[1]} (largest distance {most:.1g})", evidence)
    if most < EXACT:
        what = f"states of {who[0]} are those of {who[1]} but for a scale of {scale:.3g}"
        return Finding("note", "captures", what, evidence, name="scale")
    kind = (
        "another precision or order of sums" if most < HALF else "a coarse precision, or another version of the target's weights"
    )
    what = f"states of {who[0]} are those of {who[1]} in {kind} (largest distance {most:.1g})"
    return Finding("note", "captures", what, evidence, name="precision")


def said(one: Likeness) -> str:
    """What a slot is, in words."""
    stream = f"r_{one.stream}" if isinstance(one.stream, int) else str(one.stream)
    form = FORMS[one.form] + (f" ({one.scale:.2f} of it)" if one.form == "part" else "")
    return stream + (f" {form}" if form else "") + (f" at lag {one.lag:+d}" if one.lag else "")
