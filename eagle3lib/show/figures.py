"""The style of all figures, and those of hidden states: each takes numbers and returns a Picture; none computes, none shows.

All text is 10 pt, and no figure is wider than WIDTH: in a page 700 pixels wide, which shrinks it to fit, that is 9 pt still.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

WIDTH, DPI = 6.8, 100  # inches; pixels an inch, as shown
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")  # Okabe and Ito: told apart by all
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # and without colour
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx")
Number = float | int | np.number


class Picture(Figure):
    """A Figure that notebooks show without pyplot and its global state."""

    def add_subplot(self, *args, **kwargs) -> Axes:
        axes = super().add_subplot(*args, **kwargs)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        return axes

    def legend_outside(self, *handles, ncols: int = 1, loc: str = "outside lower center") -> None:
        """Outside the axes, where it hides nothing."""
        self.legend(*handles, loc=loc, ncols=ncols, frameon=False)

    def _repr_png_(self, dpi: int = DPI) -> bytes:
        drawn, png = BytesIO(), BytesIO()
        self.savefig(drawn, format="png", dpi=dpi)
        few = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)  # a third of the bytes, and looks the same
        few.save(png, format="png", optimize=True)
        return png.getvalue()

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        """The PNG with twice the pixels that it takes on the page: sharp on dense screens and on paper."""
        return {"image/png": self._repr_png_(2 * DPI)}, {"image/png": {"width": round(self.get_figwidth() * DPI)}}


def label(stream) -> str:
    """r_15 for 15; other labels as they are."""
    return f"r_{stream}" if isinstance(stream, (int, np.integer)) else str(stream)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def style(number: int) -> dict:
    """Colour, marker and dashes of a figure's line `number`."""
    marker, dashes = MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)]
    return {"color": colour(number), "marker": marker, "linestyle": dashes, "markersize": 5}


def line(axes: Axes, middle: pd.Series, low: pd.Series, high: pd.Series, **styled) -> None:
    """A line over the index of `middle`, on the band of its interval."""
    axes.plot(middle.index, middle, **styled)
    axes.fill_between(middle.index, low, high, color=styled["color"], alpha=0.15, linewidth=0)


def whole(axis: Axis) -> None:
    """Ticks at whole numbers only: draft steps, counts."""
    axis.set_major_locator(MaxNLocator(integer=True))


def level(axes: Axes, y: Number, text: str, above: bool = True) -> None:
    """A dotted line across at `y`, named at its right end."""
    axes.axhline(y, color="black", linewidth=0.8, linestyle=":")
    axes.annotate(text, (1, y), xycoords=("axes fraction", "data"), xytext=(-4, 4 if above else -4), ha="right",
                  textcoords="offset points", va="bottom" if above else "top")  # fmt: skip


def named(axes: Axes, names: Sequence[str]) -> None:
    """A row for each name, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def beside(axes: Axes, x: Number, place: Number, text: str) -> None:
    """`text` to the right of a bar's end or a mark."""
    axes.annotate(text, (x, place), xytext=(6, 0), textcoords="offset points", va="center")


