"""Speculative decoding with a live `transformers` target: greedy chains, verified as an engine verifies them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ..read.errors import InputError
from .chain import Chain
from .drafter import Drafter, Memory
from .record import watching


@dataclass(frozen=True)
class Decoded:
    """What one request gave."""

    token_ids: Int[Tensor, " T"]  # prompt and answer
    prompt_tokens: int
    accepted: tuple[int, ...]  # accepted drafts of each round; drafts past the end of the request are not counted

    @property
    def accept_length(self) -> float:
        """1 + accepted drafts / rounds; nan without a round."""
        return 1 + sum(self.accepted) / len(self.accepted) if self.accepted else float("nan")


def end_tokens(target: nn.Module) -> tuple[int, ...]:
    """The ids that end the target's answers, by its generation config."""
    end = target.generation_config.eos_token_id
    return tuple(end) if isinstance(end, Sequence) else () if end is None else (end,)


@torch.inference_mode()
def speculative_decode(
    target: nn.Module, drafter: Drafter, prompt_ids: Int[Tensor, " P"], plan: Chain, max_new_tokens: int = 128
) -> Decoded:
    """The target's greedy answer to `prompt_ids` [P], drafted by `drafter`, up to its end token or `max_new_tokens`.

    A round: the drafter's keys are rebuilt from the target's states of all committed tokens, it drafts `plan.steps` tokens,
    the target reads them in one pass, and those are accepted that it would have written itself, and one of its own after
    them. The text is the target's own, whatever the drafter does. Raises InputError when the recipe names no streams.
    """
    streams = drafter.recipe.streams
    if streams is None:
        raise InputError("streams: neither config.json nor the target says which streams the drafter takes: give streams=")
    from transformers import DynamicCache  # an extra: only a live target needs it

    ends, P = end_tokens(target), len(prompt_ids)
    cache = DynamicCache(config=target.config)
    with watching(target, streams) as found:
        text = prompt_ids.tolist()
        text.append(_pick(target, cache, prompt_ids)[-1])  # the token that reading the prompt gives
        g, memory, accepted = _join(found, streams, drafter), Memory(), []
        while len(text) < P + max_new_tokens and text[-1] not in ends:
            drafts, memory = _draft(drafter, g, torch.tensor(text), memory, plan.steps)
            picks = _pick(target, cache, torch.tensor([text[-1], *drafts]))  # what it writes after each of them
            good = next((i for i, draft in enumerate(drafts) if draft != picks[i]), len(drafts))
            new = [*drafts[:good], picks[good]][: P + max_new_tokens - len(text)]
            stop = next((i for i, token in enumerate(new) if token in ends), len(new) - 1)
            new = new[: stop + 1]
            accepted.append(min(good, len(new)))
            g = _join(found, streams, drafter)[: good + 1]  # states of the last token and of the accepted drafts
            if good < len(drafts):
                cache.crop(good - len(drafts))  # forget the rejected ones
            text += new
    return Decoded(torch.tensor(text), P, tuple(accepted))


def _pick(target: nn.Module, cache, ids: Int[Tensor, " t"]) -> list[int]:
    """The target reads `ids` [t] after what `cache` holds; its greedy choice after each of them."""
    device = next(target.parameters()).device
    return target(input_ids=ids[None].to(device), cache=cache).logits[0].argmax(-1).tolist()


def _join(found: dict, streams: Sequence[int], drafter: Drafter) -> Tensor:
    """The watched streams of the target's last pass, side by side, [t, n*Ht]."""
    return torch.cat([found[n][0] for n in streams], dim=-1).to(drafter.device, drafter.dtype)


def _draft(drafter: Drafter, g: Tensor, text: Tensor, memory: Memory, steps: int) -> tuple[list[int], Memory]:
    """Draft `steps` tokens after `text`; `g` [t, n*Ht] are the target's states of the t tokens not yet in `memory`."""
    t, last = len(g), len(text) - 2  # the last row: its state is known, and the token after it
    text = text.to(drafter.device)
    rows = torch.arange(last + 1 - t, last + 1, device=drafter.device)  # [t]
    out = drafter.forward(drafter.fuse(g), text[rows + 1], rows, memory)
    context = out.memory
    out, row = out.rows(slice(-1, None)), rows[-1:]
    drafts = [int(drafter.predict(out.normed))]
    for step in range(1, steps):
        out = drafter.forward(out.feed, torch.tensor(drafts[-1:], device=drafter.device), row, out.memory, step)
        drafts.append(int(drafter.predict(out.normed)))
    return drafts, context
