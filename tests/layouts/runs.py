"""Layouts that must open: SafeAILab, SpecForge, AngelSlim, and a SpecForge drafter in every spelling. `runs_more.py`
and `runs_wide.py` have the others.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from . import sources
from .files import as_is, before, bin_file, midlayer, numbered, shards, swapped, training_state, without
from .parts import GPT_OSS, LLAMA_8B, QWEN_8B, Widths, config
from .ropes import dynamic, linear, llama3, plain, yarn
from .row import Layout
from .runs_more import MORE
from .runs_wide import WIDE

LLAMA_70B = Widths(H=48, Ht=64, heads=6, kv=1, D=8, I=112)  # 6144 for a target of 8192
VICUNA_13B = Widths(H=40, heads=5, kv=5, D=8, I=108, Vd=96)  # 5120, all heads their own keys, the whole vocabulary
QWEN_30B = Widths(H=32, heads=8, kv=1, D=8, I=192)  # heads twice as wide as the state
QWEN_2B = Widths(H=32, heads=4, kv=2, D=8, I=96)
GEMMA_1B = Widths(H=36, heads=4, kv=1, D=8, I=216)  # 1152, heads narrower than the state

# --- SafeAILab/EAGLE --------------------------------------------------------------------------------------------------

OFFICIAL = partial(
    config, architectures=["LlamaForCausalLM"], head_dim=..., attention_bias=..., attention_dropout=..., rms_norm_eps=1e-5,
    max_position_embeddings=2048, pad_token_id=0, torch_dtype="float16", transformers_version="4.28.1",
)  # fmt: skip
official = partial(Layout, producer="SafeAILab", spelled=midlayer, save=bin_file, dtype=torch.float16)

SAFEAILAB = (
    official("official-8b", "pytorch_model.bin, no embedding, no layer ids",
             f"{sources.SAFEAILAB_MODEL}, eagle/model/ea_model.py",
             w=LLAMA_8B, config=OFFICIAL(LLAMA_8B),
             expects={"streams": (2, 16, 29), "eps": 1e-5, "rope": plain(10000, 8)}),
    official("official-rope-theta", "the configured rope base was never trained with", sources.SAFEAILAB_TRAINING, w=LLAMA_8B,
             config=OFFICIAL(LLAMA_8B, rope_theta=500000.0), same_as="official-8b",
             expects={"streams": (2, 16, 29), "rope": plain(10000, 8)}),
    official("official-linear", "linear scaling, of base 10000", sources.SAFEAILAB_TRAINING, w=LLAMA_8B,
             config=OFFICIAL(LLAMA_8B, rope_theta=500000.0, rope_scaling={"type": "linear", "factor": 2.0}),
             expects={"streams": (2, 16, 29), "rope": linear(10000, 8, 2)}),
    official("official-70b", "narrower than its target, and its own embedding",
             "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B; sgl-project/sglang#4716",
             w=LLAMA_70B, config=OFFICIAL(LLAMA_70B, target_hidden_size=64), parts={"embed": "own"}, target_layers=80,
             expects={"streams": (2, 40, 77), "rope": plain(10000, 8)}),
    official("official-vicuna", "num_hidden_layers is the target's, the vocabulary whole, no maps", "NickL77/BaldEagle#6",
             w=VICUNA_13B, config=OFFICIAL(VICUNA_13B, num_hidden_layers=40, rms_norm_eps=1e-6), parts={"maps": False},
             target_layers=40, expects={"streams": (2, 20, 37), "eps": 1e-6, "rope": plain(10000, 8)}),
)  # fmt: skip

# --- SpecForge --------------------------------------------------------------------------------------------------------

IDS = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}}  # outputs of layers of a target of 36
SPECFORGE = partial(config, rope_theta=1000000, rope_scaling=None, max_window_layers=36, sliding_window=None)
specforge = partial(Layout, producer="SpecForge", spelled=midlayer, target_layers=36)
HF = {"streams": (2, 18, 33), "eps": 1e-6, "rope": plain(1e6, 8)}


def another_drafter(folder: Path, name: str = "training_state.pt") -> None:
    """What training leaves beside the weights: other numbers under the same names, and an optimiser's state."""
    noise = {"draft_model.fc.weight": torch.zeros(32, 96), "draft_model.norm.weight": torch.zeros(32)}
    torch.save({"draft_state_dict": noise, "strategy": "eagle3"}, folder / name)
    torch.save({"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}, folder / "optimizer.pt")


def narrow_maps(found: dict) -> dict:
    return found | {"d2t": found["d2t"].int(), "t2d": found["t2d"].to(torch.uint8)}


TO_HF = specforge(
    "specforge-to-hf", "one safetensors, the target's embedding copied into it",
    "sgl-project/SpecForge specforge/export/to_hf.py",
    w=QWEN_8B, config=SPECFORGE(QWEN_8B, **IDS), parts={"embed": "target"}, expects=HF,
)  # fmt: skip


def same(name: str, about: str, source: str, **changes) -> Layout:
    """The drafter of TO_HF, written in another way."""
    return replace(TO_HF, name=name, about=about, source=source, same_as="specforge-to-hf", **changes)


NULLS = SPECFORGE(QWEN_8B, eagle_config=None, rope_scaling={}, pad_token_id=None, head_dim=None, target_hidden_size=None)
MOVED = SPECFORGE(QWEN_8B, **IDS, rope_theta=..., rope_scaling=..., torch_dtype=..., dtype="bfloat16",
                  rope_parameters={"rope_theta": 1000000, "rope_type": "default"})  # fmt: skip
WRAPPED = swapped(("layers.0.", "midlayer._fsdp_wrapped_module."), ("mlp.", "mlp._checkpoint_wrapped_module."),
                  ("self_attn.", "self_attn._orig_mod."))  # fmt: skip

SPELLINGS = (
    same("specforge-to-sglang", "no embedding", "sgl-project/SpecForge specforge/export/to_sglang.py", parts={}),
    same("specforge-raw", "training_state.pt alone, names as the trainer's wrapper has them",
         "seen in raw trainer states", parts={},
         save=training_state, spelled=before("draft_model.")),
    same("specforge-raw-bare", "training_state.pt alone, names as the model has them",
         sources.SPECFORGE_STATE, parts={}, save=training_state),
    same("specforge-stray-files", "training_state.pt and optimizer.pt of other numbers beside",
         "AQ-MedAI/Kimi-K2-Instruct-eagle3", beside=another_drafter),
    same("specforge-nulls", "eagle_config, head_dim, pad_token_id null, rope_scaling {}",
         "nulls in place of left-out keys", config=NULLS),
    same("specforge-rope-parameters", "the rope as transformers 5 writes it",
         f"{sources.SPECFORGE_STATE}; NVIDIA-NeMo/Automodel#2920", config=MOVED),
    same("specforge-narrow-maps", "int32 d2t, uint8 t2d", "types met beside int64 and bool", change=narrow_maps),
    same("specforge-no-d2t", "t2d alone", "either map follows from the other", parts={"embed": "target"}, change=without("d2t")),
    same("specforge-shards", "three safetensors and their index", "as transformers splits a model", save=shards),
    same("specforge-bin-shards", "three .bin and their index",
         "as transformers splits a model", save=partial(shards, kind="bin")),
    same("specforge-float32", "every number as wide as in training",
         "a type that config.json does not name", dtype=torch.float32),
    same("spelled-layers", "layers.0.", sources.TORCHSPEC_EXPORT, spelled=as_is, producer=None),
    same("spelled-midlayer-0", "midlayer.0.", sources.MODELOPT_MEGATRON, spelled=numbered, producer=None),
    same("spelled-model", "model. before all but head and maps", sources.NEMO_MODEL, producer=None,
         spelled=before("model.", as_is, but=("lm_head.weight", "d2t", "t2d"))),
    same("spelled-model-twice", "model.model.", sources.NEMO_SERVE, spelled=before("model.model.", as_is), producer=None),
    same("spelled-draft-model", "draft_model.", "lightseekorg/TorchSpec#38", spelled=before("draft_model."), producer=None),
    same("spelled-eagle-module", "eagle_module.", sources.MODELOPT_EXPORT, spelled=before("eagle_module.", as_is),
         producer=None),
    same("spelled-module", "module. (DistributedDataParallel)",
         "seen in raw trainer states", spelled=before("module."), producer=None),
    same("spelled-orig-mod", "_orig_mod. (torch.compile) before all",
         sources.DEEPSPEC_STATE, spelled=before("_orig_mod."), producer=None),
    same("spelled-fsdp", "_fsdp_wrapped_module. before all",
         "seen in raw trainer states", spelled=before("_fsdp_wrapped_module."), producer=None),
    same("spelled-wrappers", "four wrappers, three of them within the path",
         "seen in raw trainer states", spelled=before("module.", WRAPPED),
         producer=None),
)  # fmt: skip

FULL = replace(QWEN_8B, Vd=96)
EAGLE_31 = SPECFORGE(QWEN_30B, fc_norm=True, norm_output=True, max_position_embeddings=2048)
NORMS = {"streams": (2, 24, 45), "rope": plain(1e6, 8), "fc_norm": True, "norm_output": True}
SGLANG_31 = SPECFORGE(QWEN_30B, use_aux_norm=True, norm_output=True)
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
        "mscale": 0.707, "mscale_all_dim": 0.707}  # fmt: skip
UNEVEN = YARN | {"mscale": 1.0}
RATIO = (0.1 * 3.6888794541139363 + 1) / (0.1 * 0.707 * 3.6888794541139363 + 1)  # ln 40
LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 4096,
          "rope_type": "llama3"}  # fmt: skip
