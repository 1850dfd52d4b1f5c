"""Draft trees: at every row at once, one round slowly, by hand, and live, where the target verifies them."""

import random
from types import SimpleNamespace

import pytest
import tiny
import torch
from conftest import ROOT

import eagle3lib as e3
from eagle3lib.measure.acceptance import walk
from eagle3lib.run.chain import draft_slowly, fused_rows, scored_rows
from eagle3lib.run.drafter import Drafter, Memory, Step, Wiring
from eagle3lib.run.tree import EagleTree, SglangTree, draft_tree, draft_trees, tree_hits

TREES = [EagleTree(2, 3, 12), EagleTree(3, 4, 20), SglangTree(3, 3, 12), SglangTree(4, 4, 20)]


@pytest.fixture(scope="module")
def easy(tmp_path_factory):
    """A drafter, and a text that follows its guesses at two rows of three: the likeliest, the second and third in turn."""
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path_factory.mktemp("easy") / "drafter"))
    drafter, capture = Drafter(ckpt), tiny.capture(T=40, prompt=5)
    return drafter, guessed(drafter, capture)


def guessed(drafter: Drafter, capture: e3.Capture) -> e3.Capture:
    ids, g = capture.token_ids.clone(), capture.joined(drafter.recipe)
    for t in range(5, len(ids) - 2):
        if t % 3:
            choices = draft_tree(drafter, g[: t + 1], ids[: t + 2], EagleTree(0, 3, 4)).tokens[0]
            ids[t + 2] = choices[t // 3 % 3]
    return capture.replace(token_ids=ids)


def all_trees(drafter: Drafter, capture: e3.Capture, plan):
    """Every scored row of a sample, and its tree."""
    rows, every = scored_rows(capture.loss_mask, 0), torch.arange(len(capture.token_ids) - 2)
    first = drafter.forward(fused_rows(drafter, capture)[every], capture.token_ids[every + 1], every, Memory())
    return rows, draft_trees(drafter, first.rows(rows), rows, plan)


@pytest.mark.parametrize("plan", TREES)
@pytest.mark.parametrize("changes", [{}, {"norm_output": True}, {"norm_before_residual": True}])
def test_all_rows_at_once_equal_one_round_slowly(easy, plan, changes):
    drafter, capture = easy
    drafter = drafter.with_recipe(drafter.recipe.replace(**changes))
    check_against_slow(drafter, capture, plan)


def check_against_slow(drafter: Drafter, capture: e3.Capture, plan, every: int = 1) -> None:
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    rows, fast = all_trees(drafter, capture, plan)
    for i in range(0, len(rows), every):
        slow = draft_tree(drafter, g[: rows[i] + 1], ids[: rows[i] + 2], plan)
        assert fast.tokens[i].tolist() == slow.tokens[0].tolist()
        assert fast.parents[i].tolist() == slow.parents[0].tolist()


@pytest.mark.parametrize("plan", TREES[::2])
def test_all_rows_at_once_equal_one_round_slowly_in_two_layers(plan):
    folder = ROOT / "tests" / "truth" / "vectors" / "llama_two_layers"
    drafter = Drafter(e3.open_checkpoint(folder))
    drafter = drafter.with_recipe(drafter.recipe.replace(streams=(0, 2, 3)))
    width = drafter.weights["fc.weight"].shape[1] // 3
    capture = tiny.capture(T=20, prompt=5, width=width)
    check_against_slow(drafter, capture.replace(token_ids=capture.token_ids % drafter.recipe.vocab_size), plan)


def test_the_two_machines_attend_to_different_keys(easy):
    """Same levels, beam and size: only the keys differ, and so do the trees. With one branch they are one chain."""
    assert not torch.equal(all_trees(*easy, EagleTree(3, 4, 30))[1].tokens, all_trees(*easy, SglangTree(4, 4, 30))[1].tokens)
    for rows, (a, b) in {1: (EagleTree(1, 4, 16), SglangTree(2, 4, 16)), 2: (EagleTree(3, 1, 5), SglangTree(4, 1, 5))}.items():
        assert torch.equal(all_trees(*easy, a)[1].tokens, all_trees(*easy, b)[1].tokens), rows


@pytest.mark.parametrize("plan", TREES)
def test_parts_of_rows_change_nothing(easy, plan):
    drafter, capture = easy
    rows, whole = all_trees(drafter, capture, plan)
    _, parts = all_trees(drafter.but(block=7 * plan.top_k * len(drafter.head)), capture, plan)
    assert len(rows) > 7 and torch.equal(whole.tokens, parts.tokens) and torch.equal(whole.parents, parts.parents)


@pytest.mark.parametrize("plan", TREES)
def test_accepted_drafts_are_found_by_walking_down_the_slow_tree(easy, plan):
    drafter, capture = easy
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    leading = tree_hits(drafter, capture, plan).leading()
    slowly = []
    for t in scored_rows(capture.loss_mask, 0).tolist():
        tree, at, accepted = draft_tree(drafter, g[: t + 1], ids[: t + 2], plan), -1, 0
        children = list(zip(tree.parents[0].tolist(), tree.tokens[0].tolist(), strict=True))
        for token in ids[t + 2 :].tolist():
            if (at, token) not in children:
                break
            at, accepted = children.index((at, token)), accepted + 1
        slowly.append(accepted)
    assert slowly == leading[scored_rows(capture.loss_mask, 0)].tolist()
    chain = e3.chain_hits(drafter, capture, plan.levels).leading()
    assert leading.sum() > chain.sum() > 5  # second and third choices were accepted too


@pytest.mark.parametrize("K", [1, 3, 5])
def test_a_tree_of_one_branch_is_the_chain(easy, K):
    drafter, capture = easy
    chain = e3.acceptance(drafter, [capture], e3.Chain(K))
    for plan in (EagleTree(K - 1, 1, K + 1), EagleTree(K + 2, 1, K + 1), SglangTree(K, 1, K + 1)):
        tree = e3.acceptance(drafter, [capture], plan)
        assert list(tree.walks) == list(tree.starts) == [K]
        assert tree.counts(K).tolist() == chain.counts(K).tolist()
        assert tree.counts(K, "starts").tolist() == chain.counts(K, "starts").tolist()
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    tree = draft_tree(drafter, g[:10], ids[:11], EagleTree(K - 1, 1, K + 1))
    assert tree.tokens[0].tolist() == draft_slowly(drafter, g[:10], ids[:11], K)
    assert tree.parents[0].tolist() == list(range(-1, K - 1))


def test_two_samples_of_one_name_are_two(easy):
    drafter, capture = easy
    found = e3.acceptance(drafter, [capture, capture], SglangTree(2, 2, 4))
    assert len(found.counts(2)) == 2


# -- by hand: a drafter whose next token depends on its last token alone

A, B, X, Y, C, D, E, F = range(8)
NEXT = {  # after a token: its likely successors
    F: {A: 0.5, B: 0.3},
    A: {C: 0.5, D: 0.49},
    B: {X: 0.8, E: 0.19},
    X: {Y: 0.99},
    C: {E: 0.31, F: 0.3},
    D: {E: 0.31, F: 0.3},
}


class Markov(Drafter):
    """Its state is its token, and so is its key; what it attends to is noted in `looked`."""

    def __init__(self):
        self.wiring, self.block, self.recipe = Wiring(), 2**20, SimpleNamespace(mask_token=None)
        self.target_ids, self.head = torch.arange(8), torch.zeros(8, 1)
        self.looked, self.table = [], torch.zeros(8, 8)
        for token, likely in NEXT.items():
            self.table[token] = (1 - sum(likely.values())) / (8 - len(likely))  # the rest, shared by the others
            for then, p in likely.items():
                self.table[token, then] = p

    def forward(self, hidden, ids, rows, memory, step=0, trace=None):
        own = ids[:, None, None].float()
        memory = Memory(memory.context, (*memory.own, ((own, own),)))
        self.looked.append([[int(step[0][0][row]) for step in memory.own] for row in range(len(ids))])
        return Step(ids[:, None].float(), hidden, memory)

    def logits(self, normed):
        return self.table[normed[:, 0].long()].log()


def markov_tree(plan) -> tuple[list, Markov]:
    """(token, parent's place) of each node of the tree after F, and the drafter."""
    drafter = Markov()
    first = Step(torch.tensor([[float(F)]]), torch.zeros(1, 1), Memory())
    tree = draft_trees(drafter, first, torch.tensor([3]), plan)
    return list(zip(tree.tokens[0].tolist(), tree.parents[0].tolist(), strict=True)), drafter


@pytest.mark.parametrize("plan", [EagleTree(2, 2, 11), SglangTree(3, 2, 11)])
def test_nodes_off_the_path_push_a_node_out_of_the_beam(plan):
    """F then B X Y: X (0.3 * 0.8 = 0.24) is less likely than A's two children (0.25, 0.245), so it is drafted but never run:
    Y, which would follow it almost surely, is not in the tree even where the tree is everything that was proposed."""
    nodes, _ = markov_tree(plan)
    assert nodes == [(A, -1), (B, -1), (C, 0), (D, 0), (X, 1), (E, 1), (E, 2), (F, 2), (E, 3), (F, 3)]


@pytest.mark.parametrize(
    ("plan", "nodes"),
    [
        (EagleTree(2, 2, 5), [(A, -1), (B, -1), (C, 0), (D, 0)]),  # 0.5, 0.3, 0.25, 0.245 beside X's 0.24
        (SglangTree(3, 2, 5), [(A, -1), (B, -1), (C, 0), (D, 0)]),
        (EagleTree(2, 2, 8), [(A, -1), (B, -1), (C, 0), (D, 0), (X, 1), (E, 2), (E, 3)]),  # B's E, 0.057, is too unlikely
        (SglangTree(3, 2, 8), [(A, -1), (B, -1), (C, 0), (D, 0), (X, 1), (E, 2), (E, 3)]),
    ],
)
def test_all_levels_compete_in_the_final_choice(plan, nodes):
    assert markov_tree(plan)[0] == nodes


def test_counts_of_nodes_and_levels():
    """SafeAILab's `depth` runs after level 1 was drawn; both count the root."""
    deep = [token for token, _ in markov_tree(EagleTree(2, 2, 11))[0]]
    assert len(deep) == 10 and len(markov_tree(SglangTree(2, 2, 7))[0]) == 6
    assert (EagleTree(7, 10, 60).levels, EagleTree(7, 10, 60).nodes) == (8, 59)
    assert (SglangTree(5, 8, 32).levels, SglangTree(5, 8, 32).nodes) == (5, 31)
    assert SglangTree(5, 8, 3).deepest == 2  # two nodes cannot be five levels deep


def test_what_each_node_attends_to():
    """Level 2 is A's two children, C in place 0 and D in place 1. D's ancestors are A; in place 1 stood B."""
    assert markov_tree(EagleTree(2, 2, 9))[1].looked == [[[A], [B]], [[A, C], [A, D]]]
    assert markov_tree(SglangTree(3, 2, 9))[1].looked == [[[A], [B]], [[A, C], [B, D]]]


# -- more nodes never accept less


@pytest.mark.parametrize("seed", range(12))
def test_more_nodes_of_the_same_beam_accept_no_less_at_any_row(easy, seed):
    """True of each row: the smaller choice is part of the larger. Not of a walk, whose rounds start elsewhere."""
    drafter, draw = easy[0], random.Random(seed)
    capture = guessed(drafter, tiny.capture(T=24, prompt=5, seed=seed))
    levels, top_k = draw.randint(1, 4), draw.randint(2, 4)
    small, large = sorted(draw.randint(2, top_k + (levels - 1) * top_k**2 + 1) for _ in range(2))
    for plan in (lambda n: EagleTree(levels - 1, top_k, n), lambda n: SglangTree(levels, top_k, n)):
        less, more = (
            all_trees(drafter, capture, plan(n))[1].follow(beyond(capture, levels)).ge(0).sum(1) for n in (small, large)
        )
        assert (less <= more).all() and more.sum() > 0


def beyond(capture: e3.Capture, levels: int) -> torch.Tensor:
    """The text after each scored row, [R, levels]; -2 beyond its end."""
    text = torch.cat([capture.token_ids, torch.full((levels,), -2)])
    return torch.stack([text[t + 2 : t + 2 + levels] for t in scored_rows(capture.loss_mask, 0).tolist()])


# -- what is refused


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: EagleTree(-1, 2, 2), "depth: -1, expected a whole number, 0 to"),
        (lambda: EagleTree(True, 2, 2), "depth: True"),
        (lambda: EagleTree(2, 0, 2), "top_k: 0, expected"),
        (lambda: EagleTree(1, 2, 8), "total_token: 8, expected a whole number, 2 to 7: 2 levels of top-k 2 propose 6 nodes"),
        (lambda: EagleTree(1, 2, 1), "total_token: 1"),
        (lambda: SglangTree(0, 2, 2), "steps: 0"),
        (lambda: SglangTree(2, 2, 8), "draft_tokens: 8, expected a whole number, 2 to 7"),
        (lambda: SglangTree(3, 1, 3), "draft_tokens: 3 with top_k 1 and 3 steps: SGLang makes them steps \\+ 1: give 4"),
    ],
)
def test_knobs_that_no_engine_takes_are_refused(make, says):
    with pytest.raises(e3.InputError, match=says):
        make()


