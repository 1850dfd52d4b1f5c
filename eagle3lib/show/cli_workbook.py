"""`eagle3 workbook`: the notebooks on somebody's files, or on the demo, into a folder of pages."""

import argparse
import sys

from . import workbook
from .changes import json_or_text, pairs
from .plan import Order
from .printed import print_json


def run(asked: argparse.Namespace) -> int:
    """Run them; 2 where one failed, 130 after Ctrl-C. Raises InputError before anything runs."""
    named = ("checkpoint", "target", "captures", "served", "log")
    order = Order(
        inputs={name.upper(): path for name in named if (path := getattr(asked, name)) is not None},
        settings={name: json_or_text(value) for name, value in pairs(asked.changes)},
        device=asked.device, dtype=asked.dtype, names=asked.names, out=asked.out, notebooks=asked.notebooks, again=asked.again,
    )  # fmt: skip
    told = workbook.run(order, say=lambda line: print(line, file=sys.stderr, flush=True))
    if asked.json:
        print_json(told)
    if told["interrupted"]:
        return 130
    return 2 if any(one["status"] == "failed" for one in told["notebooks"].values()) else 0
