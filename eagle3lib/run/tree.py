"""Draft trees, in the two machines that exist: SafeAILab's and SGLang's. Predicted at every row of a recorded sample.

What they share. Level 1 are the `top_k` likeliest tokens of the round's first row. At each later level the `top_k` nodes of
the beam are run together, each proposes its own `top_k` children, and the best `top_k` of those top_k^2 are the next beam. A
node's score is the probability of its whole path by the drafter, over the draft vocabulary. When the levels are done, all
candidates of all levels compete, those that never were in the beam too, and the best become the tree that the target
verifies. They are ordered by level, parent's place in the beam, likelihood. A parent is never less likely than its child, so
the choice is a tree. Of equal scores the earlier place wins here; `torch.topk`, which both use, promises no order. A node
takes its parent's state, its own token and the position of its level, and keys drafted in a round are forgotten after it:
those of accepted tokens are made anew from the target's states.

What differs, and where it was read:

|  | `EagleTree`: SafeAILab/EAGLE `eagle/model/cnets.py` `topK_genrate` | `SglangTree`: SGLang `srt/speculative/` |
|---|---|---|
| levels | `depth` + 1: the loop runs after level 1 was drawn | `num_steps` (`eagle_worker.py` `draft_forward`) |
| nodes | `total_token` - 1: the root is counted (`Model.__init__`) | `num_draft_tokens` - 1 (`organize_draft_results`) |
| scores | sums of log-probabilities | products of probabilities (`spec_utils.py` `select_top_k_tokens`) |
| keys seen | the context's and its ancestors' (`tree_mask`) | the context's and its *place's*: see below |

SGLang keeps a strip of keys for each place in the beam (`out_cache_loc`, place by place, one slot a step). The node that takes
place j at a step writes to strip j and attends to strip j so far (`generate_draft_decode_kv_indices`; the FlashAttention 3
backend's `out_cache_loc.view(-1, num_steps)[:, :step + 1]`): its state is its parent's (`select_top_k_tokens` picks it), but
the drafted keys it sees are those of whatever stood in place j before, its parent or not. Reported in sgl-project/sglang#8409
(2025-07-27, closed, not merged: that change overwrote the keys by the parents'), and `draft_forward` of `eagle_worker_v2.py`, as
it stood after sgl-project/sglang#26424 (2026-05), copies no keys between strips either. With top_k = 1 it is the chain.

How sure. The table and the strips are read from source, not from a run of either program; that this library's trees are those of
a running engine is not confirmed. Until sgl-project/sglang#25015 (2026-05-11) SGLang's later steps stood one position too far:
`Wiring(later=1)`. Not looked at: the layout before the strips (early 2025), SGLang's second worker with top_k > 1 in its
draft-extend step, backends other than those named, sampled drafts, half precision, in which equal scores are common.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from ..read.capture import Capture
from ..read.errors import InputError
from .chain import MOST_STEPS, Chain, Hits, by_name, fused_rows, told_by_text
from .device import enough_memory
from .drafter import Drafter, Memory, Step


class _Tree:
    """What the two have in common: they say how many `levels` and `nodes` they have below the root."""

    @property
    def deepest(self) -> int:
        """The most drafts that a round can accept."""
        return min(self.levels, self.nodes)


@dataclass(frozen=True)
class EagleTree(_Tree):
    """SafeAILab's tree, in its own counts: `EaModel.from_pretrained(depth=, top_k=, total_token=)`, by default 7, 10, 60."""

    depth: int
    top_k: int
    total_token: int

    def __post_init__(self):
        _whole("depth", self.depth, 0, MOST_STEPS)
        _check_nodes(self, "total_token", self.total_token)

    @property
    def levels(self) -> int:
        """Levels of nodes below the root."""
        return self.depth + 1

    @property
    def nodes(self) -> int:
        """Nodes that the target verifies, the root left out."""
        return self.total_token - 1


