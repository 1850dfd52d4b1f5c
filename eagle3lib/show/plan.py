"""What the workbook is to run: the notebooks, the parameters each declares, and what each still lacks.

A notebook has one cell tagged `parameters`, plain assignments, and says in its metadata what it is about:
`eagle3: {"question": ..., "needs": [parameters it cannot do without], "demo_only": [further names of the demo's things]}`.
"""

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..read.captures import read_captures
from ..read.checkpoint import open_checkpoint
from ..read.errors import InputError
from ..read.served import read_served
from ..read.target import open_target
from ..run.device import best_device
from .stamp import ROOT

# Parameters that name somebody's files: the option that gives each, and what it is.
INPUTS = {
    "CHECKPOINT": ("--checkpoint DIR", "a drafter's folder"),
    "TARGET": ("--target DIR", "the target's folder"),
    "CAPTURES": ("--captures DIR", "a folder of hidden states recorded from the target"),
    "SERVED": ("--served DIR", "a folder of hidden states recorded where the server hands them to the drafter"),
    "LOG": ("--log FILE", "a server's log, or saved answers"),
}


def input_told(name: str) -> str:
    """An input that is not there, and how to give it."""
    return f"{INPUTS[name][1]} ({INPUTS[name][0]})" if name in INPUTS else f"{name} (--set {name}=...)"


@dataclass(frozen=True)
class Order:
    """What was asked for. `inputs`: somebody's files by parameter; when there are none, the demo is run."""

    inputs: Mapping[str, Path] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)  # any parameter -> value (--set)
    device: str | None = None
    dtype: str | None = None
    names: Sequence[str] = ()  # notebooks, by name or number; none: all
    out: Path = Path("workbook")
    notebooks: Path | None = None  # their folder; None: the repository's
    again: bool = False  # run also what is unchanged


@dataclass(frozen=True)
class Notebook:
    """A notebook as committed, and what it says of itself."""

    path: Path
    node: dict  # nbformat's
    parameters: Mapping[str, object]  # declared name -> its own value

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def about(self) -> Mapping:
        return self.node.metadata.get("eagle3", {})

    @property
    def demo_names(self) -> list[str]:
        """Declared parameters that name files or things of the demo."""
        return [name for name in self.parameters if name in INPUTS or name in self.about.get("demo_only", [])]

    def passed(self, order: Order) -> dict[str, object]:
        """The parameters to run with, where they are not the notebook's own. Somebody's files switch all of the demo off."""
        found: dict[str, object] = {}
        if order.inputs:
            found |= {**dict.fromkeys(self.demo_names), "DEVICE": best_device()}
        found |= {name: str(_absolute(path)) for name, path in order.inputs.items()}
        found |= {name: value for name, value in (("DEVICE", order.device), ("DTYPE", order.dtype)) if value}
        found |= {name: self._from_here(name, value) for name, value in order.settings.items()}
        return {name: found[name] for name in self.parameters if name in found}

    def _from_here(self, name: str, value: object) -> object:
        """A path that replaces one of the demo's is meant from the current folder, not from the notebooks'."""
        is_path = name in self.demo_names and isinstance(value, str) and Path(value).expanduser().exists()
        return str(_absolute(Path(value))) if is_path else value

    def files(self, values: Mapping[str, object]) -> dict[str, Path]:
        """The files and folders that exist among the parameters' `values`, by parameter."""
        texts = {name: value for name in self.demo_names if isinstance(value := values[name], str) and value}
        found = {name: _absolute(self.path.parent / Path(text).expanduser()) for name, text in texts.items()}
        return {name: path for name, path in found.items() if path.exists()}

    def lacking(self, values: Mapping[str, object]) -> list[str]:
        """What it needs and has not, by parameter. The need "FORWARD" is for the target, where the drafter cannot run without."""
        missing = [name for name in self.about.get("needs", []) if name != "FORWARD" and values.get(name) is None]
        wants_forward = "FORWARD" in self.about.get("needs", [])
        return [*missing, "TARGET"] if wants_forward and self._cannot_run(values) else missing

    def _cannot_run(self, values: Mapping[str, object]) -> bool:
        """Whether the drafter has no embedding or head of its own, and no target was given."""
        if values.get("CHECKPOINT") is None or values.get("TARGET") is not None:
            return False
        try:
            ckpt = open_checkpoint(self.path.parent / Path(str(values["CHECKPOINT"])).expanduser())
        except InputError:
            return False  # the notebook itself will say what is wrong with it
        return not {"embed_tokens.weight", "lm_head.weight"} <= set(ckpt.names)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def check_device(device: str | None) -> None:
    """Raises InputError for a device that is not here."""
    if device and device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no usable CUDA GPU here: leave it out, or give --device cpu")


