"""The command line: what it prints, its exit codes, and that bad input is one sentence."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib

import nbformat
import pandas as pd
import pytest
import tiny
import torch
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.show import workbook
from eagle3lib.show.changes import with_changes
from eagle3lib.show.cli import main
from eagle3lib.show.printed import plain


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("cli")
    tiny.write_drafter(place / "drafter")
    samples = [tiny.capture(seed=i, name=f"s{i}") for i in range(3)]
    e3.write_captures(place / "captures", samples, target="tiny", n_layers=6, dtype=torch.float32)
    return place


def said(capsys, *argv):
    """Exit code, stdout and stderr of one command."""
    code = main([str(word) for word in argv])
    return code, *capsys.readouterr()


def test_inspect(place, capsys):
    code, out, _ = said(capsys, "inspect", place / "drafter", "--set", "streams=0,2,4")
    assert code == 0
    assert "drafter/config.json: num_attention_heads" in out
    streams = next(line for line in out.splitlines() if line.startswith("streams"))
    assert "0, 2, 4" in streams and "set by hand" in streams
    assert "midlayer.self_attn.q_proj.weight" in out and "..." not in out
    assert "Ignored: nothing" in out


def test_inspect_says_what_is_ignored_and_why(tmp_path, capsys):
    tensors = {**tiny.drafter_tensors(), "midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    folder = tiny.write_drafter(tmp_path / "drafter", tensors)
    ignored = e3.open_checkpoint(folder).ignored
    assert ignored
    code, out, _ = said(capsys, "inspect", folder, "--json")
    assert code == 0
    assert json.loads(out)["ignored"] == [{"tensor": name, "why": why} for name, why in ignored.items()]


def test_inspect_json(place, capsys):
    code, out, _ = said(capsys, "inspect", place / "drafter", "--json")
    told = json.loads(out)
    assert code == 0
    recipe = {row["field"]: row for row in told["recipe"]}
    assert recipe["eps"]["value"] == "1e-05"
    tensors = {row["tensor"]: row for row in told["tensors"]}
    assert tensors["fc.weight"]["shape"] == f"{tiny.H} x {3 * tiny.H}"


def test_score_is_what_the_library_measures(place, capsys):
    code, out, _ = said(capsys, "score", place / "drafter", "--captures", place / "captures", "--steps", 3, "--json")
    told = json.loads(out)
    drafter, captures = e3.Drafter(e3.open_checkpoint(place / "drafter")), e3.read_captures(place / "captures")
    accuracy, acceptance = e3.accuracy(drafter, captures, 3), e3.acceptance(drafter, captures, e3.Chain(3))
    assert code == 0
    assert [row["step"] for row in told["accuracy"]] == [1, 2, 3]
    assert [row["marginal"] for row in told["accuracy"]] == [accuracy.marginal(k) for k in (1, 2, 3)]
    assert [row["accept length"] for row in told["acceptance"]] == [acceptance.tau(k) for k in (1, 2, 3)]
    assert [(row["low"], row["high"]) for row in told["acceptance"]] == [acceptance.interval(k) for k in (1, 2, 3)]
    assert (told["samples"], told["dtype"], told["streams"]) == (3, "float32", [2, 3, 4])


def test_score_under_another_recipe(place, capsys):
    score = ("score", place / "drafter", "--captures", place / "captures", "--steps", 2)
    code, out, _ = said(capsys, *score, "--set", "streams=0,2,4", "--set", "norm_output=true")
    assert code == 0
    drafter = e3.Drafter(e3.open_checkpoint(place / "drafter"))
    drafter = drafter.with_recipe(drafter.recipe.replace(streams=(0, 2, 4), norm_output=True))
    first = e3.accuracy(drafter, e3.read_captures(place / "captures"), 2)
    low, high = first.interval(1)
    assert f"{first.marginal(1):.3f} [{low:.3f}, {high:.3f}]" in out
    assert "streams (0, 2, 4)" in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("inspect", "nowhere"), "nowhere: no such folder for a drafter checkpoint"),
        (("inspect", "captures"), "no model.safetensors"),
        (("inspect", "drafter", "--set", "streams=0,2"), "has 2 entries, expected 3"),
        (("inspect", "drafter", "--set", "streams=a"), "expected whole numbers with commas"),
        (("inspect", "drafter", "--set", "norm_output=1"), "expected true or false"),
        (("inspect", "drafter", "--set", "eps=-1"), "expected a number above zero"),
        (("inspect", "drafter", "--set", "strams=0"), "strams: no such Recipe field; there are .*streams"),
        (("inspect", "drafter", "--set", "rope=5"), "give --set rope_theta=VALUE"),
        (("inspect", "drafter", "--set", "n_heads=2"), "the tensors' shapes decide it"),
        (("inspect", "drafter", "--set", "eps"), "expected NAME=VALUE"),
        (("score", "drafter", "--captures", "drafter"), "no captures.json"),
        (("score", "drafter", "--captures", "captures", "--steps", "0"), "expected a whole number, 1 or more"),
        (("score", "drafter", "--captures", "captures", "--set", "streams=0,1,2"), "stream 1 was not recorded"),
        (("workbook", "--checkpoint", "nowhere"), "nowhere: no such folder for a drafter checkpoint"),
        (("workbook", "--captures", "drafter"), "no captures.json"),
        (("workbook", "--notebooks", "drafter"), "holds no notebooks"),
    ],
)
def test_bad_input_is_one_sentence(place, capsys, monkeypatch, argv, sentence):
    monkeypatch.chdir(place)
    code, out, err = said(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("eagle3: ") and err.count("\n") == 1
    assert re.search(sentence, err)


@pytest.mark.parametrize("argv", [(), ("nonsense",), ("score", "x"), ("score", "x", "--captures", "y", "--dtype", "float8")])
def test_wrong_options_exit_with_2(capsys, argv):
    code, _, err = said(capsys, *argv)
    assert code == 2 and "usage: eagle3" in err


def test_help_exits_with_0(capsys):
    code, out, _ = said(capsys, "workbook", "--help")
    assert code == 0 and "--captures" in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(place, capsys):
    code, _, err = said(capsys, "score", place / "drafter", "--captures", place / "captures", "--device", "cuda")
    assert code == 2 and "no usable CUDA GPU" in err


def test_rope_theta(tiny_checkpoint):
    changed = with_changes(tiny_checkpoint.recipe, ["rope_theta=500"])
    assert changed.rope.inv_freq == e3.Rope.plain(500.0, tiny.D).inv_freq
    assert changed.sources["rope"] == "set by hand"


def test_numbers_that_json_has_not():
    table = pd.DataFrame({"a": [float("nan"), 0.1]}, index=pd.Index([1, 2], name="K"))
    assert plain({"t": table, "x": float("inf"), 3: (torch.float32, None, True)}) == {
        "t": [{"K": 1, "a": None}, {"K": 2, "a": 0.1}], "x": None, "3": ["torch.float32", None, True],
    }  # fmt: skip


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """Two small notebooks, and execution replaced: `failures` says which stops with what."""
    failures, passed = {}, {}
    for name in ("01_a", "02_b"):
        cell = nbformat.v4.new_code_cell("STEPS = 3\nCHECKPOINT = 'x'", metadata={"tags": ["parameters"]})
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / f"{name}.ipynb")

    def execute(source, partial, given):
        passed[source.stem] = given
        if failures.get(source.stem) is KeyboardInterrupt:
            raise KeyboardInterrupt
        return failures.get(source.stem, "")

    monkeypatch.setattr(workbook, "execute", execute)
    return tmp_path, failures, passed


def test_workbook(notebooks, place, capsys):
    folder, _, passed = notebooks
    argv = (
        "workbook",
        "--checkpoint",
        place / "drafter",
        "--set",
        "STEPS=5",
        "02",
        "--out",
        folder / "out",
        "--notebooks",
        folder,
    )
    code, out, err = said(capsys, *argv, "--json")
    told = json.loads(out)
    assert code == 0
    assert passed == {"02_b": {"STEPS": 5, "CHECKPOINT": str(place / "drafter")}}
    assert told["notebooks"]["02_b"]["status"] == "done"
    assert "02_b: running (1 of 1) ...\n02_b: done in 0 s\n" in err


@pytest.mark.parametrize(("stops", "code"), [("ValueError: no", 2), (KeyboardInterrupt, 130), ("", 0)])
def test_workbook_exit_codes(notebooks, capsys, stops, code):
    folder, failures, _ = notebooks
    failures["01_a"] = stops
    found, out, err = said(capsys, "workbook", "--out", folder / "out", "--notebooks", folder)
    assert (found, out) == (code, "")
    assert ("02_b: done" in err) is (stops is not KeyboardInterrupt), "one failure does not stop the others"


def test_the_script_starts_light_and_shows_no_traceback(place):
    """Neither papermill nor nbconvert is imported before it is needed; a wrong path ends a real process with 2."""
    command = (
        "import sys; from eagle3lib.show.cli import main; code = main(['inspect', 'nowhere']); "
        "assert not {'papermill', 'nbconvert'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=place)
    assert done.returncode == 2
    assert done.stderr.startswith("eagle3: nowhere") and "Traceback" not in done.stderr


def test_an_output_that_nobody_takes_is_no_traceback(place):
    command = [sys.executable, "-m", "eagle3lib.show.cli", "inspect", place / "drafter"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "eagle3: the output could not be written: the disk is full\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as broken:
        done = subprocess.run(command, stdout=broken, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_needs_no_heavy_library():
    command = (
        "import sys; from eagle3lib.show.cli import main; code = main(['verdict', '--help']); "
        "assert not {'torch', 'pandas', 'scipy', 'numpy', 'matplotlib'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and "--measured" in done.stdout, done.stderr


def test_every_public_name_is_there():
    """Names are imported when they are first used: each must lie where the table says."""
    assert all(getattr(e3, name) is not None for name in e3.__all__) and set(e3.__all__) <= set(dir(e3))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        e3.nonsense  # noqa: B018


def test_the_project_names_the_script():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, function = project["scripts"]["eagle3"].split(":")
    assert getattr(importlib.import_module(module), function) is main
