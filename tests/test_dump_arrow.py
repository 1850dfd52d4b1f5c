"""Loss masks that lie in the arrow dataset beside speculators' files."""

import json
import sys

import pytest
from dumps import files
from dumps.base import samples

import eagle3lib as e3


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
    files.speculators(tmp_path / "data" / "hidden_states", samples())
    (tmp_path / "data" / "hidden_states" / "hs_0.safetensors").unlink()  # a sample that failed: rows keep their numbers
    for folder in (tmp_path / "data", tmp_path / "data" / "hidden_states"):
        found = list(e3.read_captures(folder))
        assert [c.loss_mask.tolist() for c in found] == [c.loss_mask.tolist() for c in samples()[1:]]
        assert found[0].about["loss mask"] == "row 1 of the dataset in data"


def test_a_dataset_that_was_made_again(tmp_path):
    write_arrow(tmp_path / "data", samples()[::-1][:2])
    files.speculators(tmp_path / "data" / "hidden_states", samples())
    caps = e3.read_captures(tmp_path / "data")
    with pytest.raises(e3.InputError, match="hs_0.safetensors: its tokens are not those of row 0 of the dataset"):
        caps[0]
    with pytest.raises(e3.InputError, match="hs_2.safetensors: the dataset in .* has only 2 rows"):
        caps[2]


def test_a_dataset_that_cannot_be_read(tmp_path):
    write_arrow(tmp_path / "data", samples())
    files.speculators(tmp_path / "data" / "hidden_states", samples())
    file = tmp_path / "data" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(e3.InputError, match="its arrow dataset cannot be read"):
        e3.read_captures(tmp_path / "data")
    (tmp_path / "data" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../other.arrow"}]}))
    with pytest.raises(e3.InputError, match="state.json: lists .*other.arrow"):
        e3.read_captures(tmp_path / "data")


def test_without_pyarrow(tmp_path, monkeypatch):
    files.speculators(tmp_path / "data" / "hidden_states", samples())
    (tmp_path / "data" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(e3.InputError, match="pip install pyarrow"):
        e3.read_captures(tmp_path / "data")
