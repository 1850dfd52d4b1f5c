"""Rules on what was given as numbers: flags, definitions, claims, speeds, a log alone."""

import pandas as pd

from ..measure.acceptance import Acceptance
from ..measure.intervals import told
from ..measure.speed import paid, round_time
from ..measure.trainers import CLAIM
from .answer import NOTHING, Answer
from .evidence import Evidence, Measured, reached, settings
from .heads import heads_at, lowest

ONE_APART = 0.02  # accept lengths that differ by exactly one differ by their definition


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
    told = e.run and (e.run.steps or not e.assumed)  # a K that nobody told speaks against no count
    K = e.run.steps if told and e.run.steps and not e.tree else e.steps  # of a tree its answers count the nodes
    logged = [Measured(K, 0.0, e.run.accept_length)] if told else []
    for one in (*e.measured, *logged):
        if one.steps and one.accept_length < 1:
            what = f"accept length {one.accept_length:g} at K = {one.steps} is below 1: the target's own token is not counted"
            do = f"add 1: {one.accept_length + 1:g} by the definition used here"
            return Answer("metric definition", "definition", f"The number is not an accept length: {what}.", do, "certain")
        if one.steps and one.accept_length > one.steps + 1:
            what = f"{one.accept_length:g} at K = {one.steps} is above K + 1 = {one.steps + 1}"
            do = "take K as the tokens drafted in a chain: SGLang's num_draft_tokens counts the root, and a tree yields more"
            if e.flags and e.flags.tree:
                do = "take flags and log of one launch: a tree of K steps yields K + 1 tokens a round at most"
            return Answer(
                "metric definition", "definition", f"The numbers do not go together: accept length {what}.", do, "certain"
            )
    if (
        e.run
        and e.now
        and not (e.flags and e.flags.tree)
        and not (e.match and (e.match.fits or not e.match.differs) and e.match.same_text)
    ):
        drafted = reached(e.served or e.now, e.steps)[0]
        for plus, counted in ((1, "leaves the target's own token out"), (-1, "counts the root as well")):
            if abs(e.run.accept_length + plus - drafted) < ONE_APART:
                what = f"the server's {e.run.accept_length:.2f} and the {drafted:.2f} reached by hand are 1 apart"
                sentence = f"The count differs, not the drafting: {what}, as where one {counted} (SafeAILab/EAGLE#132)."
                return Answer("metric definition", "definition", sentence, "", "likely", "rounds and accepted drafts, not a mean")
    return None


def claim(e: Evidence) -> tuple[str, str]:
    """What became of the claim: "none", "withheld", "met", "other definition" or "missed"; and in words."""
    if e.claimed is None or e.figures is None:
        return ("none", "") if e.claimed is None else ("withheld", "the claim cannot be compared on this text")
    table = e.figures[e.figures.here == e.figures.here]
    whose = e.claimed_by or CLAIM
    row = table.loc[whose] if whose in table.index else None
    if row is None:
        return "withheld", f"{' '.join(whose)} is not one that can be computed here"
    here = f"{' '.join(whose)} is {told(row.here, row.low, row.high, 3)} here"
    slack = 0.02 + (row.high - row.low) / 2 if row.high == row.high else 0.05 * row.here
    near = abs(e.claimed - row.here) <= slack
    every = pd.concat([table.here, e.sums])
    others = every[(every - e.claimed).abs() < _rounded(e)]
    own = [f for f in others.index if f[0] == whose[0] and f[1].startswith(f"{whose[1]} over")]  # the same, over fewer steps
    if own or near:
        return "met", f"claimed {e.claimed:g}, {here}" + (f", {own[0][1]} {others[own[0]]:.3f}" if own and not near else "")
    if len(others):
        return "other definition", f"claimed {e.claimed:g}; {here}, but {' '.join(others.index[0])} is {others.iloc[0]:.3f}"
    return "met" if e.claimed < row.here else "missed", f"claimed {e.claimed:g}, {here}"


def _rounded(e: Evidence) -> float:
    """How near another definition must come. Thirty figures lie between 0 and 1, so that many come near to anything: where it is
    said whose figure it is, only equality to the digits that people print is a sign of another.
    """
    return 0.01 if e.claimed_by is None else 0.0006 if e.claimed <= 1 else 0.006


