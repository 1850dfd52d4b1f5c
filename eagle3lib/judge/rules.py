"""From evidence to an answer: one rule for each place where it can be broken, in the order in which they are believed.

What stands in files and flags comes first, then what a recording says against itself, then what the probe found, the serving
side, and at last what no wiring explains. No rule accuses without a margin; where two places explain the same, none is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..measure.acceptance import Acceptance
from ..measure.intervals import told
from ..measure.speed import paid, round_time
from ..run.chain import Hits
from .evidence import OF_CAPTURE, Evidence, lower, settings, shape
from .finding import Findings
from .heads import lowest
from .hypotheses import Hypothesis, config_line
from .ranking import fewest

PLACES = (
    "checkpoint", "training capture", "serving capture", "engine", "flags", "metric definition", "economics",
    "training or text", "nothing", "cannot tell",
)  # fmt: skip
WEAKEST = 1.2  # the lowest accept length that a published or reported weak drafter has, at any K (NickL77/BaldEagle#17)
TEXT = 0.1  # a server's text may well cost so much of the accepted drafts; below that nothing is asked
NOTHING = 1.005  # an accept length so near 1 is no weak model's: published weak ones reach 1.2


@dataclass(frozen=True)
class Answer:
    where: str
    what: str
    sentence: str
    do: str = ""
    sure: str = ""
    settle: str = ""
    mended: list[Hits] | None = None  # what would be accepted then

    @property
    def accuses(self) -> bool:
        return self.where not in ("nothing", "cannot tell", "training or text")


Rule = Callable[[Evidence], Answer | None]


def of_the_flags(e: Evidence) -> Answer | None:
    """A launch line that does not do what was asked."""
    fault = next((f for f in e.flag_findings if f.level == "fault"), None)
    if fault is None:
        return None
    rows = paid(settings(e), e.baseline) if settings(e) and e.baseline else None
    at_K = rows[e.steps == rows.K] if rows is not None else ()
    sentence = f"The server's flags: {fault.what}."
    if len(at_K) and at_K["ceiling, tokens a second"].iloc[0] < e.baseline:
        most = at_K["ceiling, tokens a second"].iloc[0]
        sentence += (
            f" At K = {e.steps} a perfect drafter would reach {most:.1f} tokens a second, below the baseline's {e.baseline:.1f}."
        )
    return Answer("flags", fault.name or "flags", sentence, fault.change, "certain: the engine's rule")


def of_the_definition(e: Evidence) -> Answer | None:
    """Accept lengths that cannot be ones, and claims that another definition explains."""
    for one in e.measured:
        if one.steps and one.accept_length < 1:
            what = f"accept length {one.accept_length:g} at K = {one.steps} is below 1: the target's own token is not counted"
            do = f"add 1: {one.accept_length + 1:g} by the definition used here"
            return Answer("metric definition", "definition", f"The number is not an accept length: {what}.", do, "certain")
        if one.steps and one.accept_length > one.steps + 1:
            what = f"{one.accept_length:g} at K = {one.steps} is above K + 1 = {one.steps + 1}"
            do = "take K as the tokens drafted in a chain: SGLang's num_draft_tokens counts the root, and a tree yields more"
            return Answer(
                "metric definition", "definition", f"The numbers do not go together: accept length {what}.", do, "certain"
            )
    if e.match and e.match.same_text and e.match.differs and not e.match.fits:
        for plus in (1, -1):
            if abs(e.run.accept_length + plus - e.match.predicted) < 0.02:
                sign = "less" if plus > 0 else "plus"
                what = f"the server's {e.run.accept_length:.2f} is the predicted {e.match.predicted:.2f} {sign} 1"
                return Answer("metric definition", "definition", f"The count differs, not the drafting: {what}.", sure="likely")
    return None


def _claim(e: Evidence) -> tuple[str, str]:
    """What became of the claim: "none", "withheld", "met", "other definition" or "missed"; and in words."""
    if e.claimed is None or e.figures is None:
        return ("none", "") if e.claimed is None else ("withheld", "the claim cannot be compared on this text")
    table = e.figures[e.figures.here == e.figures.here]
    whose = e.claimed_by or ("SpecForge", "acc_0")
    row = table.loc[whose] if whose in table.index else None
    if row is None:
        return "withheld", f"{' '.join(whose)} is not one that can be computed here"
    here = f"{' '.join(whose)} is {told(row.here, row.low, row.high, 3)} here"
    slack = 0.02 + (row.high - row.low) / 2 if row.high == row.high else 0.05 * row.here
    if e.claimed <= row.here + slack:
        return "met", f"claimed {e.claimed:g}, {here}"
    others = table[(table.here - e.claimed).abs() < 0.01]
    if len(others) and e.claimed_by is None:
        return "other definition", f"claimed {e.claimed:g}; {here}, but {' '.join(others.index[0])} is {others.here.iloc[0]:.3f}"
    return "missed", f"claimed {e.claimed:g}, {here}"


def of_the_claim(e: Evidence) -> Answer | None:
    became, words = _claim(e)
    if became != "other definition":
        return None
    sentence = f"Two definitions of one number: {words}."
    return Answer(
        "metric definition", "definition", sentence, "compare figures of one definition", "likely", "whose figure it is"
    )


def of_the_recording(e: Evidence) -> Answer | None:
    """Captures that speak against themselves."""
    return _recorded(e.checks, e.place, e)


def of_what_is_served(e: Evidence) -> Answer | None:
    return _recorded(e.served_checks, "serving capture", e)


def _recorded(checks: Findings, place: str, e: Evidence) -> Answer | None:
    said = [f for f in checks if f.level == "fault"]
    said += [f for f in checks if f.level == "warning" and f.name in ("normed states", "broken numbers") and not _does_well(e)]
    if not said:
        return None
    side = {"training capture": "The captures", "serving capture": "What the server hands over"}[place]
    mended = e.mended if place == "serving capture" else None
    do = said[0].change or said[0].settle
    sure = "certain: seen in the rows themselves" if said[0].level == "fault" else "likely"
    return Answer(place, said[0].name, f"{side}: {said[0].what}.", do, sure, said[0].settle, mended)


def _does_well(e: Evidence) -> bool:
    """The drafter reaches what training claimed: then its captures are what it was trained on."""
    return _claim(e)[0] == "met"


def of_the_probe(e: Evidence) -> Answer | None:
    """What the drafter was trained with, where that is not what is configured."""
    if not e.probe or not e.probe.found:
        return None
    first, p = e.probe.found[0], [*e.probe.findings, *e.probe.others]
    fault = next(f for f in p if f.level == "fault")
    sure = f"p = {fault.evidence['p']:.1g} over {e.samples} samples, corrected for all that was tried"
    words = _cost_words(e, e.now, e.mended)
    if first.kind == "streams":
        labelled = all(isinstance(n, int) for n in e.probe.streams)
        where = "checkpoint" if labelled else e.place
        what = "streams"
        said = f"{fault.what}: {words}" if labelled else f"the slots stand in another order than in training: {words}"
    else:
        states = first.kind in OF_CAPTURE
        where, what = (e.place if states and not _rows_verified(e, first.kind) else "checkpoint"), first.kind
        said = f"{' and '.join(way.name for way in e.probe.found)}: the drafter does better so, {words}"
    if len(e.probe.found) > 1 and first.kind == "streams":
        said += f"; and, on top, {e.probe.found[1].name}"
    do = "; ".join(way.change for way in e.probe.found)
    side = "The checkpoint is not what its files say" if where == "checkpoint" else "The captures are not as in training"
    return Answer(where, what, f"{side}: {said}.", do, sure, _wider(e) if first.kind == "streams" else "", e.mended)


def _rows_verified(e: Evidence, kind: str) -> bool:
    """Whether the recording's rows were held to their tokens, and fit: then the drafter was trained so."""
    target = e.ckpt is not None and e.ckpt.target is not None
    return kind == "rows" and target and 0 in e.probe.streams and not any(f.level == "fault" for f in e.checks)


