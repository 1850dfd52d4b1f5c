"""Other tools' dumps, made here in their formats: read as they are, or refused with a reason; nothing in them is run."""

import gzip
import io
import json
import os
import sys

import pytest
import tiny
import torch
from safetensors.torch import save_file

import eagle3lib as e3
from eagle3lib.read import dump_files, dumps

STREAMS = (2, 3, 4)
EVERY = "none in the file: every token counted"


def samples(count=3):
    return [tiny.capture(T=18 + i, seed=i, streams=STREAMS) for i in range(count)]


def slots(capture):
    """[T, S, Ht], the last state at the end."""
    return torch.stack([*(capture.streams[n] for n in STREAMS), capture.last], dim=1)


def aux(capture):
    return torch.cat([capture.streams[n] for n in STREAMS], dim=1)


def write_speculators(folder, some):
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        save_file({"hidden_states": slots(c), "token_ids": c.token_ids}, folder / f"hs_{i}.safetensors")


def write_vllm(folder, some):
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        save_file(
            {"hidden_states": slots(c).transpose(0, 1).contiguous(), "token_ids": c.token_ids}, folder / f"cmpl-{i}.safetensors"
        )


def write_speculators_old(folder, some):
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "hidden_states": [c.streams[n] for n in STREAMS], "loss_mask": c.loss_mask.long()}
        held["hidden_states"].append(c.last)
        torch.save(held, folder / f"data_{i}.pt")
    config = {"version": "2.0", "hidden_states": {"layer_ids": [1, 2, 3, 5]}}
    (folder / "data_config.json").write_text(json.dumps(config))
    (folder / "sample_lengths.json").write_text("{}")


def specforge(capture, padding=0):
    """One sample's dict; `padding` as where a batch of several texts was captured."""

    def pad(x):
        return torch.cat([x, x.new_zeros(padding, *x.shape[1:])])

    return {
        "input_ids": pad(capture.token_ids), "loss_mask": pad(capture.loss_mask.long()),
        "aux_hidden_state": pad(aux(capture))[None], "hidden_state": pad(capture.last)[None],
    }  # fmt: skip


def write_specforge(folder, some):
    for i, c in enumerate(some):
        file = folder / f"rows_{2000 * (i // 2)}-{2000 * (i // 2) + 2000}" / f"data_{i}.ckpt"
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(specforge(c), file)
    (folder / "vocab_mapping").mkdir()
    torch.save({"d2t": torch.zeros(3)}, folder / "vocab_mapping" / "vocab_mapping.pt")


def write_specforge_gz(folder, some):
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        content = io.BytesIO()
        torch.save(specforge(c), content)
        (folder / f"data_{i}.ckpt.gz").write_bytes(gzip.compress(content.getvalue()))


def write_modelopt(folder, some, **more):
    folder.mkdir(parents=True)
    for i, c in enumerate(some):
        held = {"input_ids": c.token_ids, "hidden_states": c.last, "aux_hidden_states": aux(c), "loss_mask": c.loss_mask.long()}
        torch.save({**held, "conversation_id": f"conv{i}", **more}, folder / f"conv{i}.pt")


# how it is written; what its last state is; whether the mask and the layers are told
WRITERS = {
    "speculators": (write_speculators, "pre_norm", False, False),
    "vLLM": (write_vllm, "pre_norm", False, False),
    "speculators 0.3": (write_speculators_old, "unknown", True, True),
    "SpecForge": (write_specforge, "post_norm", True, False),
    "SpecForge gz": (write_specforge_gz, "post_norm", True, False),
    "ModelOpt": (write_modelopt, "unknown", True, False),
}
by_format = pytest.mark.parametrize("producer", WRITERS)


@pytest.fixture
def written(tmp_path, producer):
    WRITERS[producer][0](tmp_path / "dump", samples())
    return tmp_path / "dump"


