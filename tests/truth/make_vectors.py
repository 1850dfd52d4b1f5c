"""Make the stored reference vectors: tiny random EAGLE-3 drafters run by speculators itself.

Needs `speculators==0.9.0` (see README.md beside this file). Nothing of the drafter's mathematics is
written here: `Eagle3DraftModel.forward` runs unchanged and hooks record what it computes.

Row t of a text x_0 .. x_{T-1} is (g_t, embedding of x_{t+1}); R = T - 1 rows. Step k feeds x_{t+1+k}
into row t, so that its logits predict x_{t+2+k}; rows with t + 1 + k <= T - 1 are valid.
"""

import argparse
import json
import zlib
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig, shift_batch
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig, Qwen3Config
from transformers.utils import logging

ROWS_OF_TEXT = 12
VOCAB = 96
NOT_SAVED = {"verifier_lm_head.weight", "verifier_norm.weight"}

# Every case starts from BASE; a case names only what it changes.
BASE = {
    "kind": "llama",
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "inner": 40,
    "layers": 1,
    "eps": 1e-5,
    "bias": False,
    "rope": {"rope_type": "default", "rope_theta": 10000.0},
    "streams": 3,
    "draft_vocab": 48,
    "residual": False,
    "fc_in": None,
    "norm_output": False,
    "steps": 3,
}
ROPE_100K = {"rope_type": "default", "rope_theta": 100000.0}
ROPE_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def grid_cases():
    """All twelve combinations of the norm flags that the config class allows: {name: changes}."""
    cases = {}
    for residual in (False, True):
        for fc_in in (None, "norm_before_fc", "fc_norm"):
            for norm_output in (False, True):
                parts = [fc_in, "norm_output" if norm_output else None, "residual" if residual else None]
                name = "llama_" + ("_".join(p for p in parts if p) or "plain")
                cases[name] = {"residual": residual, "fc_in": fc_in, "norm_output": norm_output}
    return cases


CASES = {
    **grid_cases(),
    "llama_mha_wide": {"kv_heads": 4, "head_dim": 16, "residual": True, "eps": 1e-6},
    "llama_mqa_h64": {"hidden": 64, "heads": 4, "kv_heads": 1, "head_dim": 16, "inner": 64},
    "llama_narrow_h48": {"hidden": 48, "heads": 3, "kv_heads": 3, "head_dim": 8, "residual": True},
    "llama_bias": {"bias": True},
    "llama_full_vocab": {"draft_vocab": VOCAB},
    "llama_streams2": {"streams": 2, "fc_in": "fc_norm"},
    "llama_streams5": {"streams": 5, "fc_in": "norm_before_fc"},
    "llama_rope100k": {"rope": ROPE_100K, "head_dim": 16},
    "llama_rope_llama3": {"rope": ROPE_LLAMA3},
    "llama_one_step": {"steps": 1},
    "llama_two_steps": {"steps": 2, "residual": True},
    "llama_two_layers": {"layers": 2},
    "qwen3_plain": {"kind": "qwen3", "eps": 1e-6},
    "qwen3_residual_wide": {"kind": "qwen3", "residual": True, "head_dim": 16, "kv_heads": 1, "rope": ROPE_100K},
    "qwen3_fc_norm_norm_output": {"kind": "qwen3", "fc_in": "fc_norm", "norm_output": True, "kv_heads": 4},
    "qwen3_norm_before_fc_two_layers": {
        "kind": "qwen3",
        "fc_in": "norm_before_fc",
        "layers": 2,
        "residual": True,
        "norm_output": True,
    },
}


def eager_layer_config(kind, **fields):
    """A LlamaConfig or Qwen3Config that takes the plain (eager) attention, on any device."""
    config = {"llama": LlamaConfig, "qwen3": Qwen3Config}[kind](**fields)
    config._attn_implementation = "eager"
    return config


def speculators_config(steps):
    """The algorithm part of the config; no verifier is named, so none is ever loaded."""
    return SpeculatorsConfig(
        algorithm="eagle3",
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=steps)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
    )


def build_model(case):
    """The drafter of one case, weights not yet filled."""
    layer = eager_layer_config(
        case["kind"],
        vocab_size=VOCAB,
        hidden_size=case["hidden"],
        intermediate_size=case["inner"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"],
        head_dim=case["head_dim"],
        rms_norm_eps=case["eps"],
        attention_bias=case["bias"],
        max_position_embeddings=512,
        rope_parameters=dict(case["rope"]),
    )
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=case["draft_vocab"],
        norm_before_residual=case["residual"],
        norm_before_fc=case["fc_in"] == "norm_before_fc",
        fc_norm=case["fc_in"] == "fc_norm",
        norm_output=case["norm_output"],
        eagle_aux_hidden_state_layer_ids=list(range(1, 1 + case["streams"])),
        speculators_config=speculators_config(case["steps"]),
    )
    return Eagle3DraftModel(config).eval()


def random_weight(name, shape, gen):
    """A weight at a scale where each part of the drafter moves the logits. shape: the parameter's."""
    noise = torch.randn(shape, generator=gen)
    if name.endswith("bias"):
        return 0.5 * noise
    if len(shape) == 1:
        return (1 + 0.3 * noise).clamp(0.2, 1.8)
    if name.startswith("embed_tokens"):
        return 0.02 * noise
    gain = 1.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
    return gain * noise / shape[1] ** 0.5


