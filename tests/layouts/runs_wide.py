"""Layouts that must open, the last part: NeMo Automodel, DeepSpec, P-EAGLE of every producer, latent attention."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from . import sources
from .files import as_is, before, inside, midlayer, shards
from .parts import GPT_OSS, LLAMA_8B, MASK_TOKEN, QWEN_4B, QWEN_8B, Mla, Widths, config
from .ropes import linear, llama3, magnified, plain, yarn
from .row import Layout
from .runs_more import IDS, MODELOPT, NESTED, TORCHSPEC, speculators_config, torchspec

# --- NeMo Automodel ---------------------------------------------------------------------------------------------------

BARE = ("lm_head.weight", "d2t", "t2d", "mask_hidden")
nemo = partial(Layout, producer="NeMo Automodel", spelled=before("model.", as_is, but=BARE), parts={"embed": "target"},
               target_layers=36)  # fmt: skip
STALE = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def nemo_config(w: Widths, **changes) -> dict:
    """The target's own config with the drafter's keys added: its depth is the target's."""
    added = {
        "architectures": ["LlamaEagle3DraftModel"], "model_type": "qwen3", "num_hidden_layers": 36, "num_aux_hidden_states": 3,
        "parallel_drafting": False, "target_hidden_size": w.target, "torch_dtype": ..., "dtype": "bfloat16",
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "transformers_version": "5.10.2",
    }  # fmt: skip
    return config(w, **added | changes)


GPT_OSS_YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 4096, "truncate": False}  # fmt: skip
NEMO = {"streams": (2, 18, 33), "eps": 1e-6, "rope": plain(1e6, 8)}
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

NEMO_ROWS = (
    nemo("nemo-model", "files under model/, names under model., the depth of the target, a stale quantization_config",
         sources.NEMO_MODEL, w=QWEN_8B, save=inside("model"), expects=NEMO,
         config=nemo_config(QWEN_8B, quantization_config=STALE)),
    nemo("nemo-consolidated", "three files under model/consolidated/", sources.NEMO_SERVE, w=QWEN_8B, expects=NEMO,
         config=nemo_config(QWEN_8B), save=inside("model/consolidated", shards), same_as="nemo-model"),
    nemo("nemo-flat", "the inner folder by itself", sources.NEMO_SERVE, w=QWEN_8B, config=nemo_config(QWEN_8B), expects=NEMO,
         same_as="nemo-model"),
    nemo("nemo-3.1", "fc_norm, five streams", sources.NEMO_MODEL, w=replace(QWEN_8B, n=5), save=inside("model"),
         parts={"embed": "target", "streams_norm": "fc_norm"},
         config=nemo_config(QWEN_8B, num_aux_hidden_states=5, fc_norm=True, norm_output=True),
         expects={"fc_norm": True, "norm_output": True, "streams": None}),
    nemo("nemo-gpt-oss", "biases, and yarn that is not rounded", f"{sources.NEMO}eagle/draft_gpt_oss.py", w=GPT_OSS,
         save=inside("model"),
         config=nemo_config(GPT_OSS, model_type="gpt_oss", rope_parameters=GPT_OSS_YARN, attention_bias=True, rms_norm_eps=1e-5,
                            num_hidden_layers=24),
         parts={"embed": "target", "bias": ATTENTION}, target_layers=24,
         expects={"streams": (2, 12, 21), "eps": 1e-5, "rope": yarn(1.5e5, 8, 32, 4096, whole=False)}),
)  # fmt: skip

# --- DeepSpec ---------------------------------------------------------------------------------------------------------

FIVE = replace(QWEN_4B, n=5, Vd=96)
TWO_FUSED = replace(FIVE, layers=2, fused=(0, 1))


def deepspec_config(w: Widths, ids: list[int], **changes) -> dict:
    added = {
        "architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3", "draft_vocab_size": ..., "target_layer_ids": ids,
        "num_target_layers": 36, "ttt_length": 7, "step_loss_decay": 0.8, "target_model_name_or_path": "Qwen/Qwen3-4B",
        "layer_types": ["full_attention"] * w.layers, "torch_dtype": ..., "dtype": "bfloat16", "transformers_version": "5.10.2",
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    }  # fmt: skip
    return config(w, **added | changes)


