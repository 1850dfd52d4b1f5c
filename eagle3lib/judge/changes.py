"""Single changes on top of the streams: every one of `hypotheses` raced on the beginnings of samples, the best on all rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..run.chain import Hits, chain_hits, fused_rows
from ..run.drafter import Drafter
from .finding import Finding
from .hypotheses import Hypothesis, Pair, ends_normed, single_changes
from .probed import GAIN, MARGIN, judge_changes
from .ranking import ALPHA, Score, Shares, below, far_behind, p_value, race, score_of

BEST = 6  # of the single changes that do better on the beginnings, how many are run on all rows
ROWS = 48  # rows scored of each sample: what comes later costs time and tells the same
STEPS = 3  # draft steps run where a change shows only after the first
AS_IS = "as configured"
LATER = AS_IS + ", steps 2 and 3"
LEARNED = "d2t learned from the text"


def beginning(capture: Capture, labels: Sequence[Label], rows: int = ROWS) -> Capture:
    """The sample up to its row number `rows` to score, its streams in memory: what is run in many ways is read once."""
    ends = capture.loss_mask[2:].nonzero()[:, 0]
    T = min(int(ends[min(rows, len(ends)) - 1]) + 2 + STEPS, len(capture.token_ids)) if len(ends) else 0
    streams = {n: capture.stream(n)[:T].clone() for n in labels}
    last = None if capture.last is None else capture.last[:T].clone()
    return Capture(capture.name, capture.token_ids[:T], capture.loss_mask[:T], streams, last, capture.last_kind)


def try_changes(
    drafter: Drafter,
    ckpt: Checkpoint,
    some: list[Capture],
    usable: Sequence[Capture],
    labels: list[Label],
    tried: int,
    aligned: bool = False,
    first: Hypothesis | None = None,
) -> tuple[pd.DataFrame, list[Hypothesis], list[Finding]]:
    """Every single change (on top of `first`): table of gains, the one that holds, and the finding.

    All on `some`, the beginnings of samples; the best of those that do better there on `usable`, all samples whole, where small
    gains and those that grow with the position show. `tried`: before these.
    """
    last = all(ends_normed(capture, drafter.recipe) for capture in usable)
    every = (h for h in single_changes(drafter, ckpt, labels, last) if not (aligned and h.kind == "rows"))
    ways = {h.name: h for h in every if not first or (h.step == 1 and h.name != first.name)}
    pairs = [first.apply(drafter, one) if first else (drafter, one) for one in some]
    scores, guesses = screen(pairs, ways)
    bases = {name: scores[as_it_is(h)] for name, h in ways.items()}
    gained = {name: scores[name].value - bases[name].value for name in ways if len(scores[name].rows) == len(some)}
    best = [name for name in sorted(gained, key=gained.get, reverse=True)[:BEST] if gained[name] > GAIN / 2]
    if best:
        whole = (beginning(one, labels, len(one.token_ids)) for one in usable)
        whole = (first.apply(drafter, one) if first else (drafter, one) for one in whole)
        bar = tqdm(whole, total=len(usable), desc=f"probe: the best {len(best)} on all rows", unit="sample", leave=False)
        counts = [count_ways(pair, ways, [AS_IS, LATER, *best])[0] for pair in bar]
        again = {name: score_of([one[name] for one in counts]) for name in counts[0]}
        scores |= {name: again[name] for name in best}
        bases |= {name: again[as_it_is(ways[name])] for name in best}
    learned, scores[LEARNED] = learned_map(guesses, some)
    ways[LEARNED], bases[LEARNED] = learned, scores[AS_IS]
    table = _gains(ways, scores, bases, tried, len(some))
    holds = table[(table.gained >= GAIN) & (table.p < ALPHA)].sort_values("gained", ascending=False)
    if LEARNED in holds.index:
        holds = _with_learned(holds, LEARNED, 3 * commonest(some))
    finding = judge_changes(table, holds, scores[AS_IS].value, len(some), tried + len(ways), ways)
    told = [ways[name] for name in holds.index[:1]]
    if told and first:
        told = [replace(told[0], apply=_both(first.apply, told[0].apply))]
    return table, told, [finding]


def as_it_is(way: Hypothesis) -> str:
    """What a change is compared with: the drafter without it, at step 1 or at steps 2 and 3."""
    return AS_IS if way.step == 1 else LATER


def screen(pairs: Sequence[Pair], ways: dict[str, Hypothesis]) -> tuple[dict[str, Score], list[Hits]]:
    """A race of all changes over drafters and samples: scores, of the drafter as it is too, and what that one guessed."""
    guesses: list[Hits] = []
    late = [name for name, way in ways.items() if way.step > 1]

    def hopeless(name: str, shares: Shares) -> bool:
        mine, base = shares[name], shares[LATER if name in late else AS_IS]
        return name in ways and (far_behind(mine, base, MARGIN) or below(mine - base, GAIN))

    def run(i: int, names: Sequence[str]) -> dict[str, tuple[int, int, float]]:
        counts, found = count_ways(pairs[i], ways, names)
        guesses.append(found)
        bar.update()
        return counts

    names = [AS_IS, *(name for name in ways if name not in late), LATER, *late]
    with tqdm(total=len(pairs), desc=f"probe: {len(ways)} single changes", unit="sample", leave=False) as bar:
        return race(names, len(pairs), run, hopeless, (AS_IS, LATER)), guesses


def count_ways(pair: Pair, ways: dict[str, Hypothesis], names: Sequence[str]) -> tuple[dict[str, tuple[int, int, float]], Hits]:
    """Right guesses, rows and mean log-probability of one sample under each of `names`, and the guesses without a change."""
    fused = fused_rows(*pair)
    found = chain_hits(*pair, STEPS, fused=fused, temperature=1.0)
    counts = {AS_IS: count(found, 1), LATER: count(found, 2)}
    for name in (name for name in names if name in ways):
        way = ways[name]
        d, c = way.apply(*pair)
        same = c is pair[1] and d.recipe.norm_before_fc == pair[0].recipe.norm_before_fc
        one = chain_hits(d, c, STEPS if way.step > 1 else 1, fused=fused if same else None, temperature=1.0)
        right, rows, log_p = count(one, way.step)
        counts[name] = right, rows, log_p if way.kind != "map" else float("nan")  # a map guesses other tokens
    return counts, found


def _gains(
    ways: dict[str, Hypothesis], scores: dict[str, Score], bases: dict[str, Score], tried: int, samples: int
) -> pd.DataFrame:
    """A row for each change: what it gains over the drafter without it, on the samples it was run on, and how surely."""
    rows = []
    for name, way in ways.items():
        mine, base = scores[name], bases[name]
        n = len(mine.rows)
        base = replace(base, right=base.right[:n], rows=base.rows[:n], log_p=base.log_p[:n])
        p = p_value(mine, base, tried + len(ways)) if n >= samples else float("nan")
        rows.append({"change": name, "kind": way.kind, "step": way.step, "accuracy": mine.value,
                     "gained": mine.value - base.value, "p": p, "samples": n})  # fmt: skip
    return pd.DataFrame(rows).set_index("change").sort_values(["samples", "gained"], ascending=False)


def _both(first: Callable, second: Callable) -> Callable:
    return lambda drafter, capture: second(*first(drafter, capture))


def count(one: Hits, step: int) -> tuple[int, int, float]:
    """Right guesses, rows and mean log-probability of the text's tokens at step 1, or at steps 2 and later together."""
    which = slice(0, 1) if step == 1 else slice(1, None)
    scored = one.scored[which]
    return int((one.hit[which] & scored).sum()), int(scored.sum()), float(one.log_p[which][scored].nanmean())


