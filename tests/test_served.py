"""What serving says, a fixture for every row of the table. They are made after the engines' formats, not recorded."""

import json
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import eagle3lib as e3
from eagle3lib.read.served import read_served
from eagle3lib.read.served_keys import BY_COUNT, SAYINGS

VLLM = (
    "INFO 07-28 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted throughput: 41.20 tokens/s, "
    "Drafted throughput: 69.90 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance "
    "rate: 0.751, 0.567, 0.453, Avg Draft acceptance rate: 58.9%"
)
SGLANG = (
    "[2026-07-28 10:00:00] Decode batch. #running-req: {n}, #token: 812, token usage: 0.01, accept len: {length}, "
    "accept rate: 0.62, cuda graph: True, gen throughput (token/s): 143.20, #queue-req: 0"
)
VLLM_PAGE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a}b"} 60.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="a}b"} 1.7e+09
vllm:spec_decode_num_drafts_total{engine="1",model_name="a}b"} 4.0e+01
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a}b"} 120.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="a}b"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a}b"} 70.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="a}b"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a}b",position="0"} 45.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a}b",position="1"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="a}b",position="0"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="a}b",position="1"} 1.0
"""
TENSORRT_PAGE = """\
trtllm_spec_decode_drafted_tokens_total{token_position="0"} 50.0
trtllm_spec_decode_drafted_tokens_total{token_position="1"} 50.0
trtllm_spec_decode_drafted_tokens_total{token_position="2"} 30.0
trtllm_spec_decode_accepted_tokens_total{token_position="0"} 20.0
trtllm_spec_decode_accepted_tokens_total{token_position="1"} 5.0
trtllm_spec_decode_acceptance_length 2.0
"""
SGLANG_PAGE = """\
sglang:spec_verify_calls_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m"} 210.0
sglang:num_requests_total{model_name="m"} 10.0
sglang:spec_num_steps{tp_rank="0"} 3.0
sglang:spec_accept_length{tp_rank="0"} 3.7
"""
# SGLang's answers under each of its three generations of names: rounds 2 + 1, accepted 3 + 0, of three drafts each.
NAMES = {
    "newest": ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
    "middle": ("spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"),
    "old": ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
}


def sglang_answers(generation: str) -> str:
    accepted, drafted, histogram = NAMES[generation]
    counted = [("a", 2, 3, 6, [0, 1, 1]), ("b", 1, 0, 3, [1])]  # a histogram as long as it needed to be
    answers = [
        {"text": "x", "meta_info": {"id": name, "completion_tokens": 1 + N + A, "spec_verify_ct": N, "spec_accept_length": 9.9,
                                    accepted: A, drafted: P, histogram: H}}
        for name, N, A, P, H in counted
    ]  # fmt: skip
    return json.dumps(answers)


def iteration(accepted: int, requests: int, drafted: int) -> str:
    spec = {"numDraftTokens": drafted, "numAcceptedTokens": accepted, "numRequestsWithDraftTokens": requests,
            "acceptanceLength": 1.0, "iterLatencyMS": 3.1, "draftOverhead": 0.2}  # fmt: skip
    return json.dumps(
        {"iter": 7, "iterLatencyMS": 20.0, "inflightBatchingStats": {"numGenRequests": 4}, "specDecodingStats": spec}
    )


# (engine, where, what is needed) -> text, and what it says: K, rounds, accepted, accept length, positions, tokens a second.
# One row, one or several texts.
SAID = {
    ("vLLM", "log", ("accepted", "drafted", "rates", "rate")): [
        (VLLM.format(mean=2.5, accepted=150, drafted=300) + "\n", (3, 100, 150, 2.5, (75, 57, 45), None)),
        ("(Engine pid=7) " + VLLM.format(mean=2.5, accepted=150, drafted=300).replace("acceptance rate", "acceptance\nrate", 1)
         + "\n(APIServer pid=9) INFO Engine 000: Avg generation throughput: 80.5 tokens/s, Running: 1 reqs\n",
         (3, 100, 150, 2.5, (75, 57, 45), 80.5)),
        (VLLM.format(mean=2.5, accepted=150, drafted=300).replace("0.567, 0", "0.567,\n(EngineCore pid=7) 0") + "\n",
         (3, 100, 150, 2.5, (75, 57, 45), None)),
        # before the throughputs came: vllm-project/vllm#16665
        ("INFO SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: 2.50, Accepted: 150 tokens, "
         "Drafted: 300 tokens, Per-position acceptance rate: 0.751, 0.567, 0.453\n", (3, 100, 150, 2.5, (75, 57, 45), None)),
    ],
    ("SGLang", "log", ("running", "length")): [
        ("[2026-07-28] server_args=ServerArgs(model_path='T', speculative_num_steps=3, speculative_eagle_topk=1, x=2)\n"
         + SGLANG.format(n=1, length=2.12) + "\n", (3, None, None, 2.12, None, 143.2)),
        ("[2026-07-28] server_args=ServerArgs(model_path='T', speculative_num_steps=3, speculative_eagle_topk=4, x=2)\n"
         + SGLANG.format(n=1, length=2.12) + "\n", (None, None, None, 2.12, None, 143.2)),
        (SGLANG.format(n=1, length=2.12) + "\n", (None, None, None, 2.12, None, 143.2)),
        (SGLANG.format(n=2, length=2.12).replace("accept rate: 0.62, ", "").replace("batch.", "batch [40],") + "\n",
         (None, None, None, 2.12, None, 143.2)),
        (SGLANG.format(n=2, length=2.12).replace("cuda graph: True", "cpu graph: False, pre-allocated usage: 0.10") + "\n",
         (None, None, None, 2.12, None, 143.2)),
    ],
    ("vLLM", "metrics", ("rounds", "accepted")): [
        (VLLM_PAGE, (2, 100, 80, 1.8, (54, 26), None)),
        (VLLM_PAGE.replace("_total", ""), (2, 100, 80, 1.8, (54, 26), None)),
        ("\n".join(line for line in VLLM_PAGE.split("\n") if "per_pos" not in line), (2, 100, 80, 1.8, None, None)),
    ],
    ("SGLang", "metrics", ("rounds", "tokens", "requests")): [(SGLANG_PAGE, (3, None, None, 2.0, None, None))],
    ("SGLang", "metrics", ("length",)): [
        ('sglang:spec_accept_length{tp_rank="0"} 3.7\nsglang:spec_accept_length{tp_rank="1"} 0.0\n',
         (None, None, None, 3.7, None, None)),
    ],
    ("TensorRT-LLM", "metrics", ("drafted at",)): [(TENSORRT_PAGE, (3, 50, 25, 1.5, (20, 5, 0), None))],
    ("TensorRT-LLM", "metrics", ("length",)): [
        ("trtllm_spec_decode_acceptance_length 2.0\n", (None, None, None, 2.0, None, None)),
    ],
    ("SGLang", "answers", ("rounds", "accepted")): [
        *((sglang_answers(generation), (3, 3, 3, 2.0, (2, 1, 0), None)) for generation in NAMES),
        (json.dumps({"id": "x", "choices": [{"index": 0}], "sglext": {"spec_tokens_details": {
            "spec_verify_ct": 33, "spec_num_correct_drafts": 69, "spec_num_proposed_drafts": 231}}}),
         (7, 33, 69, 1 + 69 / 33, None, None)),
    ],
    ("SGLang", "answers", ("rounds", "tokens")): [
        (json.dumps({"meta_info": {"completion_tokens": 100, "spec_verify_ct": 33}}), (None, None, None, 3.0, None, None)),
    ],
    ("vLLM", "answers", ("rounds", "accepted")): [
        (json.dumps({"id": "cmpl-1", "metrics": {"speculative_decoding": {
            "mean_acceptance_length": 9, "draft_acceptance_rate": 0.1, "acceptance_histogram": [39, 1, 0, 3],
            "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_steps": 43, "num_spec_tokens": 3}}}),
         (3, 43, 10, 1 + 10 / 43, (4, 3, 3), None)),
        (json.dumps({"record": {"acceptance_histogram": {"0": 39, "1": 1, "3": 3}, "num_accepted_draft_tokens": 10,
                              "num_draft_tokens": 129, "num_spec_steps": 43, "engine": "vllm"}}),
         (3, 43, 10, 1 + 10 / 43, (4, 3, 3), None)),
    ],
    ("TensorRT-LLM", "answers", ("rounds", "accepted")): [
        (json.dumps({"choices": [{"speculative_decoding": {
            "acceptance_rate": 0.5, "total_accepted_draft_tokens": 30, "total_draft_tokens": 60, "num_spec_steps": 20,
            "acceptance_histogram": [8, 0, 6, 6], "num_spec_tokens": None}}]}),
         (3, 20, 30, 2.5, (12, 12, 6), None)),
    ],
    ("TensorRT-LLM", "iterations", ("rounds", "accepted")): [
        ("\n".join([iteration(4, 1, 4), iteration(0, 9, 36), iteration(0, 0, 0), "{}"]), (4, 10, 4, 1.4, None, None)),
        ("[" + ",".join([iteration(4, 1, 4), iteration(0, 9, 36)]) + "]", (4, 10, 4, 1.4, None, None)),
    ],
    ("vLLM", "benchmark", ("length",)): [
        (json.dumps({"duration": 3.0, "output_throughput": 99.5, "spec_decode_acceptance_rate": 40.0, "itls": [[0.1]],
                     "spec_decode_acceptance_length": 1.8, "spec_decode_num_drafts": 100, "spec_decode_draft_tokens": 200,
                     "spec_decode_accepted_tokens": 80, "spec_decode_per_position_acceptance_rates": [0.54, 0.26]}),
         (2, 100, 80, 1.8, (54, 26), 99.5)),
    ],
    ("SGLang", "benchmark", ("length", "speed")): [
        (json.dumps({"backend": "sglang", "output_throughput": 88.0, "accept_length": 2.25,
                     "server_info": {"speculative_num_steps": 3, "internal_states": [{"avg_spec_accept_length": 2.25}]}}),
         (3, None, None, 2.25, None, 88.0)),
    ],
    ("SGLang", "server_info", ("states",)): [
        (json.dumps({"speculative_num_steps": 3, "internal_states": [{"avg_spec_accept_length": 2.0}, {"x": 1},
                                                                     {"avg_spec_accept_length": 2.5}]}),
         (3, None, None, 2.25, None, None)),
        (json.dumps({"internal_states": [{"avg_spec_accept_length": 2.0, "speculative_num_steps": 5}]}),
         (5, None, None, 2.0, None, None)),
    ],
}  # fmt: skip
ALL = [(row, text, said) for row, texts in SAID.items() for text, said in texts]


def figures(run) -> tuple:
    length = pytest.approx(run.accept_length, abs=1e-12)
    return run.steps, run.rounds, run.accepted, length, run.positions, run.tokens_per_second


def test_every_row_of_the_table_has_its_texts():
    assert [(row.engine, row.where, row.needs) for row in SAYINGS] == list(SAID)
    assert all(set(row.needs) <= set(row.keys) and row.source and (row.where == "log") == bool(row.mark) for row in SAYINGS)


@pytest.mark.parametrize("row, text, said", ALL)
def test_row(tmp_path, row, text, said):
    (tmp_path / "told").write_text("noise\n" + text + "noise: accept len\n" if row[1] == "log" else text)
    (run,) = read_served(tmp_path / "told")
    assert figures(run) == said
    assert run.name == f"{row[0]} {row[1]}"
    mine = next(one for one in SAYINGS if (one.engine, one.where, one.needs) == row)
    assert run.counts.startswith(mine.counts)


def shuffled(found: object, draw: random.Random) -> object:
    """The same JSON with its keys in another order, and others between."""
    if isinstance(found, list):
        return [shuffled(one, draw) for one in found]
    if not isinstance(found, dict):
        return found
    pairs = [(key, shuffled(value, draw)) for key, value in found.items()] + [("accept", 1), ("spec", None), ("rounds", [7])]
    draw.shuffle(pairs)
    return dict(pairs)


@pytest.mark.parametrize("row, text, said", [one for one in ALL if one[0][1] != "log"])
def test_order_of_keys_says_nothing(tmp_path, row, text, said):
    draw = random.Random(0)
    for _ in range(5):
        if row[1] == "metrics":
            lines = [*text.strip().split("\n"), "vllm:spec_decode_num_drafts_window 9", 'sglang:num_running_reqs{a="b"} 3', "# x"]
            draw.shuffle(lines)
            told = "\n".join(lines)
        else:
            told = "\n".join(
                json.dumps(shuffled(json.loads(one), draw)) for one in ([text] if text[0] == "[" else text.split("\n"))
            )
        (tmp_path / "told").write_text(told)
        (run,) = read_served(tmp_path / "told")
        assert figures(run) == said


@pytest.mark.parametrize("line", [VLLM.format(mean=2.5, accepted=150, drafted=300), SGLANG.format(n=1, length=2.12)])
def test_order_of_keys_says_nothing_in_a_log_either(tmp_path, line):
    begins, mark, rest = line.partition("metrics: " if "Spec" in line else "batch. ")
    parts, draw = [*re.split(r", (?![0-9])", rest), "other figure: 7", "accept lenient: 1.00"], random.Random(0)
    (tmp_path / "log").write_text(line + "\n")
    expected = figures(read_served(tmp_path / "log")[0])
    for _ in range(20):
        draw.shuffle(parts)
        (tmp_path / "log").write_text(f"{begins}{mark}{', '.join(parts)}, \n")
        assert figures(read_served(tmp_path / "log")[0]) == expected


def test_vllm_lines_are_summed(tmp_path):
    log = tmp_path / "server log.txt"
    log.write_text(
        "noise\n" + VLLM.format(mean=2.5, accepted=150, drafted=300) + "\n" + VLLM.format(mean=1.1, accepted=3, drafted=90)
    )
    (run,) = read_served(log)
    assert (run.steps, run.rounds, run.accepted) == (3, 130, 153)
    assert run.accept_length == pytest.approx(1 + 153 / 130)
    assert run.positions == (98, 74, 59)  # the rates as printed, to three decimals, by rounds: 130 x 0.751, 0.567, 0.453


def test_sglang_lines_are_weighted_by_running_requests(tmp_path):
    (tmp_path / "log").write_text(
        SGLANG.format(n=1, length=2.0) + "\n" + SGLANG.format(n=3, length=1.2).replace("Decode batch.", "Decode batch [7],")
    )
    (run,) = read_served(tmp_path / "log")
    assert run.accept_length == pytest.approx((2.0 + 3 * 1.2) / 4)
    assert run.steps is None
    assert run.rounds is None
    assert run.positions is None
    assert "weighted" in run.counts


def test_own_result_file(tmp_path):
    file = tmp_path / "live.json"
    file.write_text(json.dumps({"runs": [{"name": "x", "steps": 2, "requests": {"a": [3, 1, 0], "b": [0, 0, 2]}}]}))
    (run,) = read_served(file)
    assert (run.rounds, run.accepted, run.accept_length) == (6, 5, 1 + 5 / 6)
    assert run.positions == (3, 2)
    assert run.counts == BY_COUNT


def test_positions_are_weighted_by_the_rounds_of_their_line(tmp_path):
    """100 rounds at 0.5 and 300 at 0.9: 320 first drafts, not 0.7 of all."""
    lines = [VLLM.format(mean=1, accepted=0, drafted=100 * 3).replace("0.751", "0.500"),
             VLLM.format(mean=1, accepted=0, drafted=300 * 3).replace("0.751", "0.900")]  # fmt: skip
    (tmp_path / "log").write_text("\n".join(lines))
    assert read_served(tmp_path / "log")[0].positions[0] == 320


def test_two_numbers_of_draft_steps_are_two_runs(tmp_path):
    """Each line has its own K: the last line's was once taken for all."""
    three = VLLM.format(mean=2.5, accepted=150, drafted=300)
    one = VLLM.format(mean=1.5, accepted=50, drafted=100).replace("0.751, 0.567, 0.453", "0.500")
    (tmp_path / "log").write_text("\n".join([three, one, three, ""]))
    assert [(run.steps, run.rounds, run.accept_length) for run in read_served(tmp_path / "log")] == [(1, 100, 1.5), (3, 200, 2.5)]


