"""A verdict's evidence as pictures, small tables and sentences; what a piece needs, where it could not be measured."""

import difflib
import re
import shlex
from collections.abc import Mapping

import numpy as np
import pandas as pd
from IPython.display import Markdown

from ..judge.evidence import Evidence
from ..judge.probed import GAIN
from ..judge.ranking import ALPHA
from ..judge.verdict import CANNOT_TELL, Verdict
from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from ..measure.intervals import ratio_interval, told
from ..read.checkpoint import Checkpoint
from . import readings, results
from .figures import COLOURS, WIDTH, Picture, beside, label, line, named, style, whole

SHOWN = 12  # single changes drawn: the others do worse still
NO_STATES = Markdown("Not measured: it needs the drafter (`CHECKPOINT`) and recorded hidden states (`CAPTURES`).")
NO_COUNTS = Markdown(
    "Not measured: it needs counts by position (`LOG`): vLLM's log and SGLang's saved answers have them, SGLang's log does not."
)
NO_FLAGS = Markdown("Not given: the launch line (`FLAGS`). It says what K really was, and whether the flags do what was asked.")
NO_SPEEDS = Markdown(
    "Not given: tokens a second with the drafter (`MEASURED`) and without (`BASELINE`). They say from which accept length "
    "drafting pays, and whether a perfect drafter could pay at all."
)
UNUSED = "**The recorded states were not used: that takes the drafter (`CHECKPOINT`) and its target (`TARGET`).** "
# Colour and mark by a word of the name; what is configured is orange, as in the picture of the streams.
STYLES = {"mended": 0, "server's states": 2, "same tokens": 3, "count": 6, "break-even": 4}


def runnable(ckpt: Checkpoint | None) -> bool:
    """Whether embedding and head are the drafter's own, or a target supplies them."""
    return ckpt is not None and (ckpt.target is not None or {"embed_tokens.weight", "lm_head.weight"} <= set(ckpt.names))


def answer(found: Verdict, unused: object = None) -> Markdown:
    """The sentence; where it cannot be told, also what would settle it. `unused`: states that the drafter could not run on."""
    settle = f" What would settle it: {found.settle}." if found.exit_code == CANNOT_TELL and found.settle else ""
    return Markdown(f"{UNUSED if unused else ''}**{readings.plain(found.sentence)}**{settle}")


def _style(name: str) -> dict:
    return style(next((number for word, number in STYLES.items() if word in name), 1))


def _by_hand(e: Evidence) -> dict[str, list]:
    """Name -> hits of the drafter run by hand, where they were measured."""
    if not e.now:
        return {}
    title = readings.title(e.probe, readings.by_default(e.ckpt.recipe)).strip(",")
    place = "" if e.place == "training capture" else ", on the server's states"
    sets = {f"by hand, {title}{place}": e.now, f"by hand, mended{place}": e.mended if e.mended is not e.now else None,
            "by hand, on the server's states": e.served, "by hand, same tokens on training's states": e.reference}  # fmt: skip
    return {name: hits for name, hits in sets.items() if hits}


def numbers(found: Verdict) -> pd.DataFrame:
    """Accept length at K from every side, with its 95 % interval: by hand, in the server's log, and where drafting pays."""
    e, K = found.evidence, found.steps
    counted = {name: Acceptance.of(hits) for name, hits in _by_hand(e).items()}
    rows = {name: (accepted.tau(K), *accepted.interval(K)) for name, accepted in counted.items()}
    if e.tree:
        rows["by hand, the tree of the flags"] = e.tree
    if run := e.run:
        spread = Acceptance({run.steps: run.requests}, {}).interval(run.steps) if run.requests else (np.nan, np.nan)
        rows["the log's count"] = (run.accept_length, *spread)
    if "break-even" in found.cost.index:
        rows["break-even: drafting pays from here"] = (found.cost["accept length"]["break-even"], np.nan, np.nan)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["accept length", "low", "high"])


