"""How was this drafter trained? Hypotheses about what its files cannot say, scored on the same rows, told apart by a margin.

So far it asks the first question: which streams were meant for the slots of `fc`, in which order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel
from tqdm import tqdm

from ..measure.accuracy import Accuracy, gather
from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..run.chain import chain_hits
from ..run.drafter import Drafter
from .finding import Finding, Findings

ALPHA = 0.01  # a hypothesis must beat "as configured" at this level, after correction for how many were tried
SAMPLES = 48  # more are not needed to tell streams apart, and cost time

Hypothesis = Callable[[Checkpoint, Recipe, Capture], tuple[Checkpoint, Recipe, Capture]]


def streams_are(streams: tuple[int, ...]) -> Hypothesis:
    """The slots of `fc` were trained on these streams, in this order."""

    def apply(ckpt: Checkpoint, recipe: Recipe, capture: Capture) -> tuple[Checkpoint, Recipe, Capture]:
        return ckpt, recipe.replace(streams=streams), capture

    return apply


def stream_hypotheses(recipe: Recipe, labels: Sequence[Label]) -> Iterator[tuple[str, Hypothesis]]:
    """All ordered choices of `n_streams` among the streams that were recorded: name and hypothesis."""
    for streams in permutations(sorted(n for n in labels if isinstance(n, int)), recipe.n_streams):
        yield name_of(streams), streams_are(streams)


def name_of(streams: tuple[int, ...] | None) -> str:
    return "streams " + (", ".join(f"r_{n}" for n in streams) if streams else "not said")


@dataclass(frozen=True)
class Probe:
    """Hypotheses ranked by step-1 accuracy on the same rows, and what follows."""

    table: pd.DataFrame  # hypothesis, accuracy, low, high, difference to "as configured", p (corrected)
    streams: tuple[int, ...]  # of the best hypothesis
    configured: tuple[int, ...] | None
    findings: Findings

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def probe(ckpt: Checkpoint, captures: Sequence[Capture], device: str = "cpu") -> Probe:
    """Which streams was the drafter trained on? All ordered choices among those recorded, at most 48 samples.

    Score: step-1 accuracy (argmax equals the target's next token). Against "as configured": paired t-test over samples,
    multiplied by the number of hypotheses (Bonferroni). Raises InputError when the captures have no labelled streams, fewer
    than the drafter takes, or no two samples.
    """
    recipe, some = ckpt.recipe, captures[:SAMPLES]
    if len(some) < 2:
        raise InputError(f"captures: {len(some)} sample; the probe compares over samples and needs 2 or more, better 24")
    labels = sorted(set.intersection(*({n for n in c.streams if isinstance(n, int)} for c in some)))
    if len(labels) < recipe.n_streams:
        raise InputError(
            f"captures: {len(labels)} labelled streams in every sample, but fc takes {recipe.n_streams}: record more"
        )
    base = Drafter(ckpt, device=device)
    scores: dict[str, tuple[tuple[int, ...], Accuracy]] = {}
    for name, hypothesis in tqdm(list(stream_hypotheses(recipe, labels)), desc="probe: streams", unit="hypothesis", leave=False):
        _, tried, _ = hypothesis(ckpt, recipe, some[0])
        drafter = base.with_recipe(tried)
        scores[name] = tried.streams, gather(chain_hits(drafter, capture, steps=1) for capture in some)
    table = rank(scores, recipe.streams)
    best = scores[table.index[0]][0]
    return Probe(table, best, recipe.streams, Findings([judge(table, best, recipe.streams, labels, len(some))]))


def rank(scores: dict[str, tuple[tuple[int, ...], Accuracy]], configured: tuple[int, ...] | None) -> pd.DataFrame:
    """Best first. `p` is the corrected p-value of the difference to "as configured"; nan where that was not recorded."""
    against = scores.get(name_of(configured), (None, None))[1]
    rows = []
    for name, (_, found) in scores.items():
        low, high = found.interval(1)
        row = {"hypothesis": name, "accuracy": found.marginal(1), "low": low, "high": high, "difference": np.nan, "p": np.nan}
        if against is not None and found is not against:
            row["difference"] = found.marginal(1) - against.marginal(1)
            shares = [a.right[:, 0] / a.rows[:, 0].clip(min=1) for a in (found, against)]
            same = np.array_equal(*shares)
            row["p"] = 1.0 if same else min(1.0, float(ttest_rel(*shares).pvalue) * len(scores))
        rows.append(row)
    return pd.DataFrame(rows).set_index("hypothesis").sort_values("accuracy", ascending=False, kind="stable")


def judge(
    table: pd.DataFrame, best: tuple[int, ...], configured: tuple[int, ...] | None, labels: list[int], samples: int
) -> Finding:
    """One finding: trained on other streams, on those configured, or no telling."""
    top, name, unrecorded = table.iloc[0], name_of(configured), "streams that were not recorded cannot be judged"
    evidence = {"step-1 accuracy " + table.index[0]: float(top.accuracy), "hypotheses": len(table), "samples": samples}
    if name not in table.index:
        what = f"the configured {name} are not all recorded; of those that are, {table.index[0]} fit best"
        return Finding("open", "config", what, evidence, settle=f"captures with {name}")
    evidence[f"as configured, {name}"] = float(table.loc[name].accuracy)
    if best == configured:
        next_p = float(table.p.iloc[1])
        evidence["p against the next best"] = next_p
        sure = next_p < ALPHA
        what = (
            f"trained on the {name} that it is configured for"
            if sure
            else f"no recorded streams fit better than the configured {name}"
        )
        return Finding("ok" if sure else "open", "config", what, evidence, settle="" if sure else "more samples")
    evidence["p"] = float(top.p)
    if top.p >= ALPHA:
        what = f"{table.index[0]} fit a little better than the configured {name}, within noise"
        return Finding("open", "config", what, evidence, settle=f"more samples than {samples}; {unrecorded}")
    return Finding(
        "fault", "config", f"trained on {table.index[0]}, but configured for {name}", evidence,
        cost=f"step-1 accuracy {table.loc[name].accuracy:.3f} in place of {top.accuracy:.3f}", change=config_line(best),
        settle=f"only r_{', r_'.join(map(str, labels))} were recorded; {unrecorded}",
    )  # fmt: skip


def config_line(streams: tuple[int, ...]) -> str:
    """The line of config.json that makes engines capture these streams, as boundary ids (id n captures r_n).

    vLLM reads boundary ids at the top level; SGLang reads them under `eagle_config` since sgl-project/sglang#25454, but takes
    ids that begin with 1 for ids of layers whose output is taken.
    """
    line = f'"eagle_aux_hidden_state_layer_ids": {list(streams)}'
    return line + " (not sayable to SGLang: it adds 1 to ids that begin with 1)" if streams[0] == 1 else line