def test_trees_that_a_drafter_cannot_draft_are_refused(easy, tmp_path):
    drafter, capture = easy
    with pytest.raises(e3.InputError, match="top_k: 41, but the drafter has 40 tokens"):
        tree_hits(drafter, capture, EagleTree(1, 41, 10))
    tensors = tiny.drafter_tensors() | {"mask_hidden": torch.randn(1, 1, 3 * tiny.H)}
    parallel = Drafter(e3.open_checkpoint(tiny.write_drafter(tmp_path / "parallel", tensors, mask_token_id=7)))
    with pytest.raises(e3.InputError, match="a parallel drafter"):
        tree_hits(parallel, capture, SglangTree(2, 2, 4))


@pytest.mark.parametrize("T", [1, 2, 3])
def test_very_short_samples_count_nothing_and_stop_nothing(easy, T):
    short = tiny.capture(T=T, prompt=1, name="short")
    assert e3.acceptance(easy[0], [tiny.capture(), short], SglangTree(2, 2, 4)).tau(2) >= 1


# -- live, on the demo

LIVE = [EagleTree(3, 4, 16), EagleTree(4, 2, 10), SglangTree(3, 2, 6), SglangTree(4, 4, 12)]
TOKENS = 24


@pytest.fixture(scope="module")
def drafter(target_folder):
    return Drafter(e3.open_checkpoint(ROOT / "data" / "drafters" / "healthy", target=target_folder))


