"""What serving said in text: lines of a log, and pages for Prometheus."""

import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import mean, median

import numpy as np

from .served_counts import Served, number, of_counts, of_mean, whole
from .served_keys import LOG, METRICS, SAYINGS, Saying

IN_LOGS = {row.mark: row for row in SAYINGS if row.where == LOG}
WRAPPED = 3  # lines that may continue a line of a log, where a terminal or a collector broke it
PROCESS = re.compile(r"\s*(?:\([\w ]+pid=\d+\))?\s*")  # vLLM's, before each line of a record
PLAIN = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
VALUE, VALUES = f"({PLAIN})", rf"({PLAIN}(?:,\s+{PLAIN})*)"
# What follows a number. At the end of a line it must have all its decimals, SGLang's two or vLLM's three: it may be cut off.
AFTER = r"(?=\s*,|\s+tokens\b|%|(?<=\.[0-9][0-9])\s*$|(?<=\.[0-9][0-9][0-9])\s*$)"
SPEED = "Avg generation throughput:"  # vLLM, beside its line on drafting
MADE_UP = re.compile(r"rejection_sample_method\W{1,8}synthetic|SIMULATE_ACC_LEN\W{1,6}[1-9]")
MADE_UP_NOTE = "; made up: this server was told which accept length to show (synthetic acceptance)"
SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)")
POSITION = re.compile(r'position="([0-9]{1,3})"')
# SGLang prints its arguments when it starts, as server_args=ServerArgs(...): a chain's K stands in no line on drafting.
ARGUMENT = r"\bspeculative_{}\W{{1,4}}([0-9]{{1,3}})\b"
ROUNDED = 0.006  # a printed mean acceptance length, of two decimals
WORDS = (
    *IN_LOGS,
    SPEED,
    "speculative_num_steps",
    "synthetic",
    "SIMULATE_ACC_LEN",
    "vllm:spec_decode_",
    "trtllm_spec_decode_",
    "sglang:",
)


def joined(lines: Iterable[str]) -> Iterator[str]:
    """The lines; one that lacks what it needs is continued by the next few, up to the next of its kind."""
    held, left = "", 0
    for line in lines:
        row = _row(line)
        if left and row is None:
            held, left = f"{held.rstrip()} {line[PROCESS.match(line).end() :]}", left - 1
            if _values(_row(held), held):
                line, left = held, 0
        elif row:
            held, left = line, 0 if _values(row, line) else WRAPPED
        yield line


def of_log(lines: Iterable[str], source: str) -> list[Served]:
    """The runs that the lines of a log tell. A line that is cut off, or lacks what it needs, counts for nothing."""
    told: list[dict[str, list[float]]] = []  # vLLM's lines, which tell their K
    launches: dict[int | None, list[dict[str, list[float]]]] = {}  # SGLang's, by the K of the launch that they follow
    speeds, note, steps = [], "", None
    for line in lines:
        if found := re.search(ARGUMENT.format("num_steps"), line):
            topk = re.search(ARGUMENT.format("eagle_topk"), line)
            steps = int(found.group(1)) if topk and topk.group(1) == "1" else None  # of a tree the depth is not all
        if MADE_UP.search(line):
            note = MADE_UP_NOTE
        if found := re.search(f"{SPEED} {VALUE} tokens/s", line):
            speeds.append(float(found.group(1)))
        if (row := _row(line)) and (values := _values(row, line)):
            (launches.setdefault(steps, []) if row.engine == "SGLang" else told).append(values)
    rows = {row.engine: row for row in IN_LOGS.values()}
    return [
        *_vllm(rows["vLLM"], told, source, _usual(speeds), note),
        *(run for K, one in launches.items() for run in _sglang(rows["SGLang"], one, source, note, K)),
    ]


def _row(line: str) -> Saying | None:
    return next((row for mark, row in IN_LOGS.items() if mark in line), None)


def _values(row: Saying, line: str) -> dict[str, list[float]]:
    """What -> its numbers; {} where something needed is missing."""
    line, found = line[line.index(row.mark) :], {}
    for what, (name,) in row.keys.items():
        key = re.escape(name).replace(r"\ ", r"\s+")
        if match := re.search(rf"(?<![\w#]){key}:\s+{VALUES if what == 'rates' else VALUE}{AFTER}", line):
            found[what] = [float(value) for value in match.group(1).split(",")]
    return found if set(row.needs) <= set(found) else {}


