"""Tensors on disk, opened lazily: headers first, a tensor (or some of its rows) only when it is asked for."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import InputError

DTYPES = {  # safetensors' header spelling -> torch
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


# What opening a file raises that is truncated or something else; torch's unpickler raises many kinds for stray bytes.
UNREADABLE = (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError, LookupError, ValueError, TypeError)


@dataclass(frozen=True)
class Header:
    """What a file says of one tensor before it is read."""

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype


class Lazy(Mapping):
    """Values by the keys of `keys`, each made by `read` when it is asked for, and not kept. Asking for a key makes none."""

    def __init__(self, keys: Mapping, read: Callable):
        self._keys, self._read = keys, read

    def __getitem__(self, key):
        return self._read(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class TensorFiles(Mapping):
    """Every tensor of one or more weight files, by the name it has there: a mapping from str to Tensor. Indexing reads that
    tensor, on the CPU.

    Raises InputError when a file is truncated, is not what its name says, or repeats another file's tensor.
    """

    def __init__(self, files: list[Path]):
        self.headers: dict[str, Header] = {}
        self._open: dict[Path, object] = {}
        for file in files:
            handle = self._open[file] = _open(file)
            for name in handle.keys():  # noqa: SIM118 (a safetensors handle is no mapping)
                if name in self.headers:
                    raise InputError(f"{file}: tensor {name} is also in {self.headers[name].file.name}: keep one of the two")
                self.headers[name] = Header(file, *_describe(file, handle, name))

    def __getitem__(self, name: str) -> Tensor:
        handle = self._open[self.headers[name].file]
        return handle[name] if isinstance(handle, dict) else handle.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self.headers  # a Mapping's own way would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.headers)

    def __len__(self) -> int:
        return len(self.headers)

    def rows(self, name: str, ids: Tensor) -> Tensor:
        """Rows `ids` [N] (int64) of tensor `name` [V, ...]. Returns [N, ...]; of a safetensors file only they are read."""
        header = self.headers[name]
        handle = self._open[header.file]
        if isinstance(handle, dict):
            return handle[name][ids]
        view = handle.get_slice(name)
        out = torch.empty(len(ids), *header.shape[1:], dtype=header.dtype)
        for place, row in enumerate(ids.tolist()):
            out[place] = view[row : row + 1][0]
        return out

    def block(self, name: str, first: int, end: int) -> Tensor:
        """Rows `first` to `end` (not included) of tensor `name`; of a safetensors file only they are read."""
        handle = self._open[self.headers[name].file]
        return handle[name][first:end] if isinstance(handle, dict) else handle.get_slice(name)[first:end]


def _open(file: Path):
    """A safetensors handle, or a dict of tensors for files of `torch.save` (mapped, never unpickled freely)."""
    try:
        if file.suffix == ".safetensors":
            return safe_open(file, "pt", "cpu")
        zipped = zipfile.is_zipfile(file)  # files of torch before 1.6 are none, and cannot be mapped
        loaded = torch.load(file, map_location="cpu", mmap=zipped, weights_only=True)
    except (FileNotFoundError, PermissionError):  # safetensors calls a file that may not be read not found
        why = "may not be read: give yourself permission (chmod)" if file.exists() else "no such file"
        raise InputError(f"{file}: {why}") from None
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allocate memory" in reason:
            raise InputError(
                f"{file}: memory ran out as it was opened ({reason}): free some, or allow this process more"
            ) from None
        raise InputError(
            f"{file}: cannot be read as tensors ({file.stat().st_size:,} bytes; {reason}): "
            "truncated, still being written, or something else under this name; copy it again"
        ) from None
    return _only_tensors(file, loaded)


def _only_tensors(file: Path, loaded: object) -> dict[str, Tensor]:
    if isinstance(loaded, dict) and isinstance(loaded.get(RAW_KEY), dict):
        loaded = loaded[RAW_KEY]
    if isinstance(loaded, dict) and loaded and all(isinstance(value, Tensor) for value in loaded.values()):
        return loaded
    raise InputError(f"{file}: holds a {type(loaded).__name__}, expected a dict of tensors by name")


def _describe(file: Path, handle, name: str) -> tuple[tuple[int, ...], torch.dtype]:
    if isinstance(handle, dict):
        return tuple(handle[name].shape), handle[name].dtype
    view = handle.get_slice(name)
    spelled = view.get_dtype()
    if spelled not in DTYPES:
        raise InputError(f"{file}: tensor {name} has dtype {spelled}, expected one of {', '.join(DTYPES)}")
    return tuple(view.get_shape()), DTYPES[spelled]


def read_json(file: Path) -> dict:
    """A JSON object. Raises InputError when the file is missing, is not JSON, or holds something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{file}: is not readable JSON ({error}): copy it again") from None
    if not isinstance(found, dict):
        raise InputError(f"{file}: holds a JSON {type(found).__name__}, expected an object: another file under this name?")
    return found


