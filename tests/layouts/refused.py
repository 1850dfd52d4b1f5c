"""Folders that must be refused, each with what the sentence must say it is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from . import sources
from .files import as_is, before, inside, midlayer, numbered, training_state, without, write_json
from .parts import LLAMA_8B, Widths, config, draw, layer, matrix, norm
from .quantised import is_linear, stored
from .row import Layout
from .runs_more import IDS, MODELOPT, NESTED, no_t2d
from .runs_wide import BARE, KIMI, MASK, deepspec_config, mla_config, nemo_config

TWO = replace(LLAMA_8B, layers=2)
GEMMA = Widths(H=32, heads=2, kv=1, D=16, I=96, n=5, Vd=96)
ONE_ID = {"eagle_config": {IDS: [1, 15, 28]} | NESTED}
Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class Refused:
    """A folder that is none of this library's business. `says`: patterns that the refusal must hold, capitals or not."""

    name: str
    about: str
    source: str
    write: Callable[[Path], Path]
    says: tuple[str, ...]


def drafter(w: Widths, about: dict, change: Change | None = None, parts: dict | None = None, **written) -> Callable[[Path], Path]:
    """Writes a drafter that `change` makes another one."""
    return Layout("", "", "", None, w, about, parts or {"embed": "target"}, change=change, **written).write


def folder_of(**files: Callable[[Path], object]) -> Callable[[Path], Path]:
    """Writes a folder of just these files: each name's dots as two underscores."""

    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name, fill in files.items():
            fill(folder / name.replace("__", "."))
        return folder

    return write


def model_file(found: dict[str, Tensor], about: dict | None) -> Callable[[Path], Path]:
    return folder_of(
        model__safetensors=lambda file: save_file(found, file),
        **({"config__json": lambda file: write_json(file, about)} if about else {}),
    )