def _usual(speeds: Iterable[float]) -> float | None:
    """The median: the intervals in which a server idled or started are few."""
    busy = [speed for speed in speeds if speed > 0]
    return median(busy) if busy else None


def _vllm(row: Saying, told: list[dict[str, list[float]]], source: str, speed: float | None, note: str) -> list[Served]:
    """Intervals summed for each K: vLLM drafts K tokens in every round, so one has drafted / K of them."""
    sums: dict[int, np.ndarray] = {}  # K -> rounds, accepted, drafted, and accepted at each position
    for one in told:
        (accepted,), (drafted,), rates = one["accepted"], one["drafted"], np.array(one["rates"])
        rounds = drafted / len(rates)
        if rates.max() > 1 or ("length" in one and abs(1 + accepted / max(rounds, 1) - one["length"][0]) > ROUNDED):
            continue  # cut off, or not of one K
        sums[len(rates)] = sums.get(len(rates), 0) + np.array([rounds, accepted, drafted, *(rounds * rates)])
    runs = []
    for K, (rounds, accepted, drafted, *at) in sorted(sums.items()):
        counted = round(rounds), int(accepted), int(drafted), [round(n) for n in at], K
        runs.append(of_counts(row, source, *counted, speed=speed, note=note))
    return [run for run in runs if run]


def _sglang(row: Saying, told: list[dict[str, list[float]]], source: str, note: str, steps: int | None) -> list[Served]:
    kept = [one for one in told if one["running"][0] > 0 and one["length"][0] >= 1]  # 0.00 is printed when nothing ran
    if not kept:
        return []
    lengths, weights = ([one[what][0] for one in kept] for what in ("length", "running"))
    speed = _usual(one["speed"][0] for one in kept if "speed" in one)
    run = of_mean(row, source, float(np.average(lengths, weights=weights)), steps, speed, note)
    return [run] if run else []


def of_metrics(lines: Iterable[str], source: str) -> list[Served]:
    """The runs that a page for Prometheus tells, counted since the server started, all its engines together.

    Where a file holds several pages the last one counts. Of an engine's sayings the first that is there is taken.
    """
    values: dict[str, dict[str, float]] = {}  # name -> labels -> value
    for line in lines:
        if match := SAMPLE.match(line):
            try:
                values.setdefault(match.group(1).removesuffix("_total"), {})[match.group(2) or ""] = float(match.group(3))
            except ValueError:
                continue
    runs: dict[str, Served] = {}
    for row in SAYINGS:
        there = {what: values[name] for what, (name,) in row.keys.items() if name in values} if row.where == METRICS else {}
        if row.engine not in runs and there and set(row.needs) <= set(there) and (run := _page(row, there, source)):
            runs[row.engine] = run
    return list(runs.values())


def _page(row: Saying, there: Mapping[str, Mapping[str, float]], source: str) -> Served | None:
    total = {what: whole(sum(one.values())) for what, one in there.items() if what not in ("length", "steps")}
    if None in total.values():
        return None
    steps = max((whole(value) or 0 for value in there.get("steps", {}).values()), default=0) or None
    at = _at(there["accepted at"]) if "accepted at" in there else {}
    if "drafted at" in there:
        drafted = _at(there["drafted at"])
        places = [at.get(place, 0) for place in range(len(drafted))]  # a position where nothing was accepted is not there
        rounds = drafted.get(0, 0)
        return of_counts(row, source, rounds, sum(places), sum(drafted.values()), places)
    if "accepted" in total:
        places = [at[place] for place in range(len(at))] if set(at) == set(range(len(at))) else None
        if places and (sum(places) != total["accepted"] or places != sorted(places, reverse=True)):
            return None  # no later draft is accepted more often than one before it
        return of_counts(row, source, total["rounds"], total["accepted"], total.get("drafted"), places)
    if "tokens" in total:
        above = total["tokens"] - total["requests"]
        return of_mean(row, source, above / total["rounds"], steps) if total["rounds"] else None
    lengths = [value for value in there["length"].values() if (number(value) or 0) >= 1]  # 0 is an engine that drafted nothing
    return of_mean(row, source, mean(lengths), steps) if lengths else None


def _at(series: Mapping[str, float]) -> dict[int, int]:
    """Position, from 0 -> count, summed over engines."""
    found: dict[int, int] = {}
    for labels, value in series.items():
        if (place := POSITION.search(labels)) and (count := whole(value)) is not None:
            found[int(place.group(1))] = found.get(int(place.group(1)), 0) + count
    return found
