"""Readings of a comparison of drafters: each sentence from its numbers."""

import math
from collections.abc import Mapping

import pandas as pd

from ..judge.finding import Findings
from ..measure.acceptance import Acceptance
from ..measure.compare import FEWEST, MOST, Comparison
from ..measure.intervals import told as shown
from .printed import with_intervals
from .readings import caveats

LISTED = 3  # drafters named in a sentence; the table has them all


def answer(ranked: Comparison, checks: Findings) -> str:
    """Which is the best, and whether that is told from noise. Markdown."""
    table, steps, samples = ranked.table(), ranked.steps, len(ranked.rounds)
    best, others = ranked.rounds.columns[0], table.iloc[1 : ranked.rounds.shape[1]]
    first = table.loc[best]
    reached = shown(first["accept length"], first["accept length low"], first["accept length high"])
    reached = f"{reached} tokens a round at K = {steps}, over {prompts(samples)}"
    alike = others[others["beside the first"] != "worse"]
    if others.empty:
        told = f"**Only `{best}` could be run: {reached}; there is nothing to compare it with.**"
    elif alike.empty:
        every = "the other one is" if len(others) == 1 else f"all {len(others)} others are"
        told = f"**`{best}` is the one to ship: {reached}, and {every} worse, by more than noise.** The nearest is "
        told += f"{_apart(others.iloc[0])}, corrected p {others.p.iloc[0]:.1g}."
    else:
        told = f"**`{best}` comes first with {reached}, but {_listed(alike.index)} cannot be told from it.** "
        told += f"The nearest is {_apart(alike.iloc[0])}: {_settled(alike.iloc[0])}."
        worse = others.index.difference(alike.index, sort=False)
        told += f" Worse, by more than noise: {_listed(worse)}." if len(worse) else ""
    for name, why in ranked.absent.items():
        told += f" Not compared: `{name}` ({why})."
    return caveats(checks) + told


def prompts(number: int) -> str:
    return "one prompt" if number == 1 else f"{number:,} prompts"


def _listed(names: pd.Index) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:LISTED]) + more


def _apart(row: pd.Series) -> str:
    return f"`{row.name}`, {shown(row.difference, row['difference low'], row['difference high'], 3)} beside it"


def _settled(row: pd.Series) -> str:
    if pd.isna(row["prompts needed"]):
        return f"fewer than {FEWEST} prompts tell nothing apart"
    return f"{needed(row['prompts needed'])} prompts like these would tell a difference of that size"


def needed(number: float) -> str:
    """Prompts needed, in words: none are counted beyond 10,000."""
    return "-" if pd.isna(number) else f"more than {MOST:,}" if number > MOST else f"about {number:,.0f}"


def curves(found: Mapping[str, Acceptance | str], ranked: Comparison) -> str:
    """Which leads at which K, and what pairing gained for the nearest two. Markdown."""
    table, names = ranked.table(), list(ranked.rounds)
    steps = sorted(found[names[0]].walks)
    leads: dict[str, list[int]] = {}
    for K in steps:
        leads.setdefault(max(names, key=lambda name: found[name].tau(K)), []).append(K)
    told = "; ".join(f"`{name}` leads at K = {', '.join(map(str, Ks))}" for name, Ks in leads.items())
    told = f"`{names[0]}` leads at every K up to {steps[-1]}" if list(leads) == names[:1] else told
    if len(names) < 2 or len(ranked.rounds) < 2:
        return told + "."
    a, b = table.iloc[0], table.iloc[1]
    alone = math.hypot(*(row["accept length high"] - row["accept length low"] for row in (a, b)))
    width = b["difference high"] - b["difference low"]
    overlap = "overlap" if a["accept length low"] <= b["accept length high"] else "do not overlap"
    told += f". At K = {ranked.steps} the intervals of `{names[0]}` and `{names[1]}` on the left {overlap}; their difference, "
    told += f"prompt by prompt, is {shown(b.difference, b['difference low'], b['difference high'], 3)}"
    if not alone > width > 0:
        return told + "."
    return told + (
        f". Were each run on prompts of its own, that interval would be **{alone / width:.1f} times** as wide, and as much "
        f"certainty would take {(alone / width) ** 2:.1f} times as many prompts."
    )


def table(ranked: Comparison) -> pd.DataFrame:
    """`Comparison.table()` as text: numbers with their intervals."""
    table = ranked.table()
    as_text = {
        "p": table.p.map(lambda p: "-" if p != p else f"{p:.1g}"),
        "prompts needed": table["prompts needed"].map(needed),
        "step-1 accuracy": table["step-1 accuracy"].map(lambda share: "-" if share != share else f"{share:.3f}"),
    }
    return with_intervals(table).assign(**as_text).rename(columns={"difference": "difference to the first", "p": "corrected p"})
