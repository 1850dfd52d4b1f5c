"""Scoring by several processes of one machine: on CPUs, or one for each GPU."""

import copyreg
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import torch

from ..read.captures import Captures
from ..read.checkpoint import open_checkpoint
from ..read.dump_beside import ArrowMasks
from ..read.dump_formats import FORMATS, Format
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..run.drafter import Drafter
from .score import Row, score

CHUNK = 16  # samples that a worker is handed at once: drafted together, and lost together when it is stopped


def _format(number: int) -> Format:
    return FORMATS[number]


# what goes to another process is the number of a format and the folder of masks, not what they hold
copyreg.pickle(Format, lambda one: (_format, (FORMATS.index(one),)))
copyreg.pickle(ArrowMasks, lambda one: (ArrowMasks, (one.folder,)))
copyreg.pickle(MappingProxyType, lambda one: (dict, (dict(one),)))


@dataclass(frozen=True)
class Job:
    """All that a worker needs: paths and numbers, no tensors."""

    checkpoint: Path
    target: Path | None
    recipe: Recipe
    captures: Captures
    steps: int
    device: str
    dtype: str

    def drafter(self, device: str | None = None) -> Drafter:
        """The drafter, its weights loaded."""
        return Drafter(open_checkpoint(self.checkpoint, self.target), self.recipe, device or self.device, self.dtype)


class Workers:
    """Scores samples of a Job: in this process, with `drafter`, or in `number` others, each with its own.

    For a `with` statement: the others end with it, and with this process, whatever ends it.
    """

    def __init__(self, job: Job, drafter: Drafter, number: int = 1):
        self.job, self.drafter, self.pool = job, drafter, None
        if number > 1:
            context = get_context("spawn")  # the fork of a process that has used a GPU cannot use it
            devices = context.SimpleQueue()
            for i in range(number):
                devices.put(f"cuda:{i % torch.cuda.device_count()}" if job.device == "cuda" else job.device)
            self.pool = ProcessPoolExecutor(number, context, _begin, (job, devices, max(1, torch.get_num_threads() // number)))

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *raised) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def rows(self, which: Sequence[int]) -> Iterator[Row]:
        """The Rows of samples `which`, as they are done. Raises InputError when a worker was killed."""
        if self.pool is None:
            yield from score(self.drafter, self.job.captures, self.job.steps, which)
            return
        try:
            for part in as_completed([self.pool.submit(_some, which[i : i + CHUNK]) for i in range(0, len(which), CHUNK)]):
                yield from part.result()
        except BrokenProcessPool:
            raise InputError(
                "workers: one was killed, mostly for want of memory: give fewer --workers; with --ledger the same command goes on"
            ) from None


def _begin(job: Job, devices, threads: int) -> None:
    """What a worker does first."""
    global _own
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches every process of a terminal: only the first one speaks
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()  # none outlives it
    torch.set_num_threads(threads)
    _own = job, job.drafter(devices.get())


def _some(which: Sequence[int]) -> list[Row]:
    job, drafter = _own
    return list(score(drafter, job.captures, job.steps, which))
