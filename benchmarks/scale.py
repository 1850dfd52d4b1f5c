"""Many recorded samples: does a second worker help, does memory stay flat, is reading as fast as the disk gives bytes?

    python benchmarks/scale.py      (writes scale.json beside itself, some four minutes on an idle machine of two cores)

The demo's 24 held-out captures, linked under other names into folders of 50, 200 and 800. Every ratio is of times taken in turn
in this one run, medians of REPEATS. Reading: every tensor of every sample copied into new memory, against the same files' bytes
read into a buffer that is there, and against the format's own loader; all out of the system's cache, so it tells what the library
adds, not what the disk gives. A file of half a MB takes longer to open than to read.
"""

import gzip
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from table import ROOT, figure, save, stamp

import eagle3lib as e3
from eagle3lib.measure.score import score
from eagle3lib.measure.workers import Job, Workers

DRAFTER, TARGET, CAPTURES = ROOT / "data/drafters/healthy", ROOT / "build/target", ROOT / "data/captures/heldout"
STREAMS, K, REPEATS = (2, 15, 27), 3, 3
FORMATS = ("eagle3lib, safetensors", "speculators, safetensors", "ModelOpt, .pt", "SpecForge, .ckpt", "SpecForge, .ckpt.gz")
WAIT = 0.02  # seconds that a slow disk takes for a sample
PEAK = "import resource, sys; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)"


def linked(folder: Path, number: int) -> Path:
    """`number` samples: the demo's, under other names."""
    folder.mkdir()
    sidecar = json.loads((CAPTURES / "captures.json").read_text())
    real = sidecar["samples"]
    sidecar["samples"] = [{"file": f"s{i:04d}.safetensors", "name": f"s{i}"} for i in range(number)]
    for i, sample in enumerate(sidecar["samples"]):
        (folder / sample["file"]).symlink_to((CAPTURES / real[i % len(real)]["file"]).resolve())
    (folder / "captures.json").write_text(json.dumps(sidecar))
    return folder


def wide() -> list[e3.Capture]:
    """Three samples as a large target gives them: 1,024 tokens, 4 states of 4,096 in float16, 34 MB."""
    random, T, H = torch.Generator().manual_seed(0), 1024, 4096
    made = []
    for i in range(3):
        states = torch.randn(len(STREAMS) + 1, T, H, generator=random).half()
        streams, ids = dict(zip(STREAMS, states, strict=False)), torch.arange(T)
        made.append(e3.Capture(f"wide{i}", ids, ids > 9, streams, states[-1], "post_norm", dict.fromkeys(STREAMS, "random")))
    return made


