"""Readings: the sentence that stands beside a figure, written from the numbers that the figure shows."""

import re
from collections.abc import Mapping

import pandas as pd

from ..judge.checks import NEAR
from ..judge.finding import Finding, Findings
from ..judge.probe import Probe
from ..judge.recording import streams_to_record
from ..measure.acceptance import Acceptance
from ..measure.intervals import told as shown
from ..read.checkpoint import Checkpoint
from ..read.recipe import Recipe
from .figures import label

STANDS_OUT = 5.0  # a slot whose median norm is so many times off the other side's is worth a sentence
DEFAULT = "the engine's default"
SOUND = 0.98  # of greedy text; the last layer's own state gives 0.84 when the layer before is recorded in its place


def _streams(streams) -> str:
    return ", ".join(map(label, streams))


def by_default(recipe: Recipe) -> bool:
    """Whether nobody configured the streams: config.json says nothing, so they are the engine's default."""
    return recipe.streams is not None and recipe.sources["streams"].startswith("absent")


def title(probe: Probe, default: bool) -> str:
    """What the streams that it can be run on unchanged may be called. `default`: `by_default`."""
    return f"with {DEFAULT}" if default and probe.playable == probe.configured else probe.playable_title


def answer(finding: Finding, probe: Probe, as_configured: str, checks: Findings, default: bool = False) -> str:
    """The notebook's answer: cause, cost, change, and how it is known; no cause where none could be told. Markdown.

    `finding`: of `mismatch`; `as_configured`: the accept length reached with the configured streams, in words; `default`:
    `by_default`.
    """
    told = probe.findings[0]
    mine = _as_configured(probe)
    beside = f", {DEFAULT if default else 'the configured one'} {mine:.3f}" if mine == mine else ""
    known = (
        f"Found by scoring {len(probe.table)} ordered choices of streams on the same rows: the best reaches step-1 accuracy "
        f"{probe.table.accuracy.iloc[0]:.3f}{beside}."
    )
    if not probe.told:
        said = f"**{upper(told.what)}.** {as_configured} To settle it: {told.settle}. {known}"
    elif finding.level == "fault":
        mend = f"To mend it, write `{finding.change}` in the drafter's `config.json`, in place of the line that is there."
        mend = mend if "aux" in finding.change else f"To mend it, {finding.change}."
        said = f"**{upper(finding.what)}.** {upper(finding.cost)}. {mend} {known}"
    else:
        cost = f" {upper(finding.cost)}." if finding.cost else ""
        said = f"**{upper(finding.what)}.**{cost} {known}"
    return caveats(checks) + said


