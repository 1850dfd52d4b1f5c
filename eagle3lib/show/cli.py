"""The command line: `eagle3 inspect`, `score`, `verdict`, `compare` and `workbook`.

Exit codes: 0 done, 2 bad input (one sentence) or a notebook that failed, 10 something was found, 11 cannot tell, 130 Ctrl-C.
What a command does is in the module of its name, imported when it is asked for: `--help` needs no PyTorch.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ..read.errors import InputError

DTYPES = ("float32", "bfloat16")
COUNTS = "a server's log, saved answers, benchmark result, or http://host:port"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Bad input is one sentence on stderr, without a traceback."""
    try:
        asked = _parser().parse_args(argv)
        command = import_module(f".cli_{asked.command}", __package__)
        with import_module("..run.device", __package__).enough_memory(f"eagle3 {asked.command}", "fewer steps or samples"):
            code = command.run(asked)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: --help, or a wrong option
        return stop.code if isinstance(stop.code, int) else 2
    except InputError as error:
        print(f"eagle3: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eagle3: interrupted", file=sys.stderr)
        return 130
    except UnicodeEncodeError:
        print("eagle3: this terminal cannot show all letters: set PYTHONIOENCODING=utf-8", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # `eagle3 ... | head`
            return 0
        print("eagle3: the output could not be written: the disk is full", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eagle3", description="Look into an EAGLE-3 drafter, measure it, run the workbook.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _inspect_and_score(commands)
    _verdict(commands)
    _compare(commands)
    _workbook(commands)
    for name, command in commands.choices.items():
        if name != "inspect":
            command.add_argument("--device", choices=("cpu", "cuda"), help="cuda where there is one, else cpu")
            command.add_argument("--dtype", choices=DTYPES, help="float32; exactness is meant for it")
        command.add_argument("--json", action="store_true", help="one JSON object on stdout, numbers unrounded")
    return parser


def _inspect_and_score(commands: argparse._SubParsersAction) -> None:
    one = commands.add_parser("inspect", help="what the files say: recipe, tensors, what is ignored; nothing is run")
    two = commands.add_parser("score", help="accuracy and accept length at each number of draft steps, from recorded states")
    for command in (one, two):
        command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the drafter's folder")
        command.add_argument("--target", type=Path, metavar="DIR", help="its target's folder: only rows of two tensors are read")
        command.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
            help="change the recipe, as in streams=0,2,15, norm_output=true, rope_theta=500000; again for more",
        )  # fmt: skip
    two.add_argument("--captures", type=Path, required=True, metavar="DIR", help="hidden states recorded from the target")
    two.add_argument("--steps", type=int, default=8, metavar="K", help="the largest number of draft steps (8)")
    two.add_argument(
        "--half-width", type=float, metavar="X",
        help="read samples in random order until the interval of the accept length at K is X to either side",
    )  # fmt: skip
    two.add_argument(
        "--ledger", type=Path, metavar="FILE", help="keep each sample's counts there; what is in it is not run again"
    )
    two.add_argument("--workers", type=int, metavar="N", help="processes (one for each GPU; 1 without)")
    two.add_argument(
        "--cluster", type=int, metavar="N", help="N actors of the Ray that RAY_ADDRESS names, or of one started here"
    )


def _verdict(commands: argparse._SubParsersAction) -> None:
    one = commands.add_parser(
        "verdict", help="where it is broken, what it costs, what to change",
        description="The answer from whatever is given: a checkpoint, captures, a log, flags, measured speeds, or only some of "
        "them. Exit code 0 when nothing is broken, 10 when something was found, 11 when it cannot be told.",
    )  # fmt: skip
    one.add_argument("checkpoint", type=Path, nargs="?", metavar="CHECKPOINT", help="the drafter's folder")
    for name, what in (("captures", "hidden states recorded from the target, as in training"),
                       ("served", "hidden states as the server hands them to the drafter"),
                       ("target", "the target's folder: only rows of a few tensors are read")):  # fmt: skip
        one.add_argument(f"--{name}", type=Path, metavar="DIR", help=what)
    one.add_argument("--log", type=Path, nargs="+", default=[], metavar="FILE", help=COUNTS)
    one.add_argument("--flags", metavar="LINE", help="the server's launch line, in quotes")
    one.add_argument(
        "--measured", nargs="+", default=[], metavar="SETTING",
        help='measured speeds, as in "K=1 tok/s=56.8 tau=1.6"; K=0 is without drafter',
    )  # fmt: skip
    one.add_argument("--claimed", type=float, metavar="X", help="a training figure, as 0.747")
    one.add_argument("--claimed-by", metavar="TRAINER", help='whose: "SpecForge", or "speculators full_acc_0"')
    one.add_argument("--steps", type=int, metavar="K", help="draft steps to tell everything at (as served, else 3)")


def _compare(commands: argparse._SubParsersAction) -> None:
    one = commands.add_parser(
        "compare", help="which of several drafters accepts most, and is the difference real",
        description="Runs each drafter on its own streams over the same captures and ranks them by accept length, with paired "
        "intervals and a paired test. Exit code 0 when the first is told from all others, 11 when not.",
    )  # fmt: skip
    one.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT", help="a drafter's folder, or a folder of such")
    one.add_argument("--target", type=Path, metavar="DIR", help="their target's folder: only rows of two tensors are read")
    one.add_argument("--captures", type=Path, required=True, metavar="DIR", help="hidden states recorded from the target")
    one.add_argument("--steps", type=int, default=3, metavar="K", help="the number of draft steps to compare at (3)")


def _workbook(commands: argparse._SubParsersAction) -> None:
    one = commands.add_parser(
        "workbook", help="run the notebooks on these files, or on the demo, into a folder of pages",
        description="Without --checkpoint, --captures, --target, --served and --log the notebooks run on the demo. With any of "
        "them, nothing of the demo is used, and a notebook that lacks an input says which. What is unchanged is not run again.",
    )  # fmt: skip
    one.add_argument("names", nargs="*", metavar="NOTEBOOK", help="name or number, such as 02 (all)")
    for name, what in (("checkpoint", "the drafter's folder"), ("captures", "hidden states recorded from the target"),
                       ("served", "hidden states as the server gave them"), ("target", "the target's folder")):  # fmt: skip
        one.add_argument(f"--{name}", type=Path, metavar="DIR", help=what)
    one.add_argument("--log", type=Path, metavar="FILE", help=COUNTS)
    one.add_argument("--out", type=Path, default=Path("workbook"), metavar="DIR", help="where to write (workbook)")
    one.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes",
        help="a parameter of the notebooks, as in STEPS=5; again for more",
    )  # fmt: skip
    one.add_argument("--notebooks", type=Path, metavar="DIR", help="the notebooks' folder (the repository's)")
    one.add_argument("--again", action="store_true", help="run also what is unchanged")


if __name__ == "__main__":
    sys.exit(main())
