"""Figures of accuracies and accept lengths: numbers in, a Picture out."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from .figures import COLOURS, MARKERS, Picture, colour


def accept_length(curves: Mapping[str, Acceptance], live: pd.DataFrame | None = None) -> Picture:
    """Accept length (walk) against draft steps K, with 95 % intervals over samples; a line for each name.

    `live`: what real decoding gave (columns name, K, accept length), drawn as large hollow markers.
    """
    figure = Picture(figsize=(6.8, 4.2), layout="constrained")
    axes = figure.subplots()
    for i, (name, found) in enumerate(curves.items()):
        table = found.table()
        middle = table["accept length"]
        text = f"{name}: {middle.iloc[-1]:.2f} at K = {table.index[-1]}"
        axes.plot(table.index, middle, marker=MARKERS[i % len(MARKERS)], color=colour(i), markersize=4, label=text)
        axes.fill_between(table.index, table.low, table.high, color=colour(i), alpha=0.15, linewidth=0)
    live = live[live.K.between(1, max(max(found.walks) for found in curves.values()))] if live is not None else None
    if live is not None and len(live):
        axes.plot(
            live.K,
            live["accept length"],
            "o",
            fillstyle="none",
            color="black",
            markersize=11,
            label="measured where it is served, or live",
        )
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.annotate("no draft is ever accepted", (1, 1), xycoords=("axes fraction", "data"), xytext=(-4, -11),
                  textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    axes.set_xlabel("draft steps K")
    axes.set_ylabel("accept length (tokens a round)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0.9)
    axes.grid(alpha=0.25)
    figure.legend(fontsize=9, loc="outside lower center", frameon=False)
    return figure


def accuracies(found: Mapping[str, Accuracy], claimed: tuple[str, float] | None = None) -> Picture:
    """Marginal, conditional and joint accuracy by draft step, a panel for each, with 95 % intervals; a line for each name.

    `claimed`: (what it is, value) of a training figure, drawn at step 1 of the marginal panel.
    """
    figure = Picture(figsize=(9.6, 3.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True, sharex=True)
    kinds = {"marginal": "true tokens fed", "conditional": "given right before", "joint": "right so far"}
    for panel, (kind, told) in zip(panels, kinds.items(), strict=True):
        for i, (name, acc) in enumerate(found.items()):
            table = acc.table()
            panel.plot(table.index, table[kind], marker=MARKERS[i % len(MARKERS)], markersize=4, color=colour(i), label=name)
            panel.fill_between(table.index, table[f"{kind} low"], table[f"{kind} high"], color=colour(i), alpha=0.15, linewidth=0)
        panel.set_title(f"{kind}: {told}", fontsize=10)
        panel.set_xlabel("draft step")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(0, 1)
        panel.grid(alpha=0.25)
    if claimed:
        panels[0].plot([1], [claimed[1]], "*", color="black", markersize=12, label=claimed[0])
    panels[0].set_ylabel("accuracy (higher is better)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=2, frameon=False)
    return figure


def where_it_works(positions: pd.DataFrame, requests: pd.DataFrame, pooled: float, steps: int) -> Picture:
    """Two panels: accept length by position in the sample (`by_position`), and how single requests differ (`requests`)."""
    figure = Picture(figsize=(9.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    middle = (positions["from"] + positions.to + 1) / 2
    spread = np.clip([positions["accept length"] - positions.low, positions.high - positions["accept length"]], 0, None)
    left.errorbar(middle, positions["accept length"], yerr=np.nan_to_num(spread), fmt="o", color=COLOURS[0], capsize=3)
    for x, y, n in zip(middle, positions["accept length"], positions.starts, strict=True):
        left.annotate(f"{n} starts", (x, y), xytext=(7, 4), textcoords="offset points", fontsize=9)
    left.axhline(1, color="black", linewidth=0.8, linestyle=":")
    left.set(xlabel="position in the sample", ylabel=f"accept length, all starts, K = {steps}")
    if len(positions):
        left.set_xlim(0, middle.iloc[-1] * 1.25)  # room for the last label
    lengths = requests["accept length"].dropna()
    right.hist(lengths, bins=np.arange(1, max(lengths.max(), 2) + 0.1, 0.1), color=COLOURS[0], alpha=0.6)
    right.axvline(lengths.mean(), color=COLOURS[1], label=f"mean of requests {lengths.mean():.2f}")
    right.axvline(pooled, color="black", linestyle="--", label=f"pooled {pooled:.2f}")
    right.set(xlabel=f"accept length of a request, K = {steps}", ylabel="requests")
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(fontsize=9)
    for panel in (left, right):
        panel.grid(alpha=0.25)
    return figure


def comparison(found: Mapping[str, Acceptance | str], table: pd.DataFrame, steps: int) -> Picture:
    """Left: accept length against K of each drafter, bands 95 % over samples. Right: difference to the best at K = `steps`,
    paired. `found`: name -> Acceptance, or why there is none; `table`: `Comparison.table()`, whose order is the order here.
    """
    names = list(table.index[table["accept length"].notna()])
    figure = Picture(figsize=(10.4, 3.0 + 0.3 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, name in enumerate(names):
        curve, row = found[name].table(), table.loc[name]
        shade = colour(i) if i < len(COLOURS) else "darkgrey"  # more colours could not be told apart
        style = {"marker": MARKERS[i % len(MARKERS)], "color": shade, "markersize": 4, "zorder": 3 - i / len(names)}
        text = f"{name}: {row['accept length']:.2f} at K = {steps}" if i < len(COLOURS) else None
        left.plot(curve.index, curve["accept length"], label=text, **style)
        left.fill_between(curve.index, curve.low, curve.high, color=shade, alpha=0.15, linewidth=0)
        right.hlines(i, row["difference low"], row["difference high"], color=shade)
        right.plot(row.difference if i else 0, i, **style)
        right.annotate(row["beside the first"], (row.difference if i else 0, i), xytext=(0, 6), textcoords="offset points",
                       ha="center" if i else "right", fontsize=9)  # fmt: skip
    left.axvline(steps, color="black", linewidth=0.8, linestyle=":")
    left.set(xlabel="draft steps K", ylabel="accept length (tokens a round)")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(fontsize=9, loc="outside lower center", ncols=2, frameon=False)
    right.axvline(0, color="black", linewidth=0.8, linestyle=":")
    right.set(xlabel=f"difference to the first, K = {steps}", ylim=(len(names) - 0.5, -0.5))
    right.set_yticks(range(len(names)), names)
    for panel in (left, right):
        panel.grid(alpha=0.25)
    return figure


def _nothing(why: str) -> Picture:
    """A picture that says why there is none."""
    figure = Picture(figsize=(6.4, 0.8), layout="constrained")
    figure.text(0.5, 0.5, why, ha="center", va="center", fontsize=10)
    return figure


def state_over_steps(states: Mapping[str, pd.DataFrame], shares: Mapping[str, Mapping[str, float]]) -> Picture:
    """The drafter's own state: its norm by step, each slot's share of the fused input, where attention goes by step.

    `states`: name -> `drafter_state`; `shares`: name -> slot -> mean share. Attention is that of the first name.
    """
    states = {name: table for name, table in states.items() if len(table)}
    if not states:
        return _nothing("no answer is long enough for so many draft steps")
    figure = Picture(figsize=(10.4, 3.6), layout="constrained")
    norm, slots, attention = figure.subplots(1, 3)
    for i, (name, table) in enumerate(states.items()):
        by_step = table.groupby("step")["norm of the state"].mean()
        norm.plot(by_step.index, by_step, marker=MARKERS[i % len(MARKERS)], markersize=4, color=colour(i), label=name)
        names = list(shares[name])
        places = np.arange(len(names)) + (i - (len(states) - 1) / 2) * 0.8 / len(states)
        slots.bar(places, shares[name].values(), width=0.75 / len(states), color=colour(i), alpha=0.7, label=name)
    norm.set(xlabel="draft step", ylabel="norm of the state fed on", title="size")
    norm.set_ylim(bottom=0)
    slots.set_xticks(range(len(names)), [f"slot {k + 1}" for k in range(len(names))])
    slots.axhline(0, color="black", linewidth=0.8)
    slots.set(ylabel="share of fc's output", title="what fc makes it of")
    first = next(iter(states.values())).groupby("step").mean(numeric_only=True)
    parts = ("attention on position 0", "on the rest of the context", "on its own drafts")
    below = np.zeros(len(first))
    for i, part in enumerate(parts):
        attention.bar(first.index, first[part], bottom=below, color=colour(i + 2), label=part.removeprefix("attention "))
        below = below + first[part].to_numpy()
    attention.set(xlabel="draft step", ylabel="share of attention", title=f"where it looks, {next(iter(states))}")
    for panel in (norm, attention):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in (norm, slots, attention):
        panel.title.set_fontsize(10)
        panel.grid(axis="y", alpha=0.25)
    figure.legend(*norm.get_legend_handles_labels(), fontsize=9, loc="outside lower left", ncols=3, frameon=False)
    figure.legend(*attention.get_legend_handles_labels(), fontsize=9, loc="outside lower right", ncols=3, frameon=False)
    return figure


def speeds(table: pd.DataFrame, measured: pd.DataFrame, baseline: float) -> Picture:
    """Tokens a second over the baseline against draft steps, for three drafters (`speed_table`), and what was measured."""
    figure = Picture(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    told = {"flat": "claimed accuracy at every step", "at most": "the most that it allows", "perfect": "always right"}
    for i, (name, text) in enumerate(told.items()):
        ratio = table[f"over baseline, {name}"]
        axes.plot(table.index, ratio, marker=MARKERS[i], markersize=4, color=colour(i), label=text)
    ratio = measured["tokens a second"] / baseline
    axes.plot(measured.K, ratio, "o", fillstyle="none", color="black", markersize=11, label="measured")
    for name, steps, y in zip(measured.index, measured.K, ratio, strict=True):
        side = "right" if steps == table.index.max() else "left"
        axes.annotate(f"{name}: {y:.2f}", (steps, y), xytext=(9, -4), textcoords="offset points", fontsize=9, ha=side, va="top")
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.annotate("as fast as without a drafter", (1, 1), xycoords=("axes fraction", "data"), xytext=(-4, -11),
                  textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    axes.set_xlabel("draft steps K")
    axes.set_ylabel("tokens a second, times the baseline")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, min(4.5, table["over baseline, perfect"].max() * 1.05))
    axes.grid(alpha=0.25)
    figure.legend(fontsize=9, loc="outside lower center", ncols=2, frameon=False)
    return figure
