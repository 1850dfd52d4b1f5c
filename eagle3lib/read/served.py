"""What serving said of its drafting: logs, pages for Prometheus, answers, benchmark results, or the server itself, asked.

Which keys are known is the table of `served_keys.py`. Counts are summed, means stay means: SGLang's log prints the mean of each
interval, so its lines are averaged and no rounds are given. What an accept length counts is told with it.
"""

import http.client
import io
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np

from . import served_json, served_text
from .errors import InputError
from .served_counts import Served, number
from .served_keys import SAYINGS
from .tensors import read_json

__all__ = ["Served", "read_served"]

ADDRESS = re.compile(r"(https?):/+(\S+)")  # also as Path leaves it, with one slash
PAGES = ("/metrics", "/prometheus/metrics", "/server_info", "/get_server_info")  # vLLM, SGLang; TensorRT-LLM; SGLang
TIMEOUT, MOST = 10, 2**26  # seconds for a page, bytes of it
TELLING = ("rounds", "drafted at", "length", "rates")  # of what a saying needs, what nothing else has
WHOLE = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\[{\]])")  # a text that begins so may be one JSON; a log's time is [2026-...
EXPECTED = (
    "vLLM's `SpecDecoding metrics:` lines, SGLang's `Decode batch` lines with `accept len`, counters of /metrics, answers or "
    "benchmark results with counters, or a JSON with `runs`"
)


def read_served(where: str | Path) -> list[Served]:
    """The runs told in a file, in a folder of answers, or by a running server at `http://host:port`; those with counts first.

    A file may be a log of vLLM or SGLang, TensorRT-LLM's iteration statistics, a page of /metrics, a JSON of /server_info,
    saved answers (JSON, JSON lines, streams), a result of `vllm bench serve` or SGLang's `bench_serving`, or of this project.
    In a folder each `.json` is one answer, of the sample that its name says. Raises InputError when it holds none.
    """
    if address := ADDRESS.fullmatch(str(where)):
        return _asked("://".join(address.groups()))
    file = Path(where).expanduser()
    if file.is_dir():
        answers = [{"name": path.stem, "answer": read_json(path)} for path in sorted(file.glob("*.json"))]
        return served_json.of_json(answers, file.name) or _nothing(str(file), any(map(mentions, map(json.dumps, answers))))
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected a log of vLLM or SGLang, or a JSON of live runs")
    with file.open(encoding="utf-8", errors="replace") as text:
        if found := _said(text, file.name):
            return found
        text.seek(0)
        return _nothing(str(file), any(map(mentions, text)))


def mentions(text: str) -> bool:
    """Whether a text names a figure on drafting at all."""
    return any(name in text for row in SAYINGS for key in row.needs for name in row.keys[key] if key in TELLING)


def _nothing(where: str, named: bool) -> list[Served]:
    if named:
        raise InputError(
            f"{where}: no acceptance figures: those of drafting that it names count no round, contradict each other or are cut "
            "off; expected rounds, and no more accepted drafts than were drafted: let the server draft, and take the text whole"
        )
    raise InputError(
        f"{where}: no acceptance figures; expected {EXPECTED}: was speculative decoding on, and were statistics logged?"
    )


def _said(text: io.TextIOBase, source: str) -> list[Served]:
    begins = text.read(4096)
    text.seek(0)
    if WHOLE.match(begins):
        try:
            found = json.load(text)
        except (ValueError, RecursionError):
            text.seek(0)  # several, one a line
        else:
            if isinstance(found, dict) and "runs" in found:
                return [_own(run, source) for run in found["runs"]] if isinstance(found["runs"], list) else []
            return _counts_first(served_json.of_json([found], source))
    words = (*served_text.WORDS, *served_json.WORDS)
    lines = [line for line in served_text.joined(text) if any(word in line for word in words)]  # a log may be large
    told = [*served_text.of_log(lines, source), *served_text.of_metrics(lines, source)]
    return _counts_first([*told, *served_json.of_json(served_json.documents(lines), source)])


def _counts_first(runs: list[Served]) -> list[Served]:
    return sorted(runs, key=lambda run: (run.rounds is None, run.steps is None))


def _asked(url: str) -> list[Served]:
    """A server's pages: the one that `url` names, or all that are known to tell something."""
    root = re.fullmatch(r"https?://[^/]+/?", url)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    told: list[Served] = []
    named = False
    for page in [url.rstrip("/") + path for path in PAGES] if root else [url]:
        try:
            with direct.open(page, timeout=TIMEOUT) as answer:
                body = _within(answer, TIMEOUT).decode(errors="replace")
        except urllib.error.HTTPError as error:
            if root:
                continue  # another engine's page
            raise InputError(f"{page}: the server refused with {error.code}; expected {EXPECTED}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # no connection, too slow, no address
            if told:
                continue
            why = getattr(error, "reason", error)
            raise InputError(f"{page}: no answer ({why}); expected a running server, as http://127.0.0.1:8000") from None
        told += _said(io.StringIO(body), urllib.parse.urlsplit(page).path)
        named = named or mentions(body)
    return _counts_first(told) or _nothing(url, named)


def _within(answer: http.client.HTTPResponse, seconds: int) -> bytes:
    """The page, up to MOST bytes; a server that sends it drop by drop is given up after so long."""
    parts, size, end = [], 0, time.monotonic() + seconds
    while size < MOST and (part := answer.read1(2**16)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > end:
            raise TimeoutError(f"the page was not whole after {seconds} s")
    return b"".join(parts)


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
        speed = number(run.get("tokens_per_second"))
        about = {"positions": positions, "tokens_per_second": speed}
        return Served(run["name"], steps, rounds, accepted, tau, requests, source, run.get("drafter"), streams, **about)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{source}: a run is not as expected (name, steps, requests: sample -> counts): {error}") from None
