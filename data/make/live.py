"""Decode the captures' prompts for real, with the demo's drafters drafting: data/live.json, the live run beside the prediction.

    python data/make/live.py

The target runs in `transformers` (float32, greedy, up to as many tokens as the captures hold) and verifies each round; counted
are the accepted drafts of each round. Half an hour on a core; each part that is done is kept, and a second run goes on.
"""

import json
import os
import platform
from pathlib import Path

import numpy as np
import torch
import transformers
from tqdm import tqdm

import eagle3lib as e3

OUT = Path("data/live.json")
STEPS = (1, 3, 5, 8)
RUNS = {  # name -> drafter, streams that the server captures
    "healthy": ("healthy", (2, 15, 27)),
    "embedding_fed, as trained": ("embedding_fed", (0, 2, 15)),
    "embedding_fed, as served": ("embedding_fed", (2, 15, 27)),
}


def main() -> None:
    target = transformers.AutoModelForCausalLM.from_pretrained("build/target", dtype=torch.float32).eval()
    stamp = {
        "engine": f"eagle3lib speculative_decode on transformers {transformers.__version__}", "torch": torch.__version__,
        "python": platform.python_version(), "dtype": "float32", "text": "greedy",
    }  # fmt: skip
    results = json.loads(OUT.read_text()) if OUT.exists() else {"stamp": stamp, "runs": []}
    done = {(run["name"], run["steps"]) for run in results["runs"]}
    captures = e3.read_captures("data/captures/heldout")
    for name, (folder, streams) in RUNS.items():
        ckpt = e3.open_checkpoint(Path("data/drafters") / folder, target="build/target")
        drafter = e3.Drafter(ckpt, ckpt.recipe.replace(streams=streams))
        for steps in STEPS:
            if (name, steps) in done:
                continue
            requests = {}
            for capture in tqdm(captures, desc=f"{name}, K = {steps}", unit="prompt"):
                prompt = capture.token_ids[: int(capture.loss_mask.int().argmax())]
                tokens = len(capture.token_ids) - len(prompt)
                live = e3.speculative_decode(target, drafter, prompt, e3.Chain(steps), max_new_tokens=tokens)
                assert live.token_ids.tolist() == capture.token_ids.tolist(), "not the text of the captures"
                requests[capture.name] = np.bincount(np.array(live.accepted, dtype=int), minlength=steps + 1).tolist()
            run = {"name": name, "drafter": folder, "streams": streams, "steps": steps, "requests": requests}
            results["runs"].append(run)
            part = OUT.with_suffix(".part")
            part.write_text(json.dumps(results) + "\n")
            os.replace(part, OUT)


if __name__ == "__main__":
    main()
