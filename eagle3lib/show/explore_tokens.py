"""One explorer: pick a row of a sample; see the text around it, what the drafter chooses at each step beside the target's own
token, where the row looks, and what `fc` makes its input of.
"""

import html
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from ipywidgets import HTML, Button

from ..measure.acceptance import tokens_of_rounds
from ..measure.state import slot_shares
from ..read.capture import Capture
from ..run.chain import Hits
from ..run.drafter import Drafter, Step
from ..run.rounds import rounds_of
from .drawings import COLOUR_OF, TOLD
from .explore_row import chain_at, first_step
from .explorer import Explorer, chosen_sample, drawing, prose, slider, table
from .figures import COLOURS, WIDTH, Picture, label
from .rows import drafted, labels, texts

BEFORE, AFTER, SEEN = 60, 24, 16  # tokens of the text; context rows whose attention is shown


def choices(capture: Capture, row: int, chain: Sequence[dict], text: Callable | None) -> pd.DataFrame:
    """The chain in words, a row for each step: fed its own choices, as an engine does."""
    told = drafted(capture, row, torch.tensor([one["ids"][0] for one in chain]), text)
    for n in range(len(chain[0]["ids"])):
        words = texts([one["ids"][n] for one in chain], text)
        told[f"choice {n + 1}"] = [f"{word} {one['p'][n]:.1%}" for word, one in zip(words, chain, strict=True)]
    told["chance of the text's"] = [f"{one['of true']:.1%}" if one["of true"] > 0 else "cannot be said" for one in chain]
    kept = [
        "embedding of",
        *(c for c in told.columns if c.startswith("choice")),
        "the text has",
        "chance of the text's",
        "accepted",
    ]
    return told[kept].replace({True: "yes", False: "no"}).reset_index()


def around(became: pd.DataFrame, row: int, text: Callable | None) -> str:
    """The text around a row as HTML: what became of each token by its colour, the token beside the row's state framed."""
    shown, spans = became.iloc[max(row + 1 - BEFORE, 0) : row + 2 + AFTER], []
    words = text(shown.token.tolist()) if text else [f"{i} " for i in shown.token]
    for place, word, what in zip(shown.index, words, shown.what, strict=True):
        frame = "outline: 2px solid black; font-weight: bold; " if place == row + 1 else ""
        line = "text-decoration: underline; " if what == "accepted" else ""
        style = f"background: {COLOUR_OF[what]}; {frame}{line}"
        spans.append(f'<span style="{style}" title="position {place}: {TOLD[what]}">{html.escape(word)}</span>')
    key = " ".join(f'<span style="background: {paint}">&nbsp;{TOLD[what]}&nbsp;</span>' for what, paint in COLOUR_OF.items())
    style = "background: white; color: black; padding: 6px; max-width: 64em; white-space: pre-wrap"
    return prose(f'<div style="{style}; font-family: monospace">{"".join(spans)}</div><div style="{style}">{key}</div>')


def looks(capture: Capture, row: int, chain: Sequence[dict], shares: dict[str, float], text: Callable | None) -> Picture:
    """Left: attention of each step on the first row, those between together, the last `SEEN`, and the row's own earlier steps.
    Right: each slot's share of what `fc` makes of the row.
    """
    first = max(row + 1 - SEEN, 1)
    keys = [0, *range(first, row + 1)] if row else [0]
    beside = [int(capture.token_ids[j + 1]) for j in keys] + [one["ids"][0] for one in chain[:-1]]
    names = [(text([i])[0].strip().replace("$", r"\$") if text else str(i)) or "␣" for i in beside]
    wide = np.full((len(chain), len(names)), np.nan)  # [steps, keys]: later drafts are nan for earlier steps
    for step, one in enumerate(chain):
        wide[step, : len(keys) + step] = torch.cat([one["attention"][keys], one["attention"][row + 1 :]])
    if first > 1:
        wide = np.insert(wide, 1, [float(one["attention"][1:first].sum()) for one in chain], axis=1)
        names.insert(1, f"({first - 1} between)")
    figure = Picture(figsize=(WIDTH, 3.6))  # laid out by hand, which is twice as fast: it is drawn whenever a control moves
    left, bar, right = (figure.add_axes((x, 0.4, width, 0.5)) for x, width in ((0.07, 0.59), (0.67, 0.015), (0.86, 0.13)))
    drawn = left.imshow(wide, aspect="auto", cmap="cividis", vmin=0)
    left.set_xticks(range(len(names)), [n[:12] for n in names], rotation=90)
    left.set_yticks(range(len(chain)), range(1, len(chain) + 1))
    left.axvline(len(names) - len(chain) + 0.5, color="white", linewidth=3)
    left.set(ylabel="draft step", title=f"where row {row} looks | and its own drafts")
    figure.colorbar(drawn, cax=bar, label="share of attention")
    right.bar(list(shares), list(shares.values()), color=COLOURS[0], alpha=0.7)
    right.axhline(0, color="black", linewidth=0.8)
    right.tick_params(axis="x", rotation=90)
    right.set(title="fc's output", ylabel="share of each slot")
    for panel in (left, right):
        panel.title.set_fontsize(10)
    return figure


def tokens(drafter: Drafter, captures: Sequence[Capture], found: Sequence[Hits], text: Callable | None = None) -> Explorer:
    """Pick a sample, a row and the number of draft steps K. `found`: the drafter's hits on these samples; `text(ids)` gives each
    token's text, where a tokenizer is at hand.
    """
    most = len(found[0].hit)
    samples, row = chosen_sample(captures), slider("row t", max(found[0].start(), 0), len(captures[0].token_ids) - 3)
    steps = slider("draft steps K", min(5, most), most, 1)
    back, on = Button(description="to the round before"), Button(description="to the next round")
    where, picture, told = HTML(), drawing(), HTML()
    kept: dict[int, tuple[Step, torch.Tensor]] = {}  # the last sample's first step

    def to_round(way: int) -> None:
        rounds = rounds_of(found[samples.value], captures[samples.value].token_ids.tolist(), steps.value)
        there = [one.row for one in rounds if way * one.row > way * row.value]
        row.value = way * min(way * r for r in there) if there else row.value

    back.on_click(lambda _: to_round(-1))
    on.on_click(lambda _: to_round(1))

    def draw() -> None:
        capture, K = captures[samples.value], steps.value
        if samples.value not in kept:
            kept.clear()
            kept[samples.value] = first_step(drafter, capture)
            row.max = max(len(capture.token_ids) - 3, 0)
            row.value = max(found[samples.value].start(), 0)  # where an engine begins
        at = row.value
        chain = chain_at(drafter, capture, kept[samples.value], at, K)
        g = capture.joined(drafter.recipe)[at : at + 1].to(drafter.device, drafter.dtype)
        slots = [f"{i + 1}: {label(n)}" for i, n in enumerate(labels(drafter.recipe, capture))]
        where.value = around(tokens_of_rounds(found[samples.value], capture.token_ids, K), at, text)
        told.value = table(choices(capture, at, chain, text))
        shares = dict(zip(slots, slot_shares(drafter, g)[0].tolist(), strict=True))
        picture.value = looks(capture, at, chain, shares, text)._repr_png_()

    return Explorer("to move through the text row by row", [samples, row, steps, back, on], [where, told, picture], draw)
