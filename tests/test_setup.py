"""The set-up's files, held against each other and against what is installed."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from jaxtyping import TypeCheckError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from eagle3lib.run.attention import rms_norm

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}  # conda-forge's name -> PyPI's, where they differ
FLOORS = ("read", "run", "measure", "judge", "show")  # imports only look back


def requirements(lines):
    """Requirement of each line, by canonical name."""
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def run(*command, **options):
    """Run `command`; returns its exit code, and all that it printed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = requirements(PROJECT["dependencies"])
EXTRAS = requirements(line for extra in PROJECT["optional-dependencies"].values() for line in extra)
CONSTRAINTS = requirements(line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))
PINS = {name: re.sub("^==", "", str(pin.specifier)) for name, pin in CONSTRAINTS.items()}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


@pytest.mark.parametrize("requirement", [*RUNTIME.values(), *EXTRAS.values()], ids=str)
def test_each_dependency_is_pinned_within_its_bounds(requirement):
    pin = PINS.get(canonicalize_name(requirement.name))
    assert pin, f"pyproject.toml asks for {requirement}, but constraints.txt has no line for it: remake it as its head says"
    assert requirement.specifier.contains(pin), f"pyproject.toml asks for {requirement}, but constraints.txt pins {pin}"


def test_pins_are_exact_and_without_a_machine():
    inexact = [str(pin) for pin in CONSTRAINTS.values() if not re.fullmatch(r"[\w.-]+==[\w.]+", str(pin))]
    assert not inexact, f"constraints.txt must pin with == and no local part: {', '.join(inexact)}"
    cuda = [name for name in PINS if name.startswith(("nvidia-", "cuda-", "triton"))]
    assert not cuda, f"constraints.txt must leave CUDA packages to torch: {', '.join(cuda)}"


@pytest.mark.skipif((Path(sys.prefix) / "conda-meta").exists(), reason="a conda environment takes lower bounds, not pins")
def test_installed_versions_are_the_pinned_ones():
    installed = {canonicalize_name(found.name): Version(found.version).public for found in metadata.distributions()}
    other = [f"{name} {installed[name]}, pinned {pin}" for name, pin in PINS.items() if installed.get(name, pin) != pin]
    assert not other, f"installed, but not as constraints.txt has it (run `make env`): {'; '.join(other)}"


def test_conda_bounds_are_pyprojects():
    libraries = [line for line in CONDA if isinstance(line, str) and line != "pip" and not line.startswith("python=")]
    conda = {CONDA_NAMES.get(line.name, line.name): line.specifier for line in map(Requirement, libraries)}
    wanted = {name: requirement.specifier for name, requirement in RUNTIME.items()}
    assert conda == wanted, f"environment.yml has {conda}, pyproject.toml {wanted}"


def test_conda_installs_this_project_last():
    last = {"pip": ["-e .[target,dev]"]}
    assert CONDA[-1] == last, f"environment.yml must end in {last}, but ends in {CONDA[-1]}"


def test_conda_takes_one_python_that_pyproject_allows():
    (python,) = [line.removeprefix("python=") for line in CONDA if str(line).startswith("python=")]
    allowed = Requirement(f"python{PROJECT['requires-python']}").specifier
    assert re.fullmatch(r"3\.\d+", python), f"environment.yml must name one minor version of Python, not {python}"
    assert allowed.contains(python), f"environment.yml has Python {python}, but pyproject.toml asks for {allowed}"


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    lines = [line.split("#")[0] for line in script.read_text().splitlines()]
    assert any(re.search(r"\bmake test\b", line) for line in lines), ".ci/run does not call `make test`"
    assert os.access(script, os.X_OK), ".ci/run is not executable: chmod +x .ci/run"


def test_ruff_is_clean():
    code, said = run(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".", cwd=ROOT)
    assert code == 0, said


def lint_imports(folder):
    """import-linter's exit code and output for the package and the pyproject.toml in `folder`."""
    command = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return run(sys.executable, "-c", command, cwd=folder)


def test_imports_go_one_way():
    code, said = lint_imports(ROOT)
    assert code == 0, said


@pytest.mark.parametrize(("low", "high"), list(pairwise(FLOORS)))
def test_an_import_the_other_way_is_found(tmp_path, low, high):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for floor in FLOORS:
        (tmp_path / "eagle3lib" / floor).mkdir(parents=True)
        (tmp_path / "eagle3lib" / floor / "__init__.py").touch()
    (tmp_path / "eagle3lib" / "__init__.py").touch()
    (tmp_path / "eagle3lib" / low / "__init__.py").write_text(f"import eagle3lib.{high}\n")
    code, said = lint_imports(tmp_path)
    assert code == 1 and f"eagle3lib.{low} is not allowed to import eagle3lib.{high}" in said, said


def test_shapes_in_annotations_are_enforced_here():
    """The pytest option --jaxtyping-packages is on: without it, torch alone would complain, with a RuntimeError."""
    with pytest.raises(TypeCheckError):
        rms_norm(torch.zeros(3, 4), torch.zeros(5), 1e-6)
