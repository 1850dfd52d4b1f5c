"""Drawings: how data flows through one drafter, where a fault can sit, and which tokens of a text were drafted."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.patches import FancyBboxPatch

from ..read.checkpoint import Checkpoint
from .figures import COLOURS, Picture, label

WEIGHT, STATE, TOKEN = "#d7e6f2", "#f6f6f6", "#fbe3d0"  # boxes with weights, boxes of states, tokens


def _box(axes, x: float, y: float, text: str, fill: str, width: float = 2.5, height: float = 0.62) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.02", facecolor=fill, edgecolor="#444444"
        )
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def _arrow(axes, start: tuple[float, float], end: tuple[float, float], text: str = "", bend: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "color": "#444444", "linewidth": 1, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", end, start, arrowprops=style)
    if text:
        axes.text((start[0] + end[0]) / 2 + 0.08, (start[1] + end[1]) / 2, text, fontsize=9, va="center", color=COLOURS[0])


def data_flow(ckpt: Checkpoint) -> Picture:
    """One row through the drafter, with this checkpoint's own widths: boxes with weights are blue, widths stand at the arrows."""
    r = ckpt.recipe
    inner = ckpt.files.headers[ckpt.names["layers.0.mlp.gate_proj.weight"]].shape[0]
    figure = Picture(figsize=(9.6, 8.0), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(-0.2, 11.4)
    axes.set_ylim(-0.6, 10.6)
    axes.axis("off")
    left, right, middle = 2.6, 7.0, 4.8
    streams = r.streams or tuple(f"slot {i + 1}" for i in range(r.n_streams))
    width = 5.2 / max(len(streams), 1)
    for i, stream in enumerate(streams):
        x = left - 2.6 + width * (i + 0.5)
        _box(axes, x, 10.0, label(stream) + " at t", TOKEN, width=width * 0.9)
        _arrow(axes, (x, 9.66), (left, 9.12))
    _box(axes, right + 0.6, 10.0, "token t+1", TOKEN)
    joined = r.n_streams * r.target_hidden_size
    norms = " + norm" if r.norm_before_fc or r.fc_norm else ""
    _box(axes, left, 8.8, f"joined{norms}: {joined:,}", WEIGHT if norms else STATE, width=3.0)
    _arrow(axes, (left, 8.46), (left, 7.94), f"{r.n_streams} x {r.target_hidden_size:,}")
    _box(axes, left, 7.6, "fc (step 1 only)", WEIGHT, width=3.0)
    _arrow(axes, (left, 7.26), (left, 6.74), f"{r.hidden_size:,}")
    _box(axes, left, 6.4, "hidden_norm", WEIGHT, width=3.0)
    table = "its own" if "embed_tokens.weight" in ckpt else "the target's"
    _arrow(axes, (right + 0.6, 9.66), (right + 0.6, 7.94))
    _box(axes, right + 0.6, 7.6, f"embedding ({table})", WEIGHT, width=3.0)
    _arrow(axes, (right + 0.6, 7.26), (right + 0.6, 6.74), f"{r.hidden_size:,}")
    _box(axes, right + 0.6, 6.4, "input_layernorm", WEIGHT, width=3.0)
    _arrow(axes, (left, 6.06), (middle - 0.6, 5.54))
    _arrow(axes, (right + 0.6, 6.06), (middle + 0.6, 5.54))
    _box(axes, middle, 5.2, f"[embedding, state]: 2 x {r.hidden_size:,} = {2 * r.hidden_size:,}", STATE, width=4.6)
    _arrow(axes, (middle, 4.86), (middle, 4.34))
    heads = f"q: {r.n_heads} heads of {r.head_dim}, k and v: {r.n_kv_heads}"
    _box(axes, middle, 4.0, f"attention ({heads})", WEIGHT, width=5.4)
    _arrow(
        axes,
        (middle, 3.66),
        (middle, 3.14),
        f"{r.hidden_size:,}, plus the {'normed ' if r.norm_before_residual else ''}state (residual)",
    )
    _box(axes, middle, 2.8, f"post_attention_layernorm, MLP of {inner:,}", WEIGHT, width=5.4)
    more = f", then {r.n_layers - 1} more layer{'s' if r.n_layers > 2 else ''}" if r.n_layers > 1 else ""
    _arrow(axes, (middle, 2.46), (middle, 1.94), f"{r.hidden_size:,}, plus what went in (residual){more}")
    _box(axes, middle, 1.6, "norm", WEIGHT)
    _arrow(axes, (middle, 1.26), (middle, 0.74), f"{r.hidden_size:,}")
    head = "its own" if "lm_head.weight" in ckpt else "rows of the target's"
    same = r.draft_vocab_size == r.vocab_size
    _box(axes, middle, 0.4, f"lm_head ({head}): {r.draft_vocab_size:,} draft tokens", WEIGHT, width=4.8)
    _arrow(axes, (middle + 2.42, 0.4), (8.6, 0.4))
    _box(axes, 9.9, 0.4, "guess of token t+2" if same else f"d2t: guess of token t+2\nof {r.vocab_size:,}", TOKEN, width=2.6)
    fed = 1.6 if r.norm_output else 2.2
    axes.plot([middle - 1.3 if r.norm_output else middle, 0.0, 0.0], [fed, fed, 6.95], color=COLOURS[1], linewidth=1.4, zorder=0)
    _arrow(axes, (0.0, 6.95), (left, 6.95))
    axes.text(0.08, 4.6, "fed back: the\nstate that steps\n2, 3, … take", fontsize=9, color=COLOURS[1], va="center")
    axes.plot([9.9, 9.9, right + 0.6], [0.75, 9.0, 9.0], color=COLOURS[1], linewidth=1.4, zorder=0)
    axes.text(10.0, 4.6, "the guess is the\nnext step's token", fontsize=9, color=COLOURS[1], va="center")
    return figure


def places() -> Picture:
    """Where a fault can sit, and the three accept lengths that tell the places apart."""
    figure = Picture(figsize=(9.6, 2.9), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(0, 12)
    axes.set_ylim(0, 3.6)
    axes.axis("off")
    steps = ("training states", "the drafter's\nweights and config", "states the server\nhands over", "the engine's\nown drafter")
    for i, text in enumerate(steps):
        _box(axes, 1.6 + 2.95 * i, 2.6, text, (STATE, WEIGHT, STATE, WEIGHT)[i], width=2.5, height=0.95)
        if i:
            _arrow(axes, (2.88 + 2.95 * (i - 1), 2.6), (3.28 + 2.95 * (i - 1), 2.6))
    marks = (
        (3.07, "A  by hand, on training states\n    low: checkpoint or training"),
        (7.5, "B  by hand, on serving states\n    A fine, B low: capture in the server"),
        (10.45, "S  what the server says\n    B fine, S low: engine"),
    )
    for i, (x, text) in enumerate(marks):
        axes.annotate(text, (x, 2.05), (x - (1.4, 1.9, 1.3)[i], 0.75), fontsize=9, va="center", color="black",
                      arrowprops={"arrowstyle": "-", "color": COLOURS[1]})  # fmt: skip
    return figure


COLOUR_OF = {"prompt": "#ffffff", "first": "#dddddd", "target": "#f4c9a8", "accepted": "#a9d8c5"}
TOLD = {
    "prompt": "prompt",
    "first": "given by reading the prompt",
    "target": "written by the target",
    "accepted": "drafted and accepted",
}


def token_map(tokens: pd.DataFrame, text: Callable[[Sequence[int]], list[str]] | None, width: int = 96) -> Picture:
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
    figure = Picture(figsize=(9.6, 0.27 * len(lines) + 0.75))
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.96))
    axes.set_xlim(0, width + 2)
    axes.set_ylim(len(lines) + 1.6, -0.2)
    axes.axis("off")
    for row, line in enumerate(lines):
        for column, word, what in line:
            axes.add_patch(FancyBboxPatch((column, row + 0.1), len(word), 0.8, boxstyle="square,pad=0", facecolor=COLOUR_OF[what],
                                          edgecolor="white", linewidth=0.8))  # fmt: skip
            for place, letter in enumerate(word):  # letter by letter: every column is one letter wide
                axes.text(column + place + 0.5, row + 0.52, letter, family="monospace", fontsize=9, ha="center", va="center")
            if what == "accepted":
                axes.plot([column + 0.1, column + len(word) - 0.1], [row + 0.9] * 2, color=COLOURS[2], linewidth=1.6)
    at = 0
    for what, colour in COLOUR_OF.items():
        axes.add_patch(
            FancyBboxPatch((at, len(lines) + 0.65), 2, 0.7, boxstyle="square,pad=0", facecolor=colour, edgecolor="#888888")
        )
        axes.text(at + 2.6, len(lines) + 1.02, TOLD[what], fontsize=9, va="center")
        at += 6 + len(TOLD[what]) * 0.86
    return figure
