"""Drafting at every row at once equals drafting one round at a time, as plainly as it can be written."""

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.measure.acceptance import count, walk
from eagle3lib.run.attention import attend
from eagle3lib.run.chain import chain_hits, draft_slowly, fused_rows, hits_together, scored_rows, together
from eagle3lib.run.device import CPU_BLOCK, block_size
from eagle3lib.run.drafter import Memory

STEPS = 4


@pytest.fixture
def easy(tmp_path):
    """A drafter and a text that it gets right rather often: the text follows the drafter's own guesses two times in three."""
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"))
    drafter, capture = e3.Drafter(ckpt), tiny.capture(T=40, prompt=5)
    ids, g = capture.token_ids.clone(), capture.joined(ckpt.recipe)
    for t in range(5, 38):
        if t % 3:
            ids[t + 2] = draft_slowly(drafter, g[: t + 1], ids[: t + 2], 1)[0]
    return drafter, capture.replace(token_ids=ids)


@pytest.mark.parametrize("changes", [{}, {"norm_output": True}, {"norm_before_residual": True}])
def test_fast_equals_slow(easy, changes):
    drafter, capture = easy
    drafter = drafter.with_recipe(drafter.recipe.replace(**changes))
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    leading = e3.chain_hits(drafter, capture, STEPS).leading()
    slowly = []
    for t in scored_rows(capture.loss_mask, 0).tolist():
        drafts = draft_slowly(drafter, g[: t + 1], ids[: t + 2], STEPS)
        true = ids[t + 2 : t + 2 + STEPS].tolist()
        slowly.append(next((k for k, token in enumerate(true) if drafts[k] != token), len(true)))
    assert slowly == leading[scored_rows(capture.loss_mask, 0)].tolist()
    assert sum(slowly) > 5  # something was right, or nothing was tested


def test_stopping_at_a_miss_changes_no_accept_length(easy):
    drafter, capture = easy
    full, short = (e3.chain_hits(drafter, capture, STEPS, complete=c) for c in (True, False))
    assert torch.equal(full.leading(), short.leading())
    assert full.hit.sum() > short.hit.sum()  # later hits after a miss are only in the full one


def test_walk_starts_rounds_where_an_engine_would(easy):
    drafter, capture = easy
    hits = e3.chain_hits(drafter, capture, STEPS)
    text, rounds = capture.token_ids, []
    row = 4  # prompt of 5 tokens: the first round starts at row P - 1
    while row + 2 < len(text):
        drafts = draft_slowly(drafter, capture.joined(drafter.recipe)[: row + 1], text[: row + 2], 3)
        left = text[row + 2 : row + 5].tolist()
        rounds.append(next((k for k, token in enumerate(left) if drafts[k] != token), len(left)))
        row += rounds[-1] + 1
    assert hits.start() == 4
    assert walk(hits.leading().numpy(), hits.start(), len(text) - 2, 3) == rounds
    assert count(hits, 3).walks[3]["tiny"].tolist() == [rounds.count(a) for a in range(4)]


def test_attention_in_blocks_equals_attention_at_once():
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(12, heads, 8, generator=g) for heads in (4, 2, 2))
    rows, own = torch.arange(12), [(torch.randn(12, 2, 8, generator=g), torch.randn(12, 2, 8, generator=g))]
    whole = attend(q, rows, (k, v), own)
    torch.testing.assert_close(attend(q, rows, (k, v), own, block=12 * 4 * 5), whole)


def test_blocks_are_sized_to_what_a_gpu_has_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 10**9, 80 * 10**9))
    assert block_size(torch.device("cuda")) * 4 == pytest.approx(2 * 10**9)  # bytes
    assert block_size(torch.device("cpu")) == CPU_BLOCK


def test_guesses_and_what_can_be_guessed(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(T=20, prompt=5)
    found = e3.chain_hits(drafter, capture, 2)
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    assert found.guess[0, 9] == draft_slowly(drafter, g[:10], ids[:11], 1)[0]
    sayable = set(drafter.target_ids.tolist())
    assert found.known[1, :17].tolist() == [int(token) in sayable for token in ids[3:]]
    assert not (found.hit & ~found.known).any()
    assert found.written[0].tolist() == [token >= 5 for token in range(2, 20)] + [False, False]


def test_log_probabilities_are_those_of_the_draft_vocabulary(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(T=20, prompt=5)
    found, plain = chain_hits(drafter, capture, 2, temperature=1.0), chain_hits(drafter, capture, 2)
    assert plain.log_p is None and torch.equal(found.guess, plain.guess)
    told = found.log_p.isfinite()
    assert torch.equal(told, found.known & (found.guess >= 0))
    assert (found.log_p[found.hit].exp() > 1 / len(drafter.target_ids)).all()  # the likeliest is above the mean
    rows = torch.arange(18)
    out = drafter.forward(fused_rows(drafter, capture)[rows], capture.token_ids[rows + 1], rows, Memory())
    slow = drafter.logits(out.normed).log_softmax(-1)
    places = {int(token): place for place, token in enumerate(drafter.target_ids)}
    for row in told[0].nonzero()[:, 0].tolist():
        expected = slow[row, places[int(capture.token_ids[row + 2])]]
        torch.testing.assert_close(found.log_p[0, row], expected)


def test_parallel_drafts_are_one_causal_pass(tmp_path):
    """P-EAGLE drafts all K tokens at once: the text's rows, then `mask_hidden` with the mask token, K - 1 times."""
    mask, K, t = 7, 4, 9
    tensors = tiny.drafter_tensors() | {"mask_hidden": torch.randn(1, 1, 3 * tiny.H)}
    tensors["midlayer.self_attn.q_proj.weight"] *= 3  # sharp enough for attention to matter
    drafter = e3.Drafter(e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors, mask_token_id=mask)))
    capture = tiny.capture(T=20, prompt=5)
    found = chain_hits(drafter, capture, K)
    context, masked = fused_rows(drafter, capture)[: t + 1], drafter.fuse(tensors["mask_hidden"].view(1, -1))
    hidden = torch.cat([context, masked.expand(K - 1, -1)])
    ids = torch.cat([capture.token_ids[1 : t + 2], torch.full((K - 1,), mask)])
    whole = e3.Drafter(drafter_without_mask(tensors, tmp_path)).forward(hidden, ids, torch.arange(t + K), Memory())
    assert found.guess[:, t].tolist() == drafter.predict(whole.normed[t:]).tolist()
    other = capture.replace(token_ids=capture.token_ids.clone().index_fill_(0, torch.arange(t + 2, 20), 0))
    assert torch.equal(chain_hits(drafter, other, K).guess[:, t], found.guess[:, t])  # tokens to come are not looked at


