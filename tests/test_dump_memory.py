"""One sample at a time: what a process allocates to read a dump is at most one and a half samples, however many there are."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from dumps.base import STREAMS, rounded
from dumps.made import MADE

import eagle3lib as e3

T, WIDTH, MANY = 512, 1024, 6
STATE = T * WIDTH * 2  # bytes of one state, 16 bits a number
SAMPLE = 4 * STATE  # three streams and the last state
MAPPED = {name: made for name, made in MADE.items() if made.mapped}

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def big(count: int, T: int = T) -> list[e3.Capture]:
    made = [tiny.capture(T=T, streams=STREAMS, width=WIDTH, seed=i) for i in range(count)]
    return [c.replace(streams={n: rounded(s) for n, s in c.streams.items()}, last=rounded(c.last)) for c in made]


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """Bytes, by format: for 2 samples, and for 6."""
    folder, two = tmp_path_factory.mktemp("memory"), big(2)
    for name, made in MAPPED.items():
        dump = folder / name
        how = {"seq": T} if name == "NeMo Automodel" else {}
        made.write(dump / "few", two, **how)
        made.write(dump / "many", two * (MANY // 2), **how)
        made.write(dump / "small", big(1, T=16))
        (dump / "streams").write_text(json.dumps([] if made.layers or made.alone else STREAMS))
    tests = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, "-m", "dumps.memory", str(folder)], cwd=tests, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONPATH": str(tests.parent)},
    )  # fmt: skip
    shutil.rmtree(folder)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", MAPPED)
def test_at_most_one_sample_and_a_half(peaks, name):
    states = 1 if MADE[name].alone else 3 if MADE[name].last == "none" else 4
    assert peaks[name]["few"] < 1.5 * states * STATE
    assert peaks[name]["many"] < 1.5 * states * STATE


@pytest.mark.parametrize("name", MAPPED)
def test_as_much_for_many_files_as_for_few(peaks, name):
    assert peaks[name]["many"] - peaks[name]["few"] < STATE  # four more that were kept would be four or more


def test_it_would_be_seen(peaks):
    """By the same measure, what is read and kept."""
    assert peaks["16 MiB that are kept"] > 15 * 2**20