@pytest.mark.parametrize("cut", [60, 40, 20])
@pytest.mark.parametrize("after", ["", "\nINFO Shutting down, Accepted: 9 tokens"])
def test_a_line_cut_off_while_it_is_written_counts_for_nothing(tmp_path, cut, after):
    line = VLLM.format(mean=2.5, accepted=150, drafted=300)
    (tmp_path / "log").write_text(line + "\n" + line[:-cut] + after)
    (run,) = read_served(tmp_path / "log")
    assert (run.steps, run.rounds) == (3, 100)
    sglang = SGLANG.format(n=1, length=2.12)
    (tmp_path / "log").write_text(sglang + "\n" + sglang[: sglang.index("2.12") + 1] + after)
    assert read_served(tmp_path / "log")[0].accept_length == 2.12


def test_an_older_line_cut_between_its_rates_counts_for_nothing(tmp_path):
    line = SAID["vLLM", "log", ("accepted", "drafted", "rates", "rate")][-1][0]
    (tmp_path / "log").write_text(line + line.removesuffix(", 0.453\n"))
    (run,) = read_served(tmp_path / "log")
    assert (run.steps, run.rounds) == (3, 100)


def test_sglang_intervals_without_drafts_are_left_out(tmp_path):
    (tmp_path / "log").write_text(SGLANG.format(n=1, length="0.00") + "\n" + SGLANG.format(n=1, length=2.0))
    assert read_served(tmp_path / "log")[0].accept_length == 2.0


