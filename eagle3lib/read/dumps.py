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
from .dump_beside import ArrowMasks
from .dump_deepspec import TargetCache
from .dump_files import Part, Samples, count_of, glance, held_by, keys_of, row_of
from .dump_formats import FORMATS, NOT_SAMPLES, Format, format_of, suffix_of
from .dump_states import States
from .errors import InputError
from .tensors import Lazy

LAST_KINDS = ("pre_norm", "post_norm", "none")
SHOWN = 10  # broken files of which a warning tells the reason


@dataclass(frozen=True)
class Dump:
    """A folder of one tool's files. Calling it with one of `files` reads that file."""

    folder: Path
    files: Samples
    format: Format
    first: Path  # the file that told the format
    streams: tuple[int, ...] | None  # as the caller or what lies beside the files says
    how: str  # where the labels are from
    last_kind: str | None  # as the caller says
    masks: ArrowMasks | None

    @property
    def title(self) -> str:
        return f"{self.format.producer}, streams {', '.join(map(str, self.streams)) if self.streams else 'not said'}"

    def __call__(self, sample: Path | Part) -> Capture:
        """One sample as a Capture. Raises InputError, naming the file, when it is broken or of another format."""
        file, number = (sample.file, sample.number) if isinstance(sample, Part) else (sample, None)
        held = held_by(file)
        if format_of(file, keys_of(held)) is not self.format:
            raise InputError(
                f"{file}: holds {_listed(keys_of(held))}, but {self.first.name} is a dump of {self.format.producer}: "
                "keep one tool's files in a folder"
            )
        if (number is None) != (count_of(held, self.format.stacked) is None):
            raise InputError(f"{file}: was another file when the folder was opened: open the folder again")
        name = file.relative_to(self.folder).as_posix().removesuffix(".gz").removesuffix(self.format.suffix)
        name, place = (name, f"{file}") if number is None else (f"{name}[{number}]", f"{file}, sample {number}")
        try:
            if number is not None:
                held = row_of(held, number) if self.format.stacked else held[number]
            return self._capture(name, held)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        except (AttributeError, TypeError, ValueError, RuntimeError, LookupError, NotImplementedError) as error:  # odd tensors
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{place}: is no dump of {self.format.producer} as it should be ({reason}): dump it again") from None

    def _capture(self, name: str, held: Mapping) -> Capture:
        ids = _row(held, "token_ids" if "token_ids" in held else "input_ids").long()
        mask, mask_from = self._mask(name, held, ids)
        about = {"from": self.format.producer, "loss mask": mask_from}
        states = self.format.read(held, len(ids), len(self.streams) if self.streams else None)
        slots, last = states.slots, states.last
        if last is None:
            slots, last, about["last state"] = self._split(slots)
        else:
            last = None if self.last_kind == "none" else last
            about["last state"] = "apart from the streams in the file"
        if states.note:
            about["states"] = states.note
        for state in slots if last is None else [*slots, last]:
            if state.ndim != 2 or not 0 <= len(ids) - len(state) <= self.format.rows_short:
                raise InputError(f"a state is {list(state.shape)} for {len(ids)} tokens, expected a row for each: dump it again")
        if self.streams and len(self.streams) != len(slots):
            raise InputError(f"holds {len(slots)} states, but {len(self.streams)} streams were named ({self.how}): name each")
        kept, about["trimmed"] = self._kept(held, mask)
        if self.format.shift:
            ids, mask, about["moved"] = self._moved_back(ids, mask, kept)
        labels: Sequence[Label] = self.streams or [f"slot{i}" for i in range(len(slots))]
        streams = {label: slot[kept] for label, slot in zip(labels, slots, strict=True)}
        if last is slots[0]:  # copied at each access: files are not written of two tensors on one memory
            whole, streams = streams, Lazy(streams, lambda label: whole[label].clone())
        kind = "none" if last is None else self._last_kind(held, states)
        last = None if last is None else last[kept]
        known, about = dict.fromkeys(labels, self.how), {topic: told for topic, told in about.items() if told}
        return Capture(name, ids[kept], mask[kept], streams, last, kind, known, about)

    def _kept(self, held: Mapping, mask: Tensor) -> tuple[slice, str]:
        """The tokens that are no padding, and what was left out."""
        T = len(mask)
        if "attention_mask" in held:
            attended = _row(held, "attention_mask").nonzero()[:, 0]
            if not len(attended) or len(attended) != int(attended[-1] - attended[0]) + 1:
                raise InputError(f"attention_mask keeps {len(attended)} of {T} tokens, expected one run of them: dump it again")
            kept, why = slice(int(attended[0]), int(attended[-1]) + 1), "outside the attention mask: padding"
        elif self.format.padded and mask.any():  # nothing beyond the last token that counts is ever scored
            kept = slice(0, int(mask.nonzero()[-1]) + 1)
            why = "after the last that counts: padding, or a prompt without an answer"
        else:
            return slice(0, T), ""
        out = T - len(range(T)[kept])
        return kept, f"{out} tokens {why}" if out else ""

    def _moved_back(self, ids: Tensor, mask: Tensor, kept: slice) -> tuple[Tensor, Tensor, str]:
        """Token ids and loss mask in their places: the file has those of token t + shift at t, beside the states of t."""
        by = self.format.shift
        ids, mask = (torch.cat([row.new_zeros(by), row[:-by]]) for row in (ids, mask))
        told = f"token ids and loss mask lie {by} early in the file, and were moved back"
        if kept.start < by:
            told += "; the first token is not in the file: 0 stands for it, and no draft is made from it"
        return ids, mask, told

    def _mask(self, name: str, held: Mapping, ids: Tensor) -> tuple[Tensor, str]:
        """The loss mask [T] bool, and where it is from."""
        number = re.search(r"(?:^|/)hs_(\d+)$", name)
        if "loss_mask" in held:
            mask, told = _row(held, "loss_mask"), self.format.mask_from
        elif self.masks and number:
            mask, told = self.masks.row(int(number[1]), ids), f"row {number[1]} of the dataset in {self.masks.folder.name}"
        else:
            mask, told = torch.arange(len(ids)) > 0, "none in the file: every token counted"
        if len(mask) != len(ids):
            raise InputError(f"loss_mask has {len(mask)} entries for {len(ids)} tokens: dump it again")
        return mask != 0, told

    def _last_kind(self, held: Mapping, states: States) -> str:
        """Of a last state that is there: the caller's word, else the file's, else as the tool is known to dump."""
        flag = held.get("hidden_states_prenorm")  # ModelOpt
        told = states.kind if flag is None else "pre_norm" if flag else "post_norm"
        return self.last_kind or told or ("pre_norm" if self.format.last_kind == "none" else self.format.last_kind)

    def _split(self, slots: list[Tensor]) -> tuple[list[Tensor], Tensor | None, str]:
        """Streams, and the last slot apart where it is the last state: one more than streams are named, or told, or assumed."""
        more = len(slots) - len(self.streams) if self.streams else None
        if more is not None:
            held, count = f"{len(slots)} states", len(self.streams)
            if more not in (0, 1):
                raise InputError(
                    f"holds {held}, but {count} streams were named ({self.how}): expected as many, or one fewer, where the last "
                    "is the state before the head"
                )
            if self.last_kind and (more == 1) != (self.last_kind != "none"):
                raise InputError(f"holds {held} for {count} streams, which does not go with last={self.last_kind!r}")
            apart, why = more == 1, f"{held} for {count} named streams"
        elif self.last_kind:
            apart, why = self.last_kind != "none", "as last= says"
        else:
            apart, why = self.format.last_kind != "none", f"assumed, as dumps of {self.format.producer} mostly are"
        if apart and len(slots) > 1:
            return slots[:-1], slots[-1], f"the last in the file: {why}"
        if apart:  # a drafter that takes it alone finds it as the only stream
            return slots, slots[0], f"the only state in the file, which is slot0 too: {why}"
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

    Files that are seen to be broken, or to be something else, are told of in a warning and stay in the list: reading one
    raises. Raises InputError for files of two formats, when none can be read, and for `streams` or `last` that cannot be.
    """
    named = streams if isinstance(streams, Sequence) and all(type(n) is int and n >= 0 for n in streams) else ()
    if streams is not None and (not named or len(set(named)) < len(named)):
        raise InputError(f"streams: {streams!r}, expected the n of each state in the files, as (2, 15, 27)")
    if last is not None and last not in LAST_KINDS:
        raise InputError(f"last: {last!r}, expected one of {', '.join(LAST_KINDS)}")
    first, format, broken, others, shards = None, None, [], {}, 0
    counts: dict[Path, int | None] = {}
    for file in tqdm(_files(folder), desc=f"headers in {folder.name}", unit="file", leave=False, delay=1):
        counts[file] = None
        try:
            held = glance(file)
            if held is None and (format is None or format.several):
                held = held_by(file)  # files of torch.save tell what they hold only when loaded
        except (InputError, OSError) as error:
            broken.append(str(error))
            continue
        its = format if held is None else format_of(file, keys_of(held))
        if its is None:
            others[file] = keys_of(held)
            continue
        if format is None:
            first, format = file, its
        elif its is not format:
            raise InputError(f"{folder}: {first.name} and {file.name} are not of one format: keep one tool's files in a folder")
        if format.several:
            counts[file] = count_of(held, format.stacked)
            if isinstance(held, TargetCache):
                broken, shards = broken + held.problems, shards + len(held.shards)
    if broken and first is None:
        raise InputError(f"{folder}: none of {len(counts)} files can be read; {broken[0]}")
    if first is None or format is None:
        return None
    broken += [f"{file}: is no sample of {format.producer}; it holds {_listed(held)}" for file, held in others.items()]
    if broken:
        told = "; ".join(broken[:SHOWN]) + ("; …" if len(broken) > SHOWN else "")
        warnings.warn(f"{len(broken)} of {len(counts) + shards} files are broken, and reading one raises: {told}", stacklevel=3)
    whole = sum(count or 0 for count in counts.values())
    if format.beside and (lacking := format.beside.lacking(first.parent, whole)):
        warnings.warn(lacking, stacklevel=3)
    said, how = _said(folder, first, format, streams)
    datasets = [place for place in (folder, folder.parent) if (place / "state.json").exists()]
    masks = ArrowMasks(datasets[0]) if format.arrow and datasets else None
    return Dump(folder, Samples(counts), format, first, said, how, last, masks)


def _files(folder: Path) -> list[Path]:
    """Files that may be samples, data_2 before data_10. Raises InputError for two kinds.

    They are looked for in `folder` and one folder deeper, then two deeper; JSON, in which much lies, where there are no others.
    """
    near = _candidates(folder, "*", "*/*")
    files = [path for path in near if path.suffix != ".json"]
    files = files or [path for path in _candidates(folder, "*/*/*") if path.suffix != ".json"] or near
    files.sort(key=lambda path: [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", str(path)))])
    other = next((path for path in files if suffix_of(path) != suffix_of(files[0])), None)
    if other is not None:
        raise InputError(f"{folder}: holds {files[0].name} and {other.name}, of two formats: keep one tool's files in a folder")
    return files


def _said(folder: Path, first: Path, format: Format, streams: Sequence[int] | None) -> tuple[tuple[int, ...] | None, str]:
    """The n of each stream, and how that is known: the caller's word, else the file's that lies beside the samples."""
    beside = format.beside
    told = beside and (beside.streams(first.parent) or beside.streams(folder))
    if streams is None:
        return told or (None, "by its place in the file")
    if told and not beside.last and len(told[0]) != len(streams):
        raise InputError(f"streams: {tuple(streams)}, but {told[1]}: name one for each of its {len(told[0])} layers")
    return tuple(streams), "as streams= says"


def _candidates(folder: Path, *patterns: str) -> list[Path]:
    suffixes = {f.suffix for f in FORMATS}
    found = [path for pattern in patterns for path in folder.glob(pattern) if suffix_of(path) in suffixes and path.is_file()]
    return [path for path in found if path.name not in NOT_SAMPLES and (path.suffix != ".idx" or path.name == "samples.idx")]


def _listed(keys: Sequence) -> str:
    return ", ".join(map(str, keys[:SHOWN])) or "nothing known"