def short(value: Number) -> str:
    """Three digits, and no powers of ten below a million: 2.8, 154, 25,100."""
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def norms(table: pd.DataFrame, sets: Mapping[str, tuple]) -> Picture:
    """Row norms of each slot of `fc`, a panel for each set of streams (name -> streams in slot order).

    `table` is `row_norms`. Boxes: quartiles; whiskers: 5 % to 95 %; the median is written out. Position 0 is left out.
    """
    figure = Picture(figsize=(WIDTH, 3.6), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    streams = sorted({s for chosen in sets.values() for s in chosen}, key=str)
    kept = table[table.position > 0]
    for panel, (name, chosen) in zip(panels, sets.items(), strict=True):
        for slot, stream in enumerate(chosen):
            values = kept[kept.stream == stream].norm
            box = panel.boxplot([values], positions=[slot], widths=0.45, whis=(5, 95), showfliers=False, patch_artist=True)
            box["boxes"][0].set(facecolor=colour(streams.index(stream)), alpha=0.55)
            box["medians"][0].set(color="black")
            beside(panel, slot + 0.2, values.median(), short(values.median()))
        panel.set_title(name, fontsize="medium")
        panel.set_xticks(range(len(chosen)), [f"slot {i + 1}\n{label(s)}" for i, s in enumerate(chosen)])
        panel.set_xlim(-0.5, len(chosen) - 0.2)
        panel.grid(visible=False, axis="x")
    panels[0].set_yscale("log")
    panels[0].set_ylabel("norm (L2) of a row, log scale")
    return figure


def _panels(number: int, height: float, x: str, y: str, shared: bool = True) -> tuple[Picture, list[Axes]]:
    """A grid of `number` panels, two or three side by side, on the same axes if `shared`; `x` and `y`: what the axes are."""
    across = min(number, 2 if number in (2, 4) else 3)
    rows = -(-number // across)
    figure = Picture(figsize=(WIDTH, height * rows), layout="constrained")
    grid = figure.subplots(rows, across, sharey=shared, sharex=shared, squeeze=False)
    for panel in grid.flat[number:]:
        panel.remove()
    for panel in grid.flat[number - across : number]:  # the lowest of each column
        panel.tick_params(labelbottom=True)
    figure.supxlabel(x, fontsize="medium")
    figure.supylabel(y, fontsize="medium")
    return figure, list(grid.flat[:number])


def norms_by_position(table: pd.DataFrame) -> Picture:
    """A panel for each stream: row norms along the text, median and quartiles over samples, position 0 marked."""
    streams = list(dict.fromkeys(table.stream))
    figure, panels = _panels(len(streams), 2.2, "position in the text", "norm (L2) of a row, log scale")
    for panel, stream in zip(panels, streams, strict=True):
        along = table[table.stream == stream].groupby("position").norm.quantile([0.25, 0.5, 0.75]).unstack()
        line(panel, along[0.5], along[0.25], along[0.75], color=COLOURS[0], linewidth=1)
        first = (along.index[0], along[0.5].iloc[0])
        panel.plot(*first, MARKERS[0], color="black", markersize=5)
        panel.annotate(f"{short(first[1])} at position {first[0]}", first, xytext=(6, 5), textcoords="offset points")
        panel.set_title(label(stream), fontsize="medium")
        panel.set_yscale("log")
        panel.set_ylim(top=table.norm.max() * 3)
    return figure


def norm_distributions(table: pd.DataFrame) -> Picture:
    """A panel for each stream: how its row norms are distributed, prompt rows beside the target's own writing."""
    streams = list(dict.fromkeys(table.stream))
    figure, panels = _panels(len(streams), 2.3, "norm (L2) of a row", "% of rows", shared=False)
    filled, outline = {"color": COLOURS[0], "alpha": 0.5}, {"color": "black", "histtype": "step"}
    handles = {}
    for panel, stream in zip(panels, streams, strict=True):
        kept = table[(table.stream == stream) & (table.position > 0)]
        edges = np.linspace(*kept.norm.quantile([0.002, 0.998]), 40)  # a few rows beyond would leave the rest a stroke
        for name, drawn, style in (("written by the target", kept.answer, filled), ("prompt", ~kept.answer, outline)):
            values = kept[drawn].norm
            if len(values):
                handles[name] = panel.hist(values, edges, weights=np.full(len(values), 100 / len(values)), **style)[2][0]
        panel.set_title(f"{label(stream)}: median {short(kept.norm.median())}", fontsize="medium")
    figure.legend_outside(handles.values(), handles, ncols=2, loc="outside upper center")  # beneath would be on the label
    return figure


def channels(profile: pd.DataFrame) -> Picture:
    """A panel for each stream: root mean square of every channel, the largest one named. `profile`: `channel_profile`."""
    figure, panels = _panels(len(profile.columns), 2.1, "channel", "root mean square, log scale")
    for panel, stream in zip(panels, profile.columns, strict=True):
        values = profile[stream]
        panel.vlines(values.index, values.min() / 2, values, color=COLOURS[0], linewidth=0.6)
        top = int(values.idxmax())
        side = "left" if top < len(values) / 2 else "right"
        panel.annotate(
            f"channel {top}: {short(values[top])}", (top, values[top]), xytext=(0, 3), textcoords="offset points", ha=side
        )
        panel.set_title(label(stream), fontsize="medium")
        panel.set_yscale("log")
        panel.set_ylim(top=profile.to_numpy().max() * 5)
    return figure


def lens(summary: pd.DataFrame) -> Picture:
    """How often each stream, through the target's own norm and head, gives the text's next token; 95 % intervals."""
    figure = Picture(figsize=(WIDTH, 0.42 * len(summary) + 0.8), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(summary.itertuples()):
        axes.barh(place, row.agreement, color=COLOURS[0], alpha=0.6)
        axes.hlines(place, row.low, row.high, color="black")
        beside(axes, max(row.agreement, row.high), place, f"{row.agreement:.3f}")
    named(axes, [label(s) for s in summary.index])
    axes.set_xlim(0, 1.12)
    axes.set_xlabel("share of rows whose next token it gives (higher: nearer to the output)")
    return figure


def hypotheses(table: pd.DataFrame, configured: tuple, told: str = "as configured") -> Picture:
    """Step-1 accuracy under each hypothesis (`Probe.table`), best on top, with 95 % intervals.

    The configured one is orange, hatched, and `told` so. Pale: dropped early, so its accuracy is that of a few prompts.
    """
    figure = Picture(figsize=(WIDTH, 0.36 * len(table) + 0.8), layout="constrained")
    axes = figure.subplots()
    mine = "streams " + ", ".join(label(s) for s in configured)
    for place, (name, row) in enumerate(table.iterrows()):
        number, early = int(name == mine), row.samples < table.samples.max()
        axes.barh(place, row.accuracy, color=COLOURS[number], alpha=0.3 if early else 0.7, hatch=HATCHES[number])
        axes.hlines(place, row.low, row.high, color="black")
        text = [f"{row.accuracy:.3f}", *([told] * number), *([f"dropped after {row.samples:.0f} prompts"] * int(early))]
        beside(axes, np.nanmax([row.accuracy, row.high]), place, ", ".join(text))
    named(axes, [name.removeprefix("streams ") for name in table.index])
    axes.set_xlim(0, table.high.fillna(table.accuracy).max() * 1.7 + 0.02)
    axes.set_xlabel("step-1 accuracy, share of rows (higher is better)")
    return figure


def distances(table: pd.DataFrame, rows: str, columns: str) -> Picture:
    """How far each slot of one recording (rows) is from each of another (columns): `distances`. 0, black, is the same tensor."""
    across = len(table.columns)
    figure = Picture(figsize=(min(1.3 + 1.1 * across, max(WIDTH, 0.6 * across)), 1.0 + 0.5 * len(table)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(table, cmap="gray", vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(table.to_numpy()):
        text = f"{value:.0e}" if value < 0.005 else f"{value:.2f}" if value < 10 else f"{value:.0f}"
        axes.text(j, i, text, ha="center", va="center", color="white" if value < 0.6 else "black")
    axes.set_xticks(range(across), map(label, table.columns))
    axes.set_yticks(range(len(table)), map(label, table.index))
    axes.set(xlabel=columns, ylabel=rows)
    axes.set_title("distance of two slots (0: the same tensor)", fontsize="medium")
    axes.spines[:].set_visible(True)
    axes.grid(visible=False)
    return figure


def sizes(tensors: pd.DataFrame) -> Picture:
    """Where a checkpoint's bytes are: a bar for each tensor of 1 % or more, drawn by whose it is (`inventory`)."""
    kept = tensors[tensors.MB.ge(0.01 * tensors.MB.sum())].sort_values("MB", ascending=False)
    kinds = {"its own": COLOURS[0], "the target's": COLOURS[1], "untouched": COLOURS[3], "a map of tokens": COLOURS[6]}
    figure = Picture(figsize=(WIDTH, 0.3 * len(kept) + 1.1), layout="constrained")
    axes = figure.subplots()
    for (name, paint), hatch in zip(kinds.items(), HATCHES, strict=True):
        part = kept[kept.provenance.str.startswith(name)]
        if len(part):
            places = [kept.index.get_loc(i) for i in part.index]
            axes.barh(places, part.MB, color=paint, alpha=0.7, hatch=hatch, label=name)
    for place, (megabytes, shape) in enumerate(zip(kept.MB, kept["shape"], strict=True)):
        beside(axes, megabytes, place, shape)
    named(axes, [name.removesuffix(".weight") for name in kept.index])
    axes.set_xlim(right=kept.MB.max() * 1.3)
    axes.set_xlabel("MB in the file")
    figure.legend_outside(ncols=len(kinds))
    return figure


def one_row(values: pd.DataFrame, position: int, title: str) -> Picture:
    """Norms of one stream along one sample, with one row marked. Columns position, norm, answer."""
    figure = Picture(figsize=(WIDTH, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(values.position, values.norm, color=COLOURS[0], linewidth=1)
    written = values[values.answer]
    axes.plot(written.position, written.norm, ".", color=COLOURS[1], markersize=5, label="written by the target")
    axes.axvline(position, color="black", linewidth=0.8, linestyle="--", label="this row")
    axes.set_yscale("log")
    axes.set(xlabel="position in the text", ylabel="norm (L2), log scale")
    axes.set_title(title.replace("$", r"\$"), fontsize="medium")  # a name is no formula
    figure.legend_outside(ncols=2)
    return figure