@by_format
def test_what_was_dumped_is_what_is_read(written, producer):
    _, last_kind, mask_told, _ = WRITERS[producer]
    caps = e3.read_captures(written, streams=None if producer == "speculators 0.3" else STREAMS)
    assert len(caps) == len(caps[:]) == 3
    for found, original in zip(caps, samples(), strict=True):
        assert torch.equal(found.token_ids, original.token_ids)
        assert list(found.streams) == list(STREAMS)
        for n in STREAMS:
            assert torch.equal(found.stream(n), original.streams[n])
        assert torch.equal(found.last, original.last)
        assert found.last_kind == last_kind
        if mask_told:
            assert torch.equal(found.loss_mask, original.loss_mask)
            assert found.about["loss mask"] == "in the file"
        else:
            assert found.loss_mask.tolist() == [False] + [True] * (len(original.token_ids) - 1)
            assert found.about["loss mask"] == EVERY
        assert found.known[2] == (
            "data_config.json: layer_ids [1, 2, 3, 5], n = id + 1" if producer == "speculators 0.3" else "as streams= says"
        )


@by_format
def test_a_drafter_scores_the_same_on_them(written, producer, tiny_checkpoint):
    """Without labels too: a drafter takes slots by position."""
    drafter = e3.Drafter(tiny_checkpoint)
    originals = samples()
    if not WRITERS[producer][2]:
        originals = [c.replace(loss_mask=torch.arange(len(c.token_ids)) > 0) for c in originals]
    expected = e3.accuracy(drafter, originals, steps=3)
    found = e3.accuracy(drafter, e3.read_captures(written), steps=3)
    assert found.rows.sum() > 0
    assert (found.rows == expected.rows).all()
    assert (found.right == expected.right).all()
    labelled = WRITERS[producer][3]
    assert list(e3.read_captures(written)[0].streams)[:3] == (list(STREAMS) if labelled else ["slot0", "slot1", "slot2"])


@by_format
def test_one_sample_is_read_at_a_time(written, producer, monkeypatch):
    caps, opened = e3.read_captures(written), []
    real = dumps.held_by
    monkeypatch.setattr(dumps, "held_by", lambda file: opened.append(file.name) or real(file))
    assert len(caps[1].token_ids) == 19
    assert len(opened) == 1


@by_format
@pytest.mark.parametrize("which", [0, 1])
def test_a_truncated_file_hides_no_other(written, producer, which):
    file = e3.read_captures(written).samples[which]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    if producer == "SpecForge gz" and which:  # its header does not tell, and only the first file is loaded
        caps = e3.read_captures(written)
    else:
        with pytest.warns(UserWarning, match=f"1 of 3 files are broken.*{file.name}"):
            caps = e3.read_captures(written)
    assert len(list(caps[2:])) == 1
    assert len(caps[1 - which].token_ids) == 19 - which
    with pytest.raises(e3.InputError, match=f"{file.name}: cannot be read"):
        caps[which]


@by_format
def test_an_empty_file(written, producer):
    file = e3.read_captures(written).samples[1]
    file.write_bytes(b"")
    with pytest.warns(UserWarning, match="1 of 3 files are broken"):
        caps = e3.read_captures(written)
    with pytest.raises(e3.InputError, match=f"{file.name}: cannot be read"):
        caps[1]
    assert caps[2].token_ids.shape == (20,)


