"""Files that open, and whose fields are something else than their tool writes: refused, with the file and the field."""

import pytest
import torch
from dumps import files, shards
from dumps.base import samples
from dumps.made import each
from safetensors.torch import load_file, save_file

import eagle3lib as e3

# a shard of theirs has one length for all that is in it, and an answer has a row for each token or is refused for that
ONE_LENGTH = ("NeMo Automodel", "DeepSpec", "SGLang")


@each(*ONE_LENGTH)
def test_states_of_another_length(tmp_path, made):
    broken = samples()
    longer = torch.cat([broken[1].token_ids, broken[1].token_ids])
    broken[1] = broken[1].replace(token_ids=longer, loss_mask=torch.ones(len(longer), dtype=torch.bool))
    made.write(tmp_path / "dump", broken)
    caps = made.read(tmp_path / "dump")
    with pytest.raises(e3.InputError, match=r"[12]\.(pt|ckpt|ckpt\.gz|safetensors).*: .*is \[.*19, .*\] for 38 tokens"):
        caps[1]


@each(*ONE_LENGTH)
def test_no_tokens(tmp_path, made):
    some = samples()
    some[2] = some[2].replace(token_ids=torch.zeros(0, dtype=torch.int64), loss_mask=torch.zeros(0, dtype=torch.bool))
    made.write(tmp_path / "dump", some)
    with pytest.raises(e3.InputError, match=r"[23]\.\S+: .*(token|input)_ids is \[(1, )?0\]|3\.pt, sample 0: input_ids is \[0\]"):
        made.read(tmp_path / "dump")[2]


NOT_A_FIELD = (
    {"input_ids": "text"}, {"input_ids": torch.rand(18)}, {"input_ids": torch.zeros(2, 18, dtype=torch.int64)},
    {"input_ids": torch.zeros(18, dtype=torch.complex64)}, {"loss_mask": torch.ones(3, dtype=torch.int64)}, {"loss_mask": None},
)  # fmt: skip


def changed(folder, change, write=files.speculators_old):
    """One sample, written by `write`, some of its fields changed."""
    write(folder, samples(1))
    (folder / "data_config.json").unlink(missing_ok=True)
    file = next(file for file in folder.rglob("*") if file.suffix in (".pt", ".ckpt"))
    torch.save({**torch.load(file, weights_only=True), **change}, file)
    return folder


@pytest.mark.parametrize(
    "change",
    [
        *NOT_A_FIELD, {"hidden_states": [1, 2]}, {"hidden_states": []}, {"hidden_states": "text"}, {"hidden_states": {}},
        {"hidden_states": torch.rand(18, 4)},
    ],
)  # fmt: skip
def test_fields_that_are_something_else(tmp_path, change):
    with pytest.raises(e3.InputError, match=r"data_0.pt: .*(expected|entries for 18 tokens)"):
        e3.read_captures(changed(tmp_path / "dump", change))[0]


@pytest.mark.parametrize(
    "change", [{"aux_hidden_state": "text"}, {"hidden_state": torch.rand(2, 18, 32)}, {"hidden_state": torch.rand(1, 18, 0)}]
)
def test_joined_states_that_are_something_else(tmp_path, change):
    with pytest.raises(e3.InputError, match=r"data_0.ckpt: aux_hidden_state is .*expected"):
        e3.read_captures(changed(tmp_path / "dump", change, files.specforge))[0]


@pytest.mark.parametrize("change", [{"target_hiddens": None}, {"hidden_states": torch.rand(2, 18, 96)}, *NOT_A_FIELD])
def test_fields_of_angelslim(tmp_path, change):
    with pytest.raises(e3.InputError, match=r"data_0.ckpt: .*(expected|entries for 18 tokens)"):
        e3.read_captures(changed(tmp_path / "dump", change, files.angelslim))[0]


@pytest.mark.parametrize("states", ["text", torch.rand(2, 18, 32), torch.rand(18), torch.rand(0, 32)])
def test_the_one_state_of_safeailab(tmp_path, states):
    with pytest.raises(e3.InputError, match=r"data_0.ckpt: hidden_state is .*, expected \[T, width\]"):
        e3.read_captures(changed(tmp_path / "dump", {"hidden_state": states}, files.safeailab))[0]


@pytest.mark.parametrize(
    "change",
    [
        {"attention_mask": torch.zeros(2, 32, dtype=torch.int64)}, {"input_ids": torch.zeros(2, 32)},
        {"loss_mask": torch.zeros(2, 31, dtype=torch.int64)}, {"aux_hidden_states": torch.rand(2, 31, 96)},
        {"aux_hidden_states": torch.rand(2, 32, 95)}, {"aux_hidden_states": torch.rand(2, 32)},
        {"attention_mask": torch.ones(2, dtype=torch.int64)},
    ],
)  # fmt: skip
def test_fields_of_automodel(tmp_path, change):
    shards.automodel(tmp_path / "dump", samples())
    file = tmp_path / "dump" / "shard-000000.safetensors"
    save_file({**load_file(file), **change}, file)
    caps = e3.read_captures(tmp_path / "dump")
    with pytest.raises(
        e3.InputError, match=r"shard-000000.safetensors, sample 1: .*(expected|entries for 32|no multiple|as it should)"
    ):
        caps[1]
    assert len(caps[2].token_ids) == 20
