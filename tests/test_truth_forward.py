"""The manual forward is the reference's: logits of `speculators` 0.9.0 on the same weights and inputs (stored vectors)."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import eagle3lib as e3

VECTORS = sorted((Path(__file__).parent / "truth" / "vectors").iterdir())
TOLERANCE = 1e-4  # logits are of order 1; one wrong norm, flag, position or head moves them by 2e-2 or more (truth/README.md)


def test_all_cases_are_there():
    assert len(VECTORS) == 28


@pytest.mark.parametrize("folder", VECTORS, ids=lambda folder: folder.name)
def test_logits_equal_speculators(folder):
    drafter = e3.Drafter(e3.open_checkpoint(folder))
    reference = load_file(folder / "reference.safetensors")
    ids, g, valid = reference["ids"], reference["g"], reference["valid"]
    rows = torch.arange(len(ids) - 1)
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    for step in range(len(valid)):
        keep = valid[step, rows]
        rows, out = rows[keep], out.rows(keep)
        if step:
            out = drafter.forward(out.feed, ids[rows + 1 + step], rows, out.memory, step)
        torch.testing.assert_close(drafter.logits(out.normed), reference["logits"][step, rows], atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(out.feed, reference["hidden"][step, rows], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("flag", ["norm_before_residual", "norm_output"])
def test_a_wrong_flag_is_seen(flag):
    """The vectors can fail: flip one flag and the logits move far beyond the tolerance."""
    folder = next(f for f in VECTORS if f.name == "llama_plain")
    ckpt = e3.open_checkpoint(folder)
    reference = load_file(folder / "reference.safetensors")
    drafter = e3.Drafter(ckpt, ckpt.recipe.replace(**{flag: True}))
    ids, g = reference["ids"], reference["g"]
    rows = torch.arange(len(ids) - 2)
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    out = drafter.forward(out.feed, ids[rows + 2], rows, out.memory, 1)
    assert (drafter.logits(out.normed) - reference["logits"][1, rows]).abs().max() > 100 * TOLERANCE


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
