"""What an accept length is worth: round times, break-even, and what a perfect drafter could reach, from measured settings.

A round yields tau tokens and takes t seconds, so tokens a second = tau / t. One token without drafter takes t_0. Drafting pays
when tau > t / t_0, its *break-even*; a drafter that is always right yields K + 1 tokens a round, its *ceiling* (K + 1) / t.
How t grows with K and with the number of requests at once is fitted from measured settings (`round_time`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..read.errors import InputError
from .acceptance import Acceptance


@dataclass(frozen=True)
class Setting:
    """One measured setting of a server: draft steps, tokens a second, accept length."""

    steps: int
    tokens_per_second: float
    accept_length: float
    name: str = ""
    batch: int = 1  # requests at once; tokens a second are those of all of them

    def __post_init__(self):
        if not (self.tokens_per_second > 0 and 1 <= self.accept_length <= self.steps + 1):
            raise InputError(
                f"setting {self.name or self.steps}: {self.tokens_per_second} tokens a second at accept length "
                f"{self.accept_length} with K = {self.steps}: expected more than 0, and an accept length from 1 to K + 1"
            )

    @property
    def round_time(self) -> float:
        """Seconds a round."""
        return self.accept_length * self.batch / self.tokens_per_second


def paid(settings: Sequence[Setting], baseline: float) -> pd.DataFrame:
    """A row for each setting, beside `baseline` tokens a second without drafter: what a round took, and what could be had.

    Columns: K, tokens a second, accept length, ms a round, break-even accept length, the highest possible accept length K + 1,
    and the ceiling of a perfect drafter in tokens a second.
    """
    rows = [
        {"setting": s.name or f"K = {s.steps}", "K": s.steps, "tokens a second": s.tokens_per_second,
         "accept length": s.accept_length, "ms a round": 1000 * s.round_time,
         "break-even accept length": s.round_time * baseline / s.batch, "highest possible": s.steps + 1,
         "ceiling, tokens a second": s.batch * (s.steps + 1) / s.round_time}
        for s in settings
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("setting")


# What a round's time is made of, each a number of seconds times what stands here of K draft steps and B requests at once.
TERMS = {
    "first": lambda K, B: 1.0,  # reading the target's weights once, and what happens once a round
    "step": lambda K, B: K,  # each draft step
    "token": lambda K, B: B * (K + 1),  # each token that the target reads
    "step_request": lambda K, B: B * K,  # each request's part of a draft step
}


@dataclass(frozen=True)
class RoundTime:
    """t = `first` + `step` * K + `token` * B * (K + 1) + `step_request` * B * K seconds; a term that was not fitted is 0."""

    first: float
    step: float = 0.0
    token: float = 0.0
    step_request: float = 0.0
    settings: int = 0  # different ones that carried it
    off: float = 0.0  # largest share by which a measured round differs from it; 0 where there are as many terms as settings

    def at(self, steps: int, batch: int = 1) -> float:
        """Seconds a round with K = `steps`, `batch` requests at once."""
        return float(sum(getattr(self, name) * of(steps, batch) for name, of in TERMS.items()))

    @property
    def terms(self) -> list[str]:
        """Those that the settings could carry."""
        return [name for name in TERMS if getattr(self, name)]


def round_time(settings: Sequence[Setting]) -> RoundTime:
    """The measured round times by as many terms as they can carry: least squares, exact where there are no more settings.

    A term is taken, in the order of `TERMS`, where it says something that those before do not: settings of one batch size carry
    two, K and what is common. A setting of K = 0, accept length 1, is the server without drafter. Raises InputError when all are
    of one K and batch: then nothing says what another costs.
    """
    different = sorted({(s.steps, s.batch) for s in settings})
    if len(different) < 2:
        raise InputError("settings: all have the same number of draft steps; what a further step costs needs two different ones")
    names: list[str] = []
    for name in TERMS:
        columns = np.array([[TERMS[n](K, B) for n in (*names, name)] for K, B in different], dtype=float)
        if np.linalg.matrix_rank(columns) == len(names) + 1:
            names.append(name)
    columns = np.array([[TERMS[name](s.steps, s.batch) for name in names] for s in settings], dtype=float)
    times = np.array([s.round_time for s in settings])
    found, *_ = np.linalg.lstsq(columns, times, rcond=None)
    off = float(np.abs(columns @ found / times - 1).max()) if len(settings) > len(names) else 0.0
    return RoundTime(**dict(zip(names, found.tolist(), strict=True)), settings=len(different), off=off)


def speeds(times: RoundTime, acceptance: Acceptance, baseline: float | None = None, batch: int = 1) -> pd.DataFrame:
    """What an accept length buys at every K that `acceptance` has: tokens a second, `batch` requests at once; a row for each K.

    Columns: accept length, its interval, ms a round, break-even accept length, tokens a second (all requests), its interval (of
    the accept length alone), over baseline, and a perfect drafter over baseline. `baseline`: tokens a second without drafter;
    by default what the fit says of K = 0.
    """
    baseline = batch / times.at(0, batch) if baseline is None else baseline
    rows = []
    for K, row in acceptance.table().iterrows():
        t = times.at(int(K), batch)
        tokens = {f"tokens a second{name}": batch * row[key] / t for name, key in
                  (("", "accept length"), (", low", "low"), (", high", "high"))}  # fmt: skip
        rows.append(
            {"K": K, "accept length": row["accept length"], "low": row.low, "high": row.high, "ms a round": 1000 * t,
             "break-even accept length": t * baseline / batch, **tokens,
             "over baseline": tokens["tokens a second"] / baseline, "over baseline, perfect": batch * (K + 1) / t / baseline}
        )  # fmt: skip
    return pd.DataFrame(rows).set_index("K")


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
