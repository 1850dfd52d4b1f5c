"""Everything that a verdict weighs, measured from whatever was given; no opinions here."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
import pandas as pd
from scipy.stats import wilcoxon
from tqdm import tqdm

from ..measure.acceptance import Acceptance, acceptance
from ..measure.accuracy import Accuracy
from ..measure.intervals import told
from ..measure.speed import Setting
from ..measure.trainers import CLAIM, sums_over_fewer_steps, trainer_figures, with_best_in_vocabulary
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..read.flags import Flags, read_flags
from ..read.served import Served
from ..run.chain import Hits, chain_hits, check_steps
from ..run.drafter import Drafter, check_finite
from ..run.tree import SglangTree
from .checks import check_captures
from .finding import Finding, Findings
from .flags import as_chosen, check_flags
from .heads import WEAKEST
from .hypotheses import Hypothesis, ends_normed, name_of, single_changes, streams_are
from .probe import Probe, probe
from .serving import Match, match
from .states import compare_captures

SAMPLES = 96  # of each set of captures: more narrow the intervals and change no verdict
STEPS = 3  # draft steps where nothing says how many were served
FEWEST = 4  # draft steps that the shape of the curve needs
UNROLLED = 8  # and trainers' figures, which sum over as many as were unrolled: 7 at most by default (SpecForge, SafeAILab)
ALPHA = 0.01
WORTH = 1.01  # a mend that gains less accept length is not worth an accusation
LENGTHS = ("len", "_ar", "tau")  # in the names of figures that are lengths; all others are shares
CHOICES = 24  # of streams, the best of those probed, that an engine may have run
OF_CAPTURE = ("rows", "scale", "residual", "norm of states")  # kinds of change that a recording can be guilty of


@dataclass(frozen=True)
class Measured:
    """One measured setting of a server: draft steps, tokens a second, accept length (nan where not told)."""

    steps: int
    tokens_per_second: float | int
    accept_length: float | int = float("nan")


@dataclass(frozen=True)
class Evidence:
    """What was given, and what was measured from it. None: not given, or not to be had from what was."""

    steps: int  # K that everything is told at
    ckpt: Checkpoint | None = None
    flags: Flags | None = None
    flag_findings: Findings = field(default_factory=lambda: Findings([]))
    measured: tuple[Measured, ...] = ()
    baseline: float | int | None = None  # tokens a second without drafter
    run: Served | None = None  # what the server counted, at K
    samples: int = 0
    place: str = "training capture"  # what `checks` and `probe` were made from
    checks: Findings = field(default_factory=lambda: Findings([]))
    probe: Probe | None = None
    now: list[Hits] | None = None  # as configured, on the captures
    mended: list[Hits] | None = None  # with all that the probe found; `now` where it found nothing
    served_checks: Findings = field(default_factory=lambda: Findings([]))
    states: Finding | None = None  # serving captures beside training's
    served: list[Hits] | None = None  # the drafter on what it is served
    reference: list[Hits] | None = None  # `mended` on the same tokens as `served`
    match: Match | None = None
    tree: tuple[float, float, float] | None = None  # accept length of the flags' tree, as configured, and its 95 % interval
    claimed: float | None = None
    claimed_by: tuple[str, str] | None = None
    figures: pd.DataFrame | None = None  # what each trainer would print here
    sums: pd.Series | None = None  # and of those that sum over steps, with fewer steps
    assumed: bool = False  # nothing given says K
    problems: tuple[str, ...] = ()  # what of the inputs could not be used, or does not go together

    def with_problem(self, problem: str) -> "Evidence":
        return replace(self, problems=(*self.problems, problem))


def gather(
    ckpt: Checkpoint | None,
    captures: Sequence[Capture] | None,
    served: Sequence[Capture] | None,
    logs: Sequence[Served],
    flags: Flags | str | None,
    measured: Sequence[Measured],
    baseline: float | int | None,
    claimed: float | int | None,
    claimed_by: Sequence[str] | None,
    steps: int | None,
    device: str,
    dtype: str,
    streams: Sequence[int] | None = None,
    probed: Probe | None = None,
) -> Evidence:
    """Measure all that can be measured. A minute on the demo; progress is shown."""
    check_kinds(ckpt, captures, served, logs, flags, measured)
    check_claim(claimed, (claimed_by or CLAIM)[1])
    if steps is not None:
        check_steps(steps)
    flags = read_flags(flags) if isinstance(flags, str) else flags
    flag_findings = check_flags(flags, ckpt) if flags else Findings([])
    flags = as_chosen(flags, ckpt) if flags else None
    logs = runs_of(ckpt, logs) if logs else []
    K = steps or _steps(flags, logs, measured)
    run = next((run for run in logs if run.steps in (K, None)), None)
    if logs and flags and flags.tree:  # answers count a tree's nodes, not its depth
        K, run = steps or flags.steps or K, logs[0]
    found = Evidence(
        steps=K, ckpt=ckpt, flags=flags, measured=tuple(measured), baseline=baseline and float(baseline), run=run,
        claimed=claimed, claimed_by=tuple(claimed_by) if claimed_by else None,
        flag_findings=flag_findings,
        assumed=not (steps or _steps_told(flags, logs, measured)),
    )  # fmt: skip
    found = _at_odds(found, logs)
    if ckpt is None:
        return found
    if not (captures or served):
        check_finite(ckpt)  # with captures the drafter is made, which sees it
        return found
    place = "training capture" if captures else "serving capture"
    if not captures:
        captures, served = served, None
    some = [captures[i] for i in range(min(SAMPLES, len(captures)))]
    every, some = len(some), _different(some)
    found = replace(found, place=place, samples=len(some), checks=check_captures(ckpt, some))
    if len(some) < every:
        found = found.with_problem(f"{every - len(some)} of {every} samples repeat the tokens of another and are left out")
    if unusable(found.checks):
        return found
    found, drafter = _drafted(found, some, device, dtype, streams, probed)
    if drafter is None:
        return found
    if served:
        found = _served(found, some, [served[i] for i in range(min(SAMPLES, len(served)))], drafter)
    if flags and flags.tree:
        return _of_a_tree(found, some, drafter)
    return found if run is None else _counted(found, some, drafter)


def check_kinds(ckpt=None, captures=None, served=None, logs=(), flags=None, measured=()) -> None:
    """Raises InputError for an input of another kind: most often a path, where what was read from it is expected."""
    one = [("ckpt", ckpt, Checkpoint, "open_checkpoint(folder)"), ("flags", flags, Flags | str, "the launch line")]
    several = [
        ("captures", captures, Capture, "read_captures(folder)"), ("served", served, Capture, "read_captures(folder)"),
        ("logs", logs, Served, "read_served(file)"), ("measured", measured, Measured, "a list of Measured(K, speed, length)"),
    ]  # fmt: skip
    wrong = [(name, value, how) for name, value, kind, how in one if value is not None and not isinstance(value, kind)]
    for name, value, kind, how in several:
        listed = value is None or (hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str))
        if not listed or (value is not None and len(value) and not isinstance(value[0], kind)):
            wrong.append((name, value, how))
    if wrong:
        name, value, how = wrong[0]
        raise InputError(f"verdict: {name} is a {type(value).__name__} ({str(value)[:60]!r}), expected {how}")


def check_claim(claimed: float | int | None, figure: str) -> None:
    """Raises InputError for a claim that its figure cannot be: a share above 1, or nothing above 0."""
    most = float("inf") if any(part in figure for part in LENGTHS) else 1.0
    if claimed is not None and not (0 < claimed <= most and claimed < float("inf")):
        expected = "a share, as 0.747 for 74.7 %" if most == 1 else "a length above 0"
        raise InputError(f"claimed: {claimed:g} as {figure}; expected {expected}: say whose figure it is with claimed_by")


def runs_of(ckpt: Checkpoint | None, runs: Sequence[Served]) -> list[Served]:
    """Those of `runs` that may be of this drafter as configured: they name no other drafter and no other streams; engines' logs
    name none. Without a checkpoint: those of the drafter and streams that come first.
    """
    if ckpt is None:
        return [run for run in runs if (run.drafter, run.streams) == (runs[0].drafter, runs[0].streams)]
    name, mine = ckpt.path.resolve().name, ckpt.recipe.streams
    return [run for run in runs if run.drafter in (None, name) and (mine is None or run.streams in (None, mine))]


def _different(some: list[Capture]) -> list[Capture]:
    """Samples of different tokens: copies of one prompt are not independent. Of one name, the later one's place is added."""
    texts, names, kept = set(), set(), []
    for i, one in enumerate(some):
        text = tuple(one.token_ids.tolist())
        if text not in texts:
            kept.append(one.replace(name=f"{one.name} ({i})") if one.name in names else one)
        texts.add(text)
        names.add(one.name)
    return kept


