"""Tensor names: from a producer's spelling to the one used here. Data, and the few lines that apply it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Prefixes that wrappers and exporters put before a drafter's own names; stripped as often as they occur.
# Sources: SpecForge and TorchSpec trainers (FSDP), ModelOpt raw state, NeMo Automodel, torch.compile.
PREFIXES = ("draft_model.", "eagle_module.", "module.", "_orig_mod.", "_fsdp_wrapped_module.", "model.")

# Producer's spelling of the layers -> ours, first match wins. Sources: SafeAILab `cnets.py` (midlayer.), ModelOpt before
# 2025-12-19 with several layers (midlayer.i.); speculators, vLLM and newer ModelOpt write layers.i. themselves.
RENAMES = ((re.compile(r"^midlayer\.(\d+)\."), r"layers.\1."), (re.compile(r"^midlayer\."), "layers.0."))

# Tensors that some producers leave in the file and no forward reads, and why. Source: transformers before 4.32 kept the table.
IGNORED = ((re.compile(r"rotary_emb\.inv_freq$"), "the rotary table; it is made from config.json"),)

# How a producer is recognised, first match wins: a key of config.json, or the start of a tensor's name in the file.
# Sources: speculators `config.py`; SafeAILab/EAGLE `cnets.py` and SpecForge `modeling/draft/llama3_eagle.py` (midlayer.).
PRODUCERS = (
    ("config", "speculators_model_type", "speculators"),
    ("tensor", "midlayer.", "SafeAILab/EAGLE (or SpecForge, AngelSlim)"),
    ("tensor", "model.layers.", "ModelOpt (or a wrapper of another trainer)"),
    ("tensor", "layers.", "ModelOpt (or vLLM's own form)"),
)


def producer(config: dict, names: Iterable[str]) -> str:
    """Whose layout a checkpoint is in, by its config.json and the tensor names in its files."""
    names = list(names)
    for kind, mark, told in PRODUCERS:
        if mark in config if kind == "config" else any(name.startswith(mark) for name in names):
            return told
    return "an unknown trainer"


@dataclass(frozen=True)
class Meaning:
    """One tensor of a drafter: its shape in the letters of DESIGN's words, and what it is for."""

    shape: str
    means: str
    required: bool = True


TOP = {
    "fc.weight": Meaning("H, n*Ht", "joins the target's streams into the drafter's width"),
    "norm.weight": Meaning("H", "norm before the head"),
    "lm_head.weight": Meaning("Vd, H", "head over the draft vocabulary", required=False),
    "embed_tokens.weight": Meaning("V, H", "embedding; the target's where it is absent", required=False),
    "d2t": Meaning("Vd", "target id minus draft id, for each draft id", required=False),
    "t2d": Meaning("V", "true where a target token is in the draft vocabulary", required=False),
    "input_norm.weight": Meaning("n*Ht", "norm over the joined streams (norm_before_fc)", required=False),
}
FC_NORM = Meaning("Ht", "norm of one stream (fc_norm, EAGLE-3.1)", required=False)
LAYER = {
    "self_attn.q_proj.weight": Meaning("heads*D, W", "queries"),
    "self_attn.k_proj.weight": Meaning("kv*D, W", "keys"),
    "self_attn.v_proj.weight": Meaning("kv*D, W", "values"),
    "self_attn.o_proj.weight": Meaning("H, heads*D", "attention output"),
    "self_attn.q_proj.bias": Meaning("heads*D", "bias of the queries", required=False),
    "self_attn.k_proj.bias": Meaning("kv*D", "bias of the keys", required=False),
    "self_attn.v_proj.bias": Meaning("kv*D", "bias of the values", required=False),
    "self_attn.o_proj.bias": Meaning("H", "bias of the attention output", required=False),
    "self_attn.q_norm.weight": Meaning("D", "norm of each query head (Qwen3)", required=False),
    "self_attn.k_norm.weight": Meaning("D", "norm of each key head (Qwen3)", required=False),
    "mlp.gate_proj.weight": Meaning("I, H", "MLP gate"),
    "mlp.up_proj.weight": Meaning("I, H", "MLP up"),
    "mlp.down_proj.weight": Meaning("H, I", "MLP down"),
    "input_layernorm.weight": Meaning("H", "layer 0: norm of the embedding; later layers: norm of the state"),
    "post_attention_layernorm.weight": Meaning("H", "norm before the MLP"),
}
FIRST = {"hidden_norm.weight": Meaning("H", "norm of the state, the other half of the fused input")}


def canonical(name: str) -> str:
    """A producer's tensor name in this library's spelling: no wrapper prefixes, layers as `layers.i.`."""
    stripped = True
    while stripped:
        stripped = False
        for prefix in PREFIXES:
            if name.startswith(prefix):
                name, stripped = name.removeprefix(prefix), True
    for pattern, ours in RENAMES:
        if pattern.match(name):
            return pattern.sub(ours, name)
    return name


def expected(n_layers: int, n_streams: int) -> dict[str, Meaning]:
    """Every tensor that this library's forward can use, for a drafter of so many layers and streams."""
    names = dict(TOP) | {f"fc_norm.{i}.weight": FC_NORM for i in range(n_streams)}
    for i in range(n_layers):
        for name, meaning in (LAYER | (FIRST if i == 0 else {})).items():
            names[f"layers.{i}.{name}"] = meaning
    return names


def reason_to_ignore(name: str) -> str | None:
    """Why tensor `name` (canonical) can be left out of the forward, or None: then it must be used."""
    return next((why for pattern, why in IGNORED if pattern.search(name)), None)
