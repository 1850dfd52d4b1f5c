"""`eagle3 score`: accuracy and accept length at each number of draft steps, from recorded states."""

import argparse

import eagle3lib as e3

from ..run.device import best_device
from .changes import with_changes
from .plan import check_device
from .printed import print_json, print_table, with_intervals


def run(asked: argparse.Namespace) -> int:
    """Print or dump both tables. Raises InputError for inputs that do not fit."""
    check_device(asked.device)
    device, dtype = asked.device or best_device(), asked.dtype or "float32"
    ckpt = e3.open_checkpoint(asked.checkpoint, target=asked.target)
    captures = e3.read_captures(asked.captures)
    drafter = e3.Drafter(ckpt, with_changes(ckpt.recipe, asked.changes), device, dtype)
    checks = e3.check_captures(ckpt, captures)
    found = e3.hits(drafter, captures, asked.steps)
    accuracy, acceptance = e3.Accuracy.of(found).table(), e3.Acceptance.of(found).table()
    if asked.json:
        print_json({
            "checkpoint": ckpt.path, "captures": asked.captures, "samples": len(captures), "device": device, "dtype": dtype,
            "streams": drafter.recipe.streams, "mind": [check.what for check in checks], "accuracy": accuracy,
            "acceptance": acceptance,
        })  # fmt: skip
        return 0
    print(f"{ckpt.path.name} on {len(captures)} samples, streams {drafter.recipe.streams}, {device}, {dtype}")
    for check in checks:
        print(f"Mind: {check.what}.")
    print_table("Accuracy at each step, with 95 % intervals over samples", with_intervals(accuracy))
    acceptance = acceptance.rename(columns={"low": "accept length low", "high": "accept length high"})
    print_table("Accept length at K draft steps, with 95 % intervals over samples", with_intervals(acceptance))
    return 0
