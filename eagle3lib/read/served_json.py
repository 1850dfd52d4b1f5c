"""What serving said in JSON: answers with their own counters, iterations, results of a benchmark, the state of a server."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import mean

import numpy as np

from .served_counts import Served, number, of_counts, of_mean, per_round, whole
from .served_keys import BENCHMARK, LOG, METRICS, SAYINGS, STATES, TOTALS, Saying
from .tensors import at

IN_JSON = [row for row in SAYINGS if row.where not in (LOG, METRICS)]
WORDS = tuple({f'"{key}"' for row in IN_JSON for key in row.keys[row.needs[0]]})  # one of them is in every line that matters
NAMES = ("name", "rid", "id", "request_id")  # of a request, in its own object or one around it; the outermost counts
DRAFTS = 1024  # of a round: no engine verifies more
BEGINS = re.compile(r'\{\s*"|\[\s*\{')


def documents(lines: Iterable[str]) -> Iterator[object]:
    """The JSON in lines: one each, whatever stands before it (`data:` of a stream, a log's time). Others are passed over."""
    for line in lines:
        start = BEGINS.search(line) if any(word in line for word in WORDS) else None
        try:
            if start:
                yield json.JSONDecoder().raw_decode(line, start.start())[0]
        except (ValueError, RecursionError):
            continue


def of_json(found: Iterable[object], source: str) -> list[Served]:
    """The runs that JSON documents tell: all answers together, all iterations together, each benchmark, each server."""
    answers: dict[tuple[int, int | None], dict[str, tuple[int, int, int | None, np.ndarray | None]]] = {}
    sums: dict[int, list[int]] = {}
    runs, without, wrong = [], {}, 0
    for which, row, one, name in _sayings(found):
        said = {
            what: next((v for key in names if (v := at(one, key.split("."))) is not None), None)
            for what, names in row.keys.items()
        }
        if row.where == BENCHMARK:
            runs.append(_benchmark(row, said, source))
        elif row.where == STATES:
            runs.append(_states(row, said, one, source))
        elif row.where == TOTALS:
            counted = [whole(said[what]) for what in ("rounds", "accepted", "drafted")]
            if None not in counted:
                sums[which] = [a + b for a, b in zip(sums.get(which, [0, 0, 0]), counted, strict=True)]
        elif "tokens" in row.keys:
            without.setdefault(which, {})[name] = whole(said["rounds"]), whole(said["tokens"])
        elif (request := _request(said)) is None:
            wrong += bool(whole(said["rounds"]) != 0)
        else:
            answers.setdefault((which, request[-1]), {})[name] = request[:-1]
    runs += [of_counts(IN_JSON[which], source, *counted) for which, counted in sums.items()]
    note = f"; {wrong} answers left out, whose counters contradict each other" if wrong else ""
    runs += [_answers(IN_JSON[which], K, several, source, note) for (which, K), several in answers.items()]
    for which, several in without.items():
        kept = [(rounds, tokens - 1) for rounds, tokens in several.values() if rounds and tokens]
        rounds, tokens = (sum(values) for values in zip(*kept, strict=True)) if kept else (0, 0)
        runs.append(of_mean(IN_JSON[which], source, tokens / rounds, None) if rounds else None)
    return [run for run in runs if run]


def _sayings(found: Iterable[object]) -> Iterator[tuple[int, Saying, dict, str]]:
    """Every object that is a saying, with the row's number, the row, and the name of what it is of. One inside another is not."""
    number_of = 0
    for document in found:
        waiting = [(document, "")]  # no recursion: a file may nest as deep as it likes
        while waiting:
            one, name = waiting.pop()
            if isinstance(one, list):
                names = [f"{name}/{i}" if name and len(one) > 1 else name for i in range(len(one))]
                waiting += reversed(list(zip(one, names, strict=True)))
            elif isinstance(one, dict):
                own = name or next((str(one[key])[:200] for key in NAMES if isinstance(one.get(key), str | int)), "")
                which = next((i for i, row in enumerate(IN_JSON) if _is(row, one)), None)
                if which is None:
                    waiting += [(value, own) for value in reversed(list(one.values()))]
                else:
                    number_of += 1
                    yield which, IN_JSON[which], one, own or str(number_of)


def _is(row: Saying, one: Mapping[str, object]) -> bool:
    return all(any(one.get(key) is not None for key in row.keys[what]) for what in row.needs)


def _request(said: Mapping[str, object]) -> tuple[int, int, int | None, np.ndarray | None, int | None] | None:
    """Rounds, accepted, drafted, rounds by accepted drafts and K of one answer. None where they contradict each other."""
    rounds, accepted, drafted = (whole(said.get(what)) for what in ("rounds", "accepted", "drafted"))
    counts = said.get("histogram")
    if isinstance(counts, dict):  # AIPerf's: accepted drafts -> rounds, where there are some
        last = max((int(key) for key in counts if re.fullmatch("[0-9]{1,3}", key)), default=0)
        counts = [counts.get(str(i), 0) for i in range(last + 1)]
    K = whole(said.get("steps")) or (per_round(drafted, rounds) if rounds else None)
    if not rounds or accepted is None or (K or 0) > DRAFTS or (K and accepted > K * rounds):
        return None
    if not counts:
        return rounds, accepted, drafted, None, K
    if not isinstance(counts, list) or None in (found := [whole(count) for count in counts]):
        return None
    while found and not found[-1] and len(found) > (K or 0) + 1:
        found.pop()
    if sum(found) != rounds or sum(i * n for i, n in enumerate(found)) != accepted or (K and len(found) > K + 1):
        return None
    return rounds, accepted, drafted, np.array(found + [0] * ((K or 0) + 1 - len(found)), dtype=np.int64), K


def _answers(row: Saying, K: int | None, several: Mapping[str, tuple], source: str, note: str) -> Served | None:
    rounds, accepted = (sum(one[i] for one in several.values()) for i in (0, 1))
    drafted = [one[2] for one in several.values()]
    histograms = {name: one[3] for name, one in several.items()}
    whole_of = K is not None and all(found is not None for found in histograms.values())
    places = [int(n) for n in sum(histograms.values())[::-1].cumsum()[::-1][1:]] if whole_of else None
    proposed = None if None in drafted else sum(drafted)
    return of_counts(row, source, rounds, accepted, proposed, places, K, histograms if whole_of else None, note=note)


def _benchmark(row: Saying, said: Mapping[str, object], source: str) -> Served | None:
    speed, (rounds, accepted) = number(said["speed"]), (whole(said.get(what)) for what in ("rounds", "accepted"))
    if rounds and accepted is not None:
        rates = said["rates"] if isinstance(said["rates"], list) else []
        places = [round(rounds * rate) for rate in map(number, rates) if rate is not None and rate <= 1]
        places = places if len(places) == len(rates) else None
        return of_counts(row, source, rounds, accepted, whole(said["drafted"]), places, speed=speed)
    return of_mean(row, source, number(said["length"]) or 0.0, whole(said.get("steps")), speed)


def _states(row: Saying, said: Mapping[str, object], server: Mapping[str, object], source: str) -> Served | None:
    states = said["states"] if isinstance(said["states"], list) else []
    lengths = [v for one in states for key in row.keys["length"] if (v := number(at(one, [key]))) is not None and v >= 1]
    steps = said["steps"] if said["steps"] is not None else at(states[0] if states else None, row.keys["steps"])
    note = f", of {len(lengths)} ranks, each counting the same" if len(lengths) > 1 else ""
    return of_mean(row, source, mean(lengths), whole(steps), note=note) if lengths else None
