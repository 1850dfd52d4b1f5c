"""Engines' figures: on histograms counted by hand, against their definitions in words, round by round, and back to tau."""

import numpy as np
import pytest

import eagle3lib as e3
from eagle3lib.measure.serving import ENGINE_FIGURES, engine_figures, tau_from

# Two requests at K = 2. The first: 4 rounds that accepted 0, 0, 1, 2. The second: 1 round that accepted 2.
BY_HAND = e3.Acceptance({2: {"a": np.array([2, 1, 1]), "b": np.array([0, 0, 1])}}, {2: {"a": np.array([6, 2, 2])}})
EXPECTED = {  # N = 5, A = 5, P = 10; c_1 = 3, c_2 = 2
    ("SGLang", "accept len"): 2.0,
    ("SGLang", "accept rate, newer"): 5 / 10,
    ("SGLang", "accept rate, older"): 10 / 15,
    ("SGLang", "avg_spec_accept_length"): 2.0,
    ("SGLang", "spec_accept_length"): ((1 + 4 + 3) / 4 + (1 + 1 + 2) / 1) / 2,
    ("SGLang", "spec_accept_rate"): (3 / 8 + 2 / 2) / 2,
    ("vLLM", "Mean acceptance length"): 2.0,
    ("vLLM", "Per-position acceptance rate 1"): 3 / 5,
    ("vLLM", "Per-position acceptance rate 2"): 2 / 5,
    ("vLLM", "Avg Draft acceptance rate"): 50.0,
    ("TensorRT-LLM", "acceptanceLength"): 2.0,
    ("SafeAILab", "tau"): 2.0,
    ("SafeAILab", "0-alpha"): 3 / 5,
    ("SafeAILab", "1-alpha"): 2 / 3,
    ("DeepSpec", "accept_length"): 2.0,
    ("DeepSpec", "accept_rate@1"): 3 / 5,
    ("DeepSpec", "accept_rate@2"): 2 / 5,
    ("DeepSpec", "verify_rate"): 10 / 15,
    ("DeepSpec", "tau_greedy"): 1 + 6 / 10,
    ("Automodel", "tau_real"): 2.0,
    ("AIPerf", "spec_decode_acceptance_length"): ((1 + 3 / 4) + (1 + 2 / 1)) / 2,
    ("AIPerf", "spec_decode_token_weighted_acceptance_length"): 2.0,
    ("AIPerf", "spec_decode_overall_draft_acceptance_rate"): 50.0,
}


def test_by_hand():
    table = engine_figures(BY_HAND, 2)
    assert table.here.to_dict() == pytest.approx(EXPECTED)
    told = table["tau from it"].dropna()
    assert told.to_numpy() == pytest.approx(2.0)
    assert len(told) == len(table) - 4  # means over requests, and rounds begun at every row
    assert all(table[column].str.len().min() > 4 for column in ("formula", "counts", "source"))


def test_sglangs_own_worked_example():
    """33 rounds, 69 accepted drafts of 231: rate 0.2987. Its 3.0303 is of 100 tokens; the end cut off 3 of the 103 here."""
    counts = np.array([1, 0, 27, 5, 0, 0, 0, 0])
    assert (counts.sum(), counts @ np.arange(8)) == (33, 69)
    one = e3.Acceptance({7: {"a": counts}}, {7: {"a": counts}})
    here = engine_figures(one, 7).here
    assert here["SGLang", "accept rate, newer"] == pytest.approx(0.2987, abs=5e-5)
    assert here["SGLang", "spec_accept_length"] == pytest.approx((1 + 33 + 69) / 33)


