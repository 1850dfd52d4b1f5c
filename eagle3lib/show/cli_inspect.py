"""`eagle3 inspect`: what a checkpoint's files say, and what they say against themselves; nothing is run."""

import argparse
from dataclasses import asdict, replace

import pandas as pd

import eagle3lib as e3

from .changes import with_changes
from .printed import print_json, print_table


def run(asked: argparse.Namespace) -> int:
    """Print or dump it. Raises InputError for a folder that is no drafter's."""
    ckpt = e3.open_checkpoint(asked.checkpoint, target=asked.target)
    ckpt = replace(ckpt, recipe=with_changes(ckpt.recipe, asked.changes))
    recipe = e3.recipe_table(ckpt.recipe)
    tensors = e3.inventory(ckpt)
    found = e3.audit(ckpt, tensors=tensors)
    if asked.json:
        ignored = [{"tensor": name, "why": why} for name, why in ckpt.ignored.items()]
        print_json(
            {
                "checkpoint": ckpt.path,
                "recipe": recipe,
                "tensors": tensors,
                "ignored": ignored,
                "layout": ckpt.layout.name,
                "audit": [asdict(one) for one in found],
            }
        )
        return 0
    print(f"{ckpt}, as {ckpt.layout.name} writes it")
    print("\nWhat the files say against themselves, the worst first")
    for one in found:
        print(f"  {one.level:7}  {one.where}: {one.what}" + (f"\n{'':11}-> {one.change}" if one.change else ""))
    print_table("Recipe", recipe)
    print_table("Tensors", tensors)
    print_table("Ignored", pd.DataFrame({"why": ckpt.ignored})) if ckpt.ignored else print("\nIgnored: nothing")
    return 0
