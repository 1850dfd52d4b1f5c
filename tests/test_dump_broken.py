"""Folders with good, half-written and foreign files: each bad one is told of by name and reason, the good ones are read."""

import gzip
import io
import json
import os
import shutil
import warnings

import pytest
import torch
from dumps import files, shards
from dumps.base import STREAMS, same, samples
from dumps.made import MADE, by_format, each
from safetensors.torch import save_file

import eagle3lib as e3
from eagle3lib.read import dump_files

SUFFIXES = (".safetensors", ".pt", ".ckpt", ".gz", ".json")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


BAD = {"half-written": cut, "empty": lambda content: b"", "other bytes": lambda content: b"\x00\x01 this is no dump" * 40}


def sample_files(folder):
    """In the order in which they are read."""
    found = [file for file in folder.rglob("*") if file.suffix in SUFFIXES and ("data_" in file.name or file.parent == folder)]
    beside = ("manifest.json", "data_config.json", "sample_lengths.json", "target_embeddings.safetensors")
    return sorted(file for file in found if file.name not in beside)


def opened(made, folder):
    """The captures, and what was told of when the folder was opened."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        caps = made.read(folder)
    return caps, " ".join(str(one.message) for one in told)


def spoil(made, folder, which, how):
    """Three samples, one of their files spoiled. Returns it."""
    made.write(folder, samples())
    whole = sample_files(folder)
    bad = whole[min(which, len(whole) - 1)]
    bad.write_bytes(how(bad.read_bytes()))
    return bad


@each("DeepSpec")  # its samples lie in shards, below
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", BAD.values(), ids=BAD)
def test_one_bad_file(tmp_path, made, which, how):
    folder = tmp_path / "dump"
    bad = spoil(made, folder, which, how)
    caps, told = opened(made, folder)
    good, raised = [], []
    for i in range(len(caps)):
        try:
            good.append(caps[i])
        except e3.InputError as error:
            raised.append(str(error))
    assert len(raised) == 1
    assert f"{bad}: " in raised[0]
    assert told == "" or f"{bad}: " in told
    assert any(why in told + raised[0] for why in ("truncated", "is no sample of", "holds nothing known"))
    held = {tuple(made.expected(c).token_ids.tolist()): made.expected(c) for c in samples()}
    assert len(good) == (1 if made is MADE["NeMo Automodel"] and which == 0 else 2)  # a shard is two samples
    assert all(same(c, held[tuple(c.token_ids.tolist())]) for c in good)


@each("DeepSpec")
def test_every_bad_file_is_named_when_the_folder_is_opened(tmp_path, made):
    """Where a header, an index or the end of a file shows it; else when it is read, as above."""
    folder = tmp_path / "dump"
    made.write(folder, samples(6))
    whole = sample_files(folder)
    for file in whole[-2:]:
        file.write_bytes(b"")
    caps, told = opened(made, folder)
    assert f"2 of {len(whole)} files are broken" in told
    assert all(f"{file}: " in told for file in whole[-2:])
    assert len(list(caps[:-2])) == (2 if made is MADE["NeMo Automodel"] else 4)


@by_format
def test_nothing_that_can_be_read(tmp_path, made):
    made.write(tmp_path / "dump", samples())
    for file in [*sample_files(tmp_path / "dump"), *tmp_path.glob("dump/samples.idx")]:
        file.write_bytes(b"")
    if made is MADE["DeepSpec"]:
        caps, told = opened(made, tmp_path / "dump")
        assert len(caps) == 0
        assert "samples.idx: 0 bytes are 0 samples, but manifest.json tells of 3" in told
        return
    with pytest.raises(e3.InputError, match="none of . files can be read; .*: truncated"):
        made.read(tmp_path / "dump")


# DeepSpec: three samples, two shards


@pytest.mark.parametrize("how", [cut, lambda content: b"", None])
def test_a_bad_shard(tmp_path, how):
    folder = tmp_path / "dump"
    shards.deepspec(folder, samples())
    shard = folder / "shard-00000.bin"
    content = shard.read_bytes()
    shard.unlink() if how is None else shard.write_bytes(how(content))
    with pytest.warns(UserWarning, match=r"shard-00000\.bin: [\d,]+ bytes, but its samples end at byte [\d,]+: . of 2 cannot"):
        caps = e3.read_captures(folder)
    assert len(caps) == 3
    assert same(caps[2], samples()[2])
    with pytest.raises(e3.InputError, match=r"samples\.idx, sample 1: shard-00000\.bin has [\d,]+ bytes, but the sample ends at"):
        caps[1]
    if how is cut:
        shard.write_bytes(content[: len(content) * 2 // 3])  # the first sample is whole
        assert same(caps[0], samples()[0])


def test_a_cut_index(tmp_path):
    folder = tmp_path / "dump"
    shards.deepspec(folder, samples())
    index = folder / "samples.idx"
    index.write_bytes(index.read_bytes()[:130])
    with pytest.warns(UserWarning, match=r"samples\.idx: 130 bytes are 2 samples, but manifest.json tells of 3: truncated"):
        caps = e3.read_captures(folder)
    assert [same(found, c) for found, c in zip(caps, samples()[:2], strict=True)] == [True, True]


@pytest.mark.parametrize("at,value", [(0, 7), (8, 9), (12, 0), (12, 2**31), (48, 2**63), (48, 2**64 - 8)])
def test_a_damaged_index(tmp_path, at, value):
    """Sample, shard, length, and where the last state begins: none of them may lead outside a shard."""
    folder = tmp_path / "dump"
    shards.deepspec(folder, samples())
    index = folder / "samples.idx"
    content = bytearray(index.read_bytes())
    size = 4 if at in (8, 12) else 8
    content[at : at + size] = value.to_bytes(size, "little")
    index.write_bytes(bytes(content))
    caps, _ = opened(MADE["DeepSpec"], folder)
    assert same(caps[1], samples()[1])
    with pytest.raises(e3.InputError, match="samples.idx, sample 0: (its record says|shard-00000.bin has)"):
        caps[0]


@pytest.mark.parametrize(
    "field,value,said",
    [
        ("version", 1, "version is 1, expected 2"), ("token_dtype", "int64", "token_dtype is 'int64', expected 'int32'"),
        ("hidden_dtype", "float64", "hidden_dtype 'float64'"), ("hidden_size", "32", "hidden_size '32'"),
        ("target_layer_ids", [], r"target_layer_ids \[\]"), ("shards", [{"file_name": "../other.bin"}], "names of files"),
        ("shards", None, "expected names of files"),
    ],
)  # fmt: skip
def test_a_manifest_of_something_else(tmp_path, field, value, said):
    folder = tmp_path / "dump"
    shards.deepspec(folder, samples())
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, field: value}))
    with pytest.raises(e3.InputError, match=rf"manifest\.json: .*{said}"):
        e3.read_captures(folder)


def test_a_dump_that_was_interrupted(tmp_path):
    """DeepSpec writes its manifest last; Automodel first."""
    shards.deepspec(tmp_path / "deepspec", samples())
    (tmp_path / "deepspec" / "manifest.json").unlink()
    with pytest.raises(e3.InputError, match="no manifest.json beside it, which is written last: the dump was interrupted"):
        e3.read_captures(tmp_path / "deepspec")
    shards.automodel(tmp_path / "automodel", samples())
    (tmp_path / "automodel" / "shard-000001.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"manifest.json tells of 3 samples, and 2 can be read: the dump was interrupted"):
        caps = e3.read_captures(tmp_path / "automodel")
    assert len(list(caps)) == 2


# Code in pickles


class Code:
    """Unpickled freely, it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@each("speculators", "vLLM, slots first", "vLLM, tokens first", "NeMo Automodel", "DeepSpec", "SGLang")  # no pickles
