"""The serving side: are the server's counts those of the drafter, or of one run in another way?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import wilcoxon
from tqdm import tqdm

from ..measure.acceptance import Acceptance, count, pooled
from ..read.capture import Capture
from ..read.served import Served
from ..run.chain import chain_hits
from ..run.drafter import Drafter
from .hypotheses import Hypothesis

TIES = 0.002  # rounds of ways that cannot be told apart
DIFFERS = 0.01  # rounds, as a share, by which a server's counts are not the predicted ones: ties are a few in a thousand
CLOSE = 0.02  # rounds predicted and counted may differ by so much where one way to run it is taken for the server's
ALPHA = 0.01
FAR = 0.5  # of the distance of the next kind
GLANCE, SCREEN, ALL = 2, 8, 24  # samples on which ways to run the drafter are sorted out, and compared at last


@dataclass(frozen=True)
class Match:
    """The server's counts beside the predicted ones."""

    same_text: bool  # whether both are of the same tokens
    how: str  # how that is known
    differs: bool  # from the drafter as configured
    predicted: float  # accept length, as configured
    table: pd.DataFrame  # way to run: kind, accept length, apart (share of rounds); nearest first
    fits: tuple[Hypothesis, ...]  # ways whose counts are the server's


def match(
    run: Served, steps: int, expected: Acceptance, drafter: Drafter, captures: Sequence[Capture], ways: Sequence[Hypothesis]
) -> Match:
    """Whose counts does the server print: the drafter's as configured, or those of one run in another way?

    Same text: requests of the captures' names and sizes, or as many tokens in all (rounds + accepted). Only then are other
    ways tried, those far off on the first samples dropped. One fits whose rounds are the server's within 2 %; of those that fit,
    the ones stay whose counts of accepted drafts (by request, else by position, else in all) are as near as the nearest's.
    """
    mine = expected.requests(steps)
    same, how = _same_text(run, mine)
    if not same:
        return Match(False, how, False, expected.tau(steps), pd.DataFrame(), ())
    names = [name for name in mine.index if run.requests is None or name in run.requests]
    configured = np.array([expected.walks[steps][name] for name in names])  # [requests, K + 1] rounds by accepted drafts
    theirs = None if run.requests is None else np.array([run.requests[name] for name in names])  # likewise
    differs = _apart(configured, configured, theirs, run) > DIFFERS
    if differs and theirs is not None and len(names) > SCREEN:
        differs = bool(wilcoxon(configured.sum(1), theirs.sum(1)).pvalue < ALPHA)
    rows, tried, fits = {}, [], []
    if differs:
        by_name = {capture.name: capture for capture in captures}
        some = [by_name[name] for name in names]
        for way in tqdm(ways, desc="the server's counts: ways to run the drafter", unit="way", leave=False):
            counts, apart = _tried(way, drafter, some, configured, theirs, run)
            unlike = _unlike(counts, theirs, run)
            rows[way.name] = {"kind": way.kind, "accept length": pooled(counts), "apart": unlike}
            tried.append((unlike, way))
            if apart <= CLOSE:
                fits.append((unlike, way))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["kind", "accept length", "apart"]).sort_values("apart")
    nearest = min((unlike for unlike, _ in fits), default=0.0)  # often 0: then what is merely near is not it
    fits = sorted(fits, key=lambda one: int(one[0] / TIES))  # among ties the frequent first, as they were tried
    limit = 2 * nearest + TIES if nearest else 0.0  # the very same counts, request by request, are no coincidence
    fits = tuple(way for unlike, way in fits if unlike <= limit)
    return Match(True, how, differs, expected.tau(steps), table, fits or _nearest_by_far(tried))


def _nearest_by_far(tried: list[tuple[float, Hypothesis]]) -> tuple[Hypothesis, ...]:
    """The one way that is much nearer to the server's counts than any of another kind, where none is theirs: engines do what a
    hypothesis says in their own manner.
    """
    tried = sorted(tried, key=lambda one: one[0])
    if not tried or tried[0][0] > 5 * CLOSE:
        return ()
    nearest, way = tried[0]
    second = next((unlike for unlike, other in tried if other.kind != way.kind), float("inf"))
    return (way,) if nearest < FAR * second else ()


def _tried(
    way: Hypothesis,
    drafter: Drafter,
    some: Sequence[Capture],
    configured: np.ndarray,
    theirs: np.ndarray | None,
    run: Served,
) -> tuple[np.ndarray, float]:
    """Rounds by accepted drafts of each sample, [n, K + 1], of the drafter run in another way, and how far they are apart from
    the server's. Few samples for a way that is far off; a server that tells its totals only is held against all of them.
    """
    counts, steps = [], configured.shape[1] - 1
    for number in (GLANCE, SCREEN, min(ALL, len(some))) if theirs is not None else (min(SCREEN, len(some)), len(some)):
        for capture in some[len(counts) : number]:
            walk = count(chain_hits(*way.apply(drafter, capture), steps, complete=False), steps)
            counts.append(walk.walks[steps][capture.name])
        apart = _apart(np.array(counts), configured, theirs, run)
        if apart > 5 * CLOSE:
            break
    return np.array(counts), apart


def _same_text(run: Served, mine: pd.DataFrame) -> tuple[bool, str]:
    tokens = int((mine.rounds + mine.accepted).sum())
    if run.requests is not None:
        common = [name for name in mine.index if name in run.requests]
        sizes = [int(run.requests[n].sum() + run.requests[n] @ np.arange(len(run.requests[n]))) for n in common]
        apart = [abs(size - mine.rounds[n] - mine.accepted[n]) for size, n in zip(sizes, common, strict=True)]
        good = len(common) >= 2 and bool(max(apart) <= run.steps)
        if not common:
            return False, "none of its requests is recorded under its name"
        return good, f"{len(common)} of its requests are recorded, {'of' if good else 'but of other than'} the same length"
    if run.rounds is None:
        return False, "it tells a mean, no rounds and accepted drafts, so nothing says that its text is the recorded one"
    total = run.rounds + run.accepted
    good = bool(abs(total - tokens) <= max(run.steps or 1, 1) * len(mine))
    return good, f"it wrote {total} tokens in its rounds, the recorded text has {tokens}"


def _apart(counts: np.ndarray, configured: np.ndarray, theirs: np.ndarray | None, run: Served) -> float:
    """How far a way is from the server, as a share: rounds, summed over requests where these are known; else accept length, on
    all samples as the first ones promise, beside the drafter as configured.
    """
    n = len(counts)
    if theirs is None:
        return abs(pooled(counts) / pooled(configured[:n]) * pooled(configured) / run.accept_length - 1)
    return float(np.abs(counts.sum(1) - theirs[:n].sum(1)).sum() / theirs[:n].sum())


def _unlike(counts: np.ndarray, theirs: np.ndarray | None, run: Served) -> float:
    """Rounds that differ in how many drafts were accepted, as a share: by request, else by position, else accept length."""
    if theirs is not None:
        return float(np.abs(counts - theirs[: len(counts)]).sum() / 2 / theirs[: len(counts)].sum())
    if run.positions is None:
        return abs(pooled(counts) / run.accept_length - 1)
    at = counts.sum(0)[::-1].cumsum()[::-1]  # [K + 1] all rounds, and those whose draft 1, 2, ... K was accepted
    return float(np.abs(at[1:] / at[0] - np.array(run.positions) / run.rounds).sum())