def _cost_words(e: Evidence, wrong: Sequence[Hits], right: Sequence[Hits]) -> str:
    a, b = (Acceptance.of(x) for x in (wrong, right))
    return (
        f"accept length {told(a.tau(e.steps), *a.interval(e.steps))} in place of {told(b.tau(e.steps), *b.interval(e.steps))} at "
        f"K = {e.steps}"
    )


def of_the_serving_capture(e: Evidence) -> Answer | None:
    """Fine on training's states, worse on the server's, the tokens being the same."""
    if e.served is None and e.states is None:
        return None
    differs, more = lower(e.served, e.reference, e.steps) if e.served and e.reference else (False, float("nan"))
    bad = e.states is not None and e.states.level == "fault"
    named = bad and e.states.name != "unknown"
    if not differs or (not named and any(f.level == "fault" for f in e.served_checks)):
        return None
    words = f"{_cost_words(e, e.served, e.reference)}, {more:.2f} times as many target passes"
    if named:
        return Answer(
            "serving capture", e.states.name, f"The server hands over other states than training's: {e.states.what}; {words}.",
            e.states.change, "certain: the states themselves were compared", "", e.reference,
        )  # fmt: skip
    said = e.states.what if bad else "which part of the states is wrong is not told"
    sentence = f"The server hands over other states than training's: {words}; {said}."
    return Answer("serving capture", "unknown", sentence, "", "the place is told, the cause is not", "more streams", e.reference)