def drafter_without_mask(tensors: dict, folder) -> e3.Checkpoint:
    """The same weights, drafting one token after the other."""
    plain = {name: tensor for name, tensor in tensors.items() if name != "mask_hidden"}
    return e3.open_checkpoint(tiny.write_drafter(folder / "plain", plain))


def test_positions_beyond_what_a_rope_says_are_refused(tmp_path):
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    folder = tiny.write_drafter(tmp_path / "drafter", rope_scaling=scaling, max_position_embeddings=16)
    drafter = e3.Drafter(e3.open_checkpoint(folder))
    chain_hits(drafter, tiny.capture(T=15), 2)
    with pytest.raises(e3.InputError, match="dynamic from position 16 on, and beyond it this library does not go"):
        chain_hits(drafter, tiny.capture(T=24), 2)


def test_rows_that_can_be_scored():
    mask = torch.tensor([0, 0, 1, 1, 1, 0, 1], dtype=torch.bool)
    assert scored_rows(mask, 0).tolist() == [1, 2]  # x_{t+1} and x_{t+2} written by the target
    assert scored_rows(mask, 1).tolist() == [1]
    assert scored_rows(mask, 5).tolist() == []
    assert scored_rows(mask[:2], 0).tolist() == []


@pytest.mark.parametrize("steps", [0, -1, True])
def test_steps_that_are_none_are_refused(steps):
    with pytest.raises(e3.InputError, match="draft steps, expected a whole number"):
        e3.Chain(steps)


@pytest.mark.parametrize("T", [1, 2, 3])
def test_very_short_samples_count_nothing_and_stop_nothing(tiny_checkpoint, T):
    drafter, short = e3.Drafter(tiny_checkpoint), tiny.capture(T=T, prompt=1, name="short")
    assert e3.chain_hits(drafter, short, 2).scored.sum() == max(T - 2, 0)
    both = [tiny.capture(), short]
    assert e3.acceptance(drafter, both, e3.Chain(2)).tau(2) >= 1
    assert e3.accuracy(drafter, both, 2).rows.sum() > 0


def test_two_samples_of_one_name_are_two(tiny_checkpoint):
    found = e3.acceptance(e3.Drafter(tiny_checkpoint), [tiny.capture(seed=1), tiny.capture(seed=2)], e3.Chain(2))
    assert len(found.counts(2)) == 2


def test_states_that_are_no_numbers_are_said(tiny_checkpoint):
    capture = tiny.capture()
    capture.streams[3][7, 1] = float("nan")
    with pytest.raises(e3.InputError, match="tiny: NaN or infinite states in 1 rows, first row 7"):
        e3.chain_hits(e3.Drafter(tiny_checkpoint), capture, 1)


def test_weights_that_are_no_numbers_are_said(tmp_path):
    tensors = tiny.drafter_tensors()
    tensors["fc.weight"][0, 0] = float("nan")
    with pytest.raises(e3.InputError, match="fc.weight holds NaN"):
        e3.Drafter(e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors)))


def test_a_norm_that_the_checkpoint_lacks(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="has no input_norm.weight"):
        e3.Drafter(tiny_checkpoint, tiny_checkpoint.recipe.replace(norm_before_fc=True))


@pytest.mark.parametrize("complete", [True, False])
def test_samples_drafted_together_are_those_drafted_alone(tiny_checkpoint, complete):
    """Also where one has nothing to score, one is too short, and lengths differ."""
    drafter = e3.Drafter(tiny_checkpoint)
    some = [tiny.capture(T=T, prompt=P, seed=T) for T, P in ((20, 6), (9, 3), (2, 1), (31, 30), (15, 4), (26, 5))]
    found = hits_together(drafter, some, 4, complete, temperature=0.7)
    for one, capture in zip(found, some, strict=True):
        alone = chain_hits(drafter, capture, 4, complete, temperature=0.7)
        for name in ("guess", "hit", "scored", "written", "known"):
            assert torch.equal(getattr(one, name), getattr(alone, name)), name
        torch.testing.assert_close(one.log_p, alone.log_p, equal_nan=True)
    assert any(one.hit.any() for one in found)


def test_groups_keep_the_order_and_every_sample():
    some = [tiny.capture(T=T, seed=T) for T in (20, 9, 31, 15, 26)]
    groups = list(together(some, rows=30))
    assert [len(group) for group in groups] == [3, 2] and [c for group in groups for c in group] == some