def dumps(place: Path, captures: list[e3.Capture]) -> dict[str, Path]:
    """The samples as this library and other tools write them: folders, by what they are called here."""
    place.mkdir()
    folders = {name: place / str(i) for i, name in enumerate(FORMATS)}
    own, speculators, modelopt, specforge, packed = folders.values()
    e3.write_captures(own, captures, target="", n_layers=30, dtype=None)
    for folder in (speculators, modelopt, specforge, packed):
        folder.mkdir()
    for i, c in enumerate(captures):
        states, rows = [c.streams[n].clone() for n in STREAMS], len(c.last)
        ids, mask, last, joined = c.token_ids[:rows], c.loss_mask[:rows], c.last.clone(), torch.cat(states, 1)
        save_file({"token_ids": ids, "hidden_states": torch.stack([*states, last], 1)}, speculators / f"hs_{i}.safetensors")
        kept = {"input_ids": ids, "loss_mask": mask, "hidden_states": last, "aux_hidden_states": joined}
        torch.save(kept, modelopt / f"{i}.pt")
        kept = {"input_ids": ids[None], "loss_mask": mask[None], "hidden_state": last[None], "aux_hidden_state": joined[None]}
        torch.save(kept, specforge / f"data_{i}.ckpt")
        with gzip.open(packed / f"data_{i}.ckpt.gz", "wb", compresslevel=1) as file:
            torch.save(kept, file)
    return folders


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(*works: Callable[[], object]) -> list[float]:
    """Median seconds of each, one after the other, five times REPEATS times, after one that does not count."""
    times = [[seconds(work) for work in works] for _ in range(5 * REPEATS + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def read_whole(folder: Path) -> None:
    """Every tensor of every sample that scoring could ask for, its numbers touched."""
    for capture in e3.read_captures(folder):
        for n in capture.streams:
            capture.streams[n].clone()
        if capture.last is not None:
            capture.last.clone()


def read_bytes(files: list[Path], buffer: memoryview) -> None:
    for file in files:
        with file.open("rb", buffering=0) as opened:
            opened.readinto(buffer)


def read_by_its_own(files: list[Path]) -> None:
    """The same tensors by `safetensors` or `torch.load` alone, copied likewise."""
    for file in files:
        if file.suffix == ".safetensors":
            held = load_file(file)
        elif file.suffix == ".gz":
            with gzip.open(file) as opened:
                held = torch.load(io.BytesIO(opened.read()), weights_only=True)
        else:
            held = torch.load(file, weights_only=True, mmap=True)
        for tensor in held.values():
            tensor.clone()


def reading(place: Path, captures: list[e3.Capture]) -> dict:
    """Of each format: the share of plain reading's rate that is reached, and of its own loader's."""
    found = {}
    for name, folder in dumps(place, captures).items():
        files = [file for file in sorted(folder.iterdir()) if file.suffix != ".json"]
        buffer = memoryview(bytearray(max(file.stat().st_size for file in files)))
        works = (lambda f=folder: read_whole(f), lambda f=files, b=buffer: read_bytes(f, b), lambda f=files: read_by_its_own(f))
        ours, plain, loader = in_turn(*works)
        size = sum(file.stat().st_size for file in files)
        found[name] = {"of plain reading": plain / ours, "of its loader": loader / ours, "MB/s": round(size / ours / 1e6)}
    return found


def job_of(folder: Path) -> Job:
    recipe = e3.open_checkpoint(DRAFTER, target=TARGET).recipe.replace(streams=STREAMS)
    return Job(DRAFTER, TARGET, recipe, e3.read_captures(folder), K, "cpu", "float32")


def workers(folder: Path) -> tuple[float, float]:
    """Seconds of 200 samples by one process and by two, without their start."""
    job = job_of(folder)
    which, drafter, one, two = range(len(job.captures)), job.drafter(), [], []
    torch.set_num_threads(1)  # as each of two has
    with Workers(job, drafter, 2) as pool:
        list(pool.rows(which))  # both have started
        for _ in range(REPEATS):
            one.append(seconds(lambda: list(score(drafter, job.captures, K, which))))
            two.append(seconds(lambda: list(pool.rows(which))))
    torch.set_num_threads(os.cpu_count() or 1)
    return statistics.median(one), statistics.median(two)


def peak(folder: Path) -> int:
    """MB of memory that `eagle3 score` takes at most over the folder."""
    command = f"import sys; from eagle3lib.show.cli import main; code = main(sys.argv[1:]); {PEAK}; sys.exit(code)"
    argv = ["score", DRAFTER, "--target", TARGET, "--captures", folder, "--steps", K, "--set", "streams=2,15,27"]
    done = subprocess.run([sys.executable, "-c", command, *map(str, argv)], capture_output=True, text=True, check=True)
    return int(done.stderr.strip().splitlines()[-1])


def run(*words: object) -> None:
    """`eagle3`, as a new process."""
    subprocess.run([sys.executable, "-m", "eagle3lib.show.cli", *map(str, words)], capture_output=True, check=False)


def verdict() -> float:
    """Seconds of `eagle3 verdict` on the demo, from a new process to the answer."""
    return seconds(lambda: run("verdict", ROOT / "data/drafters/embedding_fed", "--target", TARGET, "--captures", CAPTURES))


def slow_disk(folder: Path) -> float:
    """Seconds of scoring 200 samples where each is WAIT late, over those where none is."""
    drafter, captures = job_of(folder).drafter(), e3.read_captures(folder)

    def late(sample):
        time.sleep(WAIT)
        return captures.read(sample)

    slow = e3.Captures(captures.folder, captures.samples, late, captures.title)
    works = [lambda c=c: list(score(drafter, c, K, range(len(c)))) for c in (slow, captures)]
    times = [[seconds(work) for work in works] for _ in range(REPEATS)]
    return statistics.median(a / b for a, b in times)


def main() -> None:
    os.environ["TQDM_DISABLE"] = "1"
    made_on = stamp()
    demo = [c.replace(streams={n: c.streams[n] for n in STREAMS}) for c in e3.read_captures(CAPTURES)]
    place = Path(tempfile.mkdtemp(prefix="scale_"))
    rows = []
    try:
        folders = {number: linked(place / str(number), number) for number in (50, 200, 800)}
        for size, samples in (("0.5 MB", demo), ("34 MB", wide())):
            read = reading(place / size, samples)
            least = 0.8 if size == "34 MB" else None  # of small files the opening is most of it
            for name, one in read.items():
                packed = name.endswith("gz")
                rows.append(figure(f"reading samples of {size}, {name}, {one['MB/s']} MB/s", one["of plain reading"],
                                   "reading their bytes", least=None if packed else least))  # fmt: skip
                rows.append(figure("the same", one["of its loader"], "the format's own loader"))
        one, two = workers(folders[200])
        rows.append(figure("200 samples by one process, one thread", one, "seconds"))
        rows.append(figure("by two processes, times as fast", one / two, "one process"))
        late = slow_disk(folders[200])
        rows.append(figure(f"200 samples, each {1000 * WAIT:.0f} ms late from the disk", late, "the same without waiting"))
        peaks = {number: peak(folder) for number, folder in folders.items()}
        rows.append(figure("memory of `eagle3 score` over 50 samples", peaks[50], "MB"))
        rows.append(figure("and more over 800", peaks[800] - peaks[50], "MB", most=100.0))
        rows.append(figure("`eagle3 verdict` on the demo, from cold to the answer", verdict(), "seconds", most=60.0))
        help_ = statistics.median(seconds(lambda: run("--help")) for _ in range(5))
        rows.append(figure("`eagle3 --help`", help_, "seconds", most=0.5))
    finally:
        shutil.rmtree(place)
    save("scale", made_on, rows)


if __name__ == "__main__":
    main()