def at(found: object, path: Iterable[str]) -> object:
    """What lies in nested JSON objects under the keys of `path`; None where one is missing, or is no object."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


# Where the weights lie in the folder that people give. Source: NeMo Automodel writes `model/`, or `model/consolidated/`.
INSIDE = ("", "model", "model/consolidated")
RAW_STATE, RAW_KEY = "training_state.pt", "draft_state_dict"  # SpecForge's checkpoints before they are exported


def weights_folder(folder: Path) -> Path:
    """`folder`, or the one in it that holds config.json and weights."""
    for inside in INSIDE:
        place = folder / inside
        if (place / "config.json").exists() and any(place.glob("*.safetensors*")):
            return place
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights in `folder`: sharded by an index, one safetensors, or pytorch_model.bin.

    Other `*.pt` files (optimiser states lie beside weights) are never guessed at. Raises InputError when there is none.
    """
    for index in (folder / "model.safetensors.index.json", folder / "pytorch_model.bin.index.json"):
        if index.exists():
            names = read_json(index).get("weight_map", {})
            if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
                raise InputError(f"{index}: weight_map is no object from tensor to file: copy it again")
            files = [folder / name for name in sorted(set(names.values()))]
            missing = [file.name for file in files if not file.exists()]
            if missing:
                raise InputError(f"{index}: names {len(files)} files, but {', '.join(missing)} is not in {folder}: copy it there")
            return files
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).exists():
            return [folder / name]
    lone = sorted(file for file in folder.glob("*.safetensors") if not file.name.startswith("adapter_"))
    if len(lone) == 1:
        return lone
    if (folder / RAW_STATE).exists():
        return [folder / RAW_STATE]
    if (folder / "adapter_model.safetensors").exists():
        raise InputError(
            f"{folder}: holds a LoRA adapter only, which changes its target and drafts nothing: give a drafter's folder"
        )
    if gguf := sorted(folder.glob("*.gguf")):
        raise InputError(f"{gguf[0]}: is a GGUF file, which this library does not read: give the drafter it was converted from")
    held = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
    raise InputError(
        f"{folder}: no model.safetensors (or its index) and no pytorch_model.bin; the folder holds {held}: "
        "give the folder that holds the weights and config.json"
    )


def existing_folder(path: str | Path, what: str) -> Path:
    """`path` as a folder that exists. Raises InputError otherwise, naming the nearest parent that does exist."""
    try:
        folder = Path(path).expanduser()
        if folder.is_dir():
            if not os.access(folder, os.R_OK | os.X_OK):
                raise InputError(f"{folder}: may not be read: give yourself permission (chmod)")
            return folder
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, a user that is not there
        raise InputError(f"{str(path)[:80]}…: cannot be a folder for {what} ({error.args[-1]}): check the path") from None
    if folder.exists():
        raise InputError(f"{folder}: is a file, expected the folder of {what}: give {folder.parent}")
    near = next(p for p in [*folder.absolute().parents] if p.is_dir())
    raise InputError(f"{folder}: no such folder for {what}; {near} exists: check the path")
