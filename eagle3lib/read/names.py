"""Tensor names: from a producer's spelling to the one used here. Data, and the few lines that apply it."""

import re
from dataclasses import dataclass

from .recipe import Recipe

# Prefixes that wrappers and exporters put before a drafter's own names; stripped as often as they occur.
# Sources: SpecForge and TorchSpec trainers (FSDP), ModelOpt raw state, NeMo Automodel, transformers.
PREFIXES = ("draft_model.", "eagle_module.", "module.", "model.")
# Segments that wrappers put anywhere in a name. Sources: torch.compile, FSDP, activation checkpointing.
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")

# Producer's spelling -> ours, first match wins. Sources: SafeAILab `cnets.py` (midlayer.), ModelOpt before 2025-12-19 of several
# layers (midlayer.i.), SGLang's first names of EAGLE-3.1's norms (sgl-project/sglang#24663), a serving fork (fc_norms.i).
RENAMES = (
    (re.compile(r"^midlayer\.(\d+)\."), r"layers.\1."),
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^aux_norm_low\."), "fc_norm.0."),
    (re.compile(r"^aux_norm_mid\."), "fc_norm.1."),
    (re.compile(r"^aux_norm_high\."), "fc_norm.2."),
    (re.compile(r"^fc_norms\.(\d+)\."), r"fc_norm.\1."),
)

# Tensors that some producers leave in the file and no forward reads, and why. Sources: transformers before 4.32; ModelOpt and
# compressed-tensors exports of quantised drafters.
IGNORED = (
    (re.compile(r"rotary_emb\.inv_freq$"), "the rotary table; it is made from config.json"),
    (re.compile(r"\.input_scale$"), "scale of activations, which are not quantised here"),
    (re.compile(r"\.(k|v)_scale$"), "scale of a quantised key-value cache, which is not kept here"),
    (re.compile(r"\.weight_scale$"), "scale of a quantised weight, multiplied in when that is read"),
)


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
    "mask_hidden": Meaning("1, 1, n*Ht", "the streams of a step that is drafted in parallel (P-EAGLE)", required=False),
}
FC_NORM = Meaning("Ht", "norm of one stream (fc_norm, EAGLE-3.1)", required=False)
LAYER = {
    "self_attn.o_proj.weight": Meaning("H, heads*Dv", "attention output"),
    "self_attn.o_proj.bias": Meaning("H", "bias of the attention output", required=False),
    "mlp.gate_proj.weight": Meaning("I, H", "MLP gate"),
    "mlp.up_proj.weight": Meaning("I, H", "MLP up"),
    "mlp.down_proj.weight": Meaning("H, I", "MLP down"),
    "mlp.gate_proj.bias": Meaning("I", "bias of the MLP gate", required=False),
    "mlp.up_proj.bias": Meaning("I", "bias of the MLP up", required=False),
    "mlp.down_proj.bias": Meaning("H", "bias of the MLP down", required=False),
    "input_layernorm.weight": Meaning("H", "fused layer: norm of the embedding; plain layer: norm of the state"),
    "post_attention_layernorm.weight": Meaning("H", "norm before the MLP"),
}
FUSED = {"hidden_norm.weight": Meaning("H", "norm of the state, the other half of the fused input")}
GQA = {
    "self_attn.q_proj.weight": Meaning("heads*D, W", "queries"),
    "self_attn.k_proj.weight": Meaning("kv*D, W", "keys"),
    "self_attn.v_proj.weight": Meaning("kv*D, W", "values"),
    "self_attn.q_proj.bias": Meaning("heads*D", "bias of the queries", required=False),
    "self_attn.k_proj.bias": Meaning("kv*D", "bias of the keys", required=False),
    "self_attn.v_proj.bias": Meaning("kv*D", "bias of the values", required=False),
    "self_attn.q_norm.weight": Meaning("D", "norm of each query head (Qwen3)", required=False),
    "self_attn.k_norm.weight": Meaning("D", "norm of each key head (Qwen3)", required=False),
}
MLA = {
    "self_attn.kv_a_proj_with_mqa.weight": Meaning("kv_rank+rope, W", "keys and values, compressed, and the shared rotary key"),
    "self_attn.kv_a_layernorm.weight": Meaning("kv_rank", "norm of the compressed keys and values"),
    "self_attn.kv_b_proj.weight": Meaning("heads*(nope+v), kv_rank", "keys and values of each head"),
}
MLA_QUERIES = {
    "self_attn.q_a_proj.weight": Meaning("q_rank, W", "queries, compressed"),
    "self_attn.q_a_layernorm.weight": Meaning("q_rank", "norm of the compressed queries"),
    "self_attn.q_b_proj.weight": Meaning("heads*D, q_rank", "queries of each head"),
}
MLA_PLAIN_QUERIES = {"self_attn.q_proj.weight": Meaning("heads*D, W", "queries")}


def canonical(name: str) -> str:
    """A producer's tensor name in this library's spelling: no wrappers' names, layers as `layers.i.`."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
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


def expected(recipe: Recipe) -> dict[str, Meaning]:
    """Every tensor that this library's forward can use, for a drafter of this recipe."""
    names = dict(TOP) | {f"fc_norm.{i}.weight": FC_NORM for i in range(recipe.n_streams)}
    attention = GQA if recipe.mla is None else MLA | (MLA_QUERIES if recipe.mla.q_rank else MLA_PLAIN_QUERIES)
    for i in range(recipe.n_layers):
        for name, meaning in (LAYER | attention | (FUSED if i in recipe.fused_layers else {})).items():
            names[f"layers.{i}.{name}"] = meaning
    return names


def reason_to_ignore(name: str) -> str | None:
    """Why tensor `name` (canonical) can be left out of the forward, or None: then it must be used."""
    return next((why for pattern, why in IGNORED if pattern.search(name)), None)
