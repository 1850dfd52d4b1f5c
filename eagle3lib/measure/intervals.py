"""Intervals of ratios, by resampling whole samples: tokens of one prompt are not independent of each other."""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

LEVEL = 0.95
RESAMPLES = 2000
HELD = 2**22  # numbers drawn at once: of a million samples all resamples would be 16 GB
POWER = 0.8  # chance to tell a true difference of the size seen, with as many prompts as are asked for; usual in planning


def ratio_interval(above: Float[np.ndarray, " S"], below: Float[np.ndarray, " S"], plus: float = 0.0) -> tuple[float, float]:
    """95 % interval of `plus + sum(above) / sum(below)` over S samples (percentile bootstrap over samples, seed 0).

    (nan, nan) for fewer than two samples that count: from one sample nothing can be said of the spread.
    """
    from scipy.stats import bootstrap  # most of a second, and not every command needs an interval

    kept = below > 0
    above, below = above[kept], below[kept]
    if len(below) < 2:
        return float("nan"), float("nan")

    def ratio(a, b, axis=-1):
        return plus + a.sum(axis=axis) / b.sum(axis=axis)

    if np.ptp(above / below) == 0:  # all samples alike: no spread to resample
        return (plus + above.sum() / below.sum(),) * 2
    found = bootstrap(
        (above, below), ratio, paired=True, vectorized=True, confidence_level=LEVEL, n_resamples=RESAMPLES,
        method="percentile", rng=np.random.default_rng(0), batch=max(1, HELD // len(below)),
    )  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def samples_needed(apart: float, spread: float, level: float) -> float:
    """How many samples would tell a mean difference `apart` with this spread from zero, POWER of the time, two-sided at `level`:
    normal approximation, and no fewer than the test by ranks can tell with.
    """
    z = -ndtri(level / 2) - ndtri(1 - POWER)
    return float(max((z * spread / apart) ** 2, fewest_for(level))) if apart else math.inf


def fewest_for(level: float) -> int:
    """The fewest samples with which Wilcoxon's signed-rank test can reach `level` at all: its smallest p is 2 / 2^S."""
    return math.ceil(math.log2(2 / level))


def told(value: float, low: float, high: float, digits: int = 2) -> str:
    """A number and its interval, as "1.46 [1.38, 1.54]"; without brackets where there is no interval, "-" for no number."""
    if value != value:
        return "-"
    interval = f" [{low:.{digits}f}, {high:.{digits}f}]" if low == low else ""
    return f"{value:.{digits}f}{interval}"
