"""The manual forward over a text, true tokens fed, at every row that has a token to feed; its distance to stored logits."""

from collections.abc import Iterator

import torch
from torch import Tensor

import eagle3lib as e3
from eagle3lib.run.drafter import Step


@torch.inference_mode()
def teacher_forced(drafter: e3.Drafter, g: Tensor, ids: Tensor, steps: int) -> Iterator[tuple[int, Tensor, Step]]:
    """Yields step, rows and what the pass returned; row t is there while x_{t+1+step} is."""
    rows = torch.arange(len(ids) - 1)
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    for step in range(steps):
        keep = rows + 1 + step < len(ids)
        rows, out = rows[keep], out.rows(keep)
        if step:
            out = drafter.forward(out.feed, ids[rows + 1 + step], rows, out.memory, step)
        yield step, rows, out


def distance(drafter: e3.Drafter, g: Tensor, ids: Tensor, stored: dict[str, Tensor]) -> tuple[float, int, int]:
    """Largest difference of logits to `stored`, how many argmaxes differ, and how many rows were held against it.

    `stored`: rows [R], valid [steps, R], logits [steps, R, Vd].
    """
    worst, other, held = 0.0, 0, 0
    for step, rows, out in teacher_forced(drafter, g, ids, len(stored["valid"])):
        wanted = stored["rows"][stored["valid"][step].bool()]
        ours = drafter.logits(out.normed[torch.isin(rows, wanted)])
        theirs = stored["logits"][step, stored["valid"][step].bool()]
        worst = max(worst, float((ours - theirs).abs().max()))
        other += int((ours.argmax(-1) != theirs.argmax(-1)).sum())
        held += len(wanted)
    return worst, other, held
