"""Scoring on many machines: the same `score`, through Ray Data (`pip install 'eagle3lib[cluster]'`).

Numbers of samples go through Ray, and Rows come back: hidden states are read where they are scored, under the same paths on
every machine. Ray starts an actor that died again and hands its samples out again, so a Row may come twice: it counts once.
"""

import logging
import os
from collections.abc import Iterator, Sequence

from ..measure.score import Row, score
from ..measure.workers import CHUNK, Job
from ..read.errors import InputError


class Scorer:
    """An actor: a drafter, its weights loaded once."""

    def __init__(self, job: Job):
        self.job, self.drafter = job, job.drafter()

    def __call__(self, batch: dict) -> dict:
        """`id` [B], numbers of samples, to `row` [B], lines of JSON; a sample that fails is a Row with its error."""
        return {"row": [row.line() for row in score(self.drafter, self.job.captures, self.job.steps, batch["id"].tolist())]}


class Cluster:
    """Scores samples of a Job by `number` actors, with a GPU each where the Job is for one. For a `with` statement.

    Joins the Ray that RAY_ADDRESS names ("auto": the one that this machine belongs to); else starts one here, for the statement.
    Raises InputError where Ray is not installed.
    """

    def __init__(self, job: Job, number: int):
        try:
            import ray.data
        except ImportError:
            raise InputError("ray: is not installed, and --cluster needs it: pip install 'eagle3lib[cluster]'") from None
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        self.ray, self.job, self.number, self.begun = ray, job, number, not ray.is_initialized()

    def __enter__(self) -> "Cluster":
        place = os.environ.get("RAY_ADDRESS", "local")  # not a Ray that may be here: what one left that died is waited for
        own = {"num_cpus": self.number + 1, "include_dashboard": False} if place == "local" else {}
        if self.begun:
            try:
                self.ray.init(place, log_to_driver=False, logging_level="warning", **own)
            except (ConnectionError, RuntimeError, self.ray.exceptions.RayError) as error:  # a wrong token comes as the last two
                raise InputError(
                    f"RAY_ADDRESS {place}: cannot join the Ray there ({' '.join(str(error).split())}): start Ray there and "
                    "this command with the same RAY_AUTH_MODE and token, or leave RAY_ADDRESS out to start one here"
                ) from None
        return self

    def __exit__(self, *raised) -> None:
        if self.begun:
            self.ray.shutdown()

    def rows(self, which: Sequence[int]) -> Iterator[Row]:
        """The Rows of samples `which`, as they are done, each once."""
        seen, gpus = set(), 1 if self.job.device == "cuda" else None
        blocks = self.ray.data.from_items([{"id": i} for i in which], override_num_blocks=-(-len(which) // CHUNK) or 1)
        actors = self.ray.data.ActorPoolStrategy(size=self.number)
        done = blocks.map_batches(
            Scorer, fn_constructor_args=[self.job], batch_size=CHUNK, compute=actors, num_cpus=1, num_gpus=gpus
        )
        for row in (Row.of(told["row"]) for told in done.iter_rows()) if which else ():
            if row.key not in seen:
                seen.add(row.key)
                yield row
