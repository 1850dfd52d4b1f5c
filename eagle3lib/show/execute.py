"""Executing one notebook by papermill, and taking away what its execution leaves behind."""

import logging
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import nbformat
from nbformat import NotebookNode

from .plan import INPUTS
from .scrub import ANSI

# For the kernels: no progress bars in outputs, no remark of the debugger's on the terminal, this environment's own kernel.
KERNEL = {
    "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
}  # fmt: skip
# Asked of the kernel before it ends: what it held on a GPU
LAST = """import sys
if "torch" in sys.modules:
    from eagle3lib.show.stamp import peak_memory
    print(*peak_memory(), sep="; ")"""
OF_THE_DEMO = re.compile(r" ?As committed[,:].*?\.(?=\s|$)")  # a sentence
BAR = re.compile(r"(.{0,80}: )?\s*\d+%\|")  # a widget's progress bar as text: frozen where it began


def execute(source: Path, partial: Path, passed: dict) -> str:
    """Run a notebook in its own folder, saving to `partial` after each cell. Returns why it stopped early, or nothing."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.CRITICAL + 1)  # what its log says is told by whoever calls
    node = nbformat.read(source, as_version=4)
    node.cells.append(nbformat.v4.new_code_cell(LAST, metadata={"tags": ["memory"]}))
    plain = str(partial).replace("{", "{{").replace("}", "}}")  # papermill formats its paths
    with patch.dict(os.environ, KERNEL), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbformat's, of notebooks without cell ids
        try:
            papermill.execute_notebook(
                node, plain, passed, kernel_name="python3", language="python", cwd=source.parent, progress_bar=False,
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
            )  # fmt: skip
        except PapermillExecutionError as error:
            said = _first_line(ANSI.sub("", str(error.evalue)))
            return said if error.ename == "InputError" else f"{error.ename}: {said}"
        except DeadKernelError:
            return "the kernel died, most often for want of memory"
        except Exception as error:  # it could not start or be written: many kinds, from three libraries
            return f"{type(error).__name__}: {_first_line(str(error))}"
    return ""


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


def cleaned(node: NotebookNode, passed: Mapping[str, object], failure: str = "") -> NotebookNode:
    """Without papermill's notes, timings, progress bars and widget state; with `failure` in front. Tags stay. Of a run on
    somebody's own files without the sentences on the demo.
    """
    node.cells = [cell for cell in node.cells if "papermill-error-cell-tag" not in cell.metadata.get("tags", [])]
    if node.cells and "memory" in node.cells[-1].metadata.get("tags", []):
        node.metadata["memory"] = "".join(output.get("text", "") for output in node.cells.pop().outputs).strip()
    for cell in node.cells:
        if cell.cell_type == "code":
            for output in cell.outputs:
                if output.get("ename") == "InputError":  # a sentence for the reader: where in the library it arose helps nobody
                    output["traceback"] = [f"InputError: {output['evalue']}"]
            cell.outputs = [output for output in cell.outputs if not BAR.match(output.get("data", {}).get("text/plain", ""))]
        for name in ("papermill", "execution"):
            cell.metadata.pop(name, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if "injected-parameters" in cell.metadata.get("tags", []):  # papermill spells letters beyond ASCII as numbers
            cell.source = "\n".join(["# as given for this run", *(f"{name} = {value!r}" for name, value in passed.items())])
        if cell.cell_type == "markdown" and any(name in passed for name in INPUTS):
            cell.source = OF_THE_DEMO.sub("", cell.source)
    for name in ("papermill", "widgets"):
        node.metadata.pop(name, None)
    if failure:
        said = f"**This notebook stopped before its end.** What ran until then is below.\n\n```text\n{failure}\n```"
        node.cells.insert(0, nbformat.v4.new_markdown_cell(said, id="stopped", metadata={"tags": ["failure"]}))
    return node
