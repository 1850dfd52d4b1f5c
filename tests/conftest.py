"""Fixtures: the demo (committed drafters and captures, the target in build/target) and small random models."""

import os
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")  # before tqdm is imported: tests read what is printed

import pytest
import tiny
import torch

import eagle3lib as e3

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "build" / "target"


@pytest.fixture(scope="session")
def target_folder() -> Path:
    assert (TARGET / "config.json").exists(), f"{TARGET} is not there: run `make target`"
    return TARGET


@pytest.fixture(scope="session")
def live_target(target_folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def demo_captures() -> e3.Captures:
    return e3.read_captures(ROOT / "data" / "captures" / "heldout")


@pytest.fixture
def tiny_checkpoint(tmp_path) -> e3.Checkpoint:
    return e3.open_checkpoint(tiny.write_drafter(tmp_path / "drafter"))
