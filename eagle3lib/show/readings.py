"""Readings: the sentence that stands beside a figure, written from the numbers that the figure shows."""

import pandas as pd

from ..judge.finding import Finding
from ..judge.probe import Probe
from ..measure.acceptance import Acceptance

STANDS_OUT = 5.0  # a slot whose median norm is so many times off the other side's is worth a sentence


def _streams(streams) -> str:
    return ", ".join(f"r_{n}" if isinstance(n, int) else str(n) for n in streams)


def answer(finding: Finding, probe: Probe) -> str:
    """The notebook's answer: cause, cost, change, and how it is known. Markdown."""
    told = probe.findings[0]
    known = f"Found by scoring {len(probe.table)} ordered choices of streams on the same rows: the best reaches " + (
        f"step-1 accuracy {probe.table.accuracy.iloc[0]:.3f}, the configured one {_as_configured(probe):.3f}."
    )
    if finding.level == "fault":
        mend = f"To mend it, write `{finding.change}` in the drafter's `config.json`, in place of the line that is there."
        return f"**{_upper(finding.what)}.** {_upper(finding.cost)}. {mend} {known}"
    cost = f" {_upper(finding.cost)}." if finding.cost else ""
    return f"**{_upper(finding.what)}.**{cost} {known} {_upper(told.what)}."


def _as_configured(probe: Probe) -> float:
    """Accuracy on the configured streams; nan where they were not recorded."""
    name = "streams " + _streams(probe.configured or ())
    return float(probe.table.accuracy.get(name, float("nan")))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def norms(summary: pd.DataFrame, trained: tuple, served: tuple) -> str:
    """What the norms of the two sets of slots say, slot by slot, with their medians. Markdown."""
    if tuple(trained) == tuple(served):
        medians = ", ".join(f"{_streams([n])} {summary.loc[n, 'median']:.3g}" for n in trained)
        return f"Trained and served alike; median row norms: {medians}."
    lines = []
    for slot, (mine, theirs) in enumerate(zip(trained, served, strict=True), start=1):
        a, b = summary.loc[mine, "median"], summary.loc[theirs, "median"]
        if mine == theirs:
            lines.append(f"slot {slot} is {_streams([mine])} in both")
        else:
            times = max(a, b) / min(a, b)
            loud = (
                f", **{times:.0f} times** {'larger' if b > a else 'smaller'}" if times >= STANDS_OUT else f" ({b / a:.1f} times)"
            )
            lines.append(
                f"slot {slot} was trained on rows of norm {a:.3g} ({_streams([mine])}) "
                f"and is served rows of {b:.3g} ({_streams([theirs])}){loud}"
            )
    embedding = "Rows of r_0, the embedding's output, are the small ones. " if 0 in (*trained, *served) else ""
    return embedding + _upper("; ".join(lines)) + "."


def accept_length(curves: dict[str, Acceptance], steps: int) -> str:
    """Accept length of each curve at K = `steps`, with its interval. Markdown."""
    parts = []
    for name, found in curves.items():
        low, high = found.interval(steps)
        parts.append(f"{name} **{found.tau(steps):.2f}** [{low:.2f}, {high:.2f}]")
    samples = len(next(iter(curves.values())).counts(steps))
    return f"Tokens a round at K = {steps}, with 95 % intervals over {samples} prompts: " + "; ".join(parts) + "."
