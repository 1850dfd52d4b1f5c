"""Files that other tools dumped hidden states into, opened without running anything that lies in them.

A pickle can hold code. Every file of `torch.save` is opened with `weights_only=True`, which builds tensors, numbers, text,
lists and dicts and nothing else; there is no way round it.
"""

import gzip
import io
import re
import zipfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch

from .dump_deepspec import PARTS, TargetCache
from .dump_sglang import is_whole, read_answer
from .errors import InputError
from .tensors import Lazy, TensorFiles

Held = Mapping | Sequence[Mapping] | TargetCache  # one sample by name, or several by number
UNPACKED = 2 * 2**30  # bytes a gzip file may unpack to; a sample of 8,192 tokens and six states of 7,168 takes 0.7 GB


@dataclass(frozen=True)
class Part:
    """Sample `number` of a file that holds several."""

    file: Path
    number: int


class Samples(Sequence):
    """The samples in some files: a file's path where it is one sample, else its Parts; no list of each sample is kept."""

    def __init__(self, counts: Mapping[Path, int | None]):
        self.counts = list(counts.items())  # None: the file is one sample
        self.ends = list(accumulate(1 if count is None else count for _, count in self.counts))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        at = bisect_right(self.ends, i)
        file, count = self.counts[at]
        return file if count is None else Part(file, i - self.ends[at] + count)


def row_of(files: TensorFiles, number: int) -> Mapping:
    """Index `number` of each tensor's first axis, read when it is asked for."""
    return Lazy(files.headers, lambda name: files.block(name, number, number + 1)[0])


def held_by(file: Path) -> Held:
    """What `file` holds. Tensors are mapped from disk where the container allows it.

    Raises InputError when the file is truncated, holds no dict, or holds a Python object that loading would run.
    """
    if file.suffix == ".safetensors":
        return TensorFiles([file])
    if file.suffix == ".idx":
        return TargetCache(file)
    if file.suffix == ".json":
        try:
            return read_answer(file)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    loaded = unpickled(file)
    several = isinstance(loaded, list) and loaded and all(isinstance(one, dict) for one in loaded)
    if not isinstance(loaded, dict) and not several:
        raise InputError(f"{file}: holds a {type(loaded).__name__}, expected a dict of one sample, or a list of such")
    return loaded


def unpickled(file: Path) -> object:
    """What `torch.save` wrote into `file`, gzipped or not: tensors, numbers, text, lists and dicts.

    Raises InputError when it is truncated, or holds a Python object that loading would run.
    """
    try:
        if file.suffix == ".gz":
            return torch.load(_unpacked(file), map_location="cpu", weights_only=True)
        return torch.load(file, map_location="cpu", mmap=zipfile.is_zipfile(file), weights_only=True)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except FileNotFoundError:
        raise InputError(f"{file}: no such file: it was there when the folder was opened; open the folder again") from None
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


def _unpacked(file: Path) -> io.BytesIO:
    with gzip.open(file) as packed:
        content = packed.read(UNPACKED + 1)
    if len(content) > UNPACKED:
        raise InputError(f"unpacks to more than {UNPACKED:,} bytes, which no sample does: not opened")
    return io.BytesIO(content)


def glance(file: Path) -> Held | None:
    """What a file holds, where its header or index tells; None for other containers, of which only the ends are looked at.

    Raises InputError when the file is seen to be broken.
    """
    if file.suffix in (".safetensors", ".idx"):
        return held_by(file)
    if file.suffix == ".json":
        whole = is_whole(file)
        if whole is None:
            return {}
    else:
        with file.open("rb") as stream:
            start = stream.read(2)
        whole = start and (start != b"PK" or zipfile.is_zipfile(file))  # the end of a zip lists what is in it
    if not whole:
        raise InputError(f"{file}: {file.stat().st_size:,} bytes, and not whole: truncated, or still being written")
    return None


def keys_of(held: Held) -> list:
    """What the file's samples hold, by the first of them."""
    if isinstance(held, TargetCache):
        return list(PARTS)
    return list(held if isinstance(held, Mapping) else held[0])


def count_of(held: Held, stacked: bool) -> int | None:
    """How many samples a file holds; None where it is one. `stacked`: they lie along the first axis of its tensors."""
    if stacked:
        return min(header.shape[0] if header.shape else 0 for header in held.headers.values())
    return len(held) if not isinstance(held, Mapping) else None
