"""Each thing that a checkpoint's files can say against themselves is said, nothing is said against sound ones, and open
questions are closed by captures only.
"""

import pytest
import tiny
import torch
from test_probe import written_for

import eagle3lib as e3
from eagle3lib.judge.engines import captured
from eagle3lib.read.layouts import LAYOUTS, OPEN, layout_of


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tiny.write_target(tmp_path_factory.mktemp("audit") / "target")


def said(folder, target=None, **changes) -> dict[str, list[str]]:
    """Level -> sentences, of a drafter with these changes."""
    tensors = changes.pop("tensors", None)
    found = e3.audit(e3.open_checkpoint(tiny.write_drafter(folder / "drafter", tensors, **changes), target=target))
    return {level: [f.what for f in found if f.level == level] for level in ("fault", "warning", "open", "note", "ok")}


def nested(*ids: int) -> dict:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}


def test_a_sound_file_is_not_accused(tmp_path, target):
    found = said(tmp_path, target, max_position_embeddings=4096, **nested(2, 3, 4))
    assert not found["fault"]
    assert all("would capture" in what or "embedding is not the target's" in what for what in found["warning"])


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"eagle_config": None}, "warning", "names no layers"),
        (nested(2, 2, 4), "fault", "one stream twice"),
        (nested(2, 3, 9), "fault", "the target has r_0 to r_6"),
        (nested(4, 3, 2), "fault", "are not ascending"),
        (nested(3, 4, 5), "open", "id dialect"),
        ({"num_hidden_layers": 40}, "warning", "num_hidden_layers is 40, the file holds 1"),
        ({"tie_word_embeddings": True}, "warning", "SGLang ties the head"),
        ({"quantization_config": {"quant_method": "fp8"}}, "warning", "beside weights that are not quantised"),
        ({"max_position_embeddings": 512}, "warning", "max_position_embeddings is 512, the target's 2,048"),
        ({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}, "warning", "2 places that mean different frequencies"),
        ({"rope_theta": 1e6}, "open", "rope base: versions before"),
        ({"norm_output": True}, "open", "norm_output: files with"),
        ({"rope_theta": 1e6, "architectures": ["Eagle3LlamaForCausalLM"]}, "warning", "trains with base 10000"),
        (nested(27, 15, 2), "fault", "the target has r_0 to r_6"),
        ({"hidden_size": 64}, "warning", "hidden_size is 64, the tensors say 32"),
        ({"intermediate_size": 99}, "warning", "intermediate_size is 99, the tensors say 48"),
        ({"attention_bias": True}, "warning", "attention_bias is true, and the file has no such biases"),
        ({"rope_theta": 5e5}, "note", "most trainers take the target's"),
        ({"eagle_config": {"use_last_layernorm": False}}, "warning", "use_last_layernorm is false, which is not run here"),
        ({"vocab_size": 95, "tensors": "cut"}, "note", "rows, the drafter's vocabulary 95"),
    ],
)
def test_what_a_config_says(tmp_path, target, changes, level, words):
    changes = dict(changes)
    if changes.pop("tensors", None):
        tensors = tiny.drafter_tensors()
        tensors["d2t"], tensors["t2d"] = torch.zeros(tiny.VD, dtype=torch.int64), torch.arange(95) < tiny.VD
        tensors["embed_tokens.weight"] = tensors["embed_tokens.weight"][:95].clone()
        changes["tensors"] = tensors
    found = said(tmp_path, target, **changes)
    assert any(words in what for what in found[level]), found


def of_map(ids: torch.Tensor) -> dict:
    tensors = {name: tensor for name, tensor in tiny.drafter_tensors().items() if name != "t2d"}
    return tensors | {"d2t": ids - torch.arange(tiny.VD)}


@pytest.mark.parametrize(
    ("ids", "level", "words"),
    [
        (torch.arange(tiny.VD), "warning", "d2t is all zeros"),
        (2 * torch.arange(tiny.VD), "fault", "rises at every entry"),  # d2t holds 0, 1, 2, ...: ids, not offsets
        (torch.arange(tiny.VD).flip(0), "warning", "are not ascending"),
    ],
)
def test_maps_that_lead_somewhere_and_are_wrong(tmp_path, ids, level, words):
    found = said(tmp_path, tensors=of_map(ids))
    assert any(words in what for what in found[level])
    assert any("no t2d" in what for what in found["note"])


def test_a_map_that_engines_do_not_read(tmp_path):
    found = said(tmp_path, tensors={name: tensor for name, tensor in tiny.drafter_tensors().items() if name != "d2t"})
    assert any("there is t2d and no d2t" in what for what in found["fault"])


@pytest.mark.parametrize(("by", "words"), [(0, None), (1, "after d2t's"), (-1, "before d2t's"), ("first", "of the first tokens")])
def test_whose_rows_a_head_holds(tmp_path, target, by, words):
    """A head that is the target's: its rows must be those of d2t's tokens."""
    tensors = tiny.drafter_tensors()
    ids = torch.arange(tiny.VD) if by == "first" else (tensors["d2t"] + torch.arange(tiny.VD) + by).clamp(0, tiny.V - 1)
    tensors["lm_head.weight"] = e3.open_target(target).head_rows(ids).float()
    faults = said(tmp_path, target, tensors=tensors, **nested(2, 3, 4))["fault"]
    assert any(words in what for what in faults) if words else not faults


