"""What each tool's dump does otherwise than one would think: padding, shifts, last slots, order, and what the last state is."""

import json

import pytest
import torch
from dumps import files, shards
from dumps.base import STREAMS, aux, same, samples, slots
from safetensors.torch import save_file

import eagle3lib as e3


def one(folder):
    return e3.read_captures(folder)[0]


# Padding


def test_padding_of_specforge_is_left_out(tmp_path):
    (tmp_path / "dump").mkdir()
    capture = samples()[0]
    torch.save(files.specforge_sample(capture, padding=7), tmp_path / "dump" / "data_0.ckpt")
    found = e3.read_captures(tmp_path / "dump", streams=STREAMS)[0]
    assert same(found, capture)
    assert found.about["trimmed"].startswith("7 tokens")


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("seq", [18, 19, 40])
def test_padding_and_shift_of_automodel(tmp_path, left, seq):
    """Text that fills its row, that leaves one place, and that leaves many, padded on either side."""
    capture = samples(1)[0]
    shards.automodel(tmp_path / "dump", [capture], seq=seq, left=left)
    found = one(tmp_path / "dump")
    assert found.token_ids[1:].tolist() == capture.token_ids[1:].tolist()
    assert found.loss_mask[1:].tolist() == capture.loss_mask[1:].tolist()
    assert all(torch.equal(found.stream(n), capture.streams[n]) for n in STREAMS)
    assert found.about.get("trimmed", "").startswith(f"{seq - 18} tokens outside" if seq > 18 else "")
    lost = not (left and seq > 18)  # behind padding, a token before the text holds the first one
    assert ("0 stands for it" in found.about["moved"]) == lost
    assert int(found.token_ids[0]) == (0 if lost else int(capture.token_ids[0]))


def test_an_attention_mask_with_gaps(tmp_path):
    (tmp_path / "dump").mkdir()
    held = {**files.specforge_sample(samples(1)[0]), "attention_mask": torch.tensor([1, 0] * 9)}
    torch.save(held, tmp_path / "dump" / "data_0.ckpt")
    with pytest.raises(e3.InputError, match="attention_mask keeps 9 of 18 tokens, expected one run"):
        one(tmp_path / "dump")


# Which slot is which


@pytest.mark.parametrize("layers,streams", [((57, 1, 29), (58, 2, 30)), ((1, 2, 3), (2, 3, 4))])
def test_automodel_keeps_the_order_of_its_list(tmp_path, layers, streams):
    """Engines sort; hooks do not."""
    shards.automodel(tmp_path / "dump", samples(1), layers=layers)
    found = one(tmp_path / "dump")
    assert tuple(found.streams) == streams
    assert [torch.equal(found.stream(n), samples(1)[0].streams[m]) for n, m in zip(streams, STREAMS, strict=True)] == [True] * 3


def test_minus_one_of_deepspec_is_the_embedding(tmp_path):
    shards.deepspec(tmp_path / "dump", samples(), layers=(-1, 9, 17))
    assert list(one(tmp_path / "dump").streams) == [0, 10, 18]


@pytest.mark.parametrize("how,named", [({}, None), ({"listed": True}, None), ({"listed": True}, STREAMS)])
def test_the_last_state_that_tensorrt_appends(tmp_path, how, named):
    """Where -1 was listed it stands at the end of the captured layers and apart: it is no stream of a drafter."""
    shards.tensorrt(tmp_path / "dump", samples(2), **how)
    caps = e3.read_captures(tmp_path / "dump", streams=named)
    for found, original in zip(caps, samples(2), strict=True):
        assert list(found.streams) == list(named or ("slot0", "slot1", "slot2"))
        assert all(torch.equal(found.stream(label), original.streams[n]) for label, n in zip(found.streams, STREAMS, strict=True))
        assert torch.equal(found.last.float(), original.last)
        assert found.last_kind == "post_norm"
        assert ("the last of 4 captured layers is hidden_state once more" in found.about.get("states", "")) == bool(how)


