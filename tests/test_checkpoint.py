"""Checkpoints: every layout that should open does, lazily; every wrong one is refused in one sentence."""

import json
import re

import pytest
import tiny
import torch
from safetensors.torch import save_file

import eagle3lib as e3
from eagle3lib.read.config import streams_of


def one_sentence(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def test_specforge_layout(tiny_checkpoint):
    r = tiny_checkpoint.recipe
    assert (r.hidden_size, r.n_heads, r.n_kv_heads, r.head_dim, r.draft_vocab_size) == (
        tiny.H,
        tiny.HEADS,
        tiny.KV,
        tiny.D,
        tiny.VD,
    )
    assert r.streams == (2, 3, 4)
    assert "layers.0.hidden_norm.weight" in tiny_checkpoint
    assert torch.equal(tiny_checkpoint.target_ids, tiny_checkpoint.tensor("t2d").nonzero()[:, 0])
    assert set(r.sources) == set(r.__dataclass_fields__) - {"sources"}  # each field says where it came from


def renamed(change) -> dict:
    return {change(name): tensor for name, tensor in tiny.drafter_tensors().items()}


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n.replace("midlayer.", "layers.0."),
        lambda n: n.replace("midlayer.", "midlayer.0."),
        lambda n: "draft_model." + n,
        lambda n: n if n in ("lm_head.weight", "d2t", "t2d") else "model." + n,
        lambda n: "module._orig_mod." + n,
    ],
)
def test_other_spellings_are_the_same_drafter(tmp_path, tiny_checkpoint, change):
    other = e3.open_checkpoint(tiny.write_drafter(tmp_path / "other", renamed(change)))
    assert set(other.names) == set(tiny_checkpoint.names)
    assert torch.equal(other.tensor("fc.weight"), tiny_checkpoint.tensor("fc.weight"))


def test_pytorch_bin_and_shards(tmp_path, tiny_checkpoint):
    tensors = tiny.drafter_tensors()
    folder = tiny.write_drafter(tmp_path / "bin")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "optimizer.pt").write_bytes(b"not a weight file, and never read")
    sharded = tiny.write_drafter(tmp_path / "sharded")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:7], "model-2.safetensors": names[7:]}
    for file, some in parts.items():
        save_file({n: tensors[n] for n in some}, sharded / file)
    index = {"weight_map": {n: file for file, some in parts.items() for n in some}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    for path in (folder, sharded):
        ckpt = e3.open_checkpoint(path)
        for name in tiny_checkpoint.names:
            assert torch.equal(ckpt.tensor(name), tiny_checkpoint.tensor(name))
    (sharded / "model-2.safetensors").unlink()
    with pytest.raises(e3.InputError) as error:
        e3.open_checkpoint(sharded)
    assert "model-2.safetensors is not in" in one_sentence(error)


def test_embedding_and_head_come_from_a_sharded_target(tmp_path):
    target = tiny.write_target(tmp_path / "target", shard="20KB")
    assert (target / "model.safetensors.index.json").exists()
    tensors = tiny.drafter_tensors()
    del tensors["embed_tokens.weight"], tensors["lm_head.weight"]
    drafter = tiny.write_drafter(tmp_path / "drafter", tensors)
    ckpt = e3.open_checkpoint(drafter, target=target)
    table = _embedding(target)
    ids = torch.tensor([5, 90, 5, 0])
    assert torch.equal(ckpt.embedding.rows(ids), table[ids])
    assert torch.equal(ckpt.head(), table[ckpt.target_ids])
    alone = e3.open_checkpoint(drafter)
    with pytest.raises(e3.InputError, match="has no embed_tokens.weight"):
        _ = alone.embedding
    with pytest.raises(e3.InputError, match="has no lm_head.weight"):
        alone.head()


def _embedding(target) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(target).get_input_embeddings().weight.detach()


def test_only_rows_are_read(tmp_path, monkeypatch):
    target = tiny.write_target(tmp_path / "target")
    tensors = tiny.drafter_tensors()
    del tensors["embed_tokens.weight"]
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors), target=target)
    monkeypatch.setattr("eagle3lib.read.tensors.TensorFiles.__getitem__", lambda *_: pytest.fail("a whole tensor was read"))
    assert ckpt.embedding.rows(torch.tensor([3, 4])).shape == (2, tiny.H)


def test_default_streams_need_the_target(tmp_path):
    drafter = tiny.write_drafter(tmp_path / "drafter", eagle_config=None)
    assert e3.open_checkpoint(drafter).recipe.streams is None
    ckpt = e3.open_checkpoint(drafter, target=tiny.write_target(tmp_path / "target"))
    assert ckpt.recipe.streams == (2, 3, 3)
    assert "default for 6 layers" in ckpt.recipe.sources["streams"]


