"""Explorers: pictures that follow controls, live only. What all of them share, and the one of notebook 02: one row among its
neighbours, its token and its largest channels.
"""

import asyncio
import html
from collections.abc import Callable, Iterator, Sequence
from inspect import isgeneratorfunction

import pandas as pd
from ipywidgets import HTML, Button, Dropdown, HBox, Image, IntProgress, IntSlider, Layout, VBox, Widget

from ..measure.norms import row_norms
from ..read.capture import Capture
from ..read.errors import InputError
from . import figures

CHANNELS = 6
WIDE = Layout(width="29em", max_width="97%")  # of a control: two stand side by side where there is room
NAMES = {"description_width": "10.5em"}
STYLE = (
    "<style>.e3, .e3 td, .e3 th { line-height: 1.5; }"
    " .e3 td, .e3 th { padding: 1px 10px 1px 0; text-align: left !important; white-space: pre; }</style>"
)


def prose(text: str) -> str:
    """HTML of a sentence, or of whatever else `table` and the like made, in the explorers' style."""
    return f'{STYLE}<div class="e3" style="overflow-x: auto">{text}</div>'


def table(frame: pd.DataFrame) -> str:
    """HTML of a table without its index, in the explorers' style."""
    return prose(frame.to_html(index=False, border=0, na_rep=""))


def drawing() -> Image:
    """Where a figure goes: no Output, for nbclient cannot run one without keeping widget state. As large as it was drawn."""
    return Image(format="png", layout=Layout(align_self="flex-start", max_width="100%"))


class Explorer(VBox):
    """`controls`, and below them what they show. Says in words, where no kernel runs, what it would be.

    `draw` fills what is shown, now and whenever a control changes. What it raises becomes a sentence. Where it takes long it is a
    generator that yields (pieces done, of how many): then a bar and a stop button stand beside the controls, and a control that
    is moved meanwhile starts it anew.
    """

    def __init__(self, does: str, controls: Sequence[Widget], shown: Sequence[Widget], draw: Callable[[], Iterator | None]):
        self.does, self.draw, self.turn = does, draw, 0
        self.said, self.progress = (
            HTML(),
            IntProgress(description="drafting", style=NAMES, layout=WIDE),
        )
        self.stop = Button(description="stop", tooltip="Stop drafting; what is shown stays", disabled=True)
        self.stop.on_click(lambda _: self._ended("Stopped: what is shown is older than the controls."))
        long = [HBox([self.progress, self.stop])] if isgeneratorfunction(draw) else []
        super().__init__([HBox(controls, layout=Layout(flex_flow="row wrap")), *long, self.said, *shown])
        self.add_class("e3-explorer")
        for control in controls:
            control.observe(lambda _: self.redraw(), names="value")
        self.redraw(wait=True)

    def __repr__(self) -> str:
        return f"An explorer: open this notebook in JupyterLab and run it {self.does}."

    def redraw(self, wait: bool = False) -> None:
        """Draw as the controls say. `wait`: until it is done, also where it is drawn in pieces."""
        self._ended("")
        pieces = iter(self._sentence(self.draw) or ())
        try:
            loop = None if wait else asyncio.get_running_loop()
        except RuntimeError:  # no kernel
            loop = None
        if loop and isgeneratorfunction(self.draw):
            self.stop.disabled = False
            self.task = loop.create_task(self._piecewise(pieces, self.turn))
        else:
            self._sentence(lambda: [self._at(*piece) for piece in pieces])

    async def _piecewise(self, pieces: Iterator, turn: int) -> None:
        """Between pieces the kernel may hear of a control that was moved, or of the stop button."""
        while turn == self.turn and (piece := self._sentence(lambda: next(pieces, None))):
            self._at(*piece)
            await asyncio.sleep(0.005)
        if turn == self.turn:
            self._ended(self.said.value)

    def _at(self, done: int, whole: int) -> None:
        self.progress.max, self.progress.value = whole, done

    def _ended(self, said: str) -> None:
        self.turn += 1
        self.stop.disabled, self.said.value = True, said

    def _sentence(self, do: Callable) -> object:
        """What `do` returns; None where it raised, and then its sentence is shown."""
        try:
            return do()
        except Exception as problem:  # whatever it is: a traceback in a widget would go to a log that nobody sees
            what = str(problem) if isinstance(problem, InputError) else f"{type(problem).__name__}: {problem}"
            self.said.value = f'<div role="alert"><b>Not drawn:</b> {html.escape(what)}. What is shown is older.</div>'
            return None


def chosen_sample(captures: Sequence[Capture]) -> Dropdown:
    """A control whose value is the sample's place in `captures`."""
    return Dropdown(options=[(c.name, i) for i, c in enumerate(captures)], description="sample", style=NAMES, layout=WIDE)


def slider(description: str, value: int, most: int, least: int = 0) -> IntSlider:
    """A control whose value is a whole number; what follows from it is drawn when it is let go."""
    return IntSlider(value=value, min=least, max=max(most, least), description=description, continuous_update=False,
                     style=NAMES, layout=WIDE)  # fmt: skip


def largest_channels(capture: Capture, stream, position: int) -> pd.DataFrame:
    """The channels of one row with the largest absolute value, and their share of the row's squared norm."""
    row = capture.stream(stream)[position]
    top = row.abs().topk(min(CHANNELS, len(row))).indices
    share = row[top] ** 2 / (row**2).sum()
    return pd.DataFrame({"channel": top.numpy(), "value": row[top].numpy(), "share of the row": share.numpy()})


def streams_and_positions(captures: Sequence[Capture], text=None) -> Explorer:
    """Pick a sample, a stream and a position. `text(ids) -> list of str` gives token texts, where a tokenizer is at hand."""
    samples = chosen_sample(captures)
    stream = Dropdown(options=[(str(n), n) for n in captures[0].streams], description="stream n", style=NAMES, layout=WIDE)
    position = slider("position", 1, len(captures[0].token_ids) - 2)
    picture, channels = drawing(), HTML()

    def draw() -> None:
        capture = captures[samples.value]
        position.max = max(len(capture.token_ids) - 2, 1)
        at = min(position.value, max(len(capture.token_ids) - 2, 0))
        token = int(capture.token_ids[at])
        shown = f"token {token}" + (f" {text([token])[0]!r}" if text else "")
        norms = row_norms([capture], [stream.value])
        title = f"r_{stream.value} of {capture.name}, position {at}: {shown}"
        picture.value = figures.one_row(norms, at, title)._repr_png_()
        channels.value = table(largest_channels(capture, stream.value, at).round(3))

    return Explorer("to move through samples, streams and positions", [samples, stream, position], [picture, channels], draw)
