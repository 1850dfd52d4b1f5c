"""What a checkpoint holds, tensor by tensor: shape, meaning, and whether it was trained, copied, or left as made."""

import math

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

from ..read.checkpoint import Checkpoint
from ..read.names import expected
from ..read.recipe import Recipe

SAMPLE, NUMBERS, FEWEST = 512, 2**20, 32  # rows of a matrix that are looked at: at most 512, and a million numbers
NORMAL = 0.05  # excess kurtosis of a matrix still normal; standard error sqrt(24 / n): 0.02 for 60,000 entries
UNIFORM = -1.2  # excess kurtosis of a uniform distribution


def inventory(ckpt: Checkpoint) -> pd.DataFrame:
    """A row for each tensor that is used. Columns: tensor, name in the file, shape, dtype, MB, meaning, std, provenance.

    *provenance*: "the target's" (its rows, compared by value up to the dtype), "untouched" (still as a module is made), or
    "its own". Without the target, only what the file itself can show. Of each matrix at most 512 rows are read, evenly spread:
    `std` and provenance are theirs.
    """
    meanings = expected(ckpt.recipe)
    rows = {}
    for name in tqdm(sorted(ckpt.names), desc="tensors", unit="tensor", leave=False):
        header = ckpt.files.headers[ckpt.names[name]]
        most = min(SAMPLE, max(FEWEST, NUMBERS // header.shape[-1]))
        ids, tensor = ckpt.some_rows(name, most)
        rows[name] = {
            "in the file as": ckpt.names[name], "shape": " x ".join(map(str, header.shape)),
            "dtype": str(header.dtype).removeprefix("torch."), "MB": math.prod(header.shape) * header.dtype.itemsize / 1e6,
            "meaning": meanings[name].means, "std": float(tensor.double().std()) if tensor.is_floating_point() else float("nan"),
            "provenance": provenance(ckpt, name, ids, tensor),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("tensor")


def provenance(ckpt: Checkpoint, name: str, ids: Int[Tensor, " N"], tensor: Tensor) -> str:
    """Where the values of one tensor come from, as far as rows `ids` of it, `tensor`, tell."""
    if name in ("d2t", "t2d"):
        return "a map of tokens"
    if not bool(torch.isfinite(tensor.float()).all()):
        return "broken: NaN or infinite numbers"
    if ckpt.target is not None and name in ("embed_tokens.weight", "lm_head.weight", "norm.weight"):
        theirs, mine = _targets(ckpt, name, ids, tensor)
        if theirs.shape == mine.shape and _same(mine, theirs):
            return "the target's"
    if (why := untouched(tensor.float())) is not None:
        return f"untouched: {why}"
    return "its own"


def _targets(ckpt: Checkpoint, name: str, ids: Tensor, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the target that tensor `name` would hold if it were the target's, and the tensor's own."""
    if name == "norm.weight":
        return ckpt.target.norm(), tensor
    if name == "lm_head.weight":
        return ckpt.target.head_rows(ckpt.target_ids[ids]), tensor
    there = ids < ckpt.target.embedding().shape[0]
    return ckpt.target.embedding().rows(ids[there]), tensor[there]


def _same(mine: Tensor, theirs: Tensor) -> bool:
    """Equal up to the coarser of the two dtypes."""
    coarse = max((mine.dtype, theirs.dtype), key=lambda dtype: torch.finfo(dtype).eps)
    return torch.allclose(mine.float(), theirs.float(), rtol=2 * torch.finfo(coarse).eps, atol=1e-6)


def untouched(weight: Tensor) -> str | None:
    """Why a weight [any shape] looks as its module was made, or None. A sign, no proof: training leaves heavier tails.

    Norms are made as ones, biases as zeros. Matrices are made normal with a round standard deviation (`initializer_range`,
    0.02 in transformers' configs) or uniform within 1 / sqrt(columns) (torch's `nn.Linear`).
    """
    if weight.ndim < 2:
        return "all ones" if bool((weight == 1).all()) else "all zeros" if bool((weight == 0).all()) else None
    if bool((weight == 0).all()):
        return "all zeros"
    std = float(weight.std())
    kurtosis = float(((weight - weight.mean()) / std).pow(4).mean()) - 3
    bound = weight.shape[-1] ** -0.5
    if abs(kurtosis - UNIFORM) < NORMAL and abs(float(weight.abs().max()) / bound - 1) < 0.02:
        return f"uniform within 1 / sqrt({weight.shape[-1]}), as torch makes a linear layer"
    if abs(kurtosis) < NORMAL and abs(std / 0.02 - 1) < 0.02:
        return "normal with standard deviation 0.02, as transformers makes a matrix"
    return None


def recipe_table(recipe: Recipe) -> pd.DataFrame:
    """A row for each field of the recipe: its value, and where that came from."""
    told = {"streams": "r_n for n = " + ", ".join(map(str, recipe.streams))} if recipe.streams else {}
    told["rope"] = recipe.rope.about or f"{len(recipe.rope.inv_freq)} inverse frequencies"
    fields = [name for name in recipe.__dataclass_fields__ if name != "sources"]
    values = [told.get(name, str(getattr(recipe, name))) for name in fields]
    sources = [recipe.sources.get(name, "") for name in fields]
    return pd.DataFrame({"value": values, "source": sources}, index=pd.Index(fields, name="field"))
