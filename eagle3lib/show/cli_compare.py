"""`eagle3 compare`: several drafters on the same captures, ranked, and whether the order is more than noise.

Exit codes: 0 the first is told from all others; 11 it is not, nothing is beside it, or one could not be run; 2 bad input.
"""

import argparse

from ..judge.checks import check_captures
from ..measure.compare import accept_lengths, compare, open_all
from ..read.captures import read_captures
from ..run.device import best_device
from . import compared
from .plan import check_device
from .printed import print_json, print_table


def run(asked: argparse.Namespace) -> int:
    """Print or dump the ranking; returns the exit code. Raises InputError where nothing can be compared."""
    check_device(asked.device)
    device, dtype = asked.device or best_device(), asked.dtype or "float32"
    captures = read_captures(asked.captures)
    opened = open_all(asked.checkpoints, asked.target)
    found = accept_lengths(opened, captures, asked.steps, device, dtype)
    ranked = compare(found, asked.steps)
    checks = check_captures(opened[ranked.rounds.columns[0]], captures)
    table = ranked.table()
    if asked.json:
        print_json({
            "captures": asked.captures, "samples": len(ranked.rounds), "steps": asked.steps, "device": device, "dtype": dtype,
            "answer": compared.answer(ranked, checks), "mind": [check.what for check in checks], "comparison": table,
            "acceptance": {name: found[name].table() for name in ranked.rounds},
        })  # fmt: skip
    else:
        here = f"{ranked.rounds.shape[1]} of {len(found)} drafters on {compared.prompts(len(ranked.rounds))}"
        print(f"{here}, K = {asked.steps}, {device}, {dtype}")
        print(compared.answer(ranked, checks).replace("**", "").replace("`", ""))
        print_table("By accept length, the best first, with 95 % intervals over prompts", compared.table(ranked))
    worse = int(table["beside the first"].eq("worse").sum())
    return 0 if worse == len(found) - 1 > 0 else 11