def test_tensorrts_first_version(tmp_path):
    """It could write the last captured layer as hidden_state: then nobody knows what that is, and who names all keeps all."""
    shards.tensorrt(tmp_path / "dump", samples(2), listed=True, name="hidden_state_features")
    assert one(tmp_path / "dump").last_kind == "unknown"
    every = e3.read_captures(tmp_path / "dump", streams=(2, 3, 4, 5))[0]
    assert torch.equal(every.stream(5), samples()[0].last)
    shards.tensorrt(tmp_path / "apart", samples(2), name="hidden_state_features")
    assert one(tmp_path / "apart").last_kind == "post_norm"


def test_tensorrt_with_no_layer_but_the_last(tmp_path):
    (tmp_path / "dump").mkdir()
    held = shards.tensorrt_sample(samples()[0], 1)
    del held["aux_hidden_states"]
    torch.save([held], tmp_path / "dump" / "data_1.pt")
    found = one(tmp_path / "dump")
    assert list(found.streams) == ["slot0"]
    assert torch.equal(found.last, found.streams["slot0"])
    assert found.last_kind == "post_norm"


def test_several_requests_in_a_file_of_tensorrt(tmp_path):
    shards.tensorrt(tmp_path / "dump", samples(7), interval=3)
    caps = e3.read_captures(tmp_path / "dump")
    assert [c.name for c in caps] == [f"data_{n}[{i}]" for n in (3, 6) for i in range(3)]  # the seventh was never written
    assert all(torch.equal(found.token_ids, c.token_ids) for found, c in zip(caps, samples(6), strict=True))


def test_the_last_slot_of_a_connector_dump(tmp_path):
    """vLLM dumps the layers that were asked for, and only who asked knows whether the last was L."""
    files.vllm(tmp_path / "dump", samples())
    unsaid = one(tmp_path / "dump")
    assert list(unsaid.streams) == ["slot0", "slot1", "slot2", "slot3"]
    assert (unsaid.last, unsaid.last_kind) == (None, "none")
    assert unsaid.about["last state"] == "none, each in the file is a stream: assumed, as dumps of vLLM mostly are"
    told = e3.read_captures(tmp_path / "dump", last="pre_norm")[0]
    assert list(told.streams) == ["slot0", "slot1", "slot2"]
    assert torch.equal(told.last.float(), samples()[0].last)
    all_four = e3.read_captures(tmp_path / "dump", streams=(2, 3, 4, 5))[0]
    assert list(all_four.streams) == [2, 3, 4, 5]
    assert all_four.last is None
    with pytest.raises(e3.InputError, match="4 states for 3 streams, which does not go with last='none'"):
        e3.read_captures(tmp_path / "dump", streams=STREAMS, last="none")[0]
    with pytest.raises(e3.InputError, match="last: 'final', expected one of"):
        e3.read_captures(tmp_path / "dump", last="final")


def test_as_many_tokens_as_slots(tmp_path):
    """Then the axes look alike. speculators writes tokens first; of vLLM's two orders nothing tells which."""
    short = samples(1, T=4)
    files.speculators(tmp_path / "hs", short)
    assert same(e3.read_captures(tmp_path / "hs", streams=STREAMS)[0].replace(loss_mask=short[0].loss_mask), short[0])
    for name, write in {"first": files.vllm_first, "later": files.vllm}.items():
        write(tmp_path / name, short)
        with pytest.raises(e3.InputError, match=r"hidden_states is \[4, 4, 32\] for 4 tokens: .* nothing tells which"):
            one(tmp_path / name)


# What the last state is


