"""Hypotheses scored on the same rows of the same samples: a race that drops the hopeless, tests by ranks, and power.

Samples are what is independent, so everything is paired over samples. What is told is told by the log-probability of the
text's tokens, which moves with every row; what is worth telling, by the share of right guesses.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ..measure.intervals import fewest_for, ratio_interval, samples_needed

ALPHA = 0.01  # a hypothesis must beat "as configured" at this level, after correction for how many were tried
GLANCE, SCREEN, AGAIN = 2, 8, 16  # samples after which the hopeless are dropped
MOST = 32  # that are run on all samples, the best of those that are not hopeless
FAR = 0.4  # of the leader's share after the first two samples: with a hundred rows no near rival is so far behind
HOPELESS = 5.0  # standard errors of the paired difference that make one of them hopeless
FEW, MANY = 6, 10_000  # from fewer samples no number of prompts is extrapolated; more than so many are not a plan


@dataclass(frozen=True)
class Score:
    """Right guesses and rows for each of S samples; a dropped hypothesis has only the first ones."""

    right: Int[np.ndarray, " S"]
    rows: Int[np.ndarray, " S"]
    hopeless: bool = False  # dropped from the race for being told worse, not for want of room
    log_p: Float[np.ndarray, " S"] | None = (
        None  # mean log-probability of the text's token; None or nan where it does not compare
    )

    @property
    def value(self) -> float:
        total = self.rows.sum()
        return float(self.right.sum() / total) if total else float("nan")

    def interval(self) -> tuple[float, float]:
        """95 %, by bootstrap over samples."""
        return ratio_interval(self.right.astype(float), self.rows.astype(float))

    def beside(self, other: "Score") -> tuple[np.ndarray, np.ndarray]:
        """Each sample's own value here and there, [S] each: mean log-probability where both have it, else right share."""
        if all(one.log_p is not None and np.isfinite(one.log_p).all() for one in (self, other)):
            return self.log_p, other.log_p
        return self.right / self.rows.clip(min=1), other.right / other.rows.clip(min=1)


Shares = dict[str, np.ndarray]  # name -> each sample's share of right guesses so far


def race(
    names: Sequence[str],
    samples: int,
    run: Callable[[int, Sequence[str]], dict[str, tuple[int, int, float]]],
    hopeless: Callable[[str, Shares], bool],
    keep: Sequence[str] = (),
) -> dict[str, Score]:
    """Score of each name. `run(i, names)` gives right, rows and mean log-probability of sample i under each name.

    After 2, 8 and 16 samples those that are `hopeless` are not run further, and of the others the 32 best.
    """
    counts: dict[str, list[tuple[int, int, float]]] = {name: [] for name in names}
    alive, dropped = list(names), set()
    for i in range(samples):
        if i in (GLANCE, SCREEN, AGAIN) and samples > SCREEN:
            shares = {name: np.array([right / max(rows, 1) for right, rows, _ in counts[name]]) for name in alive}
            dropped |= {name for name in alive if hopeless(name, shares)}
            alive = [name for name in alive if name not in dropped]
            if i == SCREEN:
                alive = sorted(alive, key=lambda name: (name not in keep, -shares[name].mean()))[:MOST]
        for name, count in run(i, alive).items():
            counts[name].append(count)
    return {name: score_of(found, name in dropped) for name, found in counts.items()}


def score_of(found: Sequence[tuple[int, int, float]], hopeless: bool = False) -> Score:
    """From right, rows and mean log-probability of each sample."""
    right, rows, log_p = (np.array(column) for column in zip(*found, strict=True))
    return Score(right.astype(np.int64), rows.astype(np.int64), hopeless, log_p.astype(float))


def below(apart: np.ndarray, margin: float = 0.0) -> bool:
    """Whether the mean of paired differences lies 5 of its standard errors below `margin`; never from two samples."""
    return len(apart) > GLANCE and bool(apart.mean() + HOPELESS * apart.std(ddof=1) / math.sqrt(len(apart)) < margin)


def far_behind(share: np.ndarray, leader: np.ndarray, margin: float) -> bool:
    """At the first glance only: below 0.4 of a leader that does well enough for that to mean something."""
    return len(share) == GLANCE and bool(share.mean() < FAR * leader.mean() and leader.mean() > 5 * margin)


def p_value(a: Score, b: Score | None, tried: int) -> float:
    """Wilcoxon's signed-rank test over samples, times `tried` (Bonferroni), at most 1. nan against itself or nothing.

    By ranks, so that few samples cannot accuse: the smallest p of S samples is 2 / 2^S. Where right guesses and
    log-probability point opposite ways, p is 1. One that was dropped from the race has p 0 against those that were not: it was
    told from them by another rule; one that was left out for want of room has p 1.
    """
    if b is None or a is b:
        return float("nan")
    if len(a.rows) != len(b.rows):
        return 0.0 if a.hopeless or b.hopeless else 1.0
    mine, theirs = a.beside(b)
    if (mine.mean() - theirs.mean()) * (a.value - b.value) < 0:
        return 1.0
    from scipy.stats import wilcoxon  # most of a second, and an audit needs none of it

    return 1.0 if np.array_equal(mine, theirs) else min(1.0, float(wilcoxon(mine, theirs, method="exact").pvalue) * tried)


def rank(scores: dict[str, Score], configured: str) -> pd.DataFrame:
    """Best first. `p configured` and `p best`: corrected p-values of the difference to the configured choice and to the best;
    nan for itself, and where the configured one was not run. `samples`: fewer for those dropped from the race.
    """
    ranked = sorted(scores, key=lambda name: (-len(scores[name].rows), -scores[name].value))
    rows = []
    for name in ranked:
        low, high = scores[name].interval() if len(scores[name].rows) > GLANCE else (float("nan"),) * 2
        against = {"p configured": scores.get(configured), "p best": scores[ranked[0]]}
        p = {column: p_value(scores[name], other, len(scores)) for column, other in against.items()}
        rows.append({"hypothesis": name, "accuracy": scores[name].value, "low": low, "high": high, **p,
                     "samples": len(scores[name].rows)})  # fmt: skip
    return pd.DataFrame(rows).set_index("hypothesis")


def fewest(tried: int) -> int:
    """The fewest samples with which `tried` choices can be told apart at all: 13 for 24 of them, 20 for 2,730."""
    return fewest_for(ALPHA / tried)


def prompts_needed(a: Score | None, b: Score | None, tried: int) -> int | None:
    """How many prompts like these would tell two choices apart, four times of five, at ALPHA corrected for `tried`.

    From the mean and the spread of the differences by sample (normal approximation), and no fewer than the test by ranks can
    ever accuse with (2 / 2^S). None from fewer than 6 samples, where the two do not differ, or above 10,000.
    """
    if a is None or b is None or not FEW <= len(a.rows) == len(b.rows):
        return None
    mine, theirs = a.beside(b)
    apart = mine - theirs
    if apart.mean() * (a.value - b.value) <= 0:
        return None
    needed = samples_needed(float(apart.mean()), float(apart.std(ddof=1)), ALPHA / tried)
    return math.ceil(needed) if needed <= MANY else None
