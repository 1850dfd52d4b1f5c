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
SGLANG = re.compile(rf"#running-req: {NUMBER}.*?accept len: {NUMBER}")


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


def read_served(path: str | Path) -> list[Served]:
    """The runs in file `path`: a log of vLLM or SGLang, or a JSON of this project. Raises InputError when it holds none."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected a log of vLLM or SGLang, or a JSON of live runs")
    if file.suffix == ".json":
        return [_own(run, file.name) for run in read_json(file).get("runs", [])] or _nothing(file)
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    found = [run for run in (_vllm(lines, file.name), _sglang(lines, file.name)) if run]
    return found or _nothing(file)


def _nothing(file: Path) -> list[Served]:
    raise InputError(
        f"{file}: no acceptance figures; expected vLLM's `{VLLM}` lines, SGLang's `Decode batch` lines with `accept len`, or a "
        "JSON with `runs`: was speculative decoding on, and were statistics logged?"
    )


def _own(run: object, source: str) -> Served:
    try:
        requests = {name: np.array(counts, dtype=int) for name, counts in run["requests"].items()}
        total, steps = sum(requests.values()), int(run["steps"])
        accepted = int(total @ np.arange(steps + 1))
        tau = 1 + accepted / total.sum()
        streams = tuple(run["streams"]) if run.get("streams") else None
        return Served(run["name"], steps, int(total.sum()), accepted, tau, requests, source, run.get("drafter"), streams)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{source}: a run is not as expected (name, steps, requests: sample -> counts): {error}") from None


def _vllm(lines: list[str], source: str) -> Served | None:
    """Interval lines summed. vLLM drafts K tokens in every round, so an interval has drafted / K of them."""
    told = [line for line in lines if VLLM in line]
    positions = [m.group(1) for line in told if (m := VLLM_POSITIONS.search(line))]
    steps = len([p for p in positions[-1].split(",") if p.strip()]) if positions else None
    rounds = accepted = 0
    for line in told:
        kept, drafted = ACCEPTED.search(line), DRAFTED.search(line)
        if kept and drafted and steps:
            accepted += float(kept.group(1))
            rounds += float(drafted.group(1)) / steps
    if not rounds:
        return None
    return Served("vLLM log", steps, round(rounds), int(accepted), 1 + accepted / rounds, None, source)


def _sglang(lines: list[str], source: str) -> Served | None:
    told = [(float(m.group(1)), float(m.group(2))) for line in lines if (m := SGLANG.search(line))]
    weight = sum(running for running, _ in told)
    if not weight:
        return None
    return Served("SGLang log", None, None, None, sum(w * length for w, length in told) / weight, None, source)
