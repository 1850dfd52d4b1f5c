"""Comparing drafters: pairing, corrections, prompts needed; what cannot be run is a row; the command and the notebook."""

import json

import numpy as np
import pytest
import tiny
import torch
from conftest import ROOT
from test_notebooks import code_cells, run

import eagle3lib as e3
from eagle3lib.measure.acceptance import Acceptance
from eagle3lib.measure.compare import MOST, accept_lengths, compare, drafters, holm, open_all, signed_rank
from eagle3lib.show import compared, curves
from eagle3lib.show.cli import main

ROUNDS = 40


def acceptance(rates, rng, first=0):
    """K = 1 only: sample s accepts a Binomial(ROUNDS, rates[s]) of its drafts."""
    right = rng.binomial(ROUNDS, rates)
    counts = {f"s{first + i}": np.array([ROUNDS - r, r]) for i, r in enumerate(right)}
    return Acceptance({1: counts}, {1: counts})


def hard_and_easy(samples, rng):
    return rng.uniform(0.1, 0.85, samples)


def test_pairing_tells_what_two_intervals_do_not():
    rng = np.random.default_rng(0)
    rates = hard_and_easy(40, rng)
    found = {"worse": acceptance(rates - 0.07, rng), "better": acceptance(rates, rng)}
    table = compare(found, 1).table()
    assert list(table.index) == ["better", "worse"]
    assert table["accept length low"]["better"] < table["accept length high"]["worse"], "the intervals overlap"
    assert table["beside the first"].tolist() == ["first", "worse"]
    for name, one in found.items():
        assert (table["accept length low"][name], table["accept length high"][name]) == pytest.approx(one.interval(1))
        assert table["step-1 accuracy"][name] == pytest.approx(one.tau(1, "starts") - 1)
    low, high = table.loc["worse", ["difference low", "difference high"]]
    assert low < table.difference["worse"] < high < 0


def test_equal_drafters_are_seldom_called_worse():
    """Six equal drafters, and the best picked by the same samples: in 60 trials one is called worse at most a few times."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(60):
        rates = hard_and_easy(24, rng)
        table = compare({str(i): acceptance(rates, rng) for i in range(6)}, 1).table()
        wrong += "worse" in set(table["beside the first"])
    assert wrong <= 6  # 3 are expected of 5 %; 7 or more come once in 30 times


def test_so_many_prompts_do_tell():
    """With as many prompts as are said to be needed, about four times of five it is told."""
    rng = np.random.default_rng(2)
    rates = hard_and_easy(2000, rng)
    needed = compare({"a": acceptance(rates, rng), "b": acceptance(rates - 0.04, rng)}, 1).prompts_needed("b")
    told = 0
    for _ in range(100):
        some = hard_and_easy(needed, rng)
        table = compare({"a": acceptance(some, rng), "b": acceptance(some - 0.04, rng)}, 1).table()
        told += table["beside the first"].get("b") == "worse"
    assert 68 <= told <= 92


def test_the_very_same_is_not_told_apart():
    one = acceptance(hard_and_easy(12, np.random.default_rng(3)), np.random.default_rng(3))
    row = compare({"a": one, "b": one}, 1).table().loc["b"]
    assert (row.difference, row["difference low"], row["difference high"], row.p) == (0, 0, 0, 1)
    assert row["prompts needed"] == MOST + 1 and compared.needed(row["prompts needed"]) == "more than 10,000"


@pytest.mark.parametrize("samples", [1, 5])
def test_few_prompts_tell_nothing(samples):
    rng = np.random.default_rng(4)
    found = {"a": acceptance(np.full(samples, 0.9), rng), "b": acceptance(np.full(samples, 0.1), rng)}
    ranked = compare(found, 1)
    table = ranked.table()
    assert table["beside the first"]["b"] == "not told apart"
    assert table["prompts needed"].isna().all()
    said = compared.answer(ranked, e3.Findings([])) + compared.curves(found, ranked)
    assert "fewer than 6 prompts tell nothing apart" in said and "nan" not in said


def test_only_common_samples_count():
    rng = np.random.default_rng(5)
    rates = hard_and_easy(8, rng)
    found = {"a": acceptance(rates, rng), "b": acceptance(rates, rng, first=2)}
    assert list(compare(found, 1).rounds.index) == [f"s{i}" for i in range(2, 8)]
    with pytest.raises(e3.InputError, match="no sample .* is common"):
        compare({"a": acceptance(rates, rng), "b": acceptance(rates, rng, first=8)}, 1)
    with pytest.raises(e3.InputError, match="K = 2 was not run"):
        compare(found, 2)
    with pytest.raises(e3.InputError, match="none of 1 drafters can be run, the first because: torn"):
        compare({"a": "torn"}, 1)


def test_corrections():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # R: p.adjust(p, "holm")
    assert signed_rank(np.array([1.0, 2, 3, 4, 5, 6, 0, 0])) == pytest.approx(2 / 2**6)
    assert signed_rank(np.zeros(3)) == 1


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two drafters that run, one that wants a stream not recorded, a broken one, and a folder that is none."""
    place = tmp_path_factory.mktemp("compare")
    many = place / "läufe"
    tiny.write_drafter(many / "one")
    tiny.write_drafter(many / "two", tiny.drafter_tensors(seed=1))
    tiny.write_drafter(many / "other streams", eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 3, 5]})
    (many / "broken").mkdir()
    (many / "broken" / "config.json").write_text("{")
    (many / "logs").mkdir()
    (many / "best").symlink_to(many / "two")
    tiny.write_drafter(place / "again" / "one")
    samples = [tiny.capture(seed=i, name=f"s{i}") for i in range(7)]
    e3.write_captures(place / "captures", samples, target="tiny", n_layers=6, dtype=torch.float32)
    return place