@pytest.mark.parametrize(
    "flag,told,expected",
    [(None, None, "unknown"), (True, None, "pre_norm"), (False, None, "post_norm"), (True, "post_norm", "post_norm")],
)
def test_the_last_state_of_modelopt(tmp_path, flag, told, expected):
    files.modelopt(tmp_path / "dump", samples(), **({} if flag is None else {"hidden_states_prenorm": flag}))
    assert e3.read_captures(tmp_path / "dump", last=told)[0].last_kind == expected
    assert e3.read_captures(tmp_path / "dump", last="none")[0].last is None


def test_modelopt_without_states_for_the_drafter(tmp_path):
    files.modelopt(tmp_path / "dump", samples(), aux_hidden_states=torch.empty(0))
    with pytest.raises(e3.InputError, match=r"conv0.pt: aux_hidden_states is \[0\] and hidden_states \[18, 32\]"):
        one(tmp_path / "dump")


def test_the_last_state_of_angelslims_vllm_backend(tmp_path):
    """It falls back to the state before the norm, and nothing in the file says so: the caller's word counts."""
    files.angelslim(tmp_path / "dump", samples())
    assert one(tmp_path / "dump").last_kind == "post_norm"
    assert e3.read_captures(tmp_path / "dump", last="pre_norm")[0].last_kind == "pre_norm"


# Numbers


def test_float8_files(tmp_path):
    """speculators' fp8 connector: one scale for each token."""
    (tmp_path / "dump").mkdir()
    states = slots(samples()[0])
    scales = states.abs().amax((1, 2), keepdim=True) / 448
    tensors = {
        "hidden_states": (states / scales).to(torch.float8_e4m3fn),
        "hidden_states_scales": scales,
        "token_ids": samples()[0].token_ids,
    }
    save_file(tensors, tmp_path / "dump" / "hs_0.safetensors")
    torch.testing.assert_close(one(tmp_path / "dump").stream("slot1"), states[:, 1], rtol=0.07, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_of_deepspec(tmp_path, dtype):
    shards.deepspec(tmp_path / "dump", samples(), dtype=dtype)
    for found, original in zip(e3.read_captures(tmp_path / "dump"), samples(), strict=True):
        assert torch.equal(found.stream(3), original.streams[3].to(dtype).float())


# Files that tell which layers


@pytest.mark.parametrize("ids", [[1], "1, 2", None, [1, "2"]])
def test_a_sidecar_that_says_nothing(tmp_path, ids):
    files.speculators_old(tmp_path / "dump", samples())
    (tmp_path / "dump" / "data_config.json").write_text(json.dumps({"hidden_states": {"layer_ids": ids}}))
    with pytest.raises(e3.InputError, match="data_config.json: hidden_states.layer_ids is .*, expected a list of layer ids"):
        e3.read_captures(tmp_path / "dump")


@pytest.mark.parametrize("write", [shards.automodel, shards.deepspec])
def test_a_manifest_and_the_callers_word(tmp_path, write):
    write(tmp_path / "dump", samples())
    assert list(e3.read_captures(tmp_path / "dump", streams=(5, 6, 7))[0].streams) == [5, 6, 7]
    with pytest.raises(e3.InputError, match=r"streams: \(5, 6\), but manifest.json: .* name one for each of its 3 layers"):
        e3.read_captures(tmp_path / "dump", streams=(5, 6))


def test_automodel_without_its_manifest(tmp_path):
    shards.automodel(tmp_path / "dump", samples())
    (tmp_path / "dump" / "manifest.json").unlink()
    assert torch.equal(one(tmp_path / "dump").stream("slot0"), aux(samples()[0]))  # how many streams it is, nobody knows
    assert list(e3.read_captures(tmp_path / "dump", streams=STREAMS)[0].streams) == list(STREAMS)


def test_automodels_first_version(tmp_path):
    shards.automodel(tmp_path / "dump", samples())
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    (tmp_path / "dump" / "manifest.json").write_text(json.dumps({**manifest, "format_version": 1}))
    with pytest.raises(e3.InputError, match="manifest.json: format_version is 1, expected 2"):
        e3.read_captures(tmp_path / "dump")
