"""What every figure must keep to: read at 9 pt in a narrow page, in any theme, without colour, and each axis named."""

import io

import matplotlib.text
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from matplotlib.colors import to_rgba
from PIL import Image
from test_probe import written_for

import eagle3lib as e3
from eagle3lib.measure.acceptance import tokens_of_rounds
from eagle3lib.measure.speed import Setting, paid, round_time, speed_table
from eagle3lib.read.served import Served
from eagle3lib.show import curves, drawings, figures, lesson, rows, sets, speeds, verdicts

NARROW = 612  # pixels that a page of 700 leaves a figure
SETTINGS = [Setting(1, 56.8, 1.6, "first"), Setting(5, 46.7, 1.9, "second")]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> dict[str, figures.Picture]:
    """Every figure function of the library, on a tiny drafter that was trained on other streams than it says."""
    place = tmp_path_factory.mktemp("drawn")
    ckpt = e3.open_checkpoint(tiny.write_drafter(place / "drafter"), target=tiny.write_target(place / "target"))
    captures = written_for(e3.Drafter(ckpt, ckpt.recipe.replace(streams=(3, 0, 2))), 16)
    run = Served("run", 3, 100, 10, 1.1, {"a": np.array([48, 2, 0, 0]), "b": np.array([43, 6, 1, 0])}, "log", positions=(9, 1, 0))
    found = e3.verdict(ckpt, captures, logs=[run], claimed=0.9, claimed_by=("SpecForge", "acc_0"))
    hits = {"as configured": found.evidence.now, "on r_3, r_0, r_2": found.evidence.mended}
    lengths = {name: e3.Acceptance.of(one) for name, one in hits.items()}
    chosen = sets.of(ckpt, captures, streams=(3, 0, 2))
    norms, profile = e3.row_norms(captures), e3.channel_profile(captures)
    tau = lengths["on r_3, r_0, r_2"]
    live = pd.DataFrame({"name": ["as configured"], "K": [1], "accept length": [1.1]})
    times = round_time(SETTINGS)
    broken = lesson.breaks_table(
        {"rows one late": lesson.Curve.of(hits["as configured"])}, lesson.Curve.of(found.evidence.mended), 3
    )
    walked = tokens_of_rounds(found.evidence.mended[0], torch.as_tensor(captures[0].token_ids), 3)
    ranked = e3.compare(lengths, 3).table()
    states = {name: e3.drafter_state(one.drafter, one.captures, 3) for name, one in chosen.items()}
    shares = {name: sets.mean_shares(one.drafter, one.captures) for name, one in chosen.items()}
    return {
        "figures.norms": figures.norms(norms, {"as trained": (3, 0, 2), "as configured": (2, 3, 4)}),
        "figures.norms_by_position": figures.norms_by_position(norms),
        "figures.norm_distributions": figures.norm_distributions(norms),
        "figures.channels": figures.channels(profile),
        "figures.lens": figures.lens(e3.logit_lens(captures, ckpt.target)[0]),
        "figures.hypotheses": figures.hypotheses(found.evidence.probe.table.head(8), (2, 3, 4)),
        "figures.distances": figures.distances(e3.distances(captures, captures), "at the server", "recorded"),
        "figures.sizes": figures.sizes(e3.inventory(ckpt)),
        "figures.one_row": figures.one_row(norms[norms.stream == 2], 3, "r_2 of a sample"),
        "curves.accept_length": curves.accept_length(lengths, live),
        "curves.accuracies": curves.accuracies({n: e3.Accuracy.of(h) for n, h in hits.items()}, ("claimed", 0.9)),
        "curves.where_it_works": curves.where_it_works(e3.by_position(hits["as configured"], 3), tau.requests(3), tau.tau(3), 3),
        "curves.comparison": curves.comparison(lengths, ranked, 3),
        "curves.state_over_steps": curves.state_over_steps(states, shares),
        "curves.speeds": curves.speeds(speed_table(times, 90.0, 0.7, range(1, 6)), paid(SETTINGS, 90.0), 90.0),
        "speeds.picture": speeds.picture(speeds.bought(lengths, SETTINGS, 90.0), SETTINGS, 90.0),
        "verdicts.sides": verdicts.sides(found),
        "verdicts.changes": verdicts.changes(found),
        "verdicts.marginal": verdicts.marginal(found),
        "drawings.data_flow": drawings.data_flow(ckpt),
        "drawings.places": drawings.places(),
        "drawings.token_map": drawings.token_map(walked, lambda ids: [f" word{i}" for i in ids]),
        "lesson.breaks_figure": lesson.breaks_figure(broken, 3),
        "rows.shift_figure": rows.shift_figure(captures[0], 8, None),
    }


