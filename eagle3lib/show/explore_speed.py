"""One explorer: move draft steps, round times and the speed without a drafter; see what an accept length is then worth."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipywidgets import HTML, Dropdown, FloatSlider

from ..measure.acceptance import Acceptance
from ..measure.speed import Setting, speeds
from ..read.errors import InputError
from .explorer import NAMES, WIDE, Explorer, drawing, prose, slider, table
from .speeds import fitted, picture

TIMES = {"first": "fixed, ms", "step": "a draft step, ms", "token": "a token verified, ms"}  # term of RoundTime -> control
SHOWN = ["accept length", "break-even accept length", "ms a round", "tokens a second", "over baseline", "over baseline, perfect"]


def _amount(name: str, value: float, most: float) -> FloatSlider:
    least = min(0.0, value)
    return FloatSlider(value=value, min=least, max=most, step=(most - least) / 200, description=name, continuous_update=False,
                       readout_format=".1f", style=NAMES, layout=WIDE)  # fmt: skip


def speed(lengths: Mapping[str, Acceptance], settings: Sequence[Setting], baseline: float | None) -> Explorer:
    """Pick accept lengths (name -> Acceptance), K and the parts of a round's time, which start where the measured `settings` put
    them; requests at once where several were measured. `baseline`: tokens a second without a drafter.
    """
    fit, batches = fitted(settings, baseline), sorted({s.batch for s in settings})
    names, most = list(lengths), max(next(iter(lengths.values())).walks)
    drafter = Dropdown(options=names, value=names[-1], description="accept lengths", style=NAMES, layout=WIDE)
    K, image, told, numbers = slider("draft steps K", min(3, most), most, 1), drawing(), HTML(), HTML()
    controls = [drafter, K]
    if fit:
        value = {name: 1000 * getattr(fit, name) for name in TIMES}
        room = {name: fit.at(1, batches[0]) * (1000 if name == "first" else 50) for name in TIMES}  # where nothing was fitted
        times = {name: _amount(what, value[name], max(3 * value[name], room[name])) for name, what in TIMES.items()}
        alone = baseline or batches[0] / fit.at(0, batches[0])
        without = _amount("without, tokens/s", alone, 3 * alone)
        without.min = without.step  # without a drafter something is written, too
        batch = [slider("requests at once", batches[0], 2 * batches[-1], 1)] if len(batches) > 1 else []
        controls += [*times.values(), without, *batch]

    def draw() -> None:
        if not fit:
            raise InputError("speeds: measured at fewer than two settings, expected two or more numbers of draft steps, or the "
                             "speed without a drafter and one: give MEASURED")  # fmt: skip
        now = replace(fit, **{name: one.value / 1000 for name, one in times.items()})
        B = batch[0].value if batch else batches[0]
        if now.at(K.value, B) <= 0 or now.at(0, B) <= 0:
            raise InputError(f"a round of K = {K.value} would take {1000 * now.at(K.value, B):.1f} ms: raise a part of its time")
        rows = speeds(now, lengths[drafter.value], without.value * B / batches[0], B)
        best, row = rows["tokens a second"].idxmax(), rows.loc[K.value]
        figure = picture({drafter.value: rows}, settings, without.value * B / batches[0])
        figure.axes[0].axvline(K.value, color="black", linewidth=0.8)
        image.value = figure._repr_png_()
        pays = "pays" if row["over baseline"] > 1 else "does not pay"
        told.value = prose(
            f"<b>K = {K.value} {pays}</b>: a round takes {row['ms a round']:.1f} ms and yields {row['accept length']:.2f} "
            f"tokens; it pays from {row['break-even accept length']:.2f} on. {row['tokens a second']:.0f} tokens a second, "
            f"{row['over baseline']:.2f} times the speed without a drafter. Best is <b>K = {best}</b>: "
            f"{rows['tokens a second'][best]:.0f} tokens a second, {rows['over baseline'][best]:.2f} times."
        )
        numbers.value = table(rows[SHOWN].round(2).reset_index())

    return Explorer("to move draft steps and round times", controls, [told, image, numbers], draw)
