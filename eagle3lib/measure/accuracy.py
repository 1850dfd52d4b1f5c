"""Accuracy at each draft step: marginal, joint and conditional, with intervals over samples.

At step k the guess of row t is x_{t+2+k}. *Marginal*: right at step k, true tokens fed, whatever happened before. *Joint*:
right at all steps up to k (vLLM's per-position acceptance, over all rows). *Conditional*: right at k given right before.
A token outside the draft vocabulary cannot be guessed; it counts as a miss, unless a column says that it is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from ..read.capture import Capture
from ..read.errors import InputError
from ..run.chain import Hits, hits
from ..run.drafter import Drafter
from .intervals import ratio_interval

Counts = Int[np.ndarray, "S K"]


@dataclass(frozen=True)
class Accuracy:
    """Counts for each of S samples and K steps."""

    samples: tuple[str, ...]
    rows: Counts  # rows scored
    written: Counts  # rows whose token at this step is the target's own: those scored, and rows that begin in the prompt
    known: Counts  # of those scored, rows whose token is in the draft vocabulary
    right: Counts  # right at the step
    joint: Counts  # right at this step and all before
    before: Counts  # right at all steps before, among the rows scored at this one

    @classmethod
    def of(cls, found: Iterable[Hits]) -> "Accuracy":
        """Counted from each sample's hits. Raises InputError when no sample has a row to score."""
        names, counts = [], []
        for one in found:
            names.append(one.name)
            counts.append(count(one))
        if not counts or not sum(c[0][0] for c in counts):
            raise InputError("captures: no row to score: no two tokens in a row are marked as the target's own (loss_mask)")
        return cls(tuple(names), *(np.stack(part) for part in zip(*counts, strict=True)))

    def first(self, steps: int) -> "Accuracy":
        """The same over its first `steps` steps."""
        parts = (self.rows, self.written, self.known, self.right, self.joint, self.before)
        return Accuracy(self.samples, *(part[:, :steps] for part in parts))

    def marginal(self, step: int) -> float:
        """Pooled marginal accuracy at `step` (from 1); nan where no text is long enough."""
        return share(self.right[:, step - 1], self.rows[:, step - 1])[0]

    def interval(self, step: int) -> tuple[float, float]:
        """95 % interval of the marginal accuracy at `step` (from 1), by bootstrap over samples."""
        return share(self.right[:, step - 1], self.rows[:, step - 1])[1:]

    def table(self) -> pd.DataFrame:
        """A row for each step (from 1): rows scored, the three accuracies and, last, two numbers on the draft vocabulary:
        the share of tokens that are in it, and the marginal accuracy with the others left out. Each with its interval.
        """
        columns = {
            "marginal": (self.right, self.rows),
            "joint": (self.joint, self.rows),
            "conditional": (self.joint, self.before),
            "in draft vocabulary": (self.known, self.rows),
            "marginal, others left out": (self.right, self.known),
        }
        rows = []
        for k in range(self.rows.shape[1]):
            row = {"step": k + 1, "rows": int(self.rows[:, k].sum())}
            for name, (above, below) in columns.items():
                row[name], row[f"{name} low"], row[f"{name} high"] = share(above[:, k], below[:, k])
            rows.append(row)
        return pd.DataFrame(rows).set_index("step")


def share(above: Int[np.ndarray, " S"], below: Int[np.ndarray, " S"]) -> tuple[float, float, float]:
    """`sum(above) / sum(below)` and its 95 % interval over samples; nan for nothing below."""
    total = below.sum()
    return (float(above.sum() / total) if total else float("nan"), *ratio_interval(above.astype(float), below.astype(float)))


def count(one: Hits) -> tuple[np.ndarray, ...]:
    """One sample's rows, written, known, right, joint, before: [K] each. Needs hits that go on after a miss."""
    assert one.complete
    hit, scored, known = one.hit.numpy(), one.scored.numpy(), one.known.numpy()
    together = np.logical_and.accumulate(hit & scored, axis=0)
    earlier = np.concatenate([np.ones_like(together[:1]), together[:-1]])
    return tuple(part.sum(1) for part in (scored, one.written.numpy(), scored & known, hit & scored, together, earlier & scored))


def accuracy(drafter: Drafter, captures: Iterable[Capture], steps: int = 8) -> Accuracy:
    """Accuracy at steps 1..`steps` over all captures. Raises InputError when no sample has a row to score."""
    return Accuracy.of(hits(drafter, captures, steps))