def test_the_usual_speed_is_not_that_of_a_pause(tmp_path):
    lines = [SGLANG.format(n=1, length=2.0).replace("143.20", speed) for speed in ("1.00", "140.00", "0.00", "150.00")]
    (tmp_path / "log").write_text("\n".join(lines))
    assert read_served(tmp_path / "log")[0].tokens_per_second == 140.0


@pytest.mark.parametrize("mark", ["rejection_sample_method='synthetic'", '"rejection_sample_method": "synthetic"',
                                  "SGLANG_SIMULATE_ACC_LEN=2.5"])  # fmt: skip
def test_made_up_acceptance_is_said_where_the_log_tells_it(tmp_path, mark):
    line = VLLM.format(mean=2.5, accepted=150, drafted=300)
    (tmp_path / "log").write_text(f"non-default args: {{{mark}}}\n{line}\n")
    assert "made up" in read_served(tmp_path / "log")[0].counts
    (tmp_path / "log").write_text(f"rejection_sample_method='standard'\n{line}\n")
    assert "made up" not in read_served(tmp_path / "log")[0].counts


def test_a_stream_repeats_a_request_and_counts_once(tmp_path):
    chunks = [{"text": "x", "meta_info": {"id": "a", "spec_verify_ct": n, "spec_num_correct_drafts": n,
                                          "spec_num_proposed_drafts": 3 * n}} for n in (1, 2, 3)]  # fmt: skip
    (tmp_path / "sse").write_text("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n")
    (run,) = read_served(tmp_path / "sse")
    assert (run.steps, run.rounds, run.accepted) == (3, 3, 3)


