"""Vocabulary maps that trainers leave in files of their own: which target token each draft token is.

`d2t` [Vd] holds offsets, target id minus draft id, in the files of most; `t2d` [V] marks the target's tokens that have a draft
id, in ascending order. NeMo Automodel writes ids. Where a file does not settle which of the two it holds, it is refused.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from .dump_files import unpickled
from .errors import InputError
from .tensors import TensorFiles

# What the files of each tool hold. speculators: d2t.npy and t2d.npy; SpecForge, AngelSlim: vocab_mapping.pt; SafeAILab: cache.pt;
# ModelOpt: d2t.pt, a tensor; NeMo Automodel: a .pt with selected_token_ids; all: buffers of the drafter's safetensors.
OFFSETS, MARKS, IDS, SIZE = "d2t", "t2d", "selected_token_ids", "target_vocab_size"
SUFFIXES = (".pt", ".bin", ".npy", ".safetensors")


def read_vocab_map(path: str | Path) -> Int64[Tensor, " Vd"]:
    """The target's id of each draft id, from a file of d2t, of t2d, of both, or of chosen ids.

    Beside d2t.npy or d2t.pt the t2d of the same suffix is read. Raises InputError for a file that cannot be read, for a map that
    leads nowhere or to one token twice, and where it could be read as offsets and as ids alike.
    """
    file = Path(path)
    if not file.is_file() or file.suffix not in SUFFIXES:
        raise InputError(
            f"{file}: is no file of a vocabulary map: give one of {', '.join(SUFFIXES)}, as d2t.npy or vocab_mapping.pt"
        )
    held = _held(file)
    beside = file.with_name(MARKS + file.suffix)
    if MARKS not in held and file.stem == OFFSETS and beside.is_file():
        held |= _held(beside)
    rows = {name: _whole(file, name, held[name]) for name in (OFFSETS, MARKS, IDS) if name in held}
    size = held.get(SIZE)
    if IDS in rows:
        ids, V = rows[IDS], size if isinstance(size, int) else None
    elif OFFSETS in rows:
        ids, V = _settled(file, rows[OFFSETS], rows.get(MARKS)), len(rows[MARKS]) if MARKS in rows else None
    elif MARKS in rows:
        return _marked(file, rows[MARKS])
    else:
        there = ", ".join([*held][:6]) or "nothing"
        raise InputError(f"{file}: holds {there}, expected {OFFSETS}, {MARKS} or {IDS}: give another file")
    if not _possible(ids, V):
        tokens = f"{len(ids.unique())} tokens from {int(ids.min())} to {int(ids.max())}"
        raise InputError(
            f"{file}: leads to {tokens}, expected {len(ids)} different ones{f' of {V}' if V else ''}: make the map again"
        )
    return ids


def _settled(file: Path, told: Tensor, marks: Tensor | None) -> Tensor:
    """Target ids, whether `told` holds offsets or ids; refused where neither `marks` nor the numbers say which."""
    readings = (told + torch.arange(len(told)), told)  # offsets, ids
    if marks is not None:
        tokens = _marked(file, marks)
        fits = [ids for ids in readings if torch.equal(ids.sort().values, tokens)]
        if not fits:
            raise InputError(
                f"{file}: {OFFSETS} leads to other tokens than the {len(tokens)} that {MARKS} marks, as offsets and as ids: they "
                "are not of one vocabulary; make both again"
            )
        return fits[0]  # both fit for a single token alone, which is the same then
    possible = [ids for ids in readings if _possible(ids, None)]
    if len(possible) == 2:
        either = f"{OFFSETS} may hold offsets (target id minus draft id) or ids"
        raise InputError(f"{file}: {either}, and nothing settles which: put {MARKS} beside it")
    return (possible or readings)[0]


def _possible(ids: Tensor, V: int | None) -> bool:
    """Whether `ids` are different tokens of a vocabulary of `V`, if that is known."""
    return bool(ids.min() >= 0) and (V is None or bool(ids.max() < V)) and len(ids.unique()) == len(ids)


def _marked(file: Path, marks: Tensor) -> Tensor:
    if bool(((marks != 0) & (marks != 1)).any()) or not bool(marks.any()):
        marked = int((marks != 0).sum())
        raise InputError(f"{file}: {MARKS} marks {marked} of {len(marks)} tokens, expected true or false for each")
    return marks.nonzero()[:, 0]


def _whole(file: Path, name: str, found: object) -> Tensor:
    """`found` as [N] whole numbers."""
    if isinstance(found, Tensor) and found.ndim == 1 and len(found) and not (found.is_floating_point() or found.is_complex()):
        return found.long()
    what = f"{list(found.shape)} {found.dtype}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise InputError(f"{file}: {name} is {what}, expected [N] whole numbers or truth values: give another file")


def _held(file: Path) -> dict:
    """What `file` holds, by its bare name."""
    if file.suffix == ".npy":
        try:
            held = torch.from_numpy(np.load(file, allow_pickle=False))
        except Exception as error:  # no numpy file, a cut one, or Python objects, which are never unpickled
            raise InputError(f"{file}: cannot be read as an array of numbers ({error}): copy it again") from None
    else:
        held = TensorFiles([file]) if file.suffix == ".safetensors" else unpickled(file)
    if isinstance(held, Tensor):  # without a name: t2d where it holds truth values or its file is called so, else d2t
        return {MARKS if held.dtype == torch.bool or file.stem == MARKS else OFFSETS: held}
    if not isinstance(held, Mapping):
        raise InputError(f"{file}: holds a {type(held).__name__}, expected a vocabulary map: give another file")
    names = [(str(name).split(".")[-1], name) for name in held]
    found = {bare: held[name] for bare, name in names if bare in (OFFSETS, MARKS, IDS, SIZE)}
    return found or dict.fromkeys(map(str, held))
