"""An append-only file of Rows: scoring that was stopped anywhere, `kill -9` included, goes on with the same totals.

JSON lines. The first says what the Rows were made with; then a line for each sample, as soon as it is scored. A line that is
torn, or not of this K, is no Row, and its sample is scored again. Of two Rows of one sample the later counts.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from ..read.errors import InputError
from ..run.drafter import Drafter
from .score import Row, ends, tables, unscored

FORMAT = "eagle3lib ledger, version 1"
SOME = 4096  # embedding rows that stand for all: a table has several GB
HOPELESS = 100  # samples, none of which can be scored: the others would not be better
HASHED = {"drafter": "other tensors of the drafter or its target", "recipe": "another recipe"}  # what need not be shown


def made_with(drafter: Drafter, steps: int) -> dict:
    """What counts depend on beside the samples: tensors (sha256 of what runs, not of files), recipe, K, dtype."""
    table, digest = drafter.embedding, hashlib.sha256()
    some = table.files.rows(table.name, torch.linspace(0, table.shape[0] - 1, min(SOME, table.shape[0])).long())
    for name, tensor in {**drafter.weights, "head": drafter.head, "d2t": drafter.target_ids, "embedding": some}.items():
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    recipe = repr((drafter.recipe, drafter.wiring)).encode()
    return {
        "format": FORMAT, "drafter": digest.hexdigest(), "streams": list(drafter.recipe.streams or ()),
        "recipe": hashlib.sha256(recipe).hexdigest(), "steps": steps, "dtype": str(drafter.dtype),
    }  # fmt: skip


class Ledger:
    """The Rows in `file`, and those that are added; without a file, in memory only."""

    def __init__(self, file: str | Path | None, made: dict):
        """Opens or begins it. Raises InputError for what is no file, or no ledger, or cannot be written, and for a ledger of
        another drafter, recipe, K or dtype.
        """
        self.file, self.made, self.rows, self._out = file, made, {}, None
        if file is None:
            return
        if Path(file).exists() and not Path(file).is_file():
            raise InputError(f"{file}: cannot be a ledger (a device or a folder): name a file that may be written")
        header, last = json.dumps(made).encode() + b"\n", b"\n"
        try:
            self._out = Path(file).open("ab", buffering=0)  # a Row goes to the system at once, in one piece  # noqa: SIM115
            with Path(file).open("rb") as lines:
                first = lines.readline()
                if first != header and header.startswith(first):  # new, or torn in its first line
                    self._out.truncate(0)
                    self._out.write(header)
                else:
                    self._check(first)
                for last in lines:
                    self._take(last)
            if not last.endswith(b"\n"):
                self._out.write(b"\n")  # what is torn stays a line of its own
        except OSError as error:
            raise InputError(f"{file}: cannot be a ledger ({error.strerror}): name a file that may be written") from None

    def _check(self, first: bytes) -> None:
        try:
            told = dict(json.loads(first))
        except (ValueError, TypeError):
            told = {}
        if told.get("format") != FORMAT:
            raise InputError(f"{self.file}: is no ledger of this version ({FORMAT}): name another file, or a new one")
        other = [HASHED.get(key, f"{key} {told.get(key)}, not {now}") for key, now in self.made.items() if told.get(key) != now]
        if other:
            raise InputError(f"{self.file}: its rows were made with something else ({', '.join(other)}): name a new file")

    def _take(self, line: bytes) -> None:
        try:
            row = Row.of(line)
        except (ValueError, TypeError, LookupError, OverflowError):
            return  # torn
        if row.error or len(row.counts) == ends(self.made["steps"])[-1]:
            self.rows[row.key] = row

    def _add(self, row: Row) -> None:
        self.rows[row.key] = row
        try:
            if self._out:
                self._out.write(row.line().encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.file}: cannot be written ({error.strerror}): make room, and run again: it goes on") from None

    def score(self, workers, which: Sequence[int]) -> list[Row]:
        """The Rows of samples `which`, in this order. Those that are not here, that failed, or whose file has changed, are scored
        by `workers` (a Workers or a Cluster) and added. Raises InputError where the first hundred all fail.
        """
        asked = [unscored(workers.job.captures, i) for i in which]
        known = {row.key: row.stamp for row in self.rows.values() if not row.error}
        left = [i for i, row in zip(which, asked, strict=True) if known.get(row.key) != row.stamp]
        done = len(which) - len(left)
        failed = []
        for row in tqdm(workers.rows(left), "scoring", len(which), unit="sample", leave=False, initial=done):
            self._add(row)
            failed += [row] if row.error else []
            done += 1
            if len(failed) == done == HOPELESS:
                tables(failed, self.made["steps"])
        return [self.rows[row.key] for row in asked]
