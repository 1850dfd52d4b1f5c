"""One explorer: give the drafter other streams, another order, flag or shift; see the marginal curve take the fault's shape."""

import textwrap
from collections.abc import Iterator, Sequence

from ipywidgets import HTML, Button, Dropdown

from ..judge.hypotheses import Hypothesis, single_changes, streams_are
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..run.chain import by_name, chain_hits, together
from ..run.drafter import Drafter
from . import lesson
from .explorer import NAMES, WIDE, Explorer, drawing, table
from .figures import label
from .rows import labels

TOKENS = 600  # of the samples that are drafted from: enough for a shape, and soon done
KINDS = {  # control -> kinds of hypotheses it offers
    "rows and size": ("rows", "scale", "norm of states", "residual"),
    "token": ("tokens",),
    "norms": ("norm",),
    "positions": ("rope", "positions"),
    "fed back": ("recurrence",),
    "weights": ("map", "head", "embedding", "weights"),
}


def _control(name: str, options: Sequence[tuple], value="") -> Dropdown:
    return Dropdown(options=options, value=value, description=name, style=NAMES, layout=WIDE)


def recipe(drafter: Drafter, ckpt: Checkpoint, captures: Sequence[Capture], steps: int) -> Explorer:
    """Change what the slots of `fc` hold, and anything of `judge.hypotheses`, one or several at once; K = `steps`."""
    some = next(together(captures, TOKENS))
    recorded, configured = list(some[0].streams), tuple(labels(drafter.recipe, some[0]) or ())
    changes = single_changes(drafter, ckpt, recorded)
    offered = [(label(n), n) for n in dict.fromkeys((*recorded, *configured))]  # one that is lacking says so when it is drawn
    slots = [_control(f"slot {i + 1}", offered, n) for i, n in enumerate(configured)]
    others = [
        _control(name, [("as it is", ""), *((one.name, one) for one in changes if one.kind in kinds)])
        for name, kinds in KINDS.items()
        if any(one.kind in kinds for one in changes)
    ]
    picture, numbers, back = drawing(), HTML(), Button(description="back to as it is")
    known: dict[tuple[str, ...], lesson.Curve] = {}  # what was drafted already

    def chosen() -> list[Hypothesis]:
        streams = tuple(one.value for one in slots)
        return [*([streams_are(streams)] if streams != configured else []), *(one.value for one in others if one.value)]

    def drafted(hypotheses: Sequence[Hypothesis]) -> Iterator[tuple[int, int]]:
        found = []
        for number, capture in enumerate(some):
            pair = drafter, capture
            for one in hypotheses:
                pair = one.apply(*pair)
            found.append(chain_hits(*pair, steps))
            yield number + 1, len(some)
        known[tuple(one.name for one in hypotheses)] = lesson.Curve.of(by_name(found))

    def draw() -> Iterator[tuple[int, int]]:
        wanted = chosen()
        names = tuple(one.name for one in wanted)
        for hypotheses in ([], wanted):
            if tuple(one.name for one in hypotheses) not in known:
                yield from drafted(hypotheses)
        lines = lesson.breaks_table({" and ".join(names): known[names]} if names else {}, known[()], steps)
        figure = lesson.breaks_figure(lines.rename(index=lambda name: textwrap.fill(name, 34)), steps)  # lines of a legend
        title = f"true tokens fed; {'all' if len(some) == len(captures) else f'the first {len(some)} of'} {len(captures)} samples"
        figure.axes[0].set_title(title, fontsize=10)
        picture.value = figure._repr_png_()
        numbers.value = table(lines.round(3).reset_index())

    def reset(_) -> None:
        for control, value in zip((*slots, *others), (*configured, *[""] * len(others)), strict=True):
            control.value = value

    back.on_click(reset)
    return Explorer("to change the recipe and watch its curve", [*slots, *others, back], [picture, numbers], draw)
