"""The verdict's notebook: it ends on whatever is given, and its pictures and sentences say what was measured."""

import json

import nbformat
import numpy as np
import papermill
import pytest
import tiny
from conftest import ROOT
from test_probe import written_for

import eagle3lib as e3
from eagle3lib.judge.evidence import runs_of
from eagle3lib.read.served import Served
from eagle3lib.show import verdicts

BOOK = ROOT / "notebooks" / "05_verdict.ipynb"
LOG = (
    "SpecDecoding metrics: Mean acceptance length: 1.50, Accepted throughput: 1.00 tokens/s, Drafted throughput: 2.00 tokens/s, "
    "Accepted: 20 tokens, Drafted: 80 tokens, Per-position acceptance rate: 0.400, 0.100, Avg Draft acceptance rate: 25.0%\n"
)


def served(drafter=None, streams=None, steps=1):
    return Served("run", steps, 10, 5, 1.5, None, "log", drafter, streams, (5,))


def test_of_a_log_only_runs_that_may_be_of_this_drafter_are_taken(tmp_path):
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "mine"))  # takes streams 2, 3, 4
    runs = [served("other", (2, 3, 4)), served("mine", (0, 3, 4)), served("mine", (2, 3, 4)), served()]
    assert runs_of(ckpt, runs) == runs[2:]
    assert runs_of(None, [served("a", steps=1), served("b", steps=3), served("a", steps=3)])[1].steps == 3
    assert runs_of(None, []) == []


@pytest.fixture(scope="module")
def mismatched(tmp_path_factory):
    """A drafter trained on r_3, r_0, r_2 whose file says 2, 3, 4, its captures, and the verdict."""
    place = tmp_path_factory.mktemp("mismatched")
    ckpt = e3.open_checkpoint(tiny.write_drafter(place / "drafter"))
    captures = written_for(e3.Drafter(ckpt, ckpt.recipe.replace(streams=(3, 0, 2))), 16)
    e3.write_captures(place / "captures", captures, target="tiny", n_layers=6)
    run = Served("run", 3, 100, 10, 1.1, {"a": np.array([48, 2, 0, 0]), "b": np.array([43, 6, 1, 0])}, "log", positions=(9, 1, 0))
    return place, e3.verdict(ckpt, captures, logs=[run], claimed=0.9, claimed_by=("SpecForge", "acc_0"))


def test_the_numbers_side_by_side_are_those_measured(mismatched):
    found = mismatched[1]
    table = verdicts.numbers(found)
    assert list(table.index) == ["by hand, as configured", "by hand, mended", "the log's count"]
    assert table["accept length"].iloc[1] == e3.Acceptance.of(found.evidence.mended).tau(3) > table["accept length"].iloc[0]
    assert table.loc["the log's count"].tolist()[0] == 1.1
    assert table.low.iloc[2] < 1.1 < table.high.iloc[2]
    assert [text.get_text() for text in verdicts.sides(found).axes[0].get_yticklabels()] == list(table.index)
    counts = verdicts.counts(found)
    assert counts.loc["the log's count"].tolist() == [100, 0.09, 0.01, 0]
    assert counts.rounds["by hand, mended"] < counts.rounds["by hand, as configured"]


def test_a_count_at_another_k_is_not_shown_as_this_one():
    found = e3.verdict(logs=[served(steps=8)], steps=3)
    assert len(verdicts.numbers(found)) == 0
    assert "no run at K = 3, only at 8" in found.evidence.problems[0]


def test_changes_that_count_are_marked(mismatched):
    found = mismatched[1]
    bars = verdicts.changes(found).axes[0].patches
    assert len(bars) == verdicts.SHOWN
    assert not any(bar.get_hatch() for bar in bars)
    table = found.evidence.probe.changes
    assert verdicts.counting(table.assign(gained=0.03, p=0.001)).all()
    assert verdicts.counting(table.assign(gained=0.015, p=0.001)).all()  # as in the verdict itself
    assert not verdicts.counting(table.assign(gained=0.009, p=0.001)).any()
    assert "**none** counts" in verdicts.changes_said(found).data


@pytest.mark.parametrize("indent", [None, 2])
def test_the_config_is_mended_in_its_own_words(mismatched, indent):
    place, found = mismatched
    file = place / "drafter" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=indent))
    told = verdicts.mend(found).data
    assert "+" in told
    assert '"eagle_aux_hidden_state_layer_ids": [3, 0, 2]' in told
    assert told.splitlines()[1] == "--- config.json"
    mended = verdicts._written(file.read_text(), "eagle_aux_hidden_state_layer_ids", "[3, 0, 2]")
    assert json.loads(mended)["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [3, 0, 2]
    assert json.loads(verdicts._written(mended, "norm_output", "true"))["norm_output"] is True


def test_the_command_leaves_out_what_is_not_given():
    found = e3.verdict()
    told = verdicts.command(found, "my drafter", {"log": None, "measured": ["K=1 tok/s=5"], "steps": 3}).data
    assert "eagle3 verdict 'my drafter' --measured 'K=1 tok/s=5' --steps 3\necho $?  # 11" in told


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["CHECKPOINT"], "Cannot tell: a checkpoint opens"),
        (["LOG"], "Accept length 1.50 at K = 2"),
        (["CHECKPOINT", "CAPTURES", "SERVED", "LOG"], "trained on streams r_3, r_0, r_2"),
    ],
    ids=["only a checkpoint", "only a log", "all"],
)
def test_it_runs_with_any_part_of_the_files(mismatched, tmp_path, given, says):
    place = mismatched[0]
    (tmp_path / "server.log").write_text(LOG)
    paths = {"CHECKPOINT": place / "drafter", "CAPTURES": place / "captures", "SERVED": place / "captures",
             "LOG": tmp_path / "server.log"}  # fmt: skip
    nothing = dict.fromkeys(("CHECKPOINT", "TARGET", "CAPTURES", "LOG", "CLAIMED", "CLAIMED_BY", "STEPS"))
    values = {**nothing, **{name: str(paths[name]) for name in given}}
    papermill.execute_notebook(BOOK, tmp_path / "out.ipynb", values, cwd=BOOK.parent, progress_bar=False)
    outputs = [o for c in nbformat.read(tmp_path / "out.ipynb", 4).cells if c.cell_type == "code" for o in c.outputs]
    text = "\n".join(str(o.get("data", {}).get("text/markdown", "")) for o in outputs)
    assert says in text.replace("\\", "")
    assert "nan" not in text
    assert "What would settle it" in text
