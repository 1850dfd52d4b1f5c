"""What speaks against a recording is said, and nothing is said against a sound one."""

import pytest
import tiny
import torch
from conftest import ROOT
from test_states import live

import eagle3lib as e3
from eagle3lib.measure.trainers import claimed_row
from eagle3lib.show import results


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A tiny target with its own greedy text, another one of the same sizes, and a drafter's folder."""
    folder = tmp_path_factory.mktemp("checks")
    target, other = tiny.write_target(folder / "target"), tiny.write_target(folder / "other", seed=7)
    return live(target), target, other, tiny.write_drafter(folder / "drafter")


def test_a_sound_recording(recorded):
    captures, target, _, drafter = recorded
    assert len(e3.check_captures(e3.open_checkpoint(drafter, target=target), captures)) == 0
    assert len(e3.check_captures(e3.open_checkpoint(drafter), captures)) == 0  # without the target less can be checked


def test_the_demo_is_sound(demo_captures, target_folder):
    ckpt = e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy", target=target_folder)
    assert len(e3.check_captures(ckpt, demo_captures)) == 0


def test_another_target_of_the_same_sizes(recorded):
    captures, _, other, drafter = recorded
    found = e3.check_captures(e3.open_checkpoint(drafter, target=other), captures)
    assert [f.where for f in found] == ["target", "target"]
    assert "r_0 is not the embedding of its tokens in other" in found[0].what
    assert "another target" in found[1].what


def test_rows_that_do_not_belong_to_the_tokens(recorded):
    captures, target, _, drafter = recorded
    ckpt = e3.open_checkpoint(drafter, target=target)
    shifted = [c.replace(last=c.last.roll(3, 0)) for c in captures]
    assert "another target, or rows of other tokens" in e3.check_captures(ckpt, shifted)[0].what


def test_a_target_that_scales_its_embedding_is_no_fault(recorded):
    captures, target, _, drafter = recorded
    scaled = [c.replace(streams={**c.streams, 0: c.streams[0] * 40}) for c in captures]
    assert len(e3.check_captures(e3.open_checkpoint(drafter, target=target), scaled)) == 0


def test_no_loss_mask_and_rows_of_zeros(tiny_checkpoint):
    capture = tiny.capture()
    everything = capture.replace(loss_mask=torch.arange(len(capture.token_ids)) > 0)
    assert "1 of 1 samples mark every token" in e3.check_captures(tiny_checkpoint, [everything])[0].what
    hole = capture.streams[3].clone()
    hole[4:7] = 0
    found = e3.check_captures(tiny_checkpoint, [capture.replace(streams={**capture.streams, 3: hole})])
    assert "3 rows are all zeros, the first in tiny, stream 3" in found[0].what
    assert found[0].level == "fault"


def test_sampled_text_is_told_and_its_claim_not_judged(recorded):
    """Trainers score against the target's first choice; on sampled text the text's token is another."""
    captures, target, _, drafter = recorded
    ckpt = e3.open_checkpoint(drafter, target=target)
    g = torch.Generator().manual_seed(0)
    half = [torch.where(torch.rand(len(c.token_ids), generator=g) < 0.4, 2, c.token_ids) for c in captures]
    sampled = [
        c.replace(token_ids=ids, streams={n: s for n, s in c.streams.items() if n}) for c, ids in zip(captures, half, strict=True)
    ]
    checks = e3.check_captures(ckpt, sampled)
    assert [f.where for f in checks] == ["text"]
    acc = e3.Accuracy.of(e3.hits(e3.Drafter(ckpt), sampled, 1))
    said = results.accuracies({"x": acc}, checks, claimed_row(e3.trainer_figures(acc), ("SpecForge", "acc_0")), 0.5)
    assert "not compared" in said
    assert "interval" not in said