def _at_odds(found: Evidence, logs: Sequence[Served]) -> Evidence:
    """Inputs that do not go together, said."""
    K, flags, tau = found.steps, found.flags, found.run.accept_length if found.run else None
    if logs and found.run is None:
        found = found.with_problem(f"the log has no run at K = {K}, only at {', '.join(str(run.steps) for run in logs)}")
    elif len(logs) > 1:
        found = found.with_problem(f"of {len(logs)} runs in the logs the first at K = {K} is used")
    if flags and flags.steps and flags.steps != K:
        why = (
            "as the log counts: not one launch, or the engine overrode them" if found.run and found.run.steps == K else "as asked"
        )
        found = found.with_problem(f"the flags draft K = {flags.steps}; all is told at K = {K}, {why}")
    at_K = [one for one in found.measured if one.steps == K]
    if found.measured and not at_K:
        found = found.with_problem(f"no speed was measured at K = {K}")
    if tau and at_K and abs(at_K[0].accept_length - tau) > 0.1:
        seen = f"measured accept length {at_K[0].accept_length:g}, the log's {tau:.2f}, at K = {K}"
        found = found.with_problem(f"{seen}: not one run, so no speed is told of the log's")
    return found


def _steps(flags: Flags | None, logs: Sequence[Served], measured: Sequence[Measured]) -> int:
    said = _steps_told(flags, logs, measured)
    counted = [run.steps for run in logs if run.steps]
    if counted and flags and flags.steps not in counted:
        return counted[0]  # what was counted was drafted, whatever was asked
    return STEPS if not said or (STEPS in said and not (flags and flags.steps)) else said[0]


