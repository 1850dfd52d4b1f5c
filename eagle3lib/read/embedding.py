"""Rows of an embedding table, read when a token needs them: a target of 600 B parameters is never loaded for its rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import InputError
from .tensors import TensorFiles


class EmbeddingRows:
    """The table `name` [V, H] of `files`, by rows; a row is read once."""

    def __init__(self, files: TensorFiles, name: str, source: str):
        self.files, self.name, self.source = files, name, source
        self.shape = files.headers[name].shape
        self._place = torch.full((self.shape[0],), -1, dtype=torch.int64)  # token -> its place in _kept
        self._kept = torch.empty(0, self.shape[1])

    def rows(self, ids: Int[Tensor, " N"]) -> Float[Tensor, "N H"]:
        """Embedding rows of `ids` [N], float32, on the CPU. Raises InputError for an id that the table has no row for."""
        ids = ids.cpu().long()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.shape[0]:
            wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise InputError(f"{self.source} has {self.shape[0]} rows, but token {wrong} was asked for: tokens of another target")
        new = ids.unique()
        new = new[self._place[new] < 0]
        if len(new):
            self._place[new] = torch.arange(len(self._kept), len(self._kept) + len(new))
            self._kept = torch.cat([self._kept, self.files.rows(self.name, new).float()])
        return self._kept[self._place[ids]]
