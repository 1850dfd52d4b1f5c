"""What can be answered with the files at hand: each notebook's question, and what it still lacks."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ..read.captures import read_captures
from ..read.errors import InputError
from . import plan


def questions(given: Mapping[str, str | None], notebooks: str | Path = ".") -> pd.DataFrame:
    """A row for each notebook in the folder: its question, and whether `given` (parameter -> path or None) answers it."""
    rows = []
    for book in plan.find(plan.Order(notebooks=Path(notebooks)))[0]:
        lacking = [plan.input_told(name) for name in book.lacking(given)]
        fewest, recorded = book.about.get("samples", 1), None if lacking else _samples(given, book)
        if recorded is not None and recorded < fewest:
            lacking = [f"{fewest} recorded samples or more"]
        answer = "yes" if not lacking else "not yet: needs " + " and ".join(lacking)
        rows.append({"notebook": book.name, "question": book.about.get("question", ""), "can it be answered": answer})
    return pd.DataFrame(rows).set_index("notebook")


def _samples(given: Mapping[str, str | None], book: plan.Notebook) -> int | None:
    """How many samples were recorded; None where that cannot be read: the notebook itself will say what is wrong."""
    try:
        return len(read_captures(book.path.parent / Path(str(given["CAPTURES"])).expanduser()))
    except (InputError, KeyError):
        return None


# What each further file would decide, in the order in which it is worth getting. Parameter -> sentence.
DECIDES = {
    "CHECKPOINT": "a drafter's folder shows what it is and what it expects",
    "CAPTURES": "hidden states recorded from the target show whether the drafter can guess at all, and on which streams",
    "TARGET": "the target's folder supplies embedding rows, the head and the tokenizer that a drafter leaves out",
    "SERVED": "hidden states recorded where the server hands them over tell a fault of its capture from one of the drafter",
    "LOG": "the server's own counts tell a fault of the engine from a misunderstanding of its numbers",
}


def missing(given: Mapping[str, str | None]) -> list[str]:
    """What each file that is not given would decide."""
    return [told for name, told in DECIDES.items() if not given.get(name)]