@pytest.mark.parametrize(
    ("ids", "streams"),
    [
        ([2, 30, 58], (2, 30, 58)),
        ([1, 29, 57], (2, 30, 58)),
        ([-1, 2, 30], (0, 3, 31)),
        ([0, 2, 15], (0, 2, 15)),
        ([24, 30, 36], (24, 30, 36)),
    ],
)
def test_two_dialects_of_layer_ids(ids, streams):
    assert streams_of(ids)[0] == streams


# --- what is refused, and how it is said ------------------------------------------------------------------------------


def test_missing_folder(tmp_path):
    with pytest.raises(e3.InputError) as error:
        e3.open_checkpoint(tmp_path / "no" / "such")
    assert f"{tmp_path} exists" in one_sentence(error)


def test_a_file_in_place_of_its_folder(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter")
    with pytest.raises(e3.InputError, match="is a file, expected the folder"):
        e3.open_checkpoint(folder / "model.safetensors")


def test_empty_folder(tmp_path):
    with pytest.raises(e3.InputError, match="no model.safetensors .* the folder holds nothing"):
        e3.open_checkpoint(tmp_path)


def test_no_config(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter")
    (folder / "config.json").unlink()
    with pytest.raises(e3.InputError, match="config.json: no such file"):
        e3.open_checkpoint(folder)


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_config_that_is_no_object(tmp_path, text):
    folder = tiny.write_drafter(tmp_path / "drafter")
    (folder / "config.json").write_text(text)
    with pytest.raises(e3.InputError, match="config.json"):
        e3.open_checkpoint(folder)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_truncated(tmp_path, share, name):
    folder = tiny.write_drafter(tmp_path / "drafter")
    if name.endswith(".bin"):
        (folder / "model.safetensors").unlink()
        torch.save(tiny.drafter_tensors(), folder / name)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(e3.InputError, match="cannot be read as tensors"):
        e3.open_checkpoint(folder)


def test_a_pickle_that_is_no_dict_of_tensors(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter")
    (folder / "model.safetensors").unlink()
    torch.save({"state": {"a": 1}}, folder / "pytorch_model.bin")
    with pytest.raises(e3.InputError, match="expected a dict of tensors"):
        e3.open_checkpoint(folder)


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("code in the file was run",))


def test_no_code_in_a_file_is_run(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter")
    (folder / "model.safetensors").unlink()
    torch.save({"a": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(e3.InputError, match="cannot be read as tensors"):
        e3.open_checkpoint(folder)


def test_fused_projection_of_the_wrong_width(tmp_path):
    for part in "kv":
        tensors = tiny.drafter_tensors()
        name = f"midlayer.self_attn.{part}_proj.weight"
        tensors[name] = tensors[name][:, : tiny.H].contiguous()
        with pytest.raises(e3.InputError) as error:
            e3.open_checkpoint(tiny.write_drafter(tmp_path / part, tensors))
        text = one_sentence(error)
        assert f"layers.0.self_attn.{part}_proj.weight is [{tiny.KV * tiny.D}, {tiny.H}]" in text
        assert f"expected [{tiny.KV * tiny.D}, {2 * tiny.H}]" in text
        assert "2H" in text


def test_plain_first_layer(tmp_path):
    tensors = tiny.drafter_tensors()
    tensors["midlayer.self_attn.q_proj.weight"] = tensors["midlayer.self_attn.q_proj.weight"][:, : tiny.H].contiguous()
    with pytest.raises(e3.InputError, match="is an EAGLE-1 or EAGLE-2 drafter"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


@pytest.mark.parametrize("name", ["norm.weight", "midlayer.hidden_norm.weight", "midlayer.mlp.up_proj.weight"])
def test_a_missing_tensor(tmp_path, name):
    tensors = tiny.drafter_tensors()
    del tensors[name]
    with pytest.raises(e3.InputError, match=f"tensor {name.replace('midlayer', 'layers.0')} is missing"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


@pytest.mark.parametrize(("flag", "name"), [("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.0.weight")])
def test_a_flag_without_its_tensor(tmp_path, flag, name):
    with pytest.raises(e3.InputError, match=rf"tensor {name} is missing \({flag} is true\)"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", **{flag: True}))


def test_a_tensor_that_nothing_uses(tmp_path):
    tensors = tiny.drafter_tensors() | {"midlayer.self_attn.extra.weight": torch.zeros(3, 3)}
    with pytest.raises(e3.InputError, match="extra.weight is none that this library's forward uses"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


def test_a_rotary_table_is_ignored_with_its_reason(tmp_path):
    tensors = tiny.drafter_tensors() | {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))
    assert ckpt.ignored == {"midlayer.self_attn.rotary_emb.inv_freq": "the rotary table; it is made from config.json"}
    assert "layers.0.self_attn.rotary_emb.inv_freq" not in dict(ckpt.weights())


@pytest.mark.parametrize(("flag", "name"), [("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.0.weight")])
def test_a_norm_tensor_without_its_flag(tmp_path, flag, name):
    """The tensor was trained; a forward that skips it in silence is another model."""
    tensors = tiny.drafter_tensors() | {name: torch.ones(3 * tiny.H if flag == "norm_before_fc" else tiny.H)}
    with pytest.raises(e3.InputError, match=f"{flag}"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


def test_a_smaller_vocabulary_without_a_map(tmp_path):
    tensors = tiny.drafter_tensors()
    del tensors["d2t"]
    assert torch.equal(  # derived from t2d
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "t2d", tensors)).target_ids, tensors["t2d"].nonzero()[:, 0]
    )
    del tensors["t2d"]
    with pytest.raises(e3.InputError, match="neither d2t nor t2d"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "none", tensors))


def test_an_absolute_map_is_not_taken_for_offsets(tmp_path):
    tensors = tiny.drafter_tensors()
    tensors["d2t"] = tensors["d2t"] + torch.arange(tiny.VD)
    with pytest.raises(e3.InputError, match="d2t"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


def test_two_maps_that_disagree(tmp_path):
    tensors = tiny.drafter_tensors()
    tensors["t2d"] = tensors["t2d"].roll(1)
    with pytest.raises(e3.InputError, match="d2t and t2d disagree on .* tokens; first, draft id"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))


def test_a_target_in_place_of_a_drafter(tmp_path):
    with pytest.raises(e3.InputError, match="holds a whole model and no fc.weight"):
        e3.open_checkpoint(tiny.write_target(tmp_path / "target"))


def test_a_drafter_in_place_of_its_target(tmp_path):
    tensors = tiny.drafter_tensors()
    del tensors["embed_tokens.weight"]
    drafter = tiny.write_drafter(tmp_path / "drafter", tensors)
    with pytest.raises(e3.InputError, match="give the folder of the target's own weights"):
        e3.open_checkpoint(drafter, target=drafter)


def test_another_targets_width(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=16, intermediate_size=16, num_attention_heads=2, num_hidden_layers=1, vocab_size=tiny.V)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "target")
    with pytest.raises(e3.InputError, match="16 wide, but fc.weight .* takes 3 of 32"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"), target=tmp_path / "target")


def test_folder_names_with_spaces_and_accents(tmp_path):
    folder = tiny.write_drafter(tmp_path / "mein Entwürfler 草稿")
    assert e3.open_checkpoint(folder).recipe.streams == (2, 3, 4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 0), ("num_attention_heads", "4"), ("num_attention_heads", None),
        ("head_dim", -8), ("head_dim", 16), ("vocab_size", None), ("target_hidden_size", 7),
        ("rms_norm_eps", "small"), ("hidden_act", "gelu"), ("rope_theta", float("nan")),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8}), ("rope_scaling", {"type": "yarn", "factor": 8}),
        ("rope_scaling", "linear"), ("rope_scaling", {"type": "linear", "factor": 0}), ("partial_rotary_factor", 1.5),
        ("norm_output", "false"), ("head_dim", 8.5), ("eagle_config", [1]), ("transformer_layer_config", "x"),
        ("rope_parameters", {"rope_theta": -3}), ("rope_scaling", {"type": ["linear"]}),
        ("eagle_config", {"eagle_aux_hidden_state_layer_ids": "2,3,4"}),
        ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [2, 3]}),
    ],
)  # fmt: skip
def test_a_config_field_that_cannot_be(tmp_path, field, value):
    with pytest.raises(e3.InputError) as error:
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", **{field: value}))
    one_sentence(error)


