"""The explorers without a browser: each is built on a tiny drafter, its controls are moved, and what it shows follows."""

import asyncio

import pytest
import tiny
import torch
from ipywidgets import Button, Dropdown, Image, IntProgress

import eagle3lib as e3
from eagle3lib.measure.speed import Setting
from eagle3lib.run.chain import draft_slowly
from eagle3lib.show import explore_recipe, explore_speed, explore_tokens, explorer
from eagle3lib.show.explore_row import chain_at, first_step

STEPS = 3
SETTINGS = [
    Setting(K, 1.2 * B / (0.01 + 0.002 * K + 0.001 * B * (K + 1)), 1.2, batch=B) for K, B in ((1, 1), (3, 1), (1, 4), (3, 4))
]


def words(ids):
    return [f"<{i}>$" for i in ids]


def some(lengths=(20, 26)):
    return [tiny.capture(T=T, seed=T, name=f"s{T}") for T in lengths]


def streams(ckpt, captures, text):
    return explorer.streams_and_positions(captures, text)


def tokens(ckpt, captures, text):
    drafter = e3.Drafter(ckpt)
    return explore_tokens.tokens(drafter, captures, e3.hits(drafter, captures, STEPS), text)


def recipe(ckpt, captures, text):
    return explore_recipe.recipe(e3.Drafter(ckpt), ckpt, captures, STEPS)


def speed(ckpt, captures, text):
    lengths = e3.Acceptance.of(e3.hits(e3.Drafter(ckpt), captures, STEPS))
    return explore_speed.speed({"one": lengths, "two": lengths + lengths}, SETTINGS, 90.0)


EVERY = [streams, tokens, recipe, speed]


def inside(widget, kind) -> list:
    """The widgets of a kind in an explorer, outermost first."""
    found = [widget] if isinstance(widget, kind) else []
    return found + [one for child in getattr(widget, "children", ()) for one in inside(child, kind)]


def controls(one) -> list:
    return list(one.children[0].children)


def picture(one) -> bytes:
    (image,) = inside(one, Image)
    return bytes(image.value)


def move(control) -> None:
    """The next entry of a list, the first after the last; a number one step on, or back from the end."""
    if isinstance(control, Dropdown):
        control.index = (control.index + 1) % len(control.options)
    else:
        control.value += control.step if control.value + control.step <= control.max else -control.step


@pytest.mark.parametrize("make", EVERY)
def test_each_control_changes_the_picture(make, tiny_checkpoint):
    one = make(tiny_checkpoint, some(), words)
    assert picture(one).startswith(b"\x89PNG"), one.said.value
    for control in controls(one):
        assert control.description
        if isinstance(control, Button):
            continue
        before = picture(one)
        move(control)
        assert picture(one) != before, control.description
        assert one.said.value == ""
    assert "open this notebook in JupyterLab" in repr(one) and len(repr(one)) <= 110, "ipywidgets cuts what is longer"


@pytest.mark.parametrize("make", EVERY)
def test_little_is_given(make, tmp_path):
    """One short sample, no tokenizer, no map of the vocabulary: it stands."""
    tensors = {name: t for name, t in tiny.drafter_tensors().items() if name not in ("d2t", "t2d")}
    tensors["lm_head.weight"] = torch.randn(tiny.V, tiny.H, generator=torch.Generator().manual_seed(0))
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", tensors, draft_vocab_size=tiny.V))
    one = make(ckpt, [tiny.capture(T=8, prompt=3)], None)
    assert one.said.value == "" and picture(one).startswith(b"\x89PNG")
    for control in controls(one):
        if not isinstance(control, Button) and (not isinstance(control, Dropdown) or len(control.options) > 1):
            move(control)
            assert one.said.value == "", control.description


def test_an_error_is_a_sentence_and_the_next_draw_clears_it(tiny_checkpoint):
    short = tiny.capture(T=2, prompt=0, name="<two>")
    one = tokens(tiny_checkpoint, [tiny.capture(), short], None)
    before = picture(one)
    samples = controls(one)[0]
    samples.value = 1
    assert "&lt;two&gt;: 2 tokens, expected 3 or more" in one.said.value and "Traceback" not in one.said.value
    assert picture(one) == before
    samples.value = 0
    assert one.said.value == ""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda ckpt: recipe(ckpt, [tiny.capture(streams=(0, 2))], None), "was not recorded"),
        (
            lambda ckpt: explore_speed.speed({"x": e3.acceptance(e3.Drafter(ckpt), some(), e3.Chain(2))}, [], None),
            "give MEASURED",
        ),
    ],
    ids=["a stream is lacking", "nothing was measured"],
)
def test_what_cannot_be_drawn_is_said_at_once(make, said, tiny_checkpoint):
    one = make(tiny_checkpoint)
    assert said in one.said.value and picture(one) == b""


