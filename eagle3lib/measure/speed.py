"""What an accept length is worth: round times, break-even, and what a perfect drafter could reach, from measured settings.

A round yields tau tokens and takes t seconds, so tokens a second = tau / t. One token without drafter takes t_0. Drafting pays
when tau > t / t_0, its *break-even*; a drafter that is always right yields K + 1 tokens a round, its *ceiling* (K + 1) / t.
Where t grows with K it is taken as a straight line, t = a + b K: verification and b for each further draft step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..read.errors import InputError


@dataclass(frozen=True)
class Setting:
    """One measured setting of a server: draft steps, tokens a second, accept length."""

    steps: int
    tokens_per_second: float
    accept_length: float
    name: str = ""

    def __post_init__(self):
        if not (self.tokens_per_second > 0 and 1 <= self.accept_length <= self.steps + 1):
            raise InputError(
                f"setting {self.name or self.steps}: {self.tokens_per_second} tokens a second at accept length "
                f"{self.accept_length} with K = {self.steps}: expected more than 0, and an accept length from 1 to K + 1"
            )

    @property
    def round_time(self) -> float:
        """Seconds a round."""
        return self.accept_length / self.tokens_per_second


def paid(settings: Sequence[Setting], baseline: float) -> pd.DataFrame:
    """A row for each setting, beside `baseline` tokens a second without drafter: what a round took, and what could be had.

    Columns: K, tokens a second, accept length, ms a round, break-even accept length, the highest possible accept length K + 1,
    and the ceiling of a perfect drafter in tokens a second.
    """
    rows = [
        {"setting": s.name or f"K = {s.steps}", "K": s.steps, "tokens a second": s.tokens_per_second,
         "accept length": s.accept_length, "ms a round": 1000 * s.round_time,
         "break-even accept length": s.round_time * baseline, "highest possible": s.steps + 1,
         "ceiling, tokens a second": (s.steps + 1) / s.round_time}
        for s in settings
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("setting")


@dataclass(frozen=True)
class RoundTime:
    """t(K) = `first` + `step` * K seconds, and how many settings carried it."""

    first: float
    step: float
    settings: int

    def at(self, steps: int) -> float:
        """Seconds a round with K = `steps`."""
        return self.first + self.step * steps


def round_time(settings: Sequence[Setting]) -> RoundTime:
    """The line through the measured round times: through two exactly, through more by least squares.

    Raises InputError when they are all of one K: then nothing says what another step costs.
    """
    steps = np.array([s.steps for s in settings], dtype=float)
    if len(set(steps.tolist())) < 2:
        raise InputError("settings: all have the same number of draft steps; what a further step costs needs two different ones")
    step, first = np.polyfit(steps, [s.round_time for s in settings], 1)
    return RoundTime(float(first), float(step), len(settings))


def flat(accuracy: float, steps: int) -> float:
    """Accept length at K = `steps` if every draft were right with chance `accuracy`, given those before: 1 + sum accuracy^k.

    What a training accuracy suggests, not what it promises: hits come in runs, and later steps are harder.
    """
    return float(sum(accuracy**k for k in range(steps + 1)))


def at_most(accuracy: float, steps: int) -> float:
    """The highest accept length that a step-1 accuracy allows: the first draft is right that often, and no later one more."""
    return 1 + accuracy * steps


def speed_table(times: RoundTime, baseline: float, accuracy: float, steps: Sequence[int]) -> pd.DataFrame:
    """For each K: round time on the line, break-even, and tokens a second of three drafters: flat `accuracy`, the most that
    it allows, and a perfect one; each also over the baseline.
    """
    rows = []
    for K in steps:
        t = times.at(K)
        row = {"K": K, "ms a round": 1000 * t, "break-even accept length": t * baseline}
        for name, tau in (("flat", flat(accuracy, K)), ("at most", at_most(accuracy, K)), ("perfect", K + 1.0)):
            row |= {f"accept length, {name}": tau, f"over baseline, {name}": tau / t / baseline}
        rows.append(row)
    return pd.DataFrame(rows).set_index("K")