def test_quantised_weights_are_refused(tmp_path):
    for dtype in (torch.int8, torch.float8_e4m3fn):
        tensors = tiny.drafter_tensors()
        tensors["midlayer.mlp.up_proj.weight"] = tensors["midlayer.mlp.up_proj.weight"].to(dtype)
        with pytest.raises(e3.InputError, match="mlp.up_proj.weight is torch.*quantised"):
            e3.open_checkpoint(tiny.write_drafter(tmp_path / str(dtype), tensors))


@pytest.mark.parametrize(
    "name", ["fc.weight", "midlayer.self_attn.q_proj.weight", "midlayer.self_attn.k_proj.weight", "norm.weight"]
)
def test_a_flattened_tensor(tmp_path, name):
    tensors = tiny.drafter_tensors()
    tensors[name] = torch.cat([tensors[name].flatten(), torch.zeros(3)])
    with pytest.raises(e3.InputError) as error:
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", tensors))
    one_sentence(error)


def test_tokens_of_another_target(tiny_checkpoint):
    capture = tiny.capture()
    with pytest.raises(e3.InputError, match="has 96 rows, but token 5000 was asked for"):
        e3.chain_hits(
            e3.Drafter(tiny_checkpoint), capture.replace(token_ids=capture.token_ids + 5000 - capture.token_ids.max()), 1
        )


