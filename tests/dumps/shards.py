"""Tools that write several samples into a file."""

import json
import struct
from pathlib import Path

import torch
from safetensors.torch import save_file

from .base import aux
from .files import BF16

SEQ = 32  # tokens to which Automodel pads
RECORD = struct.Struct("<QIIQQQQQ")


def tensorrt_sample(c, number: int, listed: bool = False, name: str = "aux_hidden_states") -> dict:
    """`listed`: layer -1 was asked for, and stands among the captured ones too."""
    states, last = aux(c).to(BF16), c.last.to(BF16)
    held = {"id": number, "input_ids": c.token_ids, "hidden_state": last}
    return {**held, name: torch.cat([states, last], dim=1) if listed else states}


def tensorrt(folder: Path, some, interval: int = 2, **how) -> None:
    """A file for each `interval` requests; those of an interval that is not full are never written."""
    folder.mkdir(parents=True)
    kept = []
    for i, c in enumerate(some, start=1):
        kept.append(tensorrt_sample(c, i, **how))
        if i % interval == 0:
            torch.save(kept, folder / f"data_{i}.pt")
            kept = []


def tensorrt_single(folder: Path, some) -> None:
    tensorrt(folder, some, interval=1)


def moved(rows: torch.Tensor) -> torch.Tensor:
    """[n, S], each one left, a zero at the end."""
    return torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], dim=1)


def automodel(folder: Path, some, layers=(1, 2, 3), left: bool = False, seq: int = SEQ, shard: int = 2) -> None:
    """Padded to `seq`, then token ids and loss mask moved left by one; attention mask and states are not moved."""
    folder.mkdir(parents=True)
    V, Vd = 96, 40
    manifest = {
        "format_version": 2, "target_model": "tiny", "target_vocab_size": V, "draft_vocab_size": Vd, "seq_length": seq,
        "dtype": "bf16", "num_samples": len(some), "shard_size": shard, "target_probs_topk": 0, "aux_hidden_dim": 96,
        "aux_layer_ids": list(layers), "selected_token_ids": list(range(Vd)), "input_data": "text", "split": None,
        "shuffle_seed": 42,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True))
    save_file({"weight": torch.zeros(V, 32)}, folder / "target_embeddings.safetensors")

    def put(rows, fill):
        pads = torch.full((seq - len(rows), *rows.shape[1:]), fill, dtype=rows.dtype)
        return torch.cat([pads, rows] if left else [rows, pads])

    for first in range(0, len(some), shard):
        part = some[first : first + shard]
        ids = torch.stack([put(c.token_ids, 7) for c in part])
        mask = torch.stack([put(c.loss_mask.long(), 0) for c in part])
        attended = torch.stack([put(torch.ones_like(c.token_ids), 0) for c in part])
        tensors = {
            "input_ids": moved(ids), "attention_mask": attended, "loss_mask": moved(mask),
            "aux_hidden_states": torch.stack([put(aux(c), 9.0) for c in part]).to(BF16),
            "position_mask": moved(mask).bool()[..., None], "target_probs": torch.zeros(len(part), seq, Vd, dtype=BF16),
        }  # fmt: skip
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
                  folder / f"shard-{first // shard:06d}.safetensors")  # fmt: skip


def deepspec(folder: Path, some, dtype=BF16, layers=(1, 2, 3), per_shard: int = 2) -> None:
    folder.mkdir(parents=True)
    shards, index, content = [], b"", b""
    for i, c in enumerate(some):
        if i % per_shard == 0 and i:
            (folder / shards[-1]["file_name"]).write_bytes(content)
        if i % per_shard == 0:
            shards.append({"shard_id": len(shards), "file_name": f"shard-{len(shards):05d}.bin"})
            content = b""
        T, offsets = len(c.token_ids), []
        ones = torch.ones(T, dtype=torch.uint8)
        states = (rows.to(dtype).view(torch.uint8) for rows in (aux(c), c.last))
        for part in (c.token_ids.int(), ones, c.loss_mask.to(torch.uint8), *states):
            offsets.append(len(content))
            content += part.contiguous().numpy().tobytes()
        index += RECORD.pack(i, len(shards) - 1, T, *offsets)
    (folder / shards[-1]["file_name"]).write_bytes(content)
    (folder / "samples.idx").write_bytes(index)
    manifest = {
        "version": 2, "num_samples": len(some), "num_shards": len(shards), "target_layer_ids": list(layers),
        "hidden_dtype": str(dtype).removeprefix("torch."), "token_dtype": "int32", "mask_dtype": "uint8",
        "index_record_size": 56, "hidden_size": some[0].last.shape[1], "shards": shards, "target_model_name_or_path": "tiny",
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True))