def _steps_told(flags: Flags | None, logs: Sequence[Served], measured: Sequence[Measured]) -> list[int]:
    return [K for K in (flags.steps if flags else None, *(run.steps for run in logs), *(one.steps for one in measured)) if K]


def unusable(checks: Findings) -> bool:
    """Whether a drafter cannot be run on these captures at all."""
    return any(check.name == "broken numbers" and check.level == "fault" for check in checks)


def _drafted(
    found: Evidence, some: list[Capture], device: str, dtype: str, streams, probed: Probe | None
) -> tuple[Evidence, Drafter | None]:
    """The probe, and the drafter as configured and as mended; the first of these, where it can be run."""
    try:
        aligned = found.ckpt.target is not None and (0 in some[0].streams or some[0].last is not None)
        aligned = aligned and not any(check.level == "fault" for check in found.checks)
        probed = probed or probe(found.ckpt, some, streams, device, dtype, aligned=aligned)
        drafter = Drafter(found.ckpt, found.ckpt.recipe.replace(streams=probed.playable), device, dtype)
    except InputError as error:
        if len(some) > 1:
            raise
        return found.with_problem(str(error)), None
    depth = max(found.steps, FEWEST if found.claimed is None else UNROLLED)
    now = _on_top(drafter, some, depth, ())
    mended = _on_top(drafter, some, depth, probed.found) if probed.found else now
    if probed.found and (why := _explains_nothing(reached(now, found.steps), reached(mended, found.steps))):
        found = found.with_problem(f"{probed.found[-1].name} gains at single steps, but {why}: left out")
        probed, mended = probed.without_found(), now
    figures = sums = None
    if found.claimed is not None and not any(check.name == "text" for check in found.checks):
        replaced = with_best_in_vocabulary(mended, some, found.ckpt)
        both = Accuracy.of(mended), Accuracy.of(replaced) if replaced else None
        figures, sums = trainer_figures(*both), sums_over_fewer_steps(*both)
    return replace(found, probe=probed, now=now, mended=mended, figures=figures, sums=sums), drafter