def test_folders_of_drafters(place):
    assert list(drafters([place / "läufe"])) == ["best", "broken", "one", "other streams"], "two is best"
    assert list(drafters([place / "läufe" / "one", place / "again"])) == ["läufe/one", "again/one"]
    assert list(drafters([place / "nowhere"])) == ["nowhere"]


def test_what_cannot_be_run_is_a_row_with_its_reason(place):
    captures = e3.read_captures(place / "captures")
    found = accept_lengths(open_all([place / "läufe", place / "nowhere"]), captures, 2)
    table = compare(found, 2).table()
    assert set(table.index[:2]) == {"best", "one"}
    said = table["beside the first"]
    assert "stream 5 was not recorded" in said["other streams"] and "no such folder" in said["nowhere"]
    assert "broken" in said["broken"]
    drafter = e3.Drafter(e3.open_checkpoint(place / "läufe" / "one"))
    assert table["accept length"]["one"] == e3.acceptance(drafter, captures, e3.Chain(2)).tau(2)
    assert curves.comparison(found, table, 2)._repr_png_()


def command(capsys, *argv):
    return main(["compare", *map(str, argv)]), capsys.readouterr().out


def test_command(place, capsys):
    code, out = command(capsys, place / "läufe", "--captures", place / "captures", "--steps", 2, "--json")
    told = json.loads(out)
    assert code == 11, "two random drafters are not told apart by seven prompts"
    assert [row["checkpoint"] for row in told["comparison"]][2:] == ["broken", "other streams"]
    assert told["comparison"][0]["accept length"] == told["acceptance"][told["comparison"][0]["checkpoint"]][1]["accept length"]
    code, out = command(capsys, place / "läufe", "--captures", place / "captures")
    assert out.startswith("2 of 4 drafters on 7 prompts, K = 3") and "was not recorded" in out


def test_the_notebook_on_other_files(place, tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    given = {"CHECKPOINTS": str(place / "läufe"), "CAPTURES": str(place / "captures"), "TARGET": None, "STEPS": 3}
    done = run(ROOT / "notebooks" / "08_compare_checkpoints.ipynb", tmp_path, **given)
    said = "\n".join(str(o.data.get("text/markdown", "")) for c in code_cells(done) for o in c.outputs if "data" in o)
    assert "cannot be told from it" in said and "Not compared: `other streams`" in said and "nan" not in said