def fill(model, gen):
    """Random weights and, for a pruned vocabulary, a random map: d2t [Vd] offsets, t2d [V] bool."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name not in NOT_SAVED:
                weight.copy_(random_weight(name, weight.shape, gen))
    if model.use_draft_vocab:
        kept = torch.randperm(VOCAB, generator=gen)[: model.draft_vocab_size].sort().values
        t2d = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, kept, True)
        model.load_vocab_mappings(t2d, kept - torch.arange(len(kept)))


def random_inputs(case, gen):
    """ids [T] int64 and g [T, n * H]: streams of different sizes, so that the fc norms matter."""
    n, hidden = case["streams"], case["hidden"]
    ids = torch.randint(0, VOCAB, (ROWS_OF_TEXT,), generator=gen)
    sizes = 1.5 ** (torch.arange(n) - (n - 1) / 2)
    g = torch.randn(ROWS_OF_TEXT, n, hidden, generator=gen) * sizes[:, None]
    return ids, g.reshape(ROWS_OF_TEXT, n * hidden)


def align(ids, g):
    """speculators' own alignment of a text. ids [T], g [T, n * H] -> forward's arguments, R = T - 1."""
    length = len(ids)
    batch = shift_batch(
        {
            "input_ids": ids,
            "hidden_states": g,
            "verifier_last_hidden_states": g,
            "loss_mask": torch.ones(length),
            "lengths": torch.tensor([length]),
            "position_ids": torch.arange(length),
        }
    )
    names = ("input_ids", "hidden_states", "position_ids")
    return {**{name: batch[name][None] for name in names}, "document_ids": torch.zeros(1, length - 1, dtype=torch.long)}


def valid_rows(length, steps):
    """valid [steps, R] bool: row t of step k has its fed token x_{t+1+k} inside the text of length T."""
    row, step = torch.arange(length - 1), torch.arange(steps)[:, None]
    return row + 1 + step <= length - 1


def add_hooks(model, seen):
    """Hooks that append to the lists in `seen` once per step; they change nothing. -> handles"""
    after_norm = model.config.norm_output
    return [
        model.lm_head.register_forward_hook(lambda _m, _a, out: seen["logits"].append(out[0])),
        model.norm.register_forward_hook(lambda _m, args, out: seen["hidden"].append((out if after_norm else args[0])[0])),
        model.embed_tokens.register_forward_pre_hook(lambda _m, args: seen["fed"].append(args[0][0])),
        model.layers[0].self_attn.register_forward_pre_hook(
            lambda _m, _a, kwargs: seen["mask"].append(kwargs["attention_mask"][0, 0]), with_kwargs=True
        ),
        model.rotary_emb.register_forward_pre_hook(lambda _m, args: seen["position"].append(args[1][0])),
    ]


def check_step(seen, step, ids):
    """Stop unless step `step` was masked, placed and fed as this file's head says. ids: [T]."""
    rows = len(ids) - 1
    causal = torch.ones(rows, rows).tril().bool()
    allowed = torch.cat([causal] + [torch.eye(rows).bool()] * step, dim=1)
    mask = seen["mask"][step]
    assert torch.equal(mask == 0, allowed) and torch.equal(mask == -torch.inf, ~allowed)
    assert torch.equal(seen["position"][step], torch.arange(rows) + 1 + step)
    assert torch.equal(seen["fed"][step][: rows - step], ids[1 + step :])


def record(model, ids, g, steps):
    """Run the drafter with the true tokens fed. -> logits [steps, R, Vd], hidden [steps, R, H].

    hidden is the state that a step feeds into the next one: after the final norm only when the config
    says norm_output, else the last layer's output.
    """
    seen = {name: [] for name in ("logits", "hidden", "fed", "mask", "position")}
    handles = add_hooks(model, seen)
    with torch.no_grad():
        draft_ids = model(**align(ids, g), ttt_steps=steps)
    for handle in handles:
        handle.remove()
    for step in range(steps):
        check_step(seen, step, ids)
        assert torch.equal(draft_ids[step][0], seen["logits"][step].argmax(-1))
    return torch.stack(seen["logits"]), torch.stack(seen["hidden"])


def reload(folder):
    """The saved drafter, read back by speculators; only the step that fetches a verifier is left out."""
    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    original = Eagle3DraftModel.load_verifier_weights
    Eagle3DraftModel.load_verifier_weights = lambda _self: None
    try:
        return Eagle3DraftModel.from_pretrained(folder, config=config).eval()
    finally:
        Eagle3DraftModel.load_verifier_weights = original


def metadata(name, case):
    """The header of reference.safetensors: one JSON text (more keys would be stored in random order)."""
    changed = {key: case[key] for key in BASE if case[key] != BASE[key]}
    about = {
        "speculators": version("speculators"),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "case": name,
        "changed_from_base": changed,
        "valid": "compare logits[k, t] and hidden[k, t] only where valid[k, t]: t + 1 + k <= T - 1",
    }
    return {"about": json.dumps(about)}


def save(model, folder):
    """config.json and model.safetensors as save_pretrained writes them (its config.py copy is dropped)."""
    model.save_pretrained(folder)
    (folder / "config.py").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)


def make_case(name, out):
    """Build, run and store one case under out/name."""
    case = {**BASE, **CASES[name]}
    gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = build_model(case)
    fill(model, gen)
    ids, g = random_inputs(case, gen)
    logits, hidden = record(model, ids, g, case["steps"])
    folder = out / name
    save(model, folder)
    again, _ = record(reload(folder), ids, g, case["steps"])
    assert torch.equal(logits, again) and logits.isfinite().all()
    tensors = {"ids": ids, "g": g, "logits": logits, "hidden": hidden, "valid": valid_rows(len(ids), case["steps"])}
    save_file(tensors, folder / "reference.safetensors", metadata=metadata(name, case))
    (folder / "reference.safetensors").chmod(0o644)
    print(f"{name:36s} logits {tuple(logits.shape)} std {logits.std():.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "vectors")
    parser.add_argument("names", nargs="*", help="cases to make (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for name in args.names or CASES:
        make_case(name, args.out)


if __name__ == "__main__":
    main()