def test_recipe_fields_by_hand(tiny_checkpoint):
    r = tiny_checkpoint.recipe.replace(streams=[0, 2, 3])
    assert r.streams == (0, 2, 3)
    assert r.sources["streams"] == "set by hand"
    with pytest.raises(e3.InputError, match="stream: no such Recipe field; there are .*streams"):
        tiny_checkpoint.recipe.replace(stream=(1, 2, 3))
    with pytest.raises(e3.InputError, match="has 2 entries, expected 3"):
        tiny_checkpoint.recipe.replace(streams=(1, 2))


def test_rope_equals_transformers():
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    config = LlamaConfig(head_dim=128, hidden_size=4096, rope_parameters=scaling, max_position_embeddings=131072)
    theirs, gain = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    ours = e3.Rope.plain(500000.0, 128).llama3(8.0, 1.0, 4.0, 8192)
    torch.testing.assert_close(torch.tensor(ours.inv_freq), theirs, rtol=1e-6, atol=0)
    assert ours.gain == gain == 1.0


@pytest.mark.parametrize("junk", [b"\x80\x02h\x05.", b"\x80\x02K", b"not a pickle", b"\x80\x02}q\x00.", b""])
def test_junk_under_a_weight_files_name_is_one_sentence(tmp_path, junk):
    """torch.load raises KeyError, ValueError and others for some bytes; none may reach a reader."""
    folder = tiny.write_drafter(tmp_path / "d")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(junk)
    with pytest.raises(e3.InputError, match="pytorch_model.bin"):
        e3.open_checkpoint(folder)


def test_a_map_of_a_full_vocabulary_is_used(tmp_path):
    tensors = tiny.drafter_tensors()
    ids = torch.randperm(tiny.V, generator=torch.Generator().manual_seed(3))
    tensors |= {"lm_head.weight": torch.randn(tiny.V, tiny.H), "d2t": ids - torch.arange(tiny.V)}
    del tensors["t2d"]
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", tensors, draft_vocab_size=tiny.V))
    assert torch.equal(ckpt.target_ids, ids)


def test_an_embedding_of_another_width_cannot_be_borrowed(tmp_path):
    tensors = tiny.drafter_tensors()
    del tensors["embed_tokens.weight"]
    wide = torch.randn(tiny.H, 3 * 2 * tiny.H)
    folder = tiny.write_drafter(tmp_path / "d", tensors | {"fc.weight": wide}, target_hidden_size=2 * tiny.H)
    target = tmp_path / "target"
    target.mkdir()
    save_file({"model.embed_tokens.weight": torch.randn(tiny.V, 2 * tiny.H)}, target / "model.safetensors")
    (target / "config.json").write_text(json.dumps({"num_hidden_layers": 6, "rms_norm_eps": 1e-6}))
    with pytest.raises(e3.InputError, match="has no embed_tokens.weight, and target's is 64 wide where the drafter is 32"):
        e3.open_checkpoint(folder, target=target)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "3"])
def test_a_config_that_is_no_json_object(tmp_path, content):
    folder = tiny.write_drafter(tmp_path / "d")
    (folder / "config.json").write_text(content)
    with pytest.raises(e3.InputError, match="config.json"):
        e3.open_checkpoint(folder)


@pytest.mark.parametrize("weight_map", [[], None, {"a": 5}, "x"])
def test_an_index_that_maps_nothing(tmp_path, weight_map):
    folder = tiny.write_drafter(tmp_path / "d")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(e3.InputError, match="weight_map|lists no|no model.safetensors"):
        e3.open_checkpoint(folder)


@pytest.mark.parametrize("base", [1e-320, 0.5, 10**400, True, "1e4"])
def test_an_impossible_rope_base(tmp_path, base):
    with pytest.raises(e3.InputError, match="rope_theta"):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", rope_theta=base))


