"""Rules on states and counts: what a recording says against itself, the checkpoint, the probe, the serving side."""

from collections.abc import Sequence

from ..measure.intervals import told
from ..measure.inventory import untouched
from ..run.chain import Hits
from .answer import NOTHING, TEXT, Answer
from .changes import LEARNED
from .evidence import OF_CAPTURE, Evidence, lower, reached
from .finding import Findings
from .heads import WEAKEST
from .hypotheses import Hypothesis, config_line
from .rules_numbers import does_well

OF_STATES = (*OF_CAPTURE, "streams")  # kinds of change that states handed over can show


def of_the_layers(e: Evidence) -> Answer | None:
    """Streams of layers that the target has not."""
    target, streams = e.ckpt.target if e.ckpt else None, (e.ckpt.recipe.streams or ()) if e.ckpt else ()
    absent = [n for n in streams if target and isinstance(n, int) and n > target.n_layers]
    if not absent:
        return None
    sentence = (
        f"config.json asks for r_{absent[0]}, but {target.path.name} has {target.n_layers} layers: no engine can capture it."
    )
    return Answer("checkpoint", "streams", sentence, "ids of layers that there are", "certain: by the target's config.json")


def of_the_recording(e: Evidence) -> Answer | None:
    """Captures that speak against themselves."""
    return _recorded(e.checks, e.place, e)


def of_what_is_served(e: Evidence) -> Answer | None:
    return _recorded(e.served_checks, "serving capture", e)


def _recorded(checks: Findings, place: str, e: Evidence) -> Answer | None:
    said = [f for f in checks if f.level == "fault"]
    said += [f for f in checks if f.level == "warning" and f.name in ("normed states", "broken numbers") and not does_well(e)]
    if not said:
        return None
    side = {"training capture": "The captures", "serving capture": "What the server hands over"}[place]
    mended = e.mended if place == "serving capture" else None
    do = said[0].change or said[0].settle
    sure = "certain: seen in the rows themselves" if said[0].level == "fault" else "likely"
    return Answer(place, said[0].name, f"{side}: {said[0].what}.", do, sure, said[0].settle, mended)


def of_the_weights(e: Evidence) -> Answer | None:
    """Norms of zeros; and matrices that look as their module was made, in a drafter that hardly guesses anything."""
    if not e.now:
        return None
    empty = [name for name in e.ckpt.names if name.endswith("norm.weight") and not bool(e.ckpt.tensor(name).any())]
    if empty:
        sentence = (
            f"The checkpoint's {', '.join(empty)} is all zeros: nothing passes it; accept length "
            f"{told(*reached(e.now, e.steps))} at K = {e.steps}."
        )
        do = "export it anew: the names did not match, or it was saved broken"
        return Answer("checkpoint", "weights", sentence, do, "certain: no trained norm is zeros", mended=e.mended)
    if reached(e.now, e.steps)[2] >= WEAKEST:
        return None
    matrices = [name for name in e.ckpt.names if name not in ("d2t", "t2d") and e.ckpt.tensor(name).ndim == 2]
    new = {name: why for name in matrices if (why := untouched(e.ckpt.tensor(name)))}
    if not new:
        return None
    name = next(iter(new))
    what = {"embed_tokens.weight": "embedding", "lm_head.weight": "head"}.get(name, "weights")
    sentence = (
        f"The checkpoint holds weights that were never filled: {', '.join(new)} ({new[name]}); accept length "
        f"{told(*reached(e.now, e.steps))} at K = {e.steps}."
    )
    do = "export it anew: the names did not match, or the tensor was left out; where it is the target's, leave it out of the file"
    return Answer("checkpoint", what, sentence, do, "likely: training leaves heavier tails", mended=e.mended)


