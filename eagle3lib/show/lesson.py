"""What the lesson (notebook 03) needs beside the forward of `by_hand`: its tables, figures and sentences, and five breaks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from ..measure.intervals import told
from ..read.capture import Capture
from ..read.recipe import Recipe
from ..run.chain import Hits, chain_hits
from ..run.drafter import Drafter
from .by_hand import Checks, by_library, compare
from .figures import WIDTH, Picture, style

Broken = tuple[Drafter, Capture]


@dataclass(frozen=True)
class Curve:
    """What one drafter reaches: accuracy by step and accept length, of the same guesses."""

    accuracy: Accuracy
    accepted: Acceptance

    @classmethod
    def of(cls, found: list[Hits]) -> "Curve":
        return cls(Accuracy.of(found), Acceptance.of(found))

    def marginals(self) -> list[float]:
        return [self.accuracy.marginal(step) for step in range(1, self.accuracy.rows.shape[1] + 1)]


def estimates(curve: Curve, steps: int) -> pd.DataFrame:
    """Four numbers that get called accept length, from the same guesses at K = `steps`."""
    product = np.cumprod([m for m in curve.marginals()[:steps] if np.isfinite(m)]).sum()  # nan: no text is so long
    values = {
        "1 + sum of products of marginals": (1 + product, "as if one hit said nothing about the next"),
        "all starts": (curve.accepted.tau(steps, "starts"), "a chain from every row, also from rows that an engine skips"),
        "mean over samples": (curve.accepted.mean_of_requests(steps)[0], "each sample's own walk; each counts the same"),
        "walk": (curve.accepted.tau(steps), "rounds start where an engine starts them: what its counters give"),
    }
    return pd.DataFrame.from_dict(values, orient="index", columns=["value", "how it counts"])


def half_and_half(steps: int, tokens: int = 120) -> Curve:
    """A made-up text: every token of its first half is guessed right whenever it is drafted, none of its second half is."""
    ahead = torch.arange(tokens) + 2 + torch.arange(steps)[:, None]  # [K, T] place of the token that row t guesses at step k
    hit, scored = ahead < tokens // 2, ahead < tokens
    guess, known = torch.zeros_like(ahead), torch.ones_like(hit)
    return Curve.of([Hits("half easy", guess=guess, hit=hit, scored=scored, written=scored, known=known, complete=True)])


# Five breaks. Each takes a drafter and a sample and returns both, one of them changed; neither input is touched.


def slots_of(drafter: Drafter, capture: Capture) -> list[Tensor]:
    """What stands in each slot of `fc`: n_streams tensors [R, Ht]."""
    return list(capture.joined(drafter.recipe).chunk(drafter.recipe.n_streams, dim=-1))


def with_slots(capture: Capture, slots: Sequence[Tensor]) -> Capture:
    """The sample with these tensors in the slots, taken by position."""
    return capture.replace(streams={f"slot{i}": slot for i, slot in enumerate(slots)}, known={})


def last_slot_copied(drafter: Drafter, capture: Capture) -> Broken:
    """The last slot holds the one before it: two captures that share one buffer. A drafter of one stream is left as it is."""
    slots = slots_of(drafter, capture)
    return drafter, with_slots(capture, [*slots[:-1], *slots[-2:-1]] if len(slots) > 1 else slots)


def rows_one_late(drafter: Drafter, capture: Capture) -> Broken:
    """Each token gets the state of the token before it. The first keeps its own."""
    return drafter, with_slots(capture, [torch.cat([slot[:1], slot[:-1]]) for slot in slots_of(drafter, capture)])


def other_state_fed_back(drafter: Drafter, capture: Capture) -> Broken:
    """Steps 2 and later take the state from the other side of the final norm."""
    return drafter.with_recipe(drafter.recipe.replace(norm_output=not drafter.recipe.norm_output)), capture


def map_ignored(drafter: Drafter, capture: Capture) -> Broken:
    """Draft ids taken for the target's. With a full draft vocabulary they are, and nothing changes."""
    return drafter.but(target_ids=torch.arange(len(drafter.target_ids), device=drafter.device)), capture


def rope_base_tenfold(drafter: Drafter, capture: Capture) -> Broken:
    """base ** (-2i / D) with ten times the base: pair i turns 10 ** (-2i / D) times as fast."""
    rope, pairs = drafter.recipe.rope, len(drafter.recipe.rope.inv_freq)
    slower = tuple(f * 10 ** (-i / pairs) for i, f in enumerate(rope.inv_freq))
    return drafter.with_recipe(
        drafter.recipe.replace(rope=replace(rope, inv_freq=slower, about=rope.about + ", base x 10"))
    ), capture


