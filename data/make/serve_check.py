"""Predict each vLLM run of data/serving by hand, from states recorded with `transformers`: data/serving/predicted.json.

    python data/make/serve_check.py      (after serve.py; a few minutes on one core)

The rule. The texts are the target's own greedy answers, read in float32, and K - 1 more of its tokens behind each: an engine's
last round may accept drafts past the end of the request, and counts them. The walk begins at row P - 1 and ends where the
request did. Where the engine embedded a wrong token beside a row of the prompt (`misfed` in runs.json), the same one is fed.
Held against the engine, round by round: how many drafts were accepted, and the drafts up to the first that missed.
"""

import json
import os
import platform
import shutil
from pathlib import Path

import torch
import transformers
from tqdm import tqdm

import eagle3lib as e3
from eagle3lib.judge.rounds import margin
from eagle3lib.show.live import longer

SERVING = Path("data/serving")
STREAMS = (0, 1, 2, 14, 15, 26, 27)


@torch.inference_mode()
def with_gaps(target, capture: e3.Capture, more: int) -> tuple[e3.Capture, list[float]]:
    """The capture's text with `more` greedy tokens behind it, its states recorded again; and the gap between the two best
    logits at each token that the target wrote. The loss mask covers what was added."""
    P, recorded = int(capture.loss_mask.int().argmax()), longer(target, capture, more, STREAMS)
    ids = recorded.token_ids
    logits = target(ids[None]).logits[0, P - 1 : -1]  # [written, V]
    assert torch.equal(logits.argmax(-1), ids[P:]), f"{capture.name}: not the target's own text"
    best = logits.topk(2).values
    return recorded, (best[:, 0] - best[:, 1]).tolist()


def predicted(drafter: e3.Drafter, capture: e3.Capture, T: int, K: int) -> list[list]:
    """Rounds of a request whose text ended after T tokens: row, and the drafts up to the first miss, and how many hit."""
    rounds = e3.rounds_of(e3.chain_hits(drafter, capture, K), capture.token_ids.tolist(), K, T)
    return [[one.row, list(one.drafts), one.accepted] for one in rounds]


def compare(run: dict, engine: dict[str, list], found: dict[str, tuple], lengths: dict[str, int]) -> dict:
    """One run against its prediction."""
    K = run["steps"]
    ckpt = e3.open_checkpoint(Path("data/drafters") / run["drafter"], target="build/target")
    drafter = e3.Drafter(ckpt, ckpt.recipe.replace(streams=tuple(run["streams"])))
    same, rounds, equal, drafts, differences = 0, 0, 0, 0, []
    for name, theirs in engine.items():
        capture, gaps = found[name]
        ids = capture.token_ids.clone()
        P = int(capture.loss_mask.int().argmax())
        for row in run["misfed"].get(name, []):
            ids[row + 1] = ids[P - 1]  # tokens of the prompt are only fed: none is guessed
        ours = predicted(drafter, capture.replace(token_ids=ids), lengths[name], K)
        theirs = [[row, guesses[: accepted + 1], accepted] for row, guesses, accepted, _ in theirs]
        rounds += len(theirs)
        equal += sum(a in ours for a in theirs)
        drafts += sum(len(a[1]) for a in theirs)
        same += ours == theirs
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
            one = {"sample": name, "round": at, "predicted": ours[at : at + 1], "engine": theirs[at : at + 1]}
            if at < min(len(ours), len(theirs)):
                (row, mine, _), (_, yours, _) = ours[at], theirs[at]
                step = next((k for k, pair in enumerate(zip(mine, yours, strict=False)) if pair[0] != pair[1]), None)
                one["draft_gap"] = None if step is None else margin(drafter, capture, row, step, mine[step], yours[step])[0]
            if name in run["other_text"]:  # the engine's text went another way: a near tie of the target's, if the gap is small
                one["text_differs_at"], one["target_gap"] = run["other_text"][name], gaps[run["other_text"][name] - P]
            differences.append(one)
    return {
        "slug": run["slug"], "name": run["name"], "steps": K, "requests": len(engine), "requests_equal": same,
        "rounds": rounds, "rounds_equal": equal, "drafts_compared": drafts, "differences": differences,
    }  # fmt: skip


def write_reference(target, captures: list[e3.Capture]) -> None:
    """The texts whose rows the engine's folders hold, recorded with `transformers` in float32: captures/by_transformers."""
    out = SERVING / "captures" / "by_transformers"
    shutil.rmtree(out, ignore_errors=True)
    names = {c.name for c in e3.read_captures(SERVING / "captures" / "healthy_k3")}
    texts = {c.name: (c.token_ids, int(c.loss_mask.int().argmax())) for c in captures if c.name in names}
    recorded = sorted(e3.record_all(target, texts, (0, 2, 15, 27)), key=lambda c: c.name)
    note = "the texts of the engine's folders beside this one, float32"
    e3.write_captures(out, (c.replace(last=None, last_kind="none") for c in recorded), "SmolLM2-135M-Instruct", 30, None, note)


def main() -> None:
    served, engine = (json.loads((SERVING / f"{name}.json").read_text()) for name in ("runs", "rounds"))
    target = transformers.AutoModelForCausalLM.from_pretrained("build/target", dtype=torch.float32).eval()
    runs = [run for run in [*served["runs"], served["chunked"]] if run]
    more = max(run["steps"] for run in runs) - 1
    captures = list(e3.read_captures("data/captures/heldout"))
    write_reference(target, captures)
    found = {c.name: with_gaps(target, c, more) for c in tqdm(captures, desc="record", unit="prompt", disable=False)}
    lengths = {c.name: len(c.token_ids) for c in captures}
    results = []
    for run in tqdm(runs, desc="predict", unit="run", disable=False):
        results.append(compare(run, engine[run["slug"]], found, lengths))
    total = {key: sum(r[key] for r in results) for key in ("requests", "requests_equal", "rounds", "rounds_equal")}
    result = {
        "stamp": {
            "states": f"transformers {transformers.__version__}", "torch": torch.__version__, "python": platform.python_version(),
            "dtype": "float32", "engine": served["stamp"]["engine"], "tokens_recorded_past_the_end": more,
        },
        "total": total, "smallest_gap_of_the_target": min(min(gaps) for _, gaps in found.values()), "runs": results,
    }  # fmt: skip
    part = SERVING / "predicted.partial"
    part.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(part, SERVING / "predicted.json")
    print(f"serve_check: {total['rounds_equal']} of {total['rounds']} rounds as predicted, {SERVING / 'predicted.json'}")


if __name__ == "__main__":
    main()
