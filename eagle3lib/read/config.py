"""config.json of a drafter to Recipe fields: where each producer writes each field, as tables."""

import math

from .errors import BrokenError, InputError
from .recipe import Recipe, Rope

# Fields left out of a `speculators` file because they equal the class default of its `transformer_layer_config`.
# Source: transformers 5.24, `LlamaConfig` and `Qwen3Config`. Its `to_diff_dict` writes only what differs.
CLASS_DEFAULTS = {
    "llama": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 10000.0, "num_attention_heads": 32},
    "qwen3": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 10000.0, "num_attention_heads": 32, "head_dim": 128,
              "num_key_value_heads": 32},
}  # fmt: skip

# Where the ids of the captured layers may stand, in the order they are looked for. Sources: speculators and vLLM (top
# level); SpecForge, ModelOpt, TorchSpec, SGLang (nested); AngelSlim (plural "states").
ID_PLACES = (
    ("eagle_aux_hidden_state_layer_ids",),
    ("eagle_config", "eagle_aux_hidden_state_layer_ids"),
    ("aux_hidden_states_layer_ids",),
)

# Rope types that are run, and the keys each takes, in the order of Rope's methods. Source: transformers `modeling_rope_utils`.
SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}

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
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
            raise InputError(f"{self.name}: field {key} is {found!r}, expected a number above zero")
        return found

    def whole(self, key: str, default=None, as_field: str | None = None) -> int:
        """As `number`, for one without a fraction."""
        found = self.number(key, default, as_field)
        if found != int(found):
            raise InputError(f"{self.name}: field {key} is {found!r}, expected a whole number")
        return int(found)

    def flag(self, key: str, default: bool = False) -> bool:
        """As `get`, for true or false. Raises InputError for anything else: "false" in quotes would count as true."""
        found = self.get(key, default)
        if not isinstance(found, bool):
            raise InputError(f"{self.name}: field {key} is {found!r}, expected true or false")
        return found


def streams_of(ids: list[int]) -> tuple[tuple[int, ...], str]:
    """Layer ids of a config to the n of r_n, and how they were read.

    Files use two dialects: the id of a layer whose output is taken (n = id + 1) and a boundary id (n = id). Ids that begin
    with 1 or hold -1 (the embedding) are read as the first, all others as the second: the rule of sgl-project/sglang#25454,
    which agrees with every published default triple. It is a rule of thumb: the probe measures what was meant.
    """
    if ids and (ids[0] == 1 or min(ids) < 0):
        return tuple(i + 1 for i in ids), "read as ids of layers whose output is taken: n = id + 1"
    return tuple(ids), "read as boundary ids: n = id"


def read_streams(config: dict, fields: Fields) -> tuple[int, ...] | None:
    for place in ID_PLACES:
        found = config
        for key in place:
            found = (found or {}).get(key)
        if found:
            if not isinstance(found, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in found):
                raise InputError(f"{fields.name}: {'.'.join(place)} is {found!r}, expected a list of layer ids")
            streams, how = streams_of(found)
            fields.sources["streams"] = f"{fields.name}: {'.'.join(place)} {found}, {how}"
            return streams
    fields.sources["streams"] = f"absent from {fields.name}: the engine's default would be used"
    return None


def check_base(where: str, base: object) -> None:
    """Raises InputError for a rope base that is none: engines' own are 10,000 to 10,000,000."""
    if isinstance(base, bool) or not isinstance(base, int | float) or not 1 < base < 1e15:
        raise InputError(f"{where}: rope_theta is {base!r:.40}, expected a number above 1, as 10000")


