"""Two recordings of the same tokens: each way in which the one can differ from the other is named, with its number."""

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.judge.states import compare_captures
from eagle3lib.measure.alike import distances

N = 6
TURN = torch.linalg.qr(torch.randn(tiny.H, tiny.H, generator=torch.Generator().manual_seed(5)))[0]


def recorded(**changes) -> list[e3.Capture]:
    """Streams that grow layer by layer, as residual streams do: each is the one before and something new."""
    found = []
    for seed in range(N):
        one = tiny.capture(T=60, seed=seed, streams=(0, 1, 2, 3, 4), name=f"sample{seed}")
        states, streams = 0, {}
        for n in one.streams:
            states = states + one.stream(n)
            streams[n] = states
        found.append(one.replace(streams=streams, **changes))
    return found


def slots(function, samples=None) -> list[e3.Capture]:
    """Three slots without names, each made by `function(slot, sample)`."""
    return [
        c.replace(streams={f"slot{i}": function(i, c) for i in range(3)}, last=None, last_kind="none", known={})
        for c in samples or recorded()
    ]


def normed(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


WAYS = {  # what is done -> level, name, words of the sentence
    "the same": (lambda i, c: c.stream(i + 2), "ok", "", "are those of"),
    "bfloat16": (lambda i, c: c.stream(i + 2).bfloat16().float(), "note", "precision", "another precision"),
    "another order": (lambda i, c: c.stream((3, 2, 4)[i]), "fault", "streams", "in another order"),
    "a slot on": (lambda i, c: c.stream(i + 1), "fault", "streams", "every slot one place on"),
    "a layer off": (lambda i, c: c.stream((2, 3, 3)[i]), "fault", "streams", "streams r_2, r_3, r_3, where"),
    "scaled": (lambda i, c: 4 * c.stream(i + 2), "fault", "scale", "4 times as large"),
    "no residual": (lambda i, c: c.stream(i + 2) - c.stream(i + 1), "fault", "residual", "without its residual"),
    "part of a sum": (lambda i, c: (c.stream(i + 2) + c.stream(i + 1)) / 2, "fault", "residual", "0.50 of it"),
    "normed": (lambda i, c: normed(c.stream(i + 2)), "fault", "normed states", "each row scaled"),
    "turned": (lambda i, c: c.stream(i + 2) @ TURN, "fault", "another target", "in another basis"),
    "rows late": (lambda i, c: c.stream(i + 2).roll(1, 0), "fault", "rows", "one late: row t is row t-1"),
    "nothing of it": (lambda i, c: torch.randn(60, tiny.H), "fault", "unknown", "none of the streams"),
}  # fmt: skip


def test_a_few_channels_changed_are_no_other_basis():
    """One channel is far larger than all others, as in real states, and lost at the server: the others are as they were."""
    large = torch.zeros(tiny.H)
    large[0] = 500.0
    theirs = [c.replace(streams={n: stream + large for n, stream in c.streams.items()}) for c in recorded()]
    found = compare_captures(slots(lambda i, c: c.stream(i + 2) - large, theirs), theirs, (2, 3, 4))
    assert (found.level, found.name) == ("fault", "unknown")


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_named(way):
    function, level, name, words = WAYS[way]
    found = compare_captures(slots(function), recorded(), (2, 3, 4))
    assert (found.level, found.name) == (level, name)
    assert words.replace("one late", "1 late") in found.what


def test_tokens_and_samples():
    mine = slots(lambda i, c: c.stream(i + 2))
    late = [c.replace(token_ids=c.token_ids.roll(1)) for c in mine]
    assert compare_captures(late, recorded(), (2, 3, 4)).name == "tokens"
    mixed = [c.replace(streams=mine[(k + 1) % N].streams) for k, c in enumerate(mine)]
    assert compare_captures(mixed, recorded(), (2, 3, 4)).name == "rows of other tokens"
    other = [c.replace(token_ids=(c.token_ids + 1) % tiny.V) for c in mine]
    assert compare_captures(other, recorded(), (2, 3, 4)).level == "open"


def test_the_published_case_in_one_matrix():
    """Trained on r_0, r_1, r_3, served r_1, r_3, r_4: training's slots 1 and 2 are the server's slots 0 and 1."""
    trained = slots(lambda i, c: c.stream((0, 1, 3)[i]))
    served = slots(lambda i, c: c.stream((1, 3, 4)[i]))
    table = distances(trained, served)
    assert table.loc["slot1", "slot0"] < 1e-5 and table.loc["slot2", "slot1"] < 1e-5
    assert table.loc["slot0"].min() > 0.1  # the embedding is nowhere at the server
    found = compare_captures(served, trained)
    assert (found.level, found.name) == ("fault", "streams")
    assert "slot0 of the first recording is slot1 of the second: every slot one place on" in found.what


def test_names_are_held_against_names():
    """Without being told what belongs where: a stream that is called r_3 and is r_4."""
    wrong = [c.replace(streams={2: c.stream(2), 3: c.stream(4)}) for c in recorded()]
    found = compare_captures(wrong, recorded())
    assert found.name == "streams" and "streams r_2, r_4, where streams r_2, r_3 belong" in found.what


def test_a_sample_that_differs_is_told_wherever_it_stands():
    """What a slot is, the first few samples tell; whether it is so in all, all of them."""
    reference = recorded()
    some = slots(lambda i, c: c.stream(i + 2))
    some[-1] = some[-1].replace(streams={n: rows.roll(1, 0) for n, rows in some[-1].streams.items()})
    found = compare_captures(some, reference, expected=(2, 3, 4))
    assert found.level == "fault" and f"in 1 of {N} samples (sample{N - 1})" in found.what


def test_a_faint_scale_is_told_and_a_rounded_one_is_not():
    found = compare_captures(slots(lambda i, c: 1.03 * c.stream(i + 2)), recorded(), expected=(2, 3, 4))
    assert (found.level, found.name) == ("note", "scale") and "1.03" in found.what


def test_slots_of_which_nothing_was_said_are_told_and_not_accused():
    found = compare_captures(slots(lambda i, c: c.stream(i + 2)), recorded())
    assert found.level == "note" and "slot0 is r_2, slot1 is r_3, slot2 is r_4" in found.what


def test_empty_slots_and_wrong_expectations():
    zeros = slots(lambda i, c: c.stream(i + 2) * (i != 1))
    found = compare_captures(zeros, recorded(), expected=(2, 3, 4))
    assert found.name == "zero rows" and "slot1 is all zeros" in found.what and "record" in found.change
    with pytest.raises(e3.InputError, match="4 streams for the 3 slots"):
        compare_captures(slots(lambda i, c: c.stream(i + 2)), recorded(), expected=(1, 2, 3, 4))


def test_other_names_of_the_same_texts_are_found_by_their_tokens():
    renamed = [c.replace(name=f"hs_{i}") for i, c in enumerate(slots(lambda i, c: c.stream(i + 2)))]
    assert compare_captures(renamed, recorded(), expected=(2, 3, 4)).level == "ok"
