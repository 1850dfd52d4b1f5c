"""How was this drafter trained? Hypotheses about what its files cannot say, scored on the same rows, told apart by a margin.

First which streams the slots of `fc` hold, all ordered choices; then every single change of `hypotheses`, on top of the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import perm

import pandas as pd
from tqdm import tqdm

from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..run.chain import chain_hits
from ..run.drafter import Drafter
from ..run.slots import Slots
from .changes import AS_IS, beginning, count, try_changes
from .finding import Findings
from .hypotheses import Hypothesis, name_of, streams_are
from .probed import MARGIN, judge_streams
from .ranking import ALPHA, Score, Shares, below, far_behind, prompts_needed, race, rank

CHOICES = 3000  # ordered choices of streams that are tried at most: 15 recorded ones, three at a time
SAMPLES = 32  # more are not needed to tell streams apart, and cost time
MORE = 96  # samples, with all their rows, for the best of the single changes that do better on those


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
