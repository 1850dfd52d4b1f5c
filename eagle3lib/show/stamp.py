"""The stamp: what a result was made from and with, so that it can be made again and be seen to be out of date."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import torch
from tqdm import tqdm

from ..read.errors import InputError
from ..read.tensors import weight_files

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "numpy", "scipy", "pandas", "matplotlib")
SEEDS = "bootstrap intervals: seed 0; the library draws nothing else at random, and sets no torch seed"
CHUNK = 2**24  # bytes read at once


def versions() -> dict[str, str]:
    """Python's, the libraries' that are installed, and this one's with the commit of its repository, if it is in one."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "eagle3lib": f"{metadata.version('eagle3lib')}{_commit()}"}


def _commit() -> str:
    """`, commit abc123`, `, commit abc123, modified`, or nothing where this is no git checkout."""
    if not (ROOT / ".git").exists():
        return ""
    try:
        commit, changed = (
            subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, timeout=20, check=True).stdout
            for command in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f", commit {commit.strip()}" + (", modified" if changed.strip() else "")


def device_name(device: str) -> str:
    """What computes: the GPU's name, or the CPU's kind. Never the machine's own name."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return f"{device}: {platform.machine()}, {sys.platform}"


def peak_memory() -> list[str]:
    """The most that PyTorch held on each GPU that this process has used, such as "cuda:0: 3.1 of 139.8 GiB"."""
    if not torch.cuda.is_initialized():
        return []
    held = {
        f"cuda:{i}": (torch.cuda.max_memory_allocated(i), torch.cuda.mem_get_info(i)[1]) for i in range(torch.cuda.device_count())
    }
    return [f"{name}: {peak / 2**30:.1f} of {size / 2**30:.1f} GiB" for name, (peak, size) in held.items() if peak]


def library_hash() -> str:
    """sha256 over the library's own source."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def fingerprint(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of a file, or of every file in a folder: enough to see that an input is another."""
    if path.is_file():
        return [(path.name, path.stat().st_size, path.stat().st_mtime_ns)]
    files = sorted(Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return [(str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.exists()]


def sha256(file: Path, limit: int | None = None) -> str:
    """sha256 of a file, or of its first `limit` bytes; a large one shows its progress."""
    size = file.stat().st_size if limit is None else limit
    digest, left = hashlib.sha256(), size
    quiet = True if size < 64 * CHUNK else None  # None: tqdm shows itself on a terminal only
    with (
        file.open("rb") as opened,
        tqdm(total=size, unit="B", unit_scale=True, desc=file.name, leave=False, disable=quiet) as bar,
    ):
        while left and (block := opened.read(min(CHUNK, left))):
            digest.update(block)
            left -= len(block)
            bar.update(len(block))
    return digest.hexdigest()


def describe(name: str, path: Path) -> dict:
    """One input, by its parameter's `name`: what of it was hashed, and the sha256 of each such file."""
    if path.is_file():
        return {"hashed": "the file", "sha256": {path.name: sha256(path)}}
    if name in ("CAPTURES", "SERVED"):
        sidecar = [file for file in ("captures.json",) if (path / file).is_file()]
        samples = [size for file, size, _ in fingerprint(path) if file not in sidecar]
        return {
            "hashed": "captures.json; the samples are counted" if sidecar else "nothing; the files are counted",
            "sha256": _hashes(path, sidecar), "samples": len(samples), "bytes": sum(samples),
        }  # fmt: skip
    if not (path / "config.json").is_file():
        files = fingerprint(path)
        return {"hashed": "nothing; its files are counted", "files": len(files), "bytes": sum(size for _, size, _ in files)}
    if name == "TARGET":
        return _describe_target(path)
    weights = [file.name for file in _weights(path)]
    return {"hashed": "config.json and the weights", "sha256": _hashes(path, ["config.json", *weights])}


def _describe_target(path: Path) -> dict:
    """A target is large: its config and what lists its tensors stand for it."""
    indices = [index.name for index in sorted(path.glob("*.index.json"))]
    found = _hashes(path, ["config.json", *indices])
    lone = [] if indices else [file for file in _weights(path) if file.suffix == ".safetensors"]
    for file in lone:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")  # a safetensors file begins with the length of its header
        found[f"{file.name}, header"] = sha256(file, 8 + length)
    listed = "the index of its weights" if indices else "the header of its weights" if lone else "not its weights"
    return {"hashed": f"config.json and {listed}" if indices or lone else "config.json, not its weights", "sha256": found}


def _weights(path: Path) -> list[Path]:
    try:
        return weight_files(path)
    except InputError:
        return []


def _hashes(folder: Path, names: list[str]) -> dict[str, str]:
    return {name: sha256(folder / name) for name in names}


def key(parts: Mapping) -> str:
    """One sha256 for a JSON value: equal parts, equal key."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