def plain(text: str) -> str:
    """Somebody's words, a sample's name say, as they are: nothing in them is Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>$|~#])", r"\\\1", text)


def caveats(checks: Findings, where: str = "") -> str:
    """What must stand before every number from these captures, or nothing. Markdown."""
    return "".join(f"**Mind{where}: {plain(check.what)}.** " for check in checks)


def _as_configured(probe: Probe) -> float:
    """Accuracy on the configured streams; nan where they were not recorded."""
    name = "streams " + _streams(probe.configured or ())
    return float(probe.table.accuracy.get(name, float("nan")))


def upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def norms(summary: pd.DataFrame, trained: tuple, served: tuple, left: str = "as trained", right: str = "as served") -> str:
    """What the norms of the two sets of slots say, slot by slot, with their medians. Markdown."""
    if tuple(trained) == tuple(served):
        medians = ", ".join(f"{label(n)} {summary.loc[n, 'median']:.3g}" for n in trained)
        return f"The same streams on both sides; median row norms: {medians}."
    lines = []
    for slot, (mine, theirs) in enumerate(zip(trained, served, strict=True), start=1):
        a, b = summary.loc[mine, "median"], summary.loc[theirs, "median"]
        times = max(a, b) / min(a, b)
        size = f"**{times:.0f} times** {'larger' if b > a else 'smaller'}" if times >= STANDS_OUT else f"{b / a:.1f} times"
        apart = f"slot {slot}: rows of norm {a:.3g} ({label(mine)}) {left}, {b:.3g} ({label(theirs)}) {right}, {size}"
        lines.append(f"slot {slot} is {label(mine)} in both" if mine == theirs else apart)
    return upper("; ".join(lines)) + "."


def accept_length(curves: Mapping[str, Acceptance], steps: int) -> str:
    """Accept length of each curve at K = `steps`, with its interval. Markdown."""
    prompts = {name: f"{len(found.counts(steps))} prompts" for name, found in curves.items()}
    alike, parts = len(set(prompts.values())) == 1, []
    for name, found in curves.items():
        each = "" if alike else f" ({prompts[name]})"
        parts.append(f"{name} **{shown(found.tau(steps), *found.interval(steps))}**{each}")
    over = next(iter(prompts.values())) if alike else "prompts"
    return f"Tokens a round at K = {steps}, with 95 % intervals over {over}: " + "; ".join(parts) + "."


def start(table: pd.DataFrame, missing: list[str]) -> str:
    """What the files at hand can answer, and what the next ones would decide. Markdown."""
    yes = table["can it be answered"].eq("yes")
    told = f"**{yes.sum()} of {len(table)} questions can be answered with these files.**"
    told += "" if yes.all() else f" Not yet: {', '.join(table.index[~yes])}."
    return told + (f" Not at hand: {'; '.join(missing)}." if missing else "")


def recording(ckpt: Checkpoint | None, plan: pd.DataFrame | None) -> str:
    """How large the recording is, and of what. Markdown."""
    if ckpt is None or plan is None:
        return "Give a drafter's folder (`CHECKPOINT`) and this section says what to record for it."
    return (
        f"For {ckpt.path.name}: **{plan.MB.sum():.0f} MB** in all, of which {plan.MB.iloc[1]:.0f} MB are the streams "
        f"{_streams(streams_to_record(ckpt))}: {DEFAULT if by_default(ckpt.recipe) else 'the configured ones'}, their "
        "neighbours, the embedding" + (" and the last." if ckpt.target else "; how many layers the target has was not given.")
    )


def checkpoint(ckpt: Checkpoint, tensors: pd.DataFrame) -> str:
    """What the checkpoint is, in a paragraph. Markdown."""
    r = ckpt.recipe
    own = tensors[tensors.provenance == "its own"]
    parameters = sum(ckpt.tensor(name).numel() for name in own.index)
    copied = [f"`{name}`" for name in tensors.index[tensors.provenance == "the target's"]]
    left = [f"`{name}` ({why})" for name, why in tensors.provenance.items() if why.startswith("untouched")]
    layers = "one layer" if r.n_layers == 1 else f"{r.n_layers} layers"
    streams = f"{_streams(r.streams)} ({r.sources['streams']})" if r.streams else f"{r.n_streams} streams that nobody names"
    told = (
        f"**An EAGLE-3 drafter of {layers}, as {ckpt.layout.name} writes it, "
        f"for a target {r.target_hidden_size:,} wide. It asks for {streams}.**",
        f"{len(tensors)} tensors are used, {len(ckpt.ignored)} ignored, none unexplained; {parameters / 1e6:.1f} M parameters in "
        f"{len(own)} of them are its own.",
        f"The target's, by value: {', '.join(copied)}." if copied else "None is the target's." if ckpt.target else "",
        f"**Left as they were made, so never trained: {', '.join(left)}.**" if left else "None looks as if it was never trained.",
        f"It knows {r.draft_vocab_size:,} of {r.vocab_size:,} tokens ({r.draft_vocab_size / r.vocab_size:.1%}).",
        "" if ckpt.target else "No target was given, so what is the target's could not be told.",
    )
    return " ".join(filter(None, told))


def flow(recipe: Recipe) -> str:
    """The widths a row goes through. Markdown."""
    r = recipe
    widths = (f"{r.n_streams} x {r.target_hidden_size:,}", f"{r.hidden_size:,}", f"2 x {r.hidden_size:,}", f"{r.hidden_size:,}")
    return (
        f"Widths along the way: **{' -> '.join(widths)} -> {r.draft_vocab_size:,} draft tokens of {r.vocab_size:,}**. Heads: "
        f"{r.n_heads} for queries, {r.n_kv_heads} for keys and values, of {r.head_dim} channels."
    )


def sizes(tensors: pd.DataFrame) -> str:
    """How the file's bytes divide. Markdown."""
    by_kind = tensors.MB.groupby(tensors.provenance.str.split(":").str[0]).sum().sort_values(ascending=False)
    parts = ", ".join(f"{kind} {megabytes:.1f} MB" for kind, megabytes in by_kind.items())
    top = tensors.MB.idxmax()
    return f"**{tensors.MB.sum():.1f} MB** in {len(tensors)} tensors: {parts}. The largest is `{top}` ({tensors.MB[top]:.1f} MB)."


def slots(table: pd.DataFrame) -> str:
    """Which recorded streams are the embedding, and how far the others are from it. Markdown."""
    if table.empty:
        return "Not measured: no stream is as wide as the embedding."
    away = table["distance to the embedding"]
    near, others = away[away < NEAR], away[away >= NEAR]
    if near.empty:
        return "No recorded stream is the embedding of its own tokens."
    nearest = f"; the nearest of the others is {others.min():.0f} embedding norms away" if len(others) else ""
    return f"{_streams(near.index)} is the embedding of its own tokens (distance {near.iloc[0]:.1g}){nearest}."


