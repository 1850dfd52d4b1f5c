"""Faults of a drafter's folder. Each takes its tensors and its config, both fresh, and spoils them in place.

They are written to disk and opened again, so that what reading makes of them is part of what is tried. Names are those of the
file (SpecForge's): `midlayer.` for the one layer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .base import target_rows

Tensors = dict[str, Tensor]
LAYER = "midlayer."
QKV = tuple(f"{LAYER}self_attn.{part}_proj.weight" for part in "qkv")
BLOCK = (*QKV, f"{LAYER}self_attn.o_proj.weight", *(f"{LAYER}mlp.{part}_proj.weight" for part in ("gate", "up", "down")))


def like_new(tensor: Tensor, seed: int = 0) -> Tensor:
    """As transformers leaves a matrix that no file filled: normal, standard deviation 0.02."""
    made = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)) * 0.02
    return made.to(tensor.dtype)


# config.json


def ids(change: Callable[[list[int]], list[int]], source: str) -> Callable:
    def fault(tensors: Tensors, config: dict) -> None:
        there = config["eagle_config"]
        there["eagle_aux_hidden_state_layer_ids"] = change(there["eagle_aux_hidden_state_layer_ids"])

    fault.__doc__ = f"config.json names other layers than it was trained on: {source}."
    return fault


def no_ids(tensors: Tensors, config: dict) -> None:
    """No layer ids in config.json: the engine guesses, vllm-project/vllm#50170."""
    del config["eagle_config"]


def base(times: float) -> Callable:
    def fault(tensors: Tensors, config: dict) -> None:
        config["rope_theta"] *= times

    fault.__doc__ = f"rope_theta x {times:g}: another than it was trained with, NVIDIA-NeMo/Automodel#2920."
    return fault


def linear(factor: float) -> Callable:
    def fault(tensors: Tensors, config: dict) -> None:
        config["rope_scaling"] = {"rope_type": "linear", "factor": factor}

    fault.__doc__ = f"Positions divided by {factor:g}: NVIDIA-NeMo/Automodel#2399 (wrong schedule)."
    return fault


def partial_rotary(tensors: Tensors, config: dict) -> None:
    """Half of each head is to be rotated: a field copied from another target's config, ROCm/ATOM#1605 (fields read wrongly)."""
    config["partial_rotary_factor"] = 0.5


def flag(name: str, source: str) -> Callable:
    def fault(tensors: Tensors, config: dict) -> None:
        config[name] = not config.get(name, False)

    fault.__doc__ = f"{name} the other way round: {source}."
    return fault


# norms


def norms_one(tensors: Tensors, config: dict) -> None:
    """Every norm's weight is 1, as before training: module left at its start, vllm-project/speculators#1114."""
    for name in tensors:
        if "norm" in name:
            tensors[name] = torch.ones_like(tensors[name])


def norms_swapped(tensors: Tensors, config: dict) -> None:
    """The norms of embedding and state exchanged: key names that differ, vllm-project/speculators#1114."""
    a, b = f"{LAYER}hidden_norm.weight", f"{LAYER}input_layernorm.weight"
    tensors[a], tensors[b] = tensors[b], tensors[a]


# vocabulary map


def no_map(tensors: Tensors, config: dict) -> None:
    """Neither d2t nor t2d in the file: NVIDIA-NeMo/Automodel#2447."""
    del tensors["d2t"], tensors["t2d"]


def only_t2d(tensors: Tensors, config: dict) -> None:
    """d2t is absent, t2d is there and says the same: no fault, pytorch/executorch#20149 lists what loaders meet."""
    del tensors["d2t"]


def absolute(tensors: Tensors, config: dict) -> None:
    """d2t holds the target's ids themselves, and is read as offsets: SafeAILab/EAGLE#222 (undocumented)."""
    tensors["d2t"] = tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def arange(tensors: Tensors, config: dict) -> None:
    """d2t holds 0, 1, 2, ...: read as offsets draft id i becomes 2 i, verl-project/verl-SpeCo#67."""
    tensors["d2t"] = torch.arange(len(tensors["d2t"]))


def arange_alone(tensors: Tensors, config: dict) -> None:
    """The same without t2d, which would contradict it: verl-project/verl-SpeCo#67."""
    arange(tensors, config)
    del tensors["t2d"]


def zeros(tensors: Tensors, config: dict) -> None:
    """d2t holds zeros: the first ids, verl-project/verl-SpeCo#66."""
    tensors["d2t"] = torch.zeros_like(tensors["d2t"])


def zeros_alone(tensors: Tensors, config: dict) -> None:
    """The same without t2d: NVIDIA-NeMo/Automodel#2447, verl-project/verl-SpeCo#66."""
    zeros(tensors, config)
    del tensors["t2d"]


