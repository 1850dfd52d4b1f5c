"""What is read of a target's folder: its embedding rows, its head's rows and its final norm; never the model."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from .embedding import EmbeddingRows
from .errors import InputError
from .tensors import TensorFiles, existing_folder, read_json, weight_files

# Where targets keep the three tensors, first match wins. Sources: Model-Optimizer `modeling_fakebase.py`, SpecForge
# `examples/configs`, AngelSlim `model_utils.py`, TorchSpec configs.
EMBEDDING = (
    "model.embed_tokens.weight", "embed_tokens.weight", "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight", "backbone.embeddings.weight", "language_model.backbone.embeddings.weight",
    "model.word_embeddings.weight", "tok_embeddings.weight",
)  # fmt: skip
HEAD = ("lm_head.weight", "language_model.lm_head.weight", "output.weight")
NORM = ("model.norm.weight", "norm.weight", "language_model.model.norm.weight", "model.language_model.norm.weight")


@dataclass(frozen=True)
class Target:
    """A target model's folder, opened for a few of its rows."""

    path: Path
    config: dict
    files: TensorFiles

    @property
    def n_layers(self) -> int:
        return self._field("num_hidden_layers")

    @property
    def eps(self) -> float:
        return self._field("rms_norm_eps")

    @property
    def hidden_size(self) -> int:
        return self.files.headers[self._name(EMBEDDING)].shape[1]

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The ids that end its answers, by generation_config.json, else by config.json; empty where neither says."""
        file = self.path / "generation_config.json"
        told = read_json(file) if file.exists() else {}
        texts = self.config.get("text_config") or {}
        end = told.get("eos_token_id", self.config.get("eos_token_id", texts.get("eos_token_id")))
        return tuple(end) if isinstance(end, list) else () if end is None else (end,)

    def _field(self, key: str):
        found = self.config.get(key, (self.config.get("text_config") or {}).get(key))
        if found is None:
            raise InputError(f"{self.path / 'config.json'}: no {key}, at the top or in text_config")
        return found

    def _name(self, candidates: tuple[str, ...]) -> str:
        if name := next((name for name in candidates if name in self.files), None):
            return name
        raise InputError(f"{self.path}: has none of {', '.join(candidates[:3])}, …: give the folder of the target's own weights")

    @cached_property
    def _rows(self) -> EmbeddingRows:
        name = self._name(EMBEDDING)
        return EmbeddingRows(self.files, name, f"target {self.path.name}: {name}")

    def embedding(self) -> EmbeddingRows:
        """Its embedding rows [V, Ht], read as needed and kept."""
        return self._rows

    @property
    def _head_name(self) -> str:
        """Its head, or its embedding where it has no head of its own (tied)."""
        return self._name(HEAD if any(name in self.files for name in HEAD) else EMBEDDING)

    @property
    def head_shape(self) -> tuple[int, ...]:
        """[V, Ht], padding included."""
        return self.files.headers[self._head_name].shape

    def head_rows(self, ids: Int[Tensor, " N"]) -> Float[Tensor, "N Ht"]:
        """Rows `ids` of its head; of its embedding where it has no head of its own (tied)."""
        name, rows = self._head_name, self.head_shape[0]
        if len(ids) and int(ids.max()) >= rows:
            raise InputError(f"{self.path}: {name} has {rows} rows, but token {int(ids.max())} was asked for: another target")
        return self.files.rows(name, ids)

    def head_blocks(self, rows: int) -> Iterator[tuple[int, Float[Tensor, "N Ht"]]]:
        """Its head (its embedding where tied), `rows` rows at a time: number of the first row, and the rows."""
        for first in range(0, self.head_shape[0], rows):
            yield first, self.files.block(self._head_name, first, first + rows)

    def norm(self) -> Float[Tensor, " Ht"]:
        """Weight of its final norm."""
        return self.files[self._name(NORM)]

    def check_fits(self, ckpt) -> None:
        """Raises InputError when this target's widths are not those that the drafter was made for."""
        r = ckpt.recipe
        borrowed = [name for name in ("embed_tokens.weight", "lm_head.weight") if name not in ckpt]
        if borrowed and self.hidden_size != r.hidden_size:
            raise InputError(
                f"{ckpt.path}: has no {borrowed[0]}, and {self.path.name}'s is {self.hidden_size} wide where the drafter is "
                f"{r.hidden_size}: it cannot be borrowed; convert the checkpoint with its own"
            )
        if self.hidden_size != r.target_hidden_size:
            raise InputError(
                f"{self.path}: its hidden states are {self.hidden_size} wide, but fc.weight of {ckpt.path.name} takes "
                f"{r.n_streams} of {r.target_hidden_size}: this is not the drafter's target"
            )


def open_target(path: str | Path) -> Target:
    """Open a target's folder; headers only. Raises InputError when it is missing or holds no embedding."""
    folder = existing_folder(path, "the target")
    target = Target(folder, read_json(folder / "config.json"), TensorFiles(weight_files(folder)))
    target._name(EMBEDDING)
    return target