def at_server(
    reference: pd.DataFrame, server: pd.DataFrame, handed: Probe, there: dict[str, Acceptance], steps: int, checks: Findings
) -> str:
    """What the server hands over: the probe's finding on its states, accept lengths, and sizes beside the reference. Markdown.

    `reference`, `server`: `norm_summary`; `handed`: the probe on the server's states; `there`: accept length there, and here.
    """
    parts = []
    for stream, median in server["median"].items():
        nearest = (reference["median"] / median).apply(lambda ratio: max(ratio, 1 / ratio)).idxmin()
        parts.append(f"{label(stream)} {median:.3g} (nearest in size: {label(nearest)}, {reference['median'][nearest]:.3g})")
    told = handed.findings[0]
    change = f" To mend it: {told.change}." if told.level == "fault" else f" To settle it: {told.settle}." if told.settle else ""
    return (
        f"{caveats(checks)}**On the server's states: {told.what}.**{change} {accept_length(there, steps)} "
        f"Median row norms there: {'; '.join(parts)}" + ". Sizes hint, they do not prove."
    )


def channels(table: pd.DataFrame) -> str:
    """The stream in which a single channel holds most. Markdown."""
    top = table.share.idxmax()
    return (
        f"The largest: channel {table.channel[top]} holds **{table.share[top]:.0%}** of {label(table.stream[top])}, "
        f"{table['times the median channel'][top]:.0f} times the median channel. A drafter without a norm before `fc` sees "
        "these few channels first; a stream with other spikes than in training is another stream."
    )


def positions(norms: pd.DataFrame) -> str:
    """How much louder position 0 is than the rest, for the stream where that is most. Markdown."""
    first = norms[norms.position == 0].groupby("stream").norm.median()
    times = (first / norms[norms.position > 0].groupby("stream").norm.median()).sort_values()
    (least, most), (low, high) = (label(times.index[i]) for i in (0, -1)), times.iloc[[0, -1]]
    if high < STANDS_OUT:
        return f"Position 0 is as loud as the others: at most {high:.1f} times their median, in {most}."
    return (
        f"Position 0 is an attention sink: in {most} its norm is **{high:.0f} times** the median of the others, in {least} "
        f"{low:.1f} times. It belongs to no token, and medians here leave it out."
    )


def distributions(norms: pd.DataFrame) -> str:
    """How wide the row norms of each stream spread. Markdown."""
    kept = norms[norms.position > 0].groupby("stream").norm
    variation = (kept.std() / kept.mean()).sort_values()
    parts = ", ".join(f"{label(stream)} {value:.2f}" for stream, value in variation.items())
    return f"Standard deviation over mean of the row norms: {parts}."


def probe(probe: Probe, default: bool = False) -> str:
    """How far the best hypothesis is ahead of the next, and of the configured one. `default`: `by_default`. Markdown."""
    table = probe.table
    if len(table) == 1:
        return f"Only one choice was recorded, {table.index[0]}: step-1 accuracy {table.accuracy.iloc[0]:.3f}, beside nothing."
    best, second = table.iloc[0], table.iloc[1:].accuracy.idxmax()
    dropped = table.samples[second] < best.samples
    told = (
        f"Of {len(table)} ordered choices, **{table.index[0]}** reaches {shown(best.accuracy, best.low, best.high, 3)}, "
        f"the next, {second}, {table.accuracy[second]:.3f}"
        + (f" on the {table.samples[second]} prompts after which it was dropped" if dropped else "")
    )
    mine = _as_configured(probe)
    p = table["p configured"].iloc[0]
    configured = f"with {DEFAULT}" if default else "as configured"
    return told + (f"; {configured} it is {mine:.3f} (corrected p of the difference: {p:.1g})." if p == p else ".")


def lens(summary: pd.DataFrame) -> str:
    """What each stream predicts by itself, and whether the recording is sound. Markdown."""
    parts = ", ".join(f"{label(s)} {share:.3f}" for s, share in summary.agreement.items() if s != "last")
    told = f"Through the target's own norm and head each stream gives the text's next token in this share of rows: {parts}."
    if "last" not in summary.index:
        return told
    last = summary.agreement["last"]
    sound = "text, tokens and states belong together, and the text is the target's own greedy one"
    unsound = (
        "the text is not the target's own greedy one (sampled, or another model's), or rows and tokens do not belong together"
    )
    return f"{told} The last state gives it in **{last:.3f}**: {sound if last > SOUND else unsound}."
