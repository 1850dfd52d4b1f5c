"""Accept length: counters first, every mean and interval from them.

tau = 1 + A / N for N rounds and A accepted drafts. A *walk* starts its rounds where an engine would, one walk for each K;
*all starts* begins a round at every row whose K tokens are all in the text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int
from torch import Tensor

from ..read.capture import Capture
from ..read.errors import InputError
from ..run.chain import Chain, Hits, hits
from ..run.drafter import Drafter
from ..run.tree import TreePlan, check_plan, hits_of_trees
from .intervals import ratio_interval

Counts = dict[str, np.ndarray]  # sample -> rounds by accepted drafts, [K + 1] integers
NOTHING = "captures: no row to draft from: no two tokens in a row are marked as the target's own (loss_mask)"


def pooled(counts: Int[np.ndarray, "S K1"]) -> float:
    """Accept length of rounds by accepted drafts, S samples together: 1 + accepted drafts / rounds. nan without a round."""
    total = counts.sum(0)  # [K + 1]
    return float(1 + total @ np.arange(len(total)) / total.sum()) if total.sum() else float("nan")


@dataclass(frozen=True)
class Acceptance:
    """For each K, each sample's histogram of accepted drafts a round. Adding two adds their counts."""

    walks: dict[int, Counts]
    starts: dict[int, Counts]

    @classmethod
    def of(cls, found: Iterable[Hits]) -> "Acceptance":
        """Counted from each sample's hits, for K = 1 to as many steps as were drafted.

        Raises InputError when no sample has a row to draft from.
        """
        total = None
        for one in found:
            total = count(one, len(one.hit)) if total is None else total + count(one, len(one.hit))
        if total is None or not total.counts(1).sum():
            raise InputError(NOTHING)
        return total

    @classmethod
    def of_counts(cls, samples: Sequence[str], walks: Int[np.ndarray, "S N"], starts: Int[np.ndarray, "S N"]) -> "Acceptance":
        """From rounds by accepted drafts of S samples for K = 1, 2, ... side by side: N = 2 + 3 + ... columns.

        Raises InputError when no sample has a row to draft from.
        """
        if not walks[:, :2].sum():
            raise InputError(NOTHING)
        ends = np.cumsum(np.arange(2, walks.shape[1] + 2))
        ends = ends[ends <= walks.shape[1]]
        parts = ({K: dict(zip(samples, part, strict=True)) for K, part in enumerate(np.split(kind, ends[:-1], axis=1), 1)}
                 for kind in (walks, starts))  # fmt: skip
        return cls(*parts)

    def __add__(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(_merge(self.walks, other.walks), _merge(self.starts, other.starts))

    def counts(self, steps: int, kind: str = "walk") -> np.ndarray:
        """[S, K + 1] rounds by accepted drafts, a row for each sample. Raises InputError for a K that was not run."""
        table = {"walk": self.walks, "starts": self.starts}[kind]
        if steps not in table:
            raise InputError(f"K = {steps} was not run; there are {', '.join(map(str, sorted(table)))}: ask for more steps")
        return np.stack(list(table[steps].values()))

    def tau(self, steps: int, kind: str = "walk") -> float:
        """Accept length, pooled over samples: 1 + accepted drafts / rounds."""
        return pooled(self.counts(steps, kind))

    def interval(self, steps: int, kind: str = "walk") -> tuple[float, float]:
        """Its 95 % interval, by bootstrap over samples."""
        counts = self.counts(steps, kind)
        return ratio_interval(counts @ np.arange(steps + 1.0), counts.sum(1).astype(float), plus=1.0)

    def per_position(self, steps: int, kind: str = "walk") -> np.ndarray:
        """Share of rounds in which draft 1, 2, ..., K was accepted (vLLM's per-position rate), [K]."""
        counts = self.counts(steps, kind).sum(0)
        return counts[::-1].cumsum()[::-1][1:] / counts.sum()

    def requests(self, steps: int) -> pd.DataFrame:
        """A row for each sample: its rounds, accepted drafts and accept length at K = `steps` (walk)."""
        counts = self.counts(steps)
        rounds, accepted = counts.sum(1), counts @ np.arange(steps + 1)
        lengths = 1 + accepted / np.where(rounds, rounds, np.nan)
        columns = {"rounds": rounds, "accepted": accepted, "accept length": lengths}
        return pd.DataFrame(columns, index=pd.Index(self.walks[steps], name="sample"))

    def mean_of_requests(self, steps: int) -> tuple[float, float, float]:
        """Mean of the samples' own accept lengths, each counting the same, and its 95 % interval over samples.

        What reports per request average to. It differs from `tau`, where a request counts by its rounds: those that go well
        have few (3.62 beside 3.27 in one report of the same hits).
        """
        lengths = self.requests(steps)["accept length"].dropna().to_numpy()
        return float(lengths.mean()), *ratio_interval(lengths, np.ones_like(lengths))

    def table(self, kind: str = "walk") -> pd.DataFrame:
        """A row for each K: rounds, accepted drafts, accept length and its interval, accepted at each position."""
        rows = []
        for steps in sorted(self.walks):
            counts = self.counts(steps, kind).sum(0)
            low, high = self.interval(steps, kind)
            rows.append(
                {"K": steps, "rounds": int(counts.sum()), "accepted": int(counts @ np.arange(steps + 1)),
                 "accept length": self.tau(steps, kind), "low": low, "high": high}
            )  # fmt: skip
        return pd.DataFrame(rows).set_index("K")


def _merge(a: dict[int, Counts], b: dict[int, Counts]) -> dict[int, Counts]:
    """Counts of both; a sample in both has its counts added."""
    if set(a) != set(b):
        raise InputError(f"K = {sorted(a)} and K = {sorted(b)}: only acceptances of the same draft steps can be added")
    return {k: {s: a[k].get(s, 0) + b[k].get(s, 0) for s in [*a[k], *(s for s in b[k] if s not in a[k])]} for k in a}


def walk(leading: np.ndarray, start: int, end: int, steps: int) -> list[int]:
    """Accepted drafts of each round of K = `steps`, as an engine would meet the text.

    `leading[t]` is how many drafts row t's chain gets right. The first round starts at row `start`; one that accepts a
    drafts is followed by one a + 1 rows on; rows from `end` on have nothing left to predict.
    """
    rounds, row = [], start
    while 0 <= row < end:
        rounds.append(min(int(leading[row]), steps))
        row += rounds[-1] + 1
    return rounds


def tokens_of_rounds(one: Hits, token_ids: Int[Tensor, " T"], steps: int) -> pd.DataFrame:
    """What became of each token of a sample in a walk of K = `steps`: a row for each token.

    Columns: token; what: "prompt", "accepted" (drafted, and the target's own), "target" (the target wrote it itself after the
    accepted drafts of a round) or "first" (an answer's first token, which reading the prompt gives); guess: the draft that was
    rejected there, or -1.
    """
    what, guess = ["prompt"] * len(token_ids), [-1] * len(token_ids)
    leading = one.leading().numpy()
    for first, end in spans(one.scored[0].numpy()):
        what[first + 1] = "first"
        row = first
        for accepted in walk(leading, first, end, steps):
            for place in range(row + 2, row + 2 + accepted):
                what[place] = "accepted"
            row += accepted + 1
            if row + 1 < len(what) and row <= end:
                what[row + 1] = "target"
                guess[row + 1] = int(one.guess[accepted, row - accepted - 1]) if accepted < steps else -1
    index = pd.RangeIndex(len(token_ids), name="position")
    return pd.DataFrame({"token": token_ids.numpy(), "what": what, "guess": guess}, index=index)


def count(hits: Hits, steps: int) -> Acceptance:
    """One sample's rounds, for K = 1..`steps`."""
    leading, scored = hits.leading().numpy(), hits.scored.numpy()
    walks, starts = {}, {}
    for K in range(1, steps + 1):
        rounds = [r for first, end in spans(scored[0]) for r in walk(leading, first, end, K)]
        walks[K] = {hits.name: np.bincount(np.array(rounds, dtype=int), minlength=K + 1)}
        full = np.minimum(leading[scored[K - 1]], K)
        starts[K] = {hits.name: np.bincount(full, minlength=K + 1)}
    return Acceptance(walks, starts)


def spans(scored: np.ndarray) -> list[tuple[int, int]]:
    """First and one-past-last row of each run of scored rows: an answer each. scored [T] bool."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], scored.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def acceptance(drafter: Drafter, captures: Iterable[Capture], plan: Chain | TreePlan) -> Acceptance:
    """Acceptance for K = 1..`plan.steps` of a chain, or of a tree, predicted from recorded states, without the target.

    On text that the target wrote greedily, over float32 captures, the walk is what real decoding accepts, round by round. A
    tree's only K is `plan.deepest`, the most drafts that a round of it can accept: a shallower tree is another tree, not the
    first levels of this one. Raises InputError when no sample has a row to draft from.
    """
    check_plan(plan, "sampled_acceptance")
    if isinstance(plan, Chain):
        return Acceptance.of(hits(drafter, captures, plan.steps, complete=False))
    K, found = plan.deepest, Acceptance.of(hits_of_trees(drafter, captures, plan))
    return Acceptance({K: found.walks[K]}, {K: found.starts[K]})


def by_position(found: Iterable[Hits], steps: int, width: int = 32) -> pd.DataFrame:
    """Accept length of all starts at K = `steps` by where in the sample the round starts: a row for each `width` positions.

    Position is that of the last token the target has written when the round starts, in the sample as recorded, prompt
    included. Interval over samples, nan from fewer than two. Shows fading with context, which a mean hides.
    """
    accepted: dict[int, dict[str, list[int]]] = {}
    for one in found:
        leading, scored = one.leading().numpy().clip(max=steps), one.scored.numpy()
        for t in np.flatnonzero(scored[steps - 1]):
            accepted.setdefault((t + 1) // width, {}).setdefault(one.name, []).append(int(leading[t]))
    rows = []
    for part, samples in sorted(accepted.items()):
        above = np.array([sum(drafts) for drafts in samples.values()], dtype=float)
        below = np.array([len(drafts) for drafts in samples.values()], dtype=float)
        low, high = ratio_interval(above, below, plus=1.0)
        rows.append(
            {"from": part * width, "to": (part + 1) * width - 1, "samples": len(samples), "starts": int(below.sum()),
             "accept length": 1 + above.sum() / below.sum(), "low": low, "high": high}
        )  # fmt: skip
    return pd.DataFrame(rows, columns=["from", "to", "samples", "starts", "accept length", "low", "high"])
