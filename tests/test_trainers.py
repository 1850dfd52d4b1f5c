"""Trainers' figures over our hits: by hand, and against `speculators`' own metric code."""

import json
import warnings

import numpy as np
import pytest
import tiny
import torch
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.measure.trainers import claimed_row, trainer_figures, with_best_in_vocabulary
from eagle3lib.run.chain import Hits

METRICS = json.loads((ROOT / "tests" / "truth" / "metrics.json").read_text())["samples"]


def hits_of(sample: dict, number: int) -> Hits:
    """The stored guesses as hits, on the rows that speculators starts from."""
    guess, truth = torch.tensor(sample["guesses"]), torch.tensor(sample["truth"])
    steps, T = guess.shape
    mask = torch.arange(T) >= sample["prompt"]
    hit, scored, written = (torch.zeros(steps, T, dtype=torch.bool) for _ in range(3))
    for k in range(steps):
        hit[k, : T - k] = guess[k, : T - k] == truth[k:]
        written[k, : T - k] = mask[k:]
        scored[k, : T - k] = mask[: T - k] & mask[k:]
    return Hits(str(number), guess, hit, scored, written, torch.ones_like(hit), True)


def test_speculators_figures_are_its_own():
    acc = e3.Accuracy.of([hits_of(sample, i) for i, sample in enumerate(METRICS)])
    table = trainer_figures(acc, acc)
    for k in range(4):
        for name in ("full_acc", "cond_acc"):
            above, below = (sum(s["counts"][f"{name}_{part}_{k}"] for s in METRICS) for part in ("sum", "total"))
            assert 0.1 < above / below < 0.95  # neither trivially right nor wrong
            assert table.here["speculators", f"{name}_{k}"] == pytest.approx(above / below, abs=1e-12)


def test_figures_by_hand():
    rows, right = np.array([[10, 8]]), np.array([[5, 4]])
    acc = e3.Accuracy(("a",), rows, rows, np.array([[8, 6]]), right, np.array([[5, 2]]), np.array([[10, 4]]))
    here = trainer_figures(acc).here
    assert here["SpecForge", "acc_1"] == 4 / 8
    assert here["SpecForge", "simulated_acc_len"] == 0.5 + 0.5 * 0.5
    assert here["TorchSpec", "acc_1"] == 4 / 6
    assert here["Automodel", "accuracy"] == 9 / 14
    assert here["Automodel", "tau_sim"] == 1 + 5 / 10 + 2 / 8
    assert here["DeepSpec", "tau_greedy"] == 1 + 7 / 10
    assert np.isnan(here["ModelOpt", "step_0"])  # needs the target's own choice within the draft vocabulary
    assert trainer_figures(acc, acc).here["ModelOpt", "estimated_training_ar"] == 1 + 0.75


def test_a_figure_that_no_trainer_prints_is_refused():
    acc = e3.Accuracy(("a",), *(np.array([[1]]) for _ in range(6)))
    with pytest.raises(e3.InputError, match="speculators accuracy is not one .* speculators full_acc_0"):
        claimed_row(trainer_figures(acc), ("speculators", "accuracy"))
    with pytest.raises(e3.InputError, match="speculators acc_0 is not one"):
        claimed_row(trainer_figures(acc), ("speculators",))
    assert claimed_row(trainer_figures(acc), None).name == ("SpecForge", "acc_0")  # as in the verdict, where nobody says whose


@pytest.mark.parametrize("kind", ["post_norm", "pre_norm"])
def test_tokens_outside_are_replaced_by_the_targets_best_inside(tmp_path, kind):
    target = tiny.write_target(tmp_path / "target")
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"), target=target)
    capture = tiny.capture(T=30).replace(last_kind=kind)
    drafter = e3.Drafter(ckpt)
    found = [e3.chain_hits(drafter, capture, 2)]
    (anew,) = with_best_in_vocabulary(found, [capture], ckpt)
    inside = found[0].known
    assert torch.equal(anew.hit[inside], found[0].hit[inside])
    state = capture.last
    if kind == "pre_norm":
        state = state / (state.pow(2).mean(-1, keepdim=True) + ckpt.target.eps).sqrt() * ckpt.target.norm()
    best = (state @ ckpt.target.head_rows(torch.arange(tiny.V)).float().T)[:, ckpt.target_ids].argmax(-1)
    k, t = ((~inside) & found[0].scored).nonzero()[0].tolist()
    assert anew.hit[k, t] == (found[0].guess[k, t] == ckpt.target_ids[best[t + 1 + k]])


def test_without_a_last_state_nothing_is_replaced(tiny_checkpoint):
    capture = tiny.capture().replace(last=None, last_kind="none")
    found = [e3.chain_hits(e3.Drafter(tiny_checkpoint), capture, 1)]
    assert with_best_in_vocabulary(found, [capture], tiny_checkpoint) is None


def test_short_texts_give_nan_and_no_warning():
    one, none = np.array([[2, 0]]), np.array([[0, 0]])
    acc = e3.Accuracy(("a",), one, one, one, none, none, one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        here = trainer_figures(acc, acc).here
    assert np.isnan(here["SpecForge", "simulated_acc_len"])
    assert np.isnan(here["Automodel", "tau_sim"])