def sides(found: Verdict) -> Picture | Markdown:
    """The numbers side by side: a mark and its 95 % interval each."""
    table, K = numbers(found), found.steps
    if table.empty:
        return NO_STATES
    figure = Picture(figsize=(WIDTH, 0.45 * len(table) + 1.0), layout="constrained")
    axes = figure.subplots()
    for place, (name, row) in enumerate(table.iterrows()):
        axes.hlines(place, row.low, row.high, color=_style(name)["color"], linewidth=2)
        axes.plot(row["accept length"], place, **_style(name) | {"markersize": 8})
        beside(axes, np.nanmax(row), place, told(*row))
    named(axes, list(table.index))
    most = np.nanmax(table.to_numpy())
    axes.set(xlim=(1 - 0.1 * (most - 0.9), most + 0.6 * (most - 0.9)),
             xlabel=f"accept length at K = {K}\n(tokens a round, 1 to {K + 1}; higher is better)")  # fmt: skip
    return figure


def sides_said(found: Verdict) -> Markdown | None:
    """The numbers, and what they say of each other."""
    e = found.evidence
    text = "; ".join(f"{name} **{told(*row)}**" for name, row in numbers(found).iterrows())
    text = readings.upper(text) + f". A perfect drafter would reach {found.steps + 1}." if text else ""
    if e.now and e.mended is not e.now:
        now, mended = (Acceptance.of(hits).counts(found.steps).sum(1).astype(float) for hits in (e.now, e.mended))
        times = told(now.sum() / mended.sum(), *ratio_interval(now, mended))
        text += f" As it is, the same text takes **{times} times** as many rounds as mended."
    if e.states:
        text += f" {readings.upper(readings.plain(e.states.what))}."
    return Markdown(text) if text else None


def counting(table: pd.DataFrame) -> pd.Series:
    """Which single changes (`Probe.changes`) gain enough, by more than noise."""
    return (table.gained >= GAIN) & (table.p < ALPHA)


