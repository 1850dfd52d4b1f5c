"""Several drafters on the same samples: ranked by accept length, and how sure that order is.

A lower loss does not mean a longer accept length (deepseek-ai/DeepSpec#84: the loss fell to epoch 10, the accept length from
3.34 at epoch 4.6 to 3.18), and a few prompts do not settle a tenth of a token (sgl-project/sglang#34337: 16 could not). Prompts
differ far more than checkpoints do, so each is compared with itself. Intervals of differences: one bootstrap over samples,
the same samples drawn for all drafters (Koehn 2004, Statistical Significance Tests for Machine Translation Evaluation).
p-values: Wilcoxon's signed-rank test over samples (1945), Holm's correction (1979).
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import wilcoxon
from tqdm import tqdm

from ..read.captures import Captures
from ..read.checkpoint import Checkpoint, open_checkpoint
from ..read.errors import InputError
from ..run.chain import Chain
from ..run.drafter import Drafter
from .acceptance import Acceptance, acceptance
from .intervals import LEVEL, RESAMPLES, samples_needed

ALPHA = 1 - LEVEL  # that of the intervals beside it
FEWEST = 6  # with fewer samples the signed-rank test cannot reach ALPHA at all: its smallest p is 2 / 2^S
MOST = 10_000  # prompts needed beyond this: the difference is too near zero for its size to be known
EXACT = 50  # pairs up to which the test's p is exact, as scipy's own choice
WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")


def drafters(paths: Iterable[str | Path]) -> dict[str, Path]:
    """Name -> folder of each drafter that `paths` name; a folder without weights stands for the drafters' folders in it.

    Each folder once (a link to one beside it adds nothing). Names are the folders' own, with parents where two are alike.
    """
    folders: dict[Path, Path] = {}
    for path in paths:
        folder = Path(path).expanduser()
        alone = not folder.is_dir() or _holds(folder, *WEIGHTS)
        inside = [] if alone else [one for one in sorted(folder.iterdir()) if _holds(one, *WEIGHTS, "config.json")]
        for one in inside or [folder]:
            folders.setdefault(one.resolve(), one)
    parts, depth = [Path(os.path.abspath(one)).parts for one in folders.values()], 1
    while len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    names = ["/".join(part[-depth:]) for part in parts]
    return dict(zip(names, folders.values(), strict=True))


def _holds(folder: Path, *patterns: str) -> bool:
    return folder.is_dir() and any(next(folder.glob(pattern), None) for pattern in patterns)


def open_all(paths: Iterable[str | Path], target: str | Path | None = None) -> dict[str, Checkpoint | str]:
    """Name -> Checkpoint of each drafter that `paths` name; for one that does not open, the sentence that says why."""
    return {name: _or_reason(open_checkpoint, folder, target) for name, folder in drafters(paths).items()}


def accept_lengths(
    opened: Mapping[str, Checkpoint | str], captures: Captures, steps: int, device: str = "cpu", dtype: str = "float32"
) -> dict[str, Acceptance | str]:
    """Name -> Acceptance for K = 1..`steps` of each, on its own streams; where there is none, the sentence that says why."""
    plan = Chain(steps)

    def run(ckpt: Checkpoint) -> Acceptance:
        return acceptance(Drafter(ckpt, device=device, dtype=dtype), captures, plan)

    every = tqdm(opened.items(), desc="comparing", unit="drafter", leave=False)
    return {name: one if isinstance(one, str) else _or_reason(run, one) for name, one in every}


def _or_reason(act, *given):
    try:
        return act(*given)
    except InputError as error:
        return str(error)


@dataclass(frozen=True)
class Comparison:
    """Drafters on the S samples that all were run on, at one K. Tables hold a column for each drafter, the best first."""

    steps: int
    rounds: pd.DataFrame  # [S, drafters]
    accepted: pd.DataFrame  # [S, drafters] accepted drafts
    first: dict[str, float]  # step-1 accuracy
    absent: dict[str, str]  # those that could not be run, and why

    def p_values(self) -> dict[str, float]:
        """Of each drafter's difference to the best, corrected for all pairs: which is the best, the same samples chose.

        Of eight equal drafters on 24 samples one came out worse in 4 % of 300 simulations; in 11 % where only the seven
        comparisons with the best were counted.
        """
        lengths = self.accepted / self.rounds
        pairs = list(combinations(lengths.columns, 2))
        corrected = holm([signed_rank(lengths[a] - lengths[b]) for a, b in pairs])
        return {b: p for (a, b), p in zip(pairs, corrected, strict=True) if a == lengths.columns[0]}

    def prompts_needed(self, name: str) -> int | None:
        """How many prompts like these would tell it from the best four times of five, were the difference the one seen.

        Normal approximation from the spread over samples, at ALPHA corrected for all pairs (Bonferroni), and no fewer than
        the test can ever tell with. None for fewer than 6 samples; 10,001 stands for all beyond 10,000.
        """
        S, best = len(self.rounds), self.rounds.columns[0]
        if S < FEWEST:
            return None
        ratio = self.accepted.sum() / self.rounds.sum()
        shares = (self.accepted - ratio * self.rounds) / self.rounds.mean()  # each sample's part in the spread of the ratio
        apart, level = ratio[best] - ratio[name], ALPHA / math.comb(len(ratio), 2)
        spread = (shares[best] - shares[name]).std()
        needed = samples_needed(apart, spread, level) if spread else math.inf
        return math.ceil(needed) if needed <= MOST else MOST + 1

    def table(self) -> pd.DataFrame:
        """A row for each drafter, the best first, then those that could not be run.

        Columns: accept length, difference to the first (each with low, high); corrected p; prompts needed (more than there
        were, where these did not tell); step-1 accuracy; beside the first: "first", "worse" (p below 0.05 and the interval
        below zero), "not told apart", or why it could not be run. nan for what there is not.
        """
        picks = np.random.default_rng(0).integers(len(self.rounds), size=(RESAMPLES, len(self.rounds)))
        again = {n: 1 + self.accepted[n].to_numpy()[picks].sum(1) / self.rounds[n].to_numpy()[picks].sum(1) for n in self.rounds}
        tau, p = 1 + self.accepted.sum() / self.rounds.sum(), self.p_values()
        rows, best = [], self.rounds.columns[0]
        for name in self.rounds:
            low, high = _interval(again[name], len(picks[0]))
            row = {"checkpoint": name, "accept length": tau[name], "accept length low": low, "accept length high": high}
            told = "first"
            if name != best:
                low, high = _interval(again[name] - again[best], len(picks[0]))
                told = "worse" if p[name] < ALPHA and high < 0 else "not told apart"
                row |= {"difference": tau[name] - tau[best], "difference low": low, "difference high": high, "p": p[name]}
                needed = self.prompts_needed(name)
                row["prompts needed"] = max(needed, len(self.rounds) + 1) if needed and told != "worse" else needed
            rows.append({**row, "step-1 accuracy": self.first[name], "beside the first": told})
        rows += [{"checkpoint": name, "beside the first": why} for name, why in self.absent.items()]
        columns = ["checkpoint", "accept length", "accept length low", "accept length high", "difference", "difference low",
                   "difference high", "p", "prompts needed", "step-1 accuracy", "beside the first"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns).set_index("checkpoint")


def compare(found: Mapping[str, Acceptance | str], steps: int) -> Comparison:
    """Rank drafters by accept length (walk, pooled) at K = `steps`, over the samples that all have.

    `found`: name -> Acceptance, or why there is none. Raises InputError when there is none at all, K was not run, or no
    sample is common to all.
    """
    absent = {name: one for name, one in found.items() if isinstance(one, str)}
    run = {name: one for name, one in found.items() if not isinstance(one, str)}
    if not run:
        why = next(iter(absent.values()), "")
        raise InputError(f"compare: none of {len(found)} drafters can be run, the first because: {why}")
    tables = pd.concat({name: one.requests(steps) for name, one in run.items()}, axis=1, join="inner")
    rounds, accepted = (tables.xs(part, axis=1, level=1) for part in ("rounds", "accepted"))
    kept = (rounds > 0).all(axis=1)
    if not kept.any():
        raise InputError("compare: no sample with a round to draft is common to all drafters: run them on the same captures")
    rounds, accepted = rounds[kept], accepted[kept]
    ranked = (accepted.sum() / rounds.sum()).sort_values(ascending=False, kind="stable").index
    first = {}
    for name in ranked:  # all starts at K = 1: every scored row, right or wrong
        wrong, right = np.sum([run[name].starts[1][sample] for sample in rounds.index], axis=0)
        first[name] = float(right / (wrong + right))
    return Comparison(steps, rounds[ranked], accepted[ranked], first, absent)


def _interval(drawn: Float[np.ndarray, " R"], samples: int) -> tuple[float, float]:
    """95 % of the resampled values; nan where one sample says nothing of the spread."""
    if samples < 2:
        return math.nan, math.nan
    low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def signed_rank(apart: Float[np.ndarray, " S"] | pd.Series) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; samples without a difference say nothing and are left out."""
    apart = np.asarray(apart)[np.asarray(apart) != 0]
    if len(apart) == 0:
        return 1.0
    return float(wilcoxon(apart, method="exact" if len(apart) <= EXACT else "asymptotic").pvalue)


def holm(p: list[float]) -> list[float]:
    """p-values corrected for their number by Holm's step-down procedure, in the order given."""
    order = np.argsort(p)
    corrected = np.minimum(1.0, np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)))
    return corrected[np.argsort(order)].tolist() if len(p) else []
