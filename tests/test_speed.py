"""What an accept length is worth, on numbers that can be checked by hand."""

import pytest

import eagle3lib as e3
from eagle3lib.measure.speed import Setting, at_most, flat, paid, round_time, speed_table

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
