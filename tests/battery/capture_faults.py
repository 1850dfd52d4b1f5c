"""Faults of recorded states. Each is a pure function of a capture, the one recorded after it, and the drafter's streams.

All streams of the capture are changed alike, so that one function spoils a training capture, where every stream is labelled,
and what a server handed over, where there are only the drafter's own.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import eagle3lib as e3

Streams = tuple[int, ...]


def changed(capture: e3.Capture, change: Callable[[Tensor], Tensor], last: bool = False) -> e3.Capture:
    """Each stream, and the last state if `last`, through one function of [R, Ht]."""
    streams = {n: change(capture.stream(n)) for n in capture.streams}
    return capture.replace(streams=streams, last=change(capture.last.float()) if last else capture.last)


def relabelled(capture: e3.Capture, wrong: Mapping[int, int]) -> e3.Capture:
    """Stream `wrong[n]` under the label n; streams that are in nobody's place keep theirs."""
    return capture.replace(streams={n: capture.stream(wrong.get(n, n)) for n in capture.streams})


# streams: which states stand where


def rotated(capture, _other, own: Streams):
    """The slots one on: rotate the three slots; order unknown to users in SafeAILab/EAGLE#239."""
    return relabelled(capture, dict(zip(own, (own[-1], *own[:-1]), strict=True)))


def swapped_ends(capture, _other, own: Streams):
    """First and last slot exchanged: fusion order is a suspect in NickL77/BaldEagle#14."""
    return relabelled(capture, {own[0]: own[-1], own[-1]: own[0]})


def swapped_front(capture, _other, own: Streams):
    """First and second slot exchanged: SafeAILab/EAGLE#239 (order undocumented)."""
    return relabelled(capture, {own[0]: own[1], own[1]: own[0]})


def ids_early(capture, _other, own: Streams):
    """Every id one less (the embedding stays): the clash of two conventions, vllm-project/vllm#43671."""
    return relabelled(capture, {n: max(n - 1, 0) for n in own})


def ids_late(capture, _other, own: Streams):
    """Every id one more: sgl-project/sglang#25454, vllm-project/vllm#40727."""
    return relabelled(capture, {n: n + 1 for n in own})


def last_thrice(capture, _other, own: Streams):
    """Every slot holds the last one: slots all alike, vllm-project/vllm#36527."""
    return relabelled(capture, dict.fromkeys(own, own[-1]))


def slot_twice(capture, _other, own: Streams):
    """The last slot holds the one before it: two captures in one buffer; slots alike, vllm-project/vllm#36527."""
    return relabelled(capture, {own[-1]: own[-2]})


def final_layer(capture, _other, own: Streams):
    """The last slot holds the state after the last layer: ids past the last block, sgl-project/sglang#32226."""
    return relabelled(capture, {own[-1]: 30})


def first_three(capture, _other, own: Streams):
    """The first layers' states in place of the spread ones: a preset that counts up, as the [1, 1, 1] of Automodel#2256."""
    return relabelled(capture, dict(zip(own, (1, 2, 3), strict=True)))


# rows: which state goes with which token


def late(capture, _other, _own, by: int = 1):
    """Each token has the state of the one before it: sgl-project/SpecForge#455 (off by one)."""
    return changed(capture, lambda x: torch.cat([x[:1].expand(by, -1), x[:-by]]), last=True)


def two_late(capture, other, own):
    """Two rows late: a root and a bonus token counted into the buffer, vllm-project/vllm#56417."""
    return late(capture, other, own, by=2)


def early(capture, _other, _own):
    """Each token has the state of the one after it: positions off by one, sgl-project/SpecForge#455."""
    return changed(capture, lambda x: torch.cat([x[1:], x[-1:]]), last=True)


