"""Sampled text: decoding follows the target's distribution, and the expected counts are those of live decoding."""

import pytest
import tiny
import torch
from scipy.stats import chisquare

import eagle3lib as e3
from eagle3lib.measure.sampled import sampled_acceptance, text_log_p
from eagle3lib.run.sampling import Sampled, distribution, speculative_sample, verify

PLAN = Sampled(2, temperature=0.8, top_p=0.95, draft_temperature=1.0)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A tiny target, and a drafter on its streams."""
    folder = tmp_path_factory.mktemp("sampling")
    path = tiny.write_target(folder / "target")
    target = tiny.loaded(path, endless=True)
    ckpt = e3.open_checkpoint(tiny.write_drafter(folder / "drafter"), target=path)
    return target, e3.Drafter(ckpt), ckpt.target


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_the_distribution_is_what_transformers_samples_from():
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(5, 50, generator=seeded(0))
    for temperature, top_k, top_p in ((0.7, 0, 1.0), (1.3, 7, 1.0), (1.0, 0, 0.8), (0.6, 12, 0.9)):
        theirs = TemperatureLogitsWarper(temperature)(None, logits)
        theirs = TopKLogitsWarper(top_k)(None, theirs) if top_k else theirs
        theirs = TopPLogitsWarper(top_p)(None, theirs) if top_p < 1 else theirs
        ours = distribution(logits, Sampled(1, temperature, top_p, top_k))
        assert torch.allclose(ours, theirs.softmax(-1), atol=1e-6)


def draws(p, q, rule, number=20_000):
    g, counts = seeded(1), torch.zeros(len(p))
    for draft in torch.multinomial(q, number, replacement=True, generator=g).tolist():
        good, after = rule([draft], q[None], torch.stack([p, p]), g)
        counts[draft if good else after] += 1
    return counts


def test_what_verification_lets_through_is_distributed_as_p():
    p, q = (torch.rand(6, generator=seeded(s)).pow(2) for s in (3, 4))
    p, q = p / p.sum(), q / q.sum()
    counts = draws(p, q, verify)
    assert chisquare(counts.numpy(), (p.double() / p.double().sum() * counts.sum()).numpy()).pvalue > 1e-4
    wrong = draws(p, q, lambda drafts, q, p, g: (1, 0))  # every draft taken: the test must see it
    assert chisquare(wrong.numpy(), (p.double() / p.double().sum() * wrong.sum()).numpy()).pvalue < 1e-4


def test_the_text_is_distributed_as_the_target_says(live):
    target, drafter, _ = live
    prompt, plan, number = torch.tensor([5, 9, 17, 33]), Sampled(2, temperature=0.5, draft_temperature=1.0), 400
    with torch.inference_mode():
        first = distribution(target(prompt[None]).logits[0, -1:], plan)[0]  # [V]
        pairs = torch.stack([torch.cat([prompt, torch.tensor([x])]) for x in range(tiny.V)])
        second = first @ distribution(target(pairs).logits[:, -1], plan)  # [V] the second token's marginal
    counts = torch.zeros(tiny.V)
    for seed in range(number):
        counts[speculative_sample(target, drafter, prompt, plan, 2, seeded(seed)).token_ids[-1]] += 1
    often = second * number > 8  # the others together
    seen = torch.cat([counts[often], counts[~often].sum()[None]])
    due = torch.cat([second[often], second[~often].sum()[None]]).double()
    assert chisquare(seen.numpy(), (due / due.sum() * number).numpy()).pvalue > 1e-4


def sampled_texts(target, drafter, plan, number=40, tokens=14):
    for seed in range(number):
        prompt = torch.randint(2, tiny.V, (4,), generator=seeded(seed))
        yield speculative_sample(target, drafter, prompt, plan, tokens, seeded(1000 + seed))


@pytest.mark.parametrize("plan", [PLAN, Sampled(3, temperature=1.0, top_k=20, draft_temperature=0.7)])
def test_expected_counts_are_those_of_live_decoding(live, plan):
    """Given its text, a live run's rounds and accepted drafts lie about the expected ones, sample by sample."""
    target, drafter, files = live
    apart, accepted = [], []
    for i, one in enumerate(sampled_texts(target, drafter, plan)):
        capture = e3.record(target, one.token_ids, one.prompt_tokens, drafter.recipe.streams, name=f"s{i}")
        expected = sampled_acceptance(drafter, [capture], plan, files).rounds[f"s{i}"]
        rounds = [min(a, len(one.token_ids) - 2) for a in one.accepted]
        apart.append(sum(rounds) - float(expected @ range(plan.steps + 1)))
        accepted.append(sum(rounds))
    apart = torch.tensor(apart)
    z = float(apart.mean() / (apart.std() / len(apart) ** 0.5))
    assert sum(accepted) > 20 and abs(z) < 3.5, (z, apart.mean())


def test_greedy_drafts_on_sampled_text_are_a_chain(live):
    target, drafter, _ = live
    plan = Sampled(2, temperature=0.7)
    for one in sampled_texts(target, drafter, plan, number=4):
        capture = e3.record(target, one.token_ids, one.prompt_tokens, drafter.recipe.streams, name="s")
        counts = e3.acceptance(drafter, [capture], e3.Chain(2)).counts(2)[0]
        live_counts = torch.bincount(torch.tensor(one.accepted), minlength=3)
        assert counts.tolist() == live_counts.tolist()


def test_text_that_was_not_sampled_so_gives_no_number(live):
    target, drafter, files = live
    greedy = []
    for seed in range(12):
        prompt = torch.randint(2, tiny.V, (4,), generator=seeded(seed))
        text = target.generate(prompt[None], max_new_tokens=20, do_sample=False)[0]
        greedy.append(e3.record(target, text, 4, drafter.recipe.streams, name=f"g{seed}"))
    with pytest.raises(e3.InputError, match="less surprising than text sampled at temperature 1.0"):
        sampled_acceptance(drafter, greedy, Sampled(2, draft_temperature=1.0), files)
    hot = [
        e3.record(target, one.token_ids, one.prompt_tokens, drafter.recipe.streams, name=f"h{i}")
        for i, one in enumerate(sampled_texts(target, drafter, Sampled(2, temperature=2.0, draft_temperature=1.0), number=6))
    ]
    with pytest.raises(e3.InputError, match="none that the target can sample with top_p 0.5"):
        sampled_acceptance(drafter, hot, Sampled(2, top_p=0.5, draft_temperature=1.0), files)
    with pytest.raises(e3.InputError, match="by acceptance"):
        sampled_acceptance(drafter, hot, Sampled(2), files)
    with pytest.raises(e3.InputError, match="no last state"):
        text_log_p(files, hot[0].replace(last=None, last_kind="none"), PLAN)
    for wrong in ({"temperature": 0}, {"top_p": 0}, {"top_k": -1}, {"draft_temperature": -1}, {"steps": 0}):
        with pytest.raises(e3.InputError):
            Sampled(**{"steps": 2, **wrong})