def learned_map(guesses: Sequence[Hits], some: Sequence[Capture]) -> tuple[Hypothesis, Score]:
    """Each draft id stands for the token that was the text's most often where it was guessed: learned on every other sample,
    scored on those between. Where it does better than d2t, head and forward are sound and d2t is not.
    """
    pairs = []
    for one, capture in zip(guesses, some, strict=True):
        rows = one.scored[0].nonzero()[:, 0]
        pairs.append((one.guess[0, rows], capture.token_ids[rows + 2]))
    right = []
    for i, (guess, truth) in enumerate(pairs):
        others = [pairs[j] for j in range(len(pairs)) if j % 2 != i % 2]
        learned = most_common(others)
        right.append(sum(learned.get(int(g), -1) == int(t) for g, t in zip(guess, truth, strict=True)))
    score = Score(np.array(right, dtype=np.int64), np.array([len(guess) for guess, _ in pairs], dtype=np.int64))
    learned = most_common(pairs)

    def apply(drafter: Drafter, capture: Capture) -> tuple[Drafter, Capture]:
        ids = [learned.get(int(i), int(i)) for i in drafter.target_ids]
        return drafter.but(target_ids=torch.tensor(ids, device=drafter.device)), capture

    return Hypothesis(LEARNED, "map", apply, "rebuild d2t: offsets to the ids the head was trained on"), score


def commonest(some: Sequence[Capture]) -> float:
    """The share of the most frequent token among those written: what saying it always would reach."""
    written = torch.cat([capture.token_ids[capture.loss_mask] for capture in some])
    return float(written.unique(return_counts=True)[1].max() / len(written))


def _with_learned(holds: pd.DataFrame, name: str, least: float) -> pd.DataFrame:
    """A learned map counts when it does better than a few words said always; then, where a target's head seems to hold too, head
    and d2t only disagree, and the head is sound: it would have taught no map otherwise.
    """
    if holds.accuracy[name] < least:
        return holds.drop(name)
    heads = holds.index[holds.kind == "head"]
    near = [head for head in heads if holds.gained[name] > holds.gained[head] / 2]
    return holds.drop(near) if near else holds


def most_common(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[int, int]:
    """Guess -> the token that most often was right there."""
    if not pairs:
        return {}
    both = torch.stack([torch.cat(part) for part in zip(*pairs, strict=True)], dim=1)  # [rows, 2]
    seen, times = both.unique(dim=0, return_counts=True)
    return {int(seen[i, 0]): int(seen[i, 1]) for i in times.argsort(stable=True)}  # the most frequent comes last
