"""`eagle3 verdict`: where it is broken, from whatever is given. A gate: 0 nothing broken, 10 something found, 11 cannot tell."""

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import asdict

from ..judge.evidence import Measured
from ..judge.verdict import Verdict, broken, verdict
from ..read.captures import read_captures
from ..read.checkpoint import open_checkpoint
from ..read.errors import BrokenError, InputError
from ..read.served import read_served
from ..run.chain import MOST_STEPS
from ..run.device import best_device
from .plan import check_device
from .printed import print_json

INPUTS = ("checkpoint", "captures", "served", "target", "log", "flags", "measured", "claimed", "claimed_by", "steps", "dtype")
KEYS = {"k": "steps", "tok/s": "tokens_per_second", "tau": "accept_length"}


def run(asked: argparse.Namespace) -> int:
    """Print or dump the verdict; returns its exit code. Raises InputError for inputs that cannot be used."""
    check_device(asked.device)
    measured = [measured_of(text) for text in asked.measured]
    runs = [one for file in asked.log for one in read_served(file)]
    folders = {name: read_captures(path) for name in ("captures", "served") if (path := getattr(asked, name))}
    if folders and asked.checkpoint is None:
        raise InputError("verdict: captures need the drafter's folder, CHECKPOINT: they are what it is run on")
    try:
        ckpt = open_checkpoint(asked.checkpoint, target=asked.target) if asked.checkpoint else None
    except BrokenError as error:
        return _told(broken(error), asked)
    found = verdict(
        ckpt, folders.get("captures"), folders.get("served"), runs, asked.flags,
        [one for one in measured if one.steps], next((one.tokens_per_second for one in measured if not one.steps), None),
        asked.claimed, figure_of(asked.claimed_by), asked.steps, asked.device or best_device(), asked.dtype or "float32",
    )  # fmt: skip
    return _told(found, asked)


def measured_of(text: str) -> Measured:
    """ "K=1 tok/s=56.8 tau=1.6" to a setting. Raises InputError for anything else."""
    pairs = re.findall(r"(\S+?)\s*=\s*(\S+)", text)
    try:
        values = {KEYS[key.lower()]: float(value) for key, value in pairs}
        steps, speed = values["steps"], values["tokens_per_second"]
        if steps != int(steps) or not 0 <= steps <= MOST_STEPS or not 0 < speed < math.inf:
            raise ValueError
        return Measured(**values | {"steps": int(steps)})
    except (KeyError, ValueError, OverflowError):
        raise InputError(f'--measured {text!r}: expected "K=1 tok/s=56.8 tau=1.6", tau left out where it is not known') from None


def figure_of(text: str | None) -> tuple[str, str] | None:
    """ "SpecForge" to its step-1 accuracy, "speculators full_acc_0" to that figure. Raises InputError for an unknown trainer."""
    if text is None:
        return None
    from ..measure.trainers import FIGURES  # the table of figures

    names = [(one.trainer, one.name.format(k=0)) for one in FIGURES]
    trainer, _, figure = text.strip().partition(" ")
    mine = [name for name in names if name[0].lower() == trainer.lower() and figure in ("", name[1])]
    if not mine:
        raise InputError(f"--claimed-by {text!r}: expected one of {', '.join(' '.join(name) for name in names)}")
    return mine[0]


def told_as_json(found: Verdict, given: Mapping[str, object] | None = None) -> dict:
    """A verdict as data: two of them can be compared by any diff. `given`: the inputs, by name."""
    return {
        "given": {name: value for name, value in (given or {}).items() if value not in (None, [])},
        "where": found.where, "what": found.what, "sentence": found.sentence, "steps": found.steps, "cost": found.cost,
        "do": found.do, "sure": found.sure, "settle": found.settle,
        "also": [{"where": one.where, "what": one.what, "sentence": one.sentence} for one in found.also],
        "why": [asdict(one) for one in found.why], "exit": found.exit_code,
    }  # fmt: skip


def _told(found: Verdict, asked: argparse.Namespace) -> int:
    if asked.json:
        print_json(told_as_json(found, {name: getattr(asked, name) for name in INPUTS}))
        return found.exit_code
    print(found.sentence)
    for name, answer in found.table()["answer"].items():
        print(f"  {name}: {answer}")
    print("\nEvidence, the worst first")
    for one in found.why:
        change = one.change or one.settle
        print(f"  {one.level:7}  {one.where}: {one.what}" + (f"\n{'':11}-> {change}" if change else ""))
    return found.exit_code
