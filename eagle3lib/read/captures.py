"""Folders of captures in this project's own format: one safetensors file a sample, and captures.json beside them.

A file holds `token_ids` [T] int32, `loss_mask` [T] bool, `stream.N` [R, Ht] for each n (each stored once, whichever sets of
streams it belongs to) and `last` [R, Ht]. captures.json says what no tensor can: which target, how many layers, what each
stream is and how that is known, and whether `last` is before or after the final norm.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from .capture import Capture, Label
from .errors import InputError
from .tensors import TensorFiles, existing_folder, read_json

FORMAT = "eagle3lib captures, version 1"
SIDECAR = "captures.json"
STREAM = re.compile(r"stream\.\d+")


class Streams(Mapping):
    """The streams of one file by label, each read when it is asked for."""

    def __init__(self, files: TensorFiles):
        self.files = files
        self.names = {int(name.removeprefix("stream.")): name for name in files if STREAM.fullmatch(name)}

    def __getitem__(self, label: Label) -> Tensor:
        return self.files[self.names[label]]

    def __contains__(self, label: object) -> bool:
        return label in self.names  # a Mapping's own way would read the stream

    def __iter__(self) -> Iterator[Label]:
        return iter(sorted(self.names))

    def __len__(self) -> int:
        return len(self.names)


class Captures(Sequence):
    """A folder of captures, each a Capture; a sample's file is opened when it is asked for, and nothing of it kept."""

    def __init__(self, folder: Path, sidecar: dict):
        self.folder, self.sidecar = folder, sidecar
        self.samples = sidecar["samples"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index):
        if isinstance(index, slice):
            some = Captures(self.folder, self.sidecar)
            some.samples = self.samples[index]
            return some
        sample = self.samples[index]
        path = self.folder / sample["file"]
        files = TensorFiles([path])
        missing = {"token_ids", "loss_mask"} - set(files)
        if missing:
            raise InputError(
                f"{path}: no {' and no '.join(sorted(missing))}; it holds {', '.join(sorted(files))}: record it again"
            )
        streams = Streams(files)
        if not streams:
            raise InputError(
                f"{path}: no stream.N tensor, so no hidden states; it holds {', '.join(sorted(files))}: record it again"
            )
        told = self.sidecar.get("streams", {})
        return Capture(
            name=sample["name"],
            token_ids=files["token_ids"].long(),
            loss_mask=files["loss_mask"].bool(),
            streams=streams,
            last=files.get("last"),
            last_kind=self.sidecar.get("last", "unknown") if "last" in files else "none",
            known={n: f"{SIDECAR}: {told[str(n)]}" for n in streams if str(n) in told},
            about={key: value for key, value in sample.items() if key not in ("file", "name")},
        )

    def __repr__(self) -> str:
        return f"Captures({self.folder.name}: {len(self)} samples, streams {', '.join(self.sidecar.get('streams', {}))})"


def read_captures(path: str | Path) -> Captures:
    """The captures in folder `path`, lazily. Raises InputError when it is no such folder or names files that are absent."""
    folder = existing_folder(path, "captures")
    if not (folder / SIDECAR).exists():
        held = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise InputError(
            f"{folder}: no {SIDECAR}, so no captures in this library's format; the folder holds {held}: give the one that has it"
        )
    sidecar = read_json(folder / SIDECAR)
    if sidecar.get("format") != FORMAT:
        raise InputError(f"{folder / SIDECAR}: format is {sidecar.get('format')!r}, expected {FORMAT!r}")
    samples = sidecar.get("samples")
    if not samples or not isinstance(samples, list):
        raise InputError(f"{folder / SIDECAR}: lists no samples: the recording was interrupted; record again")
    for sample in samples:
        if not isinstance(sample, dict) or "name" not in sample or Path(str(sample.get("file", "/"))).name != sample.get("file"):
            raise InputError(f"{folder / SIDECAR}: a sample is {sample!r}, expected a name, and a file of this very folder")
    absent = [sample["file"] for sample in samples if not (folder / sample["file"]).exists()]
    if absent:
        raise InputError(
            f"{folder}: {len(absent)} of {len(samples)} files that {SIDECAR} lists are absent ({absent[0]}, …): copy them too"
        )
    return Captures(folder, sidecar)


def write_captures(
    path: str | Path, captures: Iterable[Capture], target: str, n_layers: int, dtype: torch.dtype = torch.float16, note: str = ""
) -> Captures:
    """Write captures into a new folder, one at a time; captures.json comes last, so a half-written folder is seen to be one.

    All must have integer labels and one `last_kind`. Raises InputError when the folder exists and is not empty.
    """
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        why = "" if (folder / SIDECAR).exists() else f"; it has no {SIDECAR}: an interrupted recording can be deleted"
        raise InputError(f"{folder}: exists and is not empty: captures are written into a new folder{why}")
    folder.mkdir(parents=True, exist_ok=True)
    samples, known, last_kinds = [], {}, set()
    for number, capture in enumerate(tqdm(captures, desc=f"write {folder.name}", unit="sample")):
        last_kinds.add(capture.last_kind)
        if len(last_kinds) > 1:
            kinds = " and ".join(sorted(last_kinds))
            raise InputError(f"{capture.name}: last states are {kinds}; one folder holds one kind: write them apart")
        if not all(isinstance(n, int) for n in capture.streams) or {"file", "name"} & set(capture.about):
            raise InputError(f"{capture.name}: streams must be labelled by n, and `about` hold no file and no name of its own")
        tensors = {"token_ids": capture.token_ids.int(), "loss_mask": capture.loss_mask}
        tensors |= {f"stream.{n}": _cast(f"{capture.name}: stream {n}", t, dtype) for n, t in capture.streams.items()}
        if capture.last is not None:
            tensors["last"] = _cast(f"{capture.name}: last", capture.last, dtype)
        file = f"sample_{number:05d}.safetensors"
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, folder / file)
        samples.append({"file": file, "name": capture.name, **capture.about})
        known |= {str(n): how for n, how in capture.known.items()}
    sidecar = {
        "format": FORMAT, "target": str(target), "n_layers": n_layers, "dtype": str(dtype).removeprefix("torch."), "note": note,
        "streams": known, "last": last_kinds.pop() if last_kinds else "none", "samples": samples,
    }  # fmt: skip
    (folder / SIDECAR).write_text(json.dumps(sidecar, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    return read_captures(folder)


def _cast(what: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    largest = tensor.abs().max().item() if tensor.numel() else 0.0
    if not largest <= torch.finfo(dtype).max:  # NaN as well
        raise InputError(f"{what}: reaches {largest:.3g}, beyond {dtype}: write it in bfloat16 or float32 (dtype=)")
    return tensor.to(dtype)