def of_another(capture, other, _own):
    """States of another request: sgl-project/sglang#26163 (prefix cache), #4997 (batch)."""
    R = len(capture.token_ids)
    streams = {n: other.stream(n).repeat(-(-R // len(other.stream(n))), 1)[:R] for n in capture.streams}
    return capture.replace(streams=streams, last=other.last.repeat(-(-R // len(other.last)), 1)[:R])


def padded(capture, _other, _own, pads: int = 16):
    """16 pad tokens on the left with states of zeros, not masked: padded rows, vllm-project/vllm#26191."""
    ids = torch.cat([torch.full((pads,), 2), capture.token_ids])
    mask = torch.cat([torch.zeros(pads, dtype=torch.bool), capture.loss_mask])
    states = changed(capture, lambda x: torch.cat([x.new_zeros(pads, x.shape[1]), x]), last=True)
    return states.replace(token_ids=ids, loss_mask=mask)


# zeros


def zeros(capture, _other, _own):
    """Never recorded: vllm-project/vllm#46301 (hybrid models)."""
    return changed(capture, torch.zeros_like, last=True)


def zeros_prompt(capture, _other, _own):
    """The prompt's rows are zeros, as where a prefix cache skipped them: sgl-project/sglang#26217."""
    written = capture.loss_mask[:, None].float()
    return changed(capture, lambda x: x * written[: len(x)], last=True)


def zeros_part(capture, _other, _own):
    """Every fourth block of eight rows is zeros: chunks that were dropped, sgl-project/sglang#26315."""
    kept = (torch.arange(len(capture.token_ids)) // 8 % 4 != 3)[:, None].float()
    return changed(capture, lambda x: x * kept[: len(x)], last=True)


# scale, norm, residual, precision


def scaled(by: float) -> Callable:
    def fault(capture, _other, _own):
        return changed(capture, lambda x: x * by)

    fault.__doc__ = f"All states x {by:g}: reduced twice, or divided by the ranks, sgl-project/sglang#28343."
    return fault


def normed(capture, _other, _own):
    """RMS-normed rows in place of raw ones: before or after the norm, vllm-project/speculators#313."""
    return changed(capture, lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def _increments(capture, own: Streams, kept: float):
    def of(n):
        return capture.stream(n) - (1 - kept) * capture.stream(n - 1) if n else capture.stream(n)

    return capture.replace(streams={**capture.streams, **{n: of(n) for n in own}})


def no_residual(capture, _other, own: Streams):
    """What a layer adds, without what it adds to: IBM/vLLM-Hook#11, vllm-project/vllm-omni#7304."""
    return _increments(capture, own, kept=0.0)


def partial_sum(capture, _other, own: Streams):
    """Half of what the last layer before the capture adds is missing, as one rank of two has it: sgl-project/sglang#28343."""

    def of(n):
        return (capture.stream(n) + capture.stream(n - 1)) / 2 if n else capture.stream(n)

    return capture.replace(streams={**capture.streams, **{n: of(n) for n in own}})


def quantised(bits: int, by: int) -> Callable:
    def fault(capture, _other, _own):
        top = 2 ** (bits - 1) - 1

        def rounded(x):
            step = x.abs().amax(by, keepdim=True).clamp(min=1e-9) / top
            return (x / step).round() * step

        return changed(capture, rounded)

    fault.__doc__ = (
        f"Rounded to {bits} bits, a scale for each {('channel', 'row')[by]}: low-precision capture, sgl-project/sglang#28196."
    )
    return fault


def overflown(capture, _other, _own):
    """Beyond float16: x 1e5 in half precision, infinite where it does not fit: vllm-project/vllm#9534."""
    return changed(capture, lambda x: (x * 1e5).half().float())


def other_basis(capture, _other, _own):
    """Another model's states, of the same widths: all turned by one rotation; vllm-project/vllm#46725 (a target that moved)."""
    width = capture.stream(next(iter(capture.streams))).shape[1]
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0))).Q
    return changed(capture, lambda x: x @ turn, last=True)


# tokens and mask


def tokens_late(capture, _other, _own):
    """Token ids one place late beside states and mask: labels off by one, sgl-project/SpecForge#455."""
    return capture.replace(token_ids=torch.cat([capture.token_ids[:1], capture.token_ids[:-1]]))


def tokens_early(capture, _other, _own):
    """Token ids one place early beside states and mask: sgl-project/SpecForge#885."""
    return capture.replace(token_ids=torch.cat([capture.token_ids[1:], capture.token_ids[-1:]]))


def mask_late(capture, _other, _own):
    """The loss mask one place late: an answer's first token not marked, sgl-project/SpecForge#885."""
    return capture.replace(loss_mask=torch.cat([capture.loss_mask[:1], capture.loss_mask[:-1]]))


def mask_early(capture, _other, _own):
    """The loss mask one place early: the last token of the prompt marked, sgl-project/SpecForge#895."""
    return capture.replace(loss_mask=torch.cat([capture.loss_mask[1:], capture.loss_mask[-1:]]))


def mask_everywhere(capture, _other, _own):
    """Every token marked as the target's own: a dump without prompt lengths; SafeAILab/EAGLE#186 asks what to record."""
    return capture.replace(loss_mask=torch.ones_like(capture.loss_mask))


def handed_over(capture: e3.Capture, own: Streams) -> e3.Capture:
    """What a server gives of a sample: the drafter's streams side by side, their layers not told, and no last state."""
    slots = {f"slot{i}": capture.stream(n) for i, n in enumerate(own)}
    return capture.replace(streams=slots, known={}, last=None, last_kind="none")
