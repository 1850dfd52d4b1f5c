"""Readings of what drafting gives: accept lengths, accuracies, speed. As in readings.py, each sentence from its numbers."""

from collections.abc import Mapping

import pandas as pd

from ..judge.checks import NOT_GREEDY
from ..judge.finding import Findings
from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from ..measure.intervals import told as shown
from ..measure.speed import RoundTime, Setting, flat, speed_table
from .readings import accept_length, caveats, upper


def acceptance(curves: Mapping[str, Acceptance], steps: int, live: pd.DataFrame, checks: Findings) -> str:
    """Accept length of each curve at K = `steps`, and beside what serving or live decoding gave. Markdown."""
    told, beside = caveats(checks) + accept_length(curves, steps), []
    for name, found in curves.items():
        rows = live[(live.name == name) & live.K.isin(list(found.walks))]
        apart = {int(K): tau - found.tau(int(K)) for K, tau in zip(rows.K, rows["accept length"], strict=True)}
        if apart:
            worst = max(apart, key=lambda K: abs(apart[K]))
            one = steps if steps in apart else worst
            most = f" (K = {', '.join(map(str, apart))}, most at K = {worst})" if len(apart) > 1 else ""
            beside.append(
                f"{name} {found.tau(one) + apart[one]:.2f} at K = {one}, **{apart[worst]:+.3f}** beside the prediction{most}"
            )
    if beside:
        told += " Measured where it is served, or live: " + "; ".join(beside) + "."
    for _, row in live[live.K == 0].iterrows():
        told += f" {row.source} says {row['accept length']:.2f}, and not at which number of draft steps."
    return told


def flat_from(curves: Mapping[str, Acceptance]) -> str:
    """For each curve, the K from which more steps add less than a hundredth. Markdown."""
    parts = []
    for name, found in curves.items():
        steps = sorted(found.walks)
        flat = next(K for K in steps if all(found.tau(more) - found.tau(K) < 0.01 for more in steps if more > K))
        parts.append(
            f"{name} " + (f"still grows at K = {flat}" if flat == steps[-1] else f"gains less than 0.01 beyond **K = {flat}**")
        )
    return upper("; ".join(parts)) + "."


def accuracies(
    found: Mapping[str, Accuracy], checks: Findings, claimed: pd.Series | None = None, value: float | None = None
) -> str:
    """Step-1 and later accuracies of each, and the claimed training figure beside the same figure here. Markdown.

    Not compared where `checks` say that the text is not the target's greedy one: trainers score against its first choice.
    """
    parts = []
    for name, acc in found.items():
        last = int(acc.rows.sum(0).nonzero()[0][-1]) + 1  # the last step that a text is long enough for
        at_first = shown(acc.marginal(1), *acc.interval(1), 3)
        parts.append(f"{name} **{at_first}** at step 1, {acc.marginal(last):.3f} at step {last}")
    first = next(iter(found.values()))
    known = first.known[:, 0].sum() / first.rows[:, 0].sum()
    told = f"Marginal accuracy: {'; '.join(parts)}. {known:.1%} of the target's tokens are in the draft vocabulary"
    told += ": no drafter of it can do better." if known < 1 else "."
    if claimed is None:
        return told
    trainer, figure = claimed.name
    told += f" Claimed: {trainer} `{figure}` = {value:.3f}"
    outside = claimed["a token outside the draft vocabulary is"]
    if any(check.where == NOT_GREEDY for check in checks):
        return told + "; it scores against the target's first choice, which this text does not follow: not compared."
    if claimed.here != claimed.here:
        why = "it needs the target and its last states" if outside == "replaced" else "no answer is long enough for all its steps"
        return told + f"; that figure cannot be computed from these captures: {why}."
    here = shown(claimed.here, claimed.low, claimed.high, 3)
    told += f"; the same figure here ({claimed.formula}; a token outside the draft vocabulary is {outside}) is **{here}**"
    if claimed.low != claimed.low:
        return told + ", without an interval."
    where = "inside" if claimed.low <= value <= claimed.high else "above" if value > claimed.high else "below"
    return told + f": the claim lies {where} the interval."


def where_it_works(positions: pd.DataFrame, requests: pd.DataFrame, mean: tuple[float, float, float], pooled: float) -> str:
    """Range over positions and over requests; the two means. Markdown."""
    lengths = requests["accept length"].dropna()
    told = (
        f"Requests range from {lengths.min():.2f} to {lengths.max():.2f}; their mean is **{shown(*mean)}**, the pooled accept "
        f"length {pooled:.2f}: pooling counts a request by its rounds. "
    )
    if len(positions) == 1:
        return told + f"All rounds start at positions {positions['from'].iloc[0]} to {positions.to.iloc[0]}."
    if positions.empty:
        return told + "No answer is long enough for a round of so many steps at every position."
    first, last = positions.iloc[0], positions.iloc[-1]
    apart = last.high < first.low or last.low > first.high
    change = "differs from" if apart else "cannot be told from" if last.low == last.low else "rests on one sample, beside"
    return told + (
        f"At positions {int(last['from'])} to {int(last.to)} it is {last['accept length']:.2f}, which {change} "
        f"{first['accept length']:.2f} at {int(first['from'])} to {int(first.to)}."
    )


