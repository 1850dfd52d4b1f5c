"""Sentences of the notebooks, and what the workbook says of its inputs, where they once said something that was not so."""

import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import tiny
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.judge.finding import Finding, Findings
from eagle3lib.judge.probe import Probe
from eagle3lib.show import plan, readings, start, tables, workbook


def test_each_curve_is_over_its_own_prompts(tiny_checkpoint):
    drafter, captures = e3.Drafter(tiny_checkpoint), [tiny.capture(seed=i, name=f"s{i}") for i in range(3)]
    two, three = (e3.acceptance(drafter, captures[:n], e3.Chain(2)) for n in (2, 3))
    assert "over 3 prompts: a" in readings.accept_length({"a": three, "b": three}, 2)
    assert re.search(r"over prompts: a .* \(3 prompts\); b .* \(2 prompts\)", readings.accept_length({"a": three, "b": two}, 2))


def test_what_nobody_configured_is_not_called_configured(tmp_path):
    target = tiny.write_target(tmp_path / "target")
    named = e3.open_checkpoint(tiny.write_drafter(tmp_path / "a"), target=target)
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "b", eagle_config=None), target=target)
    assert (readings.by_default(named.recipe), readings.by_default(ckpt.recipe)) == (False, True)
    assert not readings.by_default(e3.open_checkpoint(tiny.write_drafter(tmp_path / "c", eagle_config=None)).recipe)  # unknown
    probed = e3.probe(ckpt, [tiny.capture(seed=i, name=f"s{i}") for i in range(3)])  # the default for 6 layers is 2, 3, 3
    for sentence in (readings.probe(probed, True), readings.recording(ckpt, e3.what_to_record(ckpt))):
        assert "configured" not in sentence
    assert "configured ones" in readings.recording(named, e3.what_to_record(named))


def test_a_samples_name_is_no_markdown():
    found = Findings([Finding("fault", "captures", "rows are zeros, the first in *a*_b_`c`<br>, stream 2")])
    assert readings.caveats(found) == r"**Mind: rows are zeros, the first in \*a\*\_b\_\`c\`\<br\>, stream 2.** "


@pytest.mark.parametrize(("samples", "answer"), [(1, "needs 2 recorded samples or more"), (2, "yes")])
def test_one_sample_is_not_enough_for_the_probe(tmp_path, samples, answer):
    captures = [tiny.capture(seed=i, name=f"s{i}") for i in range(samples)]
    e3.write_captures(tmp_path / "captures", captures, target="tiny", n_layers=6)
    given = {"CHECKPOINT": str(tiny.write_drafter(tmp_path / "d")), "TARGET": "x", "CAPTURES": str(tmp_path / "captures")}
    told = start.questions(given, ROOT / "notebooks")["can it be answered"]
    assert answer in told["02_hidden_states"]
    assert told["04_acceptance"] == "yes"


def notebook(folder: Path, name: str, source: str) -> None:
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / f"{name}.ipynb")


def test_a_folder_given_twice_stands_in_the_stamp_twice(tmp_path):
    notebook(tmp_path, "01_a", "CAPTURES = None\nSERVED = None")
    captures = tmp_path / "captures"
    e3.write_captures(captures, [tiny.capture()], target="tiny", n_layers=6)
    order = plan.Order(inputs={"CAPTURES": captures, "SERVED": captures}, notebooks=tmp_path)
    facts = workbook._facts(workbook.plan(order, *plan.find(order)))
    assert [one["parameter"] for one in facts["inputs"]] == ["CAPTURES", "SERVED"]


def test_a_parameter_of_another_notebook_is_said_to_be(tmp_path):
    notebook(tmp_path, "01_a", "STEPS = 3")
    notebook(tmp_path, "04_b", "AT = 3")
    chosen, others = plan.find(plan.Order(names=["01"], notebooks=tmp_path))
    with pytest.raises(e3.InputError, match="--set AT: no such parameter in the notebooks asked for: it is one of 04_b"):
        plan.check_settings(chosen, others, {"AT": 2})


def test_a_choice_dropped_early_has_no_p_value_and_may_be_the_next_best():
    columns = ["accuracy", "low", "high", "p configured", "p best", "samples"]
    nan = float("nan")
    rows = [(0.34, 0.3, 0.4, 1e-6, nan, 24), (0.06, 0.0, 0.1, nan, 1e-6, 24), (0.1, 0.0, 0.2, 0.0, 0.0, 8)]
    table = pd.DataFrame(rows, index=["a", "b", "c"], columns=columns)
    shown = tables.hypotheses(table)
    assert shown.loc["c", ["p configured", "samples"]].tolist() == ["dropped", 8]
    probed = Probe(table, (1,), (2,), Findings([]), table, Findings([]))
    assert "the next, c, 0.100 on the 8 prompts after which it was dropped" in readings.probe(probed)