@dataclass(frozen=True)
class SglangTree(_Tree):
    """SGLang's tree: `--speculative-num-steps`, `--speculative-eagle-topk`, `--speculative-num-draft-tokens`."""

    steps: int
    top_k: int
    draft_tokens: int

    def __post_init__(self):
        _whole("steps", self.steps, 1, MOST_STEPS)
        _check_nodes(self, "draft_tokens", self.draft_tokens)
        if self.top_k == 1 and self.draft_tokens != self.steps + 1:  # sgl-project/sglang server_args.py
            raise InputError(
                f"draft_tokens: {self.draft_tokens} with top_k 1 and {self.steps} steps: SGLang makes them steps + 1: give "
                f"{self.steps + 1}"
            )

    @property
    def levels(self) -> int:
        """Levels of nodes below the root."""
        return self.steps

    @property
    def nodes(self) -> int:
        """Nodes that the target verifies, the root left out."""
        return self.draft_tokens - 1


TreePlan = EagleTree | SglangTree


def check_plan(plan: object, sampled: str) -> None:
    """Raises InputError for what is no greedy plan; `sampled` does the same for sampled text."""
    if not isinstance(plan, Chain | TreePlan):
        raise InputError(f"plan: {plan!r}, expected Chain(3), an EagleTree or a SglangTree; for sampled drafts {sampled}")


