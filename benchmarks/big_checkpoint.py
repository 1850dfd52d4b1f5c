"""A drafter of Kimi-K2.5's size: how long until it is inspected, and how much memory its forward takes.

    python benchmarks/big_checkpoint.py [--folder build/bench]      (`make bench`; writes 9 GB, once)

The files are written here, random, in the shapes of the published latent-attention drafters (7168 wide, 163,840 tokens,
bfloat16), the target's embedding in four shards beside it. Each measurement is a process of its own. Memory is what the process
holds by itself (`RssAnon` of /proc, sampled every 5 ms): pages of a mapped file are the file's, and the kernel takes them back.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from table import ROOT, figure, save, stamp

H, V, HEADS, Q, KV, NOPE, ROPE, VD, INTER, STREAMS = 7168, 163_840, 64, 1536, 512, 128, 64, 128, 18_432, 3
SHAPES = {
    "midlayer.self_attn.q_a_proj.weight": (Q, 2 * H), "midlayer.self_attn.q_a_layernorm.weight": (Q,),
    "midlayer.self_attn.q_b_proj.weight": (HEADS * (NOPE + ROPE), Q),
    "midlayer.self_attn.kv_a_proj_with_mqa.weight": (KV + ROPE, 2 * H),
    "midlayer.self_attn.kv_a_layernorm.weight": (KV,), "midlayer.self_attn.kv_b_proj.weight": (HEADS * (NOPE + VD), KV),
    "midlayer.self_attn.o_proj.weight": (H, HEADS * VD), "midlayer.mlp.gate_proj.weight": (INTER, H),
    "midlayer.mlp.up_proj.weight": (INTER, H), "midlayer.mlp.down_proj.weight": (H, INTER), "midlayer.hidden_norm.weight": (H,),
    "midlayer.input_layernorm.weight": (H,), "midlayer.post_attention_layernorm.weight": (H,), "fc.weight": (H, STREAMS * H),
    "norm.weight": (H,), "lm_head.weight": (V, H),
}  # fmt: skip
YARN = {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 1, "beta_slow": 1, "mscale": 1.0,
        "mscale_all_dim": 1.0}  # fmt: skip
CONFIG = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2", "hidden_size": H, "intermediate_size": INTER,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "num_hidden_layers": 1, "vocab_size": V, "draft_vocab_size": V,
    "q_lora_rank": Q, "kv_lora_rank": KV, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VD,
    "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "rope_scaling": YARN, "max_position_embeddings": 262_144,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
}  # fmt: skip
ROWS, SHARDS = 64, 4


def random(shape: tuple[int, ...]) -> torch.Tensor:
    """A matrix of normal numbers that keeps the size of what it is multiplied with; a norm of ones."""
    matrix = torch.empty(shape, dtype=torch.bfloat16)
    return matrix.normal_(std=shape[-1] ** -0.5) if len(shape) > 1 else torch.ones(shape).bfloat16()


def write(folder: Path) -> None:
    """The drafter and the target's shards, each written whole before its name is there."""
    drafter, target = folder / "drafter", folder / "target"
    for one in (drafter, target):
        one.mkdir(parents=True, exist_ok=True)
    if not (drafter / "config.json").exists():
        print("writing a drafter of 3.7 GB", file=sys.stderr)
        save_file({name: random(shape) for name, shape in SHAPES.items()}, drafter / "model.safetensors")
        (drafter / "config.json").write_text(json.dumps(CONFIG))
    if not (target / "config.json").exists():
        print("writing a target's embedding and head, 4.7 GB in four shards", file=sys.stderr)
        names = {"model.embed_tokens.weight": "0", "lm_head.weight": "1", "model.norm.weight": "2", "model.layers.0.x": "3"}
        shapes = {
            "model.embed_tokens.weight": (V, H),
            "lm_head.weight": (V, H),
            "model.norm.weight": (H,),
            "model.layers.0.x": (4, 4),
        }
        index = {}
        for name, shard in names.items():
            index[name] = f"model-{shard}-of-{SHARDS}.safetensors"
            save_file({name: random(shapes[name])}, target / index[name])
        (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        (target / "config.json").write_text(
            json.dumps({"hidden_size": H, "vocab_size": V, "num_hidden_layers": 61, "rms_norm_eps": 1e-5})
        )


COMMON = """
import json, threading, time
peak, stop = [0], threading.Event()
def anon():
    return int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1]) / 1024
def watch():
    while not stop.wait(0.005):
        peak[0] = max(peak[0], anon())
threading.Thread(target=watch, daemon=True).start()
import torch
import eagle3lib as e3
start, before = time.perf_counter(), anon()
"""
END = """
stop.set()
print(json.dumps({"seconds": time.perf_counter() - start, "MB": max(peak[0], anon()), "MB before": before, **found}))
"""
INSPECT = """
ckpt = e3.open_checkpoint(DRAFTER)
tensors = e3.inventory(ckpt)
found = {"findings": len(e3.audit(ckpt, tensors=tensors)), "tensors": len(tensors)}
"""
FORWARD = """
ckpt = e3.open_checkpoint(DRAFTER, target=TARGET)
drafter = e3.Drafter(ckpt, dtype=DTYPE)
used = sum(t.numel() * t.element_size() for t in [*drafter.weights.values(), drafter.head]) / 2**20
loaded = time.perf_counter()
ids = torch.arange(ROWS) * 1000
g = torch.randn(ROWS, 3 * ckpt.recipe.target_hidden_size, dtype=getattr(torch, DTYPE))
with torch.inference_mode():
    out = drafter.forward(drafter.fuse(g), ids, torch.arange(ROWS), e3.Memory())
    drafter.predict(out.normed)
found = {"MB used": used, "seconds of the forward": time.perf_counter() - loaded}
"""
ROWS_ONLY = """
target = e3.open_target(TARGET)
found = {"rows": len(target.embedding().rows(torch.randint(0, 163_000, (2048,))))}
"""


def measured(body: str, **names) -> dict:
    """What a fresh process prints."""
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    done = subprocess.run([sys.executable, "-c", given + COMMON + body + END], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    folder = parser.parse_args().folder
    write(folder)
    made_on = stamp()
    given = {"DRAFTER": str(folder / "drafter"), "TARGET": str(folder / "target"), "ROWS": ROWS}
    measured(INSPECT, **given)  # once for the file cache: what is measured is the library, not the disk
    inspect, rows = measured(INSPECT, **given), measured(ROWS_ONLY, **given)
    wide = rows["rows"] * H * 4 / 2**20  # MB
    found = [
        figure("inspecting a drafter of Kimi-K2.5's size", inspect["seconds"], "seconds", most=1.0),
        figure("memory to inspect it", inspect["MB"], "MB", most=300.0),
        figure("embedding rows of a sample from a sharded target, memory", (rows["MB"] - rows["MB before"]) / wide,
            "the rows", most=2.5),
    ]  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        one = measured(FORWARD, **given, DTYPE=dtype)
        memory = (one["MB"] - one["MB before"]) / one["MB used"]
        of = f"{one['MB used']:,.0f} MB of tensors"
        found.append(figure(f"its forward over {ROWS} rows, {dtype}, memory", memory, of, most=1.3))
        found.append(figure(f"the same, {dtype}", one["seconds of the forward"], "seconds, tensors still to be read"))
    save("big_checkpoint", made_on, found)


if __name__ == "__main__":
    main()