def of_the_probe(e: Evidence) -> Answer | None:
    """What the drafter was trained with, where that is not what is configured."""
    if not e.probe or not e.probe.found:
        return None
    first, p = e.probe.found[0], [*e.probe.findings, *e.probe.others]
    fault = next(f for f in p if f.level == "fault")
    sure = f"p = {fault.evidence['p']:.1g} over {e.samples} samples, corrected for all that was tried"
    words = _cost_words(e, e.now, e.mended) if first.kind == "streams" else _cost_words(e, e.mended, e.now)
    learned = any(way.name == LEARNED for way in e.probe.found)  # from these very prompts: no accept length of others
    if learned:
        words = f"step-1 accuracy {fault.evidence['accuracy so']:.3f}, learned on one half of the prompts and scored on the other"
    if first.kind == "streams":
        labelled = all(isinstance(n, int) for n in e.probe.streams)
        where = "checkpoint" if labelled else e.place
        what = "streams"
        said = f"{fault.what}: {words}" if labelled else f"the slots stand in another order than in training: {words}"
    else:
        states = first.kind in OF_CAPTURE
        where, what = (e.place if states and not _rows_verified(e, first.kind) else "checkpoint"), first.kind
        said = f"{' and '.join(way.name for way in e.probe.found)}: so it reaches {words}"
    if len(e.probe.found) > 1 and first.kind == "streams":
        said += f"; and, on top, {e.probe.found[1].name}"
    do = "; ".join(_where_to_write(e, way) for way in e.probe.found)
    side = "The checkpoint is not what its files say" if where == "checkpoint" else "The captures are not as in training"
    return Answer(
        where, what, f"{side}: {said}.", do, sure, wider(e) if first.kind == "streams" else "", None if learned else e.mended
    )


def _where_to_write(e: Evidence, way: Hypothesis) -> str:
    """The change, and for streams where this engine reads it (sgl-project/sglang#25454; vLLM `vllm/config/speculative.py`)."""
    engine = e.flags.engine if e.flags and way.kind == "streams" else None
    place = {"SGLang": ' under "eagle_config" (before sgl-project/sglang#25454: each id one less)', "vLLM": " at the top level"}
    return way.change + place.get(engine, "")


def _rows_verified(e: Evidence, kind: str) -> bool:
    """Whether the recording's rows were held to their tokens, and fit: then the drafter was trained so."""
    target = e.ckpt is not None and e.ckpt.target is not None
    return kind == "rows" and target and 0 in e.probe.streams and not any(f.level == "fault" for f in e.checks)


def _cost_words(e: Evidence, wrong: Sequence[Hits], right: Sequence[Hits]) -> str:
    a, b = (told(*reached(hits, e.steps)) for hits in (wrong, right))
    return f"accept length {a} in place of {b} at K = {e.steps}"