@pytest.mark.parametrize("seed", range(5))
def test_by_the_definitions_in_words(seed):
    """Each round written out: what was proposed, what was accepted, what the request wrote."""
    draw, K = np.random.default_rng(seed), 3
    rounds = {name: draw.integers(0, K + 1, draw.integers(1, 9)) for name in "abc"}
    walk = {name: np.bincount(one, minlength=K + 1) for name, one in rounds.items()}
    here = engine_figures(e3.Acceptance({K: walk}, {K: walk}), K).here
    every = np.concatenate(list(rounds.values()))
    proposed = [(place < accepted, place) for accepted in every for place in range(K)]
    assert here["SGLang", "accept len"] == pytest.approx(np.mean([accepted + 1 for accepted in every]))
    assert here["SGLang", "accept rate, newer"] == pytest.approx(np.mean([good for good, _ in proposed]))
    assert here["SGLang", "accept rate, older"] == pytest.approx(sum(a + 1 for a in every) / sum(K + 1 for _ in every))
    wrote = {name: 1 + sum(a + 1 for a in one) for name, one in rounds.items()}
    assert here["SGLang", "spec_accept_length"] == pytest.approx(np.mean([wrote[name] / len(rounds[name]) for name in rounds]))
    for place in range(K):
        assert here["vLLM", f"Per-position acceptance rate {place + 1}"] == pytest.approx(np.mean(every > place))
        reached = every[every >= place]
        if len(reached):
            assert here["SafeAILab", f"{place}-alpha"] == pytest.approx(np.mean(reached > place))
    tokens, forwards = sum(a + 1 for a in every), len(every)
    assert here["SafeAILab", "tau"] == pytest.approx(tokens / forwards)


@pytest.mark.parametrize("figure", ENGINE_FIGURES, ids=lambda one: f"{one.engine} {one.name}")
def test_back_to_tau(figure):
    table = engine_figures(BY_HAND, 2).here
    places = [figure.name.format(i=i) for i in ((0, 1) if figure.name.endswith("-alpha") else (1, 2))]
    printed = [table[figure.engine, name] for name in places] if "{i}" in figure.name else table[figure.engine, figure.name]
    if figure.back:
        assert tau_from(figure.engine, figure.name, printed, 2) == pytest.approx(2.0)
        assert not figure.why
    else:
        with pytest.raises(e3.InputError, match="tells no accept length: ") as error:
            tau_from(figure.engine, figure.name, printed, 2)
        assert figure.why in str(error.value)
        assert "\n" not in str(error.value)


def test_nothing_accepted_is_no_division():
    none = e3.Acceptance({2: {"a": np.array([5, 0, 0])}}, {2: {"a": np.array([5, 0, 0])}})
    table = engine_figures(none, 2)
    assert table.here["SafeAILab", "0-alpha"] == 0
    assert np.isnan(table.here["SafeAILab", "1-alpha"])
    assert table["tau from it"].dropna().to_numpy() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "engine, figure, value, said",
    [
        ("vLLM", "acceptance", 2.0, "not known; there are SGLang accept len"),
        ("vLLM", "Mean acceptance length", 4.5, "would be accept length 4.500, which a chain of K = 3 cannot have"),
        ("SGLang", "accept rate, older", 0.1, "cannot have: it has another definition"),
        ("SGLang", "accept len", float("nan"), "cannot have"),
        ("vLLM", "Per-position acceptance rate {i}", 0.5, "expected a list of K numbers"),
        ("vLLM", "Per-position acceptance rate {i}", [0.5], "expected a list of K numbers"),
        ("vLLM", "Per-position acceptance rate {i}", [0.2, 0.4, 0.1], "rises"),
        ("SGLang", "accept len", [2.0], "expected one number"),
        ("SGLang", "spec_accept_length", 2.0, "spec_accept_length - 1 / spec_verify_ct"),
    ],
)
def test_what_tells_nothing_is_one_sentence(engine, figure, value, said):
    with pytest.raises(e3.InputError, match=said) as error:
        tau_from(engine, figure, value, 3)
    assert "\n" not in str(error.value)


def test_no_round_is_refused():
    none = e3.Acceptance({1: {"a": np.array([0, 0])}}, {1: {"a": np.array([0, 0])}})
    with pytest.raises(e3.InputError, match="no round at K = 1"):
        engine_figures(none, 1)
