"""What all layouts are made of: widths, tensors under this library's names, and a config.json for them.

Every tensor is drawn under its own name, so that two layouts of one drafter hold the same numbers whatever else they hold. All
numbers fit bfloat16 and float16 alike: a drafter stays the same in either.
"""

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

COMMON = 96  # draft ids stand for tokens below this, so that a capture's tokens can be said by every drafter
MASK_TOKEN = 95


@dataclass(frozen=True)
class Mla:
    """Widths of latent attention; `q_rank` None: queries go through one matrix."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    v: int


@dataclass(frozen=True)
class Widths:
    """A drafter's widths. `Ht` None: as wide as the drafter. `fused`: layers whose attention reads [embedding, state]."""

    H: int = 32
    heads: int = 4
    kv: int = 1
    D: int = 8
    I: int = 96  # noqa: E741 (papers call it so)
    Ht: int | None = None
    V: int = 96
    Vd: int = 24
    n: int = 3
    layers: int = 1
    fused: tuple[int, ...] = (0,)
    mla: Mla | None = None

    @property
    def target(self) -> int:
        return self.Ht or self.H


LLAMA_8B = Widths(H=32, heads=4, kv=1, D=8, I=112)  # 4096 as 32/8 heads of 128, an MLP of 14336
QWEN_8B = Widths(H=32, heads=4, kv=1, D=8, I=96)
QWEN_4B = Widths(H=40, heads=8, kv=2, D=8, I=152)  # 2560 as 32/8 heads of 128: heads wider than the state
GPT_OSS = Widths(H=45, heads=8, kv=1, D=8, I=45)  # 2880 as 64/8 heads of 64


def draw(name: str, *shape: int, scale: float = 1.0, around: float = 0.0) -> Tensor:
    """Normal numbers under a seed made of `name`, float32, each a number of bfloat16 and of float16."""
    g = torch.Generator().manual_seed(zlib.crc32(f"{name} {shape[-1]}".encode()))
    x = (around + scale * torch.randn(*shape, generator=g)).bfloat16().float()
    return torch.where(x.abs() < 2**-14, torch.zeros(()), x)


def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> Tensor:
    return draw(name, rows, columns, scale=scale * columns**-0.5)


def norm(name: str, width: int) -> Tensor:
    return draw(name, width, scale=0.2, around=1.0)


def draft_ids(w: Widths) -> Tensor:
    """The target's id of each draft id, ascending [Vd]."""
    if w.Vd == w.V:
        return torch.arange(w.V)
    g = torch.Generator().manual_seed(w.Vd)
    return torch.randperm(COMMON, generator=g)[: w.Vd].sort().values


def attention(w: Widths, W: int) -> dict[str, tuple[int, int]]:
    """Shapes of a layer's attention by its matrices' names, reading W channels."""
    if w.mla is None:
        q, kv = w.heads * w.D, w.kv * w.D
        return {"q_proj": (q, W), "k_proj": (kv, W), "v_proj": (kv, W), "o_proj": (w.H, q)}
    m = w.mla
    q = w.heads * (m.nope + m.rope)
    queries = {"q_a_proj": (m.q_rank, W), "q_b_proj": (q, m.q_rank)} if m.q_rank else {"q_proj": (q, W)}
    return queries | {
        "kv_a_proj_with_mqa": (m.kv_rank + m.rope, W),
        "kv_b_proj": (w.heads * (m.nope + m.v), m.kv_rank),
        "o_proj": (w.H, w.heads * m.v),
    }


