"""`make truth`: the two truths at length, on the demo. Writes results.json beside this file.

1. Logits of the demo's drafters by hand against `speculators`' own model, on stored inputs (reference made by
   `live_demo.py` in an environment with speculators; `--reference FOLDER`, else that part keeps its last result).
2. The walk over recorded states against live decoding: 24 prompts of 128 tokens, K = 1, 3, 5, 8, both drafters, round by
   round; and the decoded text against the target's own `generate`.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from tqdm import tqdm
from transformers import AutoModelForCausalLM, __version__

import eagle3lib as e3
from eagle3lib.measure.acceptance import walk

ROOT = Path(__file__).parent.parent.parent
RESULTS = Path(__file__).parent / "results.json"
DRAFTERS = ("healthy", "embedding_fed")
STEPS, TOKENS = (1, 3, 5, 8), 128
STREAMS = (0, 2, 15, 27)


def near_ties(drafter: e3.Drafter, capture: e3.Capture, steps: int) -> int:
    """Rounds could differ where the drafter's two best logits are closer than the two computations: counted, not excused."""
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    rows = torch.arange(len(ids) - 2)
    with torch.inference_mode():
        out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
        best = drafter.logits(out.normed).topk(2).values
    return int(((best[:, 0] - best[:, 1]) < 1e-3).sum())


def walks(target, prompts) -> list[dict]:
    """A row for each drafter and K: rounds, accepted drafts, and in how many prompts walk and live differ."""
    texts = []
    for name, prompt in tqdm(prompts, desc="the target's own text", unit="prompt"):
        mask = torch.ones(1, len(prompt), dtype=torch.int64)
        text = target.generate(prompt[None], attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)[0]
        texts.append(e3.record(target, text, len(prompt), STREAMS, name=name))
    rows = []
    for label in DRAFTERS:
        drafter = e3.Drafter(e3.open_checkpoint(ROOT / "data" / "drafters" / label, target=ROOT / "build" / "target"))
        recipes = {"as configured": drafter.recipe}
        if label == "embedding_fed":
            recipes["as trained"] = drafter.recipe.replace(streams=(0, 2, 15))
        for how, recipe in recipes.items():
            for K in STEPS:
                rows.append(compare(target, drafter.with_recipe(recipe), texts, K) | {"drafter": label, "fed": how})
    return rows


def compare(target, drafter: e3.Drafter, texts: list[e3.Capture], K: int) -> dict:
    """Live decoding of each text's prompt beside the walk over its recorded states."""
    found = {"K": K, "rounds": 0, "accepted": 0, "prompts": len(texts), "walks differ": [], "texts differ": [], "near ties": 0}
    for capture in tqdm(texts, desc=f"live, K = {K}", unit="prompt", leave=False):
        prompt = capture.token_ids[: int(capture.loss_mask.int().argmax())]
        live = e3.speculative_decode(target, drafter, prompt, e3.Chain(K), max_new_tokens=TOKENS)
        hits = e3.chain_hits(drafter, capture, K, complete=False)
        predicted = walk(hits.leading().numpy(), hits.start(), len(capture.token_ids) - 2, K)
        found["rounds"] += len(live.accepted)
        found["accepted"] += sum(live.accepted)
        if list(live.accepted) != predicted:
            found["walks differ"].append(capture.name)
        if live.token_ids.tolist() != capture.token_ids.tolist():
            found["texts differ"].append(capture.name)
        found["near ties"] += near_ties(drafter, capture, K)
    found["accept length"] = round(1 + found["accepted"] / found["rounds"], 4)
    return found


def forward_against(reference: Path, target: Path) -> list[dict]:
    """The largest difference of logits on demo captures, for each drafter and step; and argmaxes that differ."""
    rows = []
    for label in DRAFTERS:
        path = reference / f"{label}.safetensors"
        theirs = load_file(path)
        drafter = e3.Drafter(e3.open_checkpoint(ROOT / "data" / "drafters" / label, target=target))
        caps = e3.read_captures(ROOT / "data" / "captures" / "heldout")
        for i in range(sum(name.startswith("logits.") for name in theirs)):
            rows.append(
                {
                    "drafter": label,
                    "sample": caps[i].name,
                    **difference(drafter, caps[i], theirs[f"logits.{i}"], theirs[f"valid.{i}"]),
                }
            )
    return rows


@torch.inference_mode()
def difference(drafter: e3.Drafter, capture: e3.Capture, logits: torch.Tensor, valid: torch.Tensor) -> dict:
    """Ours against theirs [steps, R, Vd], where `valid` [steps, R]."""
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    rows, worst, other = torch.arange(len(ids) - 1), 0.0, 0
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    for step in range(len(logits)):
        keep = valid[step, rows].bool()
        rows, out = rows[keep], out.rows(keep)
        if step:
            out = drafter.forward(out.feed, ids[rows + 1 + step], rows, out.memory, step)
        ours = drafter.logits(out.normed)
        worst = max(worst, float((ours - logits[step, rows]).abs().max()))
        other += int((ours.argmax(-1) != logits[step, rows].argmax(-1)).sum())
    return {
        "largest difference of logits": worst,
        "argmax differs": other,
        "steps": len(logits),
        "largest logit": float(logits.abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--reference", type=Path, help="folder of healthy.safetensors and embedding_fed.safetensors, by live_demo.py"
    )
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stamp = {
        "torch": torch.__version__,
        "transformers": __version__,
        "python": platform.python_version(),
        "cpu": platform.machine(),
    }
    if args.reference:
        results["forward"] = {
            "stamp": stamp,
            "reference": "speculators 0.9.0",
            "rows": forward_against(args.reference, ROOT / "build" / "target"),
        }
    caps = e3.read_captures(ROOT / "data" / "captures" / "heldout")
    prompts = [(c.name, c.token_ids[: int(c.loss_mask.int().argmax())]) for c in caps]
    target = AutoModelForCausalLM.from_pretrained(ROOT / "build" / "target", dtype=torch.float32).eval()
    started = time.time()
    results["walk"] = {"stamp": stamp, "tokens": TOKENS, "rows": walks(target, prompts)}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    differ = [row for row in results["walk"]["rows"] if row["walks differ"] or row["texts differ"]]
    off = [row for row in results.get("forward", {}).get("rows", []) if row["largest difference of logits"] > 1e-3]
    print(f"{len(results['walk']['rows'])} runs in {time.time() - started:.0f} s")
    print(f"{len(differ)} differ from the walk or the text; {len(off)} forwards are off")
    raise SystemExit(bool(differ or off))


if __name__ == "__main__":
    main()
