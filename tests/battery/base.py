"""What the battery's cases are made of: the two drafters, the recorded texts, spoiled folders, and walks."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import wilcoxon
from torch import Tensor

import eagle3lib as e3
from eagle3lib.read.served import Served

ROOT = Path(__file__).parent.parent.parent
TARGET = ROOT / "build" / "target"
RECORDED = ROOT / "build" / "battery"
OWN = {"healthy": (2, 15, 27), "embedding_fed": (0, 2, 15)}  # the streams each drafter was trained on
BETWEEN = "healthy", "healthy_early1", "healthy_early2"  # trained on the healthy one's streams
STEPS = 3  # K of all walks but those that are about K

Tensors = dict[str, Tensor]
Captures = Sequence[e3.Capture]


@dataclass(frozen=True)
class Texts:
    """The recorded samples that cases are made from. `demo`: only the committed 24, whose streams are 0, 2, 15, 27.

    `streams`: those that the reference captures hold; more only where a fault needs its neighbours (a verdict tries all orders).
    """

    demo: bool = False
    samples: int = 48
    streams: tuple[int, ...] = (0, 2, 15, 27)

    @cache  # noqa: B019  one list for one name, so that it can be known again (`sound`)
    def __call__(self, name: str = "heldout") -> Captures:
        return [holding(capture, self.streams) for capture in self.whole(name)]

    def whole(self, name: str = "heldout") -> Captures:
        """With every stream that was recorded, to make faults of."""
        folder = ROOT / "data" / "captures" / "heldout" if self.demo else RECORDED / name
        return e3.read_captures(folder)[: self.samples]

    def also(self, streams: tuple[int, ...]) -> "Texts":
        """The same with further streams."""
        return replace(self, streams=tuple(sorted({*self.streams, *streams})))


class Some(Mapping):
    """Some of a capture's streams, read when they are asked for."""

    def __init__(self, streams: Mapping, labels: tuple[int, ...]):
        self.streams, self.labels = streams, [n for n in labels if n in streams]

    def __getitem__(self, label: int) -> Tensor:
        if label not in self.labels:
            raise KeyError(label)
        return self.streams[label]

    def __contains__(self, label: object) -> bool:
        return label in self.labels  # a Mapping's own way would read the stream

    def __iter__(self) -> Iterator[int]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


def holding(capture: e3.Capture, labels: tuple[int, ...]) -> e3.Capture:
    """The sample with these streams only."""
    return capture.replace(streams=Some(capture.streams, labels))


def config_of(drafter: str, right: bool = True) -> dict:
    """A committed drafter's config.json. `right`: the embedding-fed one's says the streams that it was trained on."""
    config = json.loads((ROOT / "data" / "drafters" / drafter / "config.json").read_text())
    if right and drafter == "embedding_fed":
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(OWN[drafter])
    return config


@cache
def tensors_of(drafter: str) -> Tensors:
    """A committed drafter's tensors under its file's own names (SpecForge's). Not to be changed in place."""
    return load_file(ROOT / "data" / "drafters" / drafter / "model.safetensors")


@cache
def target_rows() -> Tensor:
    """The target's embedding, which is its head as well, [V, H] float32."""
    ckpt = checkpoint("healthy")
    return ckpt.target.head_rows(torch.arange(ckpt.recipe.vocab_size)).float()


@cache
def _workplace() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="battery-")  # gone with the process


def written(drafter: str, change: Callable[[Tensors, dict], None] | None = None, right: bool = True) -> Path:
    """A copy of a drafter's folder. `change` is given its tensors (a fresh dict) and its config, and spoils them."""
    tensors, config = dict(tensors_of(drafter)), config_of(drafter, right)
    if change:
        change(tensors, config)
    folder = Path(_workplace().name) / "drafter"  # one at a time: an embedding alone is 57 MB
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def opened(drafter: str, change: Callable[[Tensors, dict], None] | None = None, right: bool = True) -> e3.Checkpoint:
    """`written`, read by the library: what a user of a spoiled file would hold. Raises InputError as it does for them."""
    return e3.open_checkpoint(written(drafter, change, right), target=TARGET)


@cache
def checkpoint(drafter: str) -> e3.Checkpoint:
    """The drafter as it should be, from a folder of its own that stays."""
    if drafter != "embedding_fed":
        return e3.open_checkpoint(ROOT / "data" / "drafters" / drafter, target=TARGET)
    folder = Path(_workplace().name) / drafter
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(ROOT / "data" / "drafters" / drafter / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(drafter)))
    return e3.open_checkpoint(folder, target=TARGET)


def walked(drafter: e3.Drafter, captures: Captures, steps: int = STEPS, spoil: Callable | None = None) -> e3.Acceptance:
    """Rounds of a drafter on these captures. `spoil` may change each sample's Hits: what only some rounds suffer."""
    found = e3.hits(drafter, captures, steps, complete=False)
    return e3.Acceptance.of(spoil(one) for one in found) if spoil else e3.Acceptance.of(found)


def log_of(walk: e3.Acceptance, steps: int = STEPS, told: str = "requests", **changes) -> Served:
    """What an engine would have logged of this walk. `told`: "requests" (a histogram for each), "positions" (rounds
    whose draft 1, 2, ... was accepted), "totals" (rounds and accepted drafts) or "length" (the mean alone, as SGLang prints).
    """
    counts = walk.counts(steps)
    at = counts.sum(0)[::-1].cumsum()[::-1][1:]  # rounds whose draft 1, 2, ... K was accepted
    rounds, accepted = int(counts.sum()), int(at.sum())
    if told == "length":
        steps_told = rounds = accepted = None
    else:
        steps_told = steps
    said = {
        "name": "SGLang log" if told == "length" else "vLLM log", "steps": steps_told, "rounds": rounds, "accepted": accepted,
        "accept_length": walk.tau(steps), "source": "a log", "requests": walk.walks[steps] if told == "requests" else None,
        "positions": tuple(at.tolist()) if told in ("requests", "positions") else None,
    }  # fmt: skip
    known = {f.name for f in fields(Served)}
    return Served(**{key: value for key, value in {**said, **changes}.items() if key in known})


@dataclass(frozen=True)
class Effect:
    """What a fault does to the accept length at K = STEPS: as it should be, as it is, and the paired test over prompts."""

    should: float
    now: float
    p: float  # Wilcoxon's signed-rank test of each prompt's accept length, two-sided

    @property
    def share(self) -> float:
        """How much of the accept length is lost."""
        return 1 - self.now / self.should

    def sight(self) -> str:
        """ "visible": costs more than noise; "equal": within 1 %, or not told from none (p > .05); "small": between the two."""
        if self.p < 0.01 and self.share > 0.01:
            return "visible"
        return "equal" if abs(self.share) <= 0.01 or self.p > 0.05 or self.share < 0 else "small"


def effect_of(should: e3.Acceptance, now: e3.Acceptance, steps: int = STEPS) -> Effect:
    """Both on the same prompts, in the same order."""
    lengths = [np.nan_to_num(a.requests(steps)["accept length"].to_numpy(), nan=1.0) for a in (should, now)]
    p = 1.0 if np.array_equal(*lengths) else float(wilcoxon(*lengths).pvalue)
    return Effect(should.tau(steps), now.tau(steps), p)


@cache
def own_walk(drafter: str, texts: Texts, name: str = "heldout", steps: int = STEPS) -> e3.Acceptance:
    """The drafter as it should be on one set of texts."""
    return walked(e3.Drafter(checkpoint(drafter)), texts(name), steps)