class Code:
    """Unpickled freely, it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("producer", ["speculators 0.3", "SpecForge", "SpecForge gz", "ModelOpt"])
def test_code_in_a_file_is_not_run(written, producer, tmp_path):
    files = e3.read_captures(written).samples
    content = io.BytesIO()
    torch.save({"input_ids": Code(tmp_path / "run"), "hidden_states": 1, "loss_mask": 1}, content)
    for file in files:
        file.write_bytes(gzip.compress(content.getvalue()) if file.suffix == ".gz" else content.getvalue())
    with pytest.raises(e3.InputError, match=r"none of 3 files can be read; .*a Python object \((posix|nt)\.mkdir\)"):
        e3.read_captures(written)
    assert not (tmp_path / "run").exists()
    torch.load(io.BytesIO(content.getvalue()), weights_only=False)  # the code is real
    assert (tmp_path / "run").exists()


def test_a_file_that_unpacks_without_end(tmp_path, monkeypatch):
    write_specforge_gz(tmp_path / "dump", samples())
    caps = e3.read_captures(tmp_path / "dump")
    caps.samples[1].write_bytes(gzip.compress(bytes(10**6)))
    monkeypatch.setattr(dump_files, "UNPACKED", 10**5)
    assert len(caps[0].token_ids) == 18
    with pytest.raises(e3.InputError, match="data_1.ckpt.gz: unpacks to more than 100,000 bytes"):
        caps[1]


@by_format
def test_states_that_are_no_numbers(tmp_path, producer, tiny_checkpoint):
    some = samples()
    some[1].streams[3][4, 0] = float("nan")
    WRITERS[producer][0](tmp_path / "dump", some)
    with pytest.raises(e3.InputError, match=r"1: NaN or infinite states in 1 rows, first row 4"):
        e3.accuracy(e3.Drafter(tiny_checkpoint), e3.read_captures(tmp_path / "dump"), steps=2)


@by_format
def test_states_of_another_length(tmp_path, producer):
    broken = samples()
    longer = torch.cat([broken[1].token_ids, broken[1].token_ids])
    broken[1] = broken[1].replace(token_ids=longer, loss_mask=torch.ones(len(longer), dtype=torch.bool))
    WRITERS[producer][0](tmp_path / "dump", broken)
    caps = e3.read_captures(tmp_path / "dump")
    with pytest.raises(e3.InputError, match=r"1\.(pt|ckpt|ckpt\.gz|safetensors): .*is \[.*19, .*\] for 38 tokens"):
        caps[1]


@by_format
def test_no_tokens(tmp_path, producer):
    some = samples()
    some[2] = some[2].replace(token_ids=torch.zeros(0, dtype=torch.int64), loss_mask=torch.zeros(0, dtype=torch.bool))
    WRITERS[producer][0](tmp_path / "dump", some)
    with pytest.raises(e3.InputError, match=r"2\.\S+: (token|input)_ids is \[0\]"):
        e3.read_captures(tmp_path / "dump")[2]


@by_format
def test_more_streams_named_than_dumped(written, producer):
    with pytest.raises(e3.InputError, match="5 streams were named"):
        e3.read_captures(written, streams=(0, 1, 2, 3, 4))[0]


@pytest.mark.parametrize("streams", [(), (2, 2, 4), (2, -1, 4), (True, 3, 4)])
def test_streams_that_cannot_be(tmp_path, streams):
    write_speculators(tmp_path / "dump", samples())
    with pytest.raises(e3.InputError, match="streams: .* expected the n of each state"):
        e3.read_captures(tmp_path / "dump", streams=streams)


def test_samples_are_in_the_order_of_their_numbers(tmp_path):
    write_speculators(tmp_path / "dump", samples(12))
    assert [c.name for c in e3.read_captures(tmp_path / "dump")] == [f"hs_{i}" for i in range(12)]


def test_the_last_slot_of_a_connector_dump(tmp_path):
    """vLLM dumps the layers that were asked for, and only who asked knows whether the last was L."""
    write_vllm(tmp_path / "dump", samples())
    unsaid = e3.read_captures(tmp_path / "dump")[0]
    assert list(unsaid.streams) == ["slot0", "slot1", "slot2", "slot3"]
    assert (unsaid.last, unsaid.last_kind) == (None, "none")
    assert unsaid.about["last state"] == "none, each in the file is a stream: assumed, as dumps of vLLM mostly are"
    told = e3.read_captures(tmp_path / "dump", last="pre_norm")[0]
    assert list(told.streams) == ["slot0", "slot1", "slot2"]
    assert torch.equal(told.last, samples()[0].last)
    all_four = e3.read_captures(tmp_path / "dump", streams=(2, 3, 4, 5))[0]
    assert list(all_four.streams) == [2, 3, 4, 5]
    assert all_four.last is None
    with pytest.raises(e3.InputError, match="4 states for 3 streams, which does not go with last='none'"):
        e3.read_captures(tmp_path / "dump", streams=STREAMS, last="none")[0]
    with pytest.raises(e3.InputError, match="last: 'final', expected one of"):
        e3.read_captures(tmp_path / "dump", last="final")


@pytest.mark.parametrize(
    "flag,told,expected",
    [(None, None, "unknown"), (True, None, "pre_norm"), (False, None, "post_norm"), (True, "post_norm", "post_norm")],
)
def test_the_last_state_of_modelopt(tmp_path, flag, told, expected):
    write_modelopt(tmp_path / "dump", samples(), **({} if flag is None else {"hidden_states_prenorm": flag}))
    assert e3.read_captures(tmp_path / "dump", last=told)[0].last_kind == expected
    assert e3.read_captures(tmp_path / "dump", last="none")[0].last is None


def test_modelopt_without_states_for_the_drafter(tmp_path):
    write_modelopt(tmp_path / "dump", samples(), aux_hidden_states=torch.empty(0))
    with pytest.raises(e3.InputError, match=r"conv0.pt: aux_hidden_states is \[0\] and hidden_states \[18, 32\]"):
        e3.read_captures(tmp_path / "dump")[0]


def test_padding_of_specforge_is_left_out(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    capture = samples()[0]
    torch.save(specforge(capture, padding=7), folder / "data_0.ckpt")
    found = e3.read_captures(folder)[0]
    assert torch.equal(found.token_ids, capture.token_ids)
    assert torch.equal(found.streams["slot2"], capture.streams[4])
    assert torch.equal(found.last, capture.last)
    assert found.about["trimmed"].startswith("7 tokens")


def test_float8_files(tmp_path):
    """speculators' fp8 connector: one scale for each token."""
    folder = tmp_path / "dump"
    folder.mkdir()
    states = slots(samples()[0])
    scales = states.abs().amax((1, 2), keepdim=True) / 448
    tensors = {
        "hidden_states": (states / scales).to(torch.float8_e4m3fn),
        "hidden_states_scales": scales,
        "token_ids": samples()[0].token_ids,
    }
    save_file(tensors, folder / "hs_0.safetensors")
    torch.testing.assert_close(e3.read_captures(folder)[0].stream("slot1"), states[:, 1], rtol=0.07, atol=0.01)