@pytest.fixture(scope="module")
def texts(live_target, demo_captures):
    """The target's own greedy answers to two prompts, by `generate`, with their states."""
    made = []
    for capture in demo_captures[:2]:
        prompt = capture.token_ids[: int(capture.loss_mask.int().argmax())]
        asked = {"attention_mask": torch.ones_like(prompt[None]), "max_new_tokens": TOKENS, "do_sample": False}
        text = live_target.generate(prompt[None], **asked)[0]
        made.append((prompt, e3.record(live_target, text, len(prompt), (2, 15, 27), name=capture.name)))
    return made


@pytest.mark.parametrize("plan", LIVE)
def test_walk_is_live_decoding(live_target, drafter, texts, plan):
    branches = 0
    for prompt, capture in texts:
        live = e3.speculative_decode(live_target, drafter, prompt, plan, max_new_tokens=TOKENS)
        assert live.token_ids.tolist() == capture.token_ids.tolist()  # the target's own text, whatever was drafted
        hits = tree_hits(drafter, capture, plan)
        predicted = walk(hits.leading().numpy(), hits.start(), len(capture.token_ids) - 2, plan.deepest)
        assert list(live.accepted) == predicted
        chain = e3.chain_hits(drafter, capture, plan.deepest)
        branches += int((hits.leading() > chain.leading()).sum())
    assert branches > 0  # somewhere a second choice was the right one


def test_fast_equals_slow_on_the_demo(drafter, texts):
    capture = texts[0][1]
    for plan in (LIVE[0], LIVE[3]):
        check_against_slow(drafter, capture, plan, every=8)


def test_a_tree_on_a_target_with_windows_is_refused(live_target, drafter, texts, monkeypatch):
    monkeypatch.setattr(live_target.config, "sliding_window", 64, raising=False)
    with pytest.raises(e3.InputError, match="do not attend to all tokens"):
        e3.speculative_decode(live_target, drafter, texts[0][0], LIVE[0])
