"""Single rows of one recorded sample in words: what goes into the drafter, what it guesses, what the text has."""

from collections.abc import Callable, Sequence

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from ..read.capture import Capture, Label
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..run.chain import Hits
from .by_hand import ROWS
from .figures import COLOURS, WIDTH, Picture


def labels(recipe: Recipe, capture: Capture) -> tuple[Label, ...]:
    """The streams that feed `fc`: those that the recipe names, or by position where the sample's have no labels."""
    if all(isinstance(label, str) for label in capture.streams):
        return tuple(capture.streams)[: recipe.n_streams]
    return recipe.streams


def sample(captures: Sequence[Capture], found: Sequence[Hits]) -> tuple[Capture, int]:
    """The sample and the row with the longest right chain, the first such: where most can be seen.

    Raises InputError when no row can be drafted from.
    """
    chains = [torch.where(one.scored[0], one.leading(), -1)[:ROWS] for one in found]
    best = max(range(len(chains)), key=lambda i: int(chains[i].max()))
    if chains[best].max() < 0:
        raise InputError("captures: no row to draft from: no two tokens in a row are marked as the target's own (loss_mask)")
    return captures[best], int(chains[best].argmax())


def texts(ids: Sequence[int] | Tensor, text: Callable | None) -> list[str]:
    """Token texts in quotes where a tokenizer is at hand and the text can be drawn, else the ids."""
    ids = [int(i) for i in ids]
    shown = text(ids) if text else [""] * len(ids)
    return [repr(t) if t and t.isascii() else str(i) for i, t in zip(ids, shown, strict=True)]


def pairs(capture: Capture, guess: Int[Tensor, " R"], row: int, text: Callable | None) -> pd.DataFrame:
    """Rows around `row` in words: the last token that the state has read, the one beside it, the guess, what the text has."""
    ids, rows = capture.token_ids, range(max(row - 2, 0), min(row + 4, len(guess)))
    read, beside, truth = (texts(ids[rows.start + ahead : rows.stop + ahead], text) for ahead in range(3))
    guessed = texts(guess[rows.start : rows.stop], text)
    right = [bool(guess[t] == ids[t + 2]) for t in rows]
    columns = {"state after reading": read, "embedding of": beside, "guess": guessed, "the text has": truth, "right": right}
    return pd.DataFrame(columns, index=pd.Index(rows, name="row t"))


def drafted(capture: Capture, row: int, drafts: Int[Tensor, " K"], text: Callable | None) -> pd.DataFrame:
    """The steps of one chain in words: what goes in, the guess, and what the text has. Accepted: right, and all before too."""
    ids, steps = capture.token_ids, len(drafts)
    fed = [int(ids[row + 1]), *drafts[:-1].tolist()]
    truth = ids[row + 2 : row + 2 + steps].tolist()
    right = [k < len(truth) and int(drafts[k]) == truth[k] for k in range(steps)]
    columns = {
        "state in": ["fc of the target's streams", *[f"its own, of step {k}" for k in range(1, steps)]],
        "embedding of": texts(fed, text),
        "position": range(row, row + steps),
        "attends to": [f"0-{row}" + (f", own {row + 1}" + f"-{row + k}" * (k > 1) if k else "") for k in range(steps)],
        "guess": texts(drafts, text),
        "the text has": texts(truth, text) + ["(ends)"] * (steps - len(truth)),
        "accepted": [all(right[: k + 1]) for k in range(steps)],
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(1, steps + 1, name="step"))


def shift_figure(capture: Capture, row: int, text: Callable | None) -> Picture:
    """Row t of one sample: the state at t and the embedding of x_{t+1} go in, the guess of x_{t+2} comes out; and step 2."""
    first = max(row - 1, 0)
    ids = capture.token_ids[first : row + 4]
    figure = Picture(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.subplots()
    box = {"boxstyle": "round,pad=0.35", "edgecolor": "black", "linewidth": 0.8}
    for place, shown in enumerate(texts(ids, text), start=first - row):
        name = "t" if place == 0 else f"t{place:+d}"
        used = {1: COLOURS[4], 2: COLOURS[2]}.get(place, "white")
        words = f"$x_{{{name}}}$\n" + shown.replace("$", r"\$")
        axes.text(place, 2, words, ha="center", va="center", fontsize=10, bbox=box | {"facecolor": used, "alpha": 0.85})
        if place <= 0:
            used = COLOURS[5] if place == 0 else "white"
            axes.text(place, 1, f"$g_{{{name}}}$", ha="center", va="center", fontsize=10, bbox=box | {"facecolor": used})
    axes.text(0.5, 0, "row t of the drafter", ha="center", va="center", fontsize=10, bbox=box | {"facecolor": "white"})
    arrow = {"arrowstyle": "->", "linewidth": 1.4, "shrinkA": 14, "shrinkB": 12}
    faint, later = "#777777", {"facecolor": "white", "edgecolor": "#aaaaaa", "linestyle": "--"}
    axes.annotate("", (0.35, 0), (0, 1), arrowprops=arrow | {"color": COLOURS[0]})
    axes.annotate("", (0.6, 0), (1, 2), arrowprops=arrow | {"color": COLOURS[1], "shrinkA": 20})
    axes.annotate("", (2, 2), (1.05, 0), arrowprops=arrow | {"color": COLOURS[2], "linestyle": "--", "shrinkB": 22})
    axes.annotate("", (1.72, 0), (1.0, 0), arrowprops=arrow | {"color": faint})
    axes.text(2.5, 0, "step 2: its own state,\nits guess's embedding", ha="center", va="center", color=faint, bbox=box | later)
    axes.text(0.08, 0.5, "through fc", ha="right", va="center", color=COLOURS[0])
    axes.text(0.84, 1.4, "its embedding", ha="right", va="center", color=COLOURS[1])
    axes.text(1.62, 0.8, "guesses", va="center", color=COLOURS[2])
    axes.text(3.5, 1, "not read yet", ha="right", va="center", color=faint)
    axes.set_yticks([0, 1, 2], ["drafter", "target's states", "text"])
    axes.set(xlim=(first - row - 0.6, 3.6), ylim=(-0.5, 2.6), xticks=[])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return figure


def in_words(table: pd.DataFrame, row: int, capture: Capture) -> str:
    """One row of `pairs` in a sentence. Markdown."""
    here = table.loc[row]
    return (
        f"Row {row} of `{capture.name}`: the target has read up to `{here['state after reading']}`; beside its states stands "
        f"the embedding of `{here['embedding of']}`; the guess is `{here['guess']}`, and the text goes on with "
        f"`{here['the text has']}`."
    )
