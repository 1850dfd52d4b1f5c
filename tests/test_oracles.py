"""Each family's forward beside one that is not ours: `transformers`' decoder layer, with EAGLE-3's two-input change made here.

The change: q, k and v read [input_layernorm(embedding), hidden_norm(state)], and the residual is the state. Everything else
(heads, q/k norms, latent attention, rotary tables, biases, MLP) is transformers' own code.
"""

import json
from dataclasses import dataclass, field, replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import DeepseekV3Config, LlamaConfig, Qwen3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3 import modeling_qwen3 as qwen3

import eagle3lib as e3
from eagle3lib.run.attention import rotate
from eagle3lib.run.drafter import Memory

H, V, INTER, ROWS = 48, 64, 56, 14
PARTS = {
    "llama": (LlamaConfig, llama.LlamaAttention, llama.LlamaMLP, llama.LlamaRMSNorm, llama.LlamaRotaryEmbedding),
    "qwen3": (Qwen3Config, qwen3.Qwen3Attention, qwen3.Qwen3MLP, qwen3.Qwen3RMSNorm, qwen3.Qwen3RotaryEmbedding),
    "mla": (DeepseekV3Config, deepseek.DeepseekV3Attention, deepseek.DeepseekV3MLP, deepseek.DeepseekV3RMSNorm,
            deepseek.DeepseekV3RotaryEmbedding),
}  # fmt: skip
COMMON = {"hidden_size": H, "intermediate_size": INTER, "vocab_size": V, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "max_position_embeddings": 4096}  # fmt: skip
GQA = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # 64 channels of heads, not H
LATENT = {"num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
          "v_head_dim": 10, "head_dim": 8}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}


@dataclass(frozen=True)
class Family:
    """One family: transformers' config, which layers are fused, and what the drafter's own config says beside it."""

    parts: str
    config: dict
    fused: tuple[int, ...] = (0,)
    layers: int = 1
    says: dict = field(default_factory=dict)