def rebuilt(tensors: Tensors, config: dict) -> None:
    """d2t and t2d made again from other text: every twentieth token is another, and all ids behind it move: speculators#1081."""
    kept = tensors["t2d"].clone()
    out = kept.nonzero()[::20, 0]
    into = (~kept).nonzero()[:: int((~kept).sum()) // len(out), 0][: len(out)]
    kept[out], kept[into] = False, True
    tensors["t2d"] = kept
    tensors["d2t"] = kept.nonzero()[:, 0] - torch.arange(int(kept.sum()))


# head and embedding


def head_random(tensors: Tensors, config: dict) -> None:
    """The head was never filled: sgl-project/sglang#27829, vllm-project/vllm#46435."""
    tensors["lm_head.weight"] = like_new(tensors["lm_head.weight"])


def head_first(tensors: Tensors, config: dict) -> None:
    """The target's first rows in place of the rows of the draft vocabulary: sgl-project/SpecForge#140."""
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = target_rows()[: len(head)].to(head.dtype)


def head_shifted(tensors: Tensors, config: dict) -> None:
    """The head's rows one further: a padded vocabulary, vllm-project/vllm#46435."""
    tensors["lm_head.weight"] = tensors["lm_head.weight"].roll(1, 0)


def no_head(tensors: Tensors, config: dict) -> None:
    """No head in the file; this drafter's is the target's rows, so that nothing is lost: sgl-project/SpecForge#478."""
    del tensors["lm_head.weight"]


def embedding_random(tensors: Tensors, config: dict) -> None:
    """The export wrote a random embedding: lightseekorg/TorchSpec#38."""
    tensors["embed_tokens.weight"] = like_new(target_rows().bfloat16())


def embedding_shifted(tensors: Tensors, config: dict) -> None:
    """The embedding's rows one further: padded vocabulary, vllm-project/vllm#46435."""
    tensors["embed_tokens.weight"] = target_rows().bfloat16().roll(1, 0)


def embedding_other(tensors: Tensors, config: dict) -> None:
    """Another model's embedding of the same widths: every row turned by one rotation, verl-project/verl-SpeCo#64."""
    turn = torch.linalg.qr(torch.randn(576, 576, generator=torch.Generator().manual_seed(0))).Q
    tensors["embed_tokens.weight"] = (target_rows() @ turn).bfloat16()


def embedding_own(tensors: Tensors, config: dict) -> None:
    """The target's own embedding, copied into the file: no fault (SafeAILab/EAGLE#305 asks whether it should be)."""
    tensors["embed_tokens.weight"] = target_rows().bfloat16()


def embedding_scaled(tensors: Tensors, config: dict) -> None:
    """The embedding x 24, the root of its width: hidden by the norm behind it, vllm-project/vllm#41703."""
    tensors["embed_tokens.weight"] = (target_rows() * 24).bfloat16()


# weights


def fc_random(tensors: Tensors, config: dict) -> None:
    """fc was never filled: vllm-project/speculators#1114."""
    tensors["fc.weight"] = like_new(tensors["fc.weight"])


def block_random(tensors: Tensors, config: dict) -> None:
    """The layer was never filled, its names did not match: vllm-project/speculators#1114."""
    for seed, name in enumerate(BLOCK):
        tensors[name] = like_new(tensors[name], seed)
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        tensors[f"{LAYER}{name}.weight"] = torch.ones_like(tensors[f"{LAYER}{name}.weight"])


def gate_up(tensors: Tensors, config: dict) -> None:
    """gate_proj and up_proj exchanged: names mapped wrongly, vllm-project/speculators#1114."""
    a, b = (f"{LAYER}mlp.{part}_proj.weight" for part in ("gate", "up"))
    tensors[a], tensors[b] = tensors[b], tensors[a]


def halves(tensors: Tensors, config: dict) -> None:
    """q, k and v read (state, embedding) in place of (embedding, state): concat order, NickL77/BaldEagle#14."""
    for name in QKV:
        tensors[name] = torch.cat(tensors[name].chunk(2, dim=1)[::-1], dim=1)


def not_a_number(tensors: Tensors, config: dict) -> None:
    """One weight is NaN: NVIDIA/TensorRT-LLM#5146 (NaN in draft logits)."""
    tensors["fc.weight"] = tensors["fc.weight"].clone()
    tensors["fc.weight"][0, 0] = float("nan")


def cut_off(tensors: Tensors, config: dict) -> None:
    """A tensor is missing: names that did not match at export, vllm-project/speculators#1114."""
    del tensors[f"{LAYER}mlp.up_proj.weight"]


def head_dim(tensors: Tensors, config: dict) -> None:
    """head_dim in the config is not the weights': discussion of AngelSlim/Qwen3-32B_eagle3 on Hugging Face."""
    config["head_dim"] = 80