MODULES = (figures, curves, drawings, speeds, verdicts, lesson, rows)
NAMES = [
    f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in MODULES
    for name, function in vars(module).items()
    if callable(function) and getattr(function, "__module__", "") == module.__name__
    and "Picture" in str(getattr(function, "__annotations__", {}).get("return", "")) and not name.startswith("_")
]  # fmt: skip


@pytest.fixture
def picture(drawn, request) -> figures.Picture:
    return drawn[request.param]


def words(picture) -> list[matplotlib.text.Text]:
    """What is drawn: matplotlib keeps labels of ticks beyond the limits as well."""
    axes = [axis for one in picture.axes for axis in (one.xaxis, one.yaxis)]
    kept = {tick.label1 for axis in axes for tick in (*axis.majorTicks, *axis.minorTicks)}
    kept -= {tick.label1 for axis in axes if axis.axes.axison for tick in axis._update_ticks()}
    texts = picture.findobj(matplotlib.text.Text)
    return [t for t in texts if t.get_visible() and t.get_text().strip() and t not in kept]


every = pytest.mark.parametrize("picture", NAMES, indirect=True)


@every
def test_it_is_opaque(picture):
    assert to_rgba(picture.get_facecolor())[3] == 1
    data, about = picture._repr_mimebundle_()
    made = np.asarray(Image.open(io.BytesIO(data["image/png"])).convert("RGBA"))
    assert made[..., 3].min() == 255
    assert made.shape[1] == pytest.approx(2 * about["image/png"]["width"], abs=2)  # sharp on dense screens


@every
def test_its_text_is_9_pt_or_more_in_a_narrow_page(picture):
    shown = min(1, NARROW / (picture.get_figwidth() * figures.DPI)) * figures.DPI / 96  # a page has 96 pixels an inch
    assert {t.get_text(): t.get_fontsize() for t in words(picture) if t.get_fontsize() * shown < 9} == {}


@every
def test_its_axes_say_what_they_are(picture):
    """By a label of their own, one for the whole figure, or names in the place of numbers."""
    for axes in picture.axes:
        for axis, whole in ((axes.xaxis, picture._supxlabel), (axes.yaxis, picture._supylabel)):
            ticks = [t.get_text() for t in axis.get_ticklabels() if t.get_visible() and t.get_text()]
            numbers = any(text.replace("\N{MINUS SIGN}", "").replace(".", "").isdigit() for text in ticks)
            shared = axis.axis_name == "y" and any(other.get_ylabel() for other in axes.get_shared_y_axes().get_siblings(axes))
            assert not (axes.axison and numbers) or axis.get_label_text() or whole or shared, f"{axis.axis_name}: {ticks}"


@every
def test_lines_differ_by_more_than_colour(picture):
    for axes in picture.axes:
        lines = [line for line in axes.lines if not line.get_label().startswith("_")]
        looks = [(line.get_marker(), line.get_linestyle(), line.get_fillstyle()) for line in lines]
        assert len(set(looks)) == len(looks)
        assert {to_rgba(line.get_color())[:3] for line in lines} <= {to_rgba(c)[:3] for c in (*figures.COLOURS, "black")}


@every
def test_no_text_is_clipped_or_lies_on_another(picture):
    picture.draw_without_rendering()  # places everything, at this number of pixels
    boxes = [(t.get_text(), t.get_window_extent()) for t in words(picture)]
    for text, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= picture.bbox.x1 + 1 and box.y1 <= picture.bbox.y1 + 1, text
    for i, (text, box) in enumerate(boxes):
        over = [other for other, its in boxes[i + 1 :] if box.padded(-2).overlaps(its.padded(-2))]
        assert not over, f"{text!r} lies on {over}"


def test_every_figure_is_drawn_here(drawn):
    assert set(NAMES) == set(drawn)
