"""Measured speeds as notebooks are given them, and what is said of them."""

import json

import pytest
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.measure.speed import Setting
from eagle3lib.show import speeds

TEXTS = ["K=0 tok/s=100", "K=1 tok/s=90 tau=1.5", "K=3 tok/s=80 tau=2"]


@pytest.fixture(scope="module")
def lengths(demo_captures):
    ckpt = e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy")
    return {"perfect within its vocabulary": e3.vocabulary_ceiling(ckpt, demo_captures, 5)}


def test_texts_and_files_are_settings():
    settings, baseline = speeds.measured(TEXTS, "healthy")
    assert [(s.steps, s.tokens_per_second, s.accept_length) for s in settings] == [(1, 90, 1.5), (3, 80, 2)] and baseline == 100
    assert speeds.measured(None, "healthy") == ([], None)
    file = ROOT / "data" / "serving" / "runs.json"
    settings, baseline = speeds.measured(file, "healthy")
    told = json.loads(file.read_text())
    assert baseline == told["baseline"]["tokens_per_second"] and {s.batch for s in settings} == {
        told["stamp"]["requests_at_once"]
    }
    assert {s.steps for s in settings} == {1, 3, 5} and all("healthy" in s.name for s in settings)
    with pytest.raises(e3.InputError, match="expected"):
        speeds.measured(["fast"], "healthy")
    with pytest.raises(e3.InputError, match="K=1 tok/s=90: no such file of measured speeds"):
        speeds.measured("K=1 tok/s=90", "healthy")


def test_the_sentence_says_the_best_k(lengths):
    settings, baseline = speeds.measured(TEXTS, "x")
    tables = speeds.bought(lengths, settings, baseline)
    table = tables["perfect within its vocabulary"]
    said = speeds.reading(tables, settings, baseline)
    assert f"best at **K = {table['tokens a second'].idxmax()}**" in said
    assert "2 measured runs at 2 settings carry 2 numbers" in said
    assert "at K = 5, beyond the measured K = 3, it would be" in said
    assert "beyond" not in speeds.reading({"x": table.loc[:3]}, settings, baseline)
    assert speeds.picture(tables, settings, baseline)._repr_png_()
    # by hand: a round of K = 1 took 1.5 / 90 s, of K = 3 2 / 80 s
    assert table["ms a round"][1] == pytest.approx(1500 / 90) and table["ms a round"][2] == pytest.approx((1500 / 90 + 25) / 2)


def test_one_setting_needs_the_server_without_drafter(lengths):
    settings, baseline = speeds.measured(TEXTS[:2], "x")
    assert speeds.fitted(settings, baseline).at(0) == pytest.approx(0.01)
    assert speeds.bought(lengths, settings, None) == {}
    assert speeds.reading({}, settings, None).startswith("Not told")
    assert speeds.reading({}, [], None).startswith("Not told")


def test_a_step_that_seems_to_take_no_time_is_not_extrapolated():
    noisy = [Setting(1, 90.0, 1.33), Setting(3, 110.0, 1.46)]  # rounds of 14.8 and 13.3 ms
    assert speeds.fitted(noisy, None) is None
    assert "a further step takes time" in speeds.reading({}, noisy, None)