def test_no_head_of_its_own_and_broken_numbers(tmp_path, target):
    tensors = {name: tensor for name, tensor in tiny.drafter_tensors().items() if name != "lm_head.weight"}
    assert any("no lm_head" in what for what in said(tmp_path / "a", target, tensors=tensors)["warning"])
    tensors = tiny.drafter_tensors()
    tensors["norm.weight"][3] = float("inf")
    assert any("1 tensors hold NaN" in what for what in said(tmp_path / "b", target, tensors=tensors)["fault"])


def test_two_files_and_a_stored_table(tmp_path):
    tensors = tiny.drafter_tensors() | {"midlayer.self_attn.rotary_emb.inv_freq": 1e6 ** (-torch.arange(0, tiny.D, 2) / tiny.D)}
    folder = tiny.write_drafter(tmp_path / "drafter", tensors)
    torch.save(tiny.drafter_tensors(seed=3), folder / "pytorch_model.bin")
    found = e3.audit(e3.open_checkpoint(folder))
    assert any("pytorch_model.bin lies beside it unread" in f.what for f in found)
    assert any("is not what config.json makes" in f.what for f in found if f.level == "fault")


def test_whose_the_tensors_are(tmp_path, target):
    torch.manual_seed(0)
    tensors = tiny.drafter_tensors()
    tensors["midlayer.mlp.up_proj.weight"] = torch.nn.Linear(tiny.H, tiny.INTER).weight.data.clone()
    tensors |= {name: torch.ones_like(tensor) for name, tensor in tensors.items() if "norm" in name}
    tensors["embed_tokens.weight"] = e3.open_target(target).embedding().rows(torch.arange(tiny.V))
    tensors["midlayer.self_attn.q_proj.bias"] = torch.randn(tiny.HEADS * tiny.D)
    found = said(tmp_path, target, tensors=tensors)
    assert any("never trained: layers.0.mlp.up_proj.weight" in what for what in found["warning"])
    assert any("norms of the layers are ones" in what for what in found["warning"])
    assert any("the embedding is the target's" in what for what in found["note"])
    assert any("biases of q, k, v (1), which SGLang" in what for what in found["warning"])


@pytest.mark.parametrize(
    ("config", "streams"),
    [
        (
            nested(2, 3, 5),
            {"SGLang before": (3, 4, 6), "SGLang since 2026-05": (2, 3, 5), "vLLM older": (2, 15, 27), "vLLM 0.32": (2, 3, 5)},
        ),
        (nested(1, 14, 26), {"SGLang before": (2, 15, 27), "SGLang since 2026-05": (2, 15, 27)}),
        (
            {"eagle_aux_hidden_state_layer_ids": [5, 3, 2]},
            {"vLLM 0.32": (2, 3, 5), "SGLang since 2026-05": (2, 15, 27)},
        ),
        ({"target_layer_ids": [1, 2, 3]}, {"vLLM model runner V2": (2, 3, 4), "vLLM older": (2, 15, 27)}),
        ({"model_type": "gpt_oss", **nested(1, 3, 5)}, {"SGLang since 2026-07": (1, 3, 5), "TensorRT": (2, 15, 27)}),
    ],
)
def test_what_each_engine_captures(config, streams):
    """By the rules' sources: where each looks, what an id means, what it takes where there is none (L = 30)."""
    found = {f"{one.rule.engine} {one.rule.versions}": one.streams for one in captured(config, 30)}
    for who, expected in streams.items():
        assert next(s for name, s in found.items() if name.startswith(who)) == expected
    assert all(one.streams is None or one.streams == tuple(sorted(one.streams)) for one in captured(config, 30))


def test_open_questions_are_closed_by_captures(tmp_path):
    folder = tiny.write_drafter(tmp_path / "drafter", norm_output=True, rope_theta=1e6, **nested(0, 3, 4))
    ckpt = e3.open_checkpoint(folder)
    questions = {f.name for f in e3.audit(ckpt) if f.level == "open" and f.name in OPEN}
    assert questions == {"norm_output", "rope base", "id dialect"}
    probed = e3.probe(ckpt, written_for(e3.Drafter(ckpt), 16, 0.8), changes=False)
    found = {f.name: f for f in e3.audit(ckpt, probed) if f.name in questions}
    assert found["id dialect"].level == ("ok" if probed.told else "open")
    assert probed.told  # the text that it wrote itself tells its streams from all others
    assert found["rope base"].level == found["norm_output"].level == "open"  # not tried, so still open


def test_every_open_question_is_told_and_asked():
    asked = {question for layout in LAYOUTS for question in layout.opens} | {"id dialect"}
    assert asked == set(OPEN)


@pytest.mark.parametrize(
    ("config", "names", "layout"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, ["midlayer.fc"], "SafeAILab"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, ["midlayer.x", "t2d"], "SpecForge"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, ["layers.0.x"], "ModelOpt"),
        ({"architectures": ["LlamaForCausalLMEEagle3"]}, ["midlayer.x", "t2d"], "AngelSlim"),
        ({"architectures": ["LlamaEagle3DraftModel"]}, ["model.layers.0.x", "t2d"], "NeMo Automodel"),
        ({}, ["x"], "ModelOpt"),
    ],
)
def test_whose_layout(config, names, layout):
    assert layout_of(config, names).name == layout


def test_a_norm_of_zeros_is_a_fault(tmp_path, target):
    tensors = {**tiny.drafter_tensors(), "midlayer.hidden_norm.weight": torch.zeros(tiny.H)}
    found = said(tmp_path, target, tensors=tensors)
    assert any("hidden_norm.weight: all zeros" in what for what in found["fault"])
