"""The manual forward is the reference's: logits of `speculators` 0.9.0 on the same weights and inputs (stored vectors)."""

from pathlib import Path

import pytest
import torch
from conftest import ROOT
from safetensors.torch import load_file
from teacher import distance, teacher_forced

import eagle3lib as e3

VECTORS = sorted((Path(__file__).parent / "truth" / "vectors").iterdir())
TOLERANCE = 1e-4  # logits are of order 1; one wrong norm, flag, position or head moves them by 2e-2 or more (truth/README.md)


def test_all_cases_are_there():
    assert len(VECTORS) == 28


@pytest.mark.parametrize("folder", VECTORS, ids=lambda folder: folder.name)
def test_logits_equal_speculators(folder):
    drafter = e3.Drafter(e3.open_checkpoint(folder))
    stored = load_file(folder / "reference.safetensors")
    for step, rows, out in teacher_forced(drafter, stored["g"], stored["ids"], len(stored["valid"])):
        assert torch.equal(rows, stored["valid"][step].nonzero()[:, 0])
        torch.testing.assert_close(drafter.logits(out.normed), stored["logits"][step, rows], atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(out.feed, stored["hidden"][step, rows], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("name", "streams"), [("healthy", (2, 15, 27)), ("embedding_fed", (0, 2, 15))])
def test_demo_drafters_equal_speculators(name, streams, target_folder, demo_captures):
    """The last rows of one committed capture, by `truth/live_demo.py`; all rows of all captures in `make truth`."""
    stored = load_file(Path(__file__).parent / "truth" / "demo" / f"{name}.safetensors")
    stored = {key.removesuffix(".0"): tensor for key, tensor in stored.items()}
    ckpt = e3.open_checkpoint(ROOT / "data" / "drafters" / name, target=target_folder)
    drafter, capture = e3.Drafter(ckpt, ckpt.recipe.replace(streams=streams)), demo_captures[0]
    worst, other, held = distance(drafter, capture.joined(drafter.recipe), capture.token_ids, stored)
    assert held > 30
    assert worst < 10 * TOLERANCE  # logits here reach 30, and states some thousands
    assert other == 0


@pytest.mark.parametrize("flag", ["norm_before_residual", "norm_output"])
def test_a_wrong_flag_is_seen(flag):
    """The vectors can fail: flip one flag and the logits move far beyond the tolerance."""
    folder = next(f for f in VECTORS if f.name == "llama_plain")
    ckpt = e3.open_checkpoint(folder)
    reference = load_file(folder / "reference.safetensors")
    drafter = e3.Drafter(ckpt, ckpt.recipe.replace(**{flag: True}))
    found = {step: drafter.logits(out.normed) for step, _, out in teacher_forced(drafter, reference["g"], reference["ids"], 2)}
    assert (found[1] - reference["logits"][1, : len(found[1])]).abs().max() > 100 * TOLERANCE


def test_trace_names_every_intermediate(tiny_checkpoint):
    import tiny

    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture()
    rows, trace = torch.arange(10), {}
    hidden = drafter.fuse(capture.joined(tiny_checkpoint.recipe)[rows], trace)
    drafter.forward(hidden, capture.token_ids[rows + 1], rows, e3.Memory(), trace=trace)
    shapes = {name: tuple(tensor.shape) for name, tensor in trace.items()}
    assert shapes["fc"] == (10, tiny.H)
    assert shapes["layers.0.fused"] == (10, 2 * tiny.H)
    assert shapes["layers.0.self_attn.q"] == (10, tiny.HEADS, tiny.D)
    assert shapes["layers.0.self_attn.k"] == (10, tiny.KV, tiny.D)
    assert shapes["layers.0.mlp.gated"] == (10, tiny.INTER)
    assert {"embedding", "layers.0.input_layernorm", "layers.0.hidden_norm", "norm", "feed"} <= set(shapes)
