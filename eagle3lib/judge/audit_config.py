"""What config.json says against the tensors, the target, and what each engine makes of it."""

from collections.abc import Iterator

import numpy as np

from ..read.checkpoint import Checkpoint
from ..read.config import ID_PLACES, Fields
from ..read.rope_config import read_rope
from ..read.tensors import at
from .engines import captured
from .finding import Finding
from .hypotheses import config_line, name_of


def layer_ids(ckpt: Checkpoint) -> tuple[str, list[int]] | None:
    """The key of the layer ids in config.json, and the ids."""
    for place in ID_PLACES:
        if found := at(ckpt.config, place):
            return ".".join(place), list(found)
    return None


def of_layer_ids(ckpt: Checkpoint) -> Iterator[Finding]:
    """Absent, twice the same, beyond the target, not ascending (vllm-project/vllm#50514)."""
    L, streams = ckpt.target.n_layers if ckpt.target else None, ckpt.recipe.streams
    if layer_ids(ckpt) is None:
        line = config_line(streams) if streams else '"eagle_aux_hidden_state_layer_ids": the trained ones'
        what = "config.json names no layers: engines take their default (vllm-project/vllm#50170)"
        yield Finding("warning", "config", what, change=line, name="streams")
    if not streams:
        return
    if len(set(streams)) < len(streams):
        what = f"{name_of(streams)}: one stream twice; engines capture each once, so fc gets too few"
        yield Finding("fault", "config", what, change="ids of different layers", name="streams")
    beyond = [n for n in streams if n < 0 or (L is not None and n > L)]
    if beyond:
        what = f"{name_of(streams)}: the target has r_0 to r_{L}" if L else f"{name_of(streams)}: there is no r_{beyond[0]}"
        yield Finding("fault", "config", what, change="ids of layers that there are", name="streams")
    if list(streams) != sorted(streams):
        what = f"{name_of(streams)} are not ascending: engines join them ascending whatever the order of the list"
        yield Finding("fault", "config", what, {"as captured": name_of(tuple(sorted(streams)))}, settle="the probe: captures",
                      change="train on ascending ids, or reorder the columns of fc", name="streams")  # fmt: skip


def of_engines(ckpt: Checkpoint) -> Iterator[Finding]:
    """Engines that would capture other streams than this library reads from the same config."""
    mine, L = ckpt.recipe.streams, ckpt.target.n_layers if ckpt.target else None
    same, unknown = [], []
    for one in captured(ckpt.config, L):
        who = f"{one.rule.engine} ({one.rule.versions})"
        if mine is None or one.streams is None:
            unknown.append(who)
            continue
        if one.streams == tuple(mine):
            same.append(who)
            continue
        what = (
            f"{who} would capture {name_of(one.streams)} from this config ({one.read_from}); here it is read as {name_of(mine)}"
        )
        yield Finding("warning", "config", what, {"source": one.rule.source}, name="streams",
                      settle="the probe on captures says which was trained on")  # fmt: skip
    if unknown:
        what = f"{', '.join(unknown)} would take their default, which depends on the target's number of layers"
        yield Finding("open", "config", what, settle="the target's folder (--target)", name="streams")
    if same:
        yield Finding("ok", "config", f"{', '.join(same)} would capture {name_of(mine)}, as it is read here")


def of_positions(ckpt: Checkpoint) -> Iterator[Finding]:
    """Rotary tables of several places compared as tables; the length that the drafter allows."""
    tables = _rope_tables(ckpt)
    if len({table.round(9).tobytes() for table in tables.values()}) > 1:
        what = f"config.json gives rope in {len(tables)} places that mean different frequencies: {', '.join(tables)}"
        slowest = {f"slowest pair, {place}": float(table[-1]) for place, table in tables.items()}
        yield Finding("warning", "config", what, slowest, settle="the trainer's settings, or the probe", name="rope")
    stored = next((theirs for theirs in ckpt.ignored if theirs.endswith("rotary_emb.inv_freq")), None)
    if stored is not None and not _near(ckpt.files[stored].double().numpy(), np.array(ckpt.recipe.rope.inv_freq)):
        what = f"the rotary table in the file ({stored}) is not what config.json makes: training had another base or scaling"
        yield Finding("fault", "config", what, {"slowest pair, file": float(ckpt.files[stored][-1])}, name="rope",
                      settle="the probe: captures")  # fmt: skip
    if ckpt.target is None:
        return
    base = ckpt.target.config.get("rope_theta") or (ckpt.target.config.get("rope_parameters") or {}).get("rope_theta")
    if (
        base
        and not ckpt.recipe.mla
        and not _near(np.array(ckpt.recipe.rope.inv_freq[1:2]), np.array([base ** (-1 / len(ckpt.recipe.rope.inv_freq))]))
    ):
        what = (
            f"rope: the drafter has {ckpt.recipe.rope.about}, the target base {base:g}; most trainers take the target's, not all"
        )
        yield Finding("note", "config", what, settle="the trainer's settings, or the probe", name="rope")
    mine, theirs = (_length(c) for c in (ckpt.config, ckpt.target.config))
    if mine and theirs and mine < theirs:
        what = f"max_position_embeddings is {mine:,}, the target's {theirs:,}: vLLM limits the context to it"
        yield Finding("warning", "config", what, change=f'"max_position_embeddings": {theirs}', name="length")