FAMILIES = {
    "llama": Family("llama", GQA),
    "llama with biases": Family("llama", GQA | {"attention_bias": True, "mlp_bias": True}),
    "llama, two layers": Family("llama", GQA, layers=2),
    "qwen3": Family("qwen3", GQA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3, every layer fused": Family("qwen3", GQA, (0, 1), 2, {"target_layer_ids": [1, 2, 3]}),
    "linear": Family("llama", GQA | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}}),
    "llama3": Family("llama", GQA | {"rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5,
        "original_max_position_embeddings": 64}}),
    "yarn": Family("llama", GQA | {"rope_parameters": YARN | {"rope_theta": 1e4}}),
    "yarn, not truncated": Family("llama", GQA | {"rope_parameters": YARN | {"rope_theta": 150000.0, "truncate": False}}),
    "yarn, both mscales": Family("llama", GQA | {"rope_parameters": YARN | {
        "rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 0.707}}),
    "dynamic, below its length": Family("llama", GQA | {"rope_parameters": {
        "rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}),
    "latent attention": Family("mla", LATENT | {
        "q_lora_rank": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 5e4}}),
    "latent, queries whole": Family("mla", LATENT | {
        "q_lora_rank": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e4}}),
    "latent, yarn": Family("mla", LATENT | {"q_lora_rank": 24, "rope_parameters": YARN | {
        "rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 1.0}}),
}  # fmt: skip


class Layer(nn.Module):
    """transformers' attention and MLP; the first matrices of a fused layer are 2H wide."""

    def __init__(self, family: Family, config, number: int):
        super().__init__()
        _, attention, mlp, norm, _ = PARTS[family.parts]
        self.fused = number in family.fused
        self.self_attn, self.mlp = attention(config, number), mlp(config)
        self.input_layernorm, self.post_attention_layernorm = norm(H, 1e-5), norm(H, 1e-5)
        if self.fused:
            self.hidden_norm = norm(H, 1e-5)
            for name in ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa"):
                if (old := getattr(self.self_attn, name, None)) is not None:
                    setattr(self.self_attn, name, nn.Linear(2 * H, old.out_features, bias=old.bias is not None))

    def forward(self, hidden, embedded, turn, mask):
        if self.fused:
            x = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], dim=-1)
        else:
            x = self.input_layernorm(hidden)
        hidden = hidden + self.self_attn(x, position_embeddings=turn, attention_mask=mask)[0]
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Oracle(nn.Module):
    """The drafter of one family, from transformers' parts."""

    def __init__(self, family: Family):
        super().__init__()
        kind, _, _, norm, rotary = PARTS[family.parts]
        self.config = kind(**COMMON, **family.config)
        self.config._attn_implementation = "eager"
        self.layers = nn.ModuleList(Layer(family, self.config, i) for i in range(family.layers))
        self.fc, self.norm = nn.Linear(3 * H, H, bias=False), norm(H, 1e-5)
        self.embed_tokens, self.lm_head = nn.Embedding(V, H), nn.Linear(H, V, bias=False)
        self.rotary = [rotary(self.config)]  # in a list: its table is no weight
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.3) if weight.ndim > 1 else nn.init.uniform_(weight, 0.5, 1.5)

    @torch.no_grad()
    def forward(self, hidden, ids):
        """Logits and the state to feed next, of rows 0, 1, ... with states [T, H] and tokens [T]."""
        T, embedded, hidden = len(ids), self.embed_tokens(ids)[None], hidden[None]
        mask = torch.full((T, T), float("-inf")).triu(1)[None, None]
        turn = self.rotary[0](hidden, torch.arange(T)[None])
        for layer in self.layers:
            hidden = layer(hidden, embedded, turn, mask)
        return self.lm_head(self.norm(hidden))[0], hidden[0]


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


def written(oracle: Oracle, family: Family, folder) -> e3.Checkpoint:
    config = {**COMMON, **family.config, "num_hidden_layers": family.layers, "architectures": ["LlamaForCausalLMEagle3"],
              "draft_vocab_size": V, **family.says}  # fmt: skip
    if family.parts == "mla":
        config["architectures"] = ["Eagle3DeepseekV2ForCausalLM"]
    folder.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in oracle.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return e3.open_checkpoint(folder)


def test_the_forward_is_that_of_transformers(family, tmp_path):
    """Logits and fed states of all rows, for states that look like what `fc` makes, within float32's noise."""
    torch.manual_seed(0)
    oracle = Oracle(family)
    drafter = e3.Drafter(written(oracle, family, tmp_path / "drafter"))
    ids, hidden = torch.randint(0, V, (ROWS,)), torch.randn(ROWS, H)
    logits, feed = oracle(hidden, ids)
    out = drafter.forward(hidden, ids, torch.arange(ROWS), Memory())
    torch.testing.assert_close(out.feed, feed, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(drafter.logits(out.normed), logits, rtol=1e-4, atol=1e-4)
    assert logits.std() > 0.5  # nothing is near zero, where all would agree


def test_later_steps_are_those_of_transformers(family, tmp_path):
    """Three steps after row 8, states fed back: the oracle runs everything again, the made-up states behind."""
    torch.manual_seed(1)
    oracle = Oracle(family)
    drafter = e3.Drafter(written(oracle, family, tmp_path / "drafter"))
    ids, hidden = torch.randint(0, V, (ROWS,)), torch.randn(ROWS, H)
    drafted, states, tokens = [], hidden[:9], ids[:9]
    for step in range(3):
        logits, feed = oracle(states, tokens)
        drafted.append(logits[-1])
        states, tokens = torch.cat([states, feed[-1:]]), torch.cat([tokens, ids[9 + step : 10 + step]])
    out = drafter.forward(hidden[:9], ids[:9], torch.arange(9), Memory())
    mine = [drafter.logits(out.normed)[-1]]
    out = out.rows(torch.tensor([8]))
    for step in (1, 2):
        out = drafter.forward(out.feed, ids[8 + step : 9 + step], torch.tensor([8]), out.memory, step)
        mine.append(drafter.logits(out.normed)[0])
    torch.testing.assert_close(torch.stack(mine), torch.stack(drafted), rtol=1e-4, atol=1e-4)


def test_parallel_drafts_are_one_pass_of_transformers(tmp_path):
    """P-EAGLE, two layers: the text's rows, then K - 1 times `mask_hidden` through `fc` with the mask token, in one pass."""
    torch.manual_seed(2)
    family, K, mask = Family("llama", GQA, layers=2), 4, 5
    oracle = Oracle(family)
    oracle.register_buffer("mask_hidden", torch.randn(1, 1, 3 * H))
    drafter = e3.Drafter(written(oracle, replace(family, says={"mask_token_id": mask}), tmp_path / "drafter"))
    ids, g = torch.randint(0, V, (ROWS,)), torch.randn(ROWS, 3 * H)
    hidden = torch.cat([oracle.fc(g), oracle.fc(oracle.mask_hidden[0]).expand(K - 1, H)]).detach()
    expected, _ = oracle(hidden, torch.cat([ids, torch.full((K - 1,), mask)]))
    out = drafter.forward(drafter.fuse(g), ids, torch.arange(ROWS), Memory())
    mine, last = [drafter.logits(out.normed)[-1]], torch.tensor([ROWS - 1])
    out = out.rows(last)
    for step in range(1, K):
        out = drafter.forward(out.feed, torch.zeros(1, dtype=torch.long), last, out.memory, step)  # which token does not matter
        mine.append(drafter.logits(out.normed)[0])
    torch.testing.assert_close(torch.stack(mine), expected[ROWS - 1 :], rtol=1e-4, atol=1e-4)


def test_a_part_of_each_head_turned_is_transformers_on_that_part(tmp_path):
    torch.manual_seed(3)
    drafter = e3.Drafter(written(Oracle(FAMILIES["llama"]), replace(FAMILIES["llama"], says={"partial_rotary_factor": 0.5}),
                                 tmp_path / "drafter"))  # fmt: skip
    q, k = torch.randn(2, 1, 4, ROWS, 16).unbind(0)  # [1, heads, rows, D]
    angles = torch.arange(ROWS)[:, None] * drafter.inv_freq
    both = torch.cat([angles, angles], dim=-1)[None]  # [1, rows, 8], transformers' way
    turned, _ = llama.apply_rotary_pos_emb(q[..., :8], k[..., :8], both.cos(), both.sin())
    mine = rotate(q[0].transpose(0, 1), angles.cos(), angles.sin())  # [rows, heads, D]
    torch.testing.assert_close(mine, torch.cat([turned, q[..., 8:]], dim=-1)[0].transpose(0, 1))
    assert torch.equal(drafter.inv_freq, torch.tensor([1e4 ** (-2 * i / 8) for i in range(4)]))
