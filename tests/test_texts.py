"""What tokens and masks say: each check speaks where it should, and is silent on the demo's sound text."""

import json

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.judge.texts import GRAM, repeating

END = 1


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return e3.open_checkpoint(tiny.write_drafter(folder / "drafter"), target=tiny.write_target(folder / "target"))


def sample(name, ids, prompt=6):
    ids = torch.tensor(ids)
    return e3.Capture(name, ids, torch.arange(len(ids)) >= prompt, {})


def varied(number=8, T=30, sayable=None, seed=0):
    """Texts of different lengths that end with an end token, of tokens other than it."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for i in range(number):
        ids = torch.randint(2, tiny.V, (T + i,), generator=g)
        ids = sayable[torch.randint(0, len(sayable), ids.shape, generator=g)] if sayable is not None else ids
        made.append(sample(f"s{i}", [*ids.tolist(), END]))
    return made


def names(findings):
    return [f.name for f in findings if f.name != "draft vocabulary"]


def test_sound_texts(ckpt, demo_captures, target_folder):
    assert names(e3.check_texts(ckpt, varied())) == []
    from conftest import ROOT

    demo = e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy", target=target_folder)
    found = e3.check_texts(demo, demo_captures)
    assert {f.level for f in found} == {"note"} and names(found) == ["cut answers"]


def test_a_mask_that_marks_nothing(ckpt):
    some = varied()
    some[2] = some[2].replace(loss_mask=torch.zeros(len(some[2].token_ids), dtype=torch.bool))
    found = [f for f in e3.check_texts(ckpt, some) if f.name == "mask boundaries"]
    assert len(found) == 1 and "1 of 8 samples mark no two tokens in a row" in found[0].what and "s2" in found[0].what


def test_a_mask_that_goes_on_after_the_end(ckpt):
    some = [sample(c.name, [*c.token_ids.tolist(), 50, 51, 52]) for c in varied()]
    found = [f for f in e3.check_texts(ckpt, some) if f.name == "mask boundaries"]
    assert len(found) == 1 and "in 8 of 8 samples (24 tokens" in found[0].what and found[0].level == "warning"
    without = e3.open_checkpoint(ckpt.path)  # nobody says what the end token is
    assert names(e3.check_texts(without, some)) == []


def test_a_mask_that_begins_within_the_template(ckpt):
    some = [sample(c.name, [*c.token_ids[:6].tolist(), 7, 8, *c.token_ids[8:].tolist()]) for c in varied()]
    found = [f for f in e3.check_texts(ckpt, some) if f.name == "mask boundaries"]
    assert len(found) == 1 and found[0].level == "open" and "the same 2 tokens [7, 8]" in found[0].what
    assert names(e3.check_texts(ckpt, some[:4])) == []  # of few samples that may be an accident


def test_text_that_repeats(ckpt):
    g = torch.Generator().manual_seed(0)
    some = varied()
    loop = torch.randint(2, tiny.V, (5,), generator=g).tolist() * 12
    some[3] = sample("loop", [*range(6), *loop, END])
    found = [f for f in e3.check_texts(ckpt, some) if f.name == "repeating text"]
    assert len(found) == 1 and "1 of 8 answers" in found[0].what and "(loop)" in found[0].what and found[0].level == "warning"


def test_repeating_counts_runs_seen_before():
    assert repeating(torch.arange(100)) == 0
    assert repeating(torch.tensor([3] * GRAM)) == 0
    assert repeating(torch.tensor([3] * (GRAM + 2))) == 2
    assert repeating(torch.cat([torch.arange(40), torch.arange(40)])) == 40 - GRAM + 1


def test_cut_answers_and_long_ones(ckpt):
    g = torch.Generator().manual_seed(2)
    some = [sample(f"s{i}", torch.randint(2, tiny.V, (40,), generator=g).tolist()) for i in range(8)]
    found = {f.name: f for f in e3.check_texts(ckpt, some)}
    assert "8 of 8 answers were cut at 34 tokens" in found["cut answers"].what
    config = json.loads((ckpt.path / "config.json").read_text())
    (ckpt.path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 20}))
    short = e3.open_checkpoint(ckpt.path)
    (ckpt.path / "config.json").write_text(json.dumps(config))
    found = {f.name: f for f in e3.check_texts(short, some)}
    assert "has 40 tokens, but the drafter's max_position_embeddings is 20" in found["length"].what


def test_the_ceiling_of_the_vocabulary_is_a_perfect_drafters(ckpt):
    some = varied(seed=4)
    tau = e3.vocabulary_ceiling(ckpt, some, 3)
    sayable = set(ckpt.target_ids.tolist())
    rounds = accepted = 0
    for c in some:  # by hand: a round accepts tokens until one that cannot be said, three at most
        ids, row = c.token_ids.tolist(), 7
        while row < len(ids):
            good = 0
            while good < 3 and row + good < len(ids) and ids[row + good] in sayable:
                good += 1
            rounds, accepted, row = rounds + 1, accepted + good, row + good + 1
    assert tau.tau(3) == pytest.approx(1 + accepted / rounds)
    finding = next(f for f in e3.check_texts(ckpt, some) if f.name == "draft vocabulary")
    assert finding.evidence["share of tokens"] < 1 and "K = 5" in finding.what
    whole = varied(sayable=ckpt.target_ids[ckpt.target_ids > 1])
    whole = [sample(c.name, c.token_ids[:-1].tolist()) for c in whole]
    assert not [f for f in e3.check_texts(ckpt, whole) if f.name == "draft vocabulary"]


def prompts(insert=(), at=3, seed=0):
    """Texts whose prompts hold `insert` at place `at`; -1 is the prompt's end."""
    made = []
    for c in varied(seed=seed):
        ids, at_ = c.token_ids.tolist(), 6 if at == -1 else at
        ids = [*ids[:at_], *insert, *ids[at_:]]
        made.append(sample(c.name, ids, prompt=6 + len(insert)))
    return made


@pytest.mark.parametrize("at,place", [(0, "at the start"), (3, "within"), (-1, "at the end")])
def test_another_template_is_told(at, place):
    found = e3.compare_texts(prompts((90, 91), at), prompts(), who=("training", "serving"))
    assert found.level == "fault" and found.name == "template"
    assert f"by the same tokens, {place}: training has '[90, 91]' where serving has nothing" in found.what
    other = e3.compare_texts(prompts((90,), at), prompts((91,), at), decode=lambda ids: "".join(map(chr, ids)))
    assert "has 'Z' where" in other.what and "has '['" in other.what


def test_the_same_prompts_and_other_ones():
    assert e3.compare_texts(prompts(), prompts()).level == "ok"
    other = e3.compare_texts(prompts(seed=1), prompts())
    assert other.level == "open" and "in 1 of them so" in other.what
    assert e3.compare_texts(prompts()[:2], prompts()[4:]).what.endswith("no sample of one name")


def test_no_samples(ckpt):
    with pytest.raises(e3.InputError, match="no samples"):
        e3.check_texts(ckpt, [])


def test_one_prompt_of_many_that_differs_is_no_template():
    some = [*prompts((90,))[:1], *prompts()[1:]]
    found = e3.compare_texts(some, prompts())
    assert found.level == "open" and "in 1 of 8 samples" in found.what


def test_a_side_without_a_mask_is_compared_as_far_as_the_others_prompts_go():
    bare = [c.replace(loss_mask=torch.arange(len(c.token_ids)) > 0) for c in prompts()]
    assert e3.compare_texts(bare, prompts()).level == "ok"
