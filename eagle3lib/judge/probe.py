"""How was this drafter trained? Hypotheses about what its files cannot say, scored on the same rows, told apart by a margin.

First which streams the slots of `fc` hold, all ordered choices; then every single change of `hypotheses`, on top of the best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import perm

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..run.chain import Hits, chain_hits, fused_rows
from ..run.drafter import Drafter
from ..run.slots import Slots
from .finding import Finding, Findings
from .hypotheses import Hypothesis, ends_normed, name_of, single_changes, streams_are
from .probed import GAIN, MARGIN, judge_changes, judge_streams
from .ranking import ALPHA, Score, Shares, below, far_behind, p_value, prompts_needed, race, rank, score_of

CHOICES = 3000  # ordered choices of streams that are tried at most: 15 recorded ones, three at a time
SAMPLES = 32  # more are not needed to tell streams apart, and cost time
MORE, BEST = 96, 6  # samples, with all their rows, for the best of the single changes that do better on those
ROWS = 48  # rows scored of each sample: what comes later costs time and tells the same
STEPS = 3  # draft steps run where a change shows only after the first
AS_IS = "as configured"
LEARNED = "d2t learned from the text"


@dataclass(frozen=True)
class Probe:
    """Hypotheses ranked by accuracy on the same rows, and what follows."""

    table: pd.DataFrame  # streams, by hypothesis: accuracy at step 1, low, high, p configured, p best, samples
    streams: tuple[Label, ...]  # those that fit best; what it was trained on if `told`
    configured: tuple[Label, ...] | None  # of captures without labels: the slots as they were recorded
    findings: Findings  # of the streams: one
    changes: pd.DataFrame  # single changes on top of the streams: kind, accuracy gained, its p-value
    others: Findings  # of those
    found: tuple[Hypothesis, ...] = ()  # what is told to hold, streams included
    choices: tuple[Hypothesis, ...] = ()  # those of `table`, in its order

    @property
    def told(self) -> bool:
        """Whether the best choice is told from all others (as configured), or from the configured one, by more than noise."""
        return self.findings[0].level in ("ok", "fault")

    def without_found(self) -> "Probe":
        """The same, with nothing told to hold: what is named does not pay."""
        others = Findings([replace(f, level="note") for f in self.others])
        streams = Findings([replace(f, level="note") for f in self.findings])
        return replace(self, found=(), findings=streams, others=others)

    @property
    def playable(self) -> tuple[Label, ...]:
        """The configured streams where they were recorded, else the best choice: what "as configured" can be run on."""
        return self.configured if name_of(self.configured) in self.table.index else self.streams

    @property
    def playable_title(self) -> str:
        """What the playable streams may be called."""
        configured = self.playable == self.configured
        return AS_IS if configured else "on the best of those tried, the configured not being recorded,"

    @property
    def title(self) -> str:
        """What the best choice may be called."""
        return "as trained" if self.told else "best of those tried"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def recorded(captures: Sequence[Capture]) -> list[Label]:
    """The streams that every sample has: by n where they are labelled, else the slots in the order of the recording."""
    common = set.intersection(*(set(capture.streams) for capture in captures))
    labelled = sorted(n for n in common if isinstance(n, int))
    return labelled or [slot for slot in captures[0].streams if slot in common]


def probe(
    ckpt: Checkpoint,
    captures: Sequence,
    streams: Sequence[int] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    changes: bool = True,
    aligned: bool = False,
) -> Probe:
    """How was the drafter trained? All ordered choices among the recorded streams, then single changes; 32 samples
    at most, 96 for the best of the changes that do better on those.

    `streams`: only these of the recorded ones, and the configured; with `changes` false no more than that is asked. `aligned`:
    rows are known to be those of their tokens, so no shift is tried (a row ahead knows the next token, which helps any damaged
    drafter). Score: right guesses of the target's next token, at step 1, or at steps 2 and 3 for what shows only there, on up
    to 48 rows a sample. Against "as configured": signed-rank test over samples of their mean log-probability, times the number
    of hypotheses (Bonferroni), and a gain in right guesses of 0.02 for streams, 0.01 for single changes. Captures whose streams
    have no labels can only tell their order. Raises InputError when there are fewer streams than the drafter takes, too many to
    try, or no two samples.
    """
    if len(captures) < 2:
        raise InputError(f"captures: {len(captures)} sample; the probe compares over samples and needs 2 or more, better 24")
    recipe = ckpt.recipe
    opened = [captures[i] for i in range(min(MORE, len(captures)))]
    labels = [n for n in recorded(opened) if streams is None or n in streams or n in (recipe.streams or ())]
    if len(labels) < recipe.n_streams:
        raise InputError(f"captures: {len(labels)} streams in every sample, but fc takes {recipe.n_streams}: record more")
    choices = perm(len(labels), recipe.n_streams)
    if choices > CHOICES:
        raise InputError(
            f"captures: {len(labels)} recorded streams are {choices:,} ordered choices, more than {CHOICES:,}: "
            "name some with streams="
        )
    usable = [capture for capture in opened if capture.loss_mask[2:].any()]
    some = [beginning(capture, labels) for capture in usable[:SAMPLES]]
    if len(some) < 2:
        raise InputError("captures: no two samples with rows to score: no two tokens in a row are marked as the target's own")
    base = Drafter(ckpt, device=device, dtype=dtype)
    configured = recipe.streams if isinstance(labels[0], int) else tuple(labels[: recipe.n_streams])
    hypotheses = {h.name: h for h in map(streams_are, permutations(labels, recipe.n_streams))}
    scores = race_streams(base, some, hypotheses, labels, name_of(configured))
    table = rank(scores, name_of(configured))
    best = hypotheses[preferred(table, configured)]
    chosen = best.apply(base, some[0])[0].recipe.streams
    rival = next((name for name in table.index if name != name_of(configured)), None)
    needed = prompts_needed(scores.get(name_of(configured)), scores.get(rival), len(scores))
    finding = judge_streams(table, best.name, chosen, configured, labels, len(some), needed)
    found = [best] if finding.level == "fault" else []
    played = chosen if found or name_of(configured) not in table.index else configured
    on_top, gained, more = base.with_recipe(recipe.replace(streams=played)), pd.DataFrame(), []
    if changes:
        gained, told, more = try_changes(on_top, ckpt, some, usable, labels, len(scores), aligned)
        if told:  # once more, on top of the first: faults come in pairs
            _, second, _ = try_changes(on_top, ckpt, some, usable, labels, len(scores), aligned, told[0])
            told += second
        found += told
    return Probe(
        table,
        chosen,
        configured,
        Findings([finding]),
        gained,
        Findings(more),
        tuple(found),
        tuple(hypotheses[name] for name in table.index),
    )


def preferred(table: pd.DataFrame, configured: tuple[Label, ...] | None) -> str:
    """The best choice; of those as likely as it, the configured streams in another order: an order is mistaken more easily."""
    orders = {name_of(order) for order in permutations(configured or ())} - {name_of(configured)}
    near = (table["p best"] >= ALPHA) & (table.accuracy > table.accuracy.iloc[0] - MARGIN)
    alike = table.index[near & (table["p configured"] < ALPHA)]
    return next((name for name in (table.index[0], *alike) if name in orders), table.index[0])


def beginning(capture: Capture, labels: Sequence[Label], rows: int = ROWS) -> Capture:
    """The sample up to its row number `rows` to score, its streams in memory: what is run in many ways is read once."""
    ends = capture.loss_mask[2:].nonzero()[:, 0]
    T = min(int(ends[min(rows, len(ends)) - 1]) + 2 + STEPS, len(capture.token_ids)) if len(ends) else 0
    streams = {n: capture.stream(n)[:T].clone() for n in labels}
    last = None if capture.last is None else capture.last[:T].clone()
    return Capture(capture.name, capture.token_ids[:T], capture.loss_mask[:T], streams, last, capture.last_kind)


def race_streams(
    base: Drafter, some: list[Capture], hypotheses: dict[str, Hypothesis], labels: list[Label], configured: str
) -> dict[str, Score]:
    """Step-1 score of each choice of streams. What `fc` makes of each stream in each slot is computed once a sample."""
    bar = tqdm(total=len(some), desc=f"probe: {len(hypotheses)} choices of streams", unit="sample", leave=False)

    def run(i: int, names: Sequence[str]) -> dict[str, tuple[int, int, float]]:
        slots, counts = Slots(base, some[i], labels), {}
        for name in names:
            drafter, capture = hypotheses[name].apply(base, some[i])
            fused = slots.fused(drafter.recipe.streams)
            counts[name] = count(chain_hits(drafter, capture, 1, fused=fused, temperature=1.0), 1)
        bar.update()
        return counts

    def hopeless(name: str, shares: Shares) -> bool:
        leader = max(shares, key=lambda one: shares[one].mean())
        far = far_behind(shares[name], shares[leader], MARGIN)
        return name != configured and (far or below(shares[name] - shares[leader]))

    with bar:
        return race(list(hypotheses), len(some), run, hopeless, (configured,))


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
    hypotheses = {h.name: h for h in every if not first or (h.step == 1 and h.name != first.name)}
    guesses: list[Hits] = []

    def on(capture: Capture, names: Sequence[str], bar: tqdm) -> dict[str, tuple[int, int, float]]:
        pair = first.apply(drafter, capture) if first else (drafter, capture)
        fused, counts = fused_rows(*pair), {}
        guesses.append(chain_hits(*pair, STEPS, fused=fused, temperature=1.0))
        for name in names:
            if name.startswith(AS_IS):
                counts[name] = count(guesses[-1], 2 if name != AS_IS else 1)
                continue
            h = hypotheses[name]
            d, c = h.apply(*pair)
            same = c is pair[1] and d.recipe.norm_before_fc == pair[0].recipe.norm_before_fc
            one = chain_hits(d, c, STEPS if h.step > 1 else 1, fused=fused if same else None, temperature=1.0)
            right, rows, log_p = count(one, h.step)
            counts[name] = right, rows, log_p if h.kind != "map" else float("nan")  # a map guesses other tokens
        bar.update()
        return counts

    after = AS_IS + ", steps 2 and 3"
    early = [name for name, h in hypotheses.items() if h.step == 1]
    late = [name for name, h in hypotheses.items() if h.step > 1]

    def hopeless(name: str, shares: Shares) -> bool:
        mine, base = shares[name], shares[after if name in late else AS_IS]
        return name in hypotheses and (far_behind(mine, base, MARGIN) or below(mine - base, GAIN))

    with tqdm(total=len(some), desc=f"probe: {len(hypotheses)} single changes", unit="sample", leave=False) as bar:
        scores = race(
            [AS_IS, *early, after, *late], len(some), lambda i, names: on(some[i], names, bar), hopeless, (AS_IS, after)
        )
    learned, score = learned_map(guesses, some)
    bases = {name: scores[after if h.step > 1 else AS_IS] for name, h in hypotheses.items()}
    best = sorted(hypotheses, key=lambda name: bases[name].value - scores[name].value)[:BEST]
    best = [n for n in best if len(scores[n].rows) == len(some) and scores[n].value > bases[n].value + GAIN / 2]
    if best:
        with tqdm(usable, desc=f"probe: the best {len(best)} on all rows", unit="sample", leave=False) as bar:
            whole = [on(beginning(one, labels, len(one.token_ids)), [AS_IS, after, *best], bar) for one in usable]
        again = {name: score_of([counts[name] for counts in whole]) for name in (AS_IS, after, *best)}
        scores |= {name: again[name] for name in best}
        bases |= {name: again[after if hypotheses[name].step > 1 else AS_IS] for name in best}
    hypotheses[learned.name], scores[learned.name] = learned, score
    rows = []
    for name, h in hypotheses.items():
        mine, base = scores[name], bases.get(name, scores[AS_IS])
        n = len(mine.rows)
        base = replace(base, right=base.right[:n], rows=base.rows[:n], log_p=base.log_p[:n])
        gain = mine.value - base.value
        p = p_value(mine, base, tried + len(hypotheses)) if n >= len(some) else float("nan")
        rows.append(
            {"change": name, "kind": h.kind, "step": h.step, "accuracy": mine.value, "gained": gain, "p": p, "samples": n}
        )
    table = pd.DataFrame(rows).set_index("change").sort_values(["samples", "gained"], ascending=False)
    holds = table[(table.gained >= GAIN) & (table.p < ALPHA)].sort_values("gained", ascending=False)
    if learned.name in holds.index:
        holds = _with_learned(holds, learned.name, 3 * commonest(some))
    finding = judge_changes(table, holds, scores[AS_IS].value, len(some), tried + len(hypotheses), hypotheses)
    told = [hypotheses[name] for name in holds.index[:1]]
    if told and first:
        told = [replace(told[0], apply=_both(first.apply, told[0].apply))]
    return table, told, [finding]


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
