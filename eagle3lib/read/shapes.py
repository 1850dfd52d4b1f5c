"""Every tensor of a drafter held against the widths that the others imply, before anything is run."""

from pathlib import Path

import torch

from .errors import BrokenError, InputError
from .names import expected
from .recipe import Recipe
from .tensors import TensorFiles

WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
QUANTISED = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
PAIRED = {"q_norm": ("q_norm", "k_norm"), "k_norm": ("k_norm", "q_norm")}  # one without the other is half a norm
FLAG_OF = {"input_norm": "norm_before_fc", "fc_norm": "fc_norm"}  # first part of a tensor's name -> the flag that uses it


def check_shapes(folder: Path, recipe: Recipe, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises BrokenError naming the first tensor that is missing, has a shape the others contradict, or would be skipped."""
    for name, meaning in expected(recipe).items():
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
        if (other := next((PAIRED[part] for part in name.split(".") if part in PAIRED), None)) and (
            pair := name.replace(*other)
        ) not in shapes:
            raise BrokenError(f"{folder}: tensor {name} is there, but {pair} is missing: convert the checkpoint anew")
        found, wanted = shapes[name], shape_of(name, meaning.shape, recipe, shapes)
        longer = name in ("embed_tokens.weight", "fc.weight") and found[0] >= wanted[0] and found[1:] == wanted[1:]
        flat = name == "mask_hidden" and found == wanted[1:]
        if found != wanted and not longer and not flat:  # rows beyond the vocabulary, and exit signals, are not used
            letters, why = meaning.shape, ""
            if _layer(name) in recipe.fused_layers:
                why = " as a fused layer reads embedding and state side by side:" if "W" in letters else ""
                letters = letters.replace("W", "2H")
            raise BrokenError(
                f"{folder}: tensor {name} is {list(found)}, expected {list(wanted)} ({letters.replace('W', 'H')}){why or ':'} "
                "the file is of another model, or was converted wrongly"
            )


def check_dtypes(folder: Path, files: TensorFiles, names: dict[str, str], scales: dict[str, str]) -> None:
    """Raises InputError for weights of less than 16 bits, but those of eight with a scale (`scales`: canonical name of the weight
    -> the scale's name in the file) for the whole tensor or for each row.
    """
    for name, theirs in names.items():
        header = files.headers[theirs]
        if name in ("d2t", "t2d"):
            if header.dtype.is_floating_point:
                raise BrokenError(
                    f"{folder}: {name} is {header.dtype}, expected whole numbers: a cast has rounded token ids; export it anew",
                    "map",
                )
            continue
        if header.dtype in WEIGHTS:
            if name in scales:
                raise BrokenError(
                    f"{folder}: tensor {name} is {header.dtype} and has a weight_scale beside it: whether it is still to be "
                    "multiplied is not told; export it anew"
                )
            continue
        scale = files.headers[scales[name]].shape if name in scales else None
        rows = header.shape[0] if header.shape else 0
        if header.dtype not in QUANTISED or scale not in ((), (1,), (rows,), (rows, 1)):
            told = f"with a scale of shape {list(scale)}" if scale is not None else "without a scale"
            raise InputError(
                f"{folder}: tensor {name} is {header.dtype} {told}, expected float16, bfloat16 or float32, or fp8 or int8 with "
                "weight_scale for the tensor or each row: other quantised weights are not run; export the drafter unquantised"
            )


def _layer(name: str) -> int | None:
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "layers" else None


def shape_of(name: str, letters: str, recipe: Recipe, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that `letters` ("H, n*Ht") stand for. W is what q, k and v read: 2H in a fused layer, H in a plain one."""
    r = recipe
    gate = shapes.get(".".join(name.split(".")[:2]) + ".mlp.gate_proj.weight", (0,))
    widths = {
        "1": 1, "H": r.hidden_size, "Ht": r.target_hidden_size, "n*Ht": r.n_streams * r.target_hidden_size, "V": r.vocab_size,
        "Vd": r.draft_vocab_size, "heads*D": r.n_heads * r.head_dim, "kv*D": r.n_kv_heads * r.head_dim, "D": r.head_dim,
        "heads*Dv": r.n_heads * (r.mla.v if r.mla else r.head_dim),
        "W": r.hidden_size * (2 if _layer(name) in r.fused_layers else 1), "I": gate[0],
    }  # fmt: skip
    if m := r.mla:
        widths |= {"q_rank": m.q_rank, "kv_rank": m.kv_rank, "kv_rank+rope": m.kv_rank + m.rope,
                   "heads*(nope+v)": r.n_heads * (m.nope + m.v)}  # fmt: skip
    return tuple(widths[letter] for letter in letters.split(", "))
