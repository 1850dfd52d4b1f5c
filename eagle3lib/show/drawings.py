"""Drawings: how data flows through one drafter, where a fault can sit, and which tokens of a text were drafted."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from ..read.checkpoint import Checkpoint
from .figures import COLOURS, WIDTH, Number, Picture, label

WEIGHT, STATE, TOKEN = "#d7e6f2", "#f6f6f6", "#fbe3d0"  # boxes with weights, boxes of states, tokens


def _blank(height: Number, right: Number, top: Number) -> tuple[Picture, Axes]:
    """A picture without axes, in which places go from 0 to `right` and from 0 to `top`."""
    figure = Picture(figsize=(WIDTH, height))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.axis("off")
    return figure, axes


def _box(axes: Axes, x: Number, y: Number, text: str, fill: str, width: Number = 2.5, height: Number = 0.62) -> None:
    corner, shape = (x - width / 2, y - height / 2), "round,pad=0.02"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=shape, facecolor=fill, edgecolor="#444444"))
    axes.text(x, y, text, ha="center", va="center")


def _arrow(axes: Axes, start: tuple[Number, Number], end: tuple[Number, Number], text: str = "") -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#444444", "linewidth": 1})
    if text:
        axes.text((start[0] + end[0]) / 2 + 0.1, (start[1] + end[1]) / 2, text, va="center", color=COLOURS[0])


def data_flow(ckpt: Checkpoint) -> Picture:
    """One row through the drafter, with this checkpoint's own widths: boxes with weights are blue, widths stand at the arrows."""
    r = ckpt.recipe
    inner = ckpt.files.headers[ckpt.names["layers.0.mlp.gate_proj.weight"]].shape[0]
    figure, axes = _blank(7.8, 10, 10.9)
    left, right, middle, edge = 2.5, 7.3, 4.8, 9.8
    streams = r.streams or tuple(f"slot {i + 1}" for i in range(r.n_streams))
    width = 4.9 / max(len(streams), 1)
    for i, stream in enumerate(streams):
        x = 0.05 + width * (i + 0.5)
        _box(axes, x, 10.4, f"{label(stream)}\nat t", TOKEN, width=width * 0.9)
        _arrow(axes, (x, 10.06), (left, 9.52))
    _box(axes, right, 10.4, "token t+1", TOKEN)
    joined = r.n_streams * r.target_hidden_size
    norms = " + norm" if r.norm_before_fc or r.fc_norm else ""
    _box(axes, left, 9.2, f"joined{norms}: {joined:,}", WEIGHT if norms else STATE, width=3.2)
    _arrow(axes, (left, 8.86), (left, 8.34), f"{r.n_streams} x {r.target_hidden_size:,}")
    _box(axes, left, 8.0, "fc (step 1 only)", WEIGHT, width=3.2)
    _arrow(axes, (left, 7.66), (left, 7.14), f"{r.hidden_size:,}")
    _box(axes, left, 6.8, "hidden_norm", WEIGHT, width=3.2)
    table = "its file's" if "embed_tokens.weight" in ckpt else "the target's"
    _arrow(axes, (right, 10.06), (right, 8.34))
    _box(axes, right, 8.0, f"embedding ({table})", WEIGHT, width=3.2)
    _arrow(axes, (right, 7.66), (right, 7.14), f"{r.hidden_size:,}")
    _box(axes, right, 6.8, "input_layernorm", WEIGHT, width=3.2)
    _arrow(axes, (left, 6.46), (middle - 0.6, 5.94))
    _arrow(axes, (right, 6.46), (middle + 0.6, 5.94))
    _box(axes, middle, 5.6, f"[embedding, state]: 2 x {r.hidden_size:,} = {2 * r.hidden_size:,}", STATE, width=5.2)
    _arrow(axes, (middle, 5.26), (middle, 4.74))
    heads = f"q: {r.n_heads} heads of {r.head_dim}, k and v: {r.n_kv_heads}"
    _box(axes, middle, 4.4, f"attention ({heads})", WEIGHT, width=5.2)
    residual = f"{r.hidden_size:,}, plus the {'normed ' if r.norm_before_residual else ''}state (residual)"
    _arrow(axes, (middle, 4.06), (middle, 3.54), residual)
    _box(axes, middle, 3.2, f"post_attention_layernorm, MLP of {inner:,}", WEIGHT, width=5.2)
    more = f",\nthen {r.n_layers - 1} more layer{'s' if r.n_layers > 2 else ''}" if r.n_layers > 1 else ""
    _arrow(axes, (middle, 2.86), (middle, 2.24), f"{r.hidden_size:,}, plus what went in (residual){more}")
    _box(axes, middle, 1.9, "norm", WEIGHT)
    _arrow(axes, (middle, 1.56), (middle, 1.04), f"{r.hidden_size:,}")
    head = "its file's" if "lm_head.weight" in ckpt else "rows of the target's"
    same = r.draft_vocab_size == r.vocab_size
    _box(axes, middle, 0.6, f"lm_head ({head}):\n{r.draft_vocab_size:,} draft tokens", WEIGHT, width=3.9, height=0.76)
    _arrow(axes, (middle + 1.97, 0.6), (7.78, 0.6))
    guess = "guess of\ntoken t+2" if same else f"d2t: guess\nof token t+2\nof {r.vocab_size:,}"
    _box(axes, 8.8, 0.6, guess, TOKEN, width=2.0, height=1.0)
    fed = {"color": COLOURS[1], "linewidth": 1.4, "zorder": 0}
    start, y = (middle - 1.3, 1.9) if r.norm_output else (middle, 2.62)
    axes.plot([start, 0.1, 0.1], [y, y, 7.35], **fed)
    _arrow(axes, (0.1, 7.35), (left, 7.35))
    axes.text(0.22, 4.4, "fed back: the\nstate that steps\n2, 3, … take", color=COLOURS[1], va="center")
    axes.plot([edge, edge, right], [1.12, 9.4, 9.4], **fed)
    axes.text(edge - 0.1, 5.6, "the guess is\nthe next\nstep's token", color=COLOURS[1], va="center", ha="right")
    return figure


