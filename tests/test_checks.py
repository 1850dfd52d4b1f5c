"""What speaks against a recording is said, and nothing is said against a sound one."""

import pytest
import tiny
import torch
from conftest import ROOT
from test_states import live

import eagle3lib as e3
from eagle3lib.measure.lens import best_tokens
from eagle3lib.measure.trainers import claimed_row
from eagle3lib.show import results


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A tiny target with its own greedy text, another one of the same sizes, and a drafter's folder."""
    folder = tmp_path_factory.mktemp("checks")
    target, other = tiny.write_target(folder / "target"), tiny.write_target(folder / "other", seed=7)
    return live(target), target, other, tiny.write_drafter(folder / "drafter")


@pytest.fixture(scope="module")
def demo(target_folder):
    return e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy", target=target_folder)


def test_a_sound_recording(recorded):
    captures, target, _, drafter = recorded
    assert len(e3.check_captures(e3.open_checkpoint(drafter, target=target), captures)) == 0
    assert len(e3.check_captures(e3.open_checkpoint(drafter), captures)) == 0  # without the target less can be checked


def test_the_demo_is_sound(demo_captures, demo):
    assert len(e3.check_captures(demo, demo_captures)) == 0


def test_another_target_of_the_same_sizes(recorded):
    captures, _, other, drafter = recorded
    found = e3.check_captures(e3.open_checkpoint(drafter, target=other), captures)
    assert [(f.where, f.name) for f in found] == [("target", "another target")] * 2
    assert "r_0 is not the embedding of its tokens in other" in found[0].what
    assert "another target" in found[1].what


def test_last_states_that_do_not_belong_to_the_tokens(recorded):
    captures, target, _, drafter = recorded
    ckpt = e3.open_checkpoint(drafter, target=target)
    shifted = [c.replace(last=c.last.roll(3, 0)) for c in captures]
    assert [f.name for f in e3.check_captures(ckpt, shifted)] == ["rows of other tokens"]  # r_0 says that the target is right
    alone = [c.replace(streams={2: c.streams[2]}) for c in shifted]
    assert "another target, or rows of other tokens" in e3.check_captures(ckpt, alone)[0].what


def test_a_target_that_scales_its_embedding_is_no_fault(recorded):
    captures, target, _, drafter = recorded
    scaled = [c.replace(streams={**c.streams, 0: c.streams[0] * 40}) for c in captures]
    assert len(e3.check_captures(e3.open_checkpoint(drafter, target=target), scaled)) == 0


def test_no_loss_mask_and_rows_of_zeros(tiny_checkpoint):
    capture = tiny.capture()
    everything = capture.replace(loss_mask=torch.arange(len(capture.token_ids)) > 0)
    assert "1 of 1 samples mark every token" in e3.check_captures(tiny_checkpoint, [everything])[0].what
    hole = capture.streams[3].clone()
    hole[4:7] = 0
    found = e3.check_captures(tiny_checkpoint, [capture.replace(streams={**capture.streams, 3: hole})])
    assert "3 rows are all zeros, the first in tiny, stream 3" in found[0].what
    assert (found[0].level, found[0].name) == ("fault", "zero rows")
    found = e3.check_captures(tiny_checkpoint, [capture.replace(last=capture.last * (torch.arange(20) < 15)[:, None])])
    assert "5 rows are all zeros, the first in tiny, last state" in found[0].what


def test_without_a_loss_mask_nothing_is_said_of_the_text(demo, demo_captures):
    """Prompts are nobody's greedy writing, so their rows accuse no text and no target."""
    unmarked = [c.replace(loss_mask=torch.ones_like(c.loss_mask)) for c in demo_captures]
    assert [f.name for f in e3.check_captures(demo, unmarked)] == ["no loss mask"]


def changed(capture, change, *labels):
    """Its streams (those in `labels`), and its last state if no labels are given, changed."""
    streams = {n: change(capture.stream(n)) if n in (labels or capture.streams) else capture.stream(n) for n in capture.streams}
    return capture.replace(streams=streams, last=capture.last if labels else change(capture.last.float()))


def normed(rows):
    return rows / rows.pow(2).mean(-1, keepdim=True).sqrt()


def coarse(rows):
    step = rows.abs().amax(-1, keepdim=True) / 7  # numbers of four bits
    return (rows / step).round() * step


def put(rows, at, value):
    rows = rows.clone()
    rows[at] = value if value is not None else rows[at.start]
    return rows


