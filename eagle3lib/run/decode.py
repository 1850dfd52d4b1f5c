"""Speculative decoding with a live `transformers` target: greedy chains and trees, verified as an engine verifies them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ..read.errors import InputError
from .chain import Chain
from .device import enough_memory
from .drafter import Drafter, Memory
from .record import end_tokens, watching
from .tree import SglangTree, TreePlan, Trees, check_plan, draft_trees


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


@enough_memory("decoding", "a shorter prompt, fewer steps")
@torch.inference_mode()
def speculative_decode(
    target: nn.Module, drafter: Drafter, prompt_ids: Int[Tensor, " P"], plan: Chain | TreePlan, max_new_tokens: int = 128
) -> Decoded:
    """The target's greedy answer to `prompt_ids` [P], drafted by `drafter`, up to its end token or `max_new_tokens`.

    A round: the drafter's keys are rebuilt from the target's states of all committed tokens, it drafts `plan`'s chain or tree,
    the target reads that in one pass, each node seeing its ancestors only, and those are accepted that it would have written
    itself, and one of its own after them. The text is the target's own, whatever the drafter does. Raises InputError when the
    recipe names no streams, and for a tree where layers of the target do not attend to all tokens.
    """
    streams = drafter.recipe.streams
    if streams is None:
        raise InputError("streams: neither config.json nor the target says which streams the drafter takes: give streams=")
    check_plan(plan, "speculative_sample")
    plan = SglangTree(plan.steps, 1, plan.steps + 1) if isinstance(plan, Chain) else plan  # the tree of one branch
    _check_layers(target, plan)
    from transformers import DynamicCache  # an extra: only a live target needs it

    ends, P = end_tokens(target), len(prompt_ids)
    cache = DynamicCache(config=target.config)
    with watching(target, streams) as found:
        text = prompt_ids.tolist()
        text.append(_pick(target, cache, prompt_ids)[-1])  # the token that reading the prompt gives
        g, memory, accepted = _join(found, streams, drafter), Memory(), []
        while len(text) < P + max_new_tokens and text[-1] not in ends:
            trees, memory = _draft_after(drafter, g, torch.tensor(text), memory, plan)
            read = torch.cat([torch.tensor(text[-1:]), trees.tokens[0]])
            picks = _pick(target, cache, read, trees.parents[0])  # what it writes after each of them
            path = _accepted(trees, picks)
            new = [*read[path[1:]].tolist(), picks[path[-1]]][: P + max_new_tokens - len(text)]
            stop = next((i for i, token in enumerate(new) if token in ends), len(new) - 1)
            new = new[: stop + 1]
            accepted.append(min(len(path) - 1, len(new)))
            g = _join(found, streams, drafter)[path]  # states of the last token and of the accepted drafts
            if path == list(range(len(path))):
                cache.crop(len(path) - len(read))  # forget the rejected ones: they lie behind the accepted
            else:
                cache.crop(-len(read))
                _pick(target, cache, read[path])  # read the accepted again, in their order
            text += new
    return Decoded(torch.tensor(text), P, tuple(accepted))


def _check_layers(target: nn.Module, plan: TreePlan) -> None:
    config = target.config.get_text_config()
    partial = set(getattr(config, "layer_types", None) or ()) - {"full_attention"} or getattr(config, "sliding_window", None)
    if plan.top_k > 1 and partial:
        raise InputError("target: some of its layers do not attend to all tokens, and trees are verified by a mask: give a Chain")


def _pick(target: nn.Module, cache, ids: Int[Tensor, " t"], parents: Tensor | None = None) -> list[int]:
    """The target reads `ids` [t] after what `cache` holds; its greedy choice after each of them.

    `parents` [t - 1]: ids[1:] are a tree's nodes below ids[0]; a node stands one position after its parent and sees its
    ancestors, not its siblings. Without, or where the tree is a chain, the tokens follow each other.
    """
    device, dtype = (getattr(next(target.parameters()), part) for part in ("device", "dtype"))
    asked = {"input_ids": ids[None].to(device), "cache": cache}
    if parents is not None and parents.tolist() != list(range(-1, len(parents) - 1)):
        seen = torch.eye(len(ids), dtype=torch.bool)  # [t, t] by whom, whom
        seen[:, 0] = True
        for node, parent in enumerate(parents.tolist()):  # a parent comes before its children
            seen[node + 1] |= seen[parent + 1]
        start = cache.get_seq_length()
        seen = torch.cat([torch.ones(len(ids), start, dtype=torch.bool), seen], 1)  # [t, start + t]
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
        asked |= {"attention_mask": mask[None, None].to(device), "position_ids": (seen.sum(1) - 1)[None].to(device)}
    return target(**asked).logits[0].argmax(-1).tolist()


def _accepted(trees: Trees, picks: list[int]) -> list[int]:
    """Places, among the root and the nodes, of what the target would have written itself, in order: 0 first, the root.

    `picks` are the target's choices after each of them.
    """
    path, nodes = [0], list(zip(trees.parents[0].tolist(), trees.tokens[0].tolist(), strict=True))
    while (path[-1] - 1, picks[path[-1]]) in nodes:
        path.append(nodes.index((path[-1] - 1, picks[path[-1]])) + 1)
    return path


def _join(found: dict, streams: Sequence[int], drafter: Drafter) -> Tensor:
    """The watched streams of the target's last pass, side by side, [t, n*Ht]."""
    return torch.cat([found[n][0] for n in streams], dim=-1).to(drafter.device, drafter.dtype)


def _draft_after(drafter: Drafter, g: Tensor, text: Tensor, memory: Memory, plan: TreePlan) -> tuple[Trees, Memory]:
    """Draft after `text`; `g` [t, n*Ht] are the target's states of the t tokens not yet in `memory`."""
    t, last = len(g), len(text) - 2  # the last row: its state is known, and the token after it
    text = text.to(drafter.device)
    rows = torch.arange(last + 1 - t, last + 1, device=drafter.device)  # [t]
    out = drafter.forward(drafter.fuse(g), text[rows + 1], rows, memory)
    return draft_trees(drafter, out.rows(slice(-1, None)), rows[-1:], plan), out.memory