def ranks_beside(folder: Path) -> None:
    for rank in range(2):
        torch.save({"optimizer": {"exp_avg": torch.zeros(4)}}, folder / f"training_state.rank{rank}.pt")


deepspec = partial(Layout, producer="DeepSpec", target_layers=36,
                   parts={"embed": "target", "head": "target", "maps": False, "head_norms": True})  # fmt: skip
DEEPSPEC_ROWS = (
    deepspec("deepspec-qwen3",
             "five streams, the whole vocabulary without maps, norms of each head, training_state.rank*.pt beside",
             f"{sources.DEEPSPEC_MODEL}, deepspec/trainer/ckpt_manager.py",
             w=FIVE, config=deepspec_config(FIVE, [1, 9, 17, 25, 33]),
             beside=ranks_beside, expects={"streams": (2, 10, 18, 26, 34), "eps": 1e-6, "rope": plain(1e6, 8)}),
    deepspec("deepspec-two-layers", "every layer fused; target_layer_ids are outputs' whatever they begin with",
             sources.DEEPSPEC_MODEL,
             w=TWO_FUSED, config=deepspec_config(TWO_FUSED, [3, 10, 18, 26, 34], quantization_config=STALE), save=shards,
             expects={"streams": (4, 11, 19, 27, 35), "rope": plain(1e6, 8)}),
)  # fmt: skip

# --- P-EAGLE ----------------------------------------------------------------------------------------------------------

FOUR = replace(QWEN_8B, layers=4, Vd=96)
THREE = replace(LLAMA_8B, layers=3)
OSS_FOUR = replace(GPT_OSS, layers=4)
MASK = {"embed": "own", "mask": True}
AMAZON = config(OSS_FOUR, rms_norm_eps=1e-5, rope_theta=500000.0, ptd_token_id=MASK_TOKEN, eagle_config={IDS: [2, 12, 21]},
                rope_scaling={
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192})  # fmt: skip
SERVED = {"streams": (2, 12, 21), "eps": 1e-5, "mask_token": MASK_TOKEN, "rope": llama3(5e5, 8, 8)}

PEAGLE_ROWS = (
    Layout("specforge-peagle", "four layers, mask_hidden, the whole vocabulary with maps of zeros and ones",
           "sgl-project/SpecForge specforge/modeling/draft/peagle.py", "SpecForge P-EAGLE", FOUR, parts=MASK, target_layers=36,
           config=config(FOUR, architectures=["PEagleDraftModel"], rope_theta=1000000, rope_scaling=None,
           mask_token_id=MASK_TOKEN,
                         norm_before_residual=True),
           expects={"streams": (2, 18, 33), "mask_token": MASK_TOKEN, "norm_before_residual": True, "rope": plain(1e6, 8)}),
    Layout("speculators-peagle", "three layers, mask_hidden, a trained embedding",
           "vllm-project/speculators src/speculators/models/peagle/core.py",
           "speculators P-EAGLE", THREE, parts=MASK | {"head": "target"},
           config=speculators_config(THREE, architectures=["PEagleSpeculator"], speculators_model_type="peagle",
                                     mask_token_id=MASK_TOKEN, embed_requires_grad=True),
           expects={"streams": (2, 16, 29), "mask_token": MASK_TOKEN, "norm_before_residual": False, "rope": plain(1e4, 8)}),
    nemo("nemo-peagle", "two layers; mask_hidden without the prefix", f"{sources.NEMO}eagle/peagle_draft.py",
         w=replace(QWEN_8B, layers=2), parts=MASK, save=inside("model/consolidated"), expects=NEMO | {"mask_token": MASK_TOKEN},
         config=nemo_config(QWEN_8B, parallel_drafting=True, mask_token_id=MASK_TOKEN)),
    Layout("amazon-peagle", "four layers as layers.i., ptd_token_id",
           "amazon/gpt-oss-20b-p-eagle; aws-neuron/nkipy#70", None, OSS_FOUR,
           config=AMAZON, parts=MASK, target_layers=24, expects=SERVED),
    Layout("amazon-peagle-midlayer", "the first of four layers as midlayer.",
           "amazon's tensor names were not seen: both spellings are taken", None, OSS_FOUR, config=AMAZON, parts=MASK,
           target_layers=24, spelled=midlayer, same_as="amazon-peagle", expects=SERVED),
)  # fmt: skip

