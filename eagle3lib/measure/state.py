"""The drafter's own state over the draft steps: how large it grows, what `fc` makes it of, where its attention goes."""

from collections.abc import Iterable

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from ..read.capture import Capture
from ..run.attention import Pair
from ..run.chain import scored_rows
from ..run.drafter import Drafter, Memory


def slot_shares(drafter: Drafter, g: Float[Tensor, "T joined"]) -> Float[Tensor, "T slots"]:
    """Each slot's part in what `fc` makes of the joined streams, [T, n_streams]; the parts of a row add up to 1.

    fc's output is a sum of one vector for each slot; a slot's share is the projection of its vector on that sum, over the
    sum's squared norm. A slot against the others has a negative share. Shares are taken after the norms that stand before
    `fc`, where the drafter has any; a bias of `fc`, if there is one, is left out.
    """
    trace: dict[str, Tensor] = {}
    drafter.fuse(g, trace)
    joined = trace.get("input_norm", g)
    n = drafter.recipe.n_streams
    chunks = [trace.get(f"fc_norm.{i}", part) for i, part in enumerate(joined.chunk(n, dim=-1))]  # n of [T, Ht]
    parts = torch.stack([c @ w.T for c, w in zip(chunks, drafter.weights["fc.weight"].chunk(n, dim=1), strict=True)], dim=1)
    whole = parts.sum(1)  # [T, n, H] -> [T, H]
    return torch.einsum("tnh,th->tn", parts, whole) / whole.pow(2).sum(-1, keepdim=True)


def attention_weights(
    q: Float[Tensor, "T heads D"], rows: Int[Tensor, " T"], context: Pair, own: list[Pair]
) -> Float[Tensor, "T heads keys"]:
    """The weights that `attend` mixes values with, all at once: to look at.

    Columns: the S context rows, then the row's own later keys.
    """

    def for_queries(keys: Float[Tensor, "N kv D"]) -> Float[Tensor, "N heads D"]:  # several query heads share one head of keys
        return keys.repeat_interleave(q.shape[1] // keys.shape[1], dim=1)

    ahead = torch.arange(len(context[0]), device=q.device) > rows[:, None]  # [T, S]
    scores = torch.einsum("thd,shd->ths", q, for_queries(context[0])).masked_fill(ahead[:, None], float("-inf"))
    later = [torch.einsum("thd,thd->th", q, for_queries(keys))[..., None] for keys, _ in own]
    return (torch.cat([scores, *later], dim=-1) * q.shape[-1] ** -0.5).float().softmax(-1)


@torch.inference_mode()
def drafter_state(drafter: Drafter, captures: Iterable[Capture], steps: int, rows: int = 8) -> pd.DataFrame:
    """How the drafter's state develops: a row for each sample and step (from 1).

    Columns: norm of the state fed on (mean over all drafted rows), norm of fc's output at step 1, and, over `rows` of them
    evenly spread and averaged over heads of layer 0, the share of attention on position 0, on the rest of the context, and on
    the row's own earlier drafts.
    """
    found = []
    for capture in tqdm(captures, desc="state", unit="sample", leave=False):
        g, ids = capture.joined(drafter.recipe).to(drafter.device, drafter.dtype), capture.token_ids.to(drafter.device)
        good = scored_rows(capture.loss_mask, steps - 1)
        if len(good) == 0:
            continue
        T = len(ids) - 1 - steps
        at = torch.arange(T, device=drafter.device)
        some = good[torch.linspace(0, len(good) - 1, min(rows, len(good))).long()].to(drafter.device)
        hidden, memory = drafter.fuse(g[:T]), Memory()
        fused = float(hidden[good].norm(dim=-1).mean())
        for step in range(steps):
            trace: dict[str, Tensor] = {}
            out = drafter.forward(hidden, ids[at + 1 + step], at, memory, step, trace)
            own = [(k[some], v[some]) for k, v in (of_step[0] for of_step in out.memory.own)]
            q = trace["layers.0.self_attn.q"][some] * (drafter.recipe.mla.scale if drafter.recipe.mla else 1.0)
            weights = attention_weights(q, some, out.memory.context[0], own).mean((0, 1))  # [keys]
            context, mine = weights[: len(weights) - len(own)], weights[len(weights) - len(own) :]
            size, made = float(out.feed[good].norm(dim=-1).mean()), fused if step == 0 else float("nan")
            attention = (float(context[0]), float(context[1:].sum()), float(mine.sum()))
            found.append((capture.name, step + 1, size, made, *attention))
            hidden, memory = out.feed, out.memory
    columns = ["sample", "step", "norm of the state", "norm of fc's output", "attention on position 0"]
    return pd.DataFrame(found, columns=[*columns, "on the rest of the context", "on its own drafts"])
