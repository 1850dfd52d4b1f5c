"""Which stream each slot is: told by the target's own embedding, norm and head, or by a labelled recording; else not told."""

import pytest
import tiny
import torch
from test_states import live

import eagle3lib as e3

WIDE = tuple(range(tiny.LAYERS + 1))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Captures of a tiny target's greedy text, all layers, and the target."""
    folder = tiny.write_target(tmp_path_factory.mktemp("streams") / "target")
    return live(folder, samples=4), e3.open_target(folder)


def slots(captures, streams, last=False):
    """As a drafter is handed them: without labels. With `last`, f is the slot after them."""
    made = []
    for capture in captures:
        one = capture.in_slots(streams)
        if last:
            one = one.replace(streams={**one.streams, f"slot{len(streams)}": capture.last})
        made.append(one.replace(last=None, last_kind="none"))
    return made


def test_the_embedding_the_last_and_f_are_told(recorded):
    captures, target = recorded
    told = e3.which_streams(slots(captures, (0, 2, 5, 6), last=True), target)
    assert {slot: found for slot, (found, _) in told.found.items()} == {
        "slot0": 0, "slot1": None, "slot2": None, "slot3": tiny.LAYERS, "slot4": "last"
    }  # fmt: skip
    again = told.relabel(slots(captures, (0, 2, 5, 6), last=True)[0])
    assert list(again.streams) == [0, "slot1", "slot2", tiny.LAYERS] and again.last_kind == "post_norm"
    assert torch.equal(again.last, captures[0].last) and torch.equal(again.stream(0), captures[0].stream(0))
    assert "embedding of its tokens" in again.known[0]


def test_a_scaled_embedding_is_still_told(recorded):
    captures, target = recorded
    scaled = [c.replace(streams={**c.streams, "slot0": c.streams["slot0"] * 40}) for c in slots(captures, (0, 2))]
    assert e3.which_streams(scaled, target).found["slot0"][0] == 0


def test_a_labelled_recording_tells_the_others(recorded):
    captures, target = recorded
    told = e3.which_streams(slots(captures, (4, 2, 3)), target, reference=captures)
    assert [found for found, _ in told.found.values()] == [4, 2, 3]
    assert list(told.relabel(slots(captures, (4, 2, 3))[0]).streams) == [4, 2, 3]
    alone = e3.which_streams(
        slots(captures, (4, 2, 3)), reference=[c.in_slots((2, 3)).replace(streams={2: c.streams[2]}) for c in captures]
    )
    assert [found for found, _ in alone.found.values()] == [None, 2, None]  # the others are not in that reference


def test_names_that_are_wrong_are_not_believed(recorded):
    captures, target = recorded
    lying = [c.replace(streams={0: c.streams[1], 3: c.streams[0], 6: c.streams[5], 2: c.streams[2]}) for c in captures]
    told = e3.which_streams(lying, target)
    assert [found for found, _ in told.found.values()] == [None, 0, None, 2]
    assert "called r_0, but" in told.found[0][1] and "called r_6, but" in told.found[6][1]
    assert list(told.relabel(lying[0]).streams) == ["slot0", 0, "slot2", 2]


def test_text_of_somebody_else_tells_only_the_embedding(recorded):
    captures, target = recorded
    random = [tiny.capture(seed=s, streams=WIDE) for s in range(3)]
    random = [c.replace(streams={0: target.embedding().rows(c.token_ids), **{n: c.streams[n] for n in WIDE[1:]}}) for c in random]
    told = e3.which_streams(slots(random, (0, 6)), target)
    assert told.found["slot0"][0] == 0 and told.found["slot1"][0] is None
    assert "unless the text is not the target's own" in told.found["slot1"][1]


def test_nothing_to_tell_by(recorded):
    captures, target = recorded
    with pytest.raises(e3.InputError, match="give the target's folder"):
        e3.which_streams(captures)
    with pytest.raises(e3.InputError, match="no sample has 6 rows"):
        e3.which_streams(
            [
                c.replace(token_ids=c.token_ids[:3], loss_mask=c.loss_mask[:3], streams={}, last=None, last_kind="none")
                for c in captures
            ],
            target,
        )
    told = e3.which_streams(slots(captures, (0, 2)), target)
    with pytest.raises(e3.InputError, match="stream 5 was not among those looked at"):
        told.relabel(captures[0].replace(streams={5: captures[0].streams[5]}))
