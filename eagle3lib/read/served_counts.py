"""`Served`, one run of a server, and how it is made of counts or of a mean, whoever said them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .served_keys import BY_COUNT, Saying


@dataclass(frozen=True)
class Served:
    """One run of a server, or of live decoding. `requests`: sample -> rounds by accepted drafts [K + 1], where it was kept.

    Rounds and accepted drafts are both known or neither. Where positions or requests are known, K is, and they are of K.
    """

    name: str
    steps: int | None  # K; None where it is not told. SGLang's answers tell what is verified: of a tree its nodes, not its depth
    rounds: int | None
    accepted: int | None
    accept_length: float
    requests: dict[str, np.ndarray] | None
    source: str
    drafter: str | None = None  # folder of the drafter, and the streams it was given: only result files tell them
    streams: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None  # rounds whose draft 1, 2, ... K was accepted; None where it is not told
    counts: str = BY_COUNT  # what the accept length counts, and what was left out
    tokens_per_second: float | None = None  # of the whole server, over all requests at once


def whole(value: object) -> int | None:
    """`value` as a count: a whole number from 0 on, below 2^53. None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) and found < 2**53 else None


def number(value: object) -> float | None:
    """`value` as a finite number from 0 on. None for anything else, among it True, NaN and text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def of_counts(
    said: Saying,
    source: str,
    rounds: int,
    accepted: int,
    drafted: int | None = None,
    at: Sequence[int] | None = None,
    steps: int | None = None,
    requests: dict[str, np.ndarray] | None = None,
    speed: float | None = None,
    note: str = "",
) -> Served | None:
    """A run of counts, `at`: rounds whose draft 1, 2, ... was accepted. None where they contradict each other, or no round was.

    K is `steps`, else the number of positions, else drafted / rounds where that is a whole number.
    """
    K = steps or (len(at) if at else None) or per_round(drafted, rounds)
    if not rounds or (K and accepted > K * rounds) or (drafted is not None and accepted > drafted):
        return None
    positions = tuple(at) if at and len(at) == K else None
    tau = 1 + accepted / rounds
    name = f"{said.engine} {said.where}"
    return Served(
        name, K, rounds, accepted, tau, requests if K else None, source, None, None, positions, said.counts + note, speed
    )


def of_mean(
    said: Saying, source: str, length: float, steps: int | None, speed: float | None = None, note: str = ""
) -> Served | None:
    """A run of which only the mean is told: it stays one. None where no round can have it."""
    if not length >= 1 or (steps and length > steps + 1):
        return None
    name = f"{said.engine} {said.where}"
    return Served(name, steps or None, None, None, length, None, source, counts=said.counts + note, tokens_per_second=speed)


def per_round(drafted: int | None, rounds: int) -> int | None:
    """Drafts of each round, where all had the same number."""
    return drafted // rounds if drafted and rounds and drafted % rounds == 0 else None
