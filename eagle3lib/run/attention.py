"""The parts of a layer that hold no weights: norm, rotary positions, attention."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .device import CPU_BLOCK

Pair = tuple[Tensor, Tensor]  # keys [rows, n_kv_heads, D] and values [rows, n_kv_heads, Dv]


def rms_norm(x: Float[Tensor, "*rows C"], weight: Float[Tensor, " C"], eps: float) -> Float[Tensor, "*rows C"]:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis, the root in float32 (arXiv 1910.07467)."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotate(
    x: Float[Tensor, "T heads D"], cos: Float[Tensor, "T half"], sin: Float[Tensor, "T half"]
) -> Float[Tensor, "T heads D"]:
    """Rotary positions on the first 2 * half channels; channel i turns with channel i + half (half-split, as in Llama)."""
    T, heads, D = x.shape
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None], sin[:, None]  # [T, 1, half]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def pairs_apart(x: Float[Tensor, "T heads D"]) -> Float[Tensor, "T heads D"]:
    """Channels 0, 2, 4, ... and then 1, 3, 5, ...: latent attention turns neighbours (interleaved), `rotate` halves. A reordering
    that queries and keys share changes no score.
    """
    return torch.cat([x[..., ::2], x[..., 1::2]], dim=-1)


def attend(
    q: Float[Tensor, "T heads D"],
    rows: Int[Tensor, " T"],
    context: Pair,
    own: list[Pair],
    block: int = CPU_BLOCK,
    scale: float = 1.0,
    first: Int[Tensor, " T"] | None = None,
) -> Float[Tensor, "T heads Dv"]:
    """Softmax attention of row t over context rows first[t]..rows[t] (from 0 without `first`) and over row t's own later keys.
    Heads share keys in groups.

    Scores are `scale` times q k / sqrt(D). Rows are taken in parts, so that at most `block` scores are held at once.
    """
    T, heads, D = q.shape
    keys, values = context
    S, n_kv, _ = keys.shape
    q = q.view(T, n_kv, heads // n_kv, D) * (scale * D**-0.5)  # [T, n_kv, group, D]
    texts = [T] if first is None else first.unique_consecutive(return_counts=True)[1].tolist()  # rows of each
    most, blocks = max(1, block // (S * heads)), []
    for part in (part for text in torch.arange(T, device=q.device).split(texts) for part in text.split(most)):
        low, high = 0 if first is None else int(first[part[0]]), int(rows[part].max()) + 1  # context rows that these may see
        late = torch.arange(int(rows[part].min()) + 1, high, device=q.device)  # [late] those that not all of these may see
        weights = torch.einsum("tngd,snd->ntgs", q[part], keys[low:high])  # [n_kv, part, group, seen] scores, so far
        hidden = (late[None, :] > rows[part, None])[:, None, :]  # [part, 1, late] context rows still to come
        weights[..., high - low - len(late) :].masked_fill_(hidden, float("-inf"))
        if own:
            mine = [(q[part] * k[part][:, :, None]).sum(-1, keepdim=True) for k, _ in own]  # each [part, n_kv, group, 1]
            weights = torch.cat([weights, *(one.transpose(0, 1) for one in mine)], dim=-1)  # [n_kv, part, group, seen + len(own)]
        weights = weights.softmax(-1)  # sums in float32, whatever the dtype
        mixed = torch.einsum("ntgs,snd->tngd", weights[..., : high - low], values[low:high])  # [part, n_kv, group, Dv]
        for j, (_, v) in enumerate(own):
            mixed = mixed + weights[..., high - low + j].transpose(0, 1)[..., None] * v[part][:, :, None]
        blocks.append(mixed)
    return torch.cat(blocks).reshape(T, heads, values.shape[-1])
