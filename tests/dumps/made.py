"""Every format that is read, by its tool."""

import pytest

from . import files, shards
from .base import EVERY, Made

HOOKS = "manifest.json: {} [1, 2, 3], n = id + 1"

MADE = {
    "speculators": Made(files.speculators, "pre_norm", mask=EVERY),
    "speculators 0.3": Made(
        files.speculators_old, "unknown", layers="data_config.json: layer_ids [1, 2, 3, 5], n = id + 1"
    ),
    "vLLM, slots first": Made(files.vllm_first, "pre_norm", mask=EVERY),
    "vLLM, tokens first": Made(files.vllm, "pre_norm", mask=EVERY),
    "SpecForge": Made(files.specforge, "post_norm"),
    "SpecForge gz": Made(files.specforge_gz, "post_norm", mapped=False),
    "SpecForge, DSpark": Made(files.specforge_dspark, "post_norm"),
    "SpecForge, DFlash": Made(files.specforge_dflash, "none", widths=False),
    "AngelSlim": Made(files.angelslim, "post_norm"),
    "SafeAILab": Made(files.safeailab, "post_norm", alone=True),
    "ModelOpt": Made(files.modelopt, "unknown"),
    "TorchSpec": Made(files.torchspec, "unknown", mask=EVERY),
    "TensorRT-LLM": Made(shards.tensorrt_single, "post_norm", mask=EVERY, of_one=False),
    "NeMo Automodel": Made(shards.automodel, "none", HOOKS.format("aux_layer_ids"), first=False, of_one=False),
    "DeepSpec": Made(shards.deepspec, "post_norm", HOOKS.format("target_layer_ids"), of_one=False),
    "SGLang": Made(
        files.sglang, "none", mask="what the server wrote after the prompt", ends=1, widths=False, mapped=False
    ),
}  # fmt: skip


def each(*but: str):
    """A test for every format, but for those named."""
    chosen = {name: made for name, made in MADE.items() if name not in but}
    return pytest.mark.parametrize("made", chosen.values(), ids=chosen)


by_format = each()
