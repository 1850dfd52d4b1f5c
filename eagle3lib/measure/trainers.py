"""What each trainer would have printed for these very hits: its own figures, by its own formulas, so that a claimed training
accuracy is compared with the same thing.

c_k: right at step k (k from 0 here, as trainers count); A_k: its mean over scored rows; j_k: right at steps 0..k. A trainer
scores every token of its loss mask; here a row is scored at step k when the target wrote all of x_{t+1}..x_{t+2+k}, which
leaves out a few rows at the edges of an answer. Two trainers say something else of a token outside the draft vocabulary:
*left out* (not in the denominator), or *replaced* by the target's best token within it, which makes it guessable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..run.chain import Hits
from .accuracy import Accuracy
from .intervals import ratio_interval
from .lens import last_normed

Ratio = tuple[np.ndarray, np.ndarray]  # above and below, [S] each


def _each(above: str, below: str) -> Callable[[Accuracy, int], Ratio]:
    return lambda a, k: (getattr(a, above)[:, k], getattr(a, below)[:, k])


def _product(plus: int) -> Callable[[Accuracy], float]:
    """`plus` + sum over k of the product of A_0..A_k."""
    return lambda a: plus + float(np.cumprod(_shares(a.right, a.rows)).sum())


def _shares(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Pooled ratio at each step, [K]; nan at a step that no text is long enough for."""
    with np.errstate(invalid="ignore"):
        return above.sum(0) / below.sum(0)


@dataclass(frozen=True)
class Figure:
    """One figure of one trainer. `of(accuracy, k)` gives each sample's numerator and denominator; a figure over all steps is
    `whole(accuracy)`.
    """

    trainer: str
    name: str  # with {k} where there is one for each step
    formula: str
    outside: str  # what a token outside the draft vocabulary is: "a miss", "left out" or "replaced"
    source: str
    of: Callable[[Accuracy, int], Ratio] | None = None
    whole: Callable[[Accuracy], float] | None = None


RIGHT, KNOWN = _each("right", "rows"), _each("right", "known")
FIGURES = (
    Figure("speculators", "full_acc_{k}", "sum j_k / all rows whose token at k is the target's", "replaced",
           "speculators models/metrics.py", _each("joint", "written")),
    Figure("speculators", "cond_acc_{k}", "sum j_k / rows right at all steps before", "replaced",
           "speculators models/metrics.py", _each("joint", "before")),
    Figure("SafeAILab", "acc_{k}", "A_k", "a miss", "SafeAILab/EAGLE traineagle3/cnets.py", RIGHT),
    Figure("SafeAILab", "n-alpha_{k}", "sum j_k / rows right at all steps before", "a miss",
           "SafeAILab/EAGLE evaluation/alpha.py; SafeAILab/EAGLE#191", _each("joint", "before")),
    Figure("AngelSlim", "acc_{k}", "A_k", "a miss", "AngelSlim speculative/train", RIGHT),
    Figure("SpecForge", "acc_{k}", "A_k", "a miss", "SpecForge core/", RIGHT),
    Figure("SpecForge", "simulated_acc_len", "sum_k A_0..A_k, no 1 added", "a miss", "SpecForge core/", whole=_product(0)),
    Figure("TorchSpec", "acc_{k}", "A_k over known tokens", "left out", "TorchSpec eagle3_trainer.py", KNOWN),
    Figure("ModelOpt", "step_{k}", "A_k", "replaced", "ModelOpt speculative", RIGHT),
    Figure("ModelOpt", "estimated_training_ar", "1 + sum_k A_0..A_k", "replaced", "ModelOpt speculative", whole=_product(1)),
    Figure("Automodel", "accuracy", "all steps pooled: sum c / sum rows", "left out", "NeMo Automodel speculative/eagle",
           whole=lambda a: float(a.right.sum() / a.known.sum())),
    Figure("Automodel", "tau_sim", "1 + sum_k (sum j_k / rows at k)", "a miss", "NeMo Automodel speculative/eagle",
           whole=lambda a: 1 + float(_shares(a.joint, a.rows).sum())),
    Figure("DeepSpec", "accuracy@{k}", "A_k", "a miss", "DeepSpec deepspec/eval", RIGHT),
    Figure("DeepSpec", "tau_greedy", "1 + sum_k sum j_k / rows at 0", "a miss", "DeepSpec deepspec/eval",
           whole=lambda a: 1 + float(a.joint.sum() / a.rows[:, 0].sum())),
)  # fmt: skip


