"""Hypotheses change one thing and nothing else, the fast sum is `fc`, and what a race drops was hopeless."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.judge.hypotheses import shifted, single_changes, streams_are
from eagle3lib.judge.ranking import SCREEN, Score, below, p_value, prompts_needed, race
from eagle3lib.run.chain import fused_rows
from eagle3lib.run.slots import Slots

FLAGS = ({}, {"norm_before_fc": True}, {"fc_norm": True})


@pytest.mark.parametrize("flags", FLAGS)
def test_a_sum_over_slots_is_fc(tmp_path, flags):
    """Slots.fused is the slow obvious join, norm and fc, for every choice of streams."""
    tensors = tiny.drafter_tensors()
    if "norm_before_fc" in flags:
        tensors["input_norm.weight"] = 1 + torch.rand(3 * tiny.H)
    if "fc_norm" in flags:
        tensors |= {f"fc_norm.{i}.weight": 1 + torch.rand(tiny.H) for i in range(3)}
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors, **flags))
    drafter, capture = e3.Drafter(ckpt), tiny.capture()
    slots = Slots(drafter, capture, [0, 2, 3, 4])
    for streams in ((2, 3, 4), (4, 0, 3), (0, 0, 2)):
        slow = fused_rows(drafter.with_recipe(drafter.recipe.replace(streams=streams)), capture)
        torch.testing.assert_close(slots.fused(streams), slow, rtol=1e-4, atol=1e-5)


def test_each_changes_something_and_touches_nothing(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(streams=(0, 1, 2, 3, 4))
    weights = {name: tensor.clone() for name, tensor in drafter.weights.items()}
    states = {n: capture.stream(n).clone() for n in capture.streams}
    plain = e3.chain_hits(drafter, capture, 3).guess
    hypotheses = [*single_changes(drafter, tiny_checkpoint, [0, 1, 2, 3, 4], last=True), streams_are((4, 3, 2))]
    assert len({h.name for h in hypotheses}) == len(hypotheses) > 30
    same = [h.name for h in hypotheses if torch.equal(e3.chain_hits(*h.apply(drafter, capture), 3).guess, plain)]
    assert set(same) <= {"rope positions divided by 0.25"} | {h.name for h in hypotheses if h.kind in ("rope", "positions")}
    assert torch.equal(e3.chain_hits(drafter, capture, 3).guess, plain)
    assert all(torch.equal(drafter.weights[name], tensor) for name, tensor in weights.items())
    assert all(torch.equal(capture.stream(n), rows) for n, rows in states.items())


def test_a_residual_is_only_judged_with_its_neighbour(tiny_checkpoint):
    drafter = e3.Drafter(tiny_checkpoint)
    kinds = {h.kind for h in single_changes(drafter, tiny_checkpoint, [0, 2, 3, 4])}
    assert "residual" not in kinds  # r_1 is not there
    assert "residual" in {h.kind for h in single_changes(drafter, tiny_checkpoint, [1, 2, 3, 4])}


def test_shifted_rows():
    rows = torch.arange(5.0)[:, None]
    assert shifted(rows, 1)[:, 0].tolist() == [1, 2, 3, 4, 4]
    assert shifted(rows, -2)[:, 0].tolist() == [0, 0, 0, 1, 2]


def test_a_race_drops_the_hopeless_and_keeps_the_rest():
    truth, calls = {"good": 60, "near": 58, "bad": 10}, []

    def run(i, names):
        calls.append(tuple(names))
        return {name: (truth[name] + (i * 7 + len(name)) % 5, 100, -1.0) for name in names}

    scores = race(list(truth), 20, run, lambda name, shares: below(shares[name] - shares["good"]))
    assert calls[SCREEN - 1] == ("good", "near", "bad")
    assert "bad" not in calls[SCREEN]
    assert len(scores["bad"].rows) == SCREEN
    assert len(scores["good"].rows) == 20


def test_p_values_need_samples():
    few, many = (Score(np.arange(n) % 3 + 50, np.full(n, 100)) for n in (5, 20))
    lower_few, lower_many = (Score(s.right - 30, s.rows) for s in (few, many))
    assert p_value(few, lower_few, 24) == 1.0  # 2 / 2^5, times 24
    assert p_value(many, lower_many, 24) < 0.001
    assert np.isnan(p_value(many, many, 24))


def test_prompts_are_not_extrapolated_from_nothing():
    rng = np.random.default_rng(0)
    a = Score(rng.integers(40, 60, 5), np.full(5, 100))
    b = Score(rng.integers(40, 60, 5), np.full(5, 100))
    assert prompts_needed(a, b, 24) is None  # five samples say nothing of a spread
    wide = np.tile([30, 70], 20)
    assert prompts_needed(Score(wide, np.full(40, 100)), Score(wide[::-1] + (np.arange(40) == 0), np.full(40, 100)), 24) is None


def scored(share: float, log_p: float, n: int = 20) -> Score:
    wave = np.arange(n) % 3
    return Score((100 * share + wave).astype(np.int64), np.full(n, 100), log_p=log_p + wave[::-1] / 100)


def test_log_probability_tells_where_right_guesses_hardly_do():
    a, b = scored(0.50, -1.0), scored(0.51, -0.9)
    assert p_value(b, a, 60) < 0.001
    assert p_value(b, replace(a, log_p=np.full(20, np.nan)), 60) < 0.001  # a map's do not compare: by right guesses then
    assert p_value(scored(0.51, -1.1), a, 60) == 1.0  # the two point opposite ways