def _rope_tables(ckpt: Checkpoint) -> dict[str, np.ndarray]:
    """Inverse frequencies by each place of config.json that gives a base or a scaling."""
    config, width = ckpt.config, ckpt.recipe.mla.rope if ckpt.recipe.mla else ckpt.recipe.head_dim
    inner = config.get("transformer_layer_config") or {}
    places = {
        "top level": {k: config[k] for k in ("rope_theta", "rope_scaling") if config.get(k)},
        "rope_parameters": {"rope_parameters": config["rope_parameters"]} if config.get("rope_parameters") else {},
        "transformer_layer_config": {k: inner[k] for k in ("rope_theta", "rope_scaling") if inner.get(k)},
        "transformer_layer_config.rope_parameters": {k: inner[k] for k in ("rope_parameters",) if inner.get(k)},
    }
    longest = {"max_position_embeddings": _length(config) or 2**20}
    return {
        place: np.array(read_rope(Fields({**longest, **part}, "config.json"), width, ckpt.layout, bool(ckpt.recipe.mla)).inv_freq)
        for place, part in places.items() if part
    }  # fmt: skip


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    """The same frequencies, up to half precision."""
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0.01))


def _length(config: dict) -> int | None:
    nests = (config, config.get("text_config"), config.get("transformer_layer_config"))
    found = (nest.get("max_position_embeddings") for nest in nests if isinstance(nest, dict))
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)


def of_the_config(ckpt: Checkpoint) -> Iterator[Finding]:
    """Fields that lie, and those that engines read otherwise than the tensors have it."""
    config, r = ckpt.config, ckpt.recipe
    layers = config.get("num_hidden_layers")
    if isinstance(layers, int) and layers != r.n_layers and "transformer_layer_config" not in config:
        what = (
            f"num_hidden_layers is {layers}, the file holds {r.n_layers}: an engine that builds by it looks for tensors in vain"
        )
        yield Finding("warning", "config", what, change=f'"num_hidden_layers": {r.n_layers}', name="layers")
    said = {"hidden_size": r.hidden_size, "draft_vocab_size": r.draft_vocab_size, "num_key_value_heads": r.n_kv_heads,
            "kv_lora_rank": r.mla.kv_rank if r.mla else None, "q_lora_rank": r.mla.q_rank if r.mla else None}  # fmt: skip
    gate = ckpt.files.headers[ckpt.names["layers.0.mlp.gate_proj.weight"]].shape[0]
    for key, true in (said | {"intermediate_size": gate}).items():
        found = config.get(key)
        if isinstance(found, int) and not isinstance(found, bool) and true is not None and found != true:
            what = f"{key} is {found}, the tensors say {true}: an engine that builds by it cannot load the file"
            yield Finding("warning", "config", what, change=f'"{key}": {true}', name="width")
    for key, words in (("attention_bias", ".self_attn."), ("mlp_bias", ".mlp.")):
        if config.get(key) is True and not any(words in name and name.endswith(".bias") for name in ckpt.names):
            what = f"{key} is true, and the file has no such biases: engines that make them leave them at zero, or refuse"
            yield Finding("warning", "config", what, change=f'"{key}": false', name="weights")
    if r.norm_before_fc and r.fc_norm:
        what = "norm_before_fc and fc_norm are both true: vLLM applies both, TensorRT-LLM the second only"
        yield Finding("warning", "config", what, settle="the trainer's settings", name="norm")
    nest = config.get("eagle_config") or {}
    for key, usual in (("use_last_layernorm", True), ("use_input_layernorm_in_first_layer", True), ("use_mtp_layernorm", False)):
        if nest.get(key) not in (None, usual):
            what = f"eagle_config.{key} is {str(nest[key]).lower()}, which is not run here: the forward is the usual one"
            yield Finding("warning", "config", what, settle="the trainer's settings, or the probe", name="norm")
    if config.get("tie_word_embeddings") is True and "lm_head.weight" in ckpt:
        what = "tie_word_embeddings is true, but the file has its own lm_head: SGLang ties the head to the embedding all the same"
        yield Finding("warning", "config", what, change='"tie_word_embeddings": false', name="head")
    if config.get("quantization_config") and not ckpt.scales:
        what = (
            "quantization_config stands beside weights that are not quantised: copied from the target, and misleading to engines"
        )
        yield Finding("warning", "config", what, change="leave quantization_config out", name="quantisation")
    if r.target_hidden_size != r.hidden_size:
        what = f"the drafter is {r.hidden_size} wide, the target {r.target_hidden_size}: none may borrow its embedding"
        yield Finding("note", "config", what, name="width")
    if ckpt.layout.base_10000 and "trains with base 10000" in r.sources.get("rope", ""):
        what = f"rope: {r.sources['rope']}; engines that follow config.json serve it on other positions (wejoncy/sfllm#32)"
        yield Finding("warning", "config", what, change='"rope_theta": 10000', settle="the probe: captures", name="rope")
