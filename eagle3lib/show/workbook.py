"""Running the workbook: executed notebooks, pages, an index and a stamp, in one folder that can be handed on.

Each notebook is executed by papermill under a temporary name, cleaned, scrubbed, and put in place whole. It carries a key over
all that went into it: source, parameters, input files, library, versions. Where the key is the same it is not run again.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from ..read.errors import InputError
from ..read.tensors import read_json
from . import pages
from .execute import cleaned, execute
from .plan import Notebook, Order, check_device, check_inputs, check_settings, find, input_told
from .scrub import OWN, Scrubber, both_forms
from .stamp import SEEDS, describe, device_name, fingerprint, key, library_hash, versions

FORMAT = "eagle3lib workbook, version 1"
STAMP, INDEX = "stamp.json", "index.html"
Say = Callable[[str], None]


@dataclass
class Work:
    """One notebook of this run: what it runs with, and what becomes of it."""

    notebook: Notebook
    passed: dict[str, object]  # parameters given to papermill
    values: dict[str, object]  # of all its parameters
    files: dict[str, Path]  # the files among them
    key: str
    wanted: bool  # asked for; any other is listed because it is there from before
    before: NotebookNode | None = None  # what an earlier run left
    status: str = "not run"  # then done, kept, older, lacking or failed
    answer: str | None = None
    memory: str = ""  # what its kernel held on a GPU at most
    why: str = "Not run: interrupted before."  # there is no answer

    @property
    def name(self) -> str:
        return self.notebook.name

    @property
    def question(self) -> str:
        return str(self.notebook.about.get("question", ""))

    @property
    def unchanged(self) -> bool:
        """What an earlier run left was made from the very same."""
        about = self.before.metadata.eagle3 if self.before else {}
        return about.get("made_from") == self.key and about.get("status") == "done"


def run(order: Order, say: Say = lambda line: None) -> dict:
    """Run the notebooks that `order` asks for, into its folder. `say` is told a line for each.

    Returns `{"out", "index", "interrupted", "notebooks": {name: {"status", "question", "answer", "why", "page"}}}`.
    Ctrl-C keeps what is finished. Raises InputError before anything runs for wrong inputs, unknown names, or a folder that
    must not be written to.
    """
    chosen, others = find(order)
    check_settings(chosen, others, order.settings)
    check_device(order.device or order.settings.get("DEVICE"))
    check_inputs(order.inputs)
    folder = chosen[0].path.parent
    works = plan(order, chosen, others)
    given = [path for work in works for path in work.files.values()] + list(order.inputs.values())
    out = prepare(order.out, given, folder)
    for work in works:
        work.before = _before(out, work.name)
    works = [work for work in works if work.wanted or work.before]
    book = Workbook(out, folder, works, Scrubber([*given, out], [*OWN, folder]))
    say(f"workbook: {len(chosen)} of {len(chosen) + len(others)} notebooks, {'your files' if order.inputs else 'the demo'}")
    facts = book.scrubber.all(_facts([work for work in works if work.wanted or work.unchanged]))
    book.write_stamp(facts)  # first of all: it marks the folder as a workbook's
    interrupted = False
    try:
        left = book.settle(order.again, say)
        for number, work in enumerate(left):
            book.make(work, f"{number + 1} of {len(left)}", say)
    except KeyboardInterrupt:
        interrupted = True
        say("workbook: interrupted; what is finished is kept, and the same command goes on from there")
    book.write_index(facts)
    say(f"workbook: open {out / INDEX}")
    return {"out": str(out), "index": str(out / INDEX), "interrupted": interrupted, "notebooks": book.told()}


def plan(order: Order, chosen: list[Notebook], others: list[Notebook]) -> list[Work]:
    """What each notebook is to run with, and its key, in the order of their names."""
    seen = cache(fingerprint)
    shared = {"library": library_hash(), "versions": {k: v for k, v in versions().items() if k != "eagle3lib"}}
    works = []
    for book in [*chosen, *others]:
        passed = book.passed(order)
        values = {**book.parameters, **passed}
        files = book.files(values)
        parts = {
            **shared, "passed": passed, "about": book.about, "files": {name: seen(path) for name, path in files.items()},
            "cells": [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in book.node.cells],
            "device": device_name(str(values.get("DEVICE") or "cpu")),
        }  # fmt: skip
        works.append(Work(book, passed, values, files, key(parts), book in chosen))
    return sorted(works, key=lambda work: work.name)


def prepare(out: Path, given: list[Path], notebooks: Path) -> Path:
    """The folder to write to, made if it is not there.

    Raises InputError when it is or lies in a folder that was given, holds things that are not a workbook's, or cannot be
    written to.
    """
    out = out.expanduser().absolute()
    for here in both_forms([out]):
        for there in both_forms(given):
            if there == here or there in here.parents:
                raise InputError(f"--out {out}: lies in {there}, which is read and never written to: give another folder")
        if here in both_forms([notebooks]):
            raise InputError(f"--out {out}: is the folder of the notebooks themselves: give another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        if held and not _is_workbook(out):
            raise InputError(f"--out {out}: holds other things ({', '.join(held[:3])}): give a new folder, or empty this one")
        (out / ".partial").write_text("")
        (out / ".partial").unlink()
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written to ({error.strerror}): give another folder") from None
    return out


def _is_workbook(out: Path) -> bool:
    try:
        return read_json(out / STAMP).get("format") == FORMAT
    except InputError:
        return False


def _before(out: Path, name: str) -> NotebookNode | None:
    """The notebook of an earlier run, if there is one."""
    try:
        node = nbformat.read(out / f"{name}.ipynb", as_version=4)
        return node if "made_from" in node.metadata.get("eagle3", {}) else None
    except (OSError, ValueError, AttributeError, nbformat.ValidationError):  # a broken file is made anew
        return None


def _facts(works: list[Work]) -> dict:
    """What stamp.json says of the run. Hashes the input files."""
    inputs = dict.fromkeys((name, path) for work in works for name, path in work.files.items())
    devices = sorted({str(work.values.get("DEVICE") or "cpu") for work in works})
    dtypes = sorted({str(work.values.get("DTYPE") or "float32") for work in works})
    return {
        "format": FORMAT, "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "versions": versions(),
        "device": [device_name(device) for device in devices], "dtype": dtypes, "seeds": SEEDS,
        "inputs": [{"parameter": name, "path": str(path), **describe(name, path)} for name, path in inputs],
        "parameters": {work.name: work.values for work in works},
    }  # fmt: skip


@dataclass
class Workbook:
    """The folder that is being written."""

    out: Path
    folder: Path  # the notebooks'
    works: list[Work]
    scrubber: Scrubber

    def settle(self, again: bool, say: Say) -> list[Work]:
        """Deal with all that need not run: unchanged, not asked for, or lacking an input. Returns what is left to run."""
        left = []
        for work in self.works:
            if work.unchanged and not (again and work.wanted):
                work.status = "kept"
                self.put(work, work.before)
            elif not work.wanted:
                work.status, work.why = "older", "Made earlier, from other inputs or by another version; not run now."
                self.put(work, work.before)
            elif missing := work.notebook.lacking(work.values):
                work.status, work.why = "lacking", f"Not run, for want of {' and of '.join(map(input_told, missing))}."
                self.put(work, _page_without(work))
            else:
                left.append(work)
            if work.wanted and work not in left:
                say(f"{work.name}: " + ("unchanged, kept" if work.status == "kept" else work.why))
        return left

    def make(self, work: Work, count: str, say: Say) -> None:
        """Run one notebook and put it in place."""
        partial = self.out / f".partial-{work.name}.ipynb"
        say(f"{work.name}: running ({count}) ...")
        begun = time.monotonic()
        try:
            failure = execute(work.notebook.path, partial, work.passed)
            node = nbformat.read(partial, as_version=4) if partial.exists() else work.notebook.node
        finally:
            partial.unlink(missing_ok=True)
        took = f"{time.monotonic() - begun:.0f} s"
        work.status, work.why = ("failed", self.scrubber.text(failure)) if failure else ("done", "It shows no answer.")
        self.put(work, cleaned(node, work.passed, failure))
        say(f"{work.name}: failed after {took}: {failure}" if failure else f"{work.name}: done in {took}")

    def put(self, work: Work, node: NotebookNode) -> None:
        """Write the notebook, scrubbed, and its page under their names; of an earlier run's notebook only the page, anew."""
        if work.status not in ("kept", "older"):
            node.metadata["eagle3"] = {**work.notebook.about, "made_from": work.key, "status": work.status}
            node.metadata["eagle3"]["memory"] = node.metadata.pop("memory", "")
            node = self.scrubber.all(node)
            _write(self.out / f"{work.name}.ipynb", nbformat.writes(node) + "\n")
        work.memory = node.metadata.get("eagle3", {}).get("memory", "")
        if work.status in ("done", "kept"):
            work.answer = pages.answer(node)
        _write(self._page(work), pages.page(node, work.name, [other.name for other in self.works], self.folder))

    def write_stamp(self, facts: dict) -> dict:
        """stamp.json, and what it holds."""
        held = {work.name: work.memory for work in self.works if work.memory}
        stamp = {**facts, "notebooks": {work.name: work.status for work in self.works}, "peak memory": held}
        _write(self.out / STAMP, json.dumps(stamp, indent=1, ensure_ascii=False, default=str) + "\n")
        return stamp

    def write_index(self, facts: dict) -> None:
        """index.html, and stamp.json anew."""
        rows = [pages.Row(work.name, work.question, work.answer, work.why, self._page(work).exists()) for work in self.works]
        stamp = self.write_stamp(facts)
        _write(self.out / INDEX, pages.index(rows, {name: stamp[name] for name in stamp if name != "format"}))

    def told(self) -> dict:
        """Each notebook's result, for a program."""
        return {
            work.name: {
                "status": work.status, "question": work.question, "answer": work.answer,
                "why": None if work.answer else work.why, "page": str(self._page(work)) if self._page(work).exists() else None,
            }
            for work in self.works
        }  # fmt: skip

    def _page(self, work: Work) -> Path:
        return self.out / f"{work.name}.html"


def _write(path: Path, text: str) -> None:
    """Whole or not at all. Raises InputError when the disk does not take it."""
    partial = path.with_name(f".partial-{path.name}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}): what was finished before is kept") from None


def _page_without(work: Work) -> NotebookNode:
    """What stands in place of a notebook that lacks an input."""
    would = f"\n\nIt would have answered: {work.question}" if work.question else ""
    said = f"# {pages.title(work.notebook.node) or work.name}\n\n{work.why}{would}"
    cell = nbformat.v4.new_markdown_cell(said, id="lacking")
    return nbformat.v4.new_notebook(cells=[cell], metadata={"language_info": {"name": "python"}})
