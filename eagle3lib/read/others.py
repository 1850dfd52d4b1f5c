"""Folders that hold something else than an EAGLE-3 drafter that this library runs: recognised, and refused with the reason."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import InputError

Names = Mapping[str, tuple[int, ...]]  # canonical name -> shape


@dataclass(frozen=True)
class Other:
    """Another kind of model, recognised by a tensor or the config; `says` follows the folder's name."""

    recognise: Callable[[Names, dict], object]
    says: str
    source: str


def has(pattern: str) -> Callable[[Names, dict], object]:
    """Whether a tensor's name fits."""
    compiled = re.compile(pattern)
    return lambda names, config: any(compiled.search(name) for name in names)


def _layers(names: Names) -> int:
    return len({name.split(".")[1] for name in names if name.startswith("layers.")})


def _deep_megatron(names: Names, config: dict) -> bool:
    later = [name for name in names if re.match(r"layers\.[1-9]", name)]
    return any(".hidden_norm." in name for name in later) and not any(".input_layernorm." in name for name in later)


def _lost_norms(names: Names, config: dict) -> bool:
    later = {name.split(".")[1] for name in names if re.match(r"layers\.[1-9]", name)}
    return any(not {f"layers.{i}.input_layernorm.weight", f"layers.{i}.hidden_norm.weight"} & set(names) for i in later)


def _last_state(names: Names, config: dict) -> bool:
    nest = config.get("eagle_config")
    return isinstance(nest, dict) and nest.get("use_aux_hidden_state") is False


NOT_RUN = "which this library does not run"
OTHERS = (
    Other(has(r"\.lora_[AB]\."), "holds a LoRA adapter, which changes its target and drafts nothing: give an EAGLE-3 drafter",
          "peft"),
    Other(has(r"parallel_draft_heads\."), f"has parallel heads (Medusa's, on an EAGLE output), {NOT_RUN}: Model-Optimizer gave "
          "them up", "NVIDIA/Model-Optimizer `EagleMedusaExporter`"),
    Other(has(r"pre_feedforward_layernorm|layer_scalar"), "is a Gemma4 drafter (sandwich norms, values made of keys, softcapped "
          f"logits), {NOT_RUN}", "deepseek-ai/DeepSpec `eagle3/gemma4`"),
    Other(has(r"self_attn\.g_proj\."), f"is a Kimi-K3 drafter (gated attention without positions), {NOT_RUN}",
          "NVIDIA-NeMo/Automodel `draft_kimi_k3`"),
    Other(has(r"(^|\.)(enorm|hnorm|eh_proj)\."), "is a multi-token-prediction (MTP) or Mistral Eagle layer (enorm, eh_proj): no "
          "EAGLE-3 drafter, which joins several layers' states by fc", "NVIDIA/TensorRT-LLM `modeling_speculative.py`"),
    Other(has(r"weight_scale_2$|weight_packed$|weight_scale_inv$|qweight$|\.SCB$"), "holds weights quantised in blocks (nvfp4, "
          "GPTQ, block-wise fp8 or the like), whose scheme is not known here: export the drafter unquantised", "ModelOpt nvfp4"),
    Other(_deep_megatron, f"is a deep drafter of Megatron (later layers' norms are called hidden_norm), {NOT_RUN}",
          "NVIDIA/Model-Optimizer `mcore_llama.py`"),
    Other(lambda n, c: "fc.weight" in n and _lost_norms(n, c), "lacks the input norms of later layers "
          "(layers.1.input_layernorm.weight), as Model-Optimizer exported them before 2025-12-19: lost; export it anew",
          "NVIDIA/Model-Optimizer `hf_spec_export.py`"),
    Other(_last_state, "has use_aux_hidden_state false (in eagle_config): it takes the target's last state and no fc, which this "
          "library does not run", "NVIDIA/Model-Optimizer `eagle_config`"),
    Other(lambda n, c: "fc.weight" not in n and _layers(n) > 4, "holds a whole model and no fc.weight: this is a target; give "
          "the drafter's folder", ""),
    Other(lambda n, c: "fc.weight" in n and n.get("layers.0.self_attn.q_proj.weight", ())[1:] == n["fc.weight"][:1],
          "is an EAGLE-1 or EAGLE-2 drafter (its first layer reads H channels): EAGLE-3's first layer reads the "
          "embedding and the state side by side, 2H", "SafeAILab/EAGLE `cnets1.py`"),
)  # fmt: skip


def refuse_others(folder: Path, names: Names, config: dict) -> None:
    """Raises InputError for what is recognised as something else, or lacks what every EAGLE-3 drafter has."""
    for other in OTHERS:
        if other.recognise(names, config):
            raise InputError(f"{folder}: {other.says}")
    attention = has(r"^layers\.0\.self_attn\.(q_proj|q_a_proj)\.weight$")(names, config)
    if "fc.weight" in names and attention:
        return
    lacking = [] if "fc.weight" in names else ["fc.weight"]
    lacking += [] if attention else ["layers.0.self_attn.q_proj.weight"]
    raise InputError(
        f"{folder}: no {' and no '.join(lacking)}, which every EAGLE-3 drafter has; it holds {', '.join(sorted(names)[:5])}: "
        "give a drafter's folder, or copy or convert it anew"
    )
