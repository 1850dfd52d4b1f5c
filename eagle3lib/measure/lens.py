"""What each stream would predict by itself: the target's own final norm and head applied to it (the "logit lens").

The last state must predict the target's next token on text it wrote greedily: a check of the whole recording. Earlier streams
do so less and less, which orders them by depth; a stream whose rows are shifted loses what it had.
"""

from collections.abc import Iterable

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from ..read.capture import Capture
from ..read.target import Target
from ..run.attention import rms_norm
from .intervals import ratio_interval

BLOCK = 8192  # rows of the head read and held at once: a head of 7,168 x 163,840 is never in memory whole
ROWS = 64  # of one sample that are looked at, unless told otherwise


@torch.inference_mode()
def best_tokens(target: Target, states: Float[Tensor, "N Ht"]) -> Int[Tensor, " N"]:
    """The target's most likely token for each state that has passed its final norm: argmax of head @ state, by blocks."""
    best, where = torch.full((len(states),), -torch.inf), torch.zeros(len(states), dtype=torch.int64)
    for first, rows in target.head_blocks(BLOCK):
        value, place = (states @ rows.float().T).max(-1)
        better = value > best
        best = torch.where(better, value, best)
        where = torch.where(better, place + first, where)
    return where


def through_norm(target: Target, states: Float[Tensor, "N Ht"]) -> Float[Tensor, "N Ht"]:
    """States before the target's final norm, taken through it."""
    return rms_norm(states, target.norm().float(), target.eps)


def last_normed(target: Target, capture: Capture, rows: Int[Tensor, " N"]) -> Float[Tensor, "N Ht"]:
    """Rows `rows` of a sample's last state after the target's final norm, whichever side of it was recorded."""
    states = capture.last[rows].float()
    return states if capture.last_kind == "post_norm" else through_norm(target, states)


def logit_lens(captures: Iterable[Capture], target: Target, rows: int = ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """For every stream and the last state: how often the target's norm and head make the text's next token of it.

    Looked at: the first `rows` rows of each sample whose next token the target wrote. Returns a summary (stream -> rows,
    agreement, its 95 % interval over samples) and the tokens of each row (sample, position, next token, and a column of
    predicted ids for each stream).
    """
    tables, places, states = [], [], []
    for capture in tqdm(captures, desc="logit lens", unit="sample", leave=False):
        held = [*capture.streams.values(), *([] if capture.last is None else [capture.last])]
        R = min([len(capture.token_ids) - 1, *map(len, held)])
        at = capture.loss_mask[1 : R + 1].nonzero()[:rows, 0]
        if len(at) == 0:
            continue
        tables.append(pd.DataFrame({"sample": capture.name, "position": at.numpy(), "next": capture.token_ids[at + 1].numpy()}))
        for label in capture.streams:
            places.append((label, len(tables) - 1))
            states.append(through_norm(target, capture.stream(label)[at]))
        if capture.last is not None and capture.last_kind != "unknown":
            places.append(("last", len(tables) - 1))
            states.append(last_normed(target, capture, at))
    if not tables:
        return pd.DataFrame(columns=["rows", "agreement", "low", "high"]), pd.DataFrame()
    guessed = best_tokens(target, torch.cat(states)).split([len(s) for s in states])  # one pass over the head for all
    for (label, number), guess in zip(places, guessed, strict=True):
        tables[number][label] = guess.numpy()
    tokens = pd.concat(tables, ignore_index=True)
    summary = {}
    for label in [column for column in tokens.columns if column not in ("sample", "position", "next")]:
        kept = tokens[tokens[label].notna()]  # a sample may lack a stream that others have
        counts = (kept[label] == kept.next).groupby(kept["sample"]).agg(["sum", "count"])
        right, every = counts.to_numpy(dtype=float).T.copy()
        summary[label] = (int(every.sum()), right.sum() / every.sum(), *ratio_interval(right, every))
    columns = ["rows", "agreement", "low", "high"]
    return pd.DataFrame.from_dict(summary, orient="index", columns=columns).rename_axis("stream"), tokens