# --- latent attention -------------------------------------------------------------------------------------------------

KIMI = Widths(H=56, heads=4, kv=4, D=24, I=144, Vd=96, mla=Mla(q_rank=12, kv_rank=4, nope=16, rope=8, v=16))  # 7168 / 128
KIMI_31 = replace(KIMI, Vd=24)
QWEN_MLA = Widths(H=32, heads=2, kv=2, D=24, I=96, mla=Mla(q_rank=12, kv_rank=4, nope=16, rope=8, v=16))
PLAIN_QUERIES = replace(QWEN_MLA, mla=Mla(q_rank=None, kv_rank=4, nope=16, rope=8, v=12))
KIMI_YARN = {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0, "beta_slow": 1.0,
             "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
DEEPSEEK_YARN = KIMI_YARN | {"factor": 40.0, "beta_fast": 32.0}
KEYS = {"target_keys": ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"), "target_layers": 61}
SQUARED = magnified(64) ** 2


def mla_config(w: Widths, make=config, **changes) -> dict:
    m = w.mla
    added = {"q_lora_rank": m.q_rank, "kv_lora_rank": m.kv_rank, "qk_nope_head_dim": m.nope, "qk_rope_head_dim": m.rope,
             "v_head_dim": m.v, "head_dim": ..., "rope_theta": 50000.0, "rope_scaling": KIMI_YARN, "model_type": "kimi_k2",
             "architectures": ["Eagle3DeepseekV2ForCausalLM"], "rms_norm_eps": 1e-5}  # fmt: skip
    return make(w, **added | changes)


def latent(w: Widths, eps: float, scale: float) -> dict:
    """Fields of `recipe.mla`: widths, eps of its inner norms, and what scores are multiplied by beside 1 / sqrt(D)."""
    m = w.mla
    return {"q_rank": m.q_rank, "kv_rank": m.kv_rank, "nope": m.nope, "rope": m.rope, "v": m.v, "eps": eps, "scale": scale}


def kimi(base: float):
    return yarn(base, 8, 64, 4096, fast=1, gain=1.0)


NATIVE = {"embed": "target", "maps": False}
MLA_ROWS = (
    Layout("modelopt-kimi", "latent attention; inner norms of 1e-6 whatever rms_norm_eps says; no embedding, no maps, nulls",
           f"{sources.MODELOPT_EXPORT}; nvidia/Kimi-K2-Thinking-Eagle3",
           "ModelOpt", KIMI, parts={"maps": False, "head": "target"}, **KEYS,
           config=mla_config(KIMI, MODELOPT, eagle_config={IDS: [1, 29, 57]} | NESTED, n_routed_experts=None, top_k=50,
                             temperature=1.0, moe_layer_freq=None, sep_token_id=None),
           expects={"streams": (2, 30, 58), "eps": 1e-5, "mla": latent(KIMI, 1e-6, SQUARED), "rope": kimi(50000)}),
    Layout("modelopt-kimi-midlayer", "the same under midlayer., the spelling until 2025-12-19",
           "NVIDIA/Model-Optimizer#689",
           "ModelOpt", KIMI, parts={"maps": False, "head": "target"}, spelled=midlayer, same_as="modelopt-kimi", **KEYS,
           config=mla_config(KIMI, MODELOPT, eagle_config={IDS: [1, 29, 57]} | NESTED),
           expects={"streams": (2, 30, 58), "mla": latent(KIMI, 1e-6, SQUARED), "rope": kimi(50000)}),
    torchspec("torchspec-kimi", "latent attention with yarn of base 10000 whatever rope_theta says",
              sources.TORCHSPEC_MLA, w=KIMI, config=mla_config(KIMI, TORCHSPEC, eagle_config={IDS: [1, 29, 57]}), parts=NATIVE,
              target_keys=KEYS["target_keys"],
              expects={"streams": (2, 30, 58), "eps": 1e-5, "mla": latent(KIMI, 1e-5, SQUARED), "rope": kimi(10000)}),
    torchspec("torchspec-kimi-vllm", "the same as layers.0., boundary ids",
              sources.TORCHSPEC_EXPORT, w=KIMI, spelled=as_is, parts=NATIVE,
              config=mla_config(KIMI, TORCHSPEC, eagle_config={IDS: [2, 30, 58]}), same_as="torchspec-kimi",
              target_keys=KEYS["target_keys"], expects={"streams": (2, 30, 58), "mla": latent(KIMI, 1e-5, SQUARED)}),
    torchspec("torchspec-kimi-3.1", "latent attention and EAGLE-3.1, a pruned vocabulary",
              "lightseekorg/kimi-k2.6-eagle3.1-mla",
              w=KIMI_31, target_keys=KEYS["target_keys"], parts={"embed": "target", "streams_norm": "fc_norm"},
              config=mla_config(KIMI_31, TORCHSPEC, eagle_config={IDS: [1, 29, 57]}, fc_norm=True, norm_output=True),
              expects={"streams": (2, 30, 58), "fc_norm": True, "norm_output": True, "mla": latent(KIMI_31, 1e-5, SQUARED)}),
    torchspec("torchspec-mla-plain-queries", "q_lora_rank null: q_proj; no scaling, so the configured base",
              sources.TORCHSPEC_MLA,
              w=PLAIN_QUERIES,
              config=mla_config(PLAIN_QUERIES, TORCHSPEC, model_type="deepseek_v3", rope_scaling=None, rope_theta=1e6,
                                rms_norm_eps=1e-6), parts={"embed": "target"}, target_layers=36,
              expects={"streams": (2, 18, 33), "eps": 1e-6, "mla": latent(PLAIN_QUERIES, 1e-6, 1.0), "rope": plain(1e6, 8)}),
    torchspec("torchspec-mla-other-name", "architecture DeepSeekForCausalLMEagle3",
              "torchspec-project/TorchSpec configs/draft_models/qwen3_8b_eagle3_mla.json",
              w=QWEN_MLA, parts={"embed": "target"}, target_layers=36,
              config=mla_config(QWEN_MLA, TORCHSPEC, architectures=["DeepSeekForCausalLMEagle3"], model_type="deepseek_v3",
                                rope_theta=1000000, rms_norm_eps=1e-6),
              expects={"streams": (2, 18, 33), "mla": latent(QWEN_MLA, 1e-6, SQUARED), "rope": kimi(10000)}),
    torchspec("torchspec-mla-linear", "latent attention with linear scaling of base 10000",
              sources.TORCHSPEC_MLA, w=QWEN_MLA, target_layers=36,
              config=mla_config(QWEN_MLA, TORCHSPEC, rope_scaling={"type": "linear", "factor": 2.0}, rope_theta=1e6),
              parts={"embed": "target"}, expects={"mla": latent(QWEN_MLA, 1e-5, 1.0), "rope": linear(1e4, 8, 2)}),
    nemo("nemo-deepseek", "latent attention whose scores yarn does not magnify",
         f"{sources.NEMO}eagle/draft_deepseek.py", w=QWEN_MLA,
         save=inside("model"), target_layers=61, expects={
             "streams": (2, 30, 58), "mla": latent(QWEN_MLA, 1e-6, 1.0), "rope": yarn(1e4, 8, 40, 4096, gain=1.0)},
         config=mla_config(QWEN_MLA, nemo_config, architectures=["LlamaEagle3DraftModel"], model_type="deepseek_v3",
         num_hidden_layers=61,
                           rope_parameters=DEEPSEEK_YARN | {"rope_theta": 10000.0}, rope_theta=..., rope_scaling=...,
                           rms_norm_eps=1e-6)),
)  # fmt: skip

WIDE: tuple[Layout, ...] = (*NEMO_ROWS, *DEEPSPEC_ROWS, *PEAGLE_ROWS, *MLA_ROWS)
