"""Figures of hidden states: each function takes numbers and returns a Picture; none computes, none shows."""

from collections.abc import Mapping
from io import BytesIO

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

DPI = 110
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")  # Okabe and Ito: told apart by all
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # and without colour
ACROSS = 4  # panels side by side at most


class Picture(Figure):
    """A Figure that notebooks show without pyplot and its global state."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        return png.getvalue()


def label(stream) -> str:
    """r_15 for 15; other labels as they are."""
    return f"r_{stream}" if isinstance(stream, (int, np.integer)) else str(stream)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def norms(table: pd.DataFrame, sets: Mapping[str, tuple]) -> Picture:
    """Row norms of each slot of `fc`, a panel for each set of streams (name -> streams in slot order).

    `table` is `row_norms`. Boxes: quartiles; whiskers: 5 % to 95 %; the median is written out. Position 0 is left out.
    """
    figure = Picture(figsize=(3.6 * len(sets), 3.6), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    streams = sorted({s for chosen in sets.values() for s in chosen}, key=str)
    kept = table[table.position > 0]
    for panel, (name, chosen) in zip(panels, sets.items(), strict=True):
        for slot, stream in enumerate(chosen):
            values = kept[kept.stream == stream].norm
            box = panel.boxplot([values], positions=[slot], widths=0.55, whis=(5, 95), showfliers=False, patch_artist=True)
            box["boxes"][0].set(facecolor=colour(streams.index(stream)), alpha=0.55)
            box["medians"][0].set(color="black")
            panel.annotate(f"{values.median():.3g}", (slot + 0.32, values.median()), va="center", fontsize=9)
        panel.set_title(name, fontsize=10)
        panel.set_xticks(range(len(chosen)), [f"slot {i + 1}\n{label(s)}" for i, s in enumerate(chosen)])
        panel.set_xlim(-0.6, len(chosen) - 0.2)
        panel.grid(axis="y", alpha=0.25)
    panels[0].set_yscale("log")
    panels[0].set_ylabel("norm of a row (log scale)")
    return figure


def _panels(number: int, height: float, shared: bool = True) -> tuple[Picture, list]:
    """A grid of `number` panels, at most ACROSS side by side, on the same axes if `shared`; the rest is taken away."""
    rows = -(-number // ACROSS)
    figure = Picture(figsize=(2.6 * min(number, ACROSS) + 0.6, height * rows), layout="constrained")
    grid = figure.subplots(rows, min(number, ACROSS), sharey=shared, sharex=shared, squeeze=False)
    for panel in grid.flat[number:]:
        panel.remove()
    return figure, list(grid.flat[:number])


def norms_by_position(table: pd.DataFrame) -> Picture:
    """A panel for each stream: row norms along the text, median and quartiles over samples, position 0 marked."""
    streams = list(dict.fromkeys(table.stream))
    figure, panels = _panels(len(streams), 2.5)
    for i, (panel, stream) in enumerate(zip(panels, streams, strict=True)):
        along = table[table.stream == stream].groupby("position").norm.quantile([0.25, 0.5, 0.75]).unstack()
        panel.fill_between(along.index, along[0.25], along[0.75], color=colour(i), alpha=0.25, linewidth=0)
        panel.plot(along.index, along[0.5], color=colour(i), linewidth=1)
        panel.plot([along.index[0]], [along[0.5].iloc[0]], MARKERS[0], color="black", markersize=5)
        panel.annotate(f"{along[0.5].iloc[0]:.3g} at position 0", (along.index[0], along[0.5].iloc[0]), xytext=(6, 5),
                       textcoords="offset points", fontsize=9)  # fmt: skip
        panel.set_title(label(stream), fontsize=10)
        panel.set_yscale("log")
        panel.set_ylim(top=table.norm.max() * 3)
        panel.set_xlabel("position")
        panel.set_ylabel("norm of a row (log scale)" if i % ACROSS == 0 else "")
        panel.grid(alpha=0.25)
    return figure


def norm_distributions(table: pd.DataFrame) -> Picture:
    """A panel for each stream: how its row norms are distributed, prompt rows beside the target's own writing."""
    streams = list(dict.fromkeys(table.stream))
    figure, panels = _panels(len(streams), 2.4, shared=False)
    for i, (panel, stream) in enumerate(zip(panels, streams, strict=True)):
        kept = table[(table.stream == stream) & (table.position > 0)]
        edges = np.linspace(*kept.norm.quantile([0.002, 0.998]), 40)  # a few rows beyond would leave the rest a stroke
        for answer, style in ((True, {"color": colour(i), "alpha": 0.6}), (False, {"color": "black", "histtype": "step"})):
            values = kept[kept.answer == answer].norm
            name = "written by the target" if answer else "prompt"
            if len(values):
                panel.hist(values, edges, weights=np.full(len(values), 100 / len(values)), label=name, **style)
        panel.set_title(f"{label(stream)}: median {kept.norm.median():.3g}", fontsize=10)
        panel.set_xlabel("norm of a row")
        panel.set_ylabel("% of rows" if i % ACROSS == 0 else "")
    panels[0].legend(fontsize=8)
    return figure


