"""What a server's log says. The lines are made after the engines' formats, not recorded."""

import json

import pytest

import eagle3lib as e3
from eagle3lib.read.served import read_served

VLLM = (
    "INFO 07-28 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted throughput: 41.20 tokens/s, "
    "Drafted throughput: 69.90 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance "
    "rate: 0.751, 0.567, 0.453, Avg Draft acceptance rate: 58.9%"
)
SGLANG = (
    "[2026-07-28 10:00:00] Decode batch. #running-req: {n}, #token: 812, token usage: 0.01, accept len: {length}, "
    "accept rate: 0.62, cuda graph: True, gen throughput (token/s): 143.20, #queue-req: 0"
)


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
    log = tmp_path / "log"
    log.write_text(
        SGLANG.format(n=1, length=2.0) + "\n" + SGLANG.format(n=3, length=1.2).replace("Decode batch.", "Decode batch [7],")
    )
    (run,) = read_served(log)
    assert run.accept_length == pytest.approx((2.0 + 3 * 1.2) / 4)
    assert run.steps is None
    assert run.rounds is None
    assert run.positions is None


def test_own_result_file(tmp_path):
    file = tmp_path / "live.json"
    file.write_text(json.dumps({"runs": [{"name": "x", "steps": 2, "requests": {"a": [3, 1, 0], "b": [0, 0, 2]}}]}))
    (run,) = read_served(file)
    assert (run.rounds, run.accepted, run.accept_length) == (6, 5, 1 + 5 / 6)
    assert run.positions == (3, 2)


def test_positions_are_weighted_by_the_rounds_of_their_line(tmp_path):
    """100 rounds at 0.5 and 300 at 0.9: 320 first drafts, not 0.7 of all."""
    lines = [VLLM.format(mean=1, accepted=0, drafted=100 * 3).replace("0.751", "0.500"),
             VLLM.format(mean=1, accepted=0, drafted=300 * 3).replace("0.751", "0.900")]  # fmt: skip
    (tmp_path / "log").write_text("\n".join(lines))
    assert read_served(tmp_path / "log")[0].positions[0] == 320


@pytest.mark.parametrize("text", ["", "no such thing\n", "SpecDecoding metrics: Mean acceptance length: nan"])
def test_a_log_without_figures_is_refused(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(e3.InputError, match="no acceptance figures"):
        read_served(tmp_path / "log")


@pytest.mark.parametrize("runs", [[{"name": "x"}], [{"name": "x", "steps": 1, "requests": {"a": [1]}}], [3]])
def test_a_broken_result_file_is_refused(tmp_path, runs):
    (tmp_path / "live.json").write_text(json.dumps({"runs": runs}))
    with pytest.raises(e3.InputError, match="a run is not as expected"):
        read_served(tmp_path / "live.json")


def test_two_numbers_of_draft_steps_are_two_runs(tmp_path):
    """Each line has its own K: the last line's was once taken for all."""
    three = VLLM.format(mean=2.5, accepted=150, drafted=300)
    one = VLLM.format(mean=1.5, accepted=50, drafted=100).replace("0.751, 0.567, 0.453", "0.500")
    (tmp_path / "log").write_text("\n".join([three, one, three, ""]))
    assert [(run.steps, run.rounds, run.accept_length) for run in read_served(tmp_path / "log")] == [(1, 100, 1.5), (3, 200, 2.5)]


@pytest.mark.parametrize("cut", [60, 40, 20])
def test_a_line_cut_off_while_it_is_written_counts_for_nothing(tmp_path, cut):
    line = VLLM.format(mean=2.5, accepted=150, drafted=300)
    (tmp_path / "log").write_text(line + "\n" + line[:-cut])
    (run,) = read_served(tmp_path / "log")
    assert (run.steps, run.rounds) == (3, 100)
    sglang = SGLANG.format(n=1, length=2.12)
    (tmp_path / "log").write_text(sglang + "\n" + sglang[: sglang.index("2.12") + 1])
    assert read_served(tmp_path / "log")[0].accept_length == 2.12


def test_sglang_intervals_without_drafts_are_left_out(tmp_path):
    (tmp_path / "log").write_text(SGLANG.format(n=1, length="0.00") + "\n" + SGLANG.format(n=1, length=2.0))
    assert read_served(tmp_path / "log")[0].accept_length == 2.0


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
