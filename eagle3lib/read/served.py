"""What serving said of its drafting: rounds and accepted drafts, from an engine's log or from a result file of this project.

By key, not by position. vLLM prints counts for each interval (`SpecDecoding metrics:` lines, summed here); SGLang prints the
mean of each interval (`accept len:` in `Decode batch` lines) and no counts, so its lines are averaged, weighted by the number
of running requests, and no rounds are given.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import InputError
from .tensors import read_json

# One value after each key, as the engines print them.
# Sources: vLLM `v1/spec_decode/metrics.py`, SGLang `scheduler_metrics_mixin.py`.
NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
VLLM = "SpecDecoding metrics:"
ACCEPTED, DRAFTED = (re.compile(rf"\b{word}: {NUMBER} tokens") for word in ("Accepted", "Drafted"))
VLLM_POSITIONS = re.compile(r"Per-position acceptance rate: ([0-9., ]+)")
SGLANG = re.compile(rf"#running-req: {NUMBER}.*?accept len: {NUMBER},")  # the comma: a line cut off in a number is none


@dataclass(frozen=True)
class Served:
    """One run of a server, or of live decoding. `requests`: sample -> rounds by accepted drafts [K + 1], where it was kept."""

    name: str
    steps: int | None  # K; None where the log does not tell
    rounds: int | None
    accepted: int | None
    accept_length: float
    requests: dict[str, np.ndarray] | None
    source: str
    drafter: str | None = None  # folder of the drafter, and the streams it was given: only result files tell them
    streams: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None  # rounds whose draft 1, 2, ... K was accepted; None where the log does not tell


def read_served(path: str | Path) -> list[Served]:
    """The runs in file `path`: a log of vLLM or SGLang, or a JSON of this project. Raises InputError when it holds none."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected a log of vLLM or SGLang, or a JSON of live runs")
    if file.suffix == ".json":
        runs = read_json(file).get("runs")
        return [_own(run, file.name) for run in runs] if isinstance(runs, list) and runs else _nothing(file)
    with file.open(encoding="utf-8", errors="replace") as text:
        lines = [line for line in text if VLLM in line or "accept len" in line]  # a log may be large: only these are kept
    return [*_vllm(lines, file.name), *_sglang(lines, file.name)] or _nothing(file)


def _nothing(file: Path) -> list[Served]:
    raise InputError(
        f"{file}: no acceptance figures; expected vLLM's `{VLLM}` lines, SGLang's `Decode batch` lines with `accept len`, or a "
        "JSON with `runs`: was speculative decoding on, and were statistics logged?"
    )


def _own(run: object, source: str) -> Served:
    try:
        steps = int(run["steps"])
        requests = {str(name): np.array(counts, dtype=np.int64) for name, counts in run["requests"].items()}
        total = sum(requests.values())
        if total.shape != (steps + 1,) or min(c.min() for c in requests.values()) < 0 or total.sum() == 0:
            raise ValueError(f"requests must hold {steps + 1} counts each, none below zero")
        positions = tuple(total[::-1].cumsum()[::-1][1:].tolist())  # at least so many were accepted
        rounds, accepted = int(total.sum()), sum(positions)
        streams = tuple(run["streams"]) if run.get("streams") else None
        tau = 1 + accepted / rounds
        return Served(run["name"], steps, rounds, accepted, tau, requests, source, run.get("drafter"), streams, positions)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{source}: a run is not as expected (name, steps, requests: sample -> counts): {error}") from None


def _vllm(lines: list[str], source: str) -> list[Served]:
    """Interval lines summed for each K. vLLM drafts K tokens in every round, so an interval has drafted / K of them."""
    found: dict[int, np.ndarray] = {}  # K -> rounds, accepted, and accepted at each position
    for line in lines:
        positions, kept, drafted = VLLM_POSITIONS.search(line), ACCEPTED.search(line), DRAFTED.search(line)
        if VLLM not in line or not (positions and kept and drafted) or "Avg Draft acceptance rate" not in line:
            continue  # of another kind, or cut off while it was being written
        rates = [float(rate) for rate in positions.group(1).split(",") if rate.strip()]
        rounds = float(drafted.group(1)) / len(rates)
        counts = np.array([rounds, float(kept.group(1)), *(rounds * rate for rate in rates)])
        found[len(rates)] = found.get(len(rates), 0) + counts
    return [
        Served(
            "vLLM log", steps, round(rounds), int(accepted), 1 + accepted / rounds, None, source, positions=tuple(map(round, at))
        )
        for steps, (rounds, accepted, *at) in sorted(found.items())
        if rounds
    ]


def _sglang(lines: list[str], source: str) -> list[Served]:
    told = [(float(m.group(1)), float(m.group(2))) for line in lines if (m := SGLANG.search(line))]
    told = [(running, length) for running, length in told if running > 0 and length >= 1]  # 0.00 is printed when nothing ran
    weight = sum(running for running, _ in told)
    if not weight:
        return []
    return [Served("SGLang log", None, None, None, sum(w * length for w, length in told) / weight, None, source)]
