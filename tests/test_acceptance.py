"""Counters, and what is derived from them."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.measure.acceptance import count, spans, walk
from eagle3lib.measure.intervals import ratio_interval
from eagle3lib.run.chain import Hits


def hits_of(rows: list[int], steps: int, name: str = "a") -> Hits:
    """A sample whose row t has rows[t] leading hits and nothing right after a miss."""
    T = len(rows) + 2
    hit = torch.zeros(steps, T, dtype=torch.bool)
    scored = torch.zeros(steps, T, dtype=torch.bool)
    for k in range(steps):
        scored[k, : max(T - 2 - k, 0)] = True
        hit[k, : len(rows)] = torch.tensor(rows) > k
    guess = torch.where(hit & scored, 7, 8)
    return Hits(name, guess, hit & scored, scored, scored, torch.ones_like(hit), True)


def test_accept_length_by_hand():
    found = count(hits_of([2, 0, 0, 1, 0, 0], 2), 2)
    # K = 2: row 0 accepts 2 -> row 3 accepts 1 -> row 5 accepts 0
    assert found.walks[2]["a"].tolist() == [1, 1, 1]
    assert found.tau(2) == 1 + 3 / 3
    # K = 1: row 0 accepts 1 -> row 2: 0 -> row 3: 1 -> row 5: 0
    assert found.walks[1]["a"].tolist() == [2, 2]
    assert found.tau(1) == 1.5
    # all starts at K = 2: the last row lacks its second token, and is left out
    assert found.starts[2]["a"].tolist() == [3, 1, 1]
    assert found.per_position(2).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_a_second_answer_is_walked_on_its_own():
    scored = np.array([0, 1, 1, 1, 0, 0, 1, 1, 0], dtype=bool)
    assert spans(scored) == [(1, 4), (6, 8)]


def test_adding_is_adding_counts():
    a, b = count(hits_of([1, 0, 1], 2), 2), count(hits_of([0, 0, 2, 0], 2, name="b"), 2)
    both = a + b
    assert both.counts(2).sum() == a.counts(2).sum() + b.counts(2).sum()
    assert (a + a).walks[1]["a"].tolist() == (2 * a.walks[1]["a"]).tolist()
    assert (a + b).tau(2) == (b + a).tau(2)
    with pytest.raises(e3.InputError, match="same draft steps"):
        a + count(hits_of([1], 1), 1)


def test_a_step_count_that_was_not_run_is_refused():
    with pytest.raises(e3.InputError, match="K = 5 was not run; there are 1, 2"):
        count(hits_of([1, 0], 2), 2).tau(5)


def test_accuracy_by_hand():
    found = e3.Accuracy.of([hits_of([2, 0, 0, 1, 0, 0], 2)])
    table = found.table()
    assert table.marginal.tolist() == pytest.approx([2 / 6, 1 / 5])
    assert table.joint.tolist() == pytest.approx([2 / 6, 1 / 5])
    assert table.conditional[2] == pytest.approx(1 / 2)  # rows 0 and 3 were right at step 1; row 0 again at step 2


def test_tokens_outside_the_draft_vocabulary_are_counted_both_ways():
    one = hits_of([1, 0, 1, 0], 1)
    known = one.known.clone()
    known[0, 1] = False
    table = e3.Accuracy.of([replace(one, known=known)]).table()
    assert table.marginal[1] == pytest.approx(2 / 4)
    assert table["marginal, others left out"][1] == pytest.approx(2 / 3)
    assert table["in draft vocabulary"][1] == pytest.approx(3 / 4)


def test_mean_of_requests_is_not_the_pooled_accept_length():
    found = e3.Acceptance.of([hits_of([1, 0, 1, 0], 1), hits_of([0, 0, 0, 0, 0, 0], 1, name="b")])
    assert found.requests(1)["accept length"].tolist() == [2.0, 1.0]  # 2 rounds with 2 accepted; 6 rounds with none
    assert found.mean_of_requests(1)[0] == pytest.approx(1.5)
    assert found.tau(1) == pytest.approx(1 + 2 / 8)


def test_accept_length_by_position():
    found = e3.by_position([hits_of([1, 0, 1, 1, 0, 0], 1), hits_of([0, 1], 1, name="b")], 1, width=4)
    assert found["from"].tolist() == [0, 4]
    assert found.starts.tolist() == [5, 3]  # rows 0..2 of both (b has two), then rows 3..5
    assert found["accept length"].tolist() == pytest.approx([1 + 3 / 5, 1 + 1 / 3])
    assert np.isnan(found.low[1])  # from one sample nothing can be said of the spread


def test_interval_is_over_samples_not_tokens():
    """Forty samples whose rates differ: the interval must be far wider than that of as many independent tokens."""
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.1, 0.9, 40)
    below = np.full(40, 500.0)
    above = rng.binomial(500, rates).astype(float)
    low, high = ratio_interval(above, below)
    assert low < above.sum() / below.sum() < high
    assert high - low > 4 * 1.96 * np.sqrt(0.25 / below.sum())


def test_interval_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        rates = rng.beta(4, 6, 24)
        low, high = ratio_interval(rng.binomial(80, rates).astype(float), np.full(24, 80.0))
        covered += low <= 0.4 <= high
    assert covered >= 48  # 57 expected; percentile intervals of 24 samples are a little short


def test_one_sample_has_no_interval():
    assert all(np.isnan(ratio_interval(np.array([3.0]), np.array([9.0]))))


def test_nothing_to_draft_from_is_said(tiny_checkpoint):
    capture = tiny.capture(prompt=20)
    with pytest.raises(e3.InputError, match="no row to draft from"):
        e3.acceptance(e3.Drafter(tiny_checkpoint), [capture], e3.Chain(2))
    with pytest.raises(e3.InputError, match="no row to score"):
        e3.accuracy(e3.Drafter(tiny_checkpoint), [capture], 2)


def test_walk_stops_at_the_end():
    assert walk(np.array([1, 5, 0]), 0, 3, 8) == [1, 0]
    assert walk(np.array([0, 0]), -1, 2, 3) == []


def test_samples_of_one_name_are_all_kept(tiny_checkpoint):
    """Even where a sample's own name is what another would be renamed to."""
    captures = [tiny.capture(seed=i, name=name) for i, name in enumerate(["a (2)", "a", "a", "a (2)"])]
    found = e3.hits(e3.Drafter(tiny_checkpoint), captures, 1)
    assert len({one.name for one in found}) == 4
    assert e3.Acceptance.of(found).counts(1).shape[0] == 4