def changes(found: Verdict) -> Picture | Markdown:
    """Accuracy gained by single changes, best first; dotted: the gain from which one counts. Orange and hatched: it does."""
    if not found.evidence.probe:
        return NO_STATES
    table = (every := found.evidence.probe.changes).sort_values("gained", ascending=False).head(SHOWN)
    figure = Picture(figsize=(WIDTH, 0.33 * len(table) + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, (row, counts) in enumerate(zip(table.itertuples(), counting(table), strict=True)):
        early = row.p != row.p
        axes.barh(place, row.gained, color=COLOURS[int(counts)], alpha=0.3 if early else 0.7, hatch="//" if counts else None)
        beside(axes, max(row.gained, GAIN), place, f"{row.gained:+.3f}, {'dropped early' if early else f'p = {row.p:.1g}'}")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.axvline(GAIN, color="black", linewidth=1.2, linestyle=":", label=f"a gain counts from {GAIN} on, with p < {ALPHA}")
    named(axes, list(table.index))
    left, right = min(table.gained.min(), 0), max(table.gained.max(), GAIN)
    axes.set(xlim=(left - 0.03 * (right - left), right + 0.7 * (right - left)),
             xlabel=f"accuracy gained (higher is better), best {len(table)} of {len(every)}")  # fmt: skip
    figure.legend_outside()
    return figure


def changes_said(found: Verdict) -> Markdown | None:
    """How many changes were tried, whether one counts, and the largest gain."""
    probe = found.evidence.probe
    if not probe:
        return None
    table = probe.changes.sort_values("gained", ascending=False)
    best, number = table.iloc[0], int(counting(table).sum())
    p = ", dropped early" if best.p != best.p else f", corrected p {best.p:.1g}"
    on = ", ".join(map(label, probe.streams if any(way.kind == "streams" for way in probe.found) else probe.playable))
    return Markdown(
        f"Of {len(table)} single changes on top of {on}, **{number or 'none'}** {'count' if number > 1 else 'counts'}. The "
        f"largest gain is {best.gained:+.3f}: {best.name}{p}. {table.p.isna().sum()} were dropped before the last prompt."
    )


def _accuracies(e: Evidence) -> dict[str, Accuracy]:
    return {name.removeprefix("by hand, "): Accuracy.of(hits) for name, hits in _by_hand(e).items() if hits is not e.reference}


def marginal(found: Verdict) -> Picture | Markdown:
    """Marginal accuracy by draft step, with 95 % intervals, and the claim."""
    if not found.evidence.now:
        return NO_STATES
    figure = Picture(figsize=(WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    for name, one in _accuracies(found.evidence).items():
        table = one.table()
        line(axes, table.marginal, table["marginal low"], table["marginal high"], label=name, **_style(name))
    if (e := found.evidence).figures is not None:  # else the claim cannot be compared on this text
        name = " ".join(e.claimed_by or ("a figure",)) + ", claimed"
        axes.plot([1], [e.claimed], "*", color="black", markersize=13, label=name)
    whole(axes.xaxis)
    axes.set(xlabel="draft step (true tokens fed)", ylabel="marginal accuracy (higher is better)", ylim=(0, None))
    figure.legend_outside(ncols=2)
    return figure


def marginal_said(found: Verdict) -> Markdown | None:
    """The curve's shape in words, and the claim beside the same figure here."""
    if not (e := found.evidence).now:
        return None
    shape = next(f.what for f in found.why if "shape" in f.evidence).partition("; ")[2]
    claim = e.figures.loc[e.claimed_by] if e.figures is not None and e.claimed_by in e.figures.index else None
    return Markdown(f"**As it is run now, {shape}.** {results.accuracies(_accuracies(e), e.checks, claim, e.claimed)}")


def counts(found: Verdict) -> pd.DataFrame | Markdown:
    """Rounds, and the share of them that accepted draft 1, 2, ...: the server's, and by hand."""
    e = found.evidence
    if e.run is None or e.run.positions is None:
        return NO_COUNTS
    K = e.run.steps
    rows = {"the log's count": (e.run.rounds, *(n / e.run.rounds for n in e.run.positions))}
    for name, hits in _by_hand(e).items():
        if len(hits[0].hit) >= K:
            rows[name] = ((accepted := Acceptance.of(hits)).counts(K).sum(), *accepted.per_position(K))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rounds", *(f"draft {k + 1}" for k in range(K))])


def counts_said(found: Verdict) -> Markdown | None:
    """Whether the server's counts are those predicted, on which text, and request by request where they are told."""
    if (e := found.evidence).match is None:
        return None
    text = next(f.what for f in found.why if f.where == "engine")
    if e.match.same_text and e.run.requests:
        mine = Acceptance.of(e.served or e.now).requests(e.run.steps).rounds
        same = [mine[name] == e.run.requests[name].sum() for name in mine.index if name in e.run.requests]
        text += f"; **{sum(same)} of {len(same)} requests took exactly as many rounds as predicted**"
    return Markdown(readings.upper(text) + ".")


def mend(found: Verdict) -> Markdown:
    """What to do: of a checkpoint, lines of its config.json as a diff; all else in words."""
    if found.where != "checkpoint":
        return Markdown(f"To do: {found.do}." if found.do else "Nothing to change was found.")
    before = after = (found.evidence.ckpt.path / "config.json").read_text(encoding="utf-8")
    words = []
    for change in found.do.split("; "):
        line = re.match(r'"(\w+)": (\[[^\]]*\]|true|false|[\d.]+)(?!\w|,)(.*)', change)
        words += [line[3].strip() if line else change]
        after = _written(after, line[1], line[2]) if line else after
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "config.json", "config.json, mended", n=1, lineterm="")
    diff = "\n".join(["```diff", *lines, "```", ""]) if after != before else ""
    return Markdown(diff + "; ".join(filter(None, words)))


def _written(text: str, key: str, value: str) -> str:
    """`text` of a config.json with `key` set wherever it stands; at its top where it does not."""
    there = re.compile(rf'("{key}"\s*:\s*)(\[[^\]]*\]|"[^"]*"|[^\s,}}]+)')
    added = text.replace("{", f'{{\n  "{key}": {value},', 1)
    return there.sub(lambda m: m[1] + value, text) if there.search(text) else added


def command(found: Verdict, checkpoint: str | None, options: Mapping[str, object]) -> Markdown:
    """The same question on the command line. `options`: name -> value, a list for several, None for none."""
    words = ["eagle3", "verdict", *([checkpoint] if checkpoint else [])]
    for name, value in options.items():
        if value not in (None, []):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return Markdown(f"```bash\n{shlex.join(words)}\necho $?  # {found.exit_code} for this verdict\n```")
