"""How was this drafter trained? Hypotheses about what its files cannot say, scored on the same rows, told apart by a margin.

So far it asks the first question: which streams were meant for the slots of `fc`, in which order.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import perm

import numpy as np
import pandas as pd
from scipy.stats import norm, wilcoxon
from tqdm import tqdm

from ..measure.accuracy import Accuracy
from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..run.chain import chain_hits
from ..run.drafter import Drafter
from .finding import Finding, Findings

ALPHA = 0.01  # a hypothesis must beat "as configured" at this level, after correction for how many were tried
CHOICES = 3000  # ordered choices of streams that are tried at most: 15 recorded ones, three at a time
POWER = 0.8  # chance to tell a true difference of the size seen, with as many prompts as are asked for
SAMPLES = 48  # more are not needed to tell streams apart, and cost time

Hypothesis = Callable[[Checkpoint, Recipe, Capture], tuple[Checkpoint, Recipe, Capture]]


def streams_are(streams: tuple[Label, ...]) -> Hypothesis:
    """The slots of `fc` were trained on these streams, in this order."""

    def apply(ckpt: Checkpoint, recipe: Recipe, capture: Capture) -> tuple[Checkpoint, Recipe, Capture]:
        return ckpt, recipe.replace(streams=streams), capture

    return apply


def stream_hypotheses(recipe: Recipe, labels: Sequence[Label]) -> Iterator[tuple[str, Hypothesis]]:
    """All ordered choices of `n_streams` among the streams that were recorded: name and hypothesis."""
    for streams in permutations(labels, recipe.n_streams):
        yield name_of(streams), streams_are(streams)


def name_of(streams: tuple[Label, ...] | None) -> str:
    return "streams " + (", ".join(f"r_{n}" if isinstance(n, int) else n for n in streams) if streams else "not said")


@dataclass(frozen=True)
class Probe:
    """Hypotheses ranked by step-1 accuracy on the same rows, and what follows."""

    table: pd.DataFrame  # by hypothesis: accuracy, low, high, p configured, p best
    streams: tuple[Label, ...]  # those that fit best; what it was trained on if `told`
    configured: tuple[Label, ...] | None  # of captures without labels: the slots as they were recorded
    findings: Findings

    @property
    def told(self) -> bool:
        """Whether the best choice is told from all others (as configured), or from the configured one, by more than noise."""
        return self.findings[0].level in ("ok", "fault")

    @property
    def playable(self) -> tuple[Label, ...]:
        """The configured streams where they were recorded, else the best choice: what "as configured" can be run on."""
        return self.configured if name_of(self.configured) in self.table.index else self.streams

    @property
    def playable_title(self) -> str:
        """What the playable streams may be called."""
        configured = self.playable == self.configured
        return "as configured" if configured else "on the best of those tried, the configured not being recorded,"

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
    ckpt: Checkpoint, captures: Sequence, streams: Sequence[int] | None = None, device: str = "cpu", dtype: str = "float32"
) -> Probe:
    """Which streams was the drafter trained on? All ordered choices among those recorded, at most 48 samples.

    `streams`: only these of the recorded ones, and the configured. Score: step-1 accuracy (argmax equals the target's next
    token). Against "as configured": signed-rank test over samples, multiplied by the number of hypotheses (Bonferroni).
    Captures whose streams have no labels can only tell their order. Raises InputError when there are fewer streams than the
    drafter takes, too many to try, or no two samples.
    """
    recipe, some = ckpt.recipe, captures[:SAMPLES]
    if len(some) < 2:
        raise InputError(f"captures: {len(some)} sample; the probe compares over samples and needs 2 or more, better 24")
    labels = [n for n in recorded(some) if streams is None or n in streams or n in (recipe.streams or ())]
    if len(labels) < recipe.n_streams:
        raise InputError(f"captures: {len(labels)} streams in every sample, but fc takes {recipe.n_streams}: record more")
    configured = recipe.streams if isinstance(labels[0], int) else tuple(labels[: recipe.n_streams])
    choices = perm(len(labels), recipe.n_streams)
    if choices > CHOICES:
        raise InputError(
            f"captures: {len(labels)} recorded streams are {choices:,} ordered choices, more than {CHOICES:,}: "
            "name some with streams="
        )
    base = Drafter(ckpt, device=device, dtype=dtype)
    scores: dict[str, tuple[tuple[Label, ...], Accuracy]] = {}
    for name, hypothesis in tqdm(list(stream_hypotheses(recipe, labels)), desc="probe: streams", unit="hypothesis", leave=False):
        _, tried, _ = hypothesis(ckpt, recipe, some[0])
        drafter = base.with_recipe(tried)
        scores[name] = tried.streams, Accuracy.of(chain_hits(drafter, capture, steps=1) for capture in some)
    table = rank(scores, configured)
    best = scores[table.index[0]][0]
    rival = next((name for name in table.index if name != name_of(configured)), None)
    found = {name: accuracy for name, (_, accuracy) in scores.items()}
    needed = prompts_needed(found.get(name_of(configured)), found.get(rival), len(found))
    return Probe(table, best, configured, Findings([judge(table, best, configured, labels, len(some), needed)]))


def rank(scores: dict[str, tuple[tuple[Label, ...], Accuracy]], configured: tuple[Label, ...] | None) -> pd.DataFrame:
    """Best first. `p configured` and `p best`: corrected p-values of the difference to the configured choice and to the best;
    nan for itself, and where the configured streams were not recorded.
    """
    found = {name: accuracy for name, (_, accuracy) in scores.items()}
    ranked = sorted(found, key=lambda name: -found[name].marginal(1))
    rows = []
    for name in ranked:
        low, high = found[name].interval(1)
        against = {"p configured": found.get(name_of(configured)), "p best": found[ranked[0]]}
        p = {column: p_value(found[name], other, len(found)) for column, other in against.items()}
        rows.append({"hypothesis": name, "accuracy": found[name].marginal(1), "low": low, "high": high, **p})
    return pd.DataFrame(rows).set_index("hypothesis")


def _by_sample(accuracy: Accuracy) -> np.ndarray:
    """Each sample's own step-1 accuracy, [S]."""
    return accuracy.right[:, 0] / accuracy.rows[:, 0].clip(min=1)


