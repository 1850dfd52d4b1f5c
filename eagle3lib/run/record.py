"""Recording a Capture from a live `transformers` target, by hooks: only the streams that are asked for are held."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from ..read.capture import Capture
from ..read.errors import InputError
from .device import enough_memory, in_parts

LESS = "shorter texts, fewer streams, a smaller --batch-size"


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


Text = tuple[Tensor, int]  # token ids [T] of prompt and answer; how many of them are the prompt


def record(
    target: nn.Module, token_ids: Tensor, prompt_tokens: int, streams: Sequence[int], name: str = "sample", **about: str
) -> Capture:
    """Run the target once over `token_ids` [T] and keep r_n for each n of `streams`, and the last state after the norm.

    Tokens from `prompt_tokens` on are taken as written by the target. All T rows are kept, in the target's dtype. Raises
    InputError for streams that the target has not, and for tokens that are no prompt with an answer.
    """
    return next(record_all(target, {name: (token_ids, prompt_tokens)}, streams)).replace(about=about)


def record_all(
    target: nn.Module, texts: Mapping[str, Text], streams: Sequence[int], batch_size: int = 1, skip: Iterable[str] = ()
) -> Iterator[Capture]:
    """`record` of every text but those named in `skip`, `batch_size` texts of similar length in one pass, longest first.

    `texts`: name -> token ids [T], and how many of them are the prompt. Shorter ones are padded on the right, where no row of
    theirs sees it: states are those of one text alone but for the order of sums (1e-5 relative in float32). Streams are
    checked, and texts too, before anything is run. Raises as `record` does.
    """
    for name, (ids, prompt) in texts.items():
        T = len(ids) if isinstance(ids, Tensor) and ids.ndim == 1 else 0
        if not 0 < prompt < T:
            raise InputError(
                f"{name}: {prompt} prompt tokens of {T}: token_ids must be a tensor [T], a prompt and an answer after it"
            )
        _check_ids(target, name, ids)
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size}, expected 1 or more texts in a pass")
    done = set(skip)
    names = sorted((name for name in texts if name not in done), key=lambda name: -len(texts[name][0]))
    with watching(target, streams) as found:
        for first in tqdm(range(0, len(names), batch_size), desc="record", unit="pass", disable=len(names) < 2):
            some = names[first : first + batch_size]

            def work(parts: int, some: list[str] = some) -> list[Capture]:
                passes = [some[i::parts] for i in range(parts)]
                return [one for few in passes for one in _one_pass(target, {name: texts[name] for name in few}, found)]

            yield from in_parts(work, "recording", LESS, len(some))


@torch.inference_mode()
def _one_pass(target: nn.Module, texts: Mapping[str, Text], found: dict[str | int, Tensor]) -> list[Capture]:
    ids, seen = _padded([ids for ids, _ in texts.values()], next(target.parameters()).device, "right")
    found.clear()  # of an earlier pass: it would lie beside this one's
    target(input_ids=ids, attention_mask=seen, use_cache=False, logits_to_keep=1)
    captures = []
    for i, (name, (ids, prompt)) in enumerate(texts.items()):
        T = len(ids)
        states = {label: state[i, :T].cpu().clone() for label, state in found.items()}  # [B, T', Ht] -> [T, Ht]
        last = states.pop("last")
        known = {n: "embedding output" if n == 0 else f"residual stream after {n} layers, by a hook" for n in states}
        mask = torch.arange(T) >= prompt
        captures.append(Capture(name, ids.cpu(), mask, states, last, "post_norm", known))
    return captures


def _padded(texts: Sequence[Tensor], device: torch.device, side: str) -> tuple[Tensor, Tensor]:
    """Token ids, and which of them are no padding, [B, T] of the longest."""
    ids = pad_sequence([ids.cpu().long() for ids in texts], batch_first=True, padding_side=side)
    seen = pad_sequence([torch.ones(len(ids), dtype=torch.int64) for ids in texts], batch_first=True, padding_side=side)
    return ids.to(device), seen.to(device)


@torch.inference_mode()
def answers(
    target: nn.Module, prompts: Mapping[str, Tensor], max_new_tokens: int = 128, batch_size: int = 1
) -> Iterator[tuple[str, Text]]:
    """The target's greedy answer to each prompt, token ids [P]: name, and the text as `record_all` takes it.

    Several prompts in a pass are padded on the left; sums in another order can then turn a near tie, and the text with it, so
    for exactness keep `batch_size` 1. A prompt that is answered with nothing but an end token is left out.
    """
    for name, ids in prompts.items():
        _check_ids(target, name, ids)
    names = sorted(prompts, key=lambda name: -len(prompts[name]))
    device = next(target.parameters()).device
    ends = end_tokens(target)
    for first in tqdm(range(0, len(names), batch_size), desc="answer", unit="pass", disable=len(names) < 2):
        some = names[first : first + batch_size]
        ids, seen = _padded([prompts[name] for name in some], device, "left")
        with enough_memory("answering prompts", LESS):
            written = target.generate(
                ids, attention_mask=seen, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=ends[0] if ends else 0
            )[:, ids.shape[1] :].cpu()
        for name, row in zip(some, written, strict=True):
            stop = next((i + 1 for i, token in enumerate(row.tolist()) if token in ends), len(row))
            if stop > 1:
                yield name, (torch.cat([prompts[name].cpu(), row[:stop]]), len(prompts[name]))


def _check_ids(target: nn.Module, name: str, ids: Tensor) -> None:
    """Raises InputError for a token that the target has not."""
    decoder_of(target)  # of what is no causal model that can be hooked, that is the sentence
    tokens = target.get_input_embeddings().num_embeddings
    if not 0 <= int(ids.min()) <= int(ids.max()) < tokens:
        most = int(ids.max())
        raise InputError(f"{name}: token ids reach {most}, but the target has {tokens} tokens: ids of another tokenizer")


def end_tokens(target: nn.Module) -> tuple[int, ...]:
    """The ids that end the target's answers, by its generation config."""
    end = target.generation_config.eos_token_id
    return tuple(end) if isinstance(end, Sequence) else () if end is None else (end,)