def find(order: Order) -> tuple[list[Notebook], list[Notebook]]:
    """The notebooks that were asked for, and the others, both in the order of their names.

    Raises InputError when the folder or a notebook is not there, or one cannot be read.
    """
    folder = order.notebooks.expanduser() if order.notebooks else ROOT / "notebooks"
    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise InputError(
            f"{folder}: holds no notebooks: they are not part of the installed package; clone the repository and "
            "install it from there, or give their folder by --notebooks DIR"
        )
    wanted = {_named(asked, paths) for asked in order.names} or set(paths)
    books = [_read(path) for path in paths]
    return [book for book in books if book.path in wanted], [book for book in books if book.path not in wanted]


def _named(asked: str, paths: Sequence[Path]) -> Path:
    stem = asked.removesuffix(".ipynb")
    for path in paths:
        number = re.match(r"\d+", path.stem)
        if path.stem == stem or (stem.isdigit() and number and int(number[0]) == int(stem)):
            return path
    raise InputError(f"{asked}: no such notebook; there are {', '.join(path.stem for path in paths)}: give a name or its number")


def _read(path: Path) -> Notebook:
    import nbformat  # a second or more, and a verdict needs none of it

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cells without an id
            node = nbformat.v4.upgrade(nbformat.read(path, as_version=4))
        cells = [cell for cell in node.cells if "parameters" in cell.metadata.get("tags", [])]
        return Notebook(path, node, _assigned(cells[0].source) if cells else {})
    except Exception as error:  # nbformat raises many kinds
        raise InputError(f"{path}: is no notebook that can be run ({type(error).__name__}: {error})") from None


def _assigned(source: str) -> dict[str, object]:
    """Names that plain assignments give a value to; a value that is no literal stays as its text."""
    found = {}
    for line in ast.parse(source).body:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            try:
                found[name] = ast.literal_eval(line.value)
            except ValueError:
                found[name] = ast.unparse(line.value)
    return found


def check_settings(books: Sequence[Notebook], others: Sequence[Notebook], settings: Mapping[str, object]) -> None:
    """Raises InputError for a name that none of the `books` to run declares, or that has an option of its own."""
    declared = sorted({name for book in books for name in book.parameters})
    for name in settings:
        if name in INPUTS:
            raise InputError(f"--set {name}: give {INPUTS[name][0]} instead: it also switches the demo's files off")
        if name not in declared:
            there = ", ".join(book.name for book in others if name in book.parameters)
            hint = f" in the notebooks asked for: it is one of {there}" if there else ""
            raise InputError(f"--set {name}: no such parameter{hint}; there are {', '.join(declared)}")


def check_inputs(inputs: Mapping[str, Path]) -> None:
    """Open what was given, headers only. Raises InputError for a path that is wrong, in the words of whoever reads it."""
    if "CHECKPOINT" in inputs:
        open_checkpoint(inputs["CHECKPOINT"], target=inputs.get("TARGET"))
    elif "TARGET" in inputs:
        open_target(inputs["TARGET"])
    for name, read in (("CAPTURES", read_captures), ("SERVED", read_captures), ("LOG", read_served)):
        if name in inputs:
            read(inputs[name])
