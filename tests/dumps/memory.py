"""How much memory of its own a process needs to read a dump: `python -m dumps.memory FOLDER`, from tests/, prints JSON.

Pages that are mapped from a file can be dropped and are not counted; what is allocated is (RssAnon of /proc/self/status). A
thread looks every millisecond while the samples are read and summed, and the largest is kept: on a busy machine a peak may be
missed, never made up.
"""

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import eagle3lib as e3


def anonymous() -> int:
    """Bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


class Peak(threading.Thread):
    """The largest `anonymous()` between start and stop."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest, self.done = anonymous(), False

    def run(self) -> None:
        while not self.done:
            self.largest = max(self.largest, anonymous())
            time.sleep(0.001)


def read(folder: Path, streams: tuple[int, ...] | None) -> None:
    """Every sample of a dump, every state of it, one after another."""
    for capture in e3.read_captures(folder, streams=streams):
        for label in capture.streams:
            use(capture.streams[label])
        if capture.last is not None:
            use(capture.last)


def use(states: torch.Tensor) -> None:
    total = torch.zeros(())
    for rows in states.split(32):  # the measuring itself takes little
        total += rows.float().sum()
    assert bool(torch.isfinite(total))


def peak(work: Callable[[], None]) -> int:
    """Bytes beyond those that the process has before, doing `work`."""
    gc.collect()
    before, thread = anonymous(), Peak()
    thread.start()
    work()
    after = anonymous()
    thread.done = True
    thread.join()
    return max(thread.largest, after) - before


def main(folder: Path) -> None:
    """In `folder`, for each format a folder "few" and one "many", and "small" to load what Python loads but once."""
    kept: list[torch.Tensor] = []
    found = {"16 MiB that are kept": peak(lambda: kept.append(torch.ones(2**22)))}
    for dump in sorted(path for path in folder.iterdir() if path.is_dir()):
        streams = tuple(json.loads((dump / "streams").read_text())) or None
        read(dump / "small", streams)
        found[dump.name] = {size: peak(partial(read, dump / size, streams)) for size in ("few", "many")}
    print(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
