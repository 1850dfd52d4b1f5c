"""Folders of captures: this project's own format, and the way into those of other tools (dumps.py).

The own format is one safetensors file a sample, and captures.json beside them. A file holds `token_ids` [T] int32, `loss_mask`
[T] bool, `stream.N` [R, Ht] for each n (each stored once, whichever sets of streams it belongs to; `stream.slotN` where nobody
knows n) and `last` [R, Ht]. captures.json says what no tensor can: which target, how many layers, what each stream is and how
that is known, and whether `last` is before or after the final norm.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from .capture import Capture, Label
from .dump_formats import known_formats
from .dumps import find_dump
from .errors import InputError
from .tensors import Lazy, TensorFiles, existing_folder, read_json

FORMAT = "eagle3lib captures, version 1"
SIDECAR = "captures.json"
STREAM = re.compile(r"stream\.(slot)?(\d+)")


class Captures(Sequence):
    """A folder of captures, each a Capture; a sample's file is opened when it is asked for, and nothing of it kept."""

    def __init__(self, folder: Path, samples: Sequence, read: Callable[..., Capture], title: str):
        self.folder, self.samples, self.read, self.title = folder, samples, read, title

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Captures(self.folder, self.samples[index], self.read, self.title)
        return self.read(self.samples[index])

    def __repr__(self) -> str:
        return f"Captures({self.folder.name}: {len(self)} samples, {self.title})"


def read_captures(path: str | Path, streams: Sequence[int] | None = None, last: str | None = None) -> Captures:
    """The captures in folder `path`, lazily: this library's own, or the dump of another tool (dump_formats.py lists them).

    Dumps do not say which layers their states are of: `streams` gives the n of each, in the file's order; without it they
    are called slot0, slot1, … and a drafter takes them by position. `last`, "pre_norm", "post_norm" or "none", says what the
    last state in a dump is, where what its tool mostly does is not true of it. Raises InputError when the folder holds
    nothing known, or files that are absent; of one that is broken, when it is read.
    """
    folder = existing_folder(path, "captures")
    if (folder / SIDECAR).exists():
        if streams is not None or last is not None:
            raise InputError(f"{folder}: {SIDECAR} says what its streams are: streams= and last= are for other tools' dumps")
        sidecar = _read_sidecar(folder)
        title = f"streams {', '.join(sidecar.get('streams', {}))}"
        return Captures(folder, sidecar["samples"], partial(_read_sample, folder, sidecar), title)
    dump = find_dump(folder, streams, last)
    if dump is None:
        held = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise InputError(
            f"{folder}: no {SIDECAR}, so no captures in this library's format, and no dump that it knows ({known_formats()}); "
            f"the folder holds {held}: give the one that has them"
        )
    return Captures(folder, dump.files, dump, dump.title)


