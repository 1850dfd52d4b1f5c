"""Capture: one recorded sample of a target: its tokens, and its hidden states by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from .errors import InputError
from .recipe import Recipe

Label = int | str  # n of r_n, or "slot0" where nobody knows
LAST_KINDS = ("post_norm", "pre_norm", "unknown", "none")


@dataclass(frozen=True)
class Capture:
    """One sample. T tokens; every stream has R rows, R = T or T - 1: nothing is predicted from the last token's state.

    `streams[n]` is r_n [R, Ht], the residual stream after n decoder layers (r_0 the embedding's output). A mapping: it may
    read from disk at each access. `last` [R, Ht] is the state after the final norm (`last_kind` "post_norm") or before it.
    """

    name: str
    token_ids: Tensor  # [T] integers
    loss_mask: Tensor  # [T] bool, true where the target wrote the token
    streams: Mapping  # label -> Tensor [R, Ht], read at each access where the capture lies on disk
    last: Tensor | None = None
    last_kind: str = "none"
    known: Mapping[Label, str] = field(default_factory=dict)  # how each label is known
    about: Mapping[str, str] = field(default_factory=dict)  # kind, topic: what whoever recorded it wanted to keep

    def __post_init__(self):
        if self.token_ids.ndim != 1:
            raise InputError(f"{self.name}: token_ids is {list(self.token_ids.shape)}, expected [T]: one sample, not a batch")
        T = len(self.token_ids)
        if self.loss_mask.shape != (T,):
            raise InputError(f"{self.name}: loss_mask is {list(self.loss_mask.shape)}, expected [{T}], one for each of token_ids")
        if self.last_kind not in LAST_KINDS:
            raise InputError(f"{self.name}: last state is {self.last_kind!r}, expected one of {', '.join(LAST_KINDS)}")

    def __repr__(self) -> str:
        streams = ", ".join(map(str, self.streams))
        return f"Capture({self.name}: {len(self.token_ids)} tokens, streams {streams}, last state {self.last_kind})"

    def stream(self, label: Label) -> Float[Tensor, "R Ht"]:
        """Stream `label`, float32. Raises InputError when it was not recorded or its rows do not go with the tokens."""
        if label not in self.streams:
            raise InputError(
                f"{self.name}: stream {label} was not recorded; there are {', '.join(map(str, self.streams))}: "
                f"record r_{label} too, or let the recipe name others (streams=, --set streams=)"
            )
        tensor = self.streams[label]
        if tensor.ndim != 2 or len(tensor) not in (len(self.token_ids), len(self.token_ids) - 1):
            raise InputError(
                f"{self.name}: stream {label} is {list(tensor.shape)} for {len(self.token_ids)} tokens, expected a row for each"
            )
        return tensor.float()

    def joined(self, recipe: Recipe) -> Float[Tensor, "R nHt"]:
        """What `fc` is given: the recipe's streams side by side, in its order.

        Streams without labels are taken by position, unless the recipe names them ("slot0"). Raises InputError for a stream
        that is absent or of another width.
        """
        labels: tuple[Label, ...] | None = recipe.streams
        named = labels is not None and all(isinstance(label, str) for label in labels)
        if all(isinstance(label, str) for label in self.streams) and not named:
            labels = tuple(self.streams)[: recipe.n_streams]
        if labels is None:
            raise InputError(
                f"{self.name}: streams {', '.join(map(str, self.streams))} are labelled, but neither config.json nor the "
                f"engine's default says which {recipe.n_streams} the drafter takes: give streams= (--set streams=)"
            )
        parts = [self.stream(label) for label in labels]
        if len(parts) == 1 and parts[0].shape[1] == recipe.n_streams * recipe.target_hidden_size:
            return parts[0]  # side by side already: some tools do not say how wide one stream is
        if len(labels) < recipe.n_streams:
            raise InputError(
                f"{self.name}: {len(labels)} streams were recorded ({', '.join(map(str, labels))}), but fc takes "
                f"{recipe.n_streams}"
            )
        wrong = next(
            (label for label, part in zip(labels, parts, strict=True) if part.shape[1] != recipe.target_hidden_size), None
        )
        if wrong is not None:
            raise InputError(
                f"{self.name}: stream {wrong} is {self.stream(wrong).shape[1]} wide, but fc takes {recipe.n_streams} of "
                f"{recipe.target_hidden_size}: these captures are of another target"
            )
        return torch.cat(parts, dim=-1)

    def in_slots(self, streams: Sequence[Label]) -> "Capture":
        """The same with these streams only, in this order, called slot0, slot1, ...: as a drafter is handed them."""
        return self.replace(streams={f"slot{i}": self.stream(n) for i, n in enumerate(streams)}, known={})

    def replace(self, **changes) -> "Capture":
        """A copy with some fields changed."""
        return replace(self, **changes)
