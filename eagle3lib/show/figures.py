"""Figures: each function takes numbers and returns a matplotlib Figure; none computes, none shows."""

from collections.abc import Mapping
from io import BytesIO

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..measure.acceptance import Acceptance

DPI = 110
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")  # Okabe and Ito: told apart by all


class Picture(Figure):
    """A Figure that notebooks show without pyplot and its global state."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        return png.getvalue()


def _label(stream) -> str:
    return f"r_{stream}" if isinstance(stream, int) else str(stream)


def norms(table: pd.DataFrame, sets: Mapping[str, tuple]) -> Picture:
    """Row norms of each slot of `fc`, a panel for each set of streams (name -> streams in slot order).

    `table` is `row_norms`. Boxes: quartiles; whiskers: 5 % to 95 %; the median is written out. Position 0 is left out.
    """
    figure = Picture(figsize=(3.6 * len(sets), 3.6), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    streams = sorted({s for chosen in sets.values() for s in chosen}, key=str)
    colour = {s: COLOURS[i % len(COLOURS)] for i, s in enumerate(streams)}
    kept = table[table.position > 0]
    for panel, (name, chosen) in zip(panels, sets.items(), strict=True):
        for slot, stream in enumerate(chosen):
            values = kept[kept.stream == stream].norm
            box = panel.boxplot([values], positions=[slot], widths=0.55, whis=(5, 95), showfliers=False, patch_artist=True)
            box["boxes"][0].set(facecolor=colour[stream], alpha=0.55)
            box["medians"][0].set(color="black")
            panel.annotate(f"{values.median():.3g}", (slot + 0.32, values.median()), va="center", fontsize=9)
        panel.set_title(name, fontsize=10)
        panel.set_xticks(range(len(chosen)), [f"slot {i + 1}\n{_label(s)}" for i, s in enumerate(chosen)])
        panel.set_xlim(-0.6, len(chosen) - 0.2)
        panel.grid(axis="y", alpha=0.25)
    panels[0].set_yscale("log")
    panels[0].set_ylabel("norm of a row (log scale)")
    return figure


def accept_length(curves: Mapping[str, Acceptance]) -> Picture:
    """Accept length (walk) against draft steps K, with 95 % intervals over samples; a line for each name."""
    figure = Picture(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for i, (name, found) in enumerate(curves.items()):
        table = found.table()
        middle = table["accept length"]
        axes.plot(
            table.index,
            middle,
            "o-",
            color=COLOURS[i % len(COLOURS)],
            markersize=4,
            label=f"{name}: {middle.iloc[-1]:.2f} at K = {table.index[-1]}",
        )
        axes.fill_between(table.index, table.low, table.high, color=COLOURS[i % len(COLOURS)], alpha=0.15, linewidth=0)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.annotate(
        "no draft is ever accepted", (axes.get_xlim()[1], 1), xytext=(0, -10), textcoords="offset points", ha="right", fontsize=8
    )
    axes.set_xlabel("draft steps K")
    axes.set_ylabel("accept length (tokens a round)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0.9)
    axes.grid(alpha=0.25)
    figure.legend(fontsize=9, loc="outside lower center", frameon=False)
    return figure


def one_row(values: pd.DataFrame, position: int, title: str) -> Picture:
    """Norms of one stream along one sample, with one row marked. Columns position, norm, answer."""
    figure = Picture(figsize=(6.4, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(values.position, values.norm, color=COLOURS[0], linewidth=1)
    written = values[values.answer]
    axes.plot(written.position, written.norm, ".", color=COLOURS[1], markersize=4, label="written by the target")
    axes.axvline(position, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set(xlabel="position", ylabel="norm of the row", title=title)
    axes.title.set_fontsize(10)
    axes.legend(fontsize=8)
    return figure