def test_code_in_a_file_is_not_run(tmp_path, made):
    made.write(tmp_path / "dump", samples())
    content = io.BytesIO()
    held = {"input_ids": Code(tmp_path / "run"), "hidden_states": 1, "loss_mask": 1}
    torch.save([held] if made is MADE["TensorRT-LLM"] else held, content)
    for file in sample_files(tmp_path / "dump"):
        file.write_bytes(gzip.compress(content.getvalue()) if file.suffix == ".gz" else content.getvalue())
    with pytest.raises(e3.InputError, match=r"none of 3 files can be read; .*a Python object \((posix|nt)\.mkdir\)"):
        e3.read_captures(tmp_path / "dump")
    assert not (tmp_path / "run").exists()
    torch.load(io.BytesIO(content.getvalue()), weights_only=False)  # the code is real
    assert (tmp_path / "run").exists()


def test_a_file_that_unpacks_without_end(tmp_path, monkeypatch):
    files.specforge_gz(tmp_path / "dump", samples())
    caps = e3.read_captures(tmp_path / "dump")
    caps.samples[1].write_bytes(gzip.compress(bytes(10**6)))
    monkeypatch.setattr(dump_files, "UNPACKED", 10**5)
    assert len(caps[0].token_ids) == 18
    with pytest.raises(e3.InputError, match="data_1.ckpt.gz: unpacks to more than 100,000 bytes"):
        caps[1]