def read_rope(fields: Fields, head_dim: int) -> Rope:
    """Rotary settings to inverse frequencies. Raises InputError for a scaling that this library does not know."""
    written = fields.get("rope_parameters") or {}
    scaling = fields.get("rope_scaling") or written
    for spelled in (written, scaling):
        if not isinstance(spelled, dict):
            raise InputError(f"{fields.name}: rope_scaling or rope_parameters is {spelled!r}, expected an object or null")
    base = written.get("rope_theta") or fields.number("rope_theta", 10000.0, as_field="rope")
    partial = fields.get("partial_rotary_factor") or written.get("partial_rotary_factor") or 1
    if partial != 1:
        raise InputError(f"{fields.name}: partial_rotary_factor is {partial!r}: this library rotates whole heads only")
    check_base(fields.name, base)
    if written.get("rope_theta"):
        fields.sources["rope"] = f"{fields.name}: rope_parameters"
    plain = Rope.plain(float(base), head_dim)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if not isinstance(kind, str) or kind not in SCALINGS:
        raise InputError(f"{fields.name}: rope type {kind!r} is not one this library runs ({', '.join(SCALINGS)})")
    missing = [key for key in SCALINGS[kind] if not isinstance(scaling.get(key), int | float) or scaling[key] <= 0]
    if missing or (kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]):
        raise InputError(
            f"{fields.name}: rope type {kind!r} needs numbers above zero under {', '.join(SCALINGS[kind])}; it has {scaling}"
        )
    values = (scaling[key] for key in SCALINGS[kind])
    return plain if kind == "default" else plain.linear(*values) if kind == "linear" else plain.llama3(*values)


def read_recipe(config: dict, shapes: dict[str, tuple[int, ...]], name: str) -> Recipe:
    """Recipe of a drafter from its config and its tensors' shapes. Shapes decide widths; the config decides the rest.

    `name` is how the config is called in messages. Raises InputError for a field that is missing or contradicts a shape.
    """
    fields = Fields(config, name)
    for tensor in ("fc.weight", "layers.0.self_attn.q_proj.weight"):
        if len(shapes[tensor]) != 2:
            raise InputError(
                f"{name}: {tensor} is {list(shapes[tensor])}, expected a matrix: the file is of another kind of model"
            )
    H, joined = shapes["fc.weight"]
    heads_width, fused = shapes["layers.0.self_attn.q_proj.weight"]
    if fused != 2 * H:
        raise InputError(
            f"{name}: layers.0.self_attn.q_proj.weight takes {fused} channels, expected 2H = {2 * H}: EAGLE-3's first layer "
            "reads the embedding and the state side by side; a plain layer (H) is EAGLE-1 or another kind of drafter"
        )
    n_layers = len({key.split(".")[1] for key in shapes if key.startswith("layers.")})
    n_heads = fields.whole("num_attention_heads", as_field="n_heads")
    head_dim = fields.whole("head_dim", H // n_heads)
    if n_heads * head_dim != heads_width:
        raise BrokenError(
            f"{name}: {n_heads} heads of {head_dim} are {n_heads * head_dim} channels, but layers.0.self_attn.q_proj.weight has "
            f"{heads_width}: correct num_attention_heads or head_dim"
        )
    kv_width = shapes.get("layers.0.self_attn.k_proj.weight", (head_dim,))[0]
    if kv_width < head_dim or kv_width % head_dim:
        raise BrokenError(
            f"{name}: layers.0.self_attn.k_proj.weight has {kv_width} rows, expected a multiple of head_dim {head_dim}"
        )
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
    streams = read_streams(config, fields)
    values = dict(
        hidden_size=H,
        target_hidden_size=target_width,
        vocab_size=fields.whole("vocab_size"),
        draft_vocab_size=_draft_vocab(shapes, fields),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=kv_width // head_dim,
        head_dim=head_dim,
        n_streams=joined // target_width,
        streams=streams,
        eps=fields.number("rms_norm_eps", 1e-6, as_field="eps"),
        rope=read_rope(fields, head_dim),
        **{flag: fields.flag(flag) for flag in FLAGS},
    )
    for derived, why in (("hidden_size", "fc.weight"), ("n_layers", "layers.* tensors"), ("n_kv_heads", "k_proj.weight"),
                         ("n_streams", "fc.weight / target_hidden_size")):  # fmt: skip
        fields.sources[derived] = f"shape of {why}"
    known = {key: source for key, source in fields.sources.items() if key in values}
    return Recipe(**values, sources=known)


def _draft_vocab(shapes: dict[str, tuple[int, ...]], fields: Fields) -> int:
    for tensor in ("lm_head.weight", "d2t"):
        if tensor in shapes:
            fields.sources["draft_vocab_size"] = f"shape of {tensor}"
            return shapes[tensor][0]
    return fields.whole("draft_vocab_size", fields.get("vocab_size"))