def does_well(e: Evidence) -> bool:
    """The drafter reaches what training claimed: then its captures are what it was trained on."""
    return claim(e)[0] == "met"


def of_the_claim(e: Evidence) -> Answer | None:
    became, words = claim(e)
    if became != "other definition":
        return None
    sentence = f"Two definitions of one number: {words}."
    return Answer(
        "metric definition", "definition", sentence, "compare figures of one definition", "likely", "whose figure it is"
    )


def of_the_economics(e: Evidence) -> Answer | None:
    """Settings at which no drafter, or not this one, could pay."""
    known = settings(e)
    if not known or not e.baseline:
        return None
    table = paid(known, e.baseline)
    lost = table[(table["ceiling, tokens a second"] < e.baseline) & (e.steps == table.K)]
    if len(lost):
        row = lost.iloc[0]
        sentence = (
            f"No drafter can pay here: at K = {row.K:.0f} a round takes {row['ms a round']:.1f} ms, a perfect drafter would "
            f"reach {row['ceiling, tokens a second']:.1f} tokens a second, the baseline has {e.baseline:.1f}."
        )
        do = "make a round cheaper (batch, graph capture, fewer verified tokens), or measure more draft steps"
        return Answer(
            "economics", "round time", sentence, do, "certain, of these timings", "round times at two values of K", e.mended
        )
    slow = [one for one in known if one.tokens_per_second < e.baseline]
    best = max(known, key=lambda one: one.tokens_per_second)
    if len(slow) < len(known):
        if best.steps == e.steps or not any(one.steps == e.steps for one in slow):
            return None
        sentence = (
            f"K is badly chosen: K = {best.steps} gives {best.tokens_per_second:.1f} tokens a second, measured, K = {e.steps} "
            f"less than the baseline's {e.baseline:.1f}."
        )
        return Answer("flags", "draft steps", sentence, f"draft K = {best.steps} steps", "certain, of these timings")
    if len({one.steps for one in known}) < 2:
        return _at_one_steps(e, table)
    if not e.mended:
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


def _at_one_steps(e: Evidence, table: pd.DataFrame) -> Answer | None:
    """Slower than without at the one K that was measured: the round, where few of the published drafters would pay."""
    table = table[e.steps == table.K]
    if not len(table):
        return None
    row = table.iloc[table["break-even accept length"].argmin()]
    tau, pays = row["accept length"], row["break-even accept length"]
    published = heads_at(int(row.K))["accept length"]
    paying = int((published >= pays).sum())
    if paying * 2 >= len(published):
        return None
    sentence = (
        f"The round is too dear: at K = {row.K:.0f} it takes as long as {pays:.2f} tokens without drafter, and {tau:.2f} are "
        f"accepted; of {len(published)} published figures at that K {paying or 'none'} would pay."
    )
    do = "make a round cheaper (smaller batch or tree, fewer draft steps, graph capture)"
    return Answer("economics", "round time", sentence, do, "likely, of these timings", "round times at another K", e.mended)


def of_the_log(e: Evidence) -> Answer | None:
    """Only counts: what they say without a drafter to run."""
    if e.now or e.run is None:
        return None
    tau, least = e.run.accept_length, lowest(e.steps)
    if tau < NOTHING:
        sentence = f"Nothing is accepted (accept length {tau:.3f}): that is no weak model, but head, map, algorithm or states."
        return Answer("cannot tell", "unknown", sentence, settle="the checkpoint, and hidden states recorded from its target")
    if e.assumed or (e.flags and e.flags.tree):
        why = (
            "nothing says at how many draft steps" if e.assumed else "a tree accepts more than a chain, which published ones are"
        )
        sentence = f"Accept length {tau:.2f}: {why}, so it cannot be set beside others."
        return Answer("cannot tell", "unknown", sentence, settle="the checkpoint and captures; K (steps, --steps), of a chain")
    if least and tau >= least:
        sentence = (
            f"Accept length {tau:.2f} at K = {e.steps} is among published ones (from {least:.2f}): nothing points to a fault."
        )
        return Answer("nothing", "healthy", sentence, sure="by its counts alone", settle="the checkpoint and captures")
    sentence = f"Accept length {tau:.2f} at K = {e.steps}: weak or wired wrong cannot be told from counts."
    return Answer("cannot tell", "unknown", sentence, settle="the checkpoint, and hidden states recorded from its target")