def of_the_engine(e: Evidence) -> Answer | None:
    """The server's counts are not the drafter's, on the same text."""
    one, run = e.match, e.run
    if one is None or not one.same_text or not one.differs:
        if run is not None and run.accept_length < NOTHING and e.now and Acceptance.of(e.now).interval(e.steps)[0] > 1.1:
            good = Acceptance.of(e.now)
            sentence = (
                f"The engine accepts nothing (accept length {run.accept_length:.3f}), where the drafter run by hand reaches "
                f"{told(good.tau(e.steps), *good.interval(e.steps))}: no text explains an accept length of 1."
            )
            do = "head, vocabulary map and algorithm name are what gives 1.00: look for weights that were skipped at load"
            return Answer("engine", "unknown", sentence, do, "certain of the place", "counts on the recorded text", e.mended)
        return None
    if run.accept_length > one.predicted:
        sentence = f"The server counts {run.accept_length:.2f} where {one.predicted:.2f} is possible on this text: another count."
        return Answer("metric definition", "definition", sentence, "", "likely", "rounds and accepted drafts, not a mean")
    words = f"accept length {run.accept_length:.2f} at the server, {one.predicted:.2f} by hand on the same text"
    kinds = list(dict.fromkeys(way.kind for way in one.fits))
    if not kinds:
        sentence = (
            f"The engine drafts otherwise than the checkpoint: {words}; none of {len(one.table)} ways to run it gives its counts."
        )
        settle = "" if e.served else "the rows that the server hands its drafter (served captures)"
        where = "engine" if e.served else "cannot tell"
        return Answer(where, "unknown", sentence, "", "certain that it differs", settle, e.mended)
    names = " or ".join(way.name for way in one.fits[:3])
    if not e.served and set(kinds) <= {*OF_CAPTURE, "streams", "tokens"}:
        sentence = f"The server hands its drafter other states than training's: {words}; its counts are those of {names}."
        return Answer(
            "serving capture", kinds[0], sentence, _undo(e, one.fits[0]), f"{len(one.fits)} of {len(one.table)} ways fit",
            "the rows that the server hands its drafter (served captures)", e.mended,
        )  # fmt: skip
    sentence = f"The engine runs the drafter otherwise than it was trained: {words}; its counts are those of {names}."
    sure = f"{len(one.fits)} of {len(one.table)} ways to run it fit"
    return Answer(
        "engine", kinds[0], sentence, one.fits[0].change, sure, "" if len(kinds) == 1 else "counts at another K", e.mended
    )


def _undo(e: Evidence, way: Hypothesis) -> str:
    """What an engine must do in place of this."""
    if way.kind == "streams":
        trained = next((one for one in e.probe.found if one.kind == "streams"), None)
        return trained.change if trained else f"make it capture what is configured: {config_line(e.probe.playable)}"
    return f"the server behaves as with {way.name}: find where, and run it as config.json says"


