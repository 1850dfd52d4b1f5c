"""Captures: written and read back, joined by a recipe, refused with a reason."""

import json

import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.read.tensors import TensorFiles


@pytest.fixture
def folder(tmp_path):
    samples = [tiny.capture(seed=i, name=f"s{i}").replace(about={"kind": "test"}) for i in range(3)]
    e3.write_captures(tmp_path / "captures", samples, target="tiny", n_layers=6, dtype=torch.float32)
    return tmp_path / "captures"


def test_others_may_read_what_they_may_read_in_the_folder(folder):
    """A file is as open as the folder that it lies in."""
    for file in folder.glob("*.safetensors"):
        assert file.stat().st_mode & 0o666 == folder.stat().st_mode & 0o666


def test_read_back(folder):
    caps = e3.read_captures(folder)
    assert len(caps) == 3
    assert [c.name for c in caps] == ["s0", "s1", "s2"]
    original = tiny.capture(seed=1)
    assert torch.equal(caps[1].token_ids, original.token_ids)
    assert torch.equal(caps[1].stream(3), original.streams[3])
    assert list(caps[1].streams) == [0, 2, 3, 4]
    assert caps[1].last_kind == "post_norm"
    assert caps[1].known[2] == "captures.json: random"
    assert caps[1].about == {"kind": "test"}
    assert len(caps[:2]) == 2


def test_only_the_streams_asked_for_are_read(folder, monkeypatch):
    caps, read = e3.read_captures(folder), []
    real = TensorFiles.__getitem__
    monkeypatch.setattr(TensorFiles, "__getitem__", lambda self, name: read.append(name) or real(self, name))
    caps[0].stream(3)
    assert read.count("stream.3") == 1
    assert read.count("last") == 1
    assert not {"stream.0", "stream.2", "stream.4"} & set(read)


def test_recipe_picks_streams_in_its_order(tiny_checkpoint):
    capture = tiny.capture()
    joined = capture.joined(tiny_checkpoint.recipe.replace(streams=(4, 0, 2)))
    assert torch.equal(joined, torch.cat([capture.streams[n] for n in (4, 0, 2)], dim=1))


def test_slots_without_labels_go_by_position(tiny_checkpoint):
    capture = tiny.capture()
    slots = capture.replace(streams={f"slot{i}": capture.streams[n] for i, n in enumerate((3, 0, 4))})
    assert torch.equal(slots.joined(tiny_checkpoint.recipe), torch.cat([capture.streams[n] for n in (3, 0, 4)], dim=1))


def test_a_stream_that_was_not_recorded(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="stream 5 was not recorded; there are 0, 2, 3, 4"):
        tiny.capture().joined(tiny_checkpoint.recipe.replace(streams=(2, 3, 5)))


def test_captures_of_another_target(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="16 wide, but fc takes 3 of 32"):
        tiny.capture(width=16).joined(tiny_checkpoint.recipe)


def test_rows_that_do_not_go_with_the_tokens(tiny_checkpoint):
    capture = tiny.capture()
    cut = capture.replace(streams={n: s[:-3] for n, s in capture.streams.items()})
    with pytest.raises(e3.InputError, match=r"is \[17, 32\] for 20 tokens"):
        cut.joined(tiny_checkpoint.recipe)


def test_nobody_says_which_streams(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="give streams="):
        tiny.capture().joined(tiny_checkpoint.recipe.replace(streams=None))


def test_mask_of_another_length():
    with pytest.raises(e3.InputError, match=r"loss_mask is \[4\], expected \[20\]"):
        tiny.capture().replace(loss_mask=torch.ones(4, dtype=torch.bool))


def test_wrong_folder(tmp_path):
    drafter = tiny.write_drafter(tmp_path / "drafter")
    with pytest.raises(e3.InputError, match="no captures.json, .* the folder holds config.json, model.safetensors"):
        e3.read_captures(drafter)
    with pytest.raises(e3.InputError, match="no such folder"):
        e3.read_captures(tmp_path / "nowhere")


def test_half_copied_folder(folder):
    (folder / "sample_00001.safetensors").unlink()
    with pytest.raises(e3.InputError, match="1 of 3 files .* absent"):
        e3.read_captures(folder)


def test_a_sample_listed_twice_is_refused(folder):
    sidecar = json.loads((folder / "captures.json").read_text())
    sidecar["samples"].append(sidecar["samples"][1])
    (folder / "captures.json").write_text(json.dumps(sidecar))
    with pytest.raises(e3.InputError, match="lists sample_00001.safetensors more than once"):
        e3.read_captures(folder)


