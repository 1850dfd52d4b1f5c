"""The command line: `eagle3 inspect`, `score`, `verdict`, `compare` and `workbook`.

Exit codes: 0 done, 2 bad input (one sentence) or a notebook that failed, 10 something was found, 11 cannot tell, 130 Ctrl-C.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import pandas as pd
import torch

import eagle3lib as e3

from ..read.config import FLAGS
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..read.rope import Rope
from ..read.rope_config import check_base
from ..run.device import best_device
from . import cli_compare, cli_verdict, options
from .plan import Order, check_device
from .printed import print_json, print_table, with_intervals

FROM_TENSORS = {f.name for f in fields(Recipe)} - {"streams", "eps", "rope", "sources", *FLAGS}  # widths and counts


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Bad input is one sentence on stderr, without a traceback."""
    try:
        asked = _parser().parse_args(argv)
        code = asked.command(asked)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: --help, or a wrong option
        return stop.code if isinstance(stop.code, int) else 2
    except (InputError, torch.OutOfMemoryError) as error:
        advice = "" if isinstance(error, InputError) else " (give --device cpu, or --dtype bfloat16)"
        print(f"eagle3: {' '.join(str(error).splitlines())}{advice}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eagle3: interrupted", file=sys.stderr)
        return 130
    except UnicodeEncodeError:
        print("eagle3: this terminal cannot show all letters: set PYTHONIOENCODING=utf-8", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `eagle3 ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eagle3", description="Look into an EAGLE-3 drafter, measure it, run the workbook.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("inspect", help="what the files say: recipe, tensors, what is ignored; nothing is run")
    one.set_defaults(command=_inspect)
    two = commands.add_parser("score", help="accuracy and accept length at each number of draft steps, from recorded states")
    two.set_defaults(command=_score)
    for command in (one, two):
        command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the drafter's folder")
        command.add_argument("--target", type=Path, metavar="DIR", help="its target's folder: only rows of two tensors are read")
        command.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
            help="change the recipe, as in streams=0,2,15, norm_output=true, rope_theta=500000; again for more",
        )  # fmt: skip
    two.add_argument("--captures", type=Path, required=True, metavar="DIR", help="hidden states recorded from the target")
    two.add_argument("--steps", type=int, default=8, metavar="K", help="the largest number of draft steps (8)")

    three = commands.add_parser(
        "workbook", help="run the notebooks on these files, or on the demo, into a folder of pages",
        description="Without --checkpoint, --captures, --target, --served and --log the notebooks run on the demo. With any of "
        "them, nothing of the demo is used, and a notebook that lacks an input says which. What is unchanged is not run again.",
    )  # fmt: skip
    three.set_defaults(command=_workbook)
    three.add_argument("names", nargs="*", metavar="NOTEBOOK", help="name or number, such as 02 (all)")
    for name, what in (("checkpoint", "the drafter's folder"), ("captures", "hidden states recorded from the target"),
                       ("served", "hidden states as the server gave them"), ("target", "the target's folder")):  # fmt: skip
        three.add_argument(f"--{name}", type=Path, metavar="DIR", help=what)
    three.add_argument("--log", type=Path, metavar="FILE", help="a server's log")
    three.add_argument("--out", type=Path, default=Path("workbook"), metavar="DIR", help="where to write (workbook)")
    three.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes",
        help="a parameter of the notebooks, as in STEPS=5; again for more",
    )  # fmt: skip
    three.add_argument("--notebooks", type=Path, metavar="DIR", help="the notebooks' folder (the repository's)")
    three.add_argument("--again", action="store_true", help="run also what is unchanged")

    cli_verdict.add(commands)
    cli_compare.add(commands)
    for command in (two, three):
        options.device(command)
    for command in (one, two, three):
        options.json(command)
    return parser


def _inspect(asked: argparse.Namespace) -> int:
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


def _score(asked: argparse.Namespace) -> int:
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


def _workbook(asked: argparse.Namespace) -> int:
    from .workbook import run  # papermill and nbconvert take a second to import

    named = ("checkpoint", "target", "captures", "served", "log")
    order = Order(
        inputs={name.upper(): path for name in named if (path := getattr(asked, name)) is not None},
        settings={name: _json_or_text(value) for name, value in pairs(asked.changes)},
        device=asked.device, dtype=asked.dtype, names=asked.names, out=asked.out, notebooks=asked.notebooks, again=asked.again,
    )  # fmt: skip
    told = run(order, say=lambda line: print(line, file=sys.stderr, flush=True))
    if asked.json:
        print_json(told)
    if told["interrupted"]:
        return 130
    return 2 if any(one["status"] == "failed" for one in told["notebooks"].values()) else 0


def pairs(changes: Sequence[str]) -> list[tuple[str, str]]:
    """`["A=1"]` to `[("A", "1")]`. Raises InputError for one without an equals sign."""
    for change in changes:
        if "=" not in change:
            raise InputError(f"--set {change}: expected NAME=VALUE, as in --set streams=0,2,15")
    return [(name.strip(), value.strip()) for name, _, value in (change.partition("=") for change in changes)]


def _json_or_text(value: str) -> object:
    """JSON, or whole numbers with commas between them as a list, or text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        numbers = value.split(",")
        return [int(n) for n in numbers] if len(numbers) > 1 and all(n.strip().isdecimal() for n in numbers) else value


def with_changes(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with `KEY=VALUE` changes. Raises InputError for an unknown key, or a value that the field cannot take."""
    for name, value in pairs(changes):
        if name == "rope_theta":
            check_base("--set", base := _number(name, value))
            recipe = recipe.replace(rope=Rope.plain(base, recipe.mla.rope if recipe.mla else recipe.head_dim))
        elif name == "rope":
            raise InputError("--set rope: is a list of frequencies; give --set rope_theta=VALUE for plain rotary positions")
        elif name in FROM_TENSORS:
            raise InputError(f"--set {name}: the tensors' shapes decide it, and another value fits none of them: leave it out")
        else:
            recipe = recipe.replace(**{name: _field(name, value)})
    return recipe


def _field(name: str, value: str) -> object:
    if name in FLAGS:
        if value.lower() not in ("true", "false"):
            raise InputError(f"--set {name}={value}: expected true or false")
        return value.lower() == "true"
    if name == "streams":
        try:
            return tuple(int(n) for n in value.strip("()[]").split(","))
        except ValueError:
            raise InputError(f"--set streams={value}: expected whole numbers with commas, as in streams=0,2,15") from None
    return _number(name, value) if name == "eps" else value


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"--set {name}={value}: expected a number above zero")
    return number


if __name__ == "__main__":
    sys.exit(main())
