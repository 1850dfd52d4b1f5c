"""The chain of one row of a sample, for the explorer of tokens: what each step chooses, how sure it is, and where it looks."""

import torch

from ..measure.state import attention_weights
from ..read.capture import Capture
from ..read.errors import InputError
from ..run.chain import fused_rows
from ..run.drafter import Drafter, Memory, Step

TOP = 3  # choices kept of a step


@torch.inference_mode()
def first_step(drafter: Drafter, capture: Capture) -> tuple[Step, torch.Tensor]:
    """The first step at every row t that has x_{t+1} and x_{t+2}, and its queries. What comes after is one row's alone."""
    T, trace = len(capture.token_ids) - 2, {}
    if T < 1:
        raise InputError(f"{capture.name}: {T + 2} tokens, expected 3 or more: a row takes two and guesses the third")
    rows, ids = torch.arange(T, device=drafter.device), capture.token_ids[1 : T + 1].to(drafter.device)
    out = drafter.forward(fused_rows(drafter, capture)[:T], ids, rows, Memory(), 0, trace)
    return out, trace["layers.0.self_attn.q"]


@torch.inference_mode()
def chain_at(drafter: Drafter, capture: Capture, first: tuple[Step, torch.Tensor], row: int, steps: int) -> list[dict]:
    """The chain of one row: each step's `TOP` choices and their chances, the chance of the text's token (nan where it cannot be
    said), the attention of layer 0 [row + 1 context rows, then its own earlier steps], averaged over heads.
    """
    ids, at, found = capture.token_ids, torch.tensor([row], device=drafter.device), []
    out, q = first[0].rows(slice(row, row + 1)), first[1][row : row + 1]
    scale = drafter.recipe.mla.scale if drafter.recipe.mla else 1.0
    for step in range(steps):
        context, own = out.memory.context[0], [layers[0] for layers in out.memory.own]
        seen = attention_weights(q * scale, at, context, own)[0].mean(0)  # [keys]
        p, place = drafter.logits(out.normed).float().softmax(-1)[0], row + 2 + step
        best = p.topk(min(TOP, len(p)))
        true = p[drafter.target_ids == int(ids[place])].sum() if place < len(ids) else p.sum() * torch.nan
        chosen = drafter.target_ids[best.indices]
        found.append(
            {"ids": chosen.tolist(), "p": best.values.tolist(), "of true": float(true),
             "attention": torch.cat([seen[: row + 1], seen[len(context[0]) :]]).cpu()}
        )  # fmt: skip
        trace: dict[str, torch.Tensor] = {}
        out = drafter.forward(out.feed, chosen[:1], at, out.memory, step + 1, trace)
        q = trace["layers.0.self_attn.q"]
    return found
