"""Weights stored in eight bits beside their scales, and what they stand for.

Scales follow from a matrix's shape alone, so that what a file stands for can be quantised again without loss.
"""

import torch
from torch import Tensor

LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


def is_linear(name: str) -> bool:
    """Exporters quantise the matrices of attention and MLP; `fc`, head and embedding stay as they are."""
    return name.endswith("_proj.weight")


def scale_of(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """float8: one number for the matrix, [] float32 (Model-Optimizer). int8: one for each row, [rows, 1] (compressed-tensors)."""
    rows, columns = matrix.shape
    step = 4 * columns**-0.5 / LARGEST[dtype]
    if dtype == torch.float8_e4m3fn:
        return torch.tensor(step)
    return (step * (1 + torch.arange(rows) % 4 / 4))[:, None].bfloat16().float()


def stored(matrix: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The matrix in eight bits, and its scale."""
    scale, most = scale_of(matrix, dtype), LARGEST[dtype]
    x = (matrix.float() / scale).clamp(-most, most)
    return (x.round() if dtype == torch.int8 else x).to(dtype), scale


def stands_for(dtype: torch.dtype):
    """For `Layout.effective`: each matrix as its eight bits and its scale give it back, float32."""

    def effective(found: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: _back(*stored(t, dtype)) if is_linear(name) else t for name, t in found.items()}

    return effective


def _back(eight_bits: Tensor, scale: Tensor) -> Tensor:
    return eight_bits.float() * scale


def fp8_file(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """For `Layout.change`: as Model-Optimizer's FP8 export, with the scales of activations and of the key-value cache."""
    out: dict[str, Tensor] = {}
    for name, t in found.items():
        if not is_linear(name):
            out[name] = t
            continue
        out[name], out[f"{name}_scale"] = stored(t, torch.float8_e4m3fn)
        out[name.replace(".weight", ".input_scale")] = torch.tensor(0.03)
    for part in "kv":
        out[f"layers.0.self_attn.{part}_proj.{part}_scale"] = torch.tensor(1.0)
    return out


def int8_file(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """For `Layout.change`: as compressed-tensors' int8 with a scale for each output channel."""
    out: dict[str, Tensor] = {}
    for name, t in found.items():
        if is_linear(name):
            out[name], scale = stored(t, torch.int8)
            out[f"{name}_scale"] = scale.bfloat16()
        else:
            out[name] = t
    return out
