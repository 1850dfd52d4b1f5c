"""`make truth`: the two truths at length, on the demo. Writes results_NAME.json beside this file, NAME a drafter's.

1. Logits of the demo's drafters by hand against `speculators`' own model, on stored inputs (reference made by
   `live_demo.py` in an environment with speculators; `--reference FOLDER`, else that part keeps its last result).
2. The walk over recorded states against live decoding: 24 prompts of 128 tokens, K = 1, 3, 5, 8, both drafters, round by
   round; and the decoded text against the target's own `generate`.
3. The same for draft trees, three of each machine (`eagle3lib/run/tree.py`).
"""

import argparse
import json
import platform
from pathlib import Path

import torch
from safetensors.torch import load_file
from teacher import distance
from tqdm import tqdm
from transformers import AutoModelForCausalLM, __version__

import eagle3lib as e3
from eagle3lib.measure.acceptance import walk
from eagle3lib.run.tree import EagleTree, SglangTree, tree_hits

ROOT = Path(__file__).parent.parent.parent
DRAFTERS = {"healthy": (2, 15, 27), "embedding_fed": (0, 2, 15)}  # on the streams each was trained on
TOKENS = 128
PLANS = {
    "walk": [e3.Chain(K) for K in (1, 3, 5, 8)],
    "trees": [
        *(EagleTree(*counts) for counts in ((3, 4, 16), (5, 8, 40), (7, 10, 60))),  # depth, top_k, total_token
        *(SglangTree(*counts) for counts in ((3, 2, 6), (4, 4, 12), (5, 8, 32))),  # steps, top_k, draft_tokens
    ],
}
STREAMS = (0, 2, 15, 27)
TOLERANCE = 1e-3  # of logits that reach 30: float32 rounding of two orders of summation


TIE = 1e-3  # two best logits closer than this could come out either way: such rows are counted, not excused


@torch.inference_mode()
def near_ties(drafter: e3.Drafter, capture: e3.Capture) -> int:
    """Rows of one text whose first draft is a near tie."""
    g, ids = capture.joined(drafter.recipe), capture.token_ids
    rows = torch.arange(len(ids) - 2)
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    best = drafter.logits(out.normed).topk(2).values
    return int(((best[:, 0] - best[:, 1]) < TIE).sum())


def own_texts(target, prompts) -> list[e3.Capture]:
    """The target's greedy answers by `generate`, with their states in float32."""
    texts = []
    for name, prompt in tqdm(prompts, desc="the target's own text", unit="prompt"):
        mask = torch.ones(1, len(prompt), dtype=torch.int64)
        text = target.generate(prompt[None], attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)[0]
        texts.append(e3.record(target, text, len(prompt), STREAMS, name=name))
    return texts


def walks(label: str, part: str, prompts, again: bool) -> list[dict]:
    """A row for each plan. Each is kept in build/truth when it is done, and an interrupted run goes on after the last."""
    kept = ROOT / "build" / "truth" / f"{label}_{part}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(kept.read_text()) if kept.exists() and not again else []
    target = AutoModelForCausalLM.from_pretrained(ROOT / "build" / "target", dtype=torch.float32).eval()
    texts, drafter = own_texts(target, prompts), drafter_of(label)
    for plan in PLANS[part][len(rows) :]:
        rows.append(compare(target, drafter, texts, plan))
        kept.write_text(json.dumps(rows))
    kept.unlink()
    return rows


def compare(target, drafter: e3.Drafter, texts: list[e3.Capture], plan) -> dict:
    """Live decoding of each text's prompt beside the walk over its recorded states."""
    chain = isinstance(plan, e3.Chain)
    K = plan.steps if chain else plan.deepest
    found = {"plan": str(plan), "K": K, "rounds": 0, "accepted": 0, "prompts": len(texts), "walks differ": [], "texts differ": []}
    for capture in tqdm(texts, desc=f"live, {plan}", unit="prompt", leave=False):
        prompt = capture.token_ids[: int(capture.loss_mask.int().argmax())]
        live = e3.speculative_decode(target, drafter, prompt, plan, max_new_tokens=TOKENS)
        hits = e3.chain_hits(drafter, capture, K, complete=False) if chain else tree_hits(drafter, capture, plan)
        predicted = walk(hits.leading().numpy(), hits.start(), len(capture.token_ids) - 2, K)
        found["rounds"] += len(live.accepted)
        found["accepted"] += sum(live.accepted)
        if list(live.accepted) != predicted:
            found["walks differ"].append(capture.name)
        if live.token_ids.tolist() != capture.token_ids.tolist():
            found["texts differ"].append(capture.name)
        if chain:
            found["near ties"] = found.get("near ties", 0) + near_ties(drafter, capture)
    found["accept length"] = round(1 + found["accepted"] / found["rounds"], 4)
    return found


def forward_against(label: str, reference: Path) -> list[dict]:
    """For each committed capture: the largest difference of logits to `reference`, and how many argmaxes differ."""
    theirs, drafter, rows = load_file(reference), drafter_of(label), []
    for i, capture in enumerate(e3.read_captures(ROOT / "data" / "captures" / "heldout")):
        stored = {key: theirs[f"{key}.{i}"] for key in ("rows", "logits", "valid")}
        worst, other, held = distance(drafter, capture.joined(drafter.recipe), capture.token_ids, stored)
        largest = float(stored["logits"].abs().max())
        rows.append({"sample": capture.name, "rows": held, "largest difference of logits": worst, "argmax differs": other,
                     "largest logit": largest})  # fmt: skip
    return rows


def drafter_of(label: str) -> e3.Drafter:
    ckpt = e3.open_checkpoint(ROOT / "data" / "drafters" / label, target=ROOT / "build" / "target")
    return e3.Drafter(ckpt, ckpt.recipe.replace(streams=DRAFTERS[label]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, help="folder of healthy.safetensors and embedding_fed.safetensors")
    parser.add_argument(
        "--drafter", choices=DRAFTERS, nargs="*", default=list(DRAFTERS), help="only these; others keep their result"
    )
    parser.add_argument("--parts", choices=PLANS, nargs="*", default=list(PLANS), help="only these; none: only the forward")
    parser.add_argument("--again", action="store_true", help="do not go on from an interrupted run")
    args = parser.parse_args()
    stamp = {
        "torch": torch.__version__,
        "transformers": __version__,
        "python": platform.python_version(),
        "cpu": platform.machine(),
    }
    caps = e3.read_captures(ROOT / "data" / "captures" / "heldout")
    prompts = [(c.name, c.token_ids[: int(c.loss_mask.int().argmax())]) for c in caps]
    bad = 0
    for label in args.drafter:
        file = Path(__file__).parent / f"results_{label}.json"
        results = json.loads(file.read_text()) if file.exists() else {}
        if args.reference:
            rows = forward_against(label, args.reference / f"{label}.safetensors")
            results["forward"] = {"reference": "speculators 0.9.0", "steps": 3, "stamp": stamp, "rows": rows}
            bad += sum(row["largest difference of logits"] > TOLERANCE for row in rows)
        for part in args.parts:
            rows = walks(label, part, prompts, args.again)
            results[part] = {"tokens": TOKENS, "streams": DRAFTERS[label], "stamp": stamp, "rows": rows}
            bad += sum(bool(row["walks differ"] or row["texts differ"]) for row in rows)
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{file.name}: {json.dumps(results)[:600]} ...")
    print("all equal" if not bad else f"{bad} rows differ: see the result files")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
