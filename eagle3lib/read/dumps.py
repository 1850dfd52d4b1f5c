"""A folder of hidden states that another tool dumped (dump_formats.py), each file of it as a Capture.

What a file does not say (which layers, whether the last state is before the final norm, which tokens the target wrote) is
taken from what lies beside it, from the caller, or from what its tool does; each Capture's `known` and `about` say which.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from .capture import Capture, Label
from .dump_files import ArrowMasks, glance, held_by
from .dump_formats import FORMATS, NOT_SAMPLES, Format, format_of, suffix_of
from .errors import InputError
from .tensors import read_json

LAST_KINDS = ("pre_norm", "post_norm", "none")


@dataclass(frozen=True)
class Dump:
    """A folder of one tool's files. Calling it with one of `files` reads that file."""

    folder: Path
    files: tuple[Path, ...]
    format: Format
    first: Path  # the file that told the format
    streams: tuple[int, ...] | None  # as the caller or what lies beside the files says
    how: str  # where the labels are from
    last_kind: str | None  # as the caller says
    masks: ArrowMasks | None

    @property
    def title(self) -> str:
        return f"{self.format.producer}, streams {', '.join(map(str, self.streams)) if self.streams else 'not said'}"

    def __call__(self, file: Path) -> Capture:
        """One file as a Capture. Raises InputError, naming the file, when it is broken or of another format."""
        held = held_by(file)
        if format_of(file, held) is not self.format:
            raise InputError(
                f"{file}: holds {', '.join(map(str, held))}, but {self.first.name} is a dump of {self.format.producer}: keep "
                "one tool's files in a folder"
            )
        try:
            return self._capture(file, held)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        except (AttributeError, TypeError, RuntimeError, LookupError, NotImplementedError) as error:  # tensors of odd kinds
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{file}: is no dump of {self.format.producer} as it should be ({reason}): dump it again") from None

    def _capture(self, file: Path, held: Mapping) -> Capture:
        ids = _row(held, "token_ids" if "token_ids" in held else "input_ids").long()
        mask, mask_from = self._mask(file, held, ids)
        about = {"from": self.format.producer, "loss mask": mask_from}
        slots, last = self.format.read(held, len(ids))
        if last is None:
            slots, last, about["last state"] = self._split(slots)
        else:
            last = None if self.last_kind == "none" else last
            about["last state"] = "apart from the streams in the file"
        for state in slots if last is None else [*slots, last]:
            if state.ndim != 2 or len(state) != len(ids):
                raise InputError(f"a state is {list(state.shape)} for {len(ids)} tokens, expected a row for each: dump it again")
        if self.streams and len(self.streams) != len(slots):
            raise InputError(f"holds {len(slots)} states, but {len(self.streams)} streams were named ({self.how}): name each")
        T = len(ids)
        if self.format.padded and mask.any():
            T = int(mask.nonzero()[-1]) + 1  # nothing beyond the last token that counts is ever scored
        if len(ids) > T:
            about["trimmed"] = f"{len(ids) - T} tokens after the last that counts: padding, or a prompt without an answer"
        labels: Sequence[Label] = self.streams or [f"slot{i}" for i in range(len(slots))]
        return Capture(
            name=file.relative_to(self.folder).as_posix().removesuffix(".gz").removesuffix(self.format.suffix),
            token_ids=ids[:T],
            loss_mask=mask[:T],
            streams={label: slot[:T] for label, slot in zip(labels, slots, strict=True)},
            last=None if last is None else last[:T],
            last_kind="none" if last is None else self._last_kind(held),
            known=dict.fromkeys(labels, self.how),
            about=about,
        )

    def _mask(self, file: Path, held: Mapping, ids: Tensor) -> tuple[Tensor, str]:
        """The loss mask [T] bool, and where it is from."""
        number = re.match(r"hs_(\d+)\.", file.name)
        if "loss_mask" in held:
            mask, told = _row(held, "loss_mask"), "in the file"
        elif self.masks and number:
            mask, told = self.masks.row(int(number[1]), ids), f"row {number[1]} of the dataset in {self.masks.folder.name}"
        else:
            mask, told = torch.arange(len(ids)) > 0, "none in the file: every token counted"
        if len(mask) != len(ids):
            raise InputError(f"loss_mask has {len(mask)} entries for {len(ids)} tokens: dump it again")
        return mask != 0, told

    def _last_kind(self, held: Mapping) -> str:
        """Of a last state that is there: the caller's word, else the file's, else as the tool is known to dump."""
        flag = held.get("hidden_states_prenorm")  # ModelOpt
        if self.last_kind or flag is None:
            return self.last_kind or ("pre_norm" if self.format.last_kind == "none" else self.format.last_kind)
        return "pre_norm" if flag else "post_norm"

    def _split(self, slots: list[Tensor]) -> tuple[list[Tensor], Tensor | None, str]:
        """Streams, and the last slot apart where it is the last state: one more than streams are named, or told, or assumed."""
        more = len(slots) - len(self.streams) if self.streams else None
        if more is not None and more not in (0, 1):
            raise InputError(
                f"holds {len(slots)} states, but {len(self.streams)} streams were named ({self.how}): expected as many, or one "
                "fewer, where the last is the state before the head"
            )
        if more is not None and self.last_kind and (more == 1) != (self.last_kind != "none"):
            raise InputError(
                f"holds {len(slots)} states for {len(self.streams)} streams, which does not go with last={self.last_kind!r}"
            )
        if more is not None:
            apart, why = more == 1, f"{len(slots)} states for {len(self.streams)} named streams"
        elif self.last_kind:
            apart, why = self.last_kind != "none", "as last= says"
        else:
            apart, why = self.format.last_kind != "none", f"assumed, as dumps of {self.format.producer} mostly are"
        if apart and len(slots) > 1:
            return slots[:-1], slots[-1], f"the last in the file: {why}"
        return slots, None, f"none, each in the file is a stream: {why}"


