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


@pytest.fixture(autouse=True)
def no_progress(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")  # kernels inherit it


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
    for i in late:  # what a widget shows stands before it without a kernel
        before = [str(cell.get("outputs", "")) for cell in notebook.cells[max(i - 12, 0) : i]]
        assert any("image/png" in text or "<table" in text for text in before), "a widget without a static sibling"


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
ABSOLUTE, RELATIVE = 0.005, 0.01  # another processor rounds otherwise and may flip a near tie: an accepted draft of a thousand


def whole(outputs) -> list:
    """Outputs as a reader sees them: what was printed in several pieces, as a busy machine does, is one."""
    kept = []
    for output in outputs:
        if kept and output.output_type == "stream" == kept[-1].output_type and output.name == kept[-1].name:
            kept[-1] = nbformat.from_dict({**kept[-1], "text": kept[-1]["text"] + output["text"]})
        else:
            kept.append(output)
    return kept


def shown(output) -> dict[str, str]:
    """What a reader sees of an output, by kind: text without spacing, and that there is a picture."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    kind = next((k for k in ("text/markdown", "text/html", "text/plain") if k in data), None)
    text = " ".join(re.sub(r"<style.*?</style>", "", str(data[kind]), flags=re.S).split()) if kind else ""
    return {"text": re.sub(r"Picture size \d+x\d+", "Picture size", text), "picture": str("image/png" in data)}


def apart(committed: str, again: str) -> str | None:
    """Where two texts differ: in a word, or in a number by more than the tolerance. None where they do not."""
    if NUMBER.sub("#", committed) != NUMBER.sub("#", again):
        return f"other words:\n{committed[:600]}\n{again[:600]}"
    for a, b in zip(NUMBER.findall(committed), NUMBER.findall(again), strict=True):
        x, y = float(a.replace(",", "")), float(b.replace(",", ""))
        if abs(x - y) > ABSOLUTE + RELATIVE * abs(x):
            return f"{a} is now {b}, in: {committed[:300]}"
    return None


def test_a_drifted_number_or_word_is_seen():
    assert apart("accept length 1.46 [1.38, 1.54]", "accept length 1.462 [1.381, 1.541]") is None
    assert "1.46 is now 1.52" in apart("accept length 1.46", "accept length 1.52")
    assert "other words" in apart("trained on r_0, r_2", "trained on r_2, r_0")
    assert apart("1,434 rows", "1,436 rows") is None
    assert apart("p 2.9e-06", "p 3.1e-06") is None
    assert shown({"data": {"text/plain": "x"}})["picture"] == "False"
    pieces = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in ("pass", "ed\n")]
    assert [o["text"] for o in whole(pieces)] == ["passed\n"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_committed_notebook_has_not_drifted(path, tmp_path, target_folder):
    """Executed again as committed: each cell shows the same words and pictures, and the same numbers within the tolerance."""
    committed, again = nbformat.read(path, as_version=4), run(path, tmp_path)
    assert len(committed.cells) == len(again.cells)
    for old, new in zip(code_cells(committed), code_cells(again), strict=True):
        assert old.source == new.source
        before, after = ([shown(o) for o in whole(cell.outputs)] for cell in (old, new))
        assert len(before) == len(after), f"other outputs of:\n{old.source}\nrun `make notebooks` and look at them"
        for x, y in zip(before, after, strict=True):
            assert x["picture"] == y["picture"], old.source
            difference = apart(x["text"], y["text"])
            assert difference is None, f"{difference}\nin the cell:\n{old.source}\nrun `make notebooks` and look at them"


def test_the_page_on_the_house_names_every_module():
    told = (ROOT / "eagle3lib" / "README.md").read_text()
    modules = {path.name for path in (ROOT / "eagle3lib").glob("*/*.py")} - {"__init__.py"}
    named = set(re.findall(r"`(\w+\.py)`", told))
    assert modules == named


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
        SERVED=None,
        REFERENCE=None,
        STEPS=2,
        SERVED_STREAMS=[2, 3, 4],
    )
    said = "\n".join(str(o.data.get("text/markdown", "")) for c in code_cells(done) for o in c.outputs if "data" in o)
    if trained == (2, 3, 4):
        assert "Served the streams r_2, r_3, r_4 that it was trained on" in said
    else:
        assert "Trained on streams r_3, r_0, r_2, served streams r_2, r_3, r_4" in said
        assert '"eagle_aux_hidden_state_layer_ids": [3, 0, 2]' in said


@pytest.mark.parametrize(
    ("name", "samples", "T"),
    [("04_acceptance", 1, 24), ("04_acceptance", 16, 9), ("03_manual_forward", 5, 9)],
    ids=["one sample", "short answers", "short answers in the lesson"],
)
def test_it_runs_where_little_can_be_said(tmp_path, name, samples, T):
    """One sample, or answers shorter than the draft steps: the notebook ends, and no sentence says nan."""
    folder = tiny.write_drafter(tmp_path / "d")
    captures = [tiny.capture(T=T, seed=i, name=f"s{i}") for i in range(samples)]
    e3.write_captures(tmp_path / "captures", captures, target="tiny", n_layers=6)
    given = {"CHECKPOINT": str(folder), "CAPTURES": str(tmp_path / "captures")}
    nothing = dict.fromkeys(("TARGET", "STREAMS") + (("LOG", "CLAIMED", "CLAIMED_BY") if name.startswith("04") else ()))
    done = run(ROOT / "notebooks" / f"{name}.ipynb", tmp_path, **given, **nothing)
    said = [str(o.data.get("text/markdown", "")) for c in code_cells(done) for o in c.outputs if "data" in o]
    assert not [text for text in said if "nan" in text]
