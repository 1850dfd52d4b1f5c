"""Small random drafters, targets and captures, written as real ones are, under a fixed seed."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import eagle3lib as e3

H, HEADS, KV, D, INTER, V, VD, LAYERS = 32, 4, 2, 8, 48, 96, 40, 6


def drafter_tensors(seed: int = 0, n_streams: int = 3) -> dict[str, torch.Tensor]:
    """A drafter in SpecForge's names, float32, at scales where its logits vary."""
    g = torch.Generator().manual_seed(seed)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=g) / columns**0.5

    def norm(width):
        return 1 + 0.2 * torch.randn(width, generator=g)

    ids = torch.randperm(V, generator=g)[:VD].sort().values
    return {
        "midlayer.self_attn.q_proj.weight": matrix(HEADS * D, 2 * H),
        "midlayer.self_attn.k_proj.weight": matrix(KV * D, 2 * H),
        "midlayer.self_attn.v_proj.weight": matrix(KV * D, 2 * H),
        "midlayer.self_attn.o_proj.weight": matrix(H, HEADS * D),
        "midlayer.mlp.gate_proj.weight": matrix(INTER, H),
        "midlayer.mlp.up_proj.weight": matrix(INTER, H),
        "midlayer.mlp.down_proj.weight": matrix(H, INTER),
        "midlayer.hidden_norm.weight": norm(H),
        "midlayer.input_layernorm.weight": norm(H),
        "midlayer.post_attention_layernorm.weight": norm(H),
        "fc.weight": matrix(H, n_streams * H),
        "norm.weight": norm(H),
        "lm_head.weight": 3 * matrix(VD, H),
        "d2t": ids - torch.arange(VD),
        "t2d": torch.zeros(V, dtype=torch.bool).index_fill_(0, ids, True),
        "embed_tokens.weight": torch.randn(V, H, generator=g),
    }


def drafter_config(**changes) -> dict:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": H, "intermediate_size": INTER,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": D, "num_hidden_layers": 1, "vocab_size": V,
        "draft_vocab_size": VD, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]},
    }  # fmt: skip
    return {**config, **changes}


def write_drafter(folder: Path, tensors: dict | None = None, **config) -> Path:
    """Write a drafter's folder. `config` changes fields of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors or drafter_tensors(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(drafter_config(**config)))
    return folder


def write_target(folder: Path, shard: str = "50GB", seed: int = 0) -> Path:
    """A random Llama of six layers with a tied embedding, saved by `transformers`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=H, intermediate_size=INTER, num_attention_heads=HEADS, num_key_value_heads=KV, num_hidden_layers=LAYERS,
        vocab_size=V, tie_word_embeddings=True, eos_token_id=1, bos_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size=shard)
    return folder


def loaded(folder: Path, endless: bool = False):
    """The target in `folder` as a live model; `endless`: its answers go on to their greatest length."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if endless:
        model.generation_config.eos_token_id = None
    return model


def capture(T: int = 20, prompt: int = 6, seed: int = 0, streams=(0, 2, 3, 4), width: int = H, name: str = "tiny") -> e3.Capture:
    """Random states under random tokens; the target "wrote" all from `prompt` on."""
    g = torch.Generator().manual_seed(seed)
    return e3.Capture(
        name=name,
        token_ids=torch.randint(0, V, (T,), generator=g),
        loss_mask=torch.arange(T) >= prompt,
        streams={n: torch.randn(T, width, generator=g) for n in streams},
        last=torch.randn(T, width, generator=g),
        last_kind="post_norm",
        known=dict.fromkeys(streams, "random"),
    )