def of_other_text(e: Evidence) -> Answer | None:
    """Worse at the server than by hand, but not on the same text."""
    if not e.mended:
        return None
    good = Acceptance.of(e.mended)
    low, here = good.interval(e.steps)[0], told(good.tau(e.steps), *good.interval(e.steps))
    if e.served and not e.reference:
        there = Acceptance.of(e.served)
        if there.interval(e.steps)[1] < low:
            seen = f"{told(there.tau(e.steps), *there.interval(e.steps))} on what the server hands over, {here} on training's"
            sentence = f"The server's states do worse ({seen}), but on other text: text or states cannot be told."
            return Answer("cannot tell", "unknown", sentence, settle="the same tokens, recorded on both sides")
    if e.run is None or (e.match and e.match.same_text) or not e.run.accept_length < low - TEXT * (low - 1):
        return None
    seen = f"accept length {e.run.accept_length:.2f} at the server, {here} by hand"
    how = e.match.how if e.match else "its K was not drafted here"
    sentence = f"The server does worse than the drafter by hand ({seen}), on other text as far as is known: {how}."
    return Answer(
        "cannot tell", "unknown", sentence, settle="rounds and accepted drafts of the recorded prompts, request by request"
    )


def of_the_economics(e: Evidence) -> Answer | None:
    """Settings at which no drafter, or not this one, could pay."""
    known = settings(e)
    if not known or not e.baseline:
        return None
    table = paid(known, e.baseline)
    lost = table[table["ceiling, tokens a second"] < e.baseline]
    if len(lost) == len(table):
        row = lost.iloc[-1]
        sentence = (
            f"No drafter can pay here: at K = {row.K:.0f} a round takes {row['ms a round']:.1f} ms, a perfect drafter would "
            f"reach {row['ceiling, tokens a second']:.1f} tokens a second, the baseline has {e.baseline:.1f}."
        )
        do = "make a round cheaper (batch, graph capture, fewer verified tokens), or draft more steps if they are cheap"
        return Answer(
            "economics", "round time", sentence, do, "certain, of these timings", "round times at two values of K", e.mended
        )
    slow = [one for one in known if one.tokens_per_second < e.baseline]
    if len(slow) < len(known):
        return None
    if not e.mended or len({one.steps for one in known}) < 2:
        return None
    line, accepted = round_time(known), Acceptance.of(e.mended)
    best = max(accepted.walks, key=lambda K: accepted.tau(K) / line.at(K) if line.at(K) > 0 else 0)
    speed = accepted.tau(best) / line.at(best)
    if speed >= e.baseline:
        sentence = f"K is badly chosen: K = {best} would give {speed:.1f} tokens a second, the baseline has {e.baseline:.1f}."
        return Answer(
            "flags", "draft steps", sentence, f"draft K = {best} steps", "likely: from a line through the timings", "a run at it"
        )
    sentence = (
        f"The drafter does not pay at any K: at best {speed:.1f} tokens a second at K = {best}, baseline {e.baseline:.1f}; "
        f"a round takes {1000 * line.first:.1f} ms and {1000 * line.step:.1f} ms more a step."
    )
    return Answer("economics", "round time", sentence, "make a round cheaper, or a better drafter", "likely", "", e.mended)


def of_the_curve(e: Evidence) -> Answer | None:
    """Nothing named, but the curve is not a weak model's."""
    if not e.now or e.probe.found:
        return None
    form, curve = shape(e.now)
    if form == "nothing":
        sentence = (
            f"The drafter guesses next to nothing right on sound states (step-1 accuracy {curve[0]:.3f}), and none of "
            f"{len(e.probe.changes)} other ways to run it does: head, d2t, embedding or layers are not the trained ones."
        )
        place = "checkpoint" if e.ckpt.target is not None and e.samples >= 2 else "cannot tell"
        return Answer(place, "weights", sentence, "export the checkpoint anew; compare its tensors with the trainer's", "likely")
    if form == "rises" and not _does_well(e):
        sentence = (
            f"The states are not those of training, by the shape of the curve (step 1 {curve[0]:.3f}, step 3 {curve[2]:.3f}), "
            "but nothing that was tried explains it."
        )
        return Answer("cannot tell", "unknown", sentence, "", "a sign, no proof", _wider(e))
    return None


def _wider(e: Evidence) -> str:
    tried = dict.fromkeys(n for name in e.probe.table.index for n in name.removeprefix("streams ").split(", "))
    return f"captures with other streams than {', '.join(tried)}" + ("" if "r_0" in tried else ", r_0 first")


def of_the_mask(e: Evidence) -> Answer | None:
    """Nothing else wrong, but nobody says which tokens are answers: then no number here is an accept length."""
    found = next((f for f in e.checks if f.name == "no loss mask"), None)
    if found is None:
        return None
    return Answer(e.place, "no loss mask", f"The captures: {found.what}.", found.settle, "certain", found.settle)


