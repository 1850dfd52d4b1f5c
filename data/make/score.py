"""Score the demo's drafters on prompts kept out of their training: trained kinds, and other kinds. Writes scores.json here.

    python data/make/score.py

States are those that `answers.py` stored (half precision). The embedding-fed drafter is scored on the streams it was
trained on.
"""

import json
import platform
from pathlib import Path

import torch
from tqdm import tqdm
from train import load_answers

import eagle3lib as e3

HERE = Path(__file__).parent
STREAMS = {"healthy": None, "healthy_early1": None, "healthy_early2": None, "embedding_fed": (0, 2, 15)}
STEPS = 5


def captures(split: str, embedding) -> list[e3.Capture]:
    """Stored answers as captures; r_0 is looked up in the target's table."""
    made = []
    for sample in load_answers(Path("build/answers") / split):
        ids = sample["token_ids"].long()
        streams = {n: sample[f"stream.{n}"] for n in (2, 15, 27)} | {0: embedding.rows(ids[:-1])}
        made.append(e3.Capture(sample["id"], ids, sample["loss_mask"], streams, about={"kind": sample["kind"]}))
    return made


def main() -> None:
    target = e3.open_target("build/target")
    results = {"stamp": {"torch": torch.__version__, "python": platform.python_version()}, "rows": []}
    for split in ("heldout", "other"):
        some = captures(split, target.embedding())
        for name, streams in STREAMS.items():
            ckpt = e3.open_checkpoint(Path("data/drafters") / name, target="build/target")
            drafter = e3.Drafter(ckpt, ckpt.recipe.replace(streams=streams) if streams else None)
            acc = e3.accuracy(drafter, tqdm(some, desc=f"{name}, {split}"), STEPS)
            tau = e3.acceptance(drafter, some, e3.Chain(3))
            results["rows"].append(
                {
                    "drafter": name, "text": split, "prompts": len(some), "rows": int(acc.rows[:, 0].sum()),
                    "marginal": [round(acc.marginal(k), 4) for k in range(1, STEPS + 1)],
                    "step 1 interval": [round(x, 4) for x in acc.interval(1)],
                    "accept length, K = 3": round(tau.tau(3), 4), "interval": [round(x, 4) for x in tau.interval(3)],
                }
            )  # fmt: skip
            print(json.dumps(results["rows"][-1]))
    (HERE / "scores.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
