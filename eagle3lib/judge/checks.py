"""Is this recording what it seems to be? Findings that belong beside every number made from it."""

from collections.abc import Sequence

import torch

from ..measure.lens import best_tokens, last_normed
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from .finding import Finding, Findings

SAMPLES, ROWS = 8, 16  # samples looked at, and rows of each
NEAR = 0.05  # rows this near to their tokens' embedding are it, in half precision
GREEDY, CHANCE = 0.97, 0.1  # shares of next tokens that are the target's first choice: greedy text, text of something else
NOT_GREEDY = "text"  # where such a Finding stands


def check_captures(ckpt: Checkpoint, captures: Sequence[Capture]) -> Findings:
    """What speaks against these captures, as far as a few samples show: no loss mask, rows of zeros, another target.

    Up to 8 samples, evenly spread. With the target given: r_0 must be the embedding of its tokens (unless the target scales
    its embedding), and the target's head must make the text's next token of the last state, always in its own greedy text.
    """
    number = min(SAMPLES, len(captures))
    some = [captures[i * len(captures) // number] for i in range(number)]
    return Findings([f for f in (_unmarked(some), _zeros(some), _embedding(ckpt, some), _next_token(ckpt, some)) if f])


def _unmarked(some: Sequence[Capture]) -> Finding | None:
    """Samples whose file says nothing of who wrote which token, or says that all of it is an answer."""
    every = [c for c in some if bool(c.loss_mask[1:].all())]
    if not every:
        return None
    what = (
        f"{len(every)} of {len(some)} samples mark every token as the target's own, prompts too: what follows is no accept "
        "length of answers"
    )
    return Finding("warning", "captures", what, {"samples": len(every)}, settle="a loss mask (or prompt lengths) with the states")


def _zeros(some: Sequence[Capture]) -> Finding | None:
    found = {}
    for capture in some:
        for label in capture.streams:
            zero = (capture.stream(label)[1:] == 0).all(-1).sum()
            if zero:
                found[f"{capture.name}, stream {label}"] = int(zero)
    if not found:
        return None
    what = f"{sum(found.values())} rows are all zeros, the first in {next(iter(found))}: they were never recorded"
    return Finding("fault", "captures", what, found, change="record them again")


def _embedding(ckpt: Checkpoint, some: Sequence[Capture]) -> Finding | None:
    if ckpt.target is None or 0 not in some[0].streams:
        return None
    table, apart = ckpt.target.embedding(), []
    for capture in some:
        rows = capture.stream(0)[1:ROWS]
        true = table.rows(capture.token_ids[1 : len(rows) + 1])
        if rows.shape != true.shape:
            return Finding(
                "fault", "target", f"r_0 is {rows.shape[1]} wide, the target's embedding {true.shape[1]}: another target"
            )
        scale = (rows * true).sum() / true.pow(2).sum()  # some targets scale their embedding
        apart.append((rows - scale * true).norm(dim=-1) / (scale * true).norm(dim=-1))
    distance = float(torch.cat(apart).median())
    if distance < NEAR:
        return None
    what = (
        f"r_0 is not the embedding of its tokens in {ckpt.target.path.name} (distance {distance:.2f}): another target, or "
        "another stream"
    )
    return Finding("fault", "target", what, {"distance": distance}, settle="the target that the states were recorded from")


def _next_token(ckpt: Checkpoint, some: Sequence[Capture]) -> Finding | None:
    """Whether the target's own choice, head of the last state, is the text's next token."""
    if ckpt.target is None or any(c.last is None or c.last_kind not in ("post_norm", "pre_norm") for c in some):
        return None
    states, following = [], []
    for capture in some:
        at = capture.loss_mask[1 : len(capture.last) + 1].nonzero()[:, 0]
        at = at[at + 1 < len(capture.token_ids)][:ROWS]
        states.append(last_normed(ckpt.target, capture, at))
        following.append(capture.token_ids[at + 1])
    total = sum(map(len, following))
    if total == 0:
        return None
    right = int((best_tokens(ckpt.target, torch.cat(states)) == torch.cat(following)).sum())
    share, name = right / total, ckpt.target.path.name
    if share >= GREEDY:
        return None
    evidence = {"rows": total, "right": right}
    if share < CHANCE:
        what = f"{name}'s own choice is the text's next token in {right} of {total} rows: another target, or rows of other tokens"
        return Finding("fault", "target", what, evidence, settle="the target that the states were recorded from")
    what = (
        f"the text is not {name}'s own greedy writing: its first choice is the next token in {right} of {total} rows; accept "
        "lengths are those of this text, and trainers' figures, which score against the first choice, cannot be compared"
    )
    return Finding("warning", NOT_GREEDY, what, evidence)