def sandwich(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """DeepSpec's Gemma4 layer: norms around the MLP, values that are the keys, a factor on the output."""
    start = "layers.0."
    del found[f"{start}self_attn.v_proj.weight"]
    around = {f"{start}{name}.weight": norm(name, 32) for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm")}
    return found | around | {f"{start}layer_scalar": torch.ones(1)}


def gated(found: dict[str, Tensor]) -> dict[str, Tensor]:
    m = KIMI.mla
    return found | {"model.layers.0.self_attn.g_proj.weight": matrix("gate", KIMI.heads * m.v, 2 * KIMI.H).bfloat16()}


def medusa(found: dict[str, Tensor]) -> dict[str, Tensor]:
    start = "parallel_draft_heads."
    heads = {f"{start}{i}.medusa_layers.0.linear.weight": matrix(f"head {i}", 32, 32) for i in range(3)}
    biases = {f"{start}{i}.medusa_layers.0.linear.bias": draw(f"bias {i}", 32) for i in range(3)}
    return no_t2d(found) | heads | biases | {f"{start}lm_head.weight": matrix("parallel", 24, 32)}


def four_bits(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """nvfp4: two numbers in a byte, a float8 scale for every 16, one float32 for the matrix."""
    out: dict[str, Tensor] = {}
    for name, t in no_t2d(found).items():
        if not is_linear(name):
            out[name] = t
            continue
        rows, columns = t.shape
        out[name] = torch.randint(0, 256, (rows, columns // 2), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        out[f"{name}_scale"] = torch.ones(rows, columns // 16).to(torch.float8_e4m3fn)
        out[f"{name}_scale_2"], out[name.replace(".weight", ".input_scale")] = torch.tensor(0.01), torch.tensor(0.02)
    return out


def eight_bits_alone(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: stored(t, torch.float8_e4m3fn)[0] if is_linear(name) else t for name, t in no_t2d(found).items()}


def eagle_1() -> dict[str, Tensor]:
    """EAGLE-1: fc joins embedding and state, the one layer is plain and has no norm before its attention."""
    found = layer(replace(LLAMA_8B, fused=()), 0, (), False)
    del found["layers.0.input_layernorm.weight"]
    return found | {
        "fc.weight": matrix("fc", 32, 64),
        "fc.bias": draw("fc.bias", 32),
        "embed_tokens.weight": draw("embed", 96, 32),
    }


def mtp() -> dict[str, Tensor]:
    """DeepSeek-V3's multi-token-prediction layer, cut out of its target."""
    start = "model.layers.61."
    plain = {name.replace("layers.0.", start): t for name, t in layer(replace(KIMI, fused=()), 0, (), False).items()}
    norms = {f"{start}{name}.weight": norm(name, KIMI.H) for name in ("enorm", "hnorm", "shared_head.norm")}
    tables = {f"{start}{name}.weight": draw(name, 96, KIMI.H) for name in ("embed_tokens", "shared_head.head")}
    return plain | norms | tables | {f"{start}eh_proj.weight": matrix("eh_proj", KIMI.H, 2 * KIMI.H)}


def whole_target() -> dict[str, Tensor]:
    deep = replace(LLAMA_8B, layers=6, fused=())
    found = {f"model.{name}": t for i in range(6) for name, t in layer(deep, i, (), False).items()}
    return found | {"model.embed_tokens.weight": draw("embed", 96, 32), "model.norm.weight": norm("norm", 32),
                    "lm_head.weight": matrix("head", 96, 32)}  # fmt: skip


def lora(file: Path) -> None:
    start = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    save_file({f"{start}A.weight": torch.zeros(2, 32), f"{start}B.weight": torch.zeros(32, 2)}, file)


def state_without_config(folder: Path) -> Path:
    drafter(LLAMA_8B, {}, parts={}, spelled=midlayer, save=training_state)(folder)
    (folder / "config.json").unlink()
    return folder


GEMMA_CONFIG = deepspec_config(
    GEMMA, [5, 17, 29, 41, 46], architectures=["Gemma4Eagle3Model"], model_type="gemma4_text", attention_k_eq_v=True,
    global_head_dim=16, num_global_key_value_heads=1, final_logit_softcapping=30.0, hidden_act=..., num_target_layers=48,
    hidden_activation="gelu_pytorch_tanh", rope_parameters={
        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
)  # fmt: skip
KIMI_K3 = mla_config(
    KIMI, nemo_config, architectures=["LlamaEagle3DraftModel"], model_type="kimi_k3", mla_use_nope=True, mla_use_output_gate=True,
    rope_theta=..., rope_scaling=..., rope_parameters=None, num_hidden_layers=93,
)  # fmt: skip
SPECFORGE = config(LLAMA_8B, rope_theta=500000.0, **ONE_ID)
PEAGLE = config(TWO, architectures=["PEagleDraftModel"], rope_theta=1000000)
DEEP = MODELOPT(TWO, architectures=["LlamaForCausalLMEagle3Deep"], **ONE_ID)
SHORT_CONTEXT = MODELOPT(replace(LLAMA_8B, Vd=96), eagle_config=NESTED | {"use_aux_hidden_state": False, IDS: []})
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


def later_norms(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.replace("midlayer.1.input_layernorm", "midlayer.1.hidden_norm"): t for name, t in no_t2d(found).items()}


REFUSED = (
    Refused("deepspec-gemma4", "sandwich norms, values that are the keys",
            "deepseek-ai/DeepSpec deepspec/modeling/eagle3/gemma4/modeling.py",
            drafter(GEMMA, GEMMA_CONFIG, sandwich, {"embed": "target", "head": "target", "maps": False, "head_norms": True}),
            ("gemma ?4",)),
    Refused("nemo-kimi-k3", "latent attention without positions, its output gated", f"{sources.NEMO}eagle/draft_kimi_k3.py",
            drafter(KIMI, KIMI_K3, gated, {"embed": "target", "maps": False}, spelled=before("model.", as_is, but=BARE),
                    save=inside("model")), ("kimi.?k3|gate",)),
    Refused("modelopt-parallel-heads", "Medusa's heads on an EAGLE output", f"{sources.MODELOPT_EXPORT} (EagleMedusaExporter)",
            drafter(LLAMA_8B, MODELOPT(LLAMA_8B, eagle_config={IDS: [1, 15, 28]} | NESTED | {"parallel_draft_step": 4}), medusa,
            {}),
            ("parallel|medusa",)),
    Refused("megatron-deep", "a second layer whose norm is called hidden_norm", sources.MODELOPT_MEGATRON,
            drafter(TWO, DEEP, later_norms, {}, spelled=numbered), ("megatron|deep",)),
    Refused("gguf-alone", "llama.cpp's file and nothing else", "ggml-org/llama.cpp#18039",
            folder_of(eagle3_q8_0__gguf=lambda file: file.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(64))), ("gguf",)),
    Refused("modelopt-nvfp4", "two weights in a byte, weight_scale_2", sources.MODELOPT_QUANTISED,
            drafter(LLAMA_8B, MODELOPT(LLAMA_8B, quantization_config=NVFP4, **ONE_ID), four_bits, {}),
            ("nvfp4|four bits|4.bit|blocks", "quantised")),
    Refused("fp8-without-scale", "float8 weights, and no scale of any", "a quantised file that lost its scales",
            drafter(LLAMA_8B, MODELOPT(LLAMA_8B, **ONE_ID), eight_bits_alone, {}), (r"_proj\.weight", "scale|quantised")),
    Refused("eagle-1", "fc joins embedding and state, a plain layer", "SafeAILab/EAGLE eagle/model/cnets1.py",
            model_file(eagle_1(), config(LLAMA_8B, architectures=["LlamaForCausalLM"], bias=True, draft_vocab_size=...)),
            ("eagle-1",)),
    Refused("deepseek-mtp", "enorm, hnorm, eh_proj",
            "deepseek-ai/DeepSeek-V3 README_WEIGHTS.md", model_file(mtp(), mla_config(KIMI)),
            ("mtp|multi-token",)),
    Refused("whole-target", "six plain layers, no fc", "any target's own folder",
            model_file(whole_target(), config(replace(LLAMA_8B, layers=6), architectures=["LlamaForCausalLM"])), ("target",)),
    Refused("lora-adapter", "adapter_model.safetensors, adapter_config.json", sources.MODELOPT_EXPORT,
            folder_of(adapter_model__safetensors=lora, adapter_config__json=partial(write_json, content={"peft_type": "LORA"})),
            ("lora",)),
    Refused("short-d2t", "22 offsets for a head of 24 rows", "lightseekorg/TorchSpec torchspec/data/preprocessing.py",
            drafter(LLAMA_8B, SPECFORGE, lambda found: no_t2d(found) | {"d2t": found["d2t"][:22].clone()}, spelled=midlayer),
            ("d2t", r"\b22\b", r"\b24\b")),
    Refused("no-maps", "24 draft ids of 96, no d2t, no t2d", sources.MODELOPT_MEGATRON,
            drafter(LLAMA_8B, MODELOPT(LLAMA_8B, **ONE_ID), without("d2t", "t2d"), {}, spelled=midlayer),
            ("neither d2t nor t2d",)),
    Refused("modelopt-lost-norm", "two layers, and the second's input_layernorm was not exported", "NVIDIA/Model-Optimizer#689",
            drafter(TWO, MODELOPT(TWO, **ONE_ID), without("t2d", "midlayer.1.input_layernorm.weight"), {}, spelled=numbered),
            (r"(layers|midlayer)\.1\.input_layernorm", "2025-12|model-?opt")),
    Refused("unknown-tensor", "attention sinks, which no drafter here has", "made up: nothing may be skipped in silence",
            drafter(LLAMA_8B, SPECFORGE, lambda found: found | {"midlayer.self_attn.sinks": torch.zeros(4)}, spelled=midlayer),
            (r"self_attn\.sinks",)),
    Refused("no-aux-states", "use_aux_hidden_state false: no fc, the target's last state alone",
            "sgl-project/sglang#14920, sgl-project/sglang#32334",
            drafter(replace(LLAMA_8B, Vd=96), SHORT_CONTEXT, without("fc.weight", "layers.0.hidden_norm.weight"),
            {"maps": False}),
            ("use_aux_hidden_state|last state|final state",)),
    Refused("no-last-norm", "use_last_layernorm false: no norm.weight",
            "NVIDIA/Model-Optimizer modelopt/torch/speculative/plugins/megatron_eagle.py",
            drafter(LLAMA_8B, MODELOPT(LLAMA_8B, eagle_config={IDS: [1, 15, 28]} | NESTED | {"use_last_layernorm": False}),
                    without("t2d", "norm.weight"), {}), (r"\bnorm\.weight|use_last_layernorm",)),
    Refused("peagle-without-token", "mask_hidden, and no config key for its token",
            "sgl-project/SpecForge configs/qwen3-8b-peagle.json",
            drafter(TWO, PEAGLE, parts=MASK), ("mask_token_id",)),
    Refused("specforge-raw-without-config", "training_state.pt and no config.json", sources.SPECFORGE_STATE, state_without_config,
            (r"config\.json",)),
    Refused("torchspec-raw", "a torch.distributed checkpoint", sources.TORCHSPEC_EXPORT,
            folder_of(config__json=partial(write_json, content=SPECFORGE), shard_0__distcp=lambda f: f.write_bytes(bytes(8))),
            ("distcp|distributed",)),
)  # fmt: skip
