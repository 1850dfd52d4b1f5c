"""Drafter rows a second beside the floor: the matrix products of the very same forward, and nothing else.

    python benchmarks/forward.py [--folder build/bench] [--device cuda]      (`make bench`; a GPU was not tried)

One step of ROWS rows through `fuse`, `forward` and `predict`: the demo's drafter (576 wide), one in the shapes of drafters for
Llama-3.1-8B (4,096 wide, random, written once) and one in those for Kimi-K2.5 (7,168 wide, latent attention). The products are
taken down, operands and all, while the forward runs once, and multiplied again by themselves. Both in turn, several times; the
fastest of each counts, and their ratio.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from big_checkpoint import random, write
from table import ROOT, figure, save, stamp
from torch.utils._python_dispatch import TorchDispatchMode

import eagle3lib as e3

ROUNDS, REACH = 5, 0.7  # share of the products' speed that is aimed at
H, HEADS, KV, D, INTER, V, VD = 4096, 32, 8, 128, 14_336, 128_256, 32_000
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default}


class Products(TorchDispatchMode):
    """Takes down every matrix product that runs within, with its operands."""

    def __init__(self):
        super().__init__()
        self.made: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in PRODUCTS:
            self.made.append((function, args))
        return function(*args, **(kwargs or {}))

    def again(self) -> None:
        """Multiply them."""
        for function, args in self.made:
            function(*args)


def llama(folder: Path) -> Path:
    """A random drafter for a target of 4,096 channels, bfloat16, written once."""
    from safetensors.torch import save_file

    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shapes = {
            "midlayer.self_attn.q_proj.weight": (HEADS * D, 2 * H), "midlayer.self_attn.k_proj.weight": (KV * D, 2 * H),
            "midlayer.self_attn.v_proj.weight": (KV * D, 2 * H), "midlayer.self_attn.o_proj.weight": (H, HEADS * D),
            "midlayer.mlp.gate_proj.weight": (INTER, H), "midlayer.mlp.up_proj.weight": (INTER, H),
            "midlayer.mlp.down_proj.weight": (H, INTER), "fc.weight": (H, 3 * H), "lm_head.weight": (VD, H),
            "embed_tokens.weight": (V, H),
        }  # fmt: skip
        norms = ("midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm", "norm")
        shapes |= {f"{name}.weight": (H,) for name in norms}
        tensors = {name: random(shape) for name, shape in shapes.items()}
        save_file(tensors | {"d2t": torch.zeros(VD, dtype=torch.long)}, folder / "model.safetensors")
        config = {
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": H, "intermediate_size": INTER,
            "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": D, "num_hidden_layers": 1, "vocab_size": V,
            "draft_vocab_size": VD, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]},
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.no_grad()  # in inference mode a product is not taken apart before it can be taken down
def measure(folder: Path, target: Path | None, dtype: str, rows: int, device: str) -> dict:
    """Rows a second of one step and of its products alone, and the share."""
    ckpt = e3.open_checkpoint(folder, target=target)
    drafter = e3.Drafter(ckpt, device=device, dtype=dtype)
    r = ckpt.recipe
    g = torch.randn(rows, r.n_streams * r.target_hidden_size, dtype=drafter.dtype, device=drafter.device)
    at = torch.arange(rows, device=drafter.device)
    ids = at % r.vocab_size

    def step() -> None:
        out = drafter.forward(drafter.fuse(g), ids, at, e3.Memory())
        drafter.predict(out.normed)

    with Products() as products:
        step()
    took: dict[str, list[float]] = {"forward": [], "products": []}
    for _ in range(ROUNDS):
        for name, what in (("forward", step), ("products", products.again)):
            finish(drafter.device)
            start = time.perf_counter()
            what()
            finish(drafter.device)
            took[name].append(time.perf_counter() - start)
    mine, floor = (min(seconds) for seconds in took.values())
    return {
        "rows": rows,
        "rows a second": round(rows / mine),
        "products alone": round(rows / floor),
        "share": round(floor / mine, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    folder, name = asked.folder, "forward" if asked.device == "cpu" else f"forward_{asked.device}"
    write(folder)
    made_on = {**stamp(asked.device), "threads": torch.get_num_threads()}
    cases = {
        "576 wide, grouped heads": (ROOT / "data/drafters/healthy", ROOT / "build/target", 2048),
        "4,096 wide, grouped heads": (llama(folder / "llama"), None, 256),
        "7,168 wide, latent attention": (folder / "drafter", folder / "target", 128),
    }
    found = {
        f"{name}, {dtype}": measure(where, target, dtype, rows, asked.device)
        for name, (where, target, rows) in cases.items()
        for dtype in ("float32", "bfloat16")
    }
    rows = [
        figure(f"rows a second, {name}, {one['rows']:,} rows", one["share"],
               f"matrix products alone ({one['products alone']:,} rows/s)", least=REACH)
        for name, one in found.items()
    ]  # fmt: skip
    save(name, made_on, rows, measured=found)


if __name__ == "__main__":
    main()
