"""The sets of rows a notebook compares: the drafter as configured, on other streams, on the server's states."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from ..measure.state import slot_shares
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..run.chain import Hits, draft_slowly, scored_rows
from ..run.drafter import Drafter
from .figures import label

ROUNDS = 6  # of the slow loop: each reads the whole text again for every draft


@dataclass(frozen=True)
class Rows:
    """A drafter, and the captures it is run over."""

    drafter: Drafter
    captures: Sequence[Capture]


def of(
    ckpt: Checkpoint,
    captures: Sequence[Capture],
    streams: Sequence[int] | None = None,
    served: Sequence[Capture] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> dict[str, Rows]:
    """Name -> rows: as configured (if it says anything); on the server's states and on other `streams`, where given."""
    configured = Drafter(ckpt, device=device, dtype=dtype)
    found = {}
    if ckpt.recipe.streams is not None or streams is None:
        found["as configured"] = Rows(configured, captures)
    if served is not None:
        found["on the server's states"] = Rows(configured, served)
    if streams is not None:
        other = ckpt.recipe.replace(streams=tuple(streams))
        name = "on " + ", ".join(map(label, other.streams))
        found[name] = Rows(configured.with_recipe(other), captures)
    return found


def mean_shares(drafter: Drafter, captures: Sequence[Capture]) -> dict[str, float]:
    """Each slot's mean share of fc's output, over all rows but position 0, and those of which fc makes nothing (zeros)."""
    shares = [slot_shares(drafter, c.joined(drafter.recipe)[1:].to(drafter.device, drafter.dtype)).cpu() for c in captures]
    return {f"slot {i + 1}": float(value) for i, value in enumerate(torch.cat(shares).float().nanmean(0))}


def slow_beside_fast(drafter: Drafter, capture: Capture, hits: Hits, steps: int) -> pd.DataFrame:
    """A few rounds of one sample by the obvious loop, beside the fast pass: the drafts, and how many the text accepts."""
    g, ids = capture.joined(drafter.recipe).to(drafter.device, drafter.dtype), capture.token_ids.to(drafter.device)
    good = scored_rows(capture.loss_mask, steps - 1)
    rows = []
    for t in good[torch.linspace(0, len(good) - 1, min(ROUNDS, len(good))).long()].tolist():
        slowly = draft_slowly(drafter, g[: t + 1], ids[: t + 2], steps)
        accepted = next((k for k in range(steps) if slowly[k] != int(ids[t + 2 + k])), steps)
        fast = int(hits.leading()[t].clip(max=steps))
        rows.append((t, slowly, accepted, fast, accepted == fast))
    columns = ["row", "drafted slowly", "accepted", "by the fast pass", "equal"]
    return pd.DataFrame(rows, columns=columns).set_index("row")
