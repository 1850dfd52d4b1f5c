"""The probe names the streams that a drafter was trained on, with a margin, or says that it cannot."""

import re
from functools import partial

import pandas as pd
import pytest
import tiny
import torch

import eagle3lib as e3
from eagle3lib.judge.hypotheses import config_line, name_of
from eagle3lib.judge.probe import preferred
from eagle3lib.judge.ranking import fewest
from eagle3lib.run.chain import draft_slowly
from eagle3lib.show import readings

streams_of = partial(e3.probe, changes=False)  # the first question alone; single changes are in test_hypotheses and test_verdict


def written_for(drafter: e3.Drafter, samples: int, follow: float = 0.5) -> list[e3.Capture]:
    """Captures whose text follows the drafter's own guesses half of the time: for this drafter and these streams only."""
    made = []
    for seed in range(samples):
        capture = tiny.capture(T=26, prompt=5, seed=seed, name=f"s{seed}")
        ids, g = capture.token_ids.clone(), capture.joined(drafter.recipe)
        coin = torch.rand(26, generator=torch.Generator().manual_seed(seed))
        for t in range(4, 24):
            if coin[t] < follow:
                ids[t + 2] = draft_slowly(drafter, g[: t + 1], ids[: t + 2], 1)[0]
        made.append(capture.replace(token_ids=ids))
    return made


def test_right_streams(tiny_checkpoint):
    found = streams_of(tiny_checkpoint, written_for(e3.Drafter(tiny_checkpoint), 16))
    assert found.streams == (2, 3, 4)
    assert len(found.table) == 24  # 4 * 3 * 2 ordered choices of three among four
    assert found.findings[0].level in ("ok", "note")


def test_other_streams(tiny_checkpoint):
    trained = tiny_checkpoint.recipe.replace(streams=(3, 0, 2))
    found = streams_of(tiny_checkpoint, written_for(e3.Drafter(tiny_checkpoint, trained), 16))
    finding = found.findings[0]
    assert found.streams == (3, 0, 2)
    assert finding.level == "fault"
    assert finding.what.startswith("trained on streams r_3, r_0, r_2, but configured for streams r_2, r_3, r_4")
    assert "[3, 0, 2]" in finding.change
    assert finding.evidence["p"] < 0.01


def test_unlabelled_slots_in_another_order(tiny_checkpoint):
    """Captures without labels: only the order of the slots can be told, and it is."""
    captures = written_for(e3.Drafter(tiny_checkpoint), 16)
    slots = {"slot0": 4, "slot1": 2, "slot2": 3}  # recorded in another order than trained
    unlabelled = [c.replace(streams={slot: c.streams[n] for slot, n in slots.items()}, known={}) for c in captures]
    found = streams_of(tiny_checkpoint, unlabelled)
    assert found.streams == ("slot1", "slot2", "slot0")
    assert found.findings[0].level == "fault"
    assert found.findings[0].change == "hand the recorded slots over in the order slot1, slot2, slot0"
    mended = e3.Drafter(tiny_checkpoint, tiny_checkpoint.recipe.replace(streams=found.streams))
    assert torch.equal(unlabelled[0].joined(mended.recipe), captures[0].joined(tiny_checkpoint.recipe))


def test_chance_accuses_nobody(tiny_checkpoint):
    """Text that has nothing to do with any stream: whatever is best must not be called a fault."""
    for seed in range(4):
        captures = [tiny.capture(T=30, prompt=5, seed=100 * seed + i, name=f"s{i}") for i in range(6)]
        found = e3.probe(tiny_checkpoint, captures)
        assert found.findings[0].level != "fault"
        assert not found.found


@pytest.mark.parametrize("samples", [2, 3, 6])
def test_few_samples_cannot_accuse(tiny_checkpoint, samples):
    """Two samples of pure chance were once enough for a p-value of zero."""
    for seed in range(3):
        captures = [tiny.capture(T=16, prompt=5, seed=100 * seed + i, name=f"s{i}") for i in range(samples)]
        found = e3.probe(tiny_checkpoint, captures)
        assert found.findings[0].level != "fault"
        assert not found.found


def test_too_many_choices_are_not_tried(tiny_checkpoint):
    captures = [tiny.capture(streams=range(20), name=n) for n in "ab"]
    with pytest.raises(e3.InputError, match="6,840 ordered choices, more than 3,000: name some with streams="):
        streams_of(tiny_checkpoint, captures)
    assert len(streams_of(tiny_checkpoint, captures, streams=(0, 2, 3, 4)).table) == 24


def test_a_cost_that_noise_hides_is_no_fault():
    import numpy as np

    same = {k: {f"s{i}": np.array([9 - i % 2] + [1] * k) for i in range(9)} for k in (1, 2)}
    other = {k: {f"s{i}": np.array([9 - (i + 1) % 2] + [1] * k) for i in range(9)} for k in (1, 2)}
    finding = e3.mismatch([2, 3, 4], (0, 2, 3), e3.Acceptance(same, same), e3.Acceptance(other, other), 2)
    assert finding.level == "note"
    assert e3.mismatch([2, 3, 4], (2, 3, 4), e3.Acceptance(same, same), e3.Acceptance(same, same), 2).level == "ok"


def test_what_was_not_recorded_cannot_be_judged(tiny_checkpoint):
    captures = [c.replace(streams={n: c.streams[n] for n in (0, 2, 3)}) for c in written_for(e3.Drafter(tiny_checkpoint), 3)]
    finding = streams_of(tiny_checkpoint, captures).findings[0]
    assert finding.level == "open"
    assert "not all recorded" in finding.what


