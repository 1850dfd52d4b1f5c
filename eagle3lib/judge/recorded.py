"""Is what was recorded enough? The list of recording.py held against the files at hand: what is there, what is lacking."""

from collections.abc import Sequence

import pandas as pd

from ..measure.alike import paired
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.served import Served
from .recording import PROMPTS, streams_to_record


def what_is_recorded(
    ckpt: Checkpoint,
    captures: Sequence[Capture] | None = None,
    served: Sequence[Capture] | None = None,
    logs: Sequence[Served] = (),
    flags: object | None = None,
    measured: Sequence[object] = (),
) -> pd.DataFrame:
    """A row for each thing that a verdict wants of a recording: whether it is there ("yes", "partly", "no"), and what is lacking.

    What the arguments are, `verdict` says. Of each set of captures up to 24 samples are looked at. Whether what is there is
    sound, `check_captures` and `check_texts` say.
    """
    caps, at_server = list((captures or [])[:PROMPTS]), list((served or [])[:PROMPTS])
    count = f"{len(served or [])} samples"
    rows = {
        "reference states: streams": _streams(ckpt, caps),
        "reference states: the last state": _last(caps),
        "reference states: who wrote what": _masks(caps),
        "reference states: prompts": _prompts(len(captures or [])),
        "states at the server": _given(served, "a fault of its capture looks like one of the drafter", count),
        "the same tokens on both sides": _same(caps, at_server),
        "the server's counts": _counts(logs),
        "its launch line": _given(flags, "what K really was is not known"),
        "tokens a second, without drafter and with": _given(measured, "whether any drafter could pay cannot be told"),
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["is it there", "what is lacking"]).rename_axis("record")


def _given(there: object, lacking: str, told: str = "") -> tuple[str, str]:
    return ("yes", told) if there else ("no", lacking)


def _streams(ckpt: Checkpoint, caps: list[Capture]) -> tuple[str, str]:
    if not caps:
        return "no", "nothing can be run by hand"
    there = set.intersection(*(set(c.streams) for c in caps))
    if not any(isinstance(label, int) for label in there):
        return "partly", f"{len(there)} slots, and nobody says which streams they are: which_streams may tell"
    needed = set(ckpt.recipe.streams or ()) - there
    if needed:
        return "partly", f"r_{min(needed)}, which the drafter is configured for: it cannot be run as configured"
    wanted = [n for n in streams_to_record(ckpt) if n not in there]
    return ("partly" if wanted else "yes"), f"not judged: {', '.join(f'r_{n}' for n in wanted)}" if wanted else ""


def _last(caps: list[Capture]) -> tuple[str, str]:
    kinds = {c.last_kind for c in caps}
    if not kinds or kinds == {"none"}:
        return "no", "nothing checks that states, tokens and target belong together"
    return ("yes", "") if kinds <= {"post_norm", "pre_norm"} else ("partly", "not said whether before or after the final norm")


def _masks(caps: list[Capture]) -> tuple[str, str]:
    told = sum(bool(c.loss_mask[1:].any()) and not bool(c.loss_mask[1:].all()) for c in caps)
    if told == len(caps) and told:
        return "yes", ""
    return ("partly" if told else "no"), f"told in {told} of {len(caps)} samples: prompts are scored with answers"


def _prompts(number: int) -> tuple[str, str]:
    if number >= PROMPTS:
        return "yes", f"{number}"
    return ("partly" if number else "no"), f"{number}, {PROMPTS} or more leave the probe power against noise"


def _same(caps: list[Capture], at_server: list[Capture]) -> tuple[str, str]:
    if not at_server or not caps:
        return "no", "only one side was recorded"
    pairs = len(paired(at_server, caps))
    return ("yes", "") if pairs else ("no", "no sample of one name begins with the same 16 tokens: record one text on both sides")


def _counts(logs: Sequence[Served]) -> tuple[str, str]:
    if not logs:
        return "no", "S, what the server reached"
    if any(run.requests for run in logs):
        return "yes", "by request"
    if any(run.rounds for run in logs):
        return "partly", "in all, not by request: of other text nothing firm can be said"
    return "partly", "a mean only, without rounds"