def _read_sidecar(folder: Path) -> dict:
    """captures.json, its list of samples checked. Raises InputError for another format and for files that are absent."""
    sidecar = read_json(folder / SIDECAR)
    if sidecar.get("format") != FORMAT:
        raise InputError(f"{folder / SIDECAR}: format is {sidecar.get('format')!r}, expected {FORMAT!r}")
    samples = sidecar.get("samples")
    if not samples or not isinstance(samples, list):
        raise InputError(f"{folder / SIDECAR}: lists no samples: the recording was interrupted; record again")
    for sample in samples:
        name, file = (sample.get("name"), sample.get("file")) if isinstance(sample, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(file, str) or Path(file).name != file:
            raise InputError(f"{folder / SIDECAR}: a sample is {sample!r}, expected a name, and a file of this very folder")
    files = [sample["file"] for sample in samples]
    if len(set(files)) < len(files):
        twice = next(file for file, number in Counter(files).items() if number > 1)
        raise InputError(f"{folder / SIDECAR}: lists {twice} more than once: its numbers would count so often; keep one")
    if not isinstance(sidecar.get("streams", {}), dict):
        raise InputError(f"{folder / SIDECAR}: streams is {sidecar['streams']!r}, expected an object: what each stream is")
    there = {path.name for path in folder.iterdir()}
    absent = [file for file in files if file not in there]
    if absent:
        raise InputError(
            f"{folder}: {len(absent)} of {len(samples)} files that {SIDECAR} lists are absent ({absent[0]}, …): copy them too"
        )
    return sidecar


def _read_sample(folder: Path, sidecar: dict, sample: dict) -> Capture:
    path = folder / sample["file"]
    files = TensorFiles([path])
    missing = {"token_ids", "loss_mask"} - set(files)
    if missing:
        raise InputError(f"{path}: no {' and no '.join(sorted(missing))}; it holds {', '.join(sorted(files))}: record it again")
    found = sorted((int(match[2]), match) for name in files if (match := STREAM.fullmatch(name)))
    names: dict[Label, str] = {f"slot{n}" if match[1] else n: match[0] for n, match in found}
    if not names:
        raise InputError(f"{path}: no stream.N tensor, so no hidden states; it holds {', '.join(sorted(files))}: record it again")
    told = sidecar.get("streams", {})
    streams = Lazy(names, lambda label: files[names[label]])
    kind = sidecar.get("last", "unknown") if "last" in files else "none"
    known = {n: f"{SIDECAR}: {told[str(n)]}" for n in names if str(n) in told}
    about = {key: value for key, value in sample.items() if key not in ("file", "name")}
    ids, mask = files["token_ids"].long(), files["loss_mask"].bool()
    return Capture(sample["name"], ids, mask, streams, files.get("last"), kind, known, about)


def write_captures(
    path: str | Path,
    captures: Iterable[Capture],
    target: str,
    n_layers: int | None,
    dtype: torch.dtype | None = torch.float16,
    note: str = "",
    resume: bool = False,
) -> Captures:
    """Write captures into a new folder, one at a time; captures.json comes last, so a half-written folder is seen to be one.

    `dtype` None keeps each tensor's own. With `resume` captures.json is written after each sample, and the folder may hold an
    earlier recording, which is added to: an interruption loses nothing that was finished. All captures must have one
    `last_kind`, and streams labelled by n or as slots. Raises InputError otherwise, and when the folder exists and is not
    empty.
    """
    folder = Path(path)
    sidecar = {
        "format": FORMAT, "target": str(target), "n_layers": n_layers,
        "dtype": "as recorded" if dtype is None else str(dtype).removeprefix("torch."), "note": note,
        "streams": {}, "last": "none", "samples": [],
    }  # fmt: skip
    if resume and (folder / SIDECAR).exists():
        earlier = read_json(folder / SIDECAR)
        if (earlier.get("format"), earlier.get("target")) != (FORMAT, str(target)):
            raise InputError(
                f"{folder}: holds captures of {earlier.get('target')!r}, not of {target!r}: write into another folder"
            )
        sidecar |= {key: earlier[key] for key in ("streams", "last", "samples") if key in earlier}
    elif folder.exists() and any(folder.iterdir()):
        why = "" if (folder / SIDECAR).exists() else f"; it has no {SIDECAR}: an interrupted recording can be deleted"
        raise InputError(f"{folder}: exists and is not empty: captures are written into a new folder{why}")
    folder.mkdir(parents=True, exist_ok=True)
    if resume:
        _write_sidecar(folder, sidecar)
    for capture in tqdm(captures, desc=f"write {folder.name}", unit="sample"):
        _check_like(capture, sidecar, resume)
        tensors = {"token_ids": capture.token_ids.int(), "loss_mask": capture.loss_mask}
        tensors |= {f"stream.{n}": _cast(f"{capture.name}: stream {n}", t, dtype) for n, t in capture.streams.items()}
        if capture.last is not None:
            tensors["last"] = _cast(f"{capture.name}: last", capture.last, dtype)
        file = f"sample_{len(sidecar['samples']):05d}.safetensors"
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, folder / file)
        (folder / file).chmod(folder.stat().st_mode & 0o666)  # safetensors lets nobody but its writer read
        sidecar["samples"].append({"file": file, "name": capture.name, **capture.about})
        sidecar["streams"] |= {str(n): how for n, how in capture.known.items()}
        sidecar["last"] = capture.last_kind
        if resume:
            _write_sidecar(folder, sidecar)
    _write_sidecar(folder, sidecar)
    return read_captures(folder)


def _check_like(capture: Capture, sidecar: dict, resume: bool) -> None:
    """Raises InputError for a capture that cannot lie in one folder with those before it."""
    if sidecar["samples"] and capture.last_kind != sidecar["last"]:
        kinds = " and ".join(sorted((capture.last_kind, sidecar["last"])))
        raise InputError(f"{capture.name}: last states are {kinds}; one folder holds one kind: write them apart")
    if not all(STREAM.fullmatch(f"stream.{n}") for n in capture.streams) or {"file", "name"} & set(capture.about):
        raise InputError(
            f"{capture.name}: streams must be labelled by n, or slot0, slot1, …, and `about` hold no file and no name of its own"
        )
    labels = set(map(str, capture.known))
    if resume and sidecar["samples"] and labels != set(sidecar["streams"]):
        raise InputError(
            f"{capture.name}: has streams {', '.join(map(str, capture.known))}, but the folder was begun with "
            f"{', '.join(sidecar['streams'])}: record into another folder"
        )


def _write_sidecar(folder: Path, sidecar: dict) -> None:
    part = folder / f"{SIDECAR}.part"
    part.write_text(json.dumps(sidecar, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    part.replace(folder / SIDECAR)  # whole, or the one before


def _cast(what: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    largest = tensor.abs().max().item() if tensor.numel() else 0.0
    if not largest <= torch.finfo(dtype or tensor.dtype).max:  # NaN as well
        raise InputError(
            f"{what}: reaches {largest:.3g}, beyond {dtype or tensor.dtype}: write it in bfloat16 or float32 (dtype=)"
        )
    return tensor.to(dtype or tensor.dtype)
