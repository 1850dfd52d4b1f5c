"""The same rows from a local Ray of two actors, one killed in the middle, over files of which some are broken; and from a Ray
that ran before.

Needs Ray (`make test-cluster` makes an environment with it); skipped without.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from test_score import K, lines, many, spoil

import eagle3lib as e3
from eagle3lib.measure.ledger import Ledger, made_with
from eagle3lib.measure.score import score, unscored
from eagle3lib.measure.workers import CHUNK, Job
from eagle3lib.show.cli import main
from eagle3lib.show.cluster import Cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-cluster")
NUMBER = 24 * CHUNK


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("cluster")
    tiny.write_drafter(place / "drafter")
    many(place / "captures", NUMBER)
    spoil(place / "captures")
    ray.init("local", num_cpus=3, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    yield place
    ray.shutdown()


@pytest.fixture
def job(place):
    ckpt = e3.open_checkpoint(place / "drafter")
    return Job(place / "drafter", None, ckpt.recipe, e3.read_captures(place / "captures"), K, "cpu", "float32")


def deadly(read, sample: dict, mark):
    """`read`, but the process that is the first to read `sample` is killed, as by kill -9. `mark`: a file, there once it was."""

    def reading(asked):
        if asked == sample and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(asked)

    return reading


def test_totals_with_a_killed_actor_and_broken_files(place, job):
    drafter, captures = job.drafter(), job.captures
    serial = list(score(drafter, captures, K, range(NUMBER)))
    assert 0 < sum(bool(row.error) for row in serial) < NUMBER
    read = deadly(captures.read, captures.samples[NUMBER // 2], place / "mark")
    with Cluster(replace(job, captures=e3.Captures(captures.folder, captures.samples, read, captures.title)), 2) as cluster:
        rows = list(cluster.rows(range(NUMBER)))
    assert (place / "mark").exists(), "nobody was killed"
    assert lines(rows) == lines(serial)
    with Cluster(job, 2) as cluster:
        ledger = Ledger(place / "ledger", made_with(drafter, K))
        keys = {unscored(captures, i).key for i in range(100)}
        assert lines(ledger.score(cluster, range(100))) == lines(row for row in serial if row.key in keys)
    assert ray.is_initialized(), "a Ray that was there before stays"


def test_on_the_command_line(place, capsys):
    def told(*more):
        argv = ("score", place / "drafter", "--captures", place / "captures", "--steps", K, "--json", *more)
        assert main([str(word) for word in argv]) == 0
        return json.loads(capsys.readouterr().out)

    assert told("--cluster", 2) == told()


@pytest.fixture
def running(tmp_path):
    """A Ray of another process, with a token: the settings with which one joins it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 40, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    bin_ray = Path(sys.executable).with_name("ray")
    asked = f"start --head --block --port {port} --num-cpus 3 --include-dashboard=false --disable-usage-stats".split()
    with (tmp_path / "log").open("w") as log:
        head = subprocess.Popen([bin_ray, *asked], env=settings, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while "Ray runtime started" not in (tmp_path / "log").read_text():
            assert head.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield settings
    finally:
        head.terminate()
        head.wait(60)


def test_a_ray_that_runs_already_is_joined(place, running, capsys):
    argv = [str(word) for word in ("score", place / "drafter", "--captures", place / "captures", "--steps", K, "--json")]
    command = [sys.executable, "-m", "eagle3lib.show.cli", *argv, "--cluster", "2"]
    done = subprocess.run(command, env=running, capture_output=True, text=True)
    assert main(argv) == 0
    assert json.loads(done.stdout) == json.loads(capsys.readouterr().out), done.stderr
    done = subprocess.run(command, env={**running, "RAY_AUTH_TOKEN": "b" * 40}, capture_output=True, text=True)
    assert done.returncode == 2 and "cannot join" in done.stderr and "Traceback" not in done.stderr, done.stderr