def _row(held: Mapping, name: str) -> Tensor:
    """`held[name]`, whole numbers or truth values, as [T], from [T] or [1, T]. Raises InputError for anything else or nothing."""
    found = held[name]
    if isinstance(found, Tensor):
        row = found[0] if found.ndim == 2 and len(found) == 1 else found
        if row.ndim == 1 and len(row) and not row.is_floating_point() and not row.is_complex():
            return row
    what = f"{list(found.shape)} {found.dtype}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise InputError(f"{name} is {what}, expected [T] whole numbers, one for each token: dump it again, or move the file away")


def find_dump(folder: Path, streams: Sequence[int] | None = None, last: str | None = None) -> Dump | None:
    """The dump in `folder` and the folders in it, or None where no file is of a known format.

    Files that are seen to be broken are told of in a warning and stay in the list: reading one raises. Raises InputError
    for files of two formats, when none can be read, and for `streams` or `last` that cannot be.
    """
    if streams is not None and (
        not isinstance(streams, Sequence) or not streams or len(set(streams)) < len(streams) or not all(map(_is_n, streams))
    ):
        raise InputError(f"streams: {streams!r}, expected the n of each state in the files, as (2, 15, 27)")
    if last is not None and last not in LAST_KINDS:
        raise InputError(f"last: {last!r}, expected one of {', '.join(LAST_KINDS)}")
    files = _files(folder)
    first, format, broken = None, None, []
    for file in tqdm(files, desc=f"headers in {folder.name}", unit="file", leave=False, delay=1):
        try:
            held = glance(file)
            if held is None and first is None:
                held = held_by(file)  # files of torch.save tell what they hold only when loaded: one is
        except InputError as error:
            broken.append(str(error))
            continue
        its = format if held is None else format_of(file, held)
        if first is None:
            first, format = file, its
        elif its is not format:
            raise InputError(f"{folder}: {first.name} and {file.name} are not of one format: keep one tool's files in a folder")
    if broken and first is None:
        raise InputError(f"{folder}: none of {len(files)} files can be read; {broken[0]}")
    if first is None or format is None:
        return None
    if broken:
        warnings.warn(f"{len(broken)} of {len(files)} files are broken, and reading one raises: {broken[0]}", stacklevel=3)
    said, how = _said_beside(folder) if format.beside == "data_config.json" else (None, "by its place in the file")
    if streams is not None:
        said, how = tuple(streams), "as streams= says"
    datasets = [place for place in (folder, folder.parent) if (place / "state.json").exists()]
    masks = ArrowMasks(datasets[0]) if format.beside == "arrow" and datasets else None
    return Dump(folder, tuple(files), format, first, said, how, last, masks)


def _files(folder: Path) -> list[Path]:
    """Files that may be samples, in `folder` and one folder deeper, data_2 before data_10. Raises InputError for two kinds."""
    suffixes = {f.suffix for f in FORMATS}
    found = (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if suffix_of(path) in suffixes)
    files = [path for path in found if path.name not in NOT_SAMPLES and path.is_file()]
    files.sort(key=lambda path: [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", str(path)))])
    other = next((path for path in files if suffix_of(path) != suffix_of(files[0])), None)
    if other is not None:
        raise InputError(f"{folder}: holds {files[0].name} and {other.name}, of two formats: keep one tool's files in a folder")
    return files


def _said_beside(folder: Path) -> tuple[tuple[int, ...] | None, str]:
    """Streams that data_config.json tells: ids of layers whose output was taken, n = id + 1, and the last state's after them."""
    file = folder / "data_config.json"
    if not file.exists():
        return None, "by its place in the file"
    told = read_json(file).get("hidden_states")
    ids = told.get("layer_ids") if isinstance(told, dict) else None
    if not isinstance(ids, list) or len(ids) < 2 or not all(map(_is_n, ids)) or len(set(ids[:-1])) < len(ids) - 1:
        raise InputError(f"{file}: hidden_states.layer_ids is {ids!r}, expected a list of layer ids, each once")
    return tuple(i + 1 for i in ids[:-1]), f"{file.name}: layer_ids {ids}, n = id + 1"


def _is_n(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0
