"""Saved answers of SGLang's /generate: which rows belong to which token, and answers whose rows do not."""

import json

import pytest
import torch
from dumps.base import STREAMS, aux, rounded, samples
from dumps.files import answer

import eagle3lib as e3

CAPTURE = samples(1)[0]  # 18 tokens, 6 of them the prompt


def write(folder, held, name="answer.json"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(held))
    return folder


def test_prompt_and_answer(tmp_path):
    found = e3.read_captures(write(tmp_path / "dump", answer(CAPTURE)), streams=STREAMS)[0]
    assert torch.equal(found.token_ids, CAPTURE.token_ids)
    assert torch.equal(found.loss_mask, CAPTURE.loss_mask)
    assert torch.equal(found.stream(3), CAPTURE.streams[3][:-1])  # nothing was computed from the last token
    assert (found.last, found.last_kind) == (None, "none")


@pytest.mark.parametrize("last", ["post_norm", "pre_norm"])
def test_without_a_drafter_the_rows_are_the_last_state(tmp_path, last):
    """Their width alone does not tell: H, or 3 H."""
    held = answer(CAPTURE)
    rows = rounded(CAPTURE.last)
    held["meta_info"]["hidden_states"] = [rows[:6].tolist(), *rows[6:17].tolist()]
    folder = write(tmp_path / "dump", held)
    assert "32 wide" in e3.read_captures(folder)[0].about["states"]
    found = e3.read_captures(folder, last=last)[0]
    assert list(found.streams) == ["slot0"]
    assert torch.equal(found.last, CAPTURE.last[:-1])
    assert found.last_kind == last


def test_only_the_prompt_was_read(tmp_path):
    """A text read again for its states, one token asked for: who wrote which of it is not in the answer."""
    whole = CAPTURE.replace(loss_mask=torch.arange(18) >= 17)
    found = e3.read_captures(write(tmp_path / "dump", answer(whole)), streams=STREAMS)[0]
    assert len(found.stream(2)) == 17
    assert found.about["loss mask"] == "none in the file: every token counted"
    assert found.loss_mask.tolist() == [False] + [True] * 17


def test_rows_that_speculative_decoding_lost(tmp_path):
    """One row for each round in place of each token, before sgl-project/sglang#28496: the prompt's are right."""
    held = answer(CAPTURE)
    del held["meta_info"]["hidden_states"][3::2]
    found = e3.read_captures(write(tmp_path / "dump", held), streams=STREAMS)[0]
    assert torch.equal(found.stream(4), CAPTURE.streams[4][:6])
    assert found.token_ids.tolist() == CAPTURE.token_ids[:7].tolist()
    assert found.loss_mask.tolist() == [False] * 6 + [True]
    assert "6 rows for 12 tokens of the answer" in found.about["states"]


@pytest.mark.parametrize("place", ["prompt_token_ids", "input_token_logprobs"])
def test_where_token_ids_stand(tmp_path, place):
    ids = CAPTURE.token_ids.tolist()
    held = answer(CAPTURE, asked=False)
    if place == "prompt_token_ids":
        held[place] = ids[:6]
    else:
        del held["output_ids"]  # older versions have none
        logprobs = [[None if i == 0 else -1.5, token, None] for i, token in enumerate(ids)]
        held["meta_info"] |= {"input_token_logprobs": logprobs[:6], "output_token_logprobs": logprobs[6:]}
    found = e3.read_captures(write(tmp_path / "dump", held), streams=STREAMS)[0]
    assert found.token_ids.tolist() == ids
    assert torch.equal(found.stream(2), CAPTURE.streams[2][:-1])


@pytest.mark.parametrize(
    "change,said",
    [
        ({"input_ids": None}, "no token ids of the prompt"),
        ({"input_ids": [1, 2, 3]}, "6 rows for the 3 tokens of the prompt"),
        ({"cached_tokens": 4}, "4 tokens came from the server's cache"),
        ({"hidden_states": None}, "no hidden_states in meta_info"),
        ({"hidden_states": [[0.5, 1.0]]}, "expected a row for each token of the prompt"),  # return_hidden_states "last"
        ({"hidden_states": [[[0.5], [1.0, 2.0]]]}, "no table of numbers"),
        ({"hidden_states": ["text"]}, "no table of numbers"),
    ],
)
def test_answers_that_cannot_be_used(tmp_path, change, said):
    write(tmp_path / "dump", answer(CAPTURE), "answer_0.json")
    held = answer(CAPTURE)
    for name, value in change.items():
        (held if name == "input_ids" else held["meta_info"])[name] = value
    write(tmp_path / "dump", held, "answer_1.json")
    caps = e3.read_captures(tmp_path / "dump", streams=STREAMS)
    assert torch.equal(caps[0].stream(2), CAPTURE.streams[2][:-1])
    with pytest.raises(e3.InputError, match=rf"answer_1\.json: .*{said}"):
        caps[1]


def test_answers_to_a_batch(tmp_path):
    write(tmp_path / "dump", [answer(CAPTURE), answer(CAPTURE)])
    with pytest.raises(e3.InputError, match=r"holds 2 answers in a list: .* mixes up their rows"):
        e3.read_captures(tmp_path / "dump")


def test_other_json_is_told_of(tmp_path):
    write(tmp_path / "dump", answer(CAPTURE), "b.json")
    write(tmp_path / "dump", {"prompts": [1, 2]}, "a.json")
    write(tmp_path / "dump", ["x"], "c.json")
    with pytest.warns(UserWarning, match=r"2 of 3 files are broken.*a\.json: is no sample of SGLang.*c\.json: is no"):
        caps = e3.read_captures(tmp_path / "dump", streams=STREAMS)
    assert torch.equal(caps[1].stream(2), CAPTURE.streams[2][:-1])
    write(tmp_path / "none", {"prompts": [1, 2]})
    with pytest.raises(e3.InputError, match="no dump that it knows"):
        e3.read_captures(tmp_path / "none")


def test_widths_that_do_not_go(tmp_path):
    folder = write(tmp_path / "dump", answer(CAPTURE))
    assert aux(CAPTURE).shape[1] == 96
    with pytest.raises(e3.InputError, match=r"hidden_states is \[17, 96\], no multiple in width of the 5 streams"):
        e3.read_captures(folder, streams=(1, 2, 3, 4, 5))[0]