MROPE = {"type": "mrope", "mrope_section": [1, 1, 2]}
MROPE_INTERLEAVED = {"rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True}


def scaled(name: str, about: str, source: str, rope, scaling: dict | None, theta: float | None, w: Widths = QWEN_8B, **keys):
    """A SpecForge drafter that differs by its rope."""
    about_it = SPECFORGE(w, **IDS, rope_scaling=scaling, rope_theta=... if theta is None else theta, **keys)
    return specforge(name, about, source, w=w, config=about_it, parts={"embed": "target"},
                     expects={"streams": (2, 18, 33), "rope": rope})  # fmt: skip


OTHERS = (
    specforge("specforge-full-vocabulary", "d2t all zeros, t2d all ones", sources.SPECFORGE_MODEL, w=FULL,
              config=SPECFORGE(FULL, **IDS), parts={"embed": "target"}, expects=HF),
    specforge("specforge-embedding-fed", "layer id -1 is the embedding",
              "one before the first layer's 0", w=QWEN_8B, parts={"embed": "target"},
              config=SPECFORGE(QWEN_8B, eagle_config={"eagle_aux_hidden_state_layer_ids": [-1, 1, 14]}),
              expects={"streams": (0, 2, 15)}),
    specforge("specforge-boundary-ids", "layer ids that begin with 2",
              "sgl-project/SpecForge configs/kimi-k25-eagle3.json", w=QWEN_8B,
              parts={"embed": "target"}, same_as="specforge-to-hf", expects=HF,
              config=SPECFORGE(QWEN_8B, eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 18, 33],
                                                      "use_aux_hidden_state": True})),
    specforge("specforge-3.1", "EAGLE-3.1: fc_norm and norm_output", "sgl-project/SpecForge configs/qwen3-30B-A3B-eagle3.1.json",
              w=QWEN_30B, config=EAGLE_31, parts={"embed": "target", "streams_norm": "fc_norm"}, target_layers=48, expects=NORMS),
    specforge("sglang-3.1", "EAGLE-3.1 in SGLang's first names: aux_norm_low, _mid, _high; use_aux_norm",
              "sgl-project/sglang#24663", w=QWEN_30B, config=SGLANG_31, target_layers=48, expects=NORMS,
              parts={"embed": "target", "streams_norm": "fc_norm"}, same_as="specforge-3.1",
              spelled=swapped(("layers.0.", "midlayer."), ("fc_norm.0", "aux_norm_low"), ("fc_norm.1", "aux_norm_mid"),
                              ("fc_norm.2", "aux_norm_high"))),
    specforge("fork-fc-norms", "EAGLE-3.1 with fc_norms.i",
              "seen in one serving fork", w=QWEN_30B, config=EAGLE_31, producer=None, target_layers=48,
              parts={"embed": "target", "streams_norm": "fc_norm"}, same_as="specforge-3.1", expects=NORMS,
              spelled=swapped(("layers.0.", "midlayer."), ("fc_norm.", "fc_norms."))),
    specforge("specforge-gpt-oss", "no rope_theta, heads wider than the state, ids of no default",
              "sgl-project/SpecForge configs/gpt-oss-20B-eagle3.json", w=GPT_OSS, parts={"embed": "target"}, target_layers=24,
              config=config(GPT_OSS, rms_norm_eps=1e-5, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 11, 21]}),
              expects={"streams": (2, 12, 22), "eps": 1e-5, "rope": plain(10000, 8)}),
    specforge("specforge-gemma3", "heads narrower than the state",
              "sgl-project/SpecForge configs/gemma3-1b-eagle3.json", w=GEMMA_1B,
              config=SPECFORGE(GEMMA_1B), parts={"embed": "target"}, target_layers=26,
              expects={"streams": (2, 13, 23), "rope": plain(1e6, 8)}),
    scaled("rope-llama3", "llama3",
           "sgl-project/SpecForge configs/llama3-70B-ealge3.json", llama3(5e5, 8, 8, trained=4096), LLAMA3, 5e5),
    scaled("rope-linear", "linear", sources.SPECFORGE_MODEL, linear(1e6, 8, 4), {"type": "linear", "factor": 4.0}, 1e6),
    scaled("rope-yarn", "yarn with both mscale: their ratio",
           "sgl-project/SpecForge configs/deepseek-v2-lite-eagle3.json", yarn(1e4, 8, 40, 4096, gain=1.0),
           YARN, 1e4),
    scaled("rope-yarn-uneven", "yarn whose mscale and mscale_all_dim differ",
           sources.SPECFORGE_MODEL, yarn(1e4, 8, 40, 4096, gain=RATIO), UNEVEN,
           1e4),
    scaled("rope-mrope", "mrope: plain for text", "sgl-project/SpecForge configs/qwen2-5-vl-7B-eagle3.json", plain(1e6, 8), MROPE,
           1000000),
    scaled("rope-mrope-interleaved", "interleaved mrope, by a flag", "sgl-project/SpecForge configs/qwen3-vl-8b-eagle3.json",
           plain(5e6, 8), MROPE_INTERLEAVED, 5000000),
    scaled("rope-dynamic", "dynamic: plain up to max_position_embeddings", sources.SPECFORGE_MODEL, dynamic(1e6, 8, 4096),
           {"type": "dynamic", "factor": 2.0}, 1e6, max_position_embeddings=4096),
)  # fmt: skip

