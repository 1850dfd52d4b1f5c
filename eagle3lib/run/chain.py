"""Drafting a chain at every row of a recorded sample at once, and the same thing slowly, one round at a time.

Feeding the text's own tokens and asking whether the drafter would have written them gives the greedy chain exactly: up to
the first miss the tokens fed are the tokens drafted, and what comes after a miss is never accepted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm import tqdm

from ..read.capture import Capture
from ..read.errors import InputError
from .device import in_parts
from .drafter import Drafter, Memory

ROWS = 2048  # tokens of samples that are drafted together: on two cores a row then costs half of what it costs among 100
MOST_STEPS = 128  # no engine drafts so many; a slip of the finger would fill the memory


@dataclass(frozen=True)
class Chain:
    """A greedy chain of `steps` drafts a round (K; SGLang `speculative_num_steps`, vLLM `num_speculative_tokens`)."""

    steps: int

    def __post_init__(self):
        check_steps(self.steps)


def check_steps(steps: int) -> None:
    """Raises InputError for a number of draft steps that is none."""
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MOST_STEPS:
        raise InputError(f"steps: {steps!r} draft steps, expected a whole number, 1 or more, {MOST_STEPS} at most")


@dataclass(frozen=True)
class Hits:
    """What the drafter guessed on one sample, and whether it was right. Row t's step k is its guess of x_{t+2+k}."""

    name: str
    guess: Int[Tensor, "K T"]  # the guessed token, as the target's id; -1 where nothing was drafted
    hit: Bool[Tensor, "K T"]  # the guess was the text's token
    scored: Bool[Tensor, "K T"]  # x_{t+1}..x_{t+2+k} are all the target's own writing
    written: Bool[Tensor, "K T"]  # x_{t+2+k} is the target's own writing, whatever comes before it
    known: Bool[Tensor, "K T"]  # x_{t+2+k} is in the draft vocabulary: others cannot be guessed
    complete: bool  # False when rows were dropped after their first miss, so that only leading hits count
    log_p: Float[Tensor, "K T"] | None = None  # log-probability of x_{t+2+k}, nan where it cannot be guessed; where asked for

    def leading(self) -> Int[Tensor, " T"]:
        """How many drafts in a row each row's chain gets right, at most K."""
        return (self.hit & self.scored).long().cumprod(0).sum(0)

    def start(self) -> int:
        """The first row from which an engine would draft: P - 1 for a prompt of P tokens. -1 when there is none."""
        rows = self.scored[0].nonzero()
        return int(rows[0]) if len(rows) else -1


def scored_rows(loss_mask: Bool[Tensor, " T"], step: int) -> Int[Tensor, " rows"]:
    """Rows t, ascending, for which the target wrote all of x_{t+1}..x_{t+2+step}: those an engine could draft from, so far."""
    rows = max(len(loss_mask) - 2 - step, 0)
    good = torch.ones(rows, dtype=torch.bool)
    for ahead in range(1, step + 3):
        good &= loss_mask[ahead : ahead + rows]
    return good.nonzero()[:, 0]