BREAKS: dict[str, Callable[[Drafter, Capture], Broken]] = {
    "last slot copied": last_slot_copied,
    "rows one late": rows_one_late,
    "other state fed back": other_state_fed_back,
    "d2t ignored": map_ignored,
    "rope base x 10": rope_base_tenfold,
}


def run(broken: Callable[[Drafter, Capture], Broken], drafter: Drafter, captures: Sequence[Capture], steps: int) -> Curve:
    """One break on every sample, K = `steps`."""
    numbered = (capture.replace(name=f"{number} {capture.name}") for number, capture in enumerate(captures))
    return Curve.of([chain_hits(*broken(drafter, capture), steps) for capture in numbered])


def parts_at(broken: Callable[[Drafter, Capture], Broken], drafter: Drafter, capture: Capture, row: int, steps: int) -> str:
    """The first tensor at which a broken forward differs from the unbroken one on a sample; "none" where none does."""
    was, now = (by_library(*pair, row, steps) for pair in ((drafter, capture), broken(drafter, capture)))
    return next(iter(compare(now, was).failed()), "none")


def share(value: float, whole: float) -> float:
    """value / whole, nan where there is nothing to compare with."""
    return value / whole if whole > 0 else float("nan")


# Shapes of a curve of marginal accuracies, by its share of the unbroken one at each step; the first that holds. Names, no proofs.
SHAPES: tuple[tuple[Callable, str], ...] = (
    (lambda shares: not all(np.isfinite(shares)), "nothing to compare with"),
    (lambda shares: max(shares) < 0.05, "about nothing at every step"),
    (lambda shares: min(shares) > 0.9, "hardly seen"),
    (lambda shares: shares[0] > 0.9 and min(shares) < 2 / 3, "right at step 1, then a fall"),
    (lambda shares: shares[0] > 0.9, "a little low at later steps"),
    (lambda shares: shares[-1] > 2 * shares[0], "gains on the unbroken curve with the step"),
    (lambda shares: True, "low from the first step on"),
)


def shape(values: Sequence[float], whole: Sequence[float]) -> str:
    """A curve of marginal accuracies in words, beside the unbroken one."""
    shares = [share(mine, theirs) for mine, theirs in zip(values, whole, strict=True)]
    return next(said for holds, said in SHAPES if holds(shares))


def breaks_table(curves: Mapping[str, Curve], whole: Curve, steps: int) -> pd.DataFrame:
    """A row for each curve, the unbroken one first: marginal accuracy by step, accept length and its interval, its shape."""
    rows = {}
    for name, curve in {"as it is": whole, **curves}.items():
        low, high = curve.accepted.interval(steps)
        marginals = curve.marginals()
        rows[name] = {f"step {k}": value for k, value in enumerate(marginals, start=1)}
        rows[name] |= {"accept length": curve.accepted.tau(steps), "low": low, "high": high}
        rows[name] |= {"shape": shape(marginals, whole.marginals()) if name != "as it is" else ""}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def loop_reading(table: pd.DataFrame, steps: int) -> str:
    """What the accept length hides of a break that only later steps see. Markdown."""
    whole, loop = table.loc["as it is"], table.loc["other state fed back"]
    kept = [share(loop[f"step {k}"], whole[f"step {k}"]) for k in range(2, steps + 1)]
    kept = [one for one in kept if np.isfinite(one)]
    if not kept:
        return "No later step was ever right, so there is nothing that a break of the loop could take."
    return (
        f"The state fed back from the wrong side keeps {100 * np.mean(kept):.0f} % of the accuracy of later steps (their mean), "
        f"and the accept length is still {loop['accept length']:.2f} of {whole['accept length']:.2f}: the later a step, the less "
        "it adds to that number, which hides what the curve shows."
    )


