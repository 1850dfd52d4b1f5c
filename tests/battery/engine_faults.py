"""Faults of an engine: the drafter that it really runs, made of a good one. Each is a pure function of a Drafter.

Its counters are made by walking it (base.log_of); the checkpoint and the captures that the verdict is given are good.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

import eagle3lib as e3
from eagle3lib.measure.acceptance import spans


def of_kind(drafter: e3.Drafter, kind: type[e3.Drafter], **fields) -> e3.Drafter:
    """The same drafter with some of its methods replaced; weights are not copied."""
    other = copy.copy(drafter)
    other.__class__ = kind
    vars(other).update(fields)
    return other


def map_ignored(drafter: e3.Drafter) -> e3.Drafter:
    """d2t not applied: vllm-project/vllm#18909."""
    return of_kind(drafter, e3.Drafter, target_ids=torch.arange(len(drafter.target_ids)))


def on_streams(*streams: int) -> Callable:
    def fault(drafter: e3.Drafter) -> e3.Drafter:
        return drafter.with_recipe(drafter.recipe.replace(streams=streams))

    fault.__doc__ = f"The engine captures r_n for n = {streams}: sgl-project/sglang#25454, vllm-project/vllm#50170."
    return fault


def ids_late(drafter: e3.Drafter) -> e3.Drafter:
    """The engine adds one to each id: sgl-project/sglang#25454."""
    return on_streams(*(n + 1 for n in drafter.recipe.streams))(drafter)


def slots_swapped(drafter: e3.Drafter) -> e3.Drafter:
    """The engine joins the streams in the reverse order: fusion order, NickL77/BaldEagle#14."""
    return on_streams(*reversed(drafter.recipe.streams))(drafter)


def residual_flipped(drafter: e3.Drafter) -> e3.Drafter:
    """The residual is taken from the other side of hidden_norm: ROCm/ATOM#1605, vllm-project/vllm#14464."""
    return drafter.with_recipe(drafter.recipe.replace(norm_before_residual=not drafter.recipe.norm_before_residual))


def feed_flipped(drafter: e3.Drafter) -> e3.Drafter:
    """The state fed to the next step is normed, and should not be: vllm-project/vllm#46488 (norm_output not propagated)."""
    return drafter.with_recipe(drafter.recipe.replace(norm_output=not drafter.recipe.norm_output))


def base_dropped(drafter: e3.Drafter) -> e3.Drafter:
    """rope_theta is not read: 10,000 in place of 100,000, ROCm/ATOM#1605, NVIDIA-NeMo/Automodel#2920."""
    return drafter.with_recipe(drafter.recipe.replace(rope=e3.Rope.plain(1e4, drafter.recipe.head_dim)))


def scaling_added(drafter: e3.Drafter) -> e3.Drafter:
    """The target's rope scaling is forced on the drafter: vllm-project/vllm#51092."""
    return drafter.with_recipe(drafter.recipe.replace(rope=drafter.recipe.rope.linear(4.0)))


class Stale(e3.Drafter):
    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        out = super().forward(hidden, ids, rows, memory, step, trace)
        return replace(out, feed=hidden) if step else out


def stale(drafter: e3.Drafter) -> e3.Drafter:
    """Steps 3 and later are given the state of step 1 again: buffers that are not updated, sgl-project/sglang#21255."""
    return of_kind(drafter, Stale)


class Unfed(e3.Drafter):
    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        out = super().forward(hidden, ids, rows, memory, step, trace)
        return replace(out, feed=hidden)


def unfed(drafter: e3.Drafter) -> e3.Drafter:
    """All steps are given the target's states as fc made them, no own: a cliff behind draft 1, sgl-project/sglang#21255."""
    return of_kind(drafter, Unfed)


class Mixed(e3.Drafter):
    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        return super().forward(hidden.roll(1, 0) if step else hidden, ids, rows, memory, step, trace)


def mixed(drafter: e3.Drafter) -> e3.Drafter:
    """Steps 2 and later are given the state of another row of the batch: gather indices, NVIDIA/TensorRT-LLM#4168."""
    return of_kind(drafter, Mixed)


class Ahead(e3.Drafter):
    by = 1

    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        return super().forward(hidden, ids, rows, memory, step + self.by if step else 0, trace)


def ahead(by: int) -> Callable:
    def fault(drafter: e3.Drafter) -> e3.Drafter:
        return of_kind(drafter, Ahead, by=by)

    fault.__doc__ = f"Positions of steps 2 and later are {by} too large: sgl-project/sglang#25015."
    return fault


class Behind(e3.Drafter):
    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        if step == 0:
            self.told = torch.cat([ids[:1], ids])  # told[i]: the token before place i + 1
            return super().forward(hidden, self.told[:-1], rows, memory, step, trace)
        told = torch.cat([self.told, self.told[-1:].expand(step)])
        return super().forward(hidden, told[rows + step], rows, memory, step, trace)


def tokens_late(drafter: e3.Drafter) -> e3.Drafter:
    """Each row has the embedding of the token before the one it should: ids not shifted, sgl-project/SpecForge#455."""
    return of_kind(drafter, Behind)


def head_random(drafter: e3.Drafter) -> e3.Drafter:
    """The head is not loaded: sgl-project/sglang#27829."""
    made = torch.randn(drafter.head.shape, generator=torch.Generator().manual_seed(0)) * 0.02
    return of_kind(drafter, e3.Drafter, head=made)


class Unembedded(e3.Drafter):
    def embed(self, ids):
        rows = [torch.randn(576, generator=torch.Generator().manual_seed(int(i))) * 0.02 for i in ids]
        return torch.stack(rows)


def embedding_random(drafter: e3.Drafter) -> e3.Drafter:
    """The embedding is not loaded: lightseekorg/TorchSpec#38, vllm-project/vllm#50158."""
    return of_kind(drafter, Unembedded)


class Unfused(e3.Drafter):
    def fuse(self, g, trace=None):
        return g.chunk(self.recipe.n_streams, dim=-1)[-1]


def eagle_one(drafter: e3.Drafter) -> e3.Drafter:
    """Started as EAGLE: the last slot is the state, fc is skipped: sgl-project/sglang#21272."""
    return of_kind(drafter, Unfused)


class Unnormed(e3.Drafter):
    skipped = "layers.0.input_layernorm.weight"

    def _norm(self, name, x, trace):
        return x if name == self.skipped else super()._norm(name, x, trace)


def norm_skipped(drafter: e3.Drafter) -> e3.Drafter:
    """The embedding's norm is left out: norms of a re-implementation, vllm-project/vllm#9565."""
    return of_kind(drafter, Unnormed)


class Constant(e3.Drafter):
    def predict(self, normed):
        return self.target_ids[:1].expand(len(normed))


def constant(drafter: e3.Drafter) -> e3.Drafter:
    """The same token is proposed every time: ohdearquant/lattice#1373."""
    return of_kind(drafter, Constant)


def first_round_lost(one: e3.Hits) -> e3.Hits:
    """The first round after a prompt accepts nothing: its state is lost between prefill and decode, sgl-project/sglang#10059."""
    hit = one.hit.clone()
    for first, _ in spans(one.scored[0].numpy()):
        hit[:, first] = False
    return replace(one, hit=hit)


def every_fourth_lost(one: e3.Hits) -> e3.Hits:
    """One request in four accepts nothing, the others all that they should: NVIDIA/TensorRT-LLM#5146 (bimodal)."""
    return replace(one, hit=one.hit & (np.frombuffer(one.name.encode(), np.uint8).sum() % 4 != 0).item())
