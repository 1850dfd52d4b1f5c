"""The rotary settings of a config.json, in every spelling, to a Rope."""

import math
from collections.abc import Mapping
from dataclasses import replace

from .errors import InputError
from .layouts import Layout
from .rope import Rope, yarn_gain

# Rope types that are run, and the keys each must have. Source: transformers `modeling_rope_utils`; "mrope" (Qwen2-VL) turns text
# as "default" does, its three positions being equal; "dynamic" is plain up to max_position_embeddings.
SCALINGS = {
    "default": (),
    "mrope": (),
    "dynamic": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor",),
}
OPTIONAL = ("mscale", "mscale_all_dim", "attention_factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
BASE = 10000.0  # of transformers' Llama, and of whoever ignores the configured one
FAST, SLOW = 32.0, 1.0  # YaRN's beta_fast and beta_slow where the config has none


def check_base(where: str, base: object) -> None:
    """Raises InputError for a rope base that is none: engines' own are 10,000 to 10,000,000."""
    if type(base) not in (int, float) or not 1 < base < 1e15:
        raise InputError(f"{where}: rope_theta is {base!r:.40}, expected a number above 1, as 10000")


def read_rope(fields, head_dim: int, layout: Layout, latent: bool = False) -> Rope:
    """Rotary settings to inverse frequencies for a rotary width of `head_dim`, or the part of it that is turned. `latent`: of
    latent attention. Raises InputError for a scaling that this library does not know.
    """
    scaling, kind = _scaling(fields)
    base, where = _base(fields, scaling)
    ignored = layout.mla_base_10000 if latent else layout.base_10000
    named = "mrope" if scaling.get("mrope_section") else kind
    if base != BASE and named in ignored:
        base, where = BASE, f"{layout.name} trains with base 10000 whatever rope_theta ({base:g}) says: {layout.source}"
    fields.sources["rope"] = where
    partial = fields.get("partial_rotary_factor") or scaling.get("partial_rotary_factor") or 1
    if type(partial) not in (int, float) or not 0 < partial <= 1:
        raise InputError(f"{fields.name}: partial_rotary_factor is {partial!r}, expected a share of each head, as 0.5")
    turned = int(head_dim * partial)
    if turned < 4:
        raise InputError(f"{fields.name}: partial_rotary_factor {partial} leaves {turned} channels to turn: 4 or more")
    plain = Rope.plain(float(base), turned)
    if partial != 1:
        plain = replace(plain, about=f"{plain.about}, on {partial:.0%} of each head")
    if kind == "dynamic":
        longest = fields.whole("max_position_embeddings")
        return replace(plain, about=f"{plain.about}, dynamic from position {longest:,} on", upto=longest)
    if kind == "linear":
        return plain.linear(float(scaling["factor"]))
    if kind == "llama3":
        return plain.llama3(*(scaling[key] for key in SCALINGS[kind]))
    return _yarn(plain, scaling, fields) if kind == "yarn" else plain


def mla_scale(fields) -> float:
    """What latent attention multiplies its scores by, beside 1 / sqrt(D): YaRN's gain of mscale_all_dim, squared (transformers
    `modeling_deepseek_v3`; vLLM `deepseek_yarn`).
    """
    scaling, kind = _scaling(fields)
    scaled = kind == "yarn" and scaling.get("mscale_all_dim")
    return yarn_gain(float(scaling["factor"]), float(scaling["mscale_all_dim"])) ** 2 if scaled else 1.0


def _scaling(fields) -> tuple[Mapping, str]:
    """The object that says how positions are scaled, and its type."""
    written = _parameters(fields)
    scaling = fields.get("rope_scaling") or written
    for spelled in (written, scaling):
        if not isinstance(spelled, dict):
            raise InputError(f"{fields.name}: rope_scaling or rope_parameters is {spelled!r}, expected an object or null")
    said = {key: scaling[key] for key in ("rope_type", "type") if scaling.get(key)}
    if len(set(map(repr, said.values()))) > 1 or (not said and scaling.get("factor")):
        told = "says two types" if said else "has a factor and no rope_type"
        raise InputError(f"{fields.name}: the rope scaling {told} ({scaling}): keep the one that training had")
    kind = next(iter(said.values()), "default")
    if not isinstance(kind, str) or kind not in SCALINGS:
        raise InputError(f"{fields.name}: rope type {kind!r} is not one this library runs ({', '.join(SCALINGS)})")
    numbers = (*SCALINGS[kind], *(key for key in OPTIONAL if scaling.get(key)))
    bad = [key for key in numbers if type(scaling.get(key)) not in (int, float) or not 0 < scaling[key] < math.inf]
    if bad:
        raise InputError(f"{fields.name}: rope type {kind!r} needs numbers above zero under {', '.join(bad)}; it has {scaling}")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise InputError(f"{fields.name}: rope type 'llama3' needs low_freq_factor below high_freq_factor; it has {scaling}")
    return scaling, kind


def _parameters(fields) -> Mapping:
    """rope_parameters (transformers 5). Where it has a set for each kind of layer, all must be the same."""
    written = fields.get("rope_parameters") or {}
    sets = [value for value in written.values() if isinstance(value, dict)] if isinstance(written, dict) else []
    if any(one != sets[0] for one in sets):
        raise InputError(
            f"{fields.name}: rope_parameters has a set for each kind of layer, and they differ: keep the drafter's own"
        )
    return sets[0] if sets else written


def _base(fields, scaling: Mapping) -> tuple[float, str]:
    written = _parameters(fields)
    if written.get("rope_theta"):
        base, where = written["rope_theta"], f"{fields.name}: rope_parameters"
    elif scaling.get("rope_theta"):
        base, where = scaling["rope_theta"], f"{fields.name}: rope_scaling"
    else:
        base = fields.number("rope_theta", BASE, as_field="rope")
        where = fields.sources["rope"]
    check_base(fields.name, base)
    return float(base), where


def _yarn(plain: Rope, scaling: Mapping, fields) -> Rope:
    factor, both = float(scaling["factor"]), scaling.get("mscale") and scaling.get("mscale_all_dim")
    gain = scaling.get("attention_factor") or yarn_gain(factor)
    if both and not scaling.get("attention_factor"):
        gain = yarn_gain(factor, float(scaling["mscale"])) / yarn_gain(factor, float(scaling["mscale_all_dim"]))
    trained = scaling.get("original_max_position_embeddings") or fields.whole("max_position_embeddings")
    betas = (float(scaling.get(key) or usual) for key, usual in (("beta_fast", FAST), ("beta_slow", SLOW)))
    return plain.yarn(factor, int(trained), *betas, bool(scaling.get("truncate", True)), float(gain))