def told_by_text(capture: Capture, target_ids: Int[Tensor, " Vd"], steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the text alone says, [K, T] each: token x_{t+2+k} (-2 beyond the end), and `scored`, `written`, `known` of `Hits`."""
    ids, mask = capture.token_ids, capture.loss_mask
    T = len(ids)
    truth = torch.full((steps, T), -2)
    scored, written, known = (torch.zeros(steps, T, dtype=torch.bool) for _ in range(3))
    sayable = torch.isin(ids, target_ids)
    for step in range(steps):
        rows = max(T - 2 - step, 0)
        truth[step, :rows] = ids[2 + step :]
        scored[step, scored_rows(mask, step)] = True
        written[step, :rows], known[step, :rows] = mask[2 + step :], sayable[2 + step :]
    return truth, scored, written, known


def chain_hits(
    drafter: Drafter,
    capture: Capture,
    steps: int,
    complete: bool = True,
    fused: Float[Tensor, "R H"] | None = None,
    temperature: float | None = None,
) -> Hits:
    """Draft `steps` tokens at every row of the sample together; step k of all rows is one batched forward.

    With `complete` false a row that missed is not drafted further: enough for accept lengths, and cheaper. `fused`: what
    `fc` makes of the capture's streams, where that is known already. `temperature`: keep `log_p` too, of logits over it.
    """
    return hits_together(drafter, [capture], steps, complete, None if fused is None else [fused], temperature)[0]


@torch.inference_mode()
def hits_together(
    drafter: Drafter,
    captures: Sequence[Capture],
    steps: int,
    complete: bool = True,
    fused: Sequence[Float[Tensor, "_ H"]] | None = None,
    temperature: float | None = None,
) -> list[Hits]:
    """`chain_hits` of several samples in one forward for each step: few rows use a processor badly.

    Where memory runs out it goes on with fewer samples at once, and smaller blocks. Raises InputError when that is in vain.
    """
    check_steps(steps)

    def work(parts: int) -> list[Hits]:
        smaller, size = drafter.but(block=max(1, drafter.block // parts)), -(-len(captures) // parts)
        some = [slice(first, first + size) for first in range(0, len(captures), size)]
        return [
            one for s in some for one in _hits(smaller, captures[s], steps, complete, fused[s] if fused else None, temperature)
        ]

    return in_parts(work, f"drafting {steps} steps on {drafter.device}", "shorter samples, fewer steps")


def _hits(drafter, captures, steps, complete, fused, temperature) -> list[Hits]:
    """`hits_together`, all in one. Tables of all samples stand side by side, N columns in all; sample i's row t is column
    starts[i] + t.
    """
    ids, lengths = torch.cat([c.token_ids for c in captures]), [len(c.token_ids) for c in captures]
    starts = torch.tensor([0, *lengths]).cumsum(0)
    tables = [told_by_text(c, drafter.target_ids.cpu(), steps) for c in captures]
    truth, scored, written, known = (torch.cat(part, 1) for part in zip(*tables, strict=True))  # [K, N] each
    guess = torch.full_like(truth, -1)
    log_p = torch.full(truth.shape, torch.nan) if temperature else None
    drafted = [max(T - 2, 0) for T in lengths]
    if sum(drafted) and scored.any():
        fused = fused or [fused_rows(drafter, capture) for capture in captures]
        hidden = torch.cat([rows[:n] for rows, n in zip(fused, drafted, strict=True)])  # [rows, H]
        column = torch.cat([torch.arange(n) + start for n, start in zip(drafted, starts.tolist(), strict=False)])  # [rows]
        last = torch.repeat_interleave(starts[1:] - 1, torch.tensor(drafted))  # [rows] the last token of its text
        first = torch.repeat_interleave(torch.tensor([0, *drafted]).cumsum(0)[:-1], torch.tensor(drafted))  # [rows]
        row, device = torch.arange(len(column)), drafter.device
        memory = Memory(first=first.to(device) if len(captures) > 1 else None)
        for step in range(steps):
            if step == 0:
                fed = (column + drafter.wiring.token).minimum(last)  # the token that each row embeds
                out = drafter.forward(hidden, ids[fed].to(device), row.to(device), memory)
            right = guess[step - 1, column] == truth[step - 1, column]
            keep = scored[step, column] & (right | complete if step else True)  # [rows] the rows that go on
            row, column, last, out = row[keep], column[keep], last[keep], out.rows(keep.to(device))
            if len(row) == 0:
                break
            if step:
                fed = (column + drafter.wiring.token + step).minimum(last)
                out = drafter.forward(out.feed, ids[fed].to(device), row.to(device), out.memory, step)
            if temperature:
                found = drafter.predict_beside(out.normed, truth[step, column].to(device), temperature)
                guess[step, column], log_p[step, column] = (part.cpu() for part in found)
            else:
                guess[step, column] = drafter.predict(out.normed).cpu()
    parts = [part.split(lengths, 1) for part in (guess, guess == truth, scored, written, known)]
    of_log_p = [None] * len(captures) if log_p is None else log_p.split(lengths, 1)
    return [Hits(capture.name, *tables, complete, own) for capture, *tables, own in zip(captures, *parts, of_log_p, strict=True)]


def fused_rows(drafter: Drafter, capture: Capture) -> Float[Tensor, "R H"]:
    """What `fc` makes of the streams. Raises InputError for a state that is no number."""
    g = capture.joined(drafter.recipe)
    broken = (~torch.isfinite(g)).any(1).nonzero()[:, 0]
    if len(broken):
        raise InputError(
            f"{capture.name}: NaN or infinite states in {len(broken)} rows, first row {int(broken[0])}: record it again"
        )
    return drafter.fuse(g.to(drafter.device, drafter.dtype))


def hits(drafter: Drafter, captures: Iterable[Capture], steps: int, complete: bool = True) -> list[Hits]:
    """`chain_hits` of every sample: what accuracies, accept lengths and pictures of them all derive from."""
    some = tqdm(captures, desc="drafting", unit="sample", leave=False)
    return by_name(one for group in together(some) for one in hits_together(drafter, group, steps, complete))


def together(captures: Iterable[Capture], rows: int = ROWS) -> Iterator[list[Capture]]:
    """The captures in groups of `rows` tokens or a little more, in order."""
    group: list[Capture] = []
    for capture in captures:
        group.append(capture)
        if sum(len(one.token_ids) for one in group) >= rows:
            yield group
            group = []
    if group:
        yield group


def by_name(some: Iterable[Hits]) -> list[Hits]:
    """Two samples of one name are two samples: the later one's place is added to its name."""
    found: dict[str, Hits] = {}
    for number, one in enumerate(some):
        name = one.name
        while name in found:
            name = f"{name} ({number})"
        found[name] = replace(one, name=name)
    return list(found.values())


@torch.inference_mode()
def draft_slowly(drafter: Drafter, g: Float[Tensor, "S joined"], ids: Int[Tensor, " S1"], steps: int) -> list[int]:
    """One round, as plainly as it can be said: draft after tokens `ids` [S + 1], of which the target has seen the first S.

    Each step runs one ordinary causal pass over everything so far, nothing kept: the target's states first, then the
    drafter's own. `chain_hits` and `speculative_decode` must agree with it.
    """
    S, device = len(g), drafter.device
    hidden, tokens = drafter.fuse(g), ids[1:].to(device)  # [S, H], [S]
    drafts = []
    for _ in range(steps):
        rows = torch.arange(len(tokens), device=device)
        out = drafter.forward(hidden, tokens, rows, Memory())
        drafts.append(int(drafter.predict(out.normed[-1:])))
        hidden = torch.cat([hidden, out.feed[-1:]])  # the state made up joins the true ones
        tokens = torch.cat([tokens, torch.tensor(drafts[-1:], device=device)])
    assert len(hidden) == S + steps
    return drafts
