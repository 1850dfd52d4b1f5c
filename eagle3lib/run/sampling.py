"""Speculative decoding of sampled text: the rule by which drafts are accepted, and live decoding by it.

The target samples from p, its softmax after temperature, top-k and top-p. A draft x that was sampled from q is accepted with
probability min(1, p(x) / q(x)); where it is not, the next token is sampled from max(p - q, 0), normalised. Then the text is
distributed as p says, whatever q is (arXiv 2211.17192; arXiv 2302.01318). A greedy draft is the case q(x) = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..read.errors import InputError
from .chain import check_steps
from .decode import Decoded
from .drafter import Drafter, Memory
from .record import end_tokens, watching


@dataclass(frozen=True)
class Sampled:
    """A chain of `steps` drafts a round for text sampled from the target.

    `temperature`, `top_p`, `top_k` (0: all) are the target's. Drafts are sampled from the drafter's softmax at
    `draft_temperature`; 0 is a greedy draft, as vLLM and SGLang draft by default.
    """

    steps: int
    temperature: float | int = 1.0
    top_p: float | int = 1.0
    top_k: int = 0
    draft_temperature: float | int = 0.0

    def __post_init__(self):
        check_steps(self.steps)
        if not (self.temperature > 0 and 0 < self.top_p <= 1 and self.top_k >= 0 and self.draft_temperature >= 0):
            raise InputError(
                f"{self}: expected temperature above 0 (for greedy text take Chain), top_p above 0 and up to 1, top_k and "
                "draft_temperature from 0 on"
            )


def distribution(logits: Float[Tensor, "T V"], plan: Sampled) -> Float[Tensor, "T V"]:
    """What the target samples from: softmax over temperature, then the `top_k` likeliest, then the fewest that hold `top_p`.

    In this order, as vLLM, SGLang and `transformers` do; what is left is normalised.
    """
    T, V = logits.shape
    p = (logits.float() / plan.temperature).softmax(-1)  # [T, V]
    if not plan.top_k and plan.top_p == 1:
        return p
    kept, ids = p.sort(dim=-1, descending=True, stable=True)  # [T, V] each
    if plan.top_k:
        kept[:, min(plan.top_k, V) :] = 0
        kept /= kept.sum(-1, keepdim=True)
    before = kept.cumsum(-1) - kept  # what likelier tokens hold
    kept[before >= plan.top_p] = 0
    return torch.zeros_like(p).scatter_(-1, ids, kept / kept.sum(-1, keepdim=True))


def verify(
    drafts: Sequence[int], q: Float[Tensor, "K V"], p: Float[Tensor, "K1 V"], generator: torch.Generator | None = None
) -> tuple[int, int]:
    """How many of the `drafts`, sampled from the rows of q, are accepted under p, and the token that follows them."""
    for k, x in enumerate(drafts):
        if float(torch.rand((), generator=generator)) * float(q[k, x]) >= float(p[k, x]):
            return k, _draw((p[k] - q[k]).clamp(min=0), generator)
    return len(drafts), _draw(p[len(drafts)], generator)


def _draw(weights: Float[Tensor, " V"], generator: torch.Generator | None) -> int:
    return int(torch.multinomial(weights, 1, generator=generator))


@torch.inference_mode()
def speculative_sample(
    target: nn.Module,
    drafter: Drafter,
    prompt_ids: Int[Tensor, " P"],
    plan: Sampled,
    max_new_tokens: int = 128,
    generator: torch.Generator | None = None,
) -> Decoded:
    """A sampled answer to `prompt_ids` [P], drafted by `drafter`: the slow, obvious way, every round from the beginning.

    Nothing is kept from round to round but the text, so it is for measuring, not for speed. Raises InputError when the recipe
    names no streams.
    """
    streams = drafter.recipe.streams
    if streams is None:
        raise InputError("streams: neither config.json nor the target says which streams the drafter takes: give streams=")
    ends, P, text, accepted = end_tokens(target), len(prompt_ids), prompt_ids.tolist(), []

    def read(ids: list[int]) -> Tensor:  # [t, V] on the CPU, where `generator` draws
        return target(input_ids=torch.tensor([ids], device=target.device), use_cache=False).logits[0].cpu()

    with watching(target, streams) as found:
        p = distribution(read(text)[-1:], plan)
        text.append(_draw(p[0], generator))
        while len(text) < P + max_new_tokens and text[-1] not in ends:
            read(text[:-1])
            g = torch.cat([found[n][0] for n in streams], dim=-1).to(drafter.device, drafter.dtype)  # [S, n*Ht]
            drafts, q = _draft(drafter, g, torch.tensor(text), plan, p.shape[1], generator)
            good, after = verify(drafts, q, distribution(read([*text, *drafts])[len(text) - 1 :], plan), generator)
            new = [*drafts[:good], after][: P + max_new_tokens - len(text)]
            stop = next((i for i, token in enumerate(new) if token in ends), len(new) - 1)
            new = new[: stop + 1]
            accepted.append(min(good, len(new)))
            text += new
    return Decoded(torch.tensor(text), P, tuple(accepted))


def _draft(
    drafter: Drafter, g: Tensor, text: Tensor, plan: Sampled, V: int, generator: torch.Generator | None
) -> tuple[list[int], Float[Tensor, "K V"]]:
    """Drafts after `text`, whose states but the last token's are `g` [S, n*Ht], and what each was sampled from."""
    rows = torch.arange(len(g), device=drafter.device)
    out = drafter.forward(drafter.fuse(g), text[1:].to(drafter.device), rows, Memory()).rows(slice(-1, None))
    drafts, q = [], torch.zeros(plan.steps, V)
    for step in range(plan.steps):
        if step:
            out = drafter.forward(out.feed, rows.new_tensor(drafts[-1:]), rows[-1:], out.memory, step)
        logits = drafter.logits(out.normed)[0].float().cpu()  # [Vd]
        greedy = torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
        draft = (logits / plan.draft_temperature).softmax(-1) if plan.draft_temperature else greedy
        q[step, drafter.target_ids.cpu()] = draft
        drafts.append(_draw(q[step], generator))
    return drafts, q