def _whole(name: str, value: int, low: int, high: int, why: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{name}: {value!r}, expected a whole number, {low} to {high}{why}")


def _check_nodes(plan: TreePlan, name: str, asked: int) -> None:
    """Raises InputError for a top-k that is none, and for more nodes than the levels propose."""
    _whole("top_k", plan.top_k, 1, 2**16)
    proposed = plan.top_k + (plan.levels - 1) * plan.top_k**2
    _whole(
        name,
        asked,
        2,
        proposed + 1,
        f": {plan.levels} levels of top-k {plan.top_k} propose {proposed} nodes, and the root counts",
    )


@dataclass(frozen=True)
class Trees:
    """Trees of N nodes drafted at R rows; every parent comes before its children."""

    tokens: Int[Tensor, "R N"]  # the target's ids
    parents: Int[Tensor, "R N"]  # place of the parent among the N; -1 for the root, the last token that the target has written

    def follow(self, truth: Int[Tensor, "R K"]) -> Int[Tensor, "R K"]:
        """Place of each accepted node, level by level, where the target goes on with `truth`; -1 from the first miss on."""
        at, path = torch.full((len(truth),), -1), []
        alive = torch.ones(len(truth), dtype=torch.bool)
        for tokens in truth.unbind(1):
            good = (self.parents == at[:, None]) & (self.tokens == tokens[:, None]) & alive[:, None]  # [R, N] one at most
            alive, at = good.any(1), good.long().argmax(1)
            path.append(torch.where(alive, at, -1))
        return torch.stack(path, 1)


@torch.inference_mode()
def draft_trees(drafter: Drafter, first: Step, rows: Int[Tensor, " R"], plan: TreePlan) -> Trees:
    """The trees of R rows at once; `first` is the pass of step 0 over those rows, with the context's keys.

    Rows are taken in parts, so that memory does not grow with the sample. Raises InputError for a drafter that drafts no such
    tree.
    """
    check_drafter(drafter, plan)
    at_once = max(1, drafter.block // (plan.top_k * len(drafter.head)))
    parts = torch.arange(len(rows), device=rows.device).split(at_once)
    found = [_draft(drafter, first.rows(part), rows[part], plan) for part in parts]
    return Trees(torch.cat([part.tokens for part in found]), torch.cat([part.parents for part in found]))


def check_drafter(drafter: Drafter, plan: TreePlan) -> None:
    """Raises InputError for a top-k above the draft vocabulary, and for drafters that a tree is not defined for."""
    if plan.top_k > len(drafter.head):
        raise InputError(f"top_k: {plan.top_k}, but the drafter has {len(drafter.head)} tokens to choose from: give fewer")
    if drafter.recipe.mask_token is not None and plan.top_k > 1:
        raise InputError("top_k: a parallel drafter (mask_token) drafts one chain, no tree: give a Chain")
    if drafter.wiring.token != 1:
        raise InputError(
            f"wiring: token = {drafter.wiring.token}: a tree feeds the tokens it drafts, row t that after x_t: leave 1"
        )


def _draft(drafter: Drafter, out: Step, rows: Tensor, plan: TreePlan) -> Trees:
    """`draft_trees`, all rows together. Place j of row r's beam is row r * top_k + j of a pass."""
    R, k = len(rows), plan.top_k
    summed = isinstance(plan, EagleTree)
    score, tokens = _best(drafter, out, plan)  # [R, k] each
    pool = [(score, tokens, torch.full_like(tokens, -1))]  # of each level: scores, tokens, the parent's place in the pool
    beam = torch.arange(k, device=rows.device).expand(R, k)  # [R, k] its nodes' places in the pool
    out, rows = out.rows(torch.arange(R, device=rows.device).repeat_interleave(k)), rows.repeat_interleave(k)
    for step in range(1, plan.levels):
        out = drafter.forward(out.feed, tokens.flatten(), rows, out.memory, step)
        theirs, tokens = (part.view(R, k, k) for part in _best(drafter, out, plan))
        score = (score[:, :, None] + theirs if summed else score[:, :, None] * theirs).flatten(1)  # [R, k * k]
        tokens = tokens.flatten(1)
        pool.append((score, tokens, beam.repeat_interleave(k, 1)))
        chosen = _highest(score, k)  # [R, k]
        score, tokens = score.gather(1, chosen), tokens.gather(1, chosen)
        beam = chosen + k + (step - 1) * k * k
        parent = (chosen // k + torch.arange(R, device=rows.device)[:, None] * k).flatten()  # [R * k] its row in the pass
        out = replace(out, feed=out.feed[parent], memory=out.memory.rows(parent) if summed else out.memory)
    score, tokens, parents = (torch.cat(part, 1) for part in zip(*pool, strict=True))
    kept = _highest(score, plan.nodes).sort(1).values  # [R, N]
    place = torch.full_like(parents, -1).scatter(1, kept, torch.arange(plan.nodes, device=rows.device).expand(R, -1))
    parents = parents.gather(1, kept)
    parents = torch.where(parents < 0, -1, place.gather(1, parents.clamp(min=0)))
    return Trees(tokens.gather(1, kept).cpu(), parents.cpu())


def _best(drafter: Drafter, out: Step, plan: TreePlan) -> tuple[Float[Tensor, "T k"], Int[Tensor, "T k"]]:
    """The likeliest next tokens of each row, best first: (log-)probability over the draft vocabulary, the target's id."""
    logits = drafter.logits(out.normed).float()
    best = logits.topk(plan.top_k)
    log_p = best.values - logits.logsumexp(1, keepdim=True)
    return log_p if isinstance(plan, EagleTree) else log_p.exp(), drafter.target_ids[best.indices]


def _highest(score: Float[Tensor, "R pool"], count: int) -> Int[Tensor, "R count"]:
    """Places of the highest scores, best first; of equal ones the first."""
    return score.sort(dim=1, descending=True, stable=True).indices[:, :count]


@torch.inference_mode()
def draft_tree(drafter: Drafter, g: Float[Tensor, "S joined"], ids: Int[Tensor, " S1"], plan: TreePlan) -> Trees:
    """One round, as plainly as it can be said: the tree after tokens `ids` [S + 1], of which the target has seen the first S.

    Every node runs one ordinary causal pass of its own, nothing kept: the target's states first, then what the node attends to,
    itself last. `draft_trees` must agree with it.
    """
    check_drafter(drafter, plan)
    fused, k = drafter.fuse(g), plan.top_k

    def children(seen: list, score: float, parent: int) -> tuple[list, Tensor]:
        """The proposals after the last of `seen`, (state, token) pairs: (score, token, parent); and the state to feed on."""
        hidden = torch.cat([fused, *(state for state, _ in seen)])
        tokens = torch.tensor([*ids[1:].tolist(), *(token for _, token in seen)], device=drafter.device)
        out = drafter.forward(hidden, tokens, torch.arange(len(tokens), device=drafter.device), Memory())
        log_p = drafter.logits(out.normed[-1:]).float().log_softmax(-1)[0]
        best = log_p.topk(k)
        own = best.values.tolist() if isinstance(plan, EagleTree) else best.values.exp().tolist()
        scores = [score + p if isinstance(plan, EagleTree) else score * p for p in own]
        return [(s, int(drafter.target_ids[i]), parent) for s, i in zip(scores, best.indices, strict=True)], out.feed[-1:]

    def best_of(nodes: list, count: int) -> list[int]:
        return sorted(range(len(nodes)), key=lambda place: -nodes[place][0])[:count]

    pool, feed = children([], 0.0 if isinstance(plan, EagleTree) else 1.0, -1)
    beam = list(range(k))  # places in the pool
    seen = [[(feed, pool[place][1])] for place in beam]  # what each place of the beam attends to beside the context
    for _ in range(1, plan.levels):
        level, feeds, start = [], [], len(pool)
        for place, history in zip(beam, seen, strict=True):
            proposed, feed = children(history, pool[place][0], place)
            level, feeds = level + proposed, [*feeds, feed]
        chosen = best_of(level, k)
        before = [seen[place // k] if isinstance(plan, EagleTree) else seen[j] for j, place in enumerate(chosen)]
        seen = [[*history, (feeds[place // k], level[place][1])] for history, place in zip(before, chosen, strict=True)]
        pool, beam = pool + level, [start + place for place in chosen]
    kept = sorted(best_of(pool, plan.nodes))
    parents = [-1 if pool[place][2] < 0 else kept.index(pool[place][2]) for place in kept]
    return Trees(torch.tensor([[pool[place][1] for place in kept]]), torch.tensor([parents]))


@torch.inference_mode()
def tree_hits(drafter: Drafter, capture: Capture, plan: TreePlan) -> Hits:
    """What a tree drafted at every row of the sample would have accepted: step k is the accepted node of level k + 1.

    As chains do, rows near the end of the target's writing accept what is left of it at most. `guess` is -1 where nothing was
    accepted: a tree guesses many tokens there. Only all `plan.deepest` steps mean something: the first k levels of a tree are
    not the tree of k levels.
    """
    ids, K = capture.token_ids, plan.deepest
    T, fused = len(ids), fused_rows(drafter, capture)
    truth, scored, written, known = told_by_text(capture, drafter.target_ids.cpu(), K)
    guess = torch.full((K, T), -1)
    rows = scored[0].nonzero()[:, 0]
    if len(rows):
        every = torch.arange(T - 2, device=drafter.device)
        at = rows.to(drafter.device)
        with enough_memory(f"drafting trees on {drafter.device}", "shorter samples, a smaller top-k"):
            first = drafter.forward(fused[every], ids.to(drafter.device)[every + 1], every, Memory())
            trees = draft_trees(drafter, first.rows(at), at, plan)
        right = trees.follow(truth[:, rows].T).T >= 0  # [K, rows]
        guess[:, rows] = torch.where(right, truth[:, rows], -1)
    return Hits(capture.name, guess, guess == truth, scored, written, known, False)


def hits_of_trees(drafter: Drafter, captures: Iterable[Capture], plan: TreePlan) -> list[Hits]:
    """`tree_hits` of every sample."""
    return by_name(tree_hits(drafter, c, plan) for c in tqdm(captures, desc="drafting trees", unit="sample", leave=False))
