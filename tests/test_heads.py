"""Published heads: the table is sound, and one's own figure is set where it belongs."""

import pytest

from eagle3lib.judge.heads import HEADS, LONGEST, beside_heads, heads_at, lowest


def test_every_figure_is_possible_and_has_a_source():
    for head in HEADS:
        for lengths in head.lengths.values():
            assert all(1 < tau < K + 1 for K, tau in lengths.items()), head
            assert list(lengths.values()) == sorted(lengths.values()), head  # a longer chain of one head accepts no less
    for K in range(1, LONGEST + 1):
        assert heads_at(K)["source"].str.contains(r"#\d+|model card of|num_speculative_tokens").all()


def test_lowest_is_the_first_row():
    assert lowest(2) == heads_at(2)["accept length"].min() == 1.79
    assert lowest(LONGEST + 1) is None
    assert heads_at(LONGEST + 1).empty


@pytest.mark.parametrize(
    "tau, low, high, said",
    [(1.59, 1.5, 1.7, "below the lowest of"), (2.0, 1.9, 2.1, "higher than 0 of"), (2.8, 2.7, 2.9, "higher than"),
     (3.9, 3.8, 3.95, "above the highest of")],
)  # fmt: skip
def test_beside(tau, low, high, said):
    finding = beside_heads(tau, low, high, 3)
    assert finding.level == "note"
    assert said in finding.what
    assert f"({lowest(3):.2f} to" in finding.what


def test_nothing_is_published_at_that_many_steps():
    assert "no figure is published" in beside_heads(3.0, 2.9, 3.1, 15).what
