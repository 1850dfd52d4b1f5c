"""Running the workbook: executed notebooks, pages, an index and a stamp, in one folder that can be handed on.

Each notebook is executed by papermill under a temporary name, cleaned, scrubbed, and put in place whole. It carries a key over
all that went into it: source, parameters, input files, library, versions. Where the key is the same it is not run again.
"""

import json
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from ..read.errors import InputError
from . import pages
from .plan import INPUTS, Notebook, Order, check_device, check_inputs, check_settings, default_device, find
from .scrub import ANSI, OWN, Scrubber, both_forms
from .stamp import SEEDS, describe, device_name, fingerprint, key, library_hash, versions

FORMAT = "eagle3lib workbook, version 1"
STAMP, INDEX = "stamp.json", "index.html"
# For the kernels: no progress bars in outputs, no remark of the debugger's on the terminal, this environment's own kernel.
KERNEL = {
    "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PREFER_ENV_PATH": "1",
}  # fmt: skip
BAR = re.compile(r"(.{0,80}: )?\s*\d+%\|")  # a widget's progress bar as text: frozen where it began
Say = Callable[[str], None]


@dataclass
class Work:
    """One notebook of this run: what it runs with, and what becomes of it."""

    book: Notebook
    passed: dict[str, object]  # parameters given to papermill
    values: dict[str, object]  # of all its parameters
    files: dict[str, Path]  # the files among them
    key: str
    wanted: bool  # asked for; any other is listed because it is there from before
    status: str = "not run"  # then done, kept, older, lacking or failed
    answer: str | None = None
    why: str = "Not run: interrupted before."  # there is no answer

    @property
    def name(self) -> str:
        return self.book.name

    @property
    def question(self) -> str:
        return str(self.book.about.get("question", ""))


def run(order: Order, say: Say = lambda line: None) -> dict:
    """Run the notebooks that `order` asks for, into its folder. `say` is told a line for each.

    Returns `{"out", "index", "interrupted", "notebooks": {name: {"status", "page", "notebook", "question", "answer", "why"}}}`.
    Ctrl-C keeps what is finished. Raises InputError before anything runs for wrong inputs, unknown names, or a folder that
    must not be written to.
    """
    chosen, others = find(order)
    check_settings(chosen, order.settings)
    check_device(order.device)
    check_inputs(order.inputs)
    folder = chosen[0].path.parent
    works = plan(order, chosen, others)
    given = [path for work in works for path in work.files.values()] + list(order.inputs.values())
    out = prepare(order.out, given, folder)
    works = [work for work in works if work.wanted or _before(out, work.name)]
    book = Workbook(out, folder, works, Scrubber([*given, out], [*OWN, folder]))
    say(f"workbook: {len(chosen)} of {len(chosen) + len(others)} notebooks, {'your files' if order.inputs else 'the demo'}")
    facts = book.scrubber.all(_facts(works))
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
            raise InputError(f"--out {out}: holds other things ({', '.join(held[:3])}): give a new folder")
        (out / ".partial").write_text("")
        (out / ".partial").unlink()
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written to ({error.strerror}): give another folder") from None
    return out


