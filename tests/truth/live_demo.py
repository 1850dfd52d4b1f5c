"""Run a drafter in SpecForge layout through speculators' Eagle3DraftModel and store its logits.

Drafter folder: config.json of LlamaForCausalLMEagle3 and model.safetensors with midlayer.*, fc, norm,
lm_head [Vd, H], d2t [Vd] offsets, t2d [V] bool; the embedding is taken from the target folder.
Sample file: token_ids [T] and stream.{n} [T, Ht] for each n given with --streams, in fc's order.
Everything is widened to float32 first. Alignment and valid rows: see make_vectors.py.

Out file, for the i-th sample: rows.{i} [R] int64 (all T - 1, or the last ones with --last), logits.{i} [steps, R, Vd]
float32 and valid.{i} [steps, R] bool.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import torch
from make_vectors import NOT_SAVED, eager_layer_config, record, speculators_config, valid_rows
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from transformers.utils import logging

EMBEDDING = "model.embed_tokens.weight"


def rope_parameters(config):
    """The rope part of a drafter's config.json, in either the older or the newer spelling."""
    if config.get("rope_parameters"):
        return dict(config["rope_parameters"])
    scaling = dict(config.get("rope_scaling") or {})
    scaling["rope_type"] = scaling.pop("type", None) or scaling.get("rope_type", "default")
    return {"rope_theta": float(config["rope_theta"]), **scaling}


def layer_config(config, vocab_size):
    """The LlamaConfig of the drafter's one layer, with the target's vocabulary size."""
    same = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
    )
    optional = ("head_dim", "attention_bias", "mlp_bias", "hidden_act")
    fields = {name: config[name] for name in same}
    fields |= {name: config[name] for name in optional if config.get(name) is not None}
    return eager_layer_config(
        "llama", vocab_size=vocab_size, num_hidden_layers=1, rope_parameters=rope_parameters(config), **fields
    )


def load_weights(drafter, target):
    """speculators' names -> tensors (floats as float32): the drafter's own and the target's embedding."""
    weights = {
        name.replace("midlayer.", "layers.0."): tensor for name, tensor in load_file(drafter / "model.safetensors").items()
    }
    with safe_open(target / "model.safetensors", "pt") as file:
        weights["embed_tokens.weight"] = file.get_tensor(EMBEDDING)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}


def load_model(drafter, target, streams, steps):
    """The drafter as an Eagle3DraftModel in float32; stops unless every weight finds its place."""
    weights = load_weights(drafter, target)
    config = json.loads((drafter / "config.json").read_text())
    draft_vocab, hidden = weights["lm_head.weight"].shape
    if weights["fc.weight"].shape[1] != len(streams) * hidden:
        raise SystemExit(f"fc takes {weights['fc.weight'].shape[1]} values, not {len(streams)} x {hidden}")
    layer = layer_config(config, weights["embed_tokens.weight"].shape[0])
    model = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=draft_vocab,
            norm_before_residual=False,
            eagle_aux_hidden_state_layer_ids=list(streams),
            speculators_config=speculators_config(steps),
        )
    ).eval()
    model.load_vocab_mappings(weights.pop("t2d", None), weights.pop("d2t", None))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    absent = set(missing) - NOT_SAVED - {"d2t", "t2d"}
    if absent or unexpected:
        raise SystemExit(f"weights absent: {sorted(absent)}; unknown: {sorted(unexpected)}")
    return model


def load_sample(path, streams):
    """-> ids [T] int64, g [T, n * Ht] float32."""
    sample = load_file(path)
    g = torch.cat([sample[f"stream.{n}"].float() for n in streams], dim=-1)
    return sample["token_ids"].long(), g


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--samples", type=Path, nargs="+", required=True)
    parser.add_argument("--streams", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--last", type=int, help="store only so many rows, the last of each sample")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    model = load_model(args.drafter, args.target, args.streams, args.steps)
    out = {}
    for i, path in enumerate(args.samples):
        ids, g = load_sample(path, args.streams)
        logits, _ = record(model, ids, g, args.steps)
        rows = torch.arange(len(ids) - 1)[-args.last if args.last else 0 :]
        out[f"rows.{i}"] = rows
        out[f"logits.{i}"] = logits[:, rows].contiguous()
        out[f"valid.{i}"] = valid_rows(len(ids), args.steps)[:, rows].contiguous()
        print(f"{path.name}: logits {tuple(out[f'logits.{i}'].shape)} std {out[f'logits.{i}'].std():.2f}")
    about = {
        "speculators": version("speculators"),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "samples": [path.name for path in args.samples],
    }
    save_file(out, args.out, metadata={"about": json.dumps(about)})


if __name__ == "__main__":
    main()
