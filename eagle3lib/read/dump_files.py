"""Files that other tools dumped hidden states into, opened without running anything that lies in them.

A pickle can hold code. Every file of `torch.save` is opened with `weights_only=True`, which builds tensors, numbers, text,
lists and dicts and nothing else; there is no way round it.
"""

import gzip
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from .errors import InputError
from .tensors import TensorFiles, read_json

UNPACKED = 2 * 2**30  # bytes a gzip file may unpack to; a sample of 8,192 tokens and six states of 7,168 takes 0.7 GB


def held_by(file: Path) -> Mapping:
    """What `file` holds, by name. Tensors are mapped from disk where the container allows it.

    Raises InputError when the file is truncated, holds no dict, or holds a Python object that loading would run.
    """
    if file.suffix == ".safetensors":
        return TensorFiles([file])
    try:
        if file.suffix == ".gz":
            loaded = torch.load(_unpacked(file), map_location="cpu", weights_only=True)
        else:
            loaded = torch.load(file, map_location="cpu", mmap=zipfile.is_zipfile(file), weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a broken pickle raises whatever its bytes happen to mean
        thing = re.search(r"GLOBAL ([\w.]+)", str(error))
        if thing:
            raise InputError(
                f"{file}: holds a Python object ({thing[1]}) beside tensors: opening it could run code, so it is not opened; "
                "dump tensors, numbers and text only"
            ) from None
        raise InputError(
            f"{file}: cannot be read ({file.stat().st_size:,} bytes): truncated, still being written, or something else under "
            "this name; copy it again or move it away"
        ) from None
    if not isinstance(loaded, dict):
        raise InputError(f"{file}: holds a {type(loaded).__name__}, expected a dict of one sample")
    return loaded


def _unpacked(file: Path) -> io.BytesIO:
    with gzip.open(file) as packed:
        content = packed.read(UNPACKED + 1)
    if len(content) > UNPACKED:
        raise InputError(f"{file}: unpacks to more than {UNPACKED:,} bytes, which no sample does: not opened")
    return io.BytesIO(content)


def glance(file: Path) -> Mapping | None:
    """What a safetensors file holds, by its header; None for other containers, of which only the end is looked at.

    Raises InputError when the file is seen to be broken.
    """
    if file.suffix == ".safetensors":
        return TensorFiles([file])
    with file.open("rb") as stream:
        start = stream.read(2)
    if not start or (start == b"PK" and not zipfile.is_zipfile(file)):  # the end of a zip lists what is in it
        raise InputError(f"{file}: {file.stat().st_size:,} bytes, and not whole: truncated, or still being written")
    return None


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
