"""DeepSpec's target cache: raw numbers in shards, and samples.idx, which says where in them each sample lies.

A sample's parts lie one after another: input_ids int32 [T], attention_mask uint8 [T], loss_mask uint8 [T],
target_hidden_states [T, k Ht] and target_last_hidden_states [T, Ht], bfloat16 (float8 in newer versions). A record of the index
is sample, shard, T, and where each part begins in the shard's bytes. manifest.json, written last, says the rest.

Source: DeepSpec `deepspec/data/target_cache_dataset.py`, version 2.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .errors import InputError
from .tensors import read_json

PARTS = ("input_ids", "attention_mask", "loss_mask", "target_hidden_states", "target_last_hidden_states")
RECORD = np.dtype([("sample", "<u8"), ("shard", "<u4"), ("T", "<u4"), *((part, "<u8") for part in PARTS)])  # 56 bytes
STATES = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
FIXED = {"version": 2, "token_dtype": "int32", "mask_dtype": "uint8", "index_record_size": RECORD.itemsize}


class TargetCache:
    """The samples of `index`, a samples.idx, by number: each a dict of tensors mapped from its shard.

    Raises InputError, at once for a manifest that is absent or of another version, and of a sample when it is read.
    """

    def __init__(self, index: Path):
        self.index, self.folder = index, index.parent
        manifest = self.folder / "manifest.json"
        if not manifest.exists():
            raise InputError(
                f"{index}: no manifest.json beside it, which is written last: the dump was interrupted; make it again"
            )
        told = read_json(manifest)
        other = next((field for field, value in FIXED.items() if told.get(field) != value), None)
        if other:
            raise InputError(
                f"{manifest}: {other} is {told.get(other)!r}, expected {FIXED[other]!r}: another version of DeepSpec's"
            )
        layers, width, dtype = (told.get(field) for field in ("target_layer_ids", "hidden_size", "hidden_dtype"))
        if dtype not in STATES or not isinstance(width, int) or width < 1 or not isinstance(layers, list) or not layers:
            raise InputError(
                f"{manifest}: hidden_dtype {dtype!r}, hidden_size {width!r}, target_layer_ids {layers!r}, expected one of "
                f"{', '.join(STATES)}, a width, and a list of layers: copy it again"
            )
        shards = told.get("shards") if isinstance(told.get("shards"), list) else []
        names = [shard.get("file_name") if isinstance(shard, dict) else None for shard in shards]
        if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise InputError(f"{manifest}: shards are {names}, expected names of files beside it: copy it again")
        self.shards, self.dtype, self.expected = [self.folder / name for name in names], STATES[dtype], told.get("num_samples")
        size = self.dtype.itemsize
        self.bytes = dict(zip(PARTS, (4, 1, 1, size * width * len(layers), size * width), strict=True))  # of one token

    def __len__(self) -> int:
        return self.index.stat().st_size // RECORD.itemsize

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        record = self._records()[i]
        T, shard = int(record["T"]), int(record["shard"])
        if int(record["sample"]) != i or not T or shard >= len(self.shards):
            raise InputError(
                f"its record says sample {record['sample']}, {T} tokens, shard {shard} of {len(self.shards)}: the index is "
                "damaged; copy it again"
            )
        ends = max(int(record[part]) + T * size for part, size in self.bytes.items())  # Python's integers: no place is too far
        file = self.shards[shard]
        there = _size(file)
        if ends > there:
            raise InputError(f"{file.name} has {there:,} bytes, but the sample ends at byte {ends:,}: truncated; copy it again")
        mapped = np.memmap(file, np.uint8, "c")  # copy on write: nothing written reaches the file
        found = {part: mapped[int(record[part]) :][: T * self.bytes[part]] for part in PARTS}
        states = {part: torch.from_numpy(found[part]).view(self.dtype).view(T, -1) for part in PARTS[3:]}
        ids = torch.from_numpy(np.array(found["input_ids"]).view("<i4"))
        masks = {part: torch.from_numpy(np.array(found[part])) for part in PARTS[1:3]}
        return {"input_ids": ids, **masks, **states}

    @property
    def problems(self) -> list[str]:
        """What is seen to be broken without reading a state: a cut index, absent and truncated shards."""
        found, records = [], self._records()
        size = _size(self.index)
        if size % RECORD.itemsize or len(records) != self.expected:
            found.append(
                f"{self.index}: {size:,} bytes are {len(records)} samples, but manifest.json tells of {self.expected}: "
                "truncated; copy it again"
            )
        ends = np.max([records[part] + records["T"] * np.uint64(size) for part, size in self.bytes.items()], axis=0)
        for number, file in enumerate(self.shards):
            its, there = ends[records["shard"] == number], _size(file)
            if len(its) and int(its.max()) > there:
                found.append(
                    f"{file}: {there:,} bytes, but its samples end at byte {int(its.max()):,}: {int((its > there).sum())} of "
                    f"{len(its)} cannot be read; copy it again"
                )
        return found

    def _records(self) -> np.ndarray:
        return np.memmap(self.index, RECORD, "r", shape=(len(self),)) if len(self) else np.empty(0, RECORD)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
