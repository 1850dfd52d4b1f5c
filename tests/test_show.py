"""Tables, pictures and sentences that stand in the notebooks."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from conftest import ROOT
from test_acceptance import hits_of

import eagle3lib as e3
from eagle3lib.judge.finding import Findings
from eagle3lib.measure.acceptance import tokens_of_rounds
from eagle3lib.read.served import Served
from eagle3lib.show import curves, drawings, explorer, figures, pages, readings, results, sets, start, tables, tokens


def png(picture) -> bytes:
    made = picture._repr_png_()
    assert made.startswith(b"\x89PNG")
    assert len(made) > 3000
    return made


def test_what_became_of_each_token_by_hand():
    one = hits_of([2, 0, 0, 1, 0, 0], 2)  # rows 0..5 of 8 tokens: 2 accepted, then row 3: 1, then row 5: none
    found = tokens_of_rounds(one, torch.arange(8), 2)
    assert found.what.tolist() == ["prompt", "first", "accepted", "accepted", "target", "accepted", "target", "target"]
    assert found.guess.tolist() == [-1, -1, -1, -1, -1, -1, 8, 8]  # hits_of guesses 8 where it is wrong
    assert (found.what == "accepted").sum() == e3.Acceptance.of([one]).counts(2).sum(0) @ np.arange(3)


def test_a_text_is_drawn_with_and_without_a_tokenizer():
    found = tokens_of_rounds(hits_of([2, 0, 0, 1, 0, 0], 2), torch.arange(8), 2)
    words = png(drawings.token_map(found, lambda ids: [f" word{i}" for i in ids]))
    assert png(drawings.token_map(found, None)) != words


@pytest.mark.parametrize("streams", [(2, 3, 4), None])
def test_the_data_flow_is_drawn(tmp_path, streams):
    changes = {} if streams else {"eagle_config": None}
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", **changes))
    png(drawings.data_flow(ckpt))
    told = readings.checkpoint(ckpt, e3.inventory(ckpt))
    assert ("r_2, r_3, r_4" in told) == bool(streams)
    assert "No target was given" in told
    assert "nan" not in told


def test_a_tensor_that_was_never_trained_is_told(tmp_path):
    tensors = tiny.drafter_tensors() | {"midlayer.hidden_norm.weight": torch.ones(tiny.H)}
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", tensors))
    assert "never trained: `layers.0.hidden_norm.weight`" in readings.checkpoint(ckpt, e3.inventory(ckpt))


def test_questions_say_what_is_lacking():
    given = {"CHECKPOINT": "x", "TARGET": None, "CAPTURES": None, "SERVED": None, "LOG": None}
    table = start.questions(given, ROOT / "notebooks")
    assert table["can it be answered"]["01_checkpoint"] == "yes"
    assert "--captures DIR" in table["can it be answered"]["04_acceptance"]
    assert all(table.question), "a notebook without a question in its metadata"
    told = readings.start(table, start.missing(given))
    assert "02_hidden_states" in told
    assert "hidden states recorded from the target show" in told


def test_live_runs_stand_beside_the_set_with_their_streams(tiny_checkpoint):
    chosen = sets.of(tiny_checkpoint, [tiny.capture()], streams=(0, 2, 3))
    runs = [
        Served("a", 1, 10, 5, 1.5, None, "live.json", "drafter", (0, 2, 3)),
        Served("b", 1, 10, 1, 1.1, None, "live.json", "drafter", (2, 3, 4)),
        Served("c", 1, 10, 9, 1.9, None, "live.json", "another", (2, 3, 4)),
        Served("vLLM log", 3, 10, 2, 1.2, None, "log", None, None),
    ]
    table = tables.live(runs, chosen, "drafter").set_index(["name", "K"])["accept length"]
    assert table.to_dict() == {("on r_0, r_2, r_3", 1): 1.5, ("as configured", 1): 1.1, ("as configured", 3): 1.2}


def test_slow_beside_fast_is_equal(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(T=24)
    table = sets.slow_beside_fast(drafter, capture, e3.chain_hits(drafter, capture, 2), 2)
    assert table.equal.all()
    assert len(table) == sets.ROUNDS


def test_figures_of_one_short_sample_are_drawn(tiny_checkpoint):
    """One sample has no intervals, eight steps are more than its text allows: pictures and sentences must stand that."""
    captures = [tiny.capture(T=9)]
    drafter = e3.Drafter(tiny_checkpoint)
    found = e3.hits(drafter, captures, 8)
    acc, tau = e3.Accuracy.of(found), e3.Acceptance.of(found)
    png(curves.accuracies({"x": acc}))
    png(curves.accept_length({"x": tau}))
    assert "nan" not in readings.accept_length({"x": tau}, 1)
    assert "nan" not in results.accuracies(
        {"x": acc}, Findings([]), e3.trainer_figures(acc).loc[("speculators", "full_acc_0")], 0.7
    )
    positions = e3.by_position(found, 8)
    png(curves.where_it_works(positions, tau.requests(8), tau.tau(8), 8))
    assert "No answer is long enough" in results.where_it_works(positions, tau.requests(8), tau.mean_of_requests(8), tau.tau(8))
    norms = e3.row_norms(captures)
    for draw in (figures.norms_by_position, figures.norm_distributions):
        png(draw(norms))
    png(figures.channels(e3.channel_profile(captures)))
    assert "on one sample" not in readings.positions(norms)


def test_token_texts_or_ids_alone():
    rows = pd.DataFrame({"sample": ["a"], "position": [3], "next": [7]})
    assert tokens.spelled(rows, None).equals(rows)
    assert tokens.spelled(rows, lambda ids: [f"<{i}>" for i in ids]).next[0] == "7 '<7>'"


def test_a_curve_that_still_grows_is_not_called_flat():
    growing = e3.Acceptance.of([hits_of([3, 0, 0, 0, 3, 0, 0, 0], 3)])
    assert "still grows at K = 3" in results.flat_from({"x": growing})


def test_a_name_is_no_formula_and_no_script(tiny_checkpoint):
    capture = tiny.capture(name=r"$\foo$ <svg onload=alert(1)>")
    png(figures.one_row(e3.row_norms([capture], [2]), 3, f"r_2 of {capture.name}"))
    explorer.streams_and_positions([tiny.capture(T=3, prompt=1), capture], text=lambda ids: ["$$"])
    page = pages.offline(f"<p>{capture.name}</p><a href='javascript:x()'>a</a><img onerror=x src='data:image/png;base64,AA'>", [])
    assert "onload" not in page
    assert "onerror" not in page
    assert "javascript:" not in page
    assert "display" not in pages.offline("<table><td><style>*{display:none}</style>x</td></table>", [])


def test_without_streams_in_the_config_others_can_be_run(tmp_path):
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", eagle_config=None))
    assert list(sets.of(ckpt, [tiny.capture()], streams=[2, 3, 4])) == ["on r_2, r_3, r_4"]


def test_no_round_is_long_enough_for_the_slow_loop(tiny_checkpoint):
    drafter, capture = e3.Drafter(tiny_checkpoint), tiny.capture(T=9)
    assert sets.slow_beside_fast(drafter, capture, e3.chain_hits(drafter, capture, 8), 8).empty