def test_two_tools_in_one_folder(tmp_path):
    write_speculators(tmp_path / "one", samples())
    write_modelopt(tmp_path / "one" / "two", samples())
    with pytest.raises(e3.InputError, match="hs_0.safetensors and conv0.pt"):
        e3.read_captures(tmp_path / "one")


def test_two_formats_under_one_suffix(tmp_path):
    write_speculators(tmp_path / "a", samples())
    write_vllm(tmp_path / "a" / "b", samples())
    with pytest.raises(e3.InputError, match="cmpl-0.safetensors and hs_0.safetensors are not of one format"):
        e3.read_captures(tmp_path / "a")
    write_modelopt(tmp_path / "c", samples())
    write_speculators_old(tmp_path / "c" / "d", samples())
    caps = e3.read_captures(tmp_path / "c")  # told only when a file is loaded
    assert caps[0].name == "conv0"
    with pytest.raises(
        e3.InputError, match="data_0.pt: holds input_ids, hidden_states, loss_mask, but conv0.pt is a dump of ModelOpt"
    ):
        caps[3]


def test_nothing_known(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(
        e3.InputError, match=r"no dump that it knows \(speculators, hs_.*SpecForge.*ModelOpt.*the folder holds notes.txt"
    ):
        e3.read_captures(tmp_path)
    torch.save({"weights": torch.ones(2)}, tmp_path / "optimizer.pt")
    with pytest.raises(e3.InputError, match="the folder holds notes.txt, optimizer.pt"):
        e3.read_captures(tmp_path)
    torch.save([torch.ones(2)], tmp_path / "optimizer.pt")
    with pytest.raises(e3.InputError, match="optimizer.pt: holds a list, expected a dict"):
        e3.read_captures(tmp_path)


@pytest.mark.parametrize("ids", [[1], "1, 2", None, [1, "2"]])
def test_a_sidecar_that_says_nothing(tmp_path, ids):
    write_speculators_old(tmp_path / "dump", samples())
    (tmp_path / "dump" / "data_config.json").write_text(json.dumps({"hidden_states": {"layer_ids": ids}}))
    with pytest.raises(e3.InputError, match="data_config.json: hidden_states.layer_ids is .*, expected a list of layer ids"):
        e3.read_captures(tmp_path / "dump")


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": "text"}, {"input_ids": torch.rand(18)}, {"input_ids": torch.zeros(2, 18, dtype=torch.int64)},
        {"loss_mask": torch.ones(3, dtype=torch.int64)}, {"loss_mask": None}, {"hidden_states": [1, 2]}, {"hidden_states": []},
        {"hidden_states": "text"}, {"hidden_states": {}}, {"hidden_states": torch.rand(18, 4)},
    ],
)  # fmt: skip
def test_fields_that_are_something_else(tmp_path, change):
    write_speculators_old(tmp_path / "dump", samples(1))
    (tmp_path / "dump" / "data_config.json").unlink()
    file = tmp_path / "dump" / "data_0.pt"
    torch.save({**torch.load(file, weights_only=True), **change}, file)
    with pytest.raises(e3.InputError, match=r"data_0.pt: .*(expected|entries for 18 tokens)"):
        e3.read_captures(tmp_path / "dump")[0]