def _is_workbook(out: Path) -> bool:
    try:
        return json.loads((out / STAMP).read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
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
    inputs = {path: name for work in works for name, path in reversed(work.files.items())}
    devices = sorted({str(work.values.get("DEVICE") or "cpu") for work in works})
    dtypes = sorted({str(work.values.get("DTYPE") or "float32") for work in works})
    return {
        "format": FORMAT, "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "versions": versions(),
        "device": [device_name(device) for device in devices], "dtype": dtypes, "seeds": SEEDS,
        "inputs": [{"parameter": name, "path": str(path), **describe(name, path)} for path, name in inputs.items()],
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
            before = _before(self.out, work.name)
            about = before.metadata.eagle3 if before else {}
            same = about.get("made_from") == work.key and about.get("status") == "done"
            if same and not (again and work.wanted):
                work.status = "kept"
                self.put(work, before)
            elif not work.wanted:
                work.status, work.why = "older", "Made earlier, from other inputs or by another version; not run now."
                self.put(work, before)
            elif missing := work.book.lacking(work.values):
                work.status, work.why = "lacking", _lacking(missing, work.question)
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
            failure = execute(work.book.path, partial, work.passed)
            node = nbformat.read(partial, as_version=4) if partial.exists() else work.book.node
        finally:
            partial.unlink(missing_ok=True)
        took = f"{time.monotonic() - begun:.0f} s"
        work.status, work.why = ("failed", self.scrubber.text(failure)) if failure else ("done", "It shows no answer.")
        self.put(work, _cleaned(node, work, failure))
        say(f"{work.name}: failed after {took}: {failure}" if failure else f"{work.name}: done in {took}")

    def put(self, work: Work, node: NotebookNode) -> None:
        """Write the notebook, scrubbed, and its page under their names; of an earlier run's notebook only the page, anew."""
        if work.status not in ("kept", "older"):
            node.metadata["eagle3"] = {**work.book.about, "made_from": work.key, "status": work.status}
            node = self.scrubber.all(node)
            _write(self.out / f"{work.name}.ipynb", nbformat.writes(node) + "\n")
        if work.status in ("done", "kept"):
            work.answer = pages.answer(node)
        _write(self._page(work), pages.page(node, work.name, [other.name for other in self.works], self.folder))

    def write_stamp(self, facts: dict) -> dict:
        """stamp.json, and what it holds."""
        stamp = {**facts, "notebooks": {work.name: work.status for work in self.works}}
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


@contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def execute(source: Path, partial: Path, passed: dict) -> str:
    """Run a notebook in its own folder, saving to `partial` after each cell. Returns why it stopped early, or nothing."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.CRITICAL + 1)  # its log repeats what is told here
    plain = [str(path).replace("{", "{{").replace("}", "}}") for path in (source, partial)]  # papermill formats its paths
    with _environment(KERNEL), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbformat's, of notebooks without cell ids
        try:
            papermill.execute_notebook(
                *plain,
                passed,
                kernel_name="python3",
                language="python",
                cwd=source.parent,
                progress_bar=False,
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
            )
        except PapermillExecutionError as error:
            said = (ANSI.sub("", str(error.evalue)).strip().splitlines() or [""])[0]
            return said if error.ename == "InputError" else f"{error.ename}: {said}"
        except Exception as error:  # the kernel died or could not start: many kinds, from three libraries
            return f"the kernel stopped, most often for want of memory ({type(error).__name__}: {str(error).splitlines()[0]})"
    return ""


def _cleaned(node: NotebookNode, work: Work, failure: str) -> NotebookNode:
    """Without papermill's notes, timings and widget state; with the reason in front where it failed. Tags stay."""
    node.cells = [cell for cell in node.cells if "papermill-error-cell-tag" not in cell.metadata.get("tags", [])]
    for cell in node.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not BAR.match(output.get("data", {}).get("text/plain", ""))]
        for name in ("papermill", "execution"):
            cell.metadata.pop(name, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if "injected-parameters" in cell.metadata.get("tags", []):
            lines = [f"{name} = {value!r}" for name, value in work.passed.items()]
            cell.source = "\n".join(["# as given for this run", *lines])
    for name in ("papermill", "widgets"):
        node.metadata.pop(name, None)
    if failure:
        said = (
            f"**This notebook stopped before its end.** The cell with the error is the last that ran.\n\n```text\n{failure}\n```"
        )
        node.cells.insert(0, nbformat.v4.new_markdown_cell(said, id="stopped", metadata={"tags": ["failure"]}))
    return node


def _lacking(missing: list[str], question: str) -> str:
    """What is not there, and how to give it."""
    told = [f"{INPUTS[name][1]} ({INPUTS[name][0]})" if name in INPUTS else f"{name} (--set {name}=...)" for name in missing]
    would = f" It would have answered: {question}" if question else ""
    return f"Not run, for want of {' and of '.join(told)}.{would}"


def _page_without(work: Work) -> NotebookNode:
    """What stands in place of a notebook that lacks an input."""
    heading = pages.title(work.book.node) or work.name
    node = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python"}})
    node.cells = [nbformat.v4.new_markdown_cell(f"# {heading}\n\n{work.why}", id="lacking")]
    return node
