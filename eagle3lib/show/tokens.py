"""Token texts, from a tokenizer.json alone: no code of the model's is run."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from .figures import label


def texts_from(target: str | Path | None) -> Callable[[list[int]], list[str]] | None:
    """A function from ids to their texts, or None where the folder has no tokenizer.json or `tokenizers` is not installed."""
    path = Path(target or "") / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    tokenizer = Tokenizer.from_file(str(path))
    return lambda ids: [tokenizer.decode([i], skip_special_tokens=False) for i in ids]


def spelled(rows: pd.DataFrame, text: Callable[[list[int]], list[str]] | None) -> pd.DataFrame:
    """A table of token ids with each id's text behind it, as "1653 ' plan'"; ids alone where there is no `text`."""
    if text is None:
        return rows
    ids = [column for column in rows.columns if column not in ("sample", "position")]
    told = rows.copy()
    for column in ids:
        told[column] = [f"{i} {word!r}" for i, word in zip(rows[column], text(rows[column].tolist()), strict=True)]
    return told.rename(columns=label)
