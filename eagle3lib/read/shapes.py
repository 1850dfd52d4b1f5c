"""Every tensor of a drafter held against the widths that the others imply, before anything is run."""

from pathlib import Path

import torch

from .errors import BrokenError, InputError
from .names import expected
from .recipe import Recipe
from .tensors import TensorFiles

WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLAG_OF = {"input_norm": "norm_before_fc", "fc_norm": "fc_norm"}  # first part of a tensor's name -> the flag that uses it


def check_shapes(folder: Path, recipe: Recipe, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises BrokenError naming the first tensor that is missing, has a shape the others contradict, or would be skipped."""
    for name, meaning in expected(recipe.n_layers, recipe.n_streams).items():
        flag = FLAG_OF.get(name.split(".")[0])
        wanted_by_flag = flag is not None and getattr(recipe, flag)
        if name not in shapes:
            if meaning.required or wanted_by_flag:
                why = f" ({flag} is true)" if wanted_by_flag else ""
                raise BrokenError(f"{folder}: tensor {name} is missing{why}: {meaning.means}; convert the checkpoint anew")
            continue
        if flag is not None and not wanted_by_flag:
            raise BrokenError(
                f"{folder}: tensor {name} is there, but {flag} is not true in config.json: a forward that skips a trained norm "
                f"is another model; set {flag} to true, or find out why it is not"
            )
        found, wanted = shapes[name], shape_of(name, meaning.shape, recipe, shapes)
        padded = name == "embed_tokens.weight" and found[0] >= wanted[0] and found[1:] == wanted[1:]  # beyond the vocabulary
        if found != wanted and not padded:
            letters, why = meaning.shape, ""
            if name.startswith("layers.0."):
                why = " as the first layer reads embedding and state side by side:" if "W" in letters else ""
                letters = letters.replace("W", "2H")
            raise BrokenError(
                f"{folder}: tensor {name} is {list(found)}, expected {list(wanted)} ({letters.replace('W', 'H')}){why or ':'} "
                "the file is of another model, or was converted wrongly"
            )


def check_dtypes(folder: Path, files: TensorFiles, names: dict[str, str]) -> None:
    """Raises InputError for weights that are not floating point of 16 bits or more: quantised, with a scale nobody told us."""
    for name, theirs in names.items():
        dtype = files.headers[theirs].dtype
        if name not in ("d2t", "t2d") and dtype not in WEIGHTS:
            raise InputError(
                f"{folder}: tensor {name} is {dtype}, expected float16, bfloat16 or float32: quantised weights are not run"
            )


def shape_of(name: str, letters: str, recipe: Recipe, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that `letters` ("H, n*Ht") stand for. W is what q, k and v read: 2H in the first layer, H later."""
    r = recipe
    gate = shapes.get(".".join(name.split(".")[:2]) + ".mlp.gate_proj.weight", (0,))
    widths = {
        "H": r.hidden_size, "Ht": r.target_hidden_size, "n*Ht": r.n_streams * r.target_hidden_size, "V": r.vocab_size,
        "Vd": r.draft_vocab_size, "heads*D": r.n_heads * r.head_dim, "kv*D": r.n_kv_heads * r.head_dim, "D": r.head_dim,
        "W": r.hidden_size * (2 if name.startswith("layers.0.") else 1), "I": gate[0],
    }  # fmt: skip
    return tuple(widths[letter] for letter in letters.split(", "))