def _explains_nothing(now: tuple[float, float, float], mended: tuple[float, float, float]) -> str:
    """Why a mend is none, in words; "" where it is one. Each: accept length and its interval."""
    if mended[0] < WORTH * now[0]:
        return f"accept length goes from {now[0]:.3f} to {mended[0]:.3f} only"
    if mended[2] < WEAKEST:
        return f"accept length is {told(*mended)} then, less than any weak drafter is known for"
    return ""


def _on_top(drafter: Drafter, some: list[Capture], depth: int, ways: Sequence[Hypothesis]) -> list[Hits]:
    """Hits under several hypotheses at once."""
    drafted = []
    for capture in tqdm(some, desc="drafting", unit="sample", leave=False):
        pair = drafter, capture
        for way in ways:
            pair = way.apply(*pair)
        drafted.append(chain_hits(*pair, depth))
    return drafted


def _served(found: Evidence, some: list[Capture], at_server: list[Capture], drafter: Drafter) -> Evidence:
    """The drafter on the rows that the server hands it, beside the same tokens in training's captures."""
    recipe, ways = found.ckpt.recipe, found.probe.found
    trained = found.probe.streams if ways and ways[0].kind == "streams" else found.probe.playable
    checks = check_captures(found.ckpt, at_server)
    slots = tuple(at_server[0].streams)
    handed = slots if len(slots) == recipe.n_streams or recipe.streams is None else recipe.streams
    by_position = [one.in_slots(handed) for one in at_server]
    states = compare_captures(by_position, some, trained, ("the server", "training"))
    found = replace(
        found, served_checks=checks, states=None if states.level == "open" else replace(states, where="serving capture")
    )
    if found.states is None:
        found = found.with_problem("the served captures share no tokens with the others, so their states were not compared")
    if unusable(checks):
        return found
    drafter = drafter.with_recipe(recipe.replace(streams=None))
    others = tuple(way for way in ways if way.kind not in (*OF_CAPTURE, "streams"))
    served = _on_top(drafter, by_position, max(found.steps, FEWEST), others)
    names = {one.name: one for one in found.mended}
    same = [one.name for one in served if one.name in names and one.hit.shape == names[one.name].hit.shape]
    reference = [names[name] for name in same] if len(same) >= 2 else None
    return replace(found, served=[one for one in served if not reference or one.name in same], reference=reference)


def _counted(found: Evidence, some: list[Capture], drafter: Drafter) -> Evidence:
    """Whose counts the server prints. Ways to run the drafter: the streams that engines take, each single change."""
    recipe = drafter.recipe
    ways = [way for way in _engine_choices(found.probe, some[0]) if way.name != name_of(recipe.streams)]
    last = all(ends_normed(one, recipe) for one in some)
    ways += single_changes(drafter, found.ckpt, list(some[0].streams), last)
    expected = Acceptance.of(found.served or found.now)
    K = found.run.steps or found.steps
    if len(found.now[0].hit) < K:
        return found
    return replace(found, match=match(found.run, K, expected, drafter, some, ways))