def token_map(tokens: pd.DataFrame, name: str, steps: int) -> str:
    """How the answer's tokens came to be. Markdown."""
    accepted, own, rejected = tokens.what.eq("accepted").sum(), tokens.what.eq("target").sum(), tokens.guess.ge(0).sum()
    return (
        f"{name}, K = {steps}: **{accepted}** of {accepted + own} tokens were drafted, {own} the target wrote itself, one "
        f"in each round that did not end the text; in {rejected} rounds a draft was rejected."
    )


def state(states: Mapping[str, pd.DataFrame], shares: Mapping[str, Mapping[str, float]]) -> str:
    """For each drafter: how its state grows, what fc makes it of, and where attention goes. Markdown."""
    told = []
    for name, table in states.items():
        if table.empty:
            told.append(f"{name}: no answer is long enough for so many steps")
            continue
        mean = table.groupby("step").mean(numeric_only=True)
        norm, largest = mean["norm of the state"], max(shares[name], key=shares[name].get)
        told.append(
            f"{name}: the state's norm goes from {norm.iloc[0]:.0f} to {norm.iloc[-1]:.0f} in {len(norm)} steps "
            f"({norm.iloc[-1] / norm.iloc[0]:.1f} times); {largest} makes **{shares[name][largest]:.0%}** of fc's output; "
            f"attention on position 0 is {mean['attention on position 0'].iloc[0]:.0%} at step 1, and "
            f"{mean['on its own drafts'].iloc[-1]:.0%} goes to its own drafts at step {len(mean)}"
        )
    return "\n".join(f"* {upper(line)}." for line in told)


def case(measured: pd.DataFrame, times: RoundTime, baseline: float, claimed: float, asked: int) -> str:
    """What a first setting's own numbers say before anything is run. Markdown."""
    first, over = measured.iloc[0], speed_table(times, baseline, claimed, range(1, 16))["over baseline, flat"]
    need, most = first["break-even accept length"], first["highest possible"]
    ceiling, best = first["ceiling, tokens a second"], over.idxmax()
    if need > most:
        verdict = (
            f"**With K = {first.K:.0f} no drafter could have paid.** A round took {first['ms a round']:.1f} ms, as long as "
            f"{need:.2f} tokens without a drafter, and yields at most {most:.0f}: a perfect one would have reached {ceiling:.0f} "
            f"tokens a second beside {baseline:.0f}."
        )
    else:
        verdict = (
            f"**With K = {first.K:.0f} drafting pays from an accept length of {need:.2f} on**; it reached "
            f"{first['accept length']:.2f}, and a perfect drafter {ceiling:.0f} tokens a second."
        )
    return verdict + (
        f" {asked} draft tokens were asked for and {first.K:.0f} step made {first.K:.0f} of them. A drafter right {claimed:.1%} "
        f"of the time at every step could have reached **{over[best]:.2f} times** the baseline, at "
        f"K = {best}: the flag stood before the drafter."
    )


def speeds(table: pd.DataFrame, claimed: float) -> str:
    """From which K on each drafter pays, and the best K of the flat one. Markdown."""
    parts = []
    for name, told in (("flat", f"{claimed:.1%} at every step"), ("at most", "the bound"), ("perfect", "a perfect drafter")):
        ratio = table[f"over baseline, {name}"]
        pays = ratio.index[ratio > 1]
        best = ratio.idxmax()
        start = f"pays from **K = {pays[0]}** on" if len(pays) else "never pays"
        parts.append(f"{told} {start} and is best at K = {best} ({ratio[best]:.2f} times the baseline)")
    return upper("; ".join(parts)) + "."


def flag_and_mismatch(settings: list[Setting], table: pd.DataFrame, claimed: float) -> str:
    """What the number of draft steps lost by itself, and how much of the gap is left for the drafter's input. Markdown."""
    first, last = settings[0], settings[-1]
    joint = first.accept_length - 1  # at K = 1 all accepted drafts are first ones
    allowed = flat(claimed, last.steps)
    told = (
        f"At K = {first.steps} the accept length of {first.accept_length:.1f} says that the first draft was right in about "
        f"{joint:.0%} of the rounds, where training claimed {claimed:.1%}; "
        if first.steps == 1
        else ""
    )
    return upper(told) + (
        f"had it been right so often, {1 + claimed:.2f} tokens a round at K = 1 would still have been "
        f"{(1 + claimed) / (table['ms a round'][1] / 1000):.0f} tokens a second. At K = {last.steps} it reached "
        f"{last.accept_length:.1f}, where {claimed:.1%} at every step would give {allowed:.2f}: that gap is what a wrong input, "
        "or a drafter that is weak beyond its first step, can explain."
    )