def p_value(a: Accuracy, b: Accuracy | None, tried: int) -> float:
    """Wilcoxon's signed-rank test over samples of step-1 accuracies, times `tried` (Bonferroni), at most 1.

    By ranks, so that few samples cannot accuse: the smallest p of S samples is 2 / 2^S.
    """
    if b is None or a is b:
        return float("nan")
    shares = [_by_sample(x) for x in (a, b)]
    return 1.0 if np.array_equal(*shares) else min(1.0, float(wilcoxon(*shares, method="exact").pvalue) * tried)


def prompts_needed(a: Accuracy | None, b: Accuracy | None, tried: int) -> int | None:
    """How many prompts like these would tell two choices apart, four times of five, at ALPHA corrected for `tried`.

    From the mean and the spread of the differences by sample (normal approximation), and no fewer than the test by ranks can
    ever accuse with (2 / 2^S). None where the two do not differ at all.
    """
    if a is None or b is None:
        return None
    apart = _by_sample(a) - _by_sample(b)
    if apart.mean() == 0:
        return None
    z = norm.isf(ALPHA / tried / 2) + norm.isf(1 - POWER)
    return max(fewest(tried), math.ceil((z * apart.std(ddof=1) / apart.mean()) ** 2))


def fewest(tried: int) -> int:
    """The fewest samples with which `tried` choices can be told apart at all: 13 for 24 of them, 20 for 2,730."""
    return math.ceil(math.log2(2 * tried / ALPHA))


def judge(
    table: pd.DataFrame,
    best_streams: tuple[Label, ...],
    configured: tuple[Label, ...] | None,
    labels: list[Label],
    samples: int,
    needed: int | None,
) -> Finding:
    """One finding: trained on other streams (`best_streams`, the table's first), on those configured, or no telling."""
    name, best = name_of(configured), table.index[0]
    recorded = f"only {name_of(tuple(labels))} were recorded; others cannot be judged"
    evidence = {f"step-1 accuracy, {best}": float(table.accuracy[best]), "hypotheses": len(table), "samples": samples}
    if name not in table.index:
        what = f"the configured {name} are not all recorded; of those that are, {best} fit best"
        if configured is None:
            what = f"config.json does not say which streams it takes; of those recorded, {best} fit best"
        return Finding(
            "open", "config", what, evidence, settle=f"captures with {name}" if configured else "the trainer's settings"
        )
    mine = float(table.accuracy[name])
    evidence[f"as configured, {name}"] = mine
    if table["p configured"][best] < ALPHA:
        alike = table.index[table["p best"] >= ALPHA]
        what = f"trained on {best}, but configured for {name}"
        if len(alike):
            what += f"; {len(alike)} other choices are as likely as the first, for instance {alike[0]}"
        evidence["p"] = float(table["p configured"][best])
        cost = f"step-1 accuracy {mine:.3f} in place of {table.accuracy[best]:.3f}"
        return Finding("fault", "config", what, evidence, cost=cost, change=config_line(best_streams), settle=recorded)
    if len(table) == 1:
        what = f"only the configured {name} were recorded, so there is nothing to compare them with"
        return Finding("note", "config", what, evidence, settle="more streams recorded")
    alike = table.index[table["p configured"] >= ALPHA]
    if len(alike) == 0:
        return Finding("ok", "config", f"trained on the {name} that it is configured for", evidence, settle=recorded)
    if best == name:
        what = (
            f"no recorded choice does better than the configured {name}, but {len(alike)} of {len(table) - 1} others do as well "
        )
        what += f"within noise, for instance {alike[0]}: these {samples} prompts do not prove which it was trained on"
    else:
        what = f"which streams it was trained on cannot be told from these {samples} prompts: {best} reach step-1 accuracy "
        what += f"{table.accuracy[best]:.3f}, the configured {name} {mine:.3f}, within noise"
    enough = f"about {needed} prompts like these" if needed and needed > samples else "other text, or other streams recorded"
    return Finding("note", "config", what, evidence, settle=f"{enough}; {recorded}")


def config_line(streams: tuple[Label, ...]) -> str:
    """The line of config.json that makes engines capture these streams, as boundary ids (id n captures r_n).

    Of slots without labels only their order can be told.

    vLLM reads boundary ids at the top level; SGLang reads them under `eagle_config` since sgl-project/sglang#25454, but takes
    ids that begin with 1 for ids of layers whose output is taken.
    """
    if not all(isinstance(n, int) for n in streams):
        return f"hand the recorded slots over in the order {', '.join(map(str, streams))}"
    line = f'"eagle_aux_hidden_state_layer_ids": {list(streams)}'
    return line + " (not sayable to SGLang: it adds 1 to ids that begin with 1)" if streams[0] == 1 else line
