"""Checkpoint: a drafter on disk, opened lazily, its names and vocabulary map settled, nothing left unexplained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .config import read_recipe
from .embedding import EmbeddingRows
from .errors import BrokenError, InputError
from .layouts import Layout, layout_of
from .names import canonical, expected, reason_to_ignore
from .others import refuse_others
from .recipe import Recipe
from .shapes import check_dtypes, check_shapes
from .target import Target, open_target
from .tensors import TensorFiles, existing_folder, read_json, weight_files, weights_folder

NOT_WEIGHTS = ("d2t", "t2d", "embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True)
class Checkpoint:
    """A drafter's files. `files` holds tensors under the file's names; `names` maps this library's names to those.

    `path` is the folder that holds the weights: NeMo Automodel's lie in one below the one that was given.
    """

    path: Path
    config: dict
    files: TensorFiles
    names: dict[str, str]  # canonical name -> name in the file
    ignored: dict[str, str]  # name in the file -> why nothing here uses it
    recipe: Recipe
    target_ids: Int[Tensor, " Vd"]  # the target's id of each draft id
    target: Target | None
    layout: Layout  # whose way of writing it is
    scales: dict[str, str]  # canonical name of a quantised weight -> name of its scale in the file

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def tensor(self, name: str) -> Tensor:
        """Tensor `name` (canonical), read now, as it is on disk; quantised ones multiplied out, float32; of `fc` only the
        channels of the state. Raises InputError for a name that is not there.
        """
        if name not in self.names:
            raise InputError(f"{self.path}: no tensor {name}; there are {', '.join(sorted(self.names))}")
        tensor = self._scaled(name, self.files[self.names[name]], slice(None))
        return tensor[: self.recipe.hidden_size] if name == "fc.weight" else tensor

    def some_rows(self, name: str, most: int) -> tuple[Int[Tensor, " N"], Tensor]:
        """Numbers of up to `most` rows of tensor `name` (canonical), evenly spread, and the rows; of a norm or a bias all. Only
        these are read, so a head of several GB costs no more than a small one.
        """
        length, *columns = self.files.headers[self.names[name]].shape
        if len(columns) != 1:
            return torch.arange(length), self.tensor(name)
        ids = torch.linspace(0, length - 1, min(most, length)).long()
        return ids, self._scaled(name, self.files.rows(self.names[name], ids), ids)

    def _scaled(self, name: str, rows: Tensor, ids: Int[Tensor, " N"] | slice) -> Tensor:
        """Rows `ids` of tensor `name` as they are in the file, multiplied out where it is quantised."""
        if name not in self.scales:
            return rows
        scale = self.files[self.scales[name]].float().view(-1, *[1] * (rows.ndim - 1))
        return rows.float() * (scale[ids] if len(scale) > 1 else scale)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor of everything that the layers use: not the embedding, the head and the vocabulary map."""
        return ((name, self.tensor(name)) for name in self.names if name not in NOT_WEIGHTS)

    def head(self) -> Float[Tensor, "Vd H"]:
        """The head over the draft vocabulary: the checkpoint's own, or those rows of its target's.

        Raises InputError when the checkpoint has none and no target was given.
        """
        if "lm_head.weight" in self:
            return self.tensor("lm_head.weight")
        if self.target is None:
            raise InputError(
                f"{self.path}: has no lm_head.weight; give the target's folder (target=DIR, --target DIR): its rows are used "
                "instead"
            )
        return self.target.head_rows(self.target_ids)

    @property
    def embedding(self) -> EmbeddingRows:
        """Embedding rows: the checkpoint's own table, or its target's. Raises InputError when there is neither."""
        if "embed_tokens.weight" in self:
            return EmbeddingRows(self.files, self.names["embed_tokens.weight"], f"{self.path.name}: embed_tokens.weight")
        if self.target is None:
            raise InputError(
                f"{self.path}: has no embed_tokens.weight, as most drafters; give the target's folder (target=DIR, --target "
                "DIR): only rows of its embedding are read, not the model"
            )
        return self.target.embedding()

    def __repr__(self) -> str:
        r = self.recipe
        widths = f"H {r.hidden_size}, Vd {r.draft_vocab_size}, streams {r.streams}"
        return f"Checkpoint({self.path.name}: {len(self.names)} tensors, {widths})"


