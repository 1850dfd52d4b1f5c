"""What an accept length is worth, on numbers that can be checked by hand."""

import pytest
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.measure.speed import RoundTime, Setting, at_most, flat, paid, round_time, speed_table, speeds

TWO = [Setting(1, 50.0, 1.5), Setting(3, 50.0, 2.0)]  # 30 ms and 40 ms a round


def test_round_time_break_even_and_ceiling():
    table = paid(TWO, baseline=100.0)
    assert table["ms a round"].tolist() == pytest.approx([30, 40])
    assert table["break-even accept length"].tolist() == pytest.approx([3, 4])
    assert table["ceiling, tokens a second"].tolist() == pytest.approx([2 / 0.03, 4 / 0.04])


def test_the_line_through_two_settings():
    times = round_time(TWO)
    assert (times.first, times.step) == pytest.approx((0.025, 0.005))
    assert times.at(5) == pytest.approx(0.05)
    with pytest.raises(e3.InputError, match="two different ones"):
        round_time(TWO[:1] * 2)


def made(K, B, first=0.02, step=0.003, token=0.0004, step_request=0.0001):
    """A setting whose round takes exactly what the four terms say."""
    t = first + step * K + token * B * (K + 1) + step_request * B * K
    tau = 1 + K / 3
    return Setting(K, B * tau / t, tau, batch=B)


def test_as_many_terms_as_the_settings_carry():
    grid = [made(K, B) for K in (0, 1, 3) for B in (1, 8)]
    times = round_time(grid)
    assert (times.first, times.step, times.token, times.step_request) == pytest.approx((0.02, 0.003, 0.0004, 0.0001))
    assert times.off < 1e-9 and times.settings == 6
    assert times.at(5, 32) == pytest.approx(0.02 + 0.015 + 0.0004 * 32 * 6 + 0.0001 * 32 * 5)
    one_batch = round_time([made(K, 8) for K in (1, 3, 5)])
    assert one_batch.terms == ["first", "step"] and one_batch.at(4, 8) == pytest.approx(made(4, 8).round_time)
    one_K = round_time([made(3, B) for B in (1, 8)])
    assert one_K.terms == ["first", "token"] and one_K.at(3, 4) == pytest.approx(made(3, 4).round_time)


def test_settings_that_no_line_fits_are_said_to_differ():
    times = round_time([Setting(1, 50.0, 1.5), Setting(3, 50.0, 2.0), Setting(5, 20.0, 2.0)])
    assert times.off > 0.1


def test_the_best_number_of_draft_steps_is_a_trade(demo_captures):
    """More steps accept more; where each costs a tenth of a round the best K is small, where none does it is the largest."""
    acceptance = e3.vocabulary_ceiling(e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy"), demo_captures, 6)
    dear, free = (speeds(RoundTime(0.02, step), acceptance, baseline=50.0) for step in (0.02, 0.0))
    assert free["tokens a second"].idxmax() == 6 > dear["tokens a second"].idxmax()
    row = dear.loc[2]
    assert row["ms a round"] == pytest.approx(60) and row["break-even accept length"] == pytest.approx(3.0)
    assert row["tokens a second"] == pytest.approx(acceptance.tau(2) / 0.06)
    assert row["over baseline, perfect"] == pytest.approx(3 / 0.06 / 50)
    assert speeds(RoundTime(0.02, 0.01), acceptance)["over baseline"][1] == pytest.approx(acceptance.tau(1) / 0.03 * 0.02)


def test_what_an_accuracy_suggests_and_allows():
    assert flat(0.5, 2) == 1.75
    assert at_most(0.5, 2) == 2.0
    table = speed_table(round_time(TWO), 100.0, 0.5, [1, 2])
    assert table["over baseline, perfect"][1] == pytest.approx(2 / 0.03 / 100)
    assert table["over baseline, flat"][2] == pytest.approx(1.75 / 0.035 / 100)


@pytest.mark.parametrize("setting", [(1, 50.0, 2.5), (1, 0.0, 1.5), (1, 50.0, 0.9)])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(e3.InputError, match="expected more than 0, and an accept length from 1 to K"):
        Setting(*setting)
