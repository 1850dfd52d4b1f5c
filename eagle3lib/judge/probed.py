"""What a probe's tables say, as Findings: of the streams, and of single changes."""

import pandas as pd

from ..read.capture import Label
from .finding import Finding
from .hypotheses import Hypothesis, config_line, name_of
from .ranking import ALPHA, fewest

MARGIN = 0.02  # the gain in accuracy for which other streams are accused: those of neighbouring layers are nearly alike
GAIN = 0.01  # the gain in accuracy that is worth a change: true and smaller differences are nothing to mend


def judge_changes(
    table: pd.DataFrame, holds: pd.DataFrame, accuracy: float, samples: int, tried: int, hypotheses: dict[str, Hypothesis]
) -> Finding:
    """One finding of the single changes: one that holds, or none, and whether any could have been told."""
    if len(holds):
        name = holds.index[0]
        alike = [n for n in holds.index[1:] if holds.gained[n] > holds.gained[name] - MARGIN / 2]
        what = f"{name}: it does better so by {holds.gained[name]:.3f} at step {holds.step[name]}"
        what += f"; {', '.join(alike)} as likely" if alike else ""
        evidence = {"accuracy so": float(holds.accuracy[name]), "gained": float(holds.gained[name]), "p": float(holds.p[name])}
        return Finding(
            "fault", "forward", what, evidence | {"tried": tried}, change=hypotheses[name].change, name=holds.kind[name]
        )
    best = table.sort_values("gained", ascending=False).iloc[0]
    evidence = {"tried": len(table), "samples": samples, "largest gain": float(best.gained), "its p": float(best.p)}
    if samples < fewest(tried):
        what = f"{samples} prompts cannot tell any of {len(table)} other ways to run it; {fewest(tried)} could"
        return Finding("note", "forward", what, evidence, settle=f"{fewest(tried)} prompts or more")
    what = (
        f"none of {len(table)} other ways to run it does better by {GAIN} and more than noise; accuracy {accuracy:.3f} as it is"
    )
    return Finding("note", "forward", what, evidence)


def judge_streams(
    table: pd.DataFrame,
    best: str,
    best_streams: tuple[Label, ...],
    configured: tuple[Label, ...] | None,
    labels: list[Label],
    samples: int,
    needed: int | None,
) -> Finding:
    """One finding: trained on other streams (`best_streams`, in the table as `best`), on those configured, or no telling."""
    name = name_of(configured)
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
    if table["p configured"][best] < ALPHA and table.accuracy[best] - mine >= MARGIN:
        alike = table.index[((table["p best"] >= ALPHA) | (table.index == table.index[0])) & (table.index != best)]
        what = f"trained on {best}, but configured for {name}"
        if len(alike):
            what += f"; {len(alike)} other choices are as likely, for instance {alike[0]}"
        evidence["p"] = float(table["p configured"][best])
        cost = f"step-1 accuracy {mine:.3f} in place of {table.accuracy[best]:.3f}"
        change = config_line(best_streams)
        return Finding("fault", "config", what, evidence, cost=cost, change=change, settle=recorded, name="streams")
    if len(table) == 1:
        what = f"only the configured {name} were recorded, so there is nothing to compare them with"
        return Finding("note", "config", what, evidence, settle="more streams recorded")
    alike = table.index[table["p configured"] >= ALPHA]
    if len(alike) == 0:
        return Finding("ok", "config", f"trained on the {name} that it is configured for", evidence, settle=recorded)
    least = fewest(len(table))
    if samples < least:
        what = (
            f"which streams it was trained on cannot be told from these {samples} prompts, whatever the differences: "
            f"{least} could tell {len(table)} choices"
        )
        return Finding("note", "config", what, evidence, settle=f"{_enough(needed, samples, least)}; {recorded}")
    if best == name:
        what = (
            f"no recorded choice does better than the configured {name}, but {len(alike)} of {len(table) - 1} others cannot be "
        )
        what += f"told from it, for instance {alike[0]}: these {samples} prompts do not prove which it was trained on"
    else:
        what = f"which streams it was trained on cannot be told from these {samples} prompts: {best} reach step-1 accuracy "
        what += f"{table.accuracy[best]:.3f}, the configured {name} {mine:.3f}, within noise"
    return Finding("note", "config", what, evidence, settle=f"{_enough(needed, samples, least)}; {recorded}")


def _enough(needed: int | None, samples: int, least: int) -> str:
    if needed and needed > samples:
        return f"about {needed} prompts like these"
    return f"{least} prompts or more" if samples < least else "other text, or other streams recorded"
