"""Recipe: everything that a drafter's forward needs and that is not a tensor, each field with where it came from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from dataclasses import replace as _replace
from types import MappingProxyType

from .errors import InputError


@dataclass(frozen=True)
class Rope:
    """Rotary positions, settled: angle of pair i at position p is `p * inv_freq[i]`; cos and sin are multiplied by `gain`."""

    inv_freq: tuple[float, ...]  # [rotary width / 2], radians a position
    gain: float = 1.0
    about: str = ""  # how it was spelled, for people

    @classmethod
    def plain(cls, base: float, head_dim: int) -> "Rope":
        """`base ** (-2i / head_dim)`: RoFormer, arXiv 2104.09864, section 3.4.2."""
        inv_freq = tuple(base ** (-2 * i / head_dim) for i in range(head_dim // 2))
        return cls(inv_freq, about=f"plain, base {base:g}")

    def linear(self, factor: float) -> "Rope":
        """Positions divided by `factor` (transformers `rope_type: linear`)."""
        return Rope(tuple(f / factor for f in self.inv_freq), self.gain, f"{self.about}, linear {factor:g}")

    def llama3(self, factor: float, low: float, high: float, trained: int) -> "Rope":
        """Slow pairs are divided by `factor`, fast ones kept, those between blended (transformers `rope_type: llama3`).

        `low` and `high` bound the number of turns in `trained` positions: `low_freq_factor`, `high_freq_factor`,
        `original_max_position_embeddings` in config.json.
        """

        def scaled(f: float) -> float:
            turns = trained * f / (2 * math.pi)
            kept = min(1.0, max(0.0, (turns - low) / (high - low)))
            return kept * f + (1 - kept) * f / factor

        return Rope(tuple(map(scaled, self.inv_freq)), self.gain, f"{self.about}, llama3 {factor:g}")


@dataclass(frozen=True)
class Recipe:
    """The forward of one drafter, but for its tensors. Widths in channels; Ht and V are the target's, H and Vd the drafter's."""

    hidden_size: int  # H
    target_hidden_size: int  # Ht
    vocab_size: int  # V
    draft_vocab_size: int  # Vd
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_streams: int  # how many target states are joined for `fc`
    streams: tuple[int | str, ...] | None  # their n (r_n: the residual stream after n decoder layers); None: nobody says
    eps: float  # of every RMSNorm
    rope: Rope
    norm_before_residual: bool = False  # layer 0's residual is hidden_norm(h), not h
    norm_before_fc: bool = False  # one RMSNorm (`input_norm`) over the joined streams
    fc_norm: bool = False  # one RMSNorm (`fc_norm.i`) for each stream: EAGLE-3.1
    norm_output: bool = False  # the state fed to the next step is norm(h): EAGLE-3.1
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # field -> where its value came from

    def __post_init__(self):
        if self.streams is not None and len(self.streams) != self.n_streams:
            raise InputError(
                f"streams: {list(self.streams)} has {len(self.streams)} entries, expected {self.n_streams}: fc joins so many"
            )
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"num_key_value_heads: {self.n_kv_heads} does not divide num_attention_heads {self.n_heads}")

    def replace(self, **changes) -> "Recipe":
        """A copy with some fields changed; their source becomes "set by hand". Raises InputError for an unknown field."""
        known = {f.name for f in fields(self)} - {"sources"}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise InputError(f"{unknown[0]}: no such Recipe field; there are {', '.join(sorted(known))}")
        if isinstance(changes.get("streams"), list):
            changes["streams"] = tuple(changes["streams"])
        sources = MappingProxyType({**self.sources, **dict.fromkeys(changes, "set by hand")})
        return _replace(self, **changes, sources=sources)