def of_the_serving_capture(e: Evidence) -> Answer | None:
    """Other states at the server than in training, the tokens being the same: seen in the rows, or in what they cost."""
    if e.served is None and e.states is None:
        return None
    differs, more = lower(e.served, e.reference, e.steps) if e.served and e.reference else (False, float("nan"))
    bad = e.states is not None and e.states.level == "fault"
    named = bad and e.states.name != "unknown"
    faulty = any(f.level == "fault" for f in e.served_checks)  # said by another rule, unless the comparison tells more
    if not (differs or named) or (faulty and not (differs and named)):
        return None
    words = "what it costs these prompts do not tell"
    if e.served and e.reference:
        words = f"{_cost_words(e, e.served, e.reference)}, " + (
            f"{more:.2f} times as many target passes" if differs else "no more than noise on these prompts"
        )
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
        if run is not None and run.accept_length < NOTHING and e.now and reached(e.now, e.steps)[1] > 1.1:
            sentence = (
                f"The engine accepts nothing (accept length {run.accept_length:.3f}), where the drafter run by hand reaches "
                f"{told(*reached(e.now, e.steps))}: no text explains an accept length of 1."
            )
            do = "head, vocabulary map and algorithm name are what gives 1.00: look for weights that were skipped at load"
            return Answer("engine", "unknown", sentence, do, "certain of the place", "counts on the recorded text", e.mended)
        return None
    if run.accept_length > one.predicted and one.fits:
        return None  # it runs it in a better way than the files say: what is wrong with those, the probe tells
    if run.accept_length > one.predicted:
        sentence = f"The server counts {run.accept_length:.2f} where {one.predicted:.2f} is possible on this text: another count."
        return Answer("metric definition", "definition", sentence, "", "likely", "rounds and accepted drafts, not a mean")
    words = f"accept length {run.accept_length:.2f} at the server, {one.predicted:.2f} by hand on the same text"
    sound = e.states is not None and e.states.level in ("ok", "note")  # then what is wrong comes after they are handed over
    fits = sorted(one.fits, key=lambda way: sound and way.kind == "streams")  # sound states are seldom joined wrongly
    kinds, record = list(dict.fromkeys(way.kind for way in fits)), "the rows that the server hands its drafter (served captures)"
    if not kinds:
        sentence = (
            f"The engine drafts otherwise than the checkpoint: {words}; none of {len(one.table)} ways to run it fits its counts."
        )
        where = "engine" if sound else "cannot tell"
        return Answer(where, "unknown", sentence, "", "certain that it differs", "" if sound else record, e.mended)
    names, sure = " or ".join(way.name for way in fits[:3]), f"{len(fits)} of {len(one.table)} ways to run it fit"
    states = [kind for kind in kinds if kind in OF_STATES and not sound]
    if states == kinds:
        sentence = f"The server hands its drafter other states than training's: {words}; its counts are those of {names}."
        return Answer("serving capture", kinds[0], sentence, _undo(e, fits[0]), sure, record, e.mended)
    if states:
        sentence = f"The server does not run the drafter as trained: {words}; its counts are those of {names}, states or engine."
        return Answer("cannot tell", "unknown", sentence, "", f"certain that it is the server; {sure}", record, e.mended)
    sentence = f"The engine runs the drafter otherwise than it was trained: {words}; its counts are those of {names}."
    settle = "" if len(kinds) == 1 else "counts at another K, or request by request"
    return Answer("engine", kinds[0], sentence, _undo(e, fits[0]), sure, settle, e.mended)


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
    good = reached(e.mended, e.steps)
    low, here = good[1], told(*good)
    if e.served and not e.reference:
        there = reached(e.served, e.steps)
        if there[2] < low:
            seen = f"{told(*there)} on what the server hands over, {here} on training's"
            sentence = f"The server's states do worse ({seen}), but on other text: text or states cannot be told."
            return Answer("cannot tell", "unknown", sentence, settle="the same tokens, recorded on both sides")
    if e.tree:
        low, here = e.tree[1], f"{told(*e.tree)} with its tree"
    if e.run is None or (e.match and e.match.same_text) or not e.run.accept_length < low - TEXT * (low - 1):
        return None
    seen = f"accept length {e.run.accept_length:.2f} at the server, {here} by hand"
    how = e.match.how if e.match else "counts of a tree do not tell" if e.tree else "its K was not drafted here"
    sentence = f"The server does worse than the drafter by hand ({seen}), on other text as far as is known: {how}."
    settle = "rounds and accepted drafts of the recorded prompts, request by request"
    if e.tree:
        settle += ", of a chain (top-k 1): those are held against every way to run the drafter, a tree's are not"
    return Answer("cannot tell", "unknown", sentence, settle=settle)


def wider(e: Evidence) -> str:
    """What to record to see streams that were not tried."""
    tried = dict.fromkeys(n for name in e.probe.table.index for n in name.removeprefix("streams ").split(", "))
    named = ", ".join(sorted(tried, key=lambda name: (len(name), name)))  # r_2 before r_15
    return f"captures with other streams than {named}" + ("" if "r_0" in tried else ", such as r_0")
