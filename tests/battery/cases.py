"""The cases: what a verdict is given, and which answers are right.

`tune`: a case that may be looked at while the verdict is being made: the embedding-fed drafter with half of the fault kinds
(TUNED, chosen before there was a verdict: every second row of each table). All others are judged on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import eagle3lib as e3

from . import base, faults
from .base import Effect, Texts
from .capture_faults import handed_over
from .faults import CAPTURE, CHECKPOINT, ENGINE, SPOILED, Fault

TUNED = frozenset(f.name for table in (CAPTURE, CHECKPOINT, ENGINE) for f in table[::2])
CALM = frozenset({"nothing", "training or text"})  # nothing is wired wrong; whether 1.7 is little is a matter of taste
HARMLESS = frozenset({"healthy", "weak model", "text"})


@dataclass(frozen=True)
class Case:
    """One case. `inputs` gives the keyword arguments of `verdict`, and may raise InputError: a file that does not open.

    `effect` measures what the fault does to the accept length at K = 3, or is None where it is not about that.
    """

    name: str
    group: str
    drafter: str
    tune: bool
    inputs: Callable[[], dict]
    where: frozenset[str]
    what: frozenset[str]
    sight: str = "visible"
    needs: str = ""
    effect: Callable[[], Effect] | None = None
    source: str = ""


def right(kind: Fault, drafter: str, *places: str) -> dict:
    """Right answers: its own place and name; "nothing" too where it costs nothing; "cannot tell" where it is small or open."""
    where, what, sight = kind.where | set(places), kind.what, kind.seen(drafter)
    if sight != "visible":
        where, what = where | CALM, what | HARMLESS
    if sight == "small" or kind.open:
        where, what = where | {"cannot tell"}, what | {"unknown"}
    needs = kind.open or ("more prompts" if sight == "small" else "")
    return {"where": frozenset(where), "what": frozenset(what), "sight": "needs" if needs else sight, "needs": needs}


def claim(drafter: str, texts: Texts) -> dict:
    """The trainer's figure that this drafter's own accuracy is: what somebody would hold it to."""
    own = e3.accuracy(e3.Drafter(base.checkpoint(drafter)), texts(), steps=1)
    return {"claimed": own.marginal(1), "claimed_by": ("SpecForge", "acc_0")}


# captures


def spoiled(kind: Fault, drafter: str, samples: base.Captures) -> list[e3.Capture]:
    """Every sample with the fault; the sample after it is the other request."""
    own = base.OWN[drafter]
    return [kind.run(one, samples[(i + 1) % len(samples)], own) for i, one in enumerate(samples)]


def served_case(kind: Fault, drafter: str, texts: Texts) -> Case:
    """Good captures of training, wrong ones from the server, whose slots have no names."""

    def served():
        return [handed_over(one, base.OWN[drafter]) for one in spoiled(kind, drafter, texts.whole())]

    def inputs():
        reference = texts.also(kind.reads(base.OWN[drafter]))
        return {"ckpt": base.checkpoint(drafter), "captures": reference(), "served": served(), "steps": base.STEPS}

    effect = partial(effect_of_captures, drafter, texts, served)
    answer = right(kind, drafter, "serving capture")
    return _case(kind, f"served: {kind.name}", "capture, served", drafter, inputs, answer, effect)


def trained_case(kind: Fault, drafter: str, texts: Texts) -> Case:
    """One set of captures, and it is wrong. It holds the drafter's own streams and the last state, as most trainers' dumps.

    Named streams that stand in each other's place are ids that name each other: either place is right.
    """
    among_own = kind.name in {"slots rotated", "first and last slot swapped", "first and second slot swapped"}

    def captures():
        return [base.holding(one, base.OWN[drafter]) for one in spoiled(kind, drafter, texts.whole())]

    def inputs():
        return {"ckpt": base.checkpoint(drafter), "captures": captures(), "steps": base.STEPS, **claim(drafter, texts)}

    places = ("training capture", "checkpoint") if among_own else ("training capture",)
    answer = right(kind, drafter, *places)
    if (
        kind.what <= {"streams", "one tensor twice"} and not among_own
    ) or "residual" in kind.what:  # only the drafter's own streams are there
        where, what = answer["where"] | {"cannot tell", "training or text"}, answer["what"] | {"unknown", "weak model"}
        answer = {"where": where, "what": what, "sight": "needs", "needs": "the states of other layers"}
    effect = partial(effect_of_captures, drafter, texts, captures)
    return _case(kind, f"trained: {kind.name}", "capture, training", drafter, inputs, answer, effect)


def effect_of_captures(drafter: str, texts: Texts, captures: Callable[[], list[e3.Capture]]) -> Effect:
    return base.effect_of(base.own_walk(drafter, texts), base.walked(e3.Drafter(base.checkpoint(drafter)), captures()))


# checkpoints


def checkpoint_case(kind: Fault, drafter: str, texts: Texts, claimed: bool) -> Case:
    """A wrong folder and good captures. `claimed`: the trainer's figure is given as well, for every second kind."""

    def inputs():
        more = claim(drafter, texts) if claimed else {}
        reference = texts.also(kind.reads(base.OWN[drafter]))
        return {"ckpt": base.opened(drafter, kind.run), "captures": reference(), "steps": base.STEPS, **more}

    def effect():
        return base.effect_of(
            base.own_walk(drafter, texts), base.walked(e3.Drafter(base.opened(drafter, kind.run)), texts.whole())
        )

    answer = right(kind, drafter, "checkpoint")
    return _case(kind, f"checkpoint: {kind.name}", "checkpoint", drafter, inputs, answer, effect)


