"""Scoring sample by sample: one Row each, the same totals whoever counts and whatever stops it, and when enough is read."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

import eagle3lib as e3
from eagle3lib.measure.acceptance import Acceptance, pooled
from eagle3lib.measure.enough import LEAST, LEVEL, half_width, order, read_enough
from eagle3lib.measure.intervals import ratio_interval
from eagle3lib.measure.ledger import Ledger, made_with
from eagle3lib.measure.score import Row, score, tables, unscored
from eagle3lib.measure.workers import CHUNK, Job, Workers
from eagle3lib.run.chain import hits_together
from eagle3lib.show.cli import main

K = 3


def many(place, number, T=20):
    """`number` samples in a folder: twelve files, linked under other names."""
    made = [tiny.capture(T=T + i, seed=i, name=f"s{i}") for i in range(12)]
    e3.write_captures(place, made, target="tiny", n_layers=6, dtype=torch.float32)
    sidecar = json.loads((place / "captures.json").read_text())
    for i in range(12, number):
        (place / f"more_{i}.safetensors").hardlink_to(place / sidecar["samples"][i % 12]["file"])
        sidecar["samples"].append({"file": f"more_{i}.safetensors", "name": f"s{i % 12}"})
    (place / "captures.json").write_text(json.dumps(sidecar))
    return place


def spoil(folder):
    """Three samples that cannot be scored: cut off, with a state that is no number, with a token of another target."""
    files = sorted(folder.glob("sample_*"))
    files[1].write_bytes(files[1].read_bytes()[:-50])
    for file, name, value in ((files[3], "stream.2", torch.nan), (files[5], "token_ids", tiny.V + 7)):
        tensors = load_file(file)
        tensors[name][4] = value
        save_file(tensors, file)


@pytest.fixture
def place(tmp_path):
    tiny.write_drafter(tmp_path / "drafter")
    many(tmp_path / "captures", 12)
    return tmp_path


def drafter_of(place):
    return e3.Drafter(e3.open_checkpoint(place / "drafter"))


def job_of(place):
    ckpt = e3.open_checkpoint(place / "drafter")
    return Job(place / "drafter", None, ckpt.recipe, e3.read_captures(place / "captures"), K, "cpu", "float32")


def said(capsys, place, *more):
    """Exit code, stdout and stderr of `eagle3 score`."""
    argv = ("score", place / "drafter", "--captures", place / "captures", "--steps", K, *more)
    return main([str(word) for word in argv]), *capsys.readouterr()


def lines(rows):
    return sorted(row.line() for row in rows)


def test_the_next_samples_are_read_while_some_are_drafted(place, monkeypatch):
    drafter, captures = drafter_of(place), e3.read_captures(place / "captures")
    whole, read, drafted, news = lines(score(drafter, captures, K, range(12))), [], [], threading.Condition()
    monkeypatch.setattr("eagle3lib.measure.score.ROWS", 60)

    def reading(sample):
        with news:
            read.append(sample)
            news.notify()
        return captures.read(sample)

    def drafting(drafter, group, steps):
        drafted.extend(group)
        with news:
            assert news.wait_for(lambda: len(read) > len(drafted) or len(read) == 12, 20), "nothing is read meanwhile"
        return hits_together(drafter, group, steps)

    monkeypatch.setattr("eagle3lib.measure.score.hits_together", drafting)
    slow = e3.Captures(captures.folder, captures.samples, reading, captures.title)
    assert lines(score(drafter, slow, K, range(12))) == whole


def test_rows_hold_what_hits_tell(place):
    drafter, captures = drafter_of(place), e3.read_captures(place / "captures")
    rows = list(score(drafter, captures, K, range(12)))
    assert [Row.of(row.line()).line() for row in rows] == [row.line() for row in rows]
    accuracy, acceptance = tables(rows, K)
    found = e3.hits(drafter, captures, K)
    assert accuracy.table().equals(e3.Accuracy.of(found).table())
    for kind in ("walk", "starts"):
        assert acceptance.table(kind).equals(Acceptance.of(found).table(kind))
        assert all((acceptance.counts(k, kind) == Acceptance.of(found).counts(k, kind)).all() for k in (1, 2, 3))
    assert [row.tokens for row in rows] == [len(capture.token_ids) for capture in captures]


def test_a_bad_sample_does_not_spoil_the_others(place):
    drafter = drafter_of(place)
    good = {row.key: row for row in score(drafter, e3.read_captures(place / "captures"), K, range(12))}
    spoil(place / "captures")
    rows = list(score(drafter, e3.read_captures(place / "captures"), K, range(12)))
    assert len(rows) == 12
    bad = {row.key.split("#")[1]: row.error for row in rows if row.error}
    assert set(bad) == {"s1", "s3", "s5"}
    assert "cannot be read as tensors" in bad["s1"] and "NaN" in bad["s3"] and "tokens of another target" in bad["s5"]
    for row in rows:
        assert row.error or (row.counts == good[row.key].counts).all()


def test_bad_samples_are_told_at_the_end(place, capsys):
    spoil(place / "captures")
    code, out, _ = said(capsys, place)
    assert code == 0
    assert "3 of 12 samples could not be scored" in out.split("Accept length at K")[1]
    code, out, _ = said(capsys, place, "--json")
    told = json.loads(out)
    assert (told["samples"], len(told["errors"]), told["enough"]) == (9, 3, None)


def test_where_none_can_be_scored_it_stops_early(tmp_path, capsys):
    tiny.write_drafter(tmp_path / "drafter")
    many(tmp_path / "captures", 130)
    code, _, err = said(capsys, tmp_path, "--set", "streams=0,1,2")
    assert code == 2 and "stream 1 was not recorded" in err and "100 of 100 samples" in err


# how many are enough


def test_the_interval_by_hand():
    above, below = np.array([2.0, 4.0, 9.0]), np.array([4.0, 4.0, 8.0])
    # R = 15/16; rests 2 - 3.75, 4 - 3.75, 9 - 7.5; s^2 = (1.75^2 + 0.25^2 + 1.5^2) / 2; t(2) at 95 % is 4.3027
    s = ((1.75**2 + 0.25**2 + 1.5**2) / 2) ** 0.5
    assert half_width(above, below, 0.95) == pytest.approx(4.30265 * s / 3**0.5 / (16 / 3), rel=1e-5)
    assert half_width(above[:1], below[:1]) == float("inf")


def people(rng, number, others=0.15, theirs=(30, 5), ours=(8, 12), steps=5):
    """Rounds by accepted drafts, [number, steps + 1], of prompts of many lengths, each with its own chance that a draft is right:
    `ours`, and of a share of `others` `theirs` (beta).
    """
    right = np.where(rng.random(number) < others, rng.beta(*theirs, number), rng.beta(*ours, number))
    share = np.stack([right**k * (1 - right) for k in range(steps)] + [right**steps], axis=1)
    rounds = rng.poisson(rng.lognormal(4.5, 0.8, number) / (1 + share @ np.arange(steps + 1)))
    return rng.multinomial(rounds, share)


def half_of(counts, level):
    return half_width(counts @ np.arange(counts.shape[1], dtype=float), counts.sum(1).astype(float), level)


def test_the_interval_is_the_bootstraps_where_samples_are_many():
    counts = people(np.random.default_rng(1), 2000)
    low, high = ratio_interval(counts @ np.arange(6.0), counts.sum(1).astype(float))
    assert half_of(counts, 0.95) == pytest.approx((high - low) / 2, rel=0.1)


def coverage(world, need, least=LEAST, level=LEVEL, runs=1000):
    """How often the interval at stopping holds the true accept length, where about `need` samples make it narrow enough."""
    rng = np.random.default_rng(7)
    counts = people(rng, 100_000, **world)
    true, width = pooled(counts), half_of(counts, 0.95) * (len(counts) / need) ** 0.5
    held = 0
    for _ in range(runs):
        some = counts[rng.integers(0, len(counts), 4096)]
        told = read_enough(lambda n, some=some: some[:n], len(some), width, least, level)
        held += abs(told.tau - true) <= told.half
    return held / runs


@pytest.mark.parametrize("world", [{}, {"ours": (2, 30), "others": 0.0}, {"ours": (20, 20), "others": 0.0}])
@pytest.mark.parametrize("need", [60, 160, 400])
def test_the_interval_at_stopping_covers_what_it_says(world, need):
    """94 to 97 of 100, as the module says; a thousand runs tell it to within 1.5."""
    assert 0.94 - 0.015 <= coverage(world, need) <= 0.97 + 0.015


def test_without_the_minimum_and_the_wider_interval_it_would_not():
    assert coverage({}, 100, least=24, level=0.95) < 0.92


def test_where_few_prompts_are_unlike_all_others_it_covers_less():
    """The limit that the module tells of: nine of ten."""
    rare = {"others": 0.04, "theirs": (95, 5), "ours": (6, 30)}
    assert 0.86 <= coverage(rare, 160) <= 0.93


def test_reading_stops_where_it_is_enough():
    rng = np.random.default_rng(0)
    counts, asked = people(rng, 3000), []

    def first(n):
        asked.append(n)
        return counts[:n]

    told = read_enough(first, len(counts), half_of(counts[:512], LEVEL))
    assert asked == [128, 256, 512] and (told.read, told.of) == (512, 3000) and told.tau == pooled(counts[:512])
    told = read_enough(first, len(counts), 1e-4)
    assert (told.read, told.of) == (3000, 3000) and told.half > 1e-4
    assert asked[-1] == 3000 and asked[-2] == 2048


def test_the_order_is_shuffled_and_the_same():
    assert order(500) == order(500) and sorted(order(500)) == list(range(500)) != order(500)


def test_half_width_on_the_command_line(tmp_path, capsys):
    tiny.write_drafter(tmp_path / "drafter")
    many(tmp_path / "captures", 300)
    ledger = tmp_path / "ledger"
    code, out, _ = said(capsys, tmp_path, "--half-width", "0.2", "--ledger", ledger, "--json")
    told = json.loads(out)
    assert code == 0 and told["samples"] == told["enough"]["read"] == 128
    assert told["enough"]["half"] <= 0.2 and told["enough"]["tau"] == told["acceptance"][-1]["accept length"]
    names = {json.loads(line)["key"] for line in ledger.read_text().splitlines()[1:]}
    captures = e3.read_captures(tmp_path / "captures")
    assert names == {unscored(captures, i).key for i in order(300)[:128]}
    code, out, _ = said(capsys, tmp_path, "--half-width", "0.2")
    assert "Enough: 128 of 300 samples were read, in random order (seed 0); accept length at K = 3 is" in out
    code, out, _ = said(capsys, tmp_path, "--half-width", "0.0001", "--ledger", ledger)
    assert "Not enough: all 300 samples were read" in out and "wider than the +- 0.0001" in out
    assert len(ledger.read_text().splitlines()) == 301, "those that the first run had read are not read again"
    code, _, err = said(capsys, tmp_path, "--half-width", "-1")
    assert code == 2 and "--half-width -1.0: expected a number above zero" in err


# the ledger


def test_a_ledger_torn_at_any_byte_goes_on(place):
    job = job_of(place)
    drafter, file = job.drafter(), place / "ledger"
    made = made_with(drafter, K)
    with Workers(job, drafter) as workers:
        whole = lines(Ledger(file, made).score(workers, range(12)))
        content = file.read_bytes()
        starts = [i + 1 for i, byte in enumerate(content) if byte == 10]
        for cut in [0, 5, starts[0] - 1, starts[0], starts[3] + 1, starts[3] - 1, starts[-2] + 30, len(content) - 1]:
            file.write_bytes(content[:cut])
            assert lines(Ledger(file, made).score(workers, range(12))) == whole
            again = Ledger(file, made)
            assert len(again.rows) == 12 and lines(again.score(Never(job), range(12))) == whole


WRONG = [*({"counts": wrong} for wrong in ([1, 2], [[1], [2]], [-1], [10**30], [0.5], "12")), {"key": 3}, {"error": None}]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_row_that_was_tampered_with_is_scored_again(place, change):
    job = job_of(place)
    drafter, file = job.drafter(), place / "ledger"
    made = made_with(drafter, K)
    with Workers(job, drafter) as workers:
        whole = lines(Ledger(file, made).score(workers, range(12)))
        kept = file.read_text().splitlines()
        kept[4] = json.dumps({**json.loads(kept[4]), **change})
        file.write_text("\n".join(kept) + "\n")
        ledger = Ledger(file, made)
        assert len(ledger.rows) == 11 and lines(ledger.score(workers, range(12))) == whole


def test_a_device_is_no_ledger(place):
    with pytest.raises(e3.InputError, match="/dev/full: cannot be a ledger"):
        Ledger("/dev/full", {})


def test_samples_without_a_round_tell_nothing(place, capsys):
    """They make no interval narrower, and are told of; an empty one too."""
    few = np.array([3.0, 1.0, 2.0, 2.0]), np.array([4.0, 2.0, 2.0, 4.0])
    assert half_width(*(np.append(part, np.zeros(20)) for part in few)) == half_width(*few)
    made = [tiny.capture(seed=i, name=f"s{i}") for i in range(4)]
    silent = [tiny.capture(seed=i, name=f"t{i}").replace(loss_mask=torch.zeros(len(made[0].token_ids)).bool()) for i in range(3)]
    empty = made[0].replace(
        name="empty", token_ids=made[0].token_ids[:0], loss_mask=made[0].loss_mask[:0],
        streams={n: stream[:0] for n, stream in made[0].streams.items()}, last=None, last_kind="none",
    )  # fmt: skip
    every = [one.replace(last=None, last_kind="none") for one in (*made, *silent)]
    e3.write_captures(place / "some/captures", [*every, empty], "tiny", 6, torch.float32)
    (place / "some/drafter").symlink_to(place / "drafter")
    code, out, _ = said(capsys, place / "some")
    assert code == 0 and "Mind: 4 of them have no row to draft from" in out


def test_what_could_not_be_scored_is_counted_first_and_named(place, capsys):
    spoil(place / "captures")
    code, out, _ = said(capsys, place)
    head, told = out.splitlines()[0], out.partition("could not be scored")[2]
    assert code == 0 and " of " in head and "sample_00001.safetensors#s1: " in told


class Never:
    """Workers that must not be asked for a row."""

    def __init__(self, job):
        self.job = job

    def rows(self, which):
        assert not which, f"scored again: {which}"
        return iter(())


def test_a_changed_file_is_scored_again_and_a_bad_one_tried_again(place):
    spoil(place / "captures")
    job = job_of(place)
    drafter = job.drafter()
    with Workers(job, drafter) as workers:
        ledger = Ledger(place / "ledger", made_with(drafter, K))
        before = ledger.score(workers, range(12))
        assert [bool(row.error) for row in before] == [i in (1, 3, 5) for i in range(12)]
        e3.write_captures(place / "mended", [tiny.capture(seed=40 + i) for i in range(3)], "tiny", 6, torch.float32)
        asked = []
        for i, name in ((1, 0), (2, 1)):  # a bad one mended, a good one changed
            (place / f"mended/sample_0000{name}.safetensors").replace(place / f"captures/sample_{i:05d}.safetensors")
        ledger = Ledger(place / "ledger", made_with(drafter, K))
        workers.rows = lambda which, rows=workers.rows: asked.extend(which) or rows(which)
        after = ledger.score(workers, range(12))
    assert asked == [1, 2, 3, 5]
    assert [i for i in range(12) if after[i].line() != before[i].line()] == [1, 2]
    assert not after[1].error


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 4}, "steps 4, not 3"), ({"dtype": "torch.bfloat16"}, "dtype torch.bfloat16, not torch.float32"),
        ({"drafter": "0"}, "other tensors"), ({"recipe": "0"}, "another recipe"),
    ],
)  # fmt: skip
def test_a_ledger_of_something_else_is_refused(place, change, sentence):
    made = made_with(drafter_of(place), K)
    Ledger(place / "ledger", {**made, **change})
    with pytest.raises(e3.InputError, match=sentence):
        Ledger(place / "ledger", made)


def test_a_file_that_is_no_ledger_is_left_alone(place):
    for content in ("a letter", '{"format": "another"}\n', "[1, 2]\n"):
        (place / "letter").write_text(content)
        with pytest.raises(e3.InputError, match="is no ledger of this version"):
            Ledger(place / "letter", made_with(drafter_of(place), K))
        assert (place / "letter").read_text() == content
    with pytest.raises(e3.InputError, match="cannot be a ledger"):
        Ledger(place / "captures", made_with(drafter_of(place), K))


def test_what_a_ledger_was_made_with(place):
    drafter = drafter_of(place)
    made = made_with(drafter, K)
    assert made == made_with(drafter_of(place), K)
    assert made_with(drafter.with_recipe(drafter.recipe.replace(norm_output=True)), K)["recipe"] != made["recipe"]
    for name in ("layers.0.mlp.up_proj.weight", "norm.weight"):
        other = drafter_of(place)
        other.weights[name] = other.weights[name].clone()
        other.weights[name].view(-1)[5] += 1e-3
        assert made_with(other, K)["drafter"] != made["drafter"]


def command(place, *more):
    argv = ["score", place / "drafter", "--captures", place / "captures", "--steps", K, "--ledger", place / "ledger", *more]
    code = "import sys; from eagle3lib.show.cli import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code, *map(str, argv)]


def stopped(place, number, *more):
    """`eagle3 score` as a process of its own, sent signal `number` as soon as its ledger holds a row."""
    process = subprocess.Popen(
        command(place, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's job in the background is made to ignore it
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (place / "ledger").exists() or (place / "ledger").read_bytes().count(b"\n") < 2:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.002)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.send_signal(number)
    return process.communicate(timeout=60)[1], process.returncode, children


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_it_goes_on(tmp_path, capsys, number):
    tiny.write_drafter(tmp_path / "drafter")
    many(tmp_path / "captures", 500, T=40)
    err, code, _ = stopped(tmp_path, number)
    kept = (tmp_path / "ledger").read_bytes().count(b"\n") - 1
    assert 0 < kept < 500, "it was stopped too late to tell anything"
    if number == signal.SIGINT:
        assert code == 130 and f"interrupted with {kept} of 500 samples scored; the same command goes on" in err
        assert "Traceback" not in err
    else:
        assert code == -signal.SIGKILL
    gone_on = said(capsys, tmp_path, "--ledger", tmp_path / "ledger", "--json")
    assert gone_on == said(capsys, tmp_path, "--json"), "as if it had never been stopped"
    assert len((tmp_path / "ledger").read_text().splitlines()) in (501, 502), "nothing is scored twice; one line may be torn"


# several processes


@pytest.mark.slow
def test_two_workers_count_the_same_and_end_with_the_first_process(tmp_path, capsys):
    tiny.write_drafter(tmp_path / "drafter")
    many(tmp_path / "captures", 360, T=40)
    spoil(tmp_path / "captures")
    _, code, children = stopped(tmp_path, signal.SIGKILL, "--workers", "2")
    assert code == -signal.SIGKILL and len(children) >= 2
    until = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in children):
        assert time.monotonic() < until, "workers outlive their first process"
        time.sleep(0.1)
    told = json.loads(said(capsys, tmp_path, "--ledger", tmp_path / "ledger", "--workers", "2", "--json")[1])
    serial = json.loads(said(capsys, tmp_path, "--json")[1])
    assert told == serial and len(told["errors"]) >= 3


@pytest.mark.slow
def test_a_worker_that_is_killed_is_a_sentence(place):
    many(place / "more", 20 * CHUNK)
    job = job_of(place)
    job = Job(job.checkpoint, None, job.recipe, e3.read_captures(place / "more"), K, "cpu", "float32")
    with Workers(job, job.drafter(), 2) as workers, pytest.raises(e3.InputError, match="one was killed"):
        for _ in workers.rows(range(20 * CHUNK)):
            for child in workers.pool._processes.values():
                child.kill()


def test_what_is_sent_to_a_worker_reads_the_same(place):
    job = job_of(place)
    sent = pickle.loads(pickle.dumps(job))
    assert sent.recipe == job.recipe and lines(score(sent.drafter(), sent.captures, K, range(12))) == lines(
        score(job.drafter(), job.captures, K, range(12))
    )


@pytest.mark.parametrize(
    ("given", "sentence"), [(("--workers", 0), "--workers 0"), (("--workers", 2, "--cluster", 2), "give one")]
)
def test_a_number_of_workers_that_is_none(place, capsys, given, sentence):
    code, _, err = said(capsys, place, *given)
    assert code == 2 and sentence in err
