"""Two faults at once. The right answer is the one that costs more, or either where neither can be mended without the other."""

from collections.abc import Iterator
from functools import partial

import eagle3lib as e3

from . import base
from . import capture_faults as c
from . import checkpoint_faults as k
from . import engine_faults as e
from .base import STEPS, Texts
from .capture_faults import handed_over
from .cases import Case
from .figures import BASELINE, ONE_OF_SIXTEEN, settings


def served_two(first, second, drafter: str, texts: Texts) -> dict:
    """Both in what the server handed over."""
    own, reference = base.OWN[drafter], texts
    if first is c.ids_late:
        reference = texts.also(tuple(n + 1 for n in own))
    spoiled = [second(first(one, one, own), one, own) for one in texts.whole()]
    served = [handed_over(one, own) for one in spoiled]
    return {"ckpt": base.checkpoint(drafter), "captures": reference(), "served": served, "steps": STEPS}


def file_and_server(change, fault, drafter: str, texts: Texts) -> dict:
    """One in the folder, one in the server's states."""
    own, samples = base.OWN[drafter], texts()
    served = [handed_over(fault(one, one, own), own) for one in samples]
    return {"ckpt": base.opened(drafter, change), "captures": samples, "served": served, "steps": STEPS}


def server_and_engine(capture, engine, drafter: str, texts: Texts) -> dict:
    """The server's states are wrong and its drafter is another; the counters are those of both."""
    own, samples = base.OWN[drafter], texts()
    served = [handed_over(capture(one, one, own), own) for one in samples]
    good = base.checkpoint(drafter)
    log = base.log_of(base.walked(engine(e3.Drafter(good)), served))
    return {"ckpt": good, "captures": samples, "served": served, "logs": [log], "steps": STEPS}


def file_two(first, second, drafter: str, texts: Texts) -> dict:
    """Both in the folder."""

    def change(tensors, config):
        first(tensors, config)
        second(tensors, config)

    return {"ckpt": base.opened(drafter, change), "captures": texts(), "steps": STEPS}


def file_and_time(change, drafter: str, texts: Texts) -> dict:
    """The folder is wrong, and a round takes longer than a perfect drafter could pay for."""
    measured = settings(drafter, texts, {1: 2.54, 2: 3.4})
    ckpt = base.opened(drafter, change)
    return {"ckpt": ckpt, "captures": texts(), "measured": measured, "baseline": BASELINE, "steps": 1}


def server_and_flags(fault, drafter: str, texts: Texts) -> dict:
    """The server's states are wrong, and one draft of sixteen asked for is made."""
    own, samples = base.OWN[drafter], texts()
    served = [handed_over(fault(one, one, own), own) for one in samples]
    log = base.log_of(base.walked(e3.Drafter(base.checkpoint(drafter)), served, 1), 1, "length")
    return {"ckpt": base.checkpoint(drafter), "captures": samples, "served": served, "logs": [log], "flags": ONE_OF_SIXTEEN,
            "steps": 1}  # fmt: skip


SERVING, FILE = {"serving capture"}, {"checkpoint"}
ROTATED = k.ids(lambda ids: ids[-1:] + ids[:-1], "pair")
BASE = k.base(10.0)
PAIRS = (  # name, inputs, places, names
    ("rotated and one late", partial(served_two, c.rotated, c.late), SERVING, {"streams", "rows"}),
    ("one more and x 2", partial(served_two, c.ids_late, c.scaled(2.0)), SERVING, {"streams", "scale"}),
    ("one late and prompt rows zeros", partial(served_two, c.late, c.zeros_prompt), SERVING, {"rows", "zero rows"}),
    ("map counts up in the file, rows one late at the server", partial(file_and_server, k.arange_alone, c.late), FILE, {"map"}),
    ("rope base x 10 in the file, slots rotated at the server", partial(file_and_server, BASE, c.rotated),
     SERVING, {"streams"}),
    ("rows one late at the server, map ignored by the engine", partial(server_and_engine, c.late, e.map_ignored),
     SERVING | {"engine"}, {"rows", "map"}),
    ("states x 2 at the server, positions + 8 in the engine", partial(server_and_engine, c.scaled(2.0), e.ahead(8)),
     SERVING | {"engine"}, {"scale", "positions"}),
    ("ids rotated and rope base x 10", partial(file_two, ROTATED, BASE), FILE, {"streams"}),
    ("norm_output and map of other text", partial(file_two, k.flag("norm_output", "pair"), k.rebuilt), FILE,
     {"recurrence", "map", "norm"}),
    ("ids rotated, and no drafter could pay", partial(file_and_time, ROTATED), FILE | {"economics"}, {"streams", "round time"}),
    ("slots rotated, and one draft of sixteen", partial(server_and_flags, c.rotated), SERVING | {"flags"},
     {"streams", "draft steps"}),
)  # fmt: skip


def pair_cases(texts: Texts) -> Iterator[Case]:
    """Each with both drafters; every second one with the embedding-fed drafter is for tuning."""
    for drafter in base.OWN:
        for number, (name, inputs, where, what) in enumerate(PAIRS):
            tune = drafter == "embedding_fed" and number % 2 == 0
            yield Case(f"{drafter}, two: {name}", "two faults", drafter, tune, partial(inputs, drafter, texts), frozenset(where),
                       frozenset(what), source=inputs.func.__doc__)  # fmt: skip