def places() -> Picture:
    """Where a fault can sit, and the three accept lengths that tell the places apart."""
    figure, axes = _blank(2.3, 10, 3.4)
    steps = (
        "training\nstates",
        "the drafter's\nweights\nand config",
        "states that\nthe server\nhands over",
        "the engine's\nown drafter",
    )
    marks = (
        "A, by hand,\non training states.\nLow: checkpoint\nor training",
        "B, by hand,\non serving states.\nA fine, B low:\ncapture in the server",
        "S, what the\nserver says.\nB fine, S low:\nengine",
    )
    for i, text in enumerate(steps):
        x = 1.0 + 2.66 * i
        _box(axes, x, 2.7, text, (STATE, WEIGHT, STATE, WEIGHT)[i], width=1.9, height=1.2)
        if i:
            _arrow(axes, (x - 1.68, 2.7), (x - 0.98, 2.7))
            axes.plot([x, x], [2.06, 1.5], color=COLOURS[1])
            axes.text(x, 1.4, marks[i - 1], ha="center", va="top")
    return figure


COLOUR_OF = {"prompt": "#ffffff", "first": "#dddddd", "target": "#f4c9a8", "accepted": "#a9d8c5"}
TOLD = {
    "prompt": "prompt",
    "first": "given by reading the prompt",
    "target": "written by the target",
    "accepted": "drafted and accepted",
}


def token_map(tokens: pd.DataFrame, text: Callable[[Sequence[int]], list[str]] | None, width: int = 74) -> Picture:
    """A sample's text, each token on the colour of what became of it (`tokens_of_rounds`); ids where there is no `text`.

    Accepted drafts are underlined as well, so that the picture can be read without colour. The prompt's last tokens only.
    """
    start = max(0, int((tokens.what != "prompt").to_numpy().argmax()) - 12)
    shown = tokens.iloc[start:]
    words = text(shown.token.tolist()) if text else [f"{i} " for i in shown.token]
    words = [w.replace("\n", "⏎").replace("\t", "⇥") or "∅" for w in words]
    lines, used = [[]], 0
    for word, what in zip(words, shown.what, strict=True):
        if used + len(word) > width and lines[-1]:
            lines.append([])
            used = 0
        lines[-1].append((used, word, what))
        used += len(word)
    most = max(width, *(used + len(word) for line in lines for used, word, _ in line)) + 1
    figure, axes = _blank(0.27 * (len(lines) + 2.4), most, len(lines) + 2.4)
    axes.invert_yaxis()

    def patch(x: Number, y: Number, width: Number, what: str, edge: str) -> None:
        shape = {"boxstyle": "square,pad=0", "facecolor": COLOUR_OF[what], "edgecolor": edge, "linewidth": 0.8}
        axes.add_patch(FancyBboxPatch((x, y), width, 0.8, **shape))
        if what == "accepted":
            axes.plot([x + 0.1, x + width - 0.1], [y + 0.8] * 2, color=COLOURS[2], linewidth=1.6)

    for row, line in enumerate(lines):
        for column, word, what in line:
            patch(column, row + 0.1, len(word), what, "white")
            for place, letter in enumerate(word):  # letter by letter: every column is one letter wide
                axes.text(column + place + 0.5, row + 0.52, letter, family="monospace", ha="center", va="center")
    for i, (what, told) in enumerate(TOLD.items()):
        x, y = i % 2 * most / 2 + 0.3, len(lines) + 0.4 + i // 2
        patch(x, y, 2.5, what, "#888888")
        axes.text(x + 3.3, y + 0.42, told, va="center")
    return figure
