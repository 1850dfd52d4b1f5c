"""The answer: where it is broken, what, what it costs, why, what to do, how sure, and what would settle it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ..measure.acceptance import Acceptance
from ..measure.intervals import told
from ..measure.speed import paid, round_time
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.errors import BrokenError
from ..read.flags import Flags
from ..read.served import Served
from ..run.chain import Hits
from .answer import Answer
from .audit import audit_config
from .evidence import Evidence, Measured, gather, reached, settings, shape
from .finding import Finding, Findings
from .heads import beside_heads
from .probe import Probe
from .rules import RULES, nothing_given

FOUND, CANNOT_TELL, SOUND = 10, 11, 0  # exit codes


@dataclass(frozen=True)
class Verdict:
    """One answer, in the order in which people ask."""

    where: str  # one of PLACES
    what: str  # by name
    sentence: str
    cost: pd.DataFrame  # now, if mended, break-even, perfect drafter: accept length, low, high, tokens a second; all at K
    why: Findings  # each piece of evidence, for and against
    do: str
    sure: str
    settle: str
    steps: int  # K
    also: tuple[Answer, ...] = ()  # what else was found, after the first
    evidence: Evidence | None = None

    @property
    def exit_code(self) -> int:
        """For a gate: 0 nothing broken, 10 something found, 11 cannot tell."""
        return {"nothing": SOUND, "cannot tell": CANNOT_TELL}.get(self.where, FOUND)

    def table(self) -> pd.DataFrame:
        """The answer as seven rows."""
        cost = "; ".join(_cost_line(name, row) for name, row in self.cost.iterrows()) or "nothing to measure it from"
        rows = {
            "where": self.where, "what": self.what, f"cost, at K = {self.steps}": cost, "what to do": self.do or "-",
            "how sure": self.sure or "-", "what would settle it": self.settle or "-",
            "also": "; ".join(f"{one.where}, {one.what}: {one.sentence}" for one in self.also) or "-",
        }  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index", columns=["answer"])

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.table()}"

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return f"<p><b>{self.sentence}</b></p>" + self.table()._repr_html_()


def _cost_line(name: str, row: pd.Series) -> str:
    speed = row["tokens a second"]
    return f"{name} {told(row['accept length'], row.low, row.high)}" + (f" ({speed:.1f} tok/s)" if speed == speed else "")


def verdict(
    ckpt: Checkpoint | None = None,
    captures: Sequence[Capture] | None = None,
    served: Sequence[Capture] | None = None,
    logs: Sequence[Served] = (),
    flags: Flags | str | None = None,
    measured: Sequence[Measured] = (),
    baseline: float | int | None = None,
    claimed: float | int | None = None,
    claimed_by: Sequence[str] | None = None,
    steps: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    streams: Sequence[int] | None = None,
    probed: Probe | None = None,
) -> Verdict:
    """Where is it broken? From whatever is given; what is not given is asked for, never assumed.

    `captures`: states of the training side; `served`: as the server hands them to the drafter; `logs`: what `read_served` gives;
    `flags`: the server's launch line; `measured` and `baseline`: tokens a second with and without drafter; `claimed` and
    `claimed_by`: a training figure and whose, as ("SpecForge", "acc_0"). Told at K = `steps`, else as the flags, logs or
    measurements say, else 3. `streams`: only these of the recorded are tried, and the configured; `probed`: a probe of the same
    checkpoint and captures, where there is one already. Raises InputError for inputs that cannot be read.
    """
    try:
        found = gather(
            ckpt, captures, served, logs, flags, measured, baseline, claimed, claimed_by, steps, device, dtype, streams, probed
        )
    except BrokenError as error:
        return broken(error)
    answers = [answer for rule in RULES if (answer := rule(found))]
    accusing = [one for one in answers if one.accuses]
    first = (accusing or answers or [nothing_given(found)])[0]
    also = tuple(one for one in accusing if one is not first and (one.where, one.what) != (first.where, first.what))
    return Verdict(
        first.where, first.what, first.sentence, cost(found, first), why(found), first.do, first.sure, first.settle,
        found.steps, also, found,
    )  # fmt: skip


def broken(error: BrokenError) -> Verdict:
    """The verdict of a checkpoint whose own files contradict each other: it does not open."""
    finding = Finding("fault", "checkpoint", str(error), name=error.part)
    return Verdict(
        "checkpoint", error.part, f"The checkpoint is broken: {error}", pd.DataFrame(), Findings([finding]),
        "convert or export it anew", "certain: its files contradict each other", "", 0,
    )  # fmt: skip


def cost(found: Evidence, first: Answer) -> pd.DataFrame:
    """Accept length and tokens a second at K: now, if mended, where drafting begins to pay, and of a perfect drafter."""
    K, rows = found.steps, {}
    at_K = [one for one in settings(found) if one.steps == K]
    if at_K and found.run and abs(at_K[0].accept_length - found.run.accept_length) > 0.1:
        at_K = []  # not of one run
    seconds = at_K[0].round_time if at_K else _on_the_line(found, K)

    def row(name: str, tau: float, low: float = float("nan"), high: float = float("nan")) -> None:
        rows[name] = {
            "accept length": tau,
            "low": low,
            "high": high,
            "tokens a second": tau / seconds if seconds else float("nan"),
        }

    now = found.served or found.now
    if found.run and found.run.requests:
        row("now", found.run.accept_length, *Acceptance({K: found.run.requests}, {}).interval(K))
    elif found.run or at_K:
        row("now", found.run.accept_length if found.run else at_K[0].accept_length)
    elif now:
        row("now", *reached(now, K))
    if found.tree:
        row("by hand, with the server's tree", *found.tree)
    if first.mended and first.mended is not now:
        row("if mended", *reached(first.mended, K))
    if seconds and found.baseline:
        row("break-even", seconds * found.baseline)
        rows["break-even"]["tokens a second"] = found.baseline
    if rows:
        row("perfect drafter", K + 1.0)
    return pd.DataFrame.from_dict(rows, orient="index")


def _on_the_line(found: Evidence, steps: int) -> float | None:
    """A round's time at a K that was not measured, from two that were."""
    known = settings(found)
    return round_time(known).at(steps) if len({one.steps for one in known}) > 1 else None


