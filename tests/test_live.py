"""The predicted accept length is the real one: the walk over recorded states equals live decoding, round by round.

On the demo: text that the target wrote greedily, float32. The longer run is tests/truth/run.py (`make truth`).
"""

import pytest
import torch
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.measure.acceptance import walk
from eagle3lib.run.chain import draft_slowly

PROMPTS, TOKENS = 4, 32


@pytest.fixture(scope="module", params=["healthy", "embedding_fed"])
def drafter(request, target_folder):
    return e3.Drafter(e3.open_checkpoint(ROOT / "data" / "drafters" / request.param, target=target_folder))


@pytest.fixture(scope="module")
def prompts(demo_captures):
    return [(c.name, c.token_ids[: int(c.loss_mask.int().argmax())]) for c in demo_captures[:PROMPTS]]


@pytest.fixture(scope="module")
def texts(live_target, prompts):
    """The target's own greedy answers, by `generate`, with their states."""
    streams, made = (0, 2, 15, 27), []
    for name, prompt in prompts:
        text = live_target.generate(
            prompt[None], max_new_tokens=TOKENS, do_sample=False, attention_mask=torch.ones_like(prompt[None])
        )[0]
        made.append(e3.record(live_target, text, len(prompt), streams, name=name))
    return made


@pytest.mark.parametrize("K", [1, 3, 8])
def test_walk_is_live_decoding(live_target, drafter, texts, prompts, K):
    accepted = 0
    for capture, (_, prompt) in zip(texts, prompts, strict=True):
        live = e3.speculative_decode(live_target, drafter, prompt, e3.Chain(K), max_new_tokens=TOKENS)
        assert live.token_ids.tolist() == capture.token_ids.tolist()  # the target's own text, whatever was drafted
        hits = e3.chain_hits(drafter, capture, K)
        predicted = walk(hits.leading().numpy(), hits.start(), len(capture.token_ids) - 2, K)
        assert list(live.accepted) == predicted
        accepted += sum(predicted)
    assert accepted > 0


def test_fast_equals_slow_on_the_demo(drafter, texts):
    capture = texts[0]
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    leading = e3.chain_hits(drafter, capture, 3).leading()
    start = int(capture.loss_mask.int().argmax()) - 1
    for t in range(start, start + 6):
        drafts = draft_slowly(drafter, g[: t + 1], ids[: t + 2], 3)
        true = ids[t + 2 : t + 5].tolist()
        assert next((k for k in range(3) if drafts[k] != true[k]), 3) == leading[t]


def test_states_do_not_depend_on_how_they_are_read(live_target, texts):
    """One token at a time through a cache gives the states of one pass, within float32 rounding: both truths rest on it."""
    from transformers import DynamicCache

    from eagle3lib.run.record import watching

    capture, cache, rows = texts[0], DynamicCache(config=live_target.config), []
    with torch.inference_mode(), watching(live_target, (15,)) as found:
        for token in capture.token_ids[:40]:
            live_target(input_ids=token[None, None], cache=cache)
            rows.append(found[15][0, 0].clone())
    whole = capture.streams[15][:40]
    assert ((torch.stack(rows) - whole).norm(dim=1) / whole.norm(dim=1)).max() < 1e-4