def layer(w: Widths, i: int, bias: tuple[str, ...], head_norms: bool) -> dict[str, Tensor]:
    """Layer i's tensors. `bias`: matrices that have one; `head_norms`: Qwen3's norms of each head."""
    start, fused = f"layers.{i}.", i in w.fused
    mlp = {"mlp.gate_proj": (w.I, w.H), "mlp.up_proj": (w.I, w.H), "mlp.down_proj": (w.H, w.I)}
    shapes = {f"self_attn.{name}": shape for name, shape in attention(w, w.H * (2 if fused else 1)).items()} | mlp
    found = {f"{start}{name}.weight": matrix(start + name, *shape) for name, shape in shapes.items()}
    found |= {f"{start}{name}.bias": draw(f"{start}{name}.bias", shapes[name][0], scale=0.3)
              for name in shapes if name.split(".")[1] in bias}  # fmt: skip
    norms = {"input_layernorm": w.H, "post_attention_layernorm": w.H} | ({"hidden_norm": w.H} if fused else {})
    if w.mla:
        norms |= {"self_attn.kv_a_layernorm": w.mla.kv_rank}
        norms |= {"self_attn.q_a_layernorm": w.mla.q_rank} if w.mla.q_rank else {}
    if head_norms:
        norms |= {"self_attn.q_norm": w.D, "self_attn.k_norm": w.D}
    return found | {f"{start}{name}.weight": norm(start + name, width) for name, width in norms.items()}


def tensors(
    w: Widths,
    embed: str = "",  # "target": a copy of the target's, "own", or none
    head: str = "own",  # "own", "target": those rows of the target's, or none
    maps: bool = True,
    streams_norm: str = "",  # "input_norm", "fc_norm" or none
    bias: tuple[str, ...] = (),
    head_norms: bool = False,
    mask: bool = False,
    exits: int = 0,  # further rows of fc
) -> dict[str, Tensor]:
    """A drafter under this library's names, float32."""
    found: dict[str, Tensor] = {}
    for i in range(w.layers):
        found |= layer(w, i, bias, head_norms)
    joined = w.n * w.target
    found["fc.weight"] = torch.cat([matrix("fc", w.H, joined), *([matrix("exits", exits, joined)] if exits else [])])
    found["norm.weight"] = norm("norm", w.H)
    if head:
        found["lm_head.weight"] = matrix("head", w.Vd, w.H, 3) if head == "own" else target_tensors(w)["head"][draft_ids(w)]
    if embed:
        found["embed_tokens.weight"] = draw("own rows", w.V, w.H) if embed == "own" else target_tensors(w)["embedding"]
    if maps:
        ids = draft_ids(w)
        known = torch.zeros(w.V, dtype=torch.bool).index_fill_(0, ids, True)
        found |= {"d2t": ids - torch.arange(w.Vd), "t2d": known}
    if streams_norm == "input_norm":
        found["input_norm.weight"] = norm("input_norm", joined)
    if streams_norm == "fc_norm":
        found |= {f"fc_norm.{i}.weight": norm(f"fc_norm.{i}", w.target) for i in range(w.n)}
    if mask:
        found["mask_hidden"] = draw("mask_hidden", 1, 1, joined)
    return found


def target_tensors(w: Widths) -> dict[str, Tensor]:
    """What a target of these widths holds: embedding and head [V, Ht], the final norm's weight [Ht]."""
    width = w.target
    head = matrix("target head", w.V, width, 3)
    return {"embedding": draw("target embedding", w.V, width), "head": head, "norm": norm("target norm", width)}


def config(w: Widths, **changes) -> dict:
    """A llama-shaped config.json for these widths. A change to `...` leaves the key out."""
    found = {
        "architectures": ["LlamaForCausalLMEagle3"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "draft_vocab_size": w.Vd, "eos_token_id": 1, "head_dim": w.D, "hidden_act": "silu", "hidden_size": w.H,
        "initializer_range": 0.02, "intermediate_size": w.I, "max_position_embeddings": 40960, "model_type": "llama",
        "num_attention_heads": w.heads, "num_hidden_layers": w.layers, "num_key_value_heads": w.kv, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
        "vocab_size": w.V,
    }  # fmt: skip
    return {key: value for key, value in (found | changes).items() if value is not ...}
