"""config.json of a drafter to Recipe fields: where each producer writes each field, as tables."""

import math

from .errors import BrokenError, InputError
from .layouts import Layout
from .recipe import Mla, Recipe
from .rope_config import mla_scale, read_rope
from .tensors import at

# Fields left out of a `speculators` file because they equal the class default of its `transformer_layer_config`.
# Source: transformers 5.24, `LlamaConfig` and `Qwen3Config`. Its `to_diff_dict` writes only what differs.
CLASS_DEFAULTS = {
    "llama": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 10000.0, "num_attention_heads": 32,
              "vocab_size": 32000},
    "qwen3": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 10000.0, "num_attention_heads": 32, "head_dim": 128,
              "num_key_value_heads": 32, "vocab_size": 151936},
}  # fmt: skip

# Where the ids of the captured layers may stand, in the order they are looked for. Sources: speculators and vLLM (top
# level); SpecForge, ModelOpt, TorchSpec, SGLang (nested); AngelSlim (plural "states"); DeepSpec.
ID_PLACES = (
    ("eagle_aux_hidden_state_layer_ids",),
    ("eagle_config", "eagle_aux_hidden_state_layer_ids"),
    ("aux_hidden_states_layer_ids",),
    ("target_layer_ids",),
)
OUTPUTS = "target_layer_ids"  # DeepSpec's key: ids of layers whose output is taken, whatever they begin with
# Where the token that stands for one not yet drafted may be named. Sources: speculators, SpecForge, NeMo; amazon's P-EAGLE; vLLM.
MASK_TOKENS = ("mask_token_id", "ptd_token_id", "pard_token")

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


class Fields:
    """config.json, looked up through its nests, remembering where each value was found."""

    def __init__(self, config: dict, name: str):
        self.name = name
        for nest in ("eagle_config", "transformer_layer_config"):
            if config.get(nest) is not None and not isinstance(config[nest], dict):
                raise InputError(f"{name}: {nest} is {config[nest]!r}, expected an object or null")
        self.places = [("", config), ("eagle_config.", config.get("eagle_config") or {})]
        inner = config.get("transformer_layer_config")
        if inner:
            self.places.append(("transformer_layer_config.", inner))
            kind = str(inner.get("model_type", "qwen3"))
            self.places.append((f"class default of {kind}: ", CLASS_DEFAULTS.get(kind, {})))
        self.sources: dict[str, str] = {}

    def get(self, key: str, default=None, as_field: str | None = None):
        """The first value that is not null, or `default`; its place is noted under `as_field`."""
        for prefix, place in self.places:
            if place.get(key) is not None:
                self.sources[as_field or key] = f"{self.name}: {prefix}{key}"
                return place[key]
        self.sources[as_field or key] = f"absent from {self.name}: default"
        return default

    def number(self, key: str, default=None, as_field: str | None = None):
        """As `get`, for a field that is a number above zero. Raises InputError when it is nowhere, or something else."""
        found = self.get(key, default, as_field)
        if found is None:
            raise InputError(
                f"{self.name}: field {key} is absent and no tensor can tell it: add it as the target's config has it"
            )
        if type(found) not in (int, float) or not 0 < found < math.inf:
            raise InputError(f"{self.name}: field {key} is {found!r}, expected a number above zero")
        return found

    def whole(self, key: str, default=None, as_field: str | None = None) -> int:
        """As `number`, for one without a fraction."""
        found = self.number(key, default, as_field)
        if found != int(found):
            raise InputError(f"{self.name}: field {key} is {found!r}, expected a whole number")
        return int(found)

    def flag(self, key: str, default: bool = False) -> bool:
        """As `get`, for true or false. Raises InputError for anything else ("false" in quotes would count as true), and for two
        places that contradict each other.
        """
        found = self.get(key, default)
        said = {prefix + key: place[key] for prefix, place in self.places if place.get(key) is not None}
        if len(set(map(repr, said.values()))) > 1:
            told = " and ".join(f"{where} {value}" for where, value in said.items())
            raise InputError(f"{self.name}: {told} contradict each other: keep the one that training had")
        if not isinstance(found, bool):
            raise InputError(f"{self.name}: field {key} is {found!r}, expected true or false")
        return found


def streams_of(ids: list[int], outputs: bool = False) -> tuple[tuple[int, ...], str]:
    """Layer ids of a config to the n of r_n, and how they were read.

    Files use two dialects: the id of a layer whose output is taken (n = id + 1) and a boundary id (n = id). Ids that begin
    with 1 or hold -1 (the embedding) are read as the first, all others as the second: the rule of sgl-project/sglang#25454,
    which agrees with every published default triple. It is a rule of thumb: the probe measures what was meant. `outputs`: they
    are known to be of the first dialect.
    """
    if outputs:
        return tuple(i + 1 for i in ids), "ids of layers whose output is taken: n = id + 1"
    if ids and (ids[0] == 1 or min(ids) < 0):
        return tuple(i + 1 for i in ids), "read as ids of layers whose output is taken: n = id + 1"
    return tuple(ids), "read as boundary ids: n = id"