# Other tools' files


def test_two_tools_in_one_folder(tmp_path):
    files.speculators(tmp_path / "one", samples())
    files.modelopt(tmp_path / "one" / "two", samples())
    with pytest.raises(e3.InputError, match="hs_0.safetensors and conv0.pt"):
        e3.read_captures(tmp_path / "one")


def test_two_formats_under_one_suffix(tmp_path):
    files.speculators(tmp_path / "a", samples())
    files.vllm(tmp_path / "a" / "b", samples())
    with pytest.raises(e3.InputError, match="cmpl-0.safetensors and hs_0.safetensors are not of one format"):
        e3.read_captures(tmp_path / "a")
    files.modelopt(tmp_path / "c", samples())
    files.speculators_old(tmp_path / "c" / "d", samples())
    caps = e3.read_captures(tmp_path / "c")  # told only when a file is loaded
    assert caps[0].name == "conv0"
    with pytest.raises(
        e3.InputError, match="data_0.pt: holds input_ids, hidden_states, loss_mask, but conv0.pt is a dump of ModelOpt"
    ):
        caps[3]


@pytest.mark.parametrize("name", ["a.safetensors", "z.safetensors"])
def test_weights_beside_a_dump(tmp_path, name):
    """Before the samples or after them: it is named, and they are read."""
    files.vllm(tmp_path / "dump", samples())
    save_file({"fc.weight": torch.ones(2)}, tmp_path / "dump" / name)
    with pytest.warns(UserWarning, match=rf"1 of 4 files are broken.*{name}: is no sample of vLLM; it holds fc.weight"):
        caps = e3.read_captures(tmp_path / "dump", streams=STREAMS)
    good = [c for c in caps.samples if c.name != name]
    assert [len(caps.read(file).token_ids) for file in good] == [18, 19, 20]
    with pytest.raises(e3.InputError, match=f"{name}: holds fc.weight, but cmpl-0.safetensors is a dump of vLLM"):
        caps[0 if name[0] == "a" else 3]


def test_a_file_that_changed(tmp_path):
    shards.tensorrt(tmp_path / "dump", samples(2))
    caps = e3.read_captures(tmp_path / "dump")
    torch.save([shards.tensorrt_sample(samples()[0], 1)], tmp_path / "dump" / "data_2.pt")
    assert len(caps[0].token_ids) == 18
    with pytest.raises(e3.InputError, match="data_2.pt, sample 1: .*list index out of range"):
        caps[1]
    shutil.rmtree(tmp_path / "dump")
    with pytest.raises(e3.InputError, match="data_2.pt: no such file"):
        caps[0]


def test_nothing_known(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(
        e3.InputError, match=r"no dump that it knows \(speculators, hs_.*SpecForge.*ModelOpt.*the folder holds notes.txt"
    ):
        e3.read_captures(tmp_path)
    torch.save({"weights": torch.ones(2)}, tmp_path / "optimizer.pt")
    with pytest.raises(e3.InputError, match="the folder holds notes.txt, optimizer.pt"):
        e3.read_captures(tmp_path)
    for held in ([torch.ones(2)], [], [{"a": 1}, 2], torch.ones(2)):
        torch.save(held, tmp_path / "optimizer.pt")
        with pytest.raises(e3.InputError, match="optimizer.pt: holds a (list|Tensor), expected a dict"):
            e3.read_captures(tmp_path)
