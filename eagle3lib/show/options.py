"""Options that several commands share."""

import argparse

from .plan import DTYPES


def device(command: argparse.ArgumentParser) -> None:
    """--device and --dtype."""
    command.add_argument("--device", choices=("cpu", "cuda"), help="cuda where there is one, else cpu")
    command.add_argument("--dtype", choices=DTYPES, help="float32; exactness is meant for it")


def json(command: argparse.ArgumentParser) -> None:
    """--json."""
    command.add_argument("--json", action="store_true", help="one JSON object on stdout, numbers unrounded")
