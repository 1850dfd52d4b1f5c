"""How producers spell a drafter's tensors, and in which files they leave them."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Spelled = Callable[[str], str]  # this library's name -> the file's
Save = Callable[[Path, dict, dict], None]  # folder, tensors under the file's names, config


def as_is(name: str) -> str:
    return name


def swapped(*pairs: tuple[str, str]) -> Spelled:
    """A spelling that replaces some parts of a name by others, in turn."""

    def spelled(name: str) -> str:
        for ours, theirs in pairs:
            name = name.replace(ours, theirs)
        return name

    return spelled


midlayer = swapped(("layers.0.", "midlayer."))
numbered = swapped(("layers.", "midlayer."))


def before(prefix: str, spelled: Spelled = midlayer, but: tuple[str, ...] = ()) -> Spelled:
    """A spelling with `prefix` before every name that is not in `but`."""
    return lambda name: spelled(name) if name in but else prefix + spelled(name)


# --- files ------------------------------------------------------------------------------------------------------------


def without(*names: str) -> Callable[[dict], dict]:
    """Leaves tensors of these names, as the file has them, out of it."""
    return lambda found: {name: t for name, t in found.items() if name not in names}


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def one_file(folder: Path, found: dict[str, Tensor], about: dict, metadata: dict[str, str] | None = None) -> None:
    save_file(found, folder / "model.safetensors", metadata or {"format": "pt"})
    write_json(folder / "config.json", about)


def bin_file(folder: Path, found: dict[str, Tensor], about: dict) -> None:
    torch.save(found, folder / "pytorch_model.bin")
    write_json(folder / "config.json", about)


def shards(folder: Path, found: dict[str, Tensor], about: dict, kind: str = "safetensors") -> None:
    """Three files and their index, as transformers splits a model."""
    start, write = ("model", save_file) if kind == "safetensors" else ("pytorch_model", torch.save)
    names, index = sorted(found), {}
    for number in range(3):
        file, some = f"{start}-{number + 1:05}-of-00003.{kind}", names[number::3]
        write({name: found[name] for name in some}, folder / file)
        index |= dict.fromkeys(some, file)
    size = sum(t.numel() * t.element_size() for t in found.values())
    write_json(folder / f"{start}.{kind}.index.json", {"metadata": {"total_size": size}, "weight_map": index})
    write_json(folder / "config.json", about)


def training_state(folder: Path, found: dict[str, Tensor], about: dict) -> None:
    """SpecForge's checkpoint of a run; its exporter is given the config beside it."""
    state = {"draft_state_dict": found, "strategy": "eagle3", "global_step": 1000, "epoch": 0, "run_id": "run"}
    torch.save(state, folder / "training_state.pt")
    write_json(folder / "config.json", about)


def inside(path: str, save: Save = one_file, beside: str = "eagle_meta.pt") -> Save:
    """The folder's files in a folder below it, and NeMo's bookkeeping at its top."""

    def write(folder: Path, found: dict[str, Tensor], about: dict) -> None:
        below = folder / path
        below.mkdir(parents=True)
        save(below, found, about)
        torch.save({"global_step": 2000, "epoch": 0}, folder / beside)

    return write


def read_back(folder: Path) -> dict[str, Tensor]:
    """Every tensor that lies in the weight files under `folder`, by its name there, read without this library."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.rglob("model*.safetensors")):
        found |= load_file(file)
    for file in sorted(folder.rglob("pytorch_model*.bin")):
        found |= torch.load(file, weights_only=True)
    if not found:
        found = torch.load(folder / "training_state.pt", weights_only=True)["draft_state_dict"]
    return found