def layer_ids(config: dict) -> tuple[tuple[str, ...], object] | None:
    """The place of the layer ids in a config, and what stands there; None where there are none."""
    return next(((place, found) for place in ID_PLACES if (found := at(config, place))), None)


def read_streams(config: dict, fields: Fields) -> tuple[int, ...] | None:
    place, found = layer_ids(config) or ((), None)
    if not place:
        fields.sources["streams"] = f"absent from {fields.name}: the engine's default would be used"
        return None
    if not isinstance(found, list) or not all(type(i) is int for i in found):
        raise InputError(f"{fields.name}: {'.'.join(place)} is {found!r}, expected a list of layer ids")
    streams, how = streams_of(found, place[-1] == OUTPUTS)
    fields.sources["streams"] = f"{fields.name}: {'.'.join(place)} {found}, {how}"
    return streams


def read_recipe(config: dict, shapes: dict[str, tuple[int, ...]], name: str, layout: Layout) -> Recipe:
    """Recipe of a drafter from its config and its tensors' shapes. Shapes decide widths; the config decides the rest.

    `name` is how the config is called in messages. Raises InputError for a field that is missing or contradicts a shape.
    """
    fields = Fields(config, name)
    norm = shapes.get("norm.weight")
    if norm is None:
        raise BrokenError(f"{name}: tensor norm.weight is missing: norm before the head; convert the checkpoint anew")
    if len(norm) != 1:
        raise BrokenError(f"{name}: tensor norm.weight is {list(norm)}, expected [H], a norm's weight: another model's file")
    H = norm[0]
    if len(shapes["fc.weight"]) != 2:
        raise InputError(f"{name}: fc.weight is {list(shapes['fc.weight'])}, expected a matrix: another kind of model")
    rows, joined = shapes["fc.weight"]
    if rows != H and not (rows > H and fields.get("early_stop_method")):  # AngelSlim's: further rows are signals, no channels
        raise BrokenError(f"{name}: fc.weight makes {rows} channels, but norm.weight is {H} long: they are not of one drafter")
    layers = sorted({int(key.split(".")[1]) for key in shapes if key.startswith("layers.")})
    if layers != list(range(len(layers))):
        raise BrokenError(f"{name}: the tensors are of layers {layers}, expected 0, 1, ...: some are missing")
    fused_layers = tuple(i for i in layers if _reads(shapes, i, name) == 2 * H)
    if 0 not in fused_layers:
        raise InputError(
            f"{name}: the first layer takes {_reads(shapes, 0, name)} channels, expected 2H = {2 * H}: EAGLE-3's first layer "
            "reads the embedding and the state side by side; a plain layer (H) is EAGLE-1 or another kind of drafter"
        )
    mla = _read_mla(shapes, fields, layout)
    n_heads, n_kv_heads, head_dim = _read_heads(shapes, fields, H, mla)
    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        raise InputError(f"{name}: hidden_act is {activation!r}, expected 'silu': this library runs no other gate")
    target_width = fields.whole("target_hidden_size", H)
    if joined % target_width:
        raise BrokenError(f"{name}: fc.weight takes {joined} channels, no multiple of target_hidden_size {target_width}")
    if not fields.flag("use_aux_hidden_state", True):
        raise InputError(
            f"{name}: use_aux_hidden_state is false: the drafter takes the target's last state, which is not supported"
        )
    streams, n_streams = read_streams(config, fields), joined // target_width
    if streams is not None and len(streams) != n_streams:
        raise InputError(
            f"{name}: names {len(streams)} layers ({fields.sources['streams']}), but fc.weight takes {n_streams} streams of "
            f"{target_width}: correct the ids, or target_hidden_size"
        )
    _check_windows(config, len(layers), fields, layout)
    values = dict(
        hidden_size=H,
        target_hidden_size=target_width,
        vocab_size=fields.whole("vocab_size"),
        draft_vocab_size=_draft_vocab(shapes, fields),
        n_layers=len(layers),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_streams=n_streams,
        streams=streams,
        eps=fields.number("rms_norm_eps", 1e-6, as_field="eps"),
        rope=read_rope(fields, mla.rope if mla else head_dim, layout, mla is not None),
        fused_layers=fused_layers,
        mla=mla,
        mask_token=_read_mask_token(shapes, fields, layout),
        **{flag: fields.flag(flag) for flag in FLAGS},
    )
    if fields.get("use_aux_norm") is True:  # SGLang's first name of it (sgl-project/sglang#24663)
        values["fc_norm"], fields.sources["fc_norm"] = True, fields.sources["use_aux_norm"]
    for derived, why in (("hidden_size", "norm.weight"), ("n_layers", "layers.* tensors"), ("n_kv_heads", "k_proj.weight"),
                         ("n_streams", "fc.weight / target_hidden_size"), ("fused_layers", "q_proj.weight of each layer"),
                         ("mla", "kv_a_proj_with_mqa.weight" if mla else "q_proj.weight")):  # fmt: skip
        fields.sources[derived] = f"shape of {why}"
    known = {key: source for key, source in fields.sources.items() if key in values}
    return Recipe(**values, sources=known)


