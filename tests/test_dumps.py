"""Other tools' dumps, made here in their formats (tests/dumps): what was dumped is what is read, one sample at a time."""

import pytest
import torch
from dumps import files
from dumps.base import EVERY, STREAMS, same, samples
from dumps.made import MADE, by_format, each

import eagle3lib as e3
from eagle3lib.read import dumps
from eagle3lib.read.dump_formats import FORMATS


@pytest.fixture
def written(tmp_path, made):
    made.write(tmp_path / "dump", samples())
    return tmp_path / "dump"


@by_format
def test_what_was_dumped_is_what_is_read(written, made):
    caps = made.read(written)
    assert len(caps) == len(caps[:]) == len(caps[-3:]) == 3
    for found, original in zip(caps, samples(), strict=True):
        assert same(found, made.expected(original))
        assert found.last_kind == made.last
        assert found.about["loss mask"] == made.mask
        assert set(found.known.values()) == {made.layers or ("by its place in the file" if made.alone else "as streams= says")}


def test_every_format_is_tried():
    with_two = {"vLLM": ("vLLM, slots first", "vLLM, tokens first"), "SpecForge": ("SpecForge", "SpecForge gz")}
    tried = {name for f in FORMATS for name in with_two.get(f.producer, (f.producer,))}
    assert {name.removesuffix(" EAGLE-1 or 2") for name in tried} == set(MADE)


@by_format
def test_without_names_streams_are_slots(written, made):
    """Where which layers is not in the files, and nobody says it, nothing is claimed."""
    found = made.read(written, named=False)[0]
    original = made.expected(samples()[0])
    if made.layers:
        assert list(found.streams) == list(STREAMS)
    elif made.widths:
        held = [*original.streams.values()]
        if original.last is not None and found.last is None:
            held.append(original.last)  # vLLM: each slot is a stream until somebody says else
        assert list(found.streams) == [f"slot{i}" for i in range(len(held))]
        assert all(torch.equal(found.stream(f"slot{i}"), rows) for i, rows in enumerate(held))
    else:
        assert torch.equal(found.stream("slot0"), torch.cat([*original.streams.values()], dim=1))
        assert "96 wide: of how many streams side by side is not in the file" in found.about["states"]


@each("SafeAILab")  # no drafter here takes the last state alone
def test_a_drafter_scores_the_same_on_them(written, made, tiny_checkpoint):
    drafter = e3.Drafter(tiny_checkpoint)
    originals = [made.expected(c) for c in samples()]
    expected = e3.accuracy(drafter, originals, steps=3)
    assert expected.rows.sum() > 0
    for named in (True, False) if made.widths else (True,):  # a drafter takes slots by position
        found = e3.accuracy(drafter, made.read(written, named), steps=3)
        assert (found.rows == expected.rows).all()
        assert (found.right == expected.right).all()


def test_a_first_token_that_is_lost_changes_no_draft(tmp_path, tiny_checkpoint):
    """NeMo Automodel: its row is there, and the token itself is never fed to a drafter."""
    MADE["NeMo Automodel"].write(tmp_path / "dump", samples())
    drafter = e3.Drafter(tiny_checkpoint)
    for found, original in zip(e3.read_captures(tmp_path / "dump"), samples(), strict=True):
        assert int(found.token_ids[0]) != int(original.token_ids[0])
        mine, theirs = (e3.chain_hits(drafter, c, 3) for c in (found, original))
        assert torch.equal(mine.guess, theirs.guess)


@by_format
def test_one_sample_is_read_at_a_time(written, made, monkeypatch):
    caps, opened = made.read(written), []
    real = dumps.held_by
    monkeypatch.setattr(dumps, "held_by", lambda file: opened.append(file.name) or real(file))
    assert len(caps[1].token_ids) == 19
    assert len(opened) == 1


@each("SafeAILab")
def test_states_that_are_no_numbers(tmp_path, made, tiny_checkpoint):
    some = samples()
    some[1].streams[3][4, 0] = float("nan")
    made.write(tmp_path / "dump", some)
    with pytest.raises(e3.InputError, match=r"NaN or infinite states in 1 rows, first row 4"):
        e3.accuracy(e3.Drafter(tiny_checkpoint), made.read(tmp_path / "dump"), steps=2)


@by_format
def test_more_streams_named_than_dumped(written, made):
    with pytest.raises(e3.InputError, match="no multiple in width of the 5 streams|5 streams were named|streams: .* name one"):
        e3.read_captures(written, streams=(0, 1, 2, 3, 4))[0]


@pytest.mark.parametrize("streams", [(), (2, 2, 4), (2, -1, 4), (True, 3, 4)])
def test_streams_that_cannot_be(tmp_path, streams):
    files.speculators(tmp_path / "dump", samples())
    with pytest.raises(e3.InputError, match="streams: .* expected the n of each state"):
        e3.read_captures(tmp_path / "dump", streams=streams)


def test_samples_are_in_the_order_of_their_numbers(tmp_path):
    files.speculators(tmp_path / "dump", samples(12))
    assert [c.name for c in e3.read_captures(tmp_path / "dump")] == [f"hs_{i}" for i in range(12)]


@by_format
def test_a_dump_becomes_this_librarys_own(tmp_path, written, made):
    read = list(made.read(written))
    own = e3.write_captures(tmp_path / "own", made.read(written), "tiny", n_layers=None, dtype=None)
    assert [c.name for c in own] == [c.name for c in read]
    assert len({c.name for c in own}) == 3
    for found, original in zip(own, read, strict=True):
        assert same(found, original.replace(streams={n: s.float() for n, s in original.streams.items()}))
        assert found.last_kind == original.last_kind
        assert found.about == original.about
    with pytest.raises(e3.InputError, match="streams= and last= are for other tools' dumps"):
        e3.read_captures(tmp_path / "own", streams=STREAMS)


def test_a_mask_that_is_not_there_is_said(tmp_path):
    for name, made in MADE.items():
        if made.mask == EVERY:
            made.write(tmp_path / name, samples(1))
            found = made.read(tmp_path / name)[0]
            assert found.about["loss mask"] == EVERY
            assert found.loss_mask.tolist() == [False] + [True] * 17