def open_checkpoint(path: str | Path, target: str | Path | None = None) -> Checkpoint:
    """Open the drafter in folder `path`. Of the `target`'s folder, if given, only embedding, head and norm are read, by rows.

    Raises InputError when the folder is missing, holds no drafter, or its tensors do not fit each other: the sentence
    says which tensor, what was found and what was expected.
    """
    folder = weights_folder(existing_folder(path, "a drafter checkpoint"))
    files = TensorFiles(weight_files(folder))
    config = read_json(folder / "config.json")
    names = {canonical(name): name for name in files}
    if len(names) < len(files):
        twice = next(n for n in files if names[canonical(n)] != n)
        raise InputError(f"{folder}: {twice} and {names[canonical(twice)]} are both {canonical(twice)}: keep one of the two")
    shapes = {name: files.headers[theirs].shape for name, theirs in names.items()}
    refuse_others(folder, shapes, config)
    opened = open_target(target) if target is not None else None
    layout = layout_of(config, files.headers)
    recipe = read_recipe(config, shapes, f"{folder.name}/config.json", layout)
    if recipe.streams is None and opened is not None and recipe.n_streams == 3:
        L = opened.n_layers
        sources = {**recipe.sources, "streams": f"absent from config.json: the engines' default for {L} layers (2, L//2, L-3)"}
        recipe = replace(recipe, streams=(2, L // 2, L - 3), sources=sources)
    ignored = {theirs: why for ours, theirs in names.items() if (why := reason_to_ignore(ours))}
    scales = {ours.removesuffix("_scale"): theirs for ours, theirs in names.items() if ours.endswith(".weight_scale")}
    names = {ours: theirs for ours, theirs in names.items() if theirs not in ignored}
    known = expected(recipe)
    unknown = [theirs for ours, theirs in names.items() if ours not in known]
    if unknown:
        raise InputError(
            f"{folder}: tensor {unknown[0]} is none that this library's forward uses ({len(unknown)} such): running without it "
            "would be another model"
        )
    check_shapes(folder, recipe, shapes)
    check_dtypes(folder, files, names, scales)
    for theirs in scales.values():
        scale = files[theirs]
        if not scale.is_floating_point() or not bool(((scale.float() > 0) & torch.isfinite(scale.float())).all()):
            raise BrokenError(f"{folder}: {theirs} is no scale (numbers above zero, floating point): export the drafter anew")
    target_ids = read_map(folder, recipe, files, names)
    ckpt = Checkpoint(folder, config, files, names, ignored, recipe, target_ids, opened, layout, scales)
    if opened is not None:
        opened.check_fits(ckpt)
    return ckpt


def read_map(folder: Path, recipe: Recipe, files: TensorFiles, names: dict[str, str]) -> Int[Tensor, " Vd"]:
    """The target's id of each draft id: `i + d2t[i]`, or the true places of `t2d`; every id where the vocabularies are one.

    `d2t` holds offsets in every published file. Raises InputError when a smaller draft vocabulary has no map, or a wrong one.
    """
    V, Vd = recipe.vocab_size, recipe.draft_vocab_size
    if Vd == V and "d2t" not in names:
        return torch.arange(V)
    marked = files[names["t2d"]].bool().nonzero()[:, 0] if "t2d" in names else None
    if "d2t" in names:
        ids = files[names["d2t"]].long() + torch.arange(Vd)
    elif marked is not None:
        ids = marked
    else:
        raise BrokenError(f"{folder}: {Vd} draft ids of {V} and neither d2t nor t2d to map them: convert it anew", "map")
    if len(ids) != Vd:
        raise BrokenError(f"{folder}: t2d marks {len(ids)} tokens, expected {Vd}, the rows of lm_head.weight", "map")
    different, first, last = len(ids.unique()), int(ids.min()), int(ids.max())
    if first < 0 or last >= V or different < Vd:
        found = f"d2t leads to {different} tokens from {first} to {last}, expected {Vd} different ones of {V}"
        raise BrokenError(f"{folder}: {found}: it should hold offsets (target id minus draft id)", "map")
    if marked is not None:
        _check_maps(folder, ids, marked)
    return ids


def _check_maps(folder: Path, by_d2t: Int[Tensor, " Vd"], by_t2d: Int[Tensor, " N"]) -> None:
    """Raises BrokenError where the two maps name different tokens, or one of them another order."""
    anew = "one of the two is of another vocabulary, or d2t holds no offsets (target id minus draft id): export both anew"
    if len(by_t2d) != len(by_d2t):
        raise BrokenError(f"{folder}: t2d marks {len(by_t2d)} tokens, d2t names {len(by_d2t)}: {anew}", "map")
    if apart := (by_t2d != by_d2t).nonzero()[:, 0].tolist():
        i, order = apart[0], torch.equal(by_d2t.sort().values, by_t2d)
        told = "name the same tokens in another order" if order else f"disagree on {len(apart)} of {len(by_d2t)} tokens"
        first = f"first, draft id {i} is token {int(by_d2t[i])} by d2t, {int(by_t2d[i])} by t2d"
        raise BrokenError(f"{folder}: d2t and t2d {told}; {first}: {anew}", "map")
