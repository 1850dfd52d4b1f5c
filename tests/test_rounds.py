"""An engine's rounds beside the prediction: every way to part is told from the others."""

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.run.decode import speculative_decode
from eagle3lib.run.rounds import Round, rounds_of

K, STREAMS = 3, (2, 3, 4)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A drafter on a tiny target, and a recording of the target's greedy answer."""
    folder = tmp_path_factory.mktemp("rounds")
    path = tiny.write_target(folder / "target")
    target = tiny.loaded(path, endless=True)
    drafter = e3.Drafter(e3.open_checkpoint(tiny.write_drafter(folder / "drafter"), target=path))
    for seed in range(100):
        prompt = torch.randint(2, tiny.V, (5,), generator=torch.Generator().manual_seed(seed))
        text = target.generate(prompt[None], max_new_tokens=40, do_sample=False)[0]
        capture = e3.record(target, text, 5, STREAMS, name="s")
        found = rounds(drafter, capture)
        if any(one.accepted for one in found[:-1]) and not found[0].accepted:  # a random drafter is seldom right
            return target, drafter, capture
    raise AssertionError("no text on which this drafter is ever right")


def rounds(drafter, capture, **more):
    return rounds_of(e3.chain_hits(drafter, capture, K), capture.token_ids.tolist(), K, **more)


def engine(drafter, capture):
    """What an engine that does as this drafter does would report: all K drafts of each round."""
    return [
        Round(one.row, (*one.drafts, *[0] * (K - len(one.drafts))), one.accepted, one.after) for one in rounds(drafter, capture)
    ]


def test_rounds_are_those_of_live_decoding(live):
    target, drafter, capture = live
    P = int(capture.loss_mask.int().argmax())
    decoded = speculative_decode(target, drafter, capture.token_ids[:P], e3.Chain(K), max_new_tokens=40)
    assert [one.accepted for one in rounds(drafter, capture)] == list(decoded.accepted)
    assert rounds(drafter, capture)[0].row == P - 1
    shorter = rounds(drafter, capture, end=len(capture.token_ids) - 10)
    assert shorter == rounds(drafter, capture)[: len(shorter)] and len(shorter) < len(rounds(drafter, capture))


def test_the_same_rounds(live):
    _, drafter, capture = live
    found = e3.first_difference(drafter, capture, engine(drafter, capture))
    assert found.level == "ok" and f"all {len(rounds(drafter, capture))} rounds" in found.what


def test_wrong_rows_are_a_fault_of_the_capture(live):
    _, drafter, capture = live
    served = capture.replace(streams={2: capture.streams[2], 3: capture.streams[3].roll(1, 0), 4: capture.streams[4]})
    theirs = engine(drafter, served)
    found = e3.first_difference(drafter, capture, theirs, served=served.in_slots(STREAMS))
    assert (found.level, found.where) == ("fault", "serving capture") and "the first row received that differs is 0" in found.what
    without = e3.first_difference(drafter, capture, theirs)
    assert without.level == "open" and "served=" in without.settle


def test_right_rows_and_other_drafts_are_a_fault_of_the_engine(live):
    _, drafter, capture = live
    other = drafter.but(weights={**drafter.weights, "norm.weight": drafter.weights["norm.weight"].flip(0)})
    found = e3.first_difference(drafter, capture, engine(other, capture), served=capture.in_slots(STREAMS))
    assert (found.level, found.where) == ("fault", "engine") and "all rows received are as recorded" in found.what


def test_another_draft_after_the_first_points_at_the_drafters_own_keys(live):
    _, drafter, capture = live
    theirs = engine(drafter, capture)
    number = next(i for i, one in enumerate(theirs) if one.accepted)
    drafts = list(theirs[number].drafts)
    drafts[1] = next(int(t) for t in drafter.target_ids if int(t) != drafts[1])
    theirs[number] = Round(theirs[number].row, tuple(drafts), 1, theirs[number].after)
    found = e3.first_difference(drafter, capture, theirs, served=capture.in_slots(STREAMS))
    assert found.name == "draft keys" and f"round {number}" in found.what


def test_more_steps_than_were_drafted_are_refused(live):
    _, drafter, capture = live
    with pytest.raises(e3.InputError, match=f"steps: {K + 1}, but {K} were drafted"):
        rounds_of(e3.chain_hits(drafter, capture, K), capture.token_ids.tolist(), K + 1)


def test_a_draft_outside_the_vocabulary_is_said_to_be_so(live):
    _, drafter, capture = live
    first, *others = engine(drafter, capture)
    outside = next(i for i in range(drafter.recipe.vocab_size) if i not in drafter.target_ids.tolist())
    theirs = [Round(first.row, (outside, *first.drafts[1:]), 0, first.after), *others]
    found = e3.first_difference(drafter, capture, theirs)
    assert "the draft vocabulary has not both" in found.what and "inf" not in found.what


def test_a_near_tie_is_no_fault(live):
    _, drafter, capture = live
    first = rounds(drafter, capture)[0]
    best = int((drafter.target_ids == first.drafts[0]).nonzero()[0])
    other = (best + 1) % len(drafter.target_ids)
    head = drafter.head.clone()
    head[other] = head[best] * (1 - 1e-8)
    tied = drafter.but(head=head)
    mine = engine(tied, capture)
    swapped = int(drafter.target_ids[other]) if mine[0].drafts[0] != int(drafter.target_ids[other]) else first.drafts[0]
    theirs = [Round(mine[0].row, (swapped, *mine[0].drafts[1:]), 0, mine[0].after), *mine[1:]]
    assert e3.first_difference(tied, capture, theirs).level == "note"


def test_accepting_what_the_text_has_not(live):
    _, drafter, capture = live
    theirs = engine(drafter, capture)
    number = next(i for i, one in enumerate(theirs) if one.accepted == 0)
    theirs[number] = Round(theirs[number].row, theirs[number].drafts, 1, theirs[number].after)
    found = e3.first_difference(drafter, capture, theirs)
    assert found.name == "verification"
    cut = e3.first_difference(drafter, capture, engine(drafter, capture)[:-1])
    assert cut.level == "open" and "rounds" in cut.what


def test_drafts_past_the_end_of_the_text_are_not_compared(live):
    """An engine drafts past the end of its request, where the text tells nothing."""
    _, drafter, capture = live
    for cut in range(1, 8):
        short = capture.replace(
            token_ids=capture.token_ids[:-cut], loss_mask=capture.loss_mask[:-cut],
            streams={n: rows[:-cut] for n, rows in capture.streams.items()}, last=None, last_kind="none",
        )  # fmt: skip
        theirs = [one for one in engine(drafter, capture) if one.row < len(short.token_ids) - 2]
        assert e3.first_difference(drafter, short, theirs, served=short.in_slots(STREAMS)).level == "ok", cut
