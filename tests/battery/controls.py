"""Cases with nothing wired wrong: sound drafters and weak ones, in many clothes. An accusation here is a false alarm."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import eagle3lib as e3

from . import base
from . import capture_faults as c
from . import checkpoint_faults as k
from .base import STEPS, Texts
from .capture_faults import handed_over
from .cases import CALM, HARMLESS, Case, claim

WEAK = {"where": frozenset({"training or text"}), "what": frozenset({"weak model"})}
SOUND = {"where": CALM, "what": HARMLESS}
OTHER_TEXT = {"where": CALM, "what": HARMLESS}
DRESS = {  # captures changed in a way that must not matter: name -> what is done to the server's states
    "as recorded": lambda x: x,
    "in bfloat16": lambda x: x.bfloat16().float(),
    "in float16": lambda x: x.half().float(),
    "8 bits by row": None,
}


def dressed(capture: e3.Capture, how: str) -> e3.Capture:
    return c.quantised(8, 1)(capture, capture, ()) if DRESS[how] is None else c.changed(capture, DRESS[how])


def slots(captures, drafter: str, how: str) -> list[e3.Capture]:
    return [handed_over(dressed(one, how), base.OWN[drafter]) for one in captures]


def ckpt_of(drafter: str) -> e3.Checkpoint:
    return base.checkpoint(drafter)


def good_log(drafter: str, texts: Texts, name: str, told: str, steps: int = STEPS):
    return base.log_of(base.walked(e3.Drafter(ckpt_of(drafter)), texts(name), steps), steps, told)


def control_cases(texts: Texts) -> Iterator[Case]:
    """About fifty; those of the healthy drafter and of its early stages are judged on, the embedding-fed one's are for tuning."""

    def case(drafter: str, name: str, inputs: Callable[[], dict], answer: dict = SOUND) -> Case:
        tune = drafter == "embedding_fed"
        group = "weak" if answer is WEAK else "sound"
        return Case(f"{drafter}, {group}: {name}", group, drafter, tune, inputs, sight="equal", **answer)

    for drafter in base.OWN:
        for name in ("heldout", "other", "short", "t07", "t10"):

            def plain(drafter=drafter, name=name):
                return {"ckpt": ckpt_of(drafter), "captures": texts(name), "steps": STEPS}

            yield case(drafter, f"only captures, {name}", plain)
        for many in (12, 24):

            def few(drafter=drafter, many=many):
                return {"ckpt": ckpt_of(drafter), "captures": replace(texts, samples=many)(), "steps": STEPS}

            # twelve prompts cannot tell sixty ways apart by ranks, whatever the differences
            yield case(drafter, f"only captures, {many} prompts", few, other_text() if many < 14 else SOUND)
        for how in DRESS:

            def served(drafter=drafter, how=how):
                return {"ckpt": ckpt_of(drafter), "captures": texts(), "served": slots(texts(), drafter, how), "steps": STEPS}

            yield case(drafter, f"served states {how}", served)
        for told in ("requests", "positions", "totals", "length"):

            def logged(drafter=drafter, told=told):
                log = good_log(drafter, texts, "heldout", told)
                return {"ckpt": ckpt_of(drafter), "captures": texts(), "logs": [log], "steps": STEPS}

            yield case(drafter, f"log as predicted, {told}", logged)
        yield case(drafter, "everything, as it should be", partial(everything, drafter, texts))
        yield case(drafter, "claim met", partial(claimed, drafter, texts))
        yield case(drafter, "log of other prompts of the same kinds", partial(other_prompts, drafter, texts))
        nothing = {"where": CALM | {"cannot tell"}, "what": HARMLESS | {"unknown"}}
        yield case(drafter, "only a checkpoint", partial(only_checkpoint, drafter), nothing)
        yield case(drafter, "only a log", partial(only_log, drafter, texts), nothing)
        yield case(drafter, "drafter run in bfloat16", partial(low_precision, drafter, texts))
        for what in (k.no_head, k.only_t2d, k.embedding_own, k.embedding_scaled):
            yield case(drafter, f"harmless file: {what.__name__}", partial(harmless, drafter, what, texts))
    for drafter in ("healthy_early1", "healthy_early2"):
        yield case(drafter, "only captures", partial(weak, drafter, texts), WEAK)
        yield case(drafter, "held to the finished one's figure", partial(weak, drafter, texts, "healthy"), WEAK)
        yield case(drafter, "with its log and server's states", partial(weak, drafter, texts, None, True), WEAK)
    yield case("embedding_fed", "held to a better one's figure", partial(weak, "embedding_fed", texts, "healthy"), WEAK)
    yield case("healthy", "log sampled at T = 1, prediction greedy", partial(sampled_log, "healthy", texts), other_text())


def other_text() -> dict:
    """What was served is other text than what was recorded: the text is the answer, or that it cannot be told."""
    return {"where": CALM | {"cannot tell"}, "what": HARMLESS | {"unknown"}}


def everything(drafter: str, texts: Texts) -> dict:
    log = good_log(drafter, texts, "heldout", "requests")
    served = slots(texts(), drafter, "in bfloat16")
    return {
        "ckpt": ckpt_of(drafter),
        "captures": texts(),
        "served": served,
        "logs": [log],
        "steps": STEPS,
        **claim(drafter, texts),
    }


def claimed(drafter: str, texts: Texts) -> dict:
    return {"ckpt": ckpt_of(drafter), "captures": texts(), "steps": STEPS, **claim(drafter, texts)}


def other_prompts(drafter: str, texts: Texts) -> dict:
    """The engine served the first half of the prompts, the captures are the other half."""
    half = texts.samples // 2
    log = base.log_of(base.walked(e3.Drafter(ckpt_of(drafter)), texts()[:half]), told="totals")
    return {"ckpt": ckpt_of(drafter), "captures": texts()[half:], "logs": [log], "steps": STEPS}


def only_checkpoint(drafter: str) -> dict:
    return {"ckpt": ckpt_of(drafter), "steps": STEPS}


def only_log(drafter: str, texts: Texts) -> dict:
    return {"logs": [good_log(drafter, texts, "heldout", "totals")], "steps": STEPS}


def low_precision(drafter: str, texts: Texts) -> dict:
    return {"ckpt": ckpt_of(drafter), "captures": texts(), "dtype": "bfloat16", "steps": STEPS}


def harmless(drafter: str, change: Callable, texts: Texts) -> dict:
    return {"ckpt": base.opened(drafter, change), "captures": texts(), "steps": STEPS}


def weak(drafter: str, texts: Texts, better: str | None = None, served: bool = False) -> dict:
    found = {"ckpt": ckpt_of(drafter), "captures": texts(), "steps": STEPS}
    if better:
        found |= claim(better, texts)
    if served:
        own = base.OWN.get(drafter, base.OWN["healthy"])
        found |= {
            "served": [handed_over(one, own) for one in texts()],
            "logs": [good_log(drafter, texts, "heldout", "requests")],
        }
    return found


def sampled_log(drafter: str, texts: Texts) -> dict:
    return {"ckpt": ckpt_of(drafter), "captures": texts(), "logs": [good_log(drafter, texts, "t10", "totals")], "steps": STEPS}
