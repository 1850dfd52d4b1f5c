"""Recipe: everything that a drafter's forward needs and that is not a tensor, each field with where it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from dataclasses import replace as _replace
from types import MappingProxyType

from .errors import InputError
from .rope import Rope


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): queries, keys and values go through narrow matrices; the
    rotary part of the key is one for all heads, its channels turned in neighbouring pairs.
    """

    q_rank: int | None  # None: queries are not compressed
    kv_rank: int
    nope: int  # channels of a head's query and key that are not turned
    rope: int  # those that are
    v: int  # channels of a head's value
    eps: float  # of the norms of the compressed parts
    scale: float = 1.0  # of the scores, beside 1 / sqrt(nope + rope)


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
    fused_layers: tuple[int, ...] = (0,)  # layers whose q, k, v read [embedding, state], 2H wide: the first; DeepSpec: all
    mla: Mla | None = None
    mask_token: int | None = None  # P-EAGLE: later steps take `mask_hidden` and this token, not the drafter's own
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