def test_answers_that_contradict_themselves_are_left_out_and_told_of(tmp_path):
    good = {"spec_verify_ct": 2, "spec_num_correct_drafts": 3, "spec_num_proposed_drafts": 6,
            "spec_correct_drafts_histogram": [0, 1, 1]}  # fmt: skip
    bad = [good | change for change in ({"spec_correct_drafts_histogram": [1, 1, 1]}, {"spec_num_correct_drafts": 7},
                                        {"spec_correct_drafts_histogram": [0, 1, "1"]}, {"spec_verify_ct": -2},
                                        {"spec_verify_ct": True}, {"spec_num_proposed_drafts": 10**9},
                                        {"spec_num_correct_drafts": float("nan")})]  # fmt: skip
    none = {"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0}  # an answer of one token
    (tmp_path / "told").write_text("\n".join(map(json.dumps, [*bad, none, good, '{"spec_verify_ct": 3, "spe'])))
    (run,) = read_served(tmp_path / "told")
    assert (run.rounds, run.accepted) == (2, 3)
    assert "7 answers left out" in run.counts


def test_a_folder_of_answers_names_its_requests(tmp_path):
    for answer, name in zip(json.loads(sglang_answers("newest")), ("first", "second"), strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    (run,) = read_served(tmp_path)
    assert list(run.requests) == ["first", "second"]
    np.testing.assert_array_equal(run.requests["first"], [0, 1, 1, 0])
    (tmp_path / "third.json").write_text("{")
    with pytest.raises(e3.InputError, match="third.json: is not readable JSON"):
        read_served(tmp_path)


def test_answers_of_several_numbers_of_drafts_are_several_runs(tmp_path):
    answers = [{"spec_verify_ct": 2, "spec_num_correct_drafts": 1, "spec_num_proposed_drafts": 2 * K} for K in (3, 5, 3)]
    (tmp_path / "told").write_text(json.dumps(answers))
    assert [(run.steps, run.rounds) for run in read_served(tmp_path / "told")] == [(3, 4), (5, 2)]


@pytest.mark.parametrize("text", ["", "no such thing\n", "SpecDecoding metrics: Mean acceptance length: nan", "{}", "[" * 9000,
                                  '{"accept_length": null, "output_throughput": 9.0}', '{"internal_states": [{}]}', "\0",
                                  "vllm:spec_decode_num_drafts_total 0\nvllm:spec_decode_num_accepted_tokens_total 0",
                                  "vllm:spec_decode_num_drafts_total nan\nvllm:spec_decode_num_accepted_tokens_total 3",
                                  "vllm:spec_decode_num_drafts_total 1\nvllm:spec_decode_num_draft_tokens_total 3\n"
                                  "vllm:spec_decode_num_accepted_tokens_total 4"])  # fmt: skip
def test_a_text_without_figures_is_refused(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(e3.InputError, match="no acceptance figures") as error:
        read_served(tmp_path / "log")
    assert "\n" not in str(error.value)
    assert ("count no round" in str(error.value)) == ("num_drafts" in text or "_length" in text)


@pytest.mark.parametrize("runs", [[{"name": "x"}], [{"name": "x", "steps": 1, "requests": {"a": [1]}}], [3]])
def test_a_broken_result_file_is_refused(tmp_path, runs):
    (tmp_path / "live.json").write_text(json.dumps({"runs": runs}))
    with pytest.raises(e3.InputError, match="a run is not as expected"):
        read_served(tmp_path / "live.json")


@pytest.mark.parametrize("content", [{"runs": 5}, {"runs": None}, {"runs": []}, {}])
def test_a_result_file_without_runs_is_refused(tmp_path, content):
    (tmp_path / "live.json").write_text(json.dumps(content))
    with pytest.raises(e3.InputError, match="no acceptance figures"):
        read_served(tmp_path / "live.json")


@pytest.mark.parametrize("counts", [[-1, 4], [0, 0], [10**30, 1], [[1], [2]], "ab"])
def test_impossible_counts_are_refused(tmp_path, counts):
    (tmp_path / "live.json").write_text(json.dumps({"runs": [{"name": "x", "steps": 1, "requests": {"a": counts}}]}))
    with pytest.raises(e3.InputError, match="a run is not as expected"):
        read_served(tmp_path / "live.json")


def test_any_text_is_read_or_refused(tmp_path):
    """Texts cut, spliced and spoiled: what comes out of them is still possible."""
    draw, read = random.Random(0), 0
    pieces = ["nan", "-1", "9" * 400, "1e999", "\n", "\0", "{", "]", '"', ",", "0", "true", "null", " ", "position", "[" * 50]
    for _ in range(1000):
        text = "\n".join(text for _, text, _ in draw.sample(ALL, draw.choice((1, 1, 2))))
        for _ in range(draw.randint(1, 3)):
            start = draw.randrange(len(text))
            text = text[:start] + draw.choice(pieces) * draw.randint(0, 1) + text[start + draw.choice((0, 1, 7, 40, 400)) :]
            text = text or "x"
        (tmp_path / "told").write_text(text)
        try:
            runs = read_served(tmp_path / "told")
        except e3.InputError as error:
            assert "\n" not in str(error)
            continue
        for run in runs:
            assert run.accept_length >= 1
            assert (run.rounds is None) == (run.accepted is None)
            assert run.steps is None or run.accept_length <= run.steps + 1
            assert run.positions is None or len(run.positions) == run.steps
            assert run.requests is None or sum(run.requests.values()).shape == (run.steps + 1,)
        read += 1
    assert read > 200


@pytest.fixture
def server():
    """A server on this machine that gives `pages`: path -> text; 404 for another."""
    pages: dict[str, str] = {}

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in (*pages, "/drip") else 404)
            self.end_headers()
            for _ in range(20 if self.path == "/drip" else 0):
                time.sleep(0.2)
                self.wfile.write(b"x")
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *_):
            pass

    one = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=one.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{one.server_port}", pages
    one.shutdown()
    one.server_close()


def test_a_running_server_is_asked(server):
    url, pages = server
    pages |= {"/metrics": VLLM_PAGE}
    for where in (url, url + "/", url + "/metrics", Path(url)):
        (run,) = read_served(where)
        assert (run.steps, run.rounds, run.source) == (2, 100, "/metrics")
    pages |= {"/metrics": "sglang:spec_accept_length{} 3.7\n", "/server_info": SAID["SGLang", "server_info", ("states",)][0][0]}
    assert [(run.name, run.steps) for run in read_served(url)] == [("SGLang server_info", 3), ("SGLang metrics", None)]


def test_a_server_that_tells_nothing_is_one_sentence(server):
    url, pages = server
    for where, said in ((url, "no acceptance figures"), (url + "/stats", "refused with 404"), ("http://127.0.0.1:1", "no answer"),
                        ("http://127.0.0.1:x", "no answer"), ("http:///", "no answer|no such file")):  # fmt: skip
        with pytest.raises(e3.InputError, match=said) as error:
            read_served(where)
        assert "\n" not in str(error.value)


def test_a_page_that_drips_is_given_up(server, monkeypatch):
    monkeypatch.setattr("eagle3lib.read.served.TIMEOUT", 1)
    with pytest.raises(e3.InputError, match="no answer .the page was not whole after 1 s"):
        read_served(server[0] + "/drip")


@pytest.mark.parametrize("at", [(60, 30, 10), (20, 70, 60)])
def test_a_page_whose_counts_contradict_each_other_is_refused(tmp_path, at):
    lines = ["vllm:spec_decode_num_drafts_total 100", "vllm:spec_decode_num_draft_tokens_total 300",
             "vllm:spec_decode_num_accepted_tokens_total 150"]  # fmt: skip
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}' for i, n in enumerate(at)]
    (tmp_path / "page").write_text("\n".join(lines))
    with pytest.raises(e3.InputError, match="contradict each other"):
        read_served(tmp_path / "page")


def test_two_launches_in_one_sglang_log_are_two_runs(tmp_path):
    launch = "server_args=ServerArgs(speculative_num_steps={}, speculative_eagle_topk=1, x=2)\n"
    told = "".join(launch.format(K) + SGLANG.format(n=1, length=length) + "\n" for K, length in ((3, "1.60"), (5, "1.90")))
    (tmp_path / "log").write_text(told)
    assert [(run.steps, run.accept_length) for run in read_served(tmp_path / "log")] == [(3, 1.6), (5, 1.9)]
