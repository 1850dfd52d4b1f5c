"""Record the battery's texts: what the faults are tried on. Written to build/battery/, which is not committed (0.3 GB).

    python tests/battery/record.py [SET ...]

    heldout   48 held-out prompts, the ones after the demo's 24 (kinds repeat), the target's greedy answers, up to 72 tokens
    other     48 prompts of kinds that no drafter was trained on, greedy
    t07, t10  the prompts of `heldout`, answers sampled at temperature 0.7 and 1.0 (all of the distribution, seeded)
    short     24 further held-out prompts, greedy, at most 20 tokens

Answers are written in float32, some prompts at a time; the states come from one pass over each text. A set that is there is
left alone, and an interrupted one goes on after its last batch of answers.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import eagle3lib as e3

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "data" / "make"))
from prompts import Prompt, all_prompts  # noqa: E402

OUT = ROOT / "build" / "battery"
STREAMS = (0, 1, 2, 3, 14, 15, 16, 26, 27, 28, 30)  # the drafters' own, their neighbours, and the last
LONGEST_PROMPT, BATCH, END = 72, 16, 2  # END: <|im_end|>
SETS = {  # name: (which prompts, longest answer, temperature)
    "heldout": ("heldout", 72, 0.0),
    "other": ("other", 72, 0.0),
    "short": ("short", 20, 0.0),
    "t07": ("heldout", 72, 0.7),
    "t10": ("heldout", 72, 1.0),
}
Asked = tuple[Prompt, list[int]]  # a prompt and its ids in the chat template


def chosen(tokenizer, which: str) -> list[Asked]:
    """Prompts of one turn that are short enough, in their own order, which is balanced over kinds; none of the demo's 24."""
    taken = {capture.name for capture in e3.read_captures(ROOT / "data" / "captures" / "heldout")}
    found = []
    for prompt in all_prompts():
        if prompt.split != ("other" if which == "other" else "heldout") or len(prompt.turns) > 1 or prompt.id in taken:
            continue
        message = [{"role": "user", "content": prompt.turns[0]}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
        if len(ids) <= LONGEST_PROMPT:
            found.append((prompt, ids))
    return found[48:72] if which == "short" else found[:48]


@torch.inference_mode()
def answers(target, asked: list[Asked], longest: int, temperature: float, seed: int) -> list[list[int]]:
    """What the target writes after each prompt, its end included."""
    widest = max(len(ids) for _, ids in asked)
    padded = torch.tensor([[END] * (widest - len(ids)) + ids for _, ids in asked])  # [B, widest], padded on the left
    mask = torch.tensor([[0] * (widest - len(ids)) + [1] * len(ids) for _, ids in asked])
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
    torch.manual_seed(seed)
    written = target.generate(padded, attention_mask=mask, max_new_tokens=longest, pad_token_id=END, **how)[:, widest:]
    return [row[: row.index(END) + 1] if END in row else row for row in written.tolist()]


def texts(target, tokenizer, name: str) -> list[tuple[Prompt, list[int], int]]:
    """Prompt, ids of the whole text, tokens of the prompt: one for each sample. Kept after each batch."""
    which, longest, temperature = SETS[name]
    kept = OUT / f"{name}.answers.json"
    asked = chosen(tokenizer, which)
    done = json.loads(kept.read_text()) if kept.exists() else []
    for first in tqdm(range(len(done), len(asked), BATCH), desc=f"{name}: answers", unit="batch"):
        done += answers(target, asked[first : first + BATCH], longest, temperature, seed=first)
        kept.write_text(json.dumps(done))
    return [(prompt, ids + written, len(ids)) for (prompt, ids), written in zip(asked, done, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="which sets; all of them without")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "build" / "target")
    target = AutoModelForCausalLM.from_pretrained(ROOT / "build" / "target", dtype=torch.float32).eval()
    for name in args.sets or SETS:
        folder = OUT / name
        known = {c.name for c in e3.read_captures(folder)} if (folder / "captures.json").exists() else set()
        if len(known) == len(chosen(tokenizer, SETS[name][0])):
            continue
        samples = (
            e3.record(target, torch.tensor(ids), asked, STREAMS, name=prompt.id, kind=prompt.kind, topic=prompt.topic)
            for prompt, ids, asked in texts(target, tokenizer, name)
            if prompt.id not in known
        )
        which, longest, temperature = SETS[name]
        note = (
            f"prompts: {which}; answers of up to {longest} tokens, {f'T = {temperature}' if temperature else 'greedy'}, float32"
        )
        e3.write_captures(folder, samples, target="SmolLM2-135M-Instruct", n_layers=30, note=note, resume=True)
        print(f"{folder}: {len(e3.read_captures(folder))} samples", flush=True)


if __name__ == "__main__":
    main()
