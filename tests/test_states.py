"""What is measured of streams, of a checkpoint's tensors, and of the drafter's own state."""

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.measure.inventory import untouched
from eagle3lib.measure.lens import best_tokens
from eagle3lib.measure.state import attention_weights
from eagle3lib.run.attention import attend
from eagle3lib.show import curves, results


@pytest.fixture
def with_target(tmp_path):
    return e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"), target=tiny.write_target(tmp_path / "target"))


def live(target_folder, samples: int = 3):
    """Captures of the tiny target's own greedy text, all layers."""
    target = tiny.loaded(target_folder)
    made = []
    for seed in range(samples):
        prompt = torch.randint(2, tiny.V, (5,), generator=torch.Generator().manual_seed(seed))
        text = target.generate(prompt[None], max_new_tokens=12, do_sample=False, eos_token_id=None)[0]
        made.append(e3.record(target, text, 5, range(tiny.LAYERS + 1), name=f"s{seed}"))
    return made


def test_the_lens_is_the_targets_own_norm_and_head(with_target):
    captures = live(with_target.target.path)
    summary, tokens = e3.logit_lens(captures, with_target.target)
    assert summary.agreement["last"] == 1.0  # greedy text
    assert summary.agreement[tiny.LAYERS] == 1.0  # r_L, taken through the norm
    assert summary.agreement[0] < 1.0
    row = tokens.iloc[0]
    assert captures[0].token_ids[int(row.position) + 1] == row.next
    shifted = [c.replace(last=c.last.roll(1, 0)) for c in captures]
    assert e3.logit_lens(shifted, with_target.target)[0].agreement["last"] < 0.7


def test_the_head_by_blocks_is_the_whole_head(with_target, monkeypatch):
    states = torch.randn(50, tiny.H, generator=torch.Generator().manual_seed(0))
    whole = (states @ with_target.target.head_rows(torch.arange(tiny.V)).float().T).argmax(-1)
    monkeypatch.setattr("eagle3lib.measure.lens.BLOCK", 7)
    assert torch.equal(best_tokens(with_target.target, states), whole)


def test_the_embedding_is_told_from_the_others(with_target):
    found = e3.embedding_distance(live(with_target.target.path), with_target.target.embedding())
    assert found.iloc[0, 0] == pytest.approx(0, abs=1e-6)
    assert found.iloc[1:, 0].min() > 0.1


def test_channels_by_hand():
    rows = torch.ones(9, 4)
    rows[:, 2] = 3.0
    rows[0] = 1000.0  # position 0 is left out
    capture = tiny.capture(T=9, prompt=2, streams=()).replace(streams={5: rows}, last=None, last_kind="none", known={})
    top = e3.massive_channels(e3.channel_profile([capture]), top=1)
    assert top.channel.tolist() == [2]
    assert top.share[0] == pytest.approx(9 / 12)
    assert top["times the median channel"][0] == pytest.approx(3)


def test_shares_of_the_slots_add_up(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture()
    g = capture.joined(drafter.recipe)
    shares = e3.slot_shares(drafter, g)
    torch.testing.assert_close(shares.sum(1), torch.ones(len(g)))
    alone = g.clone()
    alone[:, : 2 * tiny.H] = 0  # only the third slot is left
    torch.testing.assert_close(e3.slot_shares(drafter, alone)[:, 2], torch.ones(len(g)))


def test_attention_weights_are_those_that_mix():
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(6, heads, 8, generator=g) for heads in (4, 2, 2))
    own = [(torch.randn(6, 2, 8, generator=g), torch.randn(6, 2, 8, generator=g)) for _ in range(2)]
    rows = torch.arange(6)
    weights = attention_weights(q, rows, (k, v), own)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, 4))
    values = torch.stack(
        [torch.cat([v[:, h // 2][None].expand(6, -1, -1), *(ov[:, None, h // 2] for _, ov in own)], 1) for h in range(4)], 1
    )
    torch.testing.assert_close(torch.einsum("ths,thsd->thd", weights, values), attend(q, rows, (k, v), own))


def test_the_drafters_state_by_step(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(T=24)
    table = e3.drafter_state(drafter, [capture], steps=3)
    assert table.step.tolist() == [1, 2, 3]
    attention = table[["attention on position 0", "on the rest of the context", "on its own drafts"]]
    assert attention.sum(axis=1).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    assert table["on its own drafts"][0] == 0
    assert e3.drafter_state(drafter, [tiny.capture(T=8)], steps=8).empty


def test_whose_each_tensor_is(tmp_path):
    target = tiny.write_target(tmp_path / "target")
    rows = e3.open_target(target)
    tensors = tiny.drafter_tensors()
    ids = torch.arange(tiny.VD) + tensors["d2t"]
    tensors["embed_tokens.weight"] = rows.embedding().rows(torch.arange(tiny.V))
    tensors["lm_head.weight"] = rows.head_rows(ids).clone()
    tensors["norm.weight"] = torch.ones(tiny.H)
    g = torch.Generator().manual_seed(0)
    tensors["midlayer.mlp.gate_proj.weight"] = 0.02 * torch.randn(tiny.INTER, tiny.H, generator=g)
    found = e3.inventory(e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors), target=target)).provenance
    assert found["embed_tokens.weight"] == "the target's"
    assert found["lm_head.weight"] == "the target's"
    assert found["norm.weight"] in ("the target's", "untouched: all ones")  # the tiny target's norm is ones too
    assert found["fc.weight"] == "its own"
    assert found["d2t"] == "a map of tokens"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda g: 0.02 * torch.randn(256, 256, generator=g), "standard deviation 0.02"),
        (lambda g: (2 * torch.rand(256, 256, generator=g) - 1) / 16, "1 / sqrt(256)"),
        (lambda g: torch.ones(64), "all ones"),
        (lambda g: torch.zeros(64, 64), "all zeros"),
    ],
)
def test_untouched_weights_are_recognised(make, told):
    weight = make(torch.Generator().manual_seed(1))
    assert told in untouched(weight)
    trained = weight + 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)) ** 3
    assert untouched(trained) is None  # a heavy-tailed change, as training makes


def test_what_to_record_names_streams_and_sizes(with_target):
    assert e3.streams_to_record(with_target) == (0, 1, 2, 3, 4, 5, 6)
    plan = e3.what_to_record(with_target, "vllm", prompts=10, tokens=100)
    assert plan.MB[1] == pytest.approx(7 * 10 * 100 * tiny.H * 2 / 1e6)
    with pytest.raises(e3.InputError, match="'llama.cpp' is not one of sglang, vllm, transformers"):
        e3.what_to_record(with_target, "llama.cpp")


def test_a_stream_that_a_sample_lacks_does_not_count_there(with_target):
    a, b = live(with_target.target.path, 2)
    lacking = a.replace(streams={n: s for n, s in a.streams.items() if n != 3}, last=None, last_kind="none")
    alone, both = (e3.logit_lens(some, with_target.target)[0] for some in ([b], [lacking, b]))
    assert both.agreement[3] == alone.agreement[3]
    assert both.agreement["last"] == 1.0
    assert both.rows[3] == alone.rows[3] < both.rows[0]


def test_no_answer_is_long_enough(tiny_checkpoint):
    table = e3.drafter_state(e3.Drafter(tiny_checkpoint), [tiny.capture(T=8)], steps=8)
    assert table.empty
    assert "no answer is long enough" in results.state({"x": table}, {"x": {"slot 1": 1.0}})
    assert curves.state_over_steps({"x": table}, {"x": {"slot 1": 1.0}})._repr_png_()
