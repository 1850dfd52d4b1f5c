"""The committed notebooks read without a kernel and hold nothing of the machine that made them; they run on other files."""

import re
import statistics

import nbformat
import papermill
import pytest
import tiny
from conftest import ROOT
from test_probe import written_for

import eagle3lib as e3

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"(/root/|/home/|/tmp/|/work/|/Users/|[A-Z]:\\\\)")


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_committed_notebook(path):
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    cells = code_cells(notebook)
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(text) < 1_000_000
    assert "widgets" not in notebook.metadata, "widget state is stored: offline pages would show blank cells"
    assert not MACHINE.search(text), "a path of one machine"
    assert not [o for o in outputs if o.output_type == "error"]
    assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"], "progress or warnings in the outputs"
    assert [o for o in outputs if "image/png" in o.get("data", {})], "no figure"
    assert statistics.median(len(cell.source.strip().splitlines()) for cell in cells) <= 8
    assert [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])], "no parameters cell"
    late = [i for i, cell in enumerate(notebook.cells) if "widget-view" in str(cell.get("outputs", ""))]
    figures = [i for i, cell in enumerate(notebook.cells) if "image/png" in str(cell.get("outputs", ""))]
    assert len(late) <= 1
    assert all(i > figures[0] for i in late), "a static figure comes first"


def run(path, tmp_path, **parameters):
    """Execute a notebook with these parameters, in the notebooks' folder. Returns it, executed."""
    out = tmp_path / path.name
    papermill.execute_notebook(path, out, parameters=parameters, cwd=path.parent, progress_bar=False)
    return nbformat.read(out, as_version=4)


@pytest.mark.parametrize("trained", [(2, 3, 4), (3, 0, 2)])
def test_02_runs_on_other_files(tmp_path, trained):
    """A drafter with its own embedding, no target, other streams: the answer names what it was trained on."""
    folder = tmp_path / "mein Entwürfler"
    ckpt = e3.open_checkpoint(tiny.write_drafter(folder))
    captures = written_for(e3.Drafter(ckpt, ckpt.recipe.replace(streams=trained)), 16)
    e3.write_captures(tmp_path / "captures", captures, target="tiny", n_layers=6)
    path = ROOT / "notebooks" / "02_hidden_states.ipynb"
    done = run(
        path,
        tmp_path,
        CHECKPOINT=str(folder),
        TARGET=None,
        CAPTURES=str(tmp_path / "captures"),
        HEALTHY=None,
        STEPS=2,
        SERVED=[2, 3, 4],
    )
    said = "\n".join(str(o.data.get("text/markdown", "")) for c in code_cells(done) for o in c.outputs if "data" in o)
    if trained == (2, 3, 4):
        assert "Served the streams r_2, r_3, r_4 that it was trained on" in said
    else:
        assert "Trained on streams r_3, r_0, r_2, served streams r_2, r_3, r_4" in said
        assert '"eagle_aux_hidden_state_layer_ids": [3, 0, 2]' in said