# --- AngelSlim --------------------------------------------------------------------------------------------------------

ANGELSLIM = partial(SPECFORGE, architectures=["Eagle3LlamaForCausalLM"], tie_word_embeddings=True, max_window_layers=28)
angelslim = partial(Layout, producer="AngelSlim", spelled=midlayer, dtype=torch.float16, w=QWEN_2B, target_layers=28)
SLIM = {"streams": (2, 14, 25), "rope": plain(10000, 8)}
PLURAL = ANGELSLIM(QWEN_2B, aux_hidden_states_layer_ids=[1, 13, 24])
VOICE = replace(QWEN_8B, Vd=96)

ANGELSLIM_ROWS = (
    angelslim("angelslim-bin", "pytorch_model.bin, tied by its word with a head of its own, base 10000 whatever rope_theta says",
              f"{sources.ANGELSLIM_MODEL}; wejoncy/sfllm#32", config=ANGELSLIM(QWEN_2B), save=bin_file, expects=SLIM),
    angelslim("angelslim-ids", "aux_hidden_states_layer_ids, safetensors, bfloat16",
              "Tencent/AngelSlim angelslim/compressor/speculative/train/models/target/target_model_wrapper.py",
              config=PLURAL, expects=SLIM,
              dtype=torch.bfloat16, same_as="angelslim-bin"),
    angelslim("angelslim-default", "rope type default without mrope: base 10000 too", sources.ANGELSLIM_MODEL,
              config=ANGELSLIM(QWEN_2B, rope_scaling={"rope_type": "default"}), expects=SLIM, same_as="angelslim-bin"),
    angelslim("angelslim-misspelt", "architecture LlamaForCausalLMEEagle3", "AngelSlim/Qwen3-1.7B_eagle3",
              config=ANGELSLIM(QWEN_2B, architectures=["LlamaForCausalLMEEagle3"]), expects=SLIM, same_as="angelslim-bin"),
    angelslim("angelslim-early-stop", "fc makes three channels more: exit signals",
              "Tencent/AngelSlim angelslim/compressor/speculative/inference/models/eagle3/draft/llama3_eagle3.py",
              parts={"exits": 3},
              config=ANGELSLIM(QWEN_2B, early_stop_method="confidence_progress_remain"), expects=SLIM, same_as="angelslim-bin"),
    angelslim("angelslim-mrope", "interleaved mrope: the base is the config's",
              "Tencent/AngelSlim angelslim/compressor/speculative/train/configs/qwen3-vl-4b-eagle3-mrope.json",
              config=ANGELSLIM(QWEN_2B, rope_scaling=MROPE_INTERLEAVED | {"type": "default"}, rope_theta=5000000),
              expects={"streams": (2, 14, 25), "rope": plain(5e6, 8)}),
    angelslim("angelslim-dynamic", "dynamic with an alpha that its own code ignores",
              "Tencent/AngelSlim angelslim/compressor/speculative/train/configs/hunyuan-1.8b-eagle3.json",
              config=ANGELSLIM(QWEN_2B, rope_scaling={"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}, rope_theta=10000.0,
                               max_position_embeddings=32768),
              expects={"streams": (2, 14, 25), "rope": dynamic(10000, 8, 32768)}),
    angelslim("angelslim-cosyvoice", "num_hidden_layers is the target's, the vocabulary whole", sources.ANGELSLIM_MODEL, w=VOICE,
              config=ANGELSLIM(VOICE, architectures=["CosyVoice3Eagle3LlamaForCausalLM"], num_hidden_layers=24), target_layers=24,
              expects={"streams": (2, 12, 21), "rope": plain(10000, 8)}),
)  # fmt: skip

LAYOUTS: tuple[Layout, ...] = (*SAFEAILAB, TO_HF, *SPELLINGS, *OTHERS, *ANGELSLIM_ROWS, *MORE, *WIDE)