def breaks_figure(table: pd.DataFrame, steps: int) -> Picture:
    """Marginal accuracy by step, a line for each row of `breaks_table`."""
    figure = Picture(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.subplots()
    for i, (name, row) in enumerate(table.iterrows()):
        values = [row[f"step {k}"] for k in range(1, steps + 1)]
        behind = {"color": "black", "linewidth": 7, "alpha": 0.25, "marker": "s"}  # another line may lie on it
        drawn = behind if name == "as it is" else style(i - 1)
        label = f"{name}: accept length {row['accept length']:.2f}"
        axes.plot(range(1, steps + 1), values, label=label, **drawn)
    axes.set(xlabel="draft step", ylabel="marginal accuracy (higher is better)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=-0.01)
    figure.legend_outside(ncols=2)
    return figure


def crash_reading(h: Float[Tensor, "R H"], q_proj: Float[Tensor, "out W"], recipe: Recipe) -> str:
    """Why the state alone does not fit `q_proj`, in words with the numbers. Markdown."""
    (R, H), (out, W) = h.shape, q_proj.shape
    return (
        f"In words: {R} rows of {H} channels met a matrix that takes {W} = 2 x {H} and makes {out} = {recipe.n_heads} heads of "
        f"{recipe.head_dim}. (The message shows the matrix turned over, as it is multiplied.) The first layer reads *two* rows "
        "side by side, the normed embedding and the normed state, and only the state came. Nothing is wrong with `fc` or with "
        "the captures: what is missing is the embedding."
    )


def accuracy_reading(curve: Curve, step: int) -> str:
    """The three accuracies at `step`, or the last one before it that any row reached, in a sentence. Markdown."""
    before = curve.accuracy.before.sum(0)
    step = max((k for k in range(2, step + 1) if before[k - 1]), default=1)
    at = curve.accuracy.table().loc[step]
    if step == 1:
        return f"At step 1 the three are one number, {at.marginal:.3f}; no row was right there and had text left for step 2."
    together, after = curve.accuracy.joint.sum(0)[step - 2], before[step - 1]
    last = curve.accuracy.table().loc[len(before)]
    point = ", and an interval without width, where all samples are alike, is no certainty"
    return (
        f"At step {step}: right in {at.marginal:.3f} of rows, whatever happened before (marginal); all {step} guesses right in "
        f"{at.joint:.3f} (joint). Of {together} rows that were right so far {after} have a token for step {step}, and of these "
        f"the next guess is right too in {told(at.conditional, at['conditional low'], at['conditional high'], 3)} (conditional). "
        f"Conditionals of later steps rest on fewer rows, {before[-1]} at step {len(before)}"
        f"{point if last['conditional low'] == last['conditional high'] else ''}."
    )


def estimates_reading(curve: Curve, steps: int) -> str:
    """How far the product of marginals is from the walk, and whether hits hang together. Markdown."""
    product, _, _, walk = estimates(curve, steps).value
    (low, high), second = curve.accepted.interval(steps), curve.accuracy.table().loc[2]
    place = "inside" if low <= product <= high else "outside"
    where = f", so the product lies {place} its interval" if np.isfinite(low) else ""
    said = f"The product says {product:.2f}; the walk gives **{told(walk, low, high)}**{where}."
    if not np.isfinite(second.conditional):
        return said + " No first guess was right, so nothing follows one: there is no conditional accuracy at step 2."
    return said + (
        f" At step 2 the conditional accuracy is {second.conditional:.3f} and the marginal {second.marginal:.3f}: the closer "
        "these two, the better the product does. That is a property of the drafter and the text, and no rule."
    )


def answer(checks: Checks, dtype: torch.dtype, curve: Curve, steps: int) -> str:
    """The notebook's answer, from its checks and the drafter's numbers. Markdown."""
    failed, total = checks.failed(), len(checks.made)
    if failed:
        said = f"**No: {len(failed)} of {total} tensors differ, first `{failed[0]}`**: there the two forwards part."
        said += "" if dtype == torch.float32 else f" In {str(dtype).removeprefix('torch.')} rounding can do that: try float32."
    else:
        largest = max(float(check["difference"]) for check in checks.made)
        said = f"**Yes: {total} of {total} tensors agree**, from the joined streams to the drafted ids "
        said += f"(largest relative difference of a row: {largest:.0e})." if largest else "(no difference at all)."
    rows = curve.accuracy.rows[:, 0]
    right = told(curve.accuracy.marginal(1), *curve.accuracy.interval(1), 3)
    said += f" At step 1 the guess is the text's token in **{right}** of {rows.sum()} rows (samples: {(rows > 0).sum()})."
    return said + f" At K = {steps} a round yields **{told(curve.accepted.tau(steps), *curve.accepted.interval(steps))}** tokens."