def test_the_chain_of_a_row_is_the_library_s_own(tiny_checkpoint):
    drafter, capture, row = e3.Drafter(tiny_checkpoint), tiny.capture(T=24), 9
    chain = chain_at(drafter, capture, first_step(drafter, capture), row, STEPS)
    g = capture.joined(drafter.recipe)[: row + 1]
    assert [one["ids"][0] for one in chain] == draft_slowly(drafter, g, capture.token_ids[: row + 2], STEPS)
    for step, one in enumerate(chain):
        assert len(one["attention"]) == row + 1 + step
        assert float(one["attention"].sum()) == pytest.approx(1, abs=1e-5)
        assert sorted(one["p"], reverse=True) == one["p"]


def test_rounds_are_stepped_through(tiny_checkpoint):
    one = tokens(tiny_checkpoint, some(), None)
    row, (back, on) = controls(one)[1], [c for c in controls(one) if isinstance(c, Button)]
    start = row.value
    on.click()
    assert row.value > start
    back.click()
    assert row.value == start
    back.click()
    assert row.value == start, "there is no round before the first"


def test_the_recipe_as_it_is_and_back(tiny_checkpoint):
    one = recipe(tiny_checkpoint, some(), None)
    slot, before = controls(one)[0], picture(one)
    was = slot.value
    slot.value = 0
    assert "streams r_0, r_3, r_4" in one.children[-1].value
    slot.value = was
    assert picture(one) == before


def test_break_even_is_the_round_s_own(tiny_checkpoint):
    one = speed(tiny_checkpoint, some(), None)
    _, K, first, step, token, without, _ = controls(one)
    first.value, step.value, token.value, without.value, K.value = first.max, 0, 0, without.max, 1
    rest = explore_speed.fitted(SETTINGS, 90.0).step_request
    assert f"it pays from {(first.value / 1000 + rest) * without.value:.2f} on" in one.children[-3].value
    first.value = first.min
    assert "raise a part of its time" in one.said.value, "a round that takes no time"


def test_a_long_draw_goes_in_pieces_and_is_stopped():
    """In a kernel: the bar follows, the stop button ends it, a control that is moved starts it anew."""
    made, drawn = [], []
    control = Dropdown(options=[1, 2, 3])

    def draw():
        for piece in range(4):
            made.append((control.value, piece))
            yield piece + 1, 4
        drawn.append(control.value)

    async def kernel():
        one = explorer.Explorer("to wait", [control], [], draw)
        assert drawn == [1] and one.stop.disabled
        control.value = 2
        assert not one.stop.disabled
        await asyncio.sleep(0)
        control.value = 3  # before 2 is done
        await one.task
        assert drawn == [1, 3] and (2, 3) not in made and one.stop.disabled
        control.value = 1
        await asyncio.sleep(0)
        one.stop.click()
        assert "Stopped" in one.said.value and one.stop.disabled
        await one.task
        assert drawn == [1, 3] and made[-1] == (1, 0)
        (bar,) = inside(one, IntProgress)
        assert (bar.value, bar.max) == (1, 4)

    asyncio.run(kernel())


def test_what_is_raised_in_pieces_is_said(tiny_checkpoint):
    def draw():
        yield 1, 2
        raise e3.InputError("field x: found y, expected z")

    one = explorer.Explorer("to fail", [], [], draw)
    assert "field x: found y, expected z" in one.said.value


def test_another_sample_begins_where_an_engine_does(tiny_checkpoint):
    captures = [tiny.capture(T=20), tiny.capture(T=30, prompt=14, name="later")]
    one = tokens(tiny_checkpoint, captures, None)
    samples, row = controls(one)[:2]
    assert (row.value, row.max) == (5, 17)
    samples.value = 1
    assert (row.value, row.max) == (13, 27)


def test_the_recipe_is_set_back_at_once(tiny_checkpoint):
    one = recipe(tiny_checkpoint, some(), None)
    before, lists = picture(one), [c for c in controls(one) if isinstance(c, Dropdown)]
    for control in lists[:2]:
        move(control)
    assert picture(one) != before
    controls(one)[-1].click()
    assert picture(one) == before