def of_power(e: Evidence) -> Answer | None:
    """Too little to tell: say what would do."""
    if e.problems:
        return Answer("cannot tell", "unknown", f"Too little to tell: {e.problems[0]}.", settle="24 samples or more")
    if not e.now or _does_well(e):
        return None
    if e.probe.findings[0].level == "open":
        sentence = f"The drafter was not run as configured: {e.probe.findings[0].what}."
        return Answer("cannot tell", "unknown", sentence, settle=e.probe.findings[0].settle)
    tried = len(e.probe.table) + len(e.probe.changes)
    if e.samples < fewest(tried):
        sentence = f"{e.samples} prompts cannot tell how the drafter was trained, whatever the differences."
        return Answer("cannot tell", "unknown", sentence, settle=f"{fewest(tried)} prompts or more; 24 do for most faults")
    return None


def of_the_drafter(e: Evidence) -> Answer | None:
    """No fault found: as good as claimed, weak, or sound."""
    if not e.now:
        return None
    accepted = Acceptance.of(e.now)
    K, became, words = e.steps, *_claim(e)
    tau, (low, high) = accepted.tau(K), accepted.interval(K)
    here, least = f"accept length {told(tau, low, high)} at K = {K} over {e.samples} samples", lowest(K)
    beside = f"; the lowest published at that K is {least:.2f}" if least else ""
    sure = (
        f"{len(e.probe.table) + len(e.probe.changes)} ways to run it were tried on the same rows, none better by more than noise"
    )
    if became == "missed":
        sentence = f"Nothing is wired wrong here, but the drafter does not do what training said: {words}; {here}."
        settle = "captures of training's own text: if the claim is met there, it is the text"
        return Answer("training or text", "text", sentence, "score it on the text that the claim was made on", sure, settle)
    if became == "met":
        return Answer("nothing", "healthy", f"Nothing is broken: {words}; {here}{beside}.", sure=sure)
    unseen = f"streams that were not recorded were not tried: {_wider(e)}"
    if high < WEAKEST:
        sentence = (
            f"Weak or wired wrong cannot be told: {here}, less than any weak drafter is known for, and nothing tried is better."
        )
        return Answer("cannot tell", "unknown", sentence, sure=sure, settle=_wider(e))
    if least and high < least:
        sentence = f"A weak drafter, wired as it was trained as far as these captures can tell: {here}{beside}."
        do = "more training data of the target's own writing (published heads: 0.5 to 1.4 million samples)"
        return Answer("training or text", "weak model", sentence, do, sure, f"the trainer's own figure; {unseen}")
    return Answer("nothing", "healthy", f"Nothing is broken: {here}{beside}.", sure=sure)


def of_the_log(e: Evidence) -> Answer | None:
    """Only counts: what they say without a drafter to run."""
    if e.now or e.run is None:
        return None
    tau, least = e.run.accept_length, lowest(e.steps)
    if tau < NOTHING:
        sentence = f"Nothing is accepted (accept length {tau:.3f}): that is no weak model, but head, map, algorithm or states."
        return Answer("cannot tell", "unknown", sentence, settle="the checkpoint, and hidden states recorded from its target")
    if least and tau >= least:
        sentence = (
            f"Accept length {tau:.2f} at K = {e.steps} is among published ones (from {least:.2f}): nothing points to a fault."
        )
        return Answer("nothing", "healthy", sentence, sure="by its counts alone", settle="the checkpoint and captures")
    sentence = f"Accept length {tau:.2f} at K = {e.steps}: weak or wired wrong cannot be told from counts."
    return Answer("cannot tell", "unknown", sentence, settle="the checkpoint, and hidden states recorded from its target")


def nothing_given(e: Evidence) -> Answer:
    """No rule had anything to go by."""
    have = "a checkpoint opens, which proves nothing of how it was trained" if e.ckpt else "nothing that can be judged was given"
    sentence = f"Cannot tell: {have}."
    return Answer("cannot tell", "unknown", sentence, settle="hidden states recorded from the target: what_to_record says which")


RULES: tuple[Rule, ...] = (
    of_the_flags, of_the_definition, of_the_recording, of_the_probe, of_the_serving_capture, of_what_is_served, of_the_engine,
    of_the_claim, of_the_economics, of_the_curve, of_the_mask, of_other_text,
    of_power, of_the_drafter, of_the_log,
)  # fmt: skip
