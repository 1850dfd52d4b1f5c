"""Token texts, from a tokenizer.json alone: no code of the model's is run."""

from collections.abc import Callable
from pathlib import Path


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