def test_a_path_that_no_file_can_have():
    with pytest.raises(e3.InputError, match="cannot be a folder"):
        e3.open_checkpoint("x" * 5000)


def speculators_like(**inner) -> dict:
    return {"speculators_model_type": "eagle3", "transformer_layer_config": {"model_type": "llama", **inner}}


MASKED = {"mask_hidden": lambda _: torch.ones(1, 1, 3 * tiny.H)}


@pytest.mark.parametrize(
    ("changes", "tensors", "words"),
    [
        ({}, {"d2t": lambda t: t.bfloat16()}, "d2t is torch.bfloat16, expected whole numbers"),
        ({}, {"midlayer.mlp.up_proj.weight_scale": lambda _: torch.ones(1)}, "has a weight_scale beside it"),
        ({}, {"midlayer.self_attn.q_norm.weight": lambda _: torch.ones(tiny.D)}, "k_norm.weight is missing"),
        (speculators_like(sliding_window=8, layer_types=["sliding_attention"]), {}, "sliding_window is 8"),
        ({"rope_parameters": {"full": {"rope_theta": 5e5}, "sliding": {"rope_theta": 1e4}}}, {}, "and they differ"),
        ({"rope_scaling": {"factor": 8.0}}, {}, "has a factor and no rope_type"),
        ({"rope_scaling": {"rope_type": "yarn", "type": "linear", "factor": 8.0}}, {}, "says two types"),
        ({"rope_scaling": {"type": "linear", "factor": float("inf")}}, {}, "needs numbers above zero"),
        ({"rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": -4}}, {}, "above zero"),
        ({"partial_rotary_factor": 0.1}, {}, "leaves 0 channels to turn"),
        ({"num_attention_heads": 32, "head_dim": 1}, {}, "expected an even number, 4 or more"),
        ({"architectures": ["PEagleDraftModel"], "mask_token_id": 3}, {}, "tensor mask_hidden is missing"),
        ({"mask_token_id": tiny.V}, MASKED, "below vocab_size"),
        ({"mask_token_id": 3, "ptd_token_id": 4}, MASKED, "name different tokens"),
        ({"norm_before_residual": True, "eagle_config": {"norm_before_residual": False}}, {}, "contradict each other"),
        ({"target_hidden_size": 16}, {}, "but fc.weight takes 6 streams of 16"),
    ],
)  # fmt: skip
def test_what_would_run_as_another_drafter_is_refused(tmp_path, changes, tensors, words):
    held = tiny.drafter_tensors()
    held |= {name: change(held.get(name)) for name, change in tensors.items()}
    if "d2t" in tensors:
        del held["t2d"]
    with pytest.raises(e3.InputError, match=re.escape(words)):
        e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", held, **changes))


def test_eight_bits_need_a_scale_that_is_one(tmp_path):
    held, name = tiny.drafter_tensors(), "midlayer.mlp.up_proj.weight"
    held[name] = held[name].to(torch.float8_e4m3fn)
    for scale in (torch.tensor([-1.0]), torch.tensor([1]), torch.tensor([float("inf")])):
        with pytest.raises(e3.InputError, match="is no scale"):
            e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", held | {f"{name}_scale": scale}))


def test_a_bin_of_the_old_kind_opens(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter")
    (folder / "model.safetensors").unlink()
    torch.save(tiny.drafter_tensors(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert len(e3.open_checkpoint(folder).names) == 16


def test_parallel_drafting_cannot_be_set_by_hand(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="has no mask_hidden"):
        e3.Drafter(tiny_checkpoint, tiny_checkpoint.recipe.replace(mask_token=3))


@pytest.mark.parametrize("given", [{"device": "banana"}, {"device": "cuda:99"}, {"dtype": torch.int8}, {"dtype": "int8"}])
def test_devices_and_precisions_that_are_none(tiny_checkpoint, given):
    with pytest.raises(e3.InputError, match="expected"):
        e3.Drafter(tiny_checkpoint, **given)


def test_maps_that_contradict_each_other_are_told_apart(tmp_path):
    held = tiny.drafter_tensors()
    ids = held["d2t"] + torch.arange(tiny.VD)
    other = {
        "in another order": {"d2t": ids.flip(0) - torch.arange(tiny.VD)},
        "t2d marks 3 tokens": {"t2d": torch.arange(tiny.V) < 3},
    }
    for words, change in other.items():
        with pytest.raises(e3.InputError, match=words):
            e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter", held | change))
