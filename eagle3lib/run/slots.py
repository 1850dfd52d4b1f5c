"""Every recorded stream through every slot of `fc`, once: another choice of streams is then a sum of rows already made.

`fc` is linear and its columns belong to slots, so fc(cat(s_0, s_1, ...)) = W_0 s_0 + W_1 s_1 + ... + bias. A norm for each
stream (`fc_norm`) is applied before; one norm over the joined streams (`norm_before_fc`) divides the whole sum by one root a row.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..read.capture import Capture, Label
from .drafter import Drafter, rms_norm


class Slots:
    """The streams `labels` of one sample, each through each slot."""

    def __init__(self, drafter: Drafter, capture: Capture, labels: Sequence[Label]):
        self.drafter, self.weights = drafter, drafter.weights
        self.n = drafter.recipe.n_streams
        self.states = {n: capture.stream(n).to(drafter.device, drafter.dtype) for n in labels}  # n: [R, Ht]
        self.parts: dict[tuple[int, Label], Tensor] = {}  # (slot, stream): [R, H], made when first asked for

    def _part(self, slot: int, label: Label) -> Float[Tensor, "R H"]:
        if (slot, label) not in self.parts:
            x, r = self.states[label], self.drafter.recipe
            columns = slice(slot * r.target_hidden_size, (slot + 1) * r.target_hidden_size)
            if r.norm_before_fc:
                x = x * self.weights["input_norm.weight"][columns]
            if r.fc_norm:
                x = rms_norm(x, self.weights[f"fc_norm.{slot}.weight"], r.eps)
            self.parts[slot, label] = x @ self.weights["fc.weight"][:, columns].T  # [R, Ht] x [Ht, H] -> [R, H]
        return self.parts[slot, label]

    def fused(self, streams: Sequence[Label]) -> Float[Tensor, "R H"]:
        """`drafter.fuse` of these streams joined, up to the order of additions."""
        total = sum(self._part(slot, label) for slot, label in enumerate(streams))  # [R, H]
        if self.drafter.recipe.norm_before_fc:
            squares = sum(self.states[label].float().pow(2).sum(-1, keepdim=True) for label in streams)  # [R, 1]
            mean = squares / (self.n * self.drafter.recipe.target_hidden_size)
            total = total * torch.rsqrt(mean + self.drafter.recipe.eps).to(total.dtype)
        bias = self.weights.get("fc.bias")
        return total if bias is None else total + bias
