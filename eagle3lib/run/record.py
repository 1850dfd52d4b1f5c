"""Recording a Capture from a live `transformers` target, by hooks: only the streams that are asked for are held."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..read.capture import Capture
from ..read.errors import InputError


def decoder_of(target: nn.Module) -> nn.Module:
    """The module of a `transformers` causal model that has `layers` and `norm`, inside multimodal wrappers too.

    Raises InputError when there is none: another architecture's blocks are not guessed at.
    """
    for path in ("model", "model.language_model", "language_model.model", ""):
        module = target
        for part in filter(None, path.split(".")):
            module = getattr(module, part, None)
        if isinstance(getattr(module, "layers", None), nn.ModuleList) and isinstance(getattr(module, "norm", None), nn.Module):
            return module
    raise InputError(
        f"{type(target).__name__}: no decoder with `layers` and `norm`: streams cannot be hooked; record them with your engine"
    )


@contextmanager
def watching(target: nn.Module, streams: Sequence[int]) -> Iterator[dict[str | int, Tensor]]:
    """While open, each forward of `target` leaves r_n for each n, and "last" (after the final norm), [B, t, Ht], in the dict."""
    decoder = decoder_of(target)
    L = len(decoder.layers)
    beyond = [n for n in streams if not 0 <= n <= L]
    if beyond:
        raise InputError(f"streams: r_{beyond[0]} was asked for, but the target has {L} layers: n is 0 (embedding) to {L}")
    found: dict[str | int, Tensor] = {}

    def keep(n):
        return lambda _, args, kwargs: found.__setitem__(n, args[0] if args else kwargs["hidden_states"])

    # r_n is what layer n is given; r_L what the final norm is given
    hooks = [(decoder.layers[n] if n < L else decoder.norm).register_forward_pre_hook(keep(n), with_kwargs=True) for n in streams]
    hooks.append(decoder.norm.register_forward_hook(lambda _, __, out: found.__setitem__("last", out)))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def record(
    target: nn.Module,
    token_ids: Tensor,
    prompt_tokens: int,
    streams: Sequence[int],
    name: str = "sample",
    **about: str,
) -> Capture:
    """Run the target once over `token_ids` [T] and keep r_n for each n of `streams`, and the last state after the norm.

    Tokens from `prompt_tokens` on are taken as written by the target. All T rows are kept, in the target's dtype. Raises
    InputError for streams that the target has not, and for tokens that are no prompt with an answer.
    """
    T = len(token_ids) if isinstance(token_ids, Tensor) and token_ids.ndim == 1 else 0
    if not 0 < prompt_tokens < T:
        raise InputError(
            f"{name}: {prompt_tokens} prompt tokens of {T}: token_ids must be a tensor [T], a prompt and an answer after it"
        )
    with watching(target, streams) as found:
        target(input_ids=token_ids[None].to(next(target.parameters()).device), use_cache=False, logits_to_keep=1)
        states = {label: state[0].cpu().clone() for label, state in found.items()}
    last = states.pop("last")
    return Capture(
        name=name,
        token_ids=token_ids.cpu(),
        loss_mask=torch.arange(T) >= prompt_tokens,
        streams=states,
        last=last,
        last_kind="post_norm",
        known={n: "embedding output" if n == 0 else f"residual stream after {n} layers, by a hook" for n in states},
        about=about,
    )