@pytest.mark.parametrize(
    ("change", "labels", "names", "said"),
    [
        (lambda r: r.roll(1, 0), (), ["rows", "rows"], "rows are one late: r_0 of row t is that of token t-1"),
        (lambda r: r.roll(-2, 0), (), ["rows", "rows"], "rows are two early: r_0 of row t is that of token t+2"),
        (normed, (2, 15), ["normed states"], "the rows of stream 2, 15 are all of one size"),
        (normed, (0,), ["normed states"], "not at one scale"),
        (coarse, (0,), ["broken numbers"], "is the embedding of its tokens, but coarsely"),
        (coarse, (2, 27), ["broken numbers"], "stream 2, 27 takes 6 values at most in 32 rows"),
        (lambda r: put(r, slice(0, 1), float("inf")), (27,), ["broken numbers"], "24 rows hold NaN or infinite numbers"),
        (lambda r: put(r, slice(20, 40), None), (27,), ["rows of other tokens"], "repeat the row before"),
        (lambda r: r.flip(1), (0,), ["streams"], "another stream, or rows of other tokens"),  # the last states fit the target
    ],
)
def test_faults_of_a_recording(demo, demo_captures, change, labels, names, said):
    found = e3.check_captures(demo, [changed(c, change, *labels) for c in demo_captures])
    assert [f.name for f in found] == names
    assert said in found[0].what


def test_rows_of_another_request(demo, demo_captures):
    kept, pairs = list(demo_captures), []
    for capture, other in zip(kept, kept[1:] + kept[:1], strict=True):
        T = min(len(capture.token_ids), len(other.token_ids))
        streams = {n: other.stream(n)[:T] for n in other.streams}
        ids, mask = capture.token_ids[:T], capture.loss_mask[:T]
        pairs.append(capture.replace(token_ids=ids, loss_mask=mask, streams=streams, last=other.last[:T]))
    found = e3.check_captures(demo, pairs)
    assert [f.name for f in found] == ["rows of other tokens"] * 2
    assert f"r_0 of {kept[0].name} fits the tokens of {kept[1].name}" in found[0].what


def test_streams_that_are_not_what_they_are_called(demo, demo_captures):
    twice = [c.replace(streams={15: c.stream(15), 27: c.stream(15)}) for c in demo_captures]
    assert [f.what for f in e3.check_captures(demo, twice)] == ["streams 15 and 27 are one tensor in 24 of 24 samples"]
    called = [c.replace(streams={2: c.stream(0), 15: c.stream(2), 27: c.stream(15)}) for c in demo_captures]
    assert "stream 2 is the embedding of its tokens" in e3.check_captures(demo, called)[0].what


@pytest.mark.parametrize("broken", [1, 16])
def test_no_sample_is_left_out(demo, demo_captures, broken):
    """Zeros in samples between those that a look at every third would take."""
    kept = list(demo_captures)
    bad = [i for i in range(24) if i % 3][:broken]
    some = [changed(c, torch.zeros_like, 2, 15, 27) if i in bad else c for i, c in enumerate(kept)]
    found = e3.check_captures(demo, some)
    assert found[0].name == "zero rows" and len(found[0].evidence) == 3 * broken


def test_a_sample_is_read_once(demo_captures, demo, monkeypatch):
    read, own = [], e3.Capture.stream
    monkeypatch.setattr(e3.Capture, "stream", lambda self, label: (read.append((self.name, label)), own(self, label))[1])
    e3.check_captures(demo, demo_captures)
    assert len(read) == len(set(read)) == 24 * 4


def test_another_target_says_nothing_of_the_text(recorded):
    """Its head hits now and then by chance: that the text is sampled does not follow."""
    captures, _, other, drafter = recorded
    ckpt = e3.open_checkpoint(drafter, target=other)
    chosen = best_tokens(ckpt.target, torch.cat([c.last for c in captures]).float()).split([len(c.last) for c in captures])
    half = [torch.where(torch.arange(len(c.token_ids)) % 2 == 0, best.roll(1), c.token_ids)
            for c, best in zip(captures, chosen, strict=True)]  # fmt: skip
    mixed = [c.replace(token_ids=ids) for c, ids in zip(captures, half, strict=True)]
    assert [f.name for f in e3.check_captures(ckpt, mixed)] == ["another target"]


def test_sampled_text_is_told_and_its_claim_not_judged(recorded):
    """Trainers score against the target's first choice; on sampled text the text's token is another."""
    captures, target, _, drafter = recorded
    ckpt = e3.open_checkpoint(drafter, target=target)
    g = torch.Generator().manual_seed(0)
    half = [torch.where(torch.rand(len(c.token_ids), generator=g) < 0.4, 2, c.token_ids) for c in captures]
    sampled = [
        c.replace(token_ids=ids, streams={n: s for n, s in c.streams.items() if n}) for c, ids in zip(captures, half, strict=True)
    ]
    checks = e3.check_captures(ckpt, sampled)
    assert [f.where for f in checks] == ["text"]
    acc = e3.Accuracy.of(e3.hits(e3.Drafter(ckpt), sampled, 1))
    said = results.accuracies({"x": acc}, checks, claimed_row(e3.trainer_figures(acc), ("SpecForge", "acc_0")), 0.5)
    assert "not compared" in said
    assert "interval" not in said


def test_no_sample_is_no_sound_recording(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="no sample"):
        e3.check_captures(tiny_checkpoint, [])