def test_too_little_is_said(tiny_checkpoint):
    with pytest.raises(e3.InputError, match="1 sample"):
        streams_of(tiny_checkpoint, [tiny.capture()])
    few = [tiny.capture(streams=(2, 3), name=n) for n in "ab"]
    with pytest.raises(e3.InputError, match="2 streams in every sample"):
        streams_of(tiny_checkpoint, few)


def test_the_line_that_mends_is_read_back_as_meant(tmp_path):
    import json

    for streams in ((0, 2, 3), (2, 3, 4), (3, 0, 2)):
        line = json.loads("{" + config_line(streams) + "}")
        folder = tiny.write_drafter(tmp_path / "-".join(map(str, streams)), eagle_config=line)
        assert e3.open_checkpoint(folder).recipe.streams == streams
    assert "not sayable" in config_line((1, 2, 3))


def test_few_prompts_acquit_nobody_either(tiny_checkpoint):
    """Six prompts of a wrongly configured drafter: it cannot be told, and nothing may say that it was trained as configured."""
    trained = tiny_checkpoint.recipe.replace(streams=(3, 0, 2))
    captures = written_for(e3.Drafter(tiny_checkpoint, trained), 6)
    found = streams_of(tiny_checkpoint, captures)
    assert not found.told
    assert found.title == "best of those tried"
    tau = e3.acceptance(e3.Drafter(tiny_checkpoint), captures, e3.Chain(2))
    finding = e3.mismatch(found.streams, (2, 3, 4), tau, tau, 2, "configured for")
    said = readings.answer(finding, found, "accept length 1.00", e3.check_captures(tiny_checkpoint, captures))
    assert said.startswith("**Which streams it was trained on cannot be told from these 6 prompts")
    assert "trained on streams r_2, r_3, r_4" not in said
    needed = int(re.search(r"about (\d+) prompts", said)[1])
    assert needed >= fewest(24) == 13


def test_the_prompts_that_would_tell_do_tell(tiny_checkpoint):
    """The number it asks for is enough, on the same kind of text."""
    trained = tiny_checkpoint.recipe.replace(streams=(3, 0, 2))
    captures = written_for(e3.Drafter(tiny_checkpoint, trained), 24)
    said = streams_of(tiny_checkpoint, captures[:6]).findings[0].settle
    needed = int(re.search(r"about (\d+) prompts", said)[1])
    assert needed <= 24
    assert streams_of(tiny_checkpoint, captures[: max(needed, 13)]).streams == (3, 0, 2)


def test_a_sound_drafter_is_told_sound_only_when_all_others_are_told_from_it(tiny_checkpoint):
    found = streams_of(tiny_checkpoint, written_for(e3.Drafter(tiny_checkpoint), 24, follow=0.8))
    assert found.findings[0].level == "ok"
    assert found.title == "as trained"
    assert fewest(2730) == 20


def test_one_choice_proves_nothing(tmp_path):
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", tiny.drafter_tensors(n_streams=1),
                                                 eagle_config={"eagle_aux_hidden_state_layer_ids": [3]}))  # fmt: skip
    found = streams_of(ckpt, [tiny.capture(streams=(3,), seed=i, name=f"s{i}") for i in range(4)])
    assert not found.told
    assert "nothing to compare" in found.findings[0].what
    assert "beside nothing" in readings.probe(found)


def test_a_config_that_names_no_streams(tmp_path):
    ckpt = e3.open_checkpoint(tiny.write_drafter(tmp_path / "d", eagle_config=None))
    found = streams_of(ckpt, [tiny.capture(seed=i, name=f"s{i}") for i in range(4)])
    assert not found.told
    assert found.playable == found.streams
    assert "as configured" not in found.playable_title
    assert found.findings[0].what.startswith("config.json does not say which streams")


def test_the_configured_streams_are_tried_whatever_else_is_named(tiny_checkpoint):
    captures = [tiny.capture(seed=i, name=f"s{i}") for i in range(3)]
    found = streams_of(tiny_checkpoint, captures, streams=[0])
    assert found.playable == (2, 3, 4)
    assert found.playable_title == "as configured"
    lacking = [c.replace(streams={n: c.streams[n] for n in (0, 2, 3)}) for c in captures]
    assert "the configured not being recorded" in streams_of(tiny_checkpoint, lacking).playable_title


def test_of_choices_as_likely_another_order_of_the_configured_is_preferred():
    names = [name_of(streams) for streams in ((0, 15, 27), (2, 15, 27), (0, 2, 27), (15, 2, 27))]
    table = pd.DataFrame(
        {"accuracy": [0.40, 0.395, 0.39, 0.2], "p best": [1.0, 0.5, 0.5, 1e-6], "p configured": [1e-6, 1e-6, 1e-6, 1.0]}, names
    )
    assert preferred(table, (15, 2, 27)) == names[1]
    assert preferred(table.assign(accuracy=[0.40, 0.375, 0.39, 0.2]), (15, 2, 27)) == names[0]  # worse by more than the margin
    assert preferred(table.assign(**{"p best": [1.0, 1e-6, 0.5, 1e-6]}), (15, 2, 27)) == names[0]  # told from the best
    assert preferred(table.assign(**{"p configured": [1e-6, 0.5, 1e-6, 1.0]}), (15, 2, 27)) == names[0]  # not from the configured
    assert preferred(table, None) == names[0]