def test_truncated_sample(folder):
    path = folder / "sample_00002.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    caps = e3.read_captures(folder)
    assert caps[1].name == "s1"  # the good ones are read
    with pytest.raises(e3.InputError, match="sample_00002.safetensors: cannot be read as tensors"):
        caps[2]


def test_interrupted_recording(tmp_path):
    def stops():
        yield tiny.capture()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        e3.write_captures(tmp_path / "captures", stops(), target="tiny", n_layers=6)
    with pytest.raises(e3.InputError, match="no captures.json"):
        e3.read_captures(tmp_path / "captures")
    with pytest.raises(e3.InputError, match="an interrupted recording can be deleted"):
        e3.write_captures(tmp_path / "captures", [tiny.capture()], target="tiny", n_layers=6)


def test_nothing_is_overwritten(folder):
    with pytest.raises(e3.InputError, match="exists and is not empty"):
        e3.write_captures(folder, [tiny.capture()], target="tiny", n_layers=6)


def test_values_that_half_precision_cannot_hold(tmp_path):
    capture = tiny.capture()
    big = capture.replace(streams={**capture.streams, 2: capture.streams[2] * 1e5})
    with pytest.raises(e3.InputError, match="stream 2: reaches .* beyond torch.float16"):
        e3.write_captures(tmp_path / "captures", [big], target="tiny", n_layers=6)


@pytest.mark.parametrize(
    "sample", [{}, "s0", {"name": "s0"}, {"name": "s0", "file": "../drafter/model.safetensors"}, {"file": 3}]
)
def test_a_list_of_samples_that_cannot_be(folder, sample):
    sidecar = json.loads((folder / "captures.json").read_text())
    (folder / "captures.json").write_text(json.dumps({**sidecar, "samples": [sample]}))
    with pytest.raises(e3.InputError, match="expected a name, and a file of this very folder"):
        e3.read_captures(folder)


def test_a_batch_is_no_sample():
    with pytest.raises(e3.InputError, match=r"token_ids is \[1, 20\], expected \[T\]"):
        tiny.capture().replace(token_ids=torch.zeros(1, 20, dtype=torch.int64))


def test_another_format(folder):
    sidecar = json.loads((folder / "captures.json").read_text())
    (folder / "captures.json").write_text(json.dumps({**sidecar, "format": "other"}))
    with pytest.raises(e3.InputError, match="format is 'other'"):
        e3.read_captures(folder)


def test_streams_are_what_transformers_says(tmp_path):
    """r_n is `hidden_states[n]` for n < L; r_L is what the final norm is given; last is `hidden_states[L]`."""
    model = tiny.loaded(tiny.write_target(tmp_path / "target"))
    ids = torch.arange(10)
    capture = e3.record(model, ids, prompt_tokens=4, streams=(0, 2, 5, 6))
    theirs = model(ids[None], output_hidden_states=True).hidden_states
    for n in (0, 2, 5):
        assert torch.equal(capture.streams[n], theirs[n][0])
    assert torch.equal(capture.last, theirs[6][0])
    torch.testing.assert_close(model.model.norm(capture.streams[6]), theirs[6][0])
    assert capture.loss_mask.tolist() == [False] * 4 + [True] * 6
    with pytest.raises(e3.InputError, match="r_7 was asked for, but the target has 6 layers"):
        e3.record(model, ids, prompt_tokens=4, streams=(7,))
    assert not model.model.norm._forward_hooks  # no hook is left behind
    with pytest.raises(e3.InputError, match="no decoder"):
        e3.record(torch.nn.Linear(2, 2), ids, prompt_tokens=4, streams=(0,))


def test_fewer_streams_than_fc_takes_is_said(tiny_checkpoint):
    slots = tiny.capture().replace(streams={"slot0": torch.zeros(20, tiny.H), "slot1": torch.zeros(20, tiny.H)}, known={})
    with pytest.raises(e3.InputError, match=r"2 streams were recorded \(slot0, slot1\), but fc takes 3"):
        slots.joined(tiny_checkpoint.recipe)


def test_streams_that_lie_side_by_side_are_taken_as_they_are(tiny_checkpoint):
    """Some tools do not say how wide one state is; the drafter's fc does."""
    apart = tiny.capture(streams=(2, 3, 4))
    wide = apart.replace(streams={"slot0": torch.cat([apart.stream(n) for n in (2, 3, 4)], dim=-1)})
    recipe = tiny_checkpoint.recipe
    assert torch.equal(wide.joined(recipe), apart.joined(recipe))