def _reads(shapes: dict[str, tuple[int, ...]], layer: int, name: str) -> int:
    """How many channels the attention of a layer reads."""
    for tensor in ("q_proj", "q_a_proj", "kv_a_proj_with_mqa"):
        shape = shapes.get(f"layers.{layer}.self_attn.{tensor}.weight")
        if shape and len(shape) != 2:
            raise InputError(f"{name}: {tensor}.weight is {list(shape)}, expected a matrix: another kind of model")
        if shape:
            return shape[1]
    raise BrokenError(f"{name}: layer {layer} has no self_attn.q_proj.weight and no self_attn.q_a_proj.weight: convert it anew")


def _read_mla(shapes: dict[str, tuple[int, ...]], fields: Fields, layout: Layout) -> Mla | None:
    """Latent attention, where the tensors are its own. The config splits heads into their parts."""
    first = "layers.0.self_attn."
    if first + "kv_a_proj_with_mqa.weight" not in shapes:
        return None
    nope, rope, v = (fields.whole(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    queries = shapes.get(first + "q_a_proj.weight")
    eps = layout.mla_eps or fields.number("rms_norm_eps", 1e-6)
    scale = 1.0 if layout.mla_plain_scale else mla_scale(fields)
    kv_rank = shapes[first + "kv_a_proj_with_mqa.weight"][0] - rope
    return Mla(queries[0] if queries else None, kv_rank, nope, rope, v, eps, scale)


def _read_heads(shapes: dict, fields: Fields, H: int, mla: Mla | None) -> tuple[int, int, int]:
    """Query heads, key heads, channels of a head."""
    n_heads = fields.whole("num_attention_heads", as_field="n_heads")
    if mla:
        fields.sources["head_dim"] = f"{fields.name}: qk_nope_head_dim + qk_rope_head_dim"
        return n_heads, n_heads, mla.nope + mla.rope
    head_dim = fields.whole("head_dim", H // n_heads)
    if head_dim < 4 or head_dim % 2:
        raise InputError(f"{fields.name}: {n_heads} heads of {head_dim} channels: expected an even number, 4 or more")
    heads_width = shapes["layers.0.self_attn.q_proj.weight"][0]
    if n_heads * head_dim != heads_width:
        raise BrokenError(
            f"{fields.name}: {n_heads} heads of {head_dim} are {n_heads * head_dim} channels, but "
            f"layers.0.self_attn.q_proj.weight has {heads_width}: correct num_attention_heads or head_dim"
        )
    kv_width = shapes.get("layers.0.self_attn.k_proj.weight", (head_dim,))[0]
    if kv_width < head_dim or kv_width % head_dim:
        raise BrokenError(
            f"{fields.name}: layers.0.self_attn.k_proj.weight has {kv_width} rows, expected a multiple of head_dim {head_dim}"
        )
    return n_heads, kv_width // head_dim, head_dim


def _check_windows(config: dict, layers: int, fields: Fields, layout: Layout) -> None:
    """speculators masks a sliding layer's attention by its window, as its config says; others copy the target's settings."""
    inner = config.get("transformer_layer_config") or {}
    types = inner.get("layer_types") or ()
    if layout.name.startswith("speculators") and inner.get("sliding_window") and "sliding_attention" in list(types)[:layers]:
        raise InputError(
            f"{fields.name}: transformer_layer_config.sliding_window is {inner['sliding_window']}: attention over a window only, "
            "which this library does not run"
        )


def _read_mask_token(shapes: dict, fields: Fields, layout: Layout) -> int | None:
    if "mask_hidden" not in shapes:
        if layout.name.endswith("P-EAGLE"):
            raise BrokenError(
                f"{fields.name}: {layout.name} drafts in parallel, but tensor mask_hidden is missing: export it anew"
            )
        fields.sources["mask_token"] = "no mask_hidden tensor: the drafter feeds on its own states"
        return None
    said = {key: token for key in MASK_TOKENS if (token := fields.get(key)) is not None}
    if not said:
        raise InputError(f"{fields.name}: mask_hidden is there (P-EAGLE), but none of {', '.join(MASK_TOKENS)} names its token")
    if len(set(map(repr, said.values()))) > 1:
        raise InputError(f"{fields.name}: {said} name different tokens for one that is not yet drafted: keep the trained one")
    key = next(iter(said))
    found, V = fields.get(key, as_field="mask_token"), fields.whole("vocab_size")
    if type(found) is not int or not 0 <= found < V:
        raise InputError(f"{fields.name}: field {key} is {found!r}, expected a token id below vocab_size {V}")
    return found


def _draft_vocab(shapes: dict[str, tuple[int, ...]], fields: Fields) -> int:
    for tensor in ("lm_head.weight", "d2t"):
        if tensor in shapes:
            fields.sources["draft_vocab_size"] = f"shape of {tensor}"
            return shapes[tensor][0]
    return fields.whole("draft_vocab_size", fields.get("vocab_size"))
