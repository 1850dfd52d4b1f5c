"""What an accept length buys: measured speeds as a notebook is given them, the picture, and the sentence beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..measure.acceptance import Acceptance
from ..measure.speed import RoundTime, Setting, round_time, speeds
from ..read.errors import InputError
from ..read.served import read_served
from ..read.tensors import read_json
from .cli_verdict import measured_of
from .curves import MEASURED
from .figures import WIDTH, Picture, level, line, style, whole


def measured(given: str | Path | Sequence[str] | None, drafter: str) -> tuple[list[Setting], float | None]:
    """Settings with a drafter, and tokens a second without: from texts such as "K=1 tok/s=56.8 tau=1.6" (K=0: without), or from
    a result file of this project, whose runs with `drafter` are taken. Raises InputError for texts that are no settings, and for
    a path that is no such file.
    """
    if given is None:
        return [], None
    if isinstance(given, str | Path):
        if not Path(given).is_file():
            raise InputError(f"{given}: no such file of measured speeds; settings are a list: [\"K=1 tok/s=56.8 tau=1.6\"]")
        told = read_json(Path(given))
        batch = int(told.get("stamp", {}).get("requests_at_once", 1))
        runs = [run for run in read_served(given) if run.drafter == drafter and run.tokens_per_second]
        found = [Setting(r.steps, r.tokens_per_second, r.accept_length, f"{r.name}, K = {r.steps}", batch) for r in runs]
        return found, told.get("baseline", {}).get("tokens_per_second")
    texts = [measured_of(text) for text in given]
    found = [Setting(one.steps, float(one.tokens_per_second), float(one.accept_length)) for one in texts if one.steps]
    return found, next((float(one.tokens_per_second) for one in texts if not one.steps), None)


ROUNDING = 1e-9  # seconds that a fitted part may lie below none


def fitted(settings: Sequence[Setting], baseline: float | None) -> RoundTime | None:
    """Round times through the settings; where they are all of one K, with the server without drafter as K = 0, which takes a
    drafter's fixed costs for part of its steps. None where there are no two different ones, or where by these settings a further
    step, token or request would take less than no time.
    """
    alone = len({(s.steps, s.batch) for s in settings}) < 2
    every = [*settings, *([Setting(0, baseline, 1.0, batch=settings[0].batch)] if settings and baseline and alone else [])]
    try:
        found = round_time(every)
    except InputError:
        return None
    return found if min(found.first, found.step, found.token, found.step_request) > -ROUNDING else None


def bought(lengths: Mapping[str, Acceptance], settings: Sequence[Setting], baseline: float | None) -> dict[str, pd.DataFrame]:
    """`speeds` of each acceptance on the fitted round times; empty where they cannot be fitted."""
    times = fitted(settings, baseline)
    return {name: speeds(times, found, baseline, settings[0].batch) for name, found in lengths.items()} if times else {}


def picture(tables: Mapping[str, pd.DataFrame], settings: Sequence[Setting], baseline: float | None) -> Picture:
    """Tokens a second against draft steps: predicted for each acceptance, a perfect drafter, and what was measured."""
    figure = Picture(figsize=(WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    for i, (name, table) in enumerate(tables.items()):
        low, high = table["tokens a second, low"], table["tokens a second, high"]
        line(axes, table["tokens a second"], low, high, label=name, **style(i))
    table = next(iter(tables.values()))
    perfect = table["over baseline, perfect"] * table["tokens a second"] / table["over baseline"]
    axes.plot(table.index, perfect, label="a drafter that is always right", **style(5))
    top = max(max(t["tokens a second, high"].max() for t in tables.values()), *(s.tokens_per_second for s in settings))
    axes.plot([s.steps for s in settings], [s.tokens_per_second for s in settings], label="measured, with its accept length",
              **MEASURED)  # fmt: skip
    for one in settings:
        axes.annotate(f"{one.accept_length:.2f}", (one.steps, one.tokens_per_second), xytext=(9, 6), textcoords="offset points",
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5})  # fmt: skip
    if baseline:
        level(axes, baseline, "without drafter")
        top = max(top, baseline)
    last, end = max(s.steps for s in settings), max(table.index)
    if last < end:
        axes.axvspan(last, end, color="0.94", zorder=0, label="beyond what was measured")
    axes.set(xlabel="draft steps K", ylabel="tokens a second, all requests\n(higher is better)")
    axes.set_ylim(0, 1.05 * min(perfect.max(), 2.5 * top))
    whole(axes.xaxis)
    figure.legend_outside(ncols=2)
    return figure


def shown(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """All tables in one, without the intervals, which the picture has. None where there are none."""
    if not tables:
        return None
    every = pd.concat(tables, names=["drafter"]).round(2)
    return every.drop(columns=[name for name in every if name.endswith(("low", "high"))])


TERMS = {"first": "a fixed part", "step": "a part for each draft step", "token": "a part for each token verified",
         "step_request": "a part for each request and draft step"}  # fmt: skip


def reading(tables: Mapping[str, pd.DataFrame], settings: Sequence[Setting], baseline: float | None) -> str:
    """What the round times are made of, the best K of each drafter, and whether more steps pay. Markdown."""
    times = fitted(settings, baseline)
    if times is None or not tables:
        return (
            "Not told: round times need measured speeds at two different numbers of draft steps (or without drafter and with), "
            "by which a further step takes time; where it seems to take none, measure longer, or at more numbers of steps."
        )
    terms, last = [TERMS[name] for name in times.terms], max(one.steps for one in settings)
    off = f", which they meet within {times.off:.0%}" if times.off else ", which leave nothing to check them with"
    batch = f", {settings[0].batch} requests at once" if settings[0].batch > 1 else ""
    runs = f"{len(settings)} measured runs at {times.settings} settings{batch}"
    lines = [f"{runs} carry {len(terms)} numbers: {' and '.join(terms)}{off}"]
    for name, table in tables.items():
        best, most = table["tokens a second"].idxmax(), table.index[-1]
        row = table.loc[best]
        pays = f"{row['over baseline']:.2f} times the speed without drafter"
        there = f"at K = {most}, beyond the measured K = {last}, it would be" if most > last else f"at K = {most} it is"
        lines.append(
            f"{name}: best at **K = {best}**, {row['tokens a second']:.0f} tokens a second, {pays}; there a round must yield "
            f"{row['break-even accept length']:.2f} tokens to pay and yields {row['accept length']:.2f}; {there} "
            f"{table['over baseline'].iloc[-1]:.2f} times"
        )
    return "\n".join(f"* {line[0].upper()}{line[1:]}." for line in lines)
