"""Accuracy at each draft step: marginal, joint and conditional, with intervals over samples.

At step k the guess of row t is x_{t+2+k}. *Marginal*: right at step k, true tokens fed, whatever happened before. *Joint*:
right at all steps up to k (vLLM's per-position acceptance, over all rows). *Conditional*: right at k given right before.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..read.capture import Capture
from ..read.errors import InputError
from ..run.chain import Hits, chain_hits
from ..run.drafter import Drafter
from .intervals import ratio_interval


@dataclass(frozen=True)
class Accuracy:
    """Counts for each sample and step, [S, K] integers."""

    samples: tuple[str, ...]
    rows: np.ndarray  # rows scored
    right: np.ndarray  # right at the step
    joint: np.ndarray  # right at this step and all before
    before: np.ndarray  # right at all steps before, among the rows scored at this one

    def marginal(self, step: int) -> float:
        """Pooled marginal accuracy at `step` (from 1); nan where no text is long enough."""
        rows = self.rows[:, step - 1].sum()
        return float(self.right[:, step - 1].sum() / rows) if rows else float("nan")

    def interval(self, step: int) -> tuple[float, float]:
        """95 % interval of the marginal accuracy at `step` (from 1), by bootstrap over samples."""
        return ratio_interval(self.right[:, step - 1].astype(float), self.rows[:, step - 1].astype(float))

    def table(self) -> pd.DataFrame:
        """A row for each step (from 1): rows scored, and the three accuracies with their intervals."""
        rows = []
        for k in range(self.rows.shape[1]):
            row = {"step": k + 1, "rows": int(self.rows[:, k].sum())}
            for name, above, below in (
                ("marginal", self.right, self.rows), ("joint", self.joint, self.rows), ("conditional", self.joint, self.before)
            ):  # fmt: skip
                low, high = ratio_interval(above[:, k].astype(float), below[:, k].astype(float))
                share = above[:, k].sum() / below[:, k].sum() if below[:, k].sum() else float("nan")
                row |= {name: share, f"{name} low": low, f"{name} high": high}
            rows.append(row)
        return pd.DataFrame(rows).set_index("step")


def count(hits: Hits) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One sample's rows, right, joint, before: [K] each. Needs hits that go on after a miss."""
    assert hits.complete
    hit, scored = hits.hit.numpy(), hits.scored.numpy()
    together = np.logical_and.accumulate(hit & scored, axis=0)
    earlier = np.concatenate([np.ones_like(together[:1]), together[:-1]])
    return scored.sum(1), (hit & scored).sum(1), together.sum(1), (earlier & scored).sum(1)


def gather(found: Iterable[Hits]) -> Accuracy:
    """Accuracy from each sample's hits. Raises InputError when no sample has a row to score."""
    names, counts = [], []
    for hits in found:
        names.append(hits.name)
        counts.append(count(hits))
    if not counts or not sum(c[0][0] for c in counts):
        raise InputError("captures: no row to score: no two tokens in a row are marked as the target's own (loss_mask)")
    return Accuracy(tuple(names), *(np.stack(part) for part in zip(*counts, strict=True)))


def accuracy(drafter: Drafter, captures: Iterable[Capture], steps: int = 8) -> Accuracy:
    """Accuracy at steps 1..`steps` over all captures. A token outside the draft vocabulary counts as a miss.

    Raises InputError when no sample has a row to score.
    """
    return gather(chain_hits(drafter, capture, steps) for capture in tqdm(captures, desc="accuracy", unit="sample", leave=False))
