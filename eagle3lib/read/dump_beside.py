"""What lies beside a dump's files and says what they do not: which layers the states are of, which tokens the target wrote."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .errors import InputError
from .tensors import at, read_json


@dataclass(frozen=True)
class Sidecar:
    """A JSON file with a list of ids of layers whose output was taken, n = id + 1, in the order of the states."""

    file: str
    keys: tuple[str, ...]  # where in it the list is
    last: bool = False  # its last entry is the last state's
    lowest: int = 0  # -1 where that is the embedding
    version: tuple[str, int] | None = None  # a field, and what it must be
    count: str = ""  # the field with the number of samples

    def streams(self, folder: Path) -> tuple[tuple[int, ...], str] | None:
        """The n of each stream, and how that is known; None where `folder` lacks the file. Raises InputError for nonsense."""
        file = folder / self.file
        if not file.exists():
            return None
        told = read_json(file)
        if self.version and told.get(self.version[0]) != self.version[1]:
            field, expected = self.version
            raise InputError(f"{file}: {field} is {told.get(field)!r}, expected {expected}: dump again with a newer version")
        found = at(told, self.keys)
        ids = found if isinstance(found, list) else []
        named = ids[:-1] if self.last else ids
        if not named or not all(type(i) is int and i >= self.lowest for i in ids) or len(set(named)) < len(named):
            raise InputError(f"{file}: {'.'.join(self.keys)} is {found!r}, expected a list of layer ids, each once")
        return tuple(i + 1 for i in named), f"{file.name}: {self.keys[-1]} {ids}, n = id + 1"

    def lacking(self, folder: Path, here: int) -> str | None:
        """That there are fewer samples than the file tells of, in words; None where there are not, or nothing tells."""
        file = folder / self.file
        number = read_json(file).get(self.count) if self.count and file.exists() else None
        if not isinstance(number, int) or number <= here:
            return None
        return f"{file} tells of {number} samples, and {here} can be read: the dump was interrupted, or files were not copied"


class ArrowMasks:
    """Loss masks of the arrow dataset that `datasets.save_to_disk` wrote into `folder`, mapped from disk by pyarrow.

    Raises InputError when pyarrow is not installed or the dataset is not of that kind.
    """

    def __init__(self, folder: Path):
        try:
            from pyarrow import ArrowException, concat_tables, ipc, memory_map
        except ImportError:
            raise InputError(
                f"{folder}: the loss masks are in its arrow dataset, and pyarrow is not installed: pip install pyarrow; or "
                "copy the hs_ files into a folder of their own, and every token counts"
            ) from None
        self.folder = folder
        state = read_json(folder / "state.json")
        names = [str(entry["filename"]) for entry in state.get("_data_files") or [] if "filename" in entry]
        if not names or state.get("_indices_data_files") or any(Path(name).name != name for name in names):
            raise InputError(f"{folder / 'state.json'}: lists {names}, expected the arrow files of a flat dataset beside it")
        try:
            parts = [ipc.open_stream(memory_map(str(folder / name))).read_all() for name in names]
            self.rows = concat_tables(parts).select(["input_ids", "loss_mask"])
        except (OSError, ArrowException, KeyError) as error:
            raise InputError(
                f"{folder}: its arrow dataset cannot be read ({str(error).splitlines()[0]}): make it again"
            ) from None

    def row(self, number: int, token_ids: Tensor) -> Tensor:
        """The mask [T] of row `number`. Raises InputError when there is no such row, or it has other tokens."""
        if number >= len(self.rows):
            raise InputError(f"the dataset in {self.folder} has only {len(self.rows)} rows: it is of another dump")
        if self.rows["input_ids"][number].as_py() != token_ids.tolist():
            raise InputError(
                f"its tokens are not those of row {number} of the dataset in {self.folder}: that was made again, or is of "
                "another dump"
            )
        return torch.tensor(self.rows["loss_mask"][number].as_py())
