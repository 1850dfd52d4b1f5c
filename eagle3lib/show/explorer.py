"""One explorer: pick a sample, a stream and a position; see the row among its neighbours, its token and its largest channels."""

from collections.abc import Sequence

import pandas as pd
from ipywidgets import HTML, Dropdown, HBox, Image, IntSlider, VBox

from ..measure.norms import row_norms
from ..read.capture import Capture
from . import figures

CHANNELS = 6


class Explorer(VBox):
    """A VBox that says, where no kernel runs, what it would be."""

    def __repr__(self) -> str:
        return "An explorer: open this notebook in JupyterLab and run it to move through samples, streams and positions."


def largest_channels(capture: Capture, stream, position: int) -> pd.DataFrame:
    """The channels of one row with the largest absolute value, and their share of the row's squared norm."""
    row = capture.stream(stream)[position]
    top = row.abs().topk(min(CHANNELS, len(row))).indices
    share = row[top] ** 2 / (row**2).sum()
    return pd.DataFrame({"channel": top.numpy(), "value": row[top].numpy(), "share of the row": share.numpy()})


def streams_and_positions(captures: Sequence[Capture], text=None) -> Explorer:
    """The widget. `text(ids) -> list of str` gives each token's text, where a tokenizer is at hand."""
    samples = Dropdown(options=[(c.name, i) for i, c in enumerate(captures)], description="sample")
    first = captures[0]
    stream = Dropdown(options=[(str(n), n) for n in first.streams], description="stream n")
    position = IntSlider(value=1, min=0, max=max(len(first.token_ids) - 2, 1), description="position", continuous_update=False)
    picture, channels = Image(format="png"), HTML()  # not an Output: nbclient cannot run one without keeping widget state

    def draw(change=None) -> None:
        capture = captures[samples.value]
        position.max = max(len(capture.token_ids) - 2, 1)
        at = min(position.value, max(len(capture.token_ids) - 2, 0))
        token = int(capture.token_ids[at])
        shown = f"token {token}" + (f" {text([token])[0]!r}" if text else "")
        table = row_norms([capture], [stream.value])
        title = f"r_{stream.value} of {capture.name}, position {at}: {shown}"
        picture.value = figures.one_row(table, at, title)._repr_png_()
        channels.value = largest_channels(capture, stream.value, at).round(3).to_html(index=False)

    for widget in (samples, stream, position):
        widget.observe(draw, names="value")
    draw()
    return Explorer([HBox([samples, stream]), position, picture, channels])