# engines


def engine_case(kind: Fault, drafter: str, texts: Texts, told: str) -> Case:
    """A good folder, good captures and, with counts of each request, good states from the server; the counters are low."""

    def log():
        good = e3.Drafter(base.checkpoint(drafter))
        return base.walked(kind.run(good) if kind.run else good, texts.whole(), spoil=SPOILED.get(kind.name))

    def inputs():
        reference = texts.also(kind.reads(base.OWN[drafter]))
        found = {
            "ckpt": base.checkpoint(drafter),
            "captures": reference(),
            "logs": [base.log_of(log(), told=told)],
            "steps": base.STEPS,
        }
        if told == "requests":
            found["served"] = [handed_over(one, base.OWN[drafter]) for one in texts()]
        return found

    answer = right(kind, drafter, "engine")
    if told != "requests":  # nobody has seen what the server captured
        more = {"unknown"} if told in ("totals", "length") else set()
        answer |= {"where": answer["where"] | {"serving capture"}, "what": answer["what"] | more}
    if told == "totals":  # one number, which many ways to run a drafter can give
        answer |= {"where": answer["where"] | {"cannot tell"}, "sight": "needs", "needs": "counts by request"}
    effect = lambda: base.effect_of(base.own_walk(drafter, texts), log())  # noqa: E731
    return _case(kind, f"engine, {told}: {kind.name}", f"engine, {told}", drafter, inputs, answer, effect)


def _case(kind: Fault, name: str, group: str, drafter: str, inputs, answer: dict, effect) -> Case:
    source = (kind.run or SPOILED[kind.name]).__doc__ or ""
    tune = drafter == "embedding_fed" and kind.name in TUNED
    return Case(f"{drafter}, {name}", group, drafter, tune, inputs, effect=effect, source=source, **answer)


def fault_cases(texts: Texts) -> Iterator[Case]:
    """One fault at a time: the healthy drafter with all of them, the embedding-fed one with those to tune on and its own."""
    for case in _single(texts):
        if case.tune or case.drafter == "healthy" or "of the story" in case.name or "own choice" in case.name:
            yield case


def _single(texts: Texts) -> Iterator[Case]:
    for drafter in faults.BOTH:
        for number, kind in enumerate(CAPTURE):
            if drafter in kind.drafters:
                if kind.served:
                    yield served_case(kind, drafter, texts)
                if kind.trained and (drafter == "healthy" or number % 2):
                    yield trained_case(kind, drafter, texts)
        for number, kind in enumerate(CHECKPOINT):
            if drafter in kind.drafters:
                yield checkpoint_case(kind, drafter, texts, claimed=number % 2 == 1)
        for number, kind in enumerate(ENGINE):
            if drafter in kind.drafters:
                yield engine_case(kind, drafter, texts, "requests")
                if drafter == "healthy":
                    yield engine_case(kind, drafter, texts, ("totals", "positions", "length")[number % 3])


def all_cases(texts: Texts | None = None) -> list[Case]:
    """Every case, in a fixed order. Names are unique."""
    from .controls import control_cases
    from .figures import figure_cases
    from .pairs import pair_cases

    texts = texts or Texts()
    found = [case for make in (fault_cases, control_cases, figure_cases, pair_cases) for case in make(texts)]
    assert len({case.name for case in found}) == len(found)
    return found