@pytest.mark.parametrize(
    "change", [{"aux_hidden_state": "text"}, {"hidden_state": torch.rand(2, 18, 32)}, {"hidden_state": torch.rand(1, 18, 0)}]
)
def test_joined_states_that_are_something_else(tmp_path, change):
    (tmp_path / "dump").mkdir()
    torch.save({**specforge(samples()[0]), **change}, tmp_path / "dump" / "data_0.ckpt")
    with pytest.raises(e3.InputError, match=r"data_0.ckpt: aux_hidden_state is .*expected"):
        e3.read_captures(tmp_path / "dump")[0]


def write_arrow(folder, some, **change):
    """What `datasets.Dataset.save_to_disk` leaves, as far as a reader needs it."""
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"input_ids": [c.token_ids.tolist() for c in some], "loss_mask": [c.loss_mask.long().tolist() for c in some]}
    table = pyarrow.table({**columns, "seq_len": [len(c.token_ids) for c in some], **change})
    with (
        pyarrow.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pyarrow.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}))
    (folder / "dataset_info.json").write_text("{}")


def test_masks_of_the_arrow_dataset(tmp_path):
    write_arrow(tmp_path / "data", samples())
    write_speculators(tmp_path / "data" / "hidden_states", samples())
    (tmp_path / "data" / "hidden_states" / "hs_0.safetensors").unlink()  # a sample that failed: rows keep their numbers
    for folder in (tmp_path / "data", tmp_path / "data" / "hidden_states"):
        found = list(e3.read_captures(folder))
        assert [c.loss_mask.tolist() for c in found] == [c.loss_mask.tolist() for c in samples()[1:]]
        assert found[0].about["loss mask"] == "row 1 of the dataset in data"


def test_a_dataset_that_was_made_again(tmp_path):
    write_arrow(tmp_path / "data", samples()[::-1][:2])
    write_speculators(tmp_path / "data" / "hidden_states", samples())
    caps = e3.read_captures(tmp_path / "data")
    with pytest.raises(e3.InputError, match="hs_0.safetensors: its tokens are not those of row 0 of the dataset"):
        caps[0]
    with pytest.raises(e3.InputError, match="hs_2.safetensors: the dataset in .* has only 2 rows"):
        caps[2]


def test_a_dataset_that_cannot_be_read(tmp_path):
    write_arrow(tmp_path / "data", samples())
    write_speculators(tmp_path / "data" / "hidden_states", samples())
    file = tmp_path / "data" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(e3.InputError, match="its arrow dataset cannot be read"):
        e3.read_captures(tmp_path / "data")
    (tmp_path / "data" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../other.arrow"}]}))
    with pytest.raises(e3.InputError, match="state.json: lists .*other.arrow"):
        e3.read_captures(tmp_path / "data")


def test_without_pyarrow(tmp_path, monkeypatch):
    write_speculators(tmp_path / "data" / "hidden_states", samples())
    (tmp_path / "data" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(e3.InputError, match="pip install pyarrow"):
        e3.read_captures(tmp_path / "data")


def test_a_dump_becomes_this_librarys_own(tmp_path):
    write_specforge(tmp_path / "dump", samples())
    caps = e3.write_captures(tmp_path / "own", e3.read_captures(tmp_path / "dump"), "tiny", n_layers=None, dtype=None)
    assert list(caps[2].streams) == ["slot0", "slot1", "slot2"]
    assert torch.equal(caps[2].stream("slot1"), samples()[2].streams[3])
    with pytest.raises(e3.InputError, match="streams= and last= are for other tools' dumps"):
        e3.read_captures(tmp_path / "own", streams=STREAMS)