@torch.inference_mode()
def with_best_in_vocabulary(found: Sequence[Hits], captures: Sequence[Capture], ckpt: Checkpoint) -> list[Hits] | None:
    """The same guesses, scored as `speculators` and ModelOpt do: a token outside the draft vocabulary is replaced by the best
    token in it by the target's own head. None where that cannot be had: it needs the target and each sample's last state
    after the final norm, or before it.
    """
    if ckpt.target is None:
        return None
    head = ckpt.target.head_rows(ckpt.target_ids).float()  # [Vd, Ht]
    scored_anew = []
    for one, capture in zip(found, captures, strict=True):
        if capture.last is None or capture.last_kind not in ("post_norm", "pre_norm"):
            return None
        steps, rows = (one.scored & ~one.known & (one.guess >= 0)).nonzero(as_tuple=True)
        states = last_normed(ckpt.target, capture, rows + 1 + steps)  # the state that predicts x_{t+2+k}
        best = ckpt.target_ids[(states @ head.T).argmax(-1)] if len(rows) else rows
        hit = one.hit.clone()
        hit[steps, rows] = one.guess[steps, rows] == best
        scored_anew.append(replace(one, hit=hit, known=torch.ones_like(one.known)))
    return scored_anew


def trainer_figures(strict: Accuracy, replaced: Accuracy | None = None, steps: int | None = None) -> pd.DataFrame:
    """Every trainer's figures over these hits. `strict`: tokens outside the draft vocabulary are misses; `replaced`: counted
    from `with_best_in_vocabulary`, and nan without it. A row for each figure and step; 95 % intervals over samples.
    """
    rows, steps = [], min(steps or strict.rows.shape[1], strict.rows.shape[1])
    for figure in FIGURES:
        counts = replaced if figure.outside == "replaced" else strict
        for k in range(steps) if figure.of else (0,):
            value, low, high = (float("nan"),) * 3
            if counts is not None and figure.of:
                above, below = (part.astype(float) for part in figure.of(counts, k))
                value = float(above.sum() / below.sum()) if below.sum() else value
                low, high = ratio_interval(above, below)
            elif counts is not None:
                value = figure.whole(counts.first(steps))
            rows.append(
                {"trainer": figure.trainer, "figure": figure.name.format(k=k), "here": value, "low": low, "high": high,
                 "formula": figure.formula, "a token outside the draft vocabulary is": figure.outside, "source": figure.source}
            )  # fmt: skip
    return pd.DataFrame(rows).set_index(["trainer", "figure"])


def sums_over_fewer_steps(strict: Accuracy, replaced: Accuracy | None = None) -> pd.Series:
    """The figures that sum over steps, had training unrolled fewer of them: (trainer, "figure over k steps") -> value."""
    found = {}
    for figure in FIGURES:
        counts = replaced if figure.outside == "replaced" else strict
        for k in range(1, strict.rows.shape[1]) if figure.whole and counts is not None else ():
            found[figure.trainer, f"{figure.name} over {k} steps"] = figure.whole(counts.first(k))
    return pd.Series(found)


CLAIM = "SpecForge", "acc_0"  # whose figure a claim is where nobody says


def claimed_row(table: pd.DataFrame, whose: Sequence[str] | None) -> pd.Series:
    """The row of `trainer_figures` for a claimed figure, as ("SpecForge", "acc_0"). Raises InputError for one that no trainer
    here prints.
    """
    trainer, figure = whose if whose and len(whose) == 2 else (*(whose or CLAIM), CLAIM[1])[:2]
    if (trainer, figure) not in table.index:
        known = ", ".join(f"{t} {f}" for t, f in table.index if "{" not in f)
        raise InputError(f"claimed figure: {trainer} {figure} is not one this library can compute; there are {known}")
    return table.loc[(trainer, figure)]
