"""What it costs to feed a drafter other streams than it was trained on, and the line that mends it."""

from collections.abc import Sequence

from ..measure.acceptance import Acceptance
from ..measure.intervals import ratio_interval, told
from ..read.capture import Label
from .finding import Finding
from .hypotheses import config_line, name_of


def mismatch(
    trained: Sequence[Label],
    served: Sequence[Label],
    as_trained: Acceptance,
    as_served: Acceptance,
    steps: int,
    word: str = "served",
) -> Finding:
    """Accept length with K = `steps` drafts on the streams it was trained on, beside those it is served; one Finding.

    `word`: how the other streams are known: "served", or "configured for".

    Cost: how many times as many rounds, so target passes, the same text takes; the interval is over samples, paired. Where it
    does not lie above 1, the difference is a note and no fault.
    """
    trained, served = tuple(trained), tuple(served)
    right, wrong = as_trained.tau(steps), as_served.tau(steps)
    possible, reached = told(right, *as_trained.interval(steps)), told(wrong, *as_served.interval(steps))
    evidence = {"K": steps, "accept length as trained": right, "accept length as served": wrong}
    if trained == served:
        what = f"{word} the {name_of(trained)} that it was trained on; accept length {possible} at K = {steps}"
        return Finding("ok", "streams", what, evidence)
    rounds = [a.counts(steps).sum(1).astype(float) for a in (as_served, as_trained)]
    low, high = ratio_interval(*rounds)
    more = float(rounds[0].sum() / rounds[1].sum())
    evidence |= {"rounds as served / as trained": more, "low": low, "high": high}
    cost = f"accept length {reached} at K = {steps} in place of {possible}: {told(more, low, high)} times as many target passes"
    if not low > 1:
        what = f"{word} {name_of(served)} in place of {name_of(trained)}, at a cost that noise hides"
        return Finding("note", "streams", what, evidence, cost=cost, settle="more samples")
    what = f"trained on {name_of(trained)}, {word} {name_of(served)}"
    return Finding("fault", "streams", what, evidence, cost=cost + " for the same text", change=config_line(trained))