def why(found: Evidence) -> Findings:
    """Each piece of evidence as a Finding, worst first."""
    pieces = [*found.flag_findings, *found.checks, *(replace(f, where="serving capture") for f in found.served_checks)]
    pieces += [Finding("note", "inputs", problem) for problem in found.problems]
    if found.ckpt:
        pieces += [finding for finding in audit_config(found.ckpt, found.probe) if finding.level != "note"]
    if found.probe:
        pieces += [*found.probe.findings, *found.probe.others]
    if found.now:
        pieces += [_curve(found.now, "as configured"), *_accepted(found)]
    if found.states:
        pieces.append(found.states)
    if found.match:
        pieces.append(_match(found))
    if found.tree:
        pieces.append(_tree(found))
    if (known := settings(found)) and found.baseline:
        for name, row in paid(known, found.baseline).iterrows():
            most = row["ceiling, tokens a second"]
            what = (
                f"{name}: a round takes {row['ms a round']:.1f} ms, so drafting pays from accept length "
                f"{row['break-even accept length']:.2f}; a perfect drafter would reach {most:.1f} tokens a second, the "
                f"baseline is {found.baseline:.1f}"
            )
            pieces.append(Finding("fault" if most < found.baseline else "note", "economics", what, dict(row)))
    return Findings(pieces)


def _curve(hits: Sequence[Hits], name: str) -> Finding:
    form, curve = shape(hits)
    words = {
        "nothing": "is near nothing at every step: head, map, embedding or layers, not the states alone",
        "rises": "rises with the step, as where the states are not those of training and the drafter leans on its own",
        "cliff": "falls off after step 1: what is fed back between steps, or training without unrolling",
        "flat": "does not rise, which speaks neither way",
    }
    what = f"marginal accuracy {name}, steps 1 to {len(curve)}: {', '.join(f'{m:.3f}' for m in curve)}; it {words[form]}"
    return Finding("warning" if form in ("nothing", "rises") else "note", "drafter", what, {"shape": form})


def _accepted(found: Evidence) -> list[Finding]:
    K, pieces = found.steps, []
    kinds = [("as configured, on these captures", found.now)]
    kinds += [("as mended, on these captures", found.mended)] if found.mended is not found.now else []
    kinds += [("on what the server hands over", found.served), ("as mended, on the same tokens", found.reference)]
    for name, hits in kinds:
        if hits:
            tau, *interval = reached(hits, K)
            what = f"accept length {name}: {told(tau, *interval)} at K = {K}"
            pieces.append(Finding("note", "drafter", what, {"accept length": tau, "samples": len(hits)}))
    return [*pieces, beside_heads(*reached(found.mended, K), K)]


def _match(found: Evidence) -> Finding:
    one = found.match
    seen = f"the server's accept length is {found.run.accept_length:.2f}, {one.predicted:.2f} was predicted"
    if not one.same_text:
        return Finding("note", "engine", f"{seen}, on other text as far as is known: {one.how}")
    if not one.differs:
        return Finding("ok", "engine", f"{seen}, on the same text: {one.how}")
    names = ", ".join(way.name for way in one.fits) or "none of the ways tried"
    return Finding("fault", "engine", f"{seen}, on the same text; its counts are those of: {names}")


def _tree(found: Evidence) -> Finding:
    """The tree that the flags ask for, beside the server's count."""
    flags = found.flags
    tree = f"{flags.steps} steps, top-k {flags.topk}, {flags.verified} tokens"
    what = f"the server's tree ({tree}): accept length {told(*found.tree)} predicted"
    if found.run:
        what += f", {found.run.accept_length:.2f} at the server, not known to be on the same text"
    sources = "the tree is SGLang's by its sources, not confirmed by a run of it"
    return Finding("note", "engine", what, {"accept length": found.tree[0]}, settle=sources)
