"""Figures of accuracies and accept lengths: numbers in, a Picture out."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from .figures import COLOURS, HATCHES, WIDTH, Picture, colour, level, line, style, whole

MEASURED = {"marker": "o", "linestyle": "", "fillstyle": "none", "color": "black", "markersize": 11}  # beside predicted lines
TAU = "accept length, tokens a round\n(higher is better)"


def accept_length(curves: Mapping[str, Acceptance], live: pd.DataFrame | None = None) -> Picture:
    """Accept length (walk) against draft steps K, with 95 % intervals over samples; a line for each name.

    `live`: what real decoding gave (columns name, K, accept length), drawn as large hollow circles.
    """
    figure = Picture(figsize=(WIDTH, 4.0 + 0.2 * len(curves)), layout="constrained")
    axes = figure.subplots()
    for i, (name, found) in enumerate(curves.items()):
        table = found.table()
        text = f"{name}: {table['accept length'].iloc[-1]:.2f} at K = {table.index[-1]}"
        line(axes, table["accept length"], table.low, table.high, label=text, **style(i))
    live = live[live.K.between(1, max(max(found.walks) for found in curves.values()))] if live is not None else None
    if live is not None and len(live):
        axes.plot(live.K, live["accept length"], label="measured where it is served, or live", **MEASURED)
    level(axes, 1, "no draft is ever accepted", above=False)
    axes.set(xlabel="draft steps K", ylabel=TAU)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=1 - 0.12 * (axes.get_ylim()[1] - 1))
    whole(axes.xaxis)
    figure.legend_outside()
    return figure


def accuracies(found: Mapping[str, Accuracy], claimed: tuple[str, float] | None = None) -> Picture:
    """Marginal, conditional and joint accuracy by draft step, a panel for each, with 95 % intervals; a line for each name.

    `claimed`: (what it is, value) of a training figure, drawn at step 1 of the marginal panel.
    """
    figure = Picture(figsize=(WIDTH, 3.3), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True, sharex=True)
    kinds = {"marginal": "true tokens fed", "conditional": "given right before", "joint": "right so far"}
    for panel, (kind, told) in zip(panels, kinds.items(), strict=True):
        for i, (name, acc) in enumerate(found.items()):
            table = acc.table()
            line(panel, table[kind], table[f"{kind} low"], table[f"{kind} high"], label=name, **style(i))
        panel.set(xlabel="draft step", ylim=(-0.02, 1))
        panel.set_title(f"{kind}:\n{told}", fontsize="medium")
        whole(panel.xaxis)
    if claimed:
        panels[0].plot([1], [claimed[1]], "*", color="black", markersize=12, label=claimed[0])
    panels[0].set_ylabel("accuracy (higher is better)")
    figure.legend_outside(*panels[0].get_legend_handles_labels(), ncols=2)
    return figure


def where_it_works(positions: pd.DataFrame, requests: pd.DataFrame, pooled: float, steps: int) -> Picture:
    """Two panels: accept length by position in the sample (`by_position`), and how single requests differ (`requests`)."""
    figure = Picture(figsize=(WIDTH, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    middle, taus = (positions["from"] + positions.to + 1) / 2, positions["accept length"]
    spread = np.nan_to_num(np.clip([taus - positions.low, positions.high - taus], 0, None))
    left.errorbar(middle, taus, yerr=spread, fmt="o", color=COLOURS[0], capsize=3)
    left.axhline(1, color="black", linewidth=0.8, linestyle=":")
    top = max(left.get_ylim()[1], 1.1)
    for x, n in zip(middle, positions.starts, strict=True):  # beneath 1, where no accept length can be
        left.text(x, 1 - 0.03 * (top - 1), f"{n} starts", rotation=90, ha="center", va="top")
    left.set(xlabel="position in the sample", ylabel=f"accept length at K = {steps}, all starts\n(higher is better)",
             ylim=(1 - 0.5 * (top - 1), top))  # fmt: skip
    left.set_yticks([tick for tick in left.get_yticks() if 1 <= tick <= top])
    left.set_xlim(left=0)
    lengths = requests["accept length"].dropna()
    right.hist(lengths, bins=np.arange(1, max(lengths.max(), 2) + 0.1, 0.1), color=COLOURS[0], alpha=0.6)
    right.axvline(lengths.mean(), color=COLOURS[1], label=f"mean of requests {lengths.mean():.2f}")
    right.axvline(pooled, color="black", linestyle="--", label=f"pooled {pooled:.2f}")
    right.set(xlabel=f"accept length of a request at K = {steps}\n(higher is better)", ylabel="number of requests")
    whole(right.yaxis)
    figure.legend_outside(ncols=2, loc="outside lower right")
    return figure


def comparison(found: Mapping[str, Acceptance | str], table: pd.DataFrame, steps: int) -> Picture:
    """Left: accept length against K of each drafter, bands 95 % over samples. Right: difference to the best at K = `steps`,
    paired. `found`: name -> Acceptance, or why there is none; `table`: `Comparison.table()`, whose order is the order here.
    """
    names = list(table.index[table["accept length"].notna()])
    figure = Picture(figsize=(WIDTH, 3.0 + 0.4 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, name in enumerate(names):
        curve, row = found[name].table(), table.loc[name]
        few = i < len(COLOURS)  # more colours could not be told apart
        styled = style(i) | ({} if few else {"color": "darkgrey"}) | {"zorder": 3 - i / len(names)}
        text = f"{name}: {row['accept length']:.2f} at K = {steps}" if few else None
        line(left, curve["accept length"], curve.low, curve.high, label=text, **styled)
        right.hlines(i, row["difference low"], row["difference high"], color=styled["color"])
        right.plot(row.difference if i else 0, i, **styled)
        right.annotate(f"{name}: {row['beside the first']}", (0, i), xycoords=("axes fraction", "data"), xytext=(2, 8),
                       textcoords="offset points")  # fmt: skip
    left.axvline(steps, color="black", linewidth=0.8, linestyle=":")
    left.set(xlabel="draft steps K", ylabel=TAU)
    whole(left.xaxis)
    figure.legend_outside(ncols=2)
    right.axvline(0, color="black", linewidth=0.8, linestyle=":")
    right.set(xlabel=f"difference to the first, K = {steps}\n(tokens a round; higher is better)", yticks=[])
    right.set_ylim(len(names) - 0.6, -0.8)
    return figure


def _nothing(why: str) -> Picture:
    """A picture that says why there is none."""
    figure = Picture(figsize=(WIDTH, 0.8), layout="constrained")
    figure.text(0.5, 0.5, why, ha="center", va="center")
    return figure


def state_over_steps(states: Mapping[str, pd.DataFrame], shares: Mapping[str, Mapping[str, float]]) -> Picture:
    """The drafter's own state: its norm by step, each slot's share of the fused input, where attention goes by step.

    `states`: name -> `drafter_state`; `shares`: name -> slot -> mean share. Attention is that of the first name.
    """
    states = {name: table for name, table in states.items() if len(table)}
    if not states:
        return _nothing("no answer is long enough for so many draft steps")
    figure = Picture(figsize=(WIDTH, 3.9), layout="constrained")
    norm, slots, attention = figure.subplots(1, 3)
    handles = {}
    for i, (name, table) in enumerate(states.items()):
        by_step = table.groupby("step")["norm of the state"].mean()
        drawn = norm.plot(by_step.index, by_step, **style(i))[0]
        names = list(shares[name])
        places = np.arange(1, len(names) + 1) + (i - (len(states) - 1) / 2) * 0.8 / len(states)
        bars = {"color": colour(i), "alpha": 0.6, "hatch": HATCHES[i % len(HATCHES)]}
        handles[name] = (slots.bar(places, shares[name].values(), width=0.75 / len(states), **bars), drawn)
    norm.set(xlabel="draft step", ylabel="norm (L2) of the state fed on", ylim=(0, None))
    slots.axhline(0, color="black", linewidth=0.8)
    slots.set(xlabel="slot", ylabel="share of fc's output")
    first = next(iter(states.values())).groupby("step").mean(numeric_only=True)
    below = np.zeros(len(first))
    for i, part in enumerate(("attention on position 0", "on the rest of the context", "on its own drafts")):
        bars = {"color": colour(i + 2), "alpha": 0.8, "hatch": HATCHES[i]}
        attention.bar(first.index, first[part], bottom=below, label=part.removeprefix("attention "), **bars)
        below = below + first[part].to_numpy()
    attention.set(xlabel="draft step", ylabel="share of attention", ylim=(0, 1))
    titles = {norm: "size", slots: "what fc makes it of", attention: f"where it looks,\n{next(iter(states))}"}
    for panel, title in titles.items():
        panel.set_title(title, fontsize="medium")
        whole(panel.xaxis)
    figure.legend_outside(handles.values(), handles, loc="outside lower left")
    figure.legend_outside(*attention.get_legend_handles_labels(), loc="outside lower right")
    return figure


def speeds(table: pd.DataFrame, measured: pd.DataFrame, baseline: float) -> Picture:
    """Tokens a second over the baseline against draft steps, for three drafters (`speed_table`), and what was measured."""
    figure = Picture(figsize=(WIDTH, 4.2), layout="constrained")
    axes = figure.subplots()
    told = {"flat": "claimed accuracy at every step", "at most": "the most that it allows", "perfect": "always right"}
    for i, (name, text) in enumerate(told.items()):
        axes.plot(table.index, table[f"over baseline, {name}"], label=text, **style(i))
    ratio = measured["tokens a second"] / baseline
    axes.plot(measured.K, ratio, label="measured", **MEASURED)
    for name, steps, y in zip(measured.index, measured.K, ratio, strict=True):
        right = steps > table.index.max() / 2
        axes.annotate(f"{name}: {y:.2f}", (steps, y), xytext=(-10 if right else 10, -4), textcoords="offset points",
                      ha="right" if right else "left", va="top")  # fmt: skip
    level(axes, 1, "as fast as without a drafter", above=False)
    axes.set(xlabel="draft steps K", ylabel="tokens a second, times the baseline\n(higher is better)")
    axes.set_ylim(0, min(4.5, table["over baseline, perfect"].max() * 1.05))
    whole(axes.xaxis)
    figure.legend_outside(ncols=2)
    return figure
