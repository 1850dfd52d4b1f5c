"""`eagle3 score`: accuracy and accept length at each number of draft steps, of all recorded samples, or of enough of them."""

import argparse
import math
import sys

import torch

import eagle3lib as e3

from ..measure.enough import SEED, Enough, order, read_enough
from ..measure.ledger import Ledger, made_with
from ..measure.score import tables
from ..measure.workers import Job, Workers
from ..read.errors import InputError
from ..run.device import best_device
from .changes import with_changes
from .cluster import Cluster
from .plan import check_device
from .printed import print_json, print_table, with_intervals

SHOWN = 10  # errors that are printed


def run(asked: argparse.Namespace) -> int:
    """Print or dump both tables. Raises InputError for inputs that do not fit, and where no sample can be scored."""
    check_device(asked.device)
    device, dtype = asked.device or best_device(), asked.dtype or "float32"
    number = _number(asked, device)
    ckpt = e3.open_checkpoint(asked.checkpoint, target=asked.target)
    captures = e3.read_captures(asked.captures)
    recipe = with_changes(ckpt.recipe, asked.changes)
    job = Job(asked.checkpoint, asked.target, recipe, captures, asked.steps, device, dtype)
    drafter = job.drafter("cpu" if asked.cluster or number > 1 else device)
    ledger = Ledger(asked.ledger, made_with(drafter, asked.steps))
    which, outcome = list(range(len(captures))), None
    with Cluster(job, number) if asked.cluster else Workers(job, drafter, number) as workers:
        try:
            if asked.half_width is not None:
                mixed = order(len(captures))

                def counts(n: int):
                    return tables(ledger.score(workers, mixed[:n]), asked.steps)[1].counts(asked.steps)

                outcome = read_enough(counts, len(which), asked.half_width)
                which = sorted(mixed[: outcome.read])
            rows = ledger.score(workers, which)
        except KeyboardInterrupt:
            goes_on = f"the same command goes on from {ledger.file}" if ledger.file else "with --ledger FILE it would go on there"
            print(f"eagle3: interrupted with {len(ledger.rows)} of {len(captures)} samples scored; {goes_on}", file=sys.stderr)
            return 130
    accuracy, acceptance = (part.table() for part in tables(rows, asked.steps))
    bad = [row for row in rows if row.error]
    good = [captures.samples[i] for i, row in zip(which, rows, strict=True) if not row.error]
    checks = e3.check_captures(ckpt, e3.Captures(captures.folder, good, captures.read, captures.title))
    if asked.json:
        print_json({
            "checkpoint": ckpt.path, "captures": asked.captures, "samples": len(good), "device": device, "dtype": dtype,
            "streams": recipe.streams, "mind": [check.what for check in checks], "accuracy": accuracy,
            "acceptance": acceptance, "errors": {row.key: row.error for row in bad},
            "enough": outcome and {**vars(outcome), "asked": asked.half_width, "met": outcome.half <= asked.half_width},
        })  # fmt: skip
        return 0
    number = f"{len(good)} of {len(rows)}" if bad else f"{len(good)}"
    print(f"{ckpt.path.name} on {number} samples, streams {recipe.streams}, {device}, {dtype}")
    empty = sum(not row.error and not row.rounds(asked.steps) for row in rows)
    if empty:
        print(f"Mind: {empty} of them have no row to draft from: the target wrote no two tokens in a row there (loss_mask).")
    for check in checks:
        print(f"Mind: {check.what}.")
    if outcome:
        print(_told(outcome, asked.steps, asked.half_width))
    print_table("Accuracy at each step, with 95 % intervals over samples", with_intervals(accuracy))
    acceptance = acceptance.rename(columns={"low": "accept length low", "high": "accept length high"})
    print_table("Accept length at K draft steps, with 95 % intervals over samples", with_intervals(acceptance))
    if bad:
        told = [f"{row.key.rpartition('/')[2]}: {row.error}" for row in bad[:SHOWN]] + ["…"] * (len(bad) > SHOWN)
        print("\n  ".join([f"\n{len(bad)} of {len(rows)} samples could not be scored, and are left out:", *told]))
    return 0


def _number(asked: argparse.Namespace, device: str) -> int:
    """How many processes, or actors. Raises InputError for a number that is none."""
    for name in ("workers", "cluster", "half_width"):
        value = getattr(asked, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected a number above zero")
    if asked.workers and asked.cluster:
        raise InputError("--workers and --cluster: give one: processes of this machine, or actors of a cluster")
    return asked.cluster or asked.workers or (max(1, torch.cuda.device_count()) if device == "cuda" else 1)


def _told(enough: Enough, K: int, asked: float) -> str:
    """How many samples were read, and why so many."""
    part = "all" if enough.read == enough.of else f"{enough.read} of"
    read = f"{part} {enough.of} samples were read, in random order (seed {SEED}); accept length at K = {K} is {enough.tau:.3f}"
    if enough.half <= asked:
        return f"Enough: {read} +- {enough.half:.3f} by Student's t (the table below resamples), and +- {asked:g} was asked for."
    return f"Not enough: {read} +- {enough.half:.3f}, wider than the +- {asked:g} that was asked for: record more."
