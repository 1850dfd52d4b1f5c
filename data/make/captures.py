"""Record the demo's captures: 24 held-out prompts, the target's greedy answers, r_0, r_2, r_15, r_27 and the last state.

    python data/make/captures.py [--out data/captures/heldout]

The answers are written in float32, one prompt at a time, by `generate`, so that they are the target's own; the states come
from one pass over each text and are kept in half precision.
"""

import argparse
from pathlib import Path

import torch
from prompts import Prompt, all_prompts
from transformers import AutoModelForCausalLM, AutoTokenizer

import eagle3lib as e3

PROMPTS, ANSWER_TOKENS, LONGEST_PROMPT = 24, 72, 72
STREAMS = (0, 2, 15, 27)


def chosen(tokenizer) -> list[tuple[Prompt, torch.Tensor]]:
    """The first held-out prompts of one turn, of different kinds, that are short enough to keep the folder small."""
    found, kinds = [], set()
    for prompt in all_prompts():
        if prompt.split != "heldout" or len(prompt.turns) > 1 or prompt.kind in kinds:
            continue
        message = [{"role": "user", "content": prompt.turns[0]}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt")["input_ids"][0]
        if len(ids) <= LONGEST_PROMPT:
            found.append((prompt, ids))
            kinds.add(prompt.kind)
    return found[:PROMPTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--out", type=Path, default=Path("data/captures/heldout"))
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval()

    def samples():
        for prompt, ids in chosen(tokenizer):
            mask = torch.ones(1, len(ids), dtype=torch.int64)
            text = target.generate(ids[None], attention_mask=mask, max_new_tokens=ANSWER_TOKENS, do_sample=False)[0]
            yield e3.record(target, text, len(ids), STREAMS, name=prompt.id, kind=prompt.kind, topic=prompt.topic)

    note = f"held-out prompts of trained kinds; greedy answers of up to {ANSWER_TOKENS} tokens, written in float32"
    caps = e3.write_captures(args.out, samples(), target="SmolLM2-135M-Instruct", n_layers=30, note=note)
    print(f"{args.out}: {len(caps)} samples, {sum(len(c.token_ids) for c in caps)} tokens")


if __name__ == "__main__":
    main()