def channels(profile: pd.DataFrame) -> Picture:
    """A panel for each stream: root mean square of every channel, the largest one named. `profile`: `channel_profile`."""
    figure, panels = _panels(len(profile.columns), 2.3)
    for i, (panel, stream) in enumerate(zip(panels, profile.columns, strict=True)):
        values = profile[stream]
        panel.vlines(values.index, values.min() / 2, values, color=colour(i), linewidth=0.6)
        top = int(values.idxmax())
        side = "left" if top < len(values) / 2 else "right"
        panel.annotate(f"channel {top}", (top, values[top]), xytext=(0, 3), textcoords="offset points", fontsize=9, ha=side)
        panel.set_title(label(stream), fontsize=10)
        panel.set_yscale("log")
        panel.set_ylim(top=profile.to_numpy().max() * 3)
        panel.set_xlabel("channel")
        panel.set_ylabel("root mean square (log scale)" if i % ACROSS == 0 else "")
    return figure


def lens(summary: pd.DataFrame) -> Picture:
    """How often each stream, through the target's own norm and head, gives the text's next token; 95 % intervals."""
    figure = Picture(figsize=(6.4, 0.45 * len(summary) + 1.0), layout="constrained")
    axes = figure.subplots()
    places = range(len(summary))
    axes.barh(places, summary.agreement, color=COLOURS[0], alpha=0.6)
    axes.hlines(places, summary.low, summary.high, color="black")
    for place, (share, high) in enumerate(zip(summary.agreement, summary.high, strict=True)):
        axes.annotate(
            f"{share:.3f}", (max(share, high), place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_yticks(places, [label(s) for s in summary.index])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12)
    axes.set_xlabel("share of rows whose next token it gives (higher: nearer to the output)")
    return figure


def hypotheses(table: pd.DataFrame, configured: tuple) -> Picture:
    """Step-1 accuracy under each hypothesis (`Probe.table`), best on top, with 95 % intervals; the configured one is orange."""
    figure = Picture(figsize=(7.2, 0.36 * len(table) + 1.0), layout="constrained")
    axes = figure.subplots()
    mine = "streams " + ", ".join(label(s) for s in configured)
    for place, (name, row) in enumerate(table.iterrows()):
        paint = COLOURS[1] if name == mine else COLOURS[0]
        axes.barh(place, row.accuracy, color=paint, alpha=0.6)
        axes.hlines(place, row.low, row.high, color="black")
        told = f"{row.accuracy:.3f}" + (" (as served)" if name == mine else "")
        end = row.high if row.high == row.high else row.accuracy
        axes.annotate(told, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(table)), [name.removeprefix("streams ") for name in table.index])
    axes.invert_yaxis()
    axes.set_xlim(0, min(1.1, table.high.fillna(table.accuracy).max() * 1.3 + 0.02))
    axes.set_xlabel("step-1 accuracy (higher is better)")
    return figure


def distances(table: pd.DataFrame, rows: str, columns: str) -> Picture:
    """How far each slot of one recording (rows) is from each of another (columns): `distances`. 0, black, is the same tensor."""
    figure = Picture(figsize=(1.3 + 1.1 * len(table.columns), 1.0 + 0.6 * len(table)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(table, cmap="gray", vmin=0, vmax=1)
    for i, row in enumerate(table.to_numpy()):
        for j, value in enumerate(row):
            axes.text(
                j,
                i,
                f"{value:.0e}" if value < 0.005 else f"{value:.2f}" if value < 10 else f"{value:.0f}",
                ha="center",
                va="center",
                fontsize=9,
                color="white" if value < 0.6 else "black",
            )
    axes.set_xticks(range(len(table.columns)), map(label, table.columns))
    axes.set_yticks(range(len(table)), map(label, table.index))
    axes.set_xlabel(columns)
    axes.set_ylabel(rows)
    return figure


def sizes(tensors: pd.DataFrame) -> Picture:
    """Where a checkpoint's bytes are: a bar for each tensor of 1 % or more, coloured by whose it is (`inventory`)."""
    kept = tensors[tensors.MB.ge(0.01 * tensors.MB.sum())].sort_values("MB")
    kinds = {"its own": COLOURS[0], "the target's": COLOURS[1], "untouched": COLOURS[3], "a map of tokens": COLOURS[6]}
    figure = Picture(figsize=(7.6, 0.3 * len(kept) + 1.1), layout="constrained")
    axes = figure.subplots()
    for name, paint in kinds.items():
        part = kept[kept.provenance.str.startswith(name)]
        if len(part):
            axes.barh([kept.index.get_loc(i) for i in part.index], part.MB, color=paint, alpha=0.7, label=name)
    for place, (megabytes, shape) in enumerate(zip(kept.MB, kept["shape"], strict=True)):
        axes.annotate(shape, (megabytes, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(kept)), [name.removesuffix(".weight") for name in kept.index], fontsize=9)
    axes.set_xlim(right=kept.MB.max() * 1.2)
    axes.set_xlabel("MB in the file")
    axes.legend(fontsize=9, loc="lower right")
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
    axes.set(xlabel="position", ylabel="norm of the row", title=title.replace("$", r"\$"))  # a name is no formula
    axes.title.set_fontsize(10)
    axes.legend(fontsize=8)
    return figure
