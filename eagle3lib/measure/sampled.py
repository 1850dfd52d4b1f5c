"""Accept length on text that the target sampled, with drafts that were sampled too: expected counts, given the text.

A sampled draft is accepted with probability min(1, p(x) / q(x)) (run/sampling.py). Given the token x that stands in the text, the
chance that it came as an accepted draft is min(p, q)(x) / p(x) = min(1, q(x) / p(x)), each step by itself. So the rounds of an
engine over a given text are a chain of known chances, and the expected number of rounds with a accepted drafts is a sum over
rows; over texts sampled from p it is what an engine has on average. Greedy drafts on sampled text need none of this: such a
draft was accepted where it is the text's token (`acceptance` with a Chain).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from ..read.capture import Capture
from ..read.errors import InputError
from ..read.target import Target
from ..run.chain import chain_hits
from ..run.drafter import Drafter
from ..run.sampling import Sampled, distribution
from .acceptance import NOTHING, spans
from .intervals import ratio_interval
from .lens import BLOCK, last_normed

ROWS = 256  # whose probabilities over the whole vocabulary are held at once
APART = 4.0  # standard deviations of the text's own surprise: one text in 16,000 is so far off by chance


@dataclass(frozen=True)
class SampledAcceptance:
    """Expected rounds by accepted drafts, for each sample [S, K + 1], and how surprising the text is under p."""

    plan: Sampled
    rounds: dict[str, np.ndarray]
    surprise: float  # (its -log p less the entropy) in standard deviations, over all tokens: near 0 for text sampled from p

    @property
    def tau(self) -> float:
        """Expected accepted drafts over expected rounds, plus 1."""
        total = sum(self.rounds.values())
        return float(1 + total @ np.arange(len(total)) / total.sum())

    def interval(self) -> tuple[float, float]:
        """95 % interval of tau, over samples."""
        counts = np.stack(list(self.rounds.values()))
        return ratio_interval(counts @ np.arange(counts.shape[1]).astype(float), counts.sum(1), plus=1.0)

    def table(self) -> pd.DataFrame:
        """One row: expected rounds and accepted drafts, accept length, its interval, the text's surprise."""
        total = sum(self.rounds.values())
        row = (total.sum(), total @ np.arange(len(total)), self.tau, *self.interval(), self.surprise)
        columns = ["rounds", "accepted", "accept length", "low", "high", "surprise of the text"]
        return pd.DataFrame([row], columns=columns, index=pd.Index([self.plan.steps], name="K"))


def sampled_acceptance(drafter: Drafter, captures: Iterable[Capture], plan: Sampled, target: Target) -> SampledAcceptance:
    """Expected acceptance of sampled drafts at `plan.steps`, from recorded states of text that was sampled as `plan` says.

    `target` gives norm and head: p is made of each capture's last state. Raises InputError without a last state, for greedy
    drafts, and where the text was not sampled so: a token that p excludes, or a surprise of 4 standard deviations.
    """
    if not isinstance(plan, Sampled) or not isinstance(target, Target):
        raise InputError(f"plan {plan!r}, target {target!r}; expected Sampled(steps, temperature, ...) and open_target(folder)")
    if not plan.draft_temperature:
        raise InputError(
            "draft_temperature 0: greedy drafts on sampled text are counted exactly by acceptance(..., Chain(steps))"
        )
    rounds: dict[str, np.ndarray] = {}
    above = variance = 0.0
    for number, capture in enumerate(tqdm(captures, desc="sampled", unit="sample", leave=False)):
        log_p, entropy, spread = text_log_p(target, capture, plan)  # [T] each
        own = capture.loss_mask & torch.isfinite(entropy)
        if not bool(torch.isfinite(log_p[own]).all()):
            at = int((own & ~torch.isfinite(log_p)).nonzero()[0])
            raise InputError(
                f"{capture.name}: its token {at} is none that the target can sample with top_p {plan.top_p} and top_k "
                f"{plan.top_k}: the text was not sampled so, and nothing can be said of it"
            )
        above += float((-log_p - entropy)[own].sum())
        variance += float(spread[own].sum())
        name = f"{capture.name} ({number})" if capture.name in rounds else capture.name
        rounds[name] = _expected(drafter, capture, plan, log_p)
    if not rounds or not sum(rounds.values()).sum():
        raise InputError(NOTHING)
    surprise = above / max(variance, 1e-12) ** 0.5
    if abs(surprise) > APART:
        kind = "less" if surprise < 0 else "more"
        raise InputError(
            f"captures: the text is {kind} surprising than text sampled at temperature {plan.temperature} is, by "
            f"{abs(surprise):.1f} standard deviations: it was sampled otherwise (greedy text: Chain), so there is no number"
        )
    return SampledAcceptance(plan, rounds, surprise)


def text_log_p(
    target: Target, capture: Capture, plan: Sampled
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"], Float[Tensor, " T"]]:
    """log p of each token of the text under the target's distribution, the entropy of that, and the variance of -log p.

    nan where no state precedes the token. Raises InputError without a last state.
    """
    if capture.last is None or capture.last_kind == "unknown":
        raise InputError(f"{capture.name}: no last state, or not known of which kind: the target's probabilities come from it")
    T = len(capture.token_ids)
    log_p, entropy, spread = (torch.full((T,), torch.nan) for _ in range(3))
    ends = min(T - 1, len(capture.last))
    for rows in torch.arange(ends).split(ROWS):
        states = last_normed(target, capture, rows)
        logits = torch.cat([states @ part.float().T for _, part in target.head_blocks(BLOCK)], dim=-1)  # [rows, V]
        p = distribution(logits, plan)
        told = torch.where(p > 0, -p.log(), 0.0)  # [rows, V]
        mean = (p * told).sum(-1)
        log_p[rows + 1] = p.gather(1, capture.token_ids[rows + 1][:, None])[:, 0].log()
        entropy[rows + 1], spread[rows + 1] = mean, (p * told.pow(2)).sum(-1) - mean.pow(2)
    return log_p, entropy, spread


def _expected(drafter: Drafter, capture: Capture, plan: Sampled, log_p: Float[Tensor, " T"]) -> Float[np.ndarray, " K1"]:
    """Expected rounds by accepted drafts of one sample."""
    K, T = plan.steps, len(capture.token_ids)
    found = chain_hits(drafter, capture, K, temperature=float(plan.draft_temperature))
    token = torch.arange(K)[:, None] + torch.arange(T)[None] + 2  # [K, T] place of x_{t+2+k}
    log_q = torch.where(found.known & found.scored, found.log_p, -torch.inf)
    chance = (log_q - log_p[token.clamp(max=T - 1)]).clamp(max=0).exp().nan_to_num(0.0).numpy()  # [K, T] min(1, q / p)
    rounds = np.zeros(K + 1)
    for first, end in spans(found.scored[0].numpy()):
        starts = np.zeros(end + K + 2)  # chance that a round starts at each row
        starts[first] = 1.0
        for row in range(first, end):
            on = starts[row]  # and that its first a drafts are accepted
            for a in range(K + 1):
                stops = on * (1 - chance[a, row]) if a < K else on
                rounds[a] += stops
                starts[row + a + 1] += stops
                on -= stops
    return rounds
