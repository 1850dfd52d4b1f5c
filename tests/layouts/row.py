"""A row of the table of layouts: what is written, where it is from, what must come out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from .files import Save, Spelled, as_is, one_file
from .parts import Widths, target_tensors, tensors


@dataclass(frozen=True)
class Layout:
    """One published way of writing a drafter. `parts` goes to `tensors`, `expects` holds Recipe fields beside those that follow
    from the widths. A layout of the same drafter as another names it in `same_as`. `source` is public: `owner/repo path`,
    `owner/repo#number`, or a published drafter's name; where there is none, it says in words what the layout is.
    """

    name: str
    about: str
    source: str
    producer: str | None  # the name of `ckpt.layout`; None: several would do
    w: Widths
    config: dict
    parts: dict = field(default_factory=dict)
    expects: dict = field(default_factory=dict)
    spelled: Spelled = as_is
    save: Save = one_file
    dtype: torch.dtype = torch.bfloat16
    change: Callable[[dict], dict] | None = None  # of the file's tensors, before they are written
    effective: Callable[[dict], dict] | None = None  # what they stand for, where the file's are quantised
    beside: Callable[[Path], None] | None = None  # writes what else lies in the folder
    same_as: str = ""
    target_layers: int = 32
    target_keys: tuple[str, str] = ("model.embed_tokens.weight", "lm_head.weight")

    def tensors(self) -> dict[str, Tensor]:
        """What the folder holds, under this library's names, in float32 (maps as they are)."""
        found = tensors(self.w, **self.parts)
        return self.effective(found) if self.effective else found

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        found = {self.spelled(name): t.to(self.dtype) if t.is_floating_point() else t for name, t in self.tensors().items()}
        self.save(folder, self.change(found) if self.change else found, self.config)
        if self.beside:
            self.beside(folder)
        return folder

    def write_target(self, folder: Path) -> Path:
        """As much of its target as is read: embedding, head, norm, a config. It has `target_layers` layers, by its word."""
        folder.mkdir(parents=True)
        held, (embedding, head) = target_tensors(self.w), self.target_keys
        start = embedding.removesuffix("embed_tokens.weight")
        found = {embedding: held["embedding"], head: held["head"], f"{start}norm.weight": held["norm"]}
        text = {"hidden_size": self.w.target, "num_hidden_layers": self.target_layers, "rms_norm_eps": 1e-6,
                "vocab_size": self.w.V}  # fmt: skip
        about = {"architectures": ["LlamaForCausalLM"]} | ({"text_config": text} if start != "model." else text)
        one_file(folder, {name: t.bfloat16() for name, t in found.items()}, about)
        return folder

    @property
    def needs_target(self) -> bool:
        return not {"embed_tokens.weight", "lm_head.weight"} <= set(self.tensors())

    def wanted(self) -> dict:
        """Every Recipe field that must come out, but `rope`, `streams` and `eps` where `expects` does not name them."""
        w = self.w
        found = {
            "hidden_size": w.H, "target_hidden_size": w.target, "vocab_size": w.V, "draft_vocab_size": w.Vd, "n_layers": w.layers,
            "n_heads": w.heads, "n_streams": w.n, "fused_layers": w.fused, "mla": None, "mask_token": None,
            "norm_before_residual": False, "norm_before_fc": False, "fc_norm": False, "norm_output": False,
        }  # fmt: skip
        if w.mla is None:
            found |= {"n_kv_heads": w.kv, "head_dim": w.D}
        return found | self.expects