def _of_a_tree(found: Evidence, some: list[Capture], drafter: Drafter) -> Evidence:
    """What the tree of SGLang's flags accepts on these captures. A server's counts of a tree are set beside this, not held
    against every way to run the drafter: that this library's trees are SGLang's to the last node is not confirmed (run/tree.py).
    """
    flags = found.flags
    if flags.engine != "SGLang":
        return found.with_problem(f"the trees of {flags.engine} are not modelled: nothing is predicted for the server's")
    if not (flags.steps and flags.topk and flags.verified):
        return found.with_problem("the server drafts a tree that its flags do not tell in full: nothing is predicted for it")
    try:
        plan = SglangTree(flags.steps, flags.topk, flags.verified)
        drafted = acceptance(drafter, some, plan)
        return replace(found, tree=(drafted.tau(plan.deepest), *drafted.interval(plan.deepest)))
    except InputError as error:
        return found.with_problem(f"the server's tree is not predicted: {error}")


def _engine_choices(probed: Probe, sample: Capture) -> list[Hypothesis]:
    """Streams that an engine may have joined: those a layer or two off (sgl-project/sglang#25454), the same in another order, and
    the best of those probed.
    """
    used, there = probed.playable, set(sample.streams)
    likely = [tuple(n + by for n in used) for by in (1, -1)] if all(isinstance(n, int) for n in used) else []
    likely += list(permutations(used))
    found = {name_of(streams): streams_are(streams) for streams in likely if set(streams) <= there}
    return list((found | {way.name: way for way in probed.choices[:CHOICES]}).values())


def reached(hits: Sequence[Hits], steps: int) -> tuple[float, float, float]:
    """Accept length at K = `steps`, and its 95 % interval."""
    accepted = Acceptance.of(hits)
    return accepted.tau(steps), *accepted.interval(steps)


def shape(found: Sequence[Hits]) -> tuple[str, list[float]]:
    """The curve of marginal accuracies in a word, and the curve: "nothing", "rises", "cliff" or "flat".

    Rises: step 3 above step 1; cliff: step 2 below a third of step 1; both by more than noise (signed-rank test over
    samples). With true tokens fed a drafter that was handed wrong states recovers with the step, a weak one does not.
    """
    counted = Accuracy.of(found)
    curve = [counted.marginal(step) for step in range(1, counted.rows.shape[1] + 1)]
    if counted.interval(1)[1] < 0.03 and max(curve[:FEWEST]) < 0.05:
        return "nothing", curve
    enough = (counted.rows[:, :3] > 0).all(1)
    shares = counted.right[enough, :3] / counted.rows[enough, :3]
    if len(shares) < 2:
        return "flat", curve
    if shares[:, 2].mean() > 1.25 * shares[:, 0].mean() and _told(shares[:, 2], shares[:, 0]):
        return "rises", curve
    if shares[:, 1].mean() < shares[:, 0].mean() / 3 and _told(shares[:, 0], shares[:, 1]):
        return "cliff", curve
    return "flat", curve


def _told(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a != b).any()) and bool(wilcoxon(a, b).pvalue < ALPHA)


def lower(b: Sequence[Hits], a: Sequence[Hits], steps: int) -> tuple[bool, float]:
    """Whether accept length is lower in `b` than in `a` on the same tokens, by more than noise and 2 %; rounds b / a."""
    mine, theirs = (Acceptance.of(x).counts(steps).sum(1).astype(float) for x in (b, a))
    more = float(mine.sum() / theirs.sum())
    return more > 1.02 and _told(mine, theirs), more


def settings(found: Evidence) -> list[Setting]:
    """The measured settings that can be: accept length told, from 1 to K + 1."""
    good = (one for one in found.measured if one.steps and 1 <= one.accept_length <= one.steps + 1)
    return [Setting(one.steps, float(one.tokens_per_second), float(one.accept_length)) for one in good]
