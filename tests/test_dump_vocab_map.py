"""Vocabulary maps in each trainer's files: read where the file settles what it holds, refused where it does not."""

import io
import pickle

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import save_file

import eagle3lib as e3
from eagle3lib.read.vocab_map import read_vocab_map

V = 96
IDS = torch.tensor([0, 1, 2, 5, 7, 8, 9, 40, 41, 90])  # ascending, as most write them
OFFSETS = IDS - torch.arange(len(IDS))
MARKS = torch.zeros(V, dtype=torch.bool).index_fill_(0, IDS, True)
AUTOMODEL = torch.tensor([40, 1, 9, 0, 2, 5, 7, 8, 41, 90])  # special tokens first, then by count


def numpy(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder / f"{next(iter(arrays))}.npy"


def saved(held, name="vocab_mapping.pt"):
    def write(folder):
        torch.save(held, folder / name)
        return folder / name

    return write


def safetensors(tensors):
    def write(folder):
        save_file(tensors, folder / "model.safetensors")
        return folder / "model.safetensors"

    return write


FILES = {
    "speculators": (lambda folder: numpy(folder, d2t=OFFSETS.numpy(), t2d=MARKS.numpy()), IDS),
    "speculators, d2t alone": (lambda folder: numpy(folder, d2t=OFFSETS.numpy()), IDS),
    "speculators, t2d alone": (lambda folder: numpy(folder, t2d=MARKS.numpy()), IDS),
    "SpecForge, AngelSlim": (saved({"d2t": OFFSETS, "t2d": MARKS}), IDS),
    "SafeAILab": (saved({"d2t": OFFSETS, "t2d": MARKS}, "cache.pt"), IDS),
    "ModelOpt": (saved(OFFSETS, "d2t.pt"), IDS),
    "Automodel": (saved({"selected_token_ids": AUTOMODEL, "target_vocab_size": V}, "token_map.pt"), AUTOMODEL),
    "checkpoint": (safetensors({"d2t": OFFSETS, "t2d": MARKS, "fc.weight": torch.ones(2, 2)}), IDS),
    "checkpoint, names with a prefix": (safetensors({"model.d2t": OFFSETS.int(), "model.t2d": MARKS.to(torch.uint8)}), IDS),
    "ids where offsets belong": (saved({"d2t": IDS, "t2d": MARKS}), IDS),
    "ids in another order": (saved({"d2t": AUTOMODEL, "t2d": MARKS}), AUTOMODEL),
    "ids that no offsets could be": (saved(torch.tensor([5, 4, 9])), torch.tensor([5, 4, 9])),  # as offsets: 5, 5, 11
    "the first tokens": (saved({"d2t": torch.zeros(4, dtype=torch.int64)}), torch.arange(4)),
}


@pytest.mark.parametrize("write,ids", FILES.values(), ids=FILES)
def test_maps(tmp_path, write, ids):
    found = read_vocab_map(write(tmp_path))
    assert found.dtype == torch.int64
    assert found.tolist() == ids.tolist()


def test_it_is_the_map_of_the_checkpoint(tmp_path):
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"))
    assert torch.equal(read_vocab_map(tmp_path / "drafter" / "model.safetensors"), ckpt.target_ids)


REFUSED = {
    "ids or offsets": (saved(IDS, "d2t.pt"), "d2t may hold offsets .* or ids, and nothing settles which: put t2d beside it"),
    "another vocabulary": (saved({"d2t": OFFSETS + 1, "t2d": MARKS}), "d2t leads to other tokens than the 10 that t2d marks"),
    "fewer tokens": (saved({"d2t": OFFSETS[:9], "t2d": MARKS}), "d2t leads to other tokens than the 10 that t2d marks"),
    "one token twice": (saved(torch.tensor([3, 2, 3])), r"leads to 2 tokens from 3 to 5, expected 3 different ones"),
    "below 0": (saved(torch.tensor([-1, 0])), "leads to 2 tokens from -1 to 1, expected 2 different ones"),
    "beyond the vocabulary": (
        saved({"selected_token_ids": torch.tensor([1, V]), "target_vocab_size": V}),
        f"from 1 to {V}, expected 2 different ones of {V}",
    ),
    "marks nothing": (saved(torch.zeros(V, dtype=torch.bool), "t2d.pt"), "t2d marks 0 of 96 tokens"),
    "marks of another kind": (saved({"t2d": torch.arange(V)}), "t2d marks 95 of 96 tokens, expected true or false"),
    "no whole numbers": (saved({"d2t": OFFSETS.float()}), r"d2t is \[10\] torch.float32, expected \[N\] whole numbers"),
    "a matrix": (saved({"d2t": OFFSETS[None]}), r"d2t is \[1, 10\]"),
    "nothing in it": (saved({"d2t": OFFSETS[:0]}), r"d2t is \[0\]"),
    "a list": (saved({"d2t": OFFSETS.tolist()}), "d2t is a list"),
    "counts": (saved({5: 100, 7: 3}, "token_freq.pt"), "holds 5, 7, expected d2t, t2d or selected_token_ids"),
    "an empty dict": (saved({}), "holds nothing, expected d2t"),
    "a list of maps": (saved([OFFSETS]), "holds a list, expected a vocabulary map"),
    "weights": (safetensors({"fc.weight": torch.ones(2, 2)}), "holds fc.weight, expected d2t"),
}  # fmt: skip


@pytest.mark.parametrize("write,said", REFUSED.values(), ids=REFUSED)
def test_files_that_are_refused(tmp_path, write, said):
    file = write(tmp_path)
    with pytest.raises(e3.InputError, match=said) as raised:
        read_vocab_map(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["d2t.npy", "d2t.pt", "model.safetensors"])
def test_half_written(tmp_path, name):
    if name.endswith("npy"):
        numpy(tmp_path, d2t=OFFSETS.numpy())
    else:
        (saved({"d2t": OFFSETS}, name) if name.endswith("pt") else safetensors({"d2t": OFFSETS}))(tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(e3.InputError, match=f"{name}: cannot be read"):
        read_vocab_map(file)


@pytest.mark.parametrize("name", ["", "nowhere.pt", "d2t.txt"])
def test_no_file(tmp_path, name):
    (tmp_path / "d2t.txt").write_text("x")
    with pytest.raises(e3.InputError, match="is no file of a vocabulary map: give one of .pt"):
        read_vocab_map(tmp_path / name)


class Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return __import__("os").mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["d2t.npy", "d2t.pt"])
def test_code_in_a_file_is_not_run(tmp_path, name):
    held, file = np.array([Code(tmp_path / "run")], dtype=object), tmp_path / name
    if name.endswith("npy"):
        np.save(file, held, allow_pickle=True)
    else:
        torch.save({"d2t": Code(tmp_path / "run")}, file)
    with pytest.raises(e3.InputError, match=f"{name}: (cannot be read as an array|holds a Python object)"):
        read_vocab_map(file)
    assert not (tmp_path / "run").exists()
    pickle.load(io.BytesIO(pickle.dumps(Code(tmp_path / "run"))))  # the code is real
    assert (tmp_path / "run").exists()
