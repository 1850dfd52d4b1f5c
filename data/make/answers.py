"""The target's own greedy answers to the project's prompts, with the hidden states a drafter trains on.

    python data/make/answers.py --split train [--target build/target] [--out build/answers]

Prompts are answered many at a time (float32, greedy, up to `ANSWER_TOKENS` each). Every chunk of prompts becomes one
safetensors file: finished chunks are skipped when the command is run again. In a file, sample `i` has

    i.token_ids  [T]       int32    the whole conversation in the target's chat template, and its end
    i.loss_mask  [T]       bool     true where the target wrote the token
    i.stream.n   [T-1,576] float16  r_n for n in STREAMS: the residual stream after n decoder layers
    i.last       [T-1,576] float16  f, the last hidden state after the final norm

r_0, the embedding output, is not stored: it is a row of the target's embedding table.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from prompts import Prompt, all_prompts
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer

STREAMS = (2, 15, 27)
ANSWER_TOKENS = 160
CHUNK = 96
END = 2  # <|im_end|>


class Reserved(DynamicLayer):
    """A layer's keys and values in room reserved once: the stock one copies all of it at each token (a third of the time)."""

    def update(self, key_states, value_states, *args, **kwargs):
        B, heads, t, D = key_states.shape
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.room = [x.new_empty(B, heads, t + ANSWER_TOKENS, D) for x in (key_states, value_states)]
            self.length = 0
        for room, new in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, self.length : self.length + t] = new
        self.length += t
        self.keys, self.values = (room[:, :, : self.length] for room in self.room)  # [B, heads, length, D], views
        return self.keys, self.values

    def batch_select_indices(self, indices):
        self.room = [room[indices] for room in self.room]


def watch(model: torch.nn.Module, sink: dict[str, list[torch.Tensor]]) -> None:
    """From now on, every forward of `model` appends its r_n (n in STREAMS) and f, each [B, t, 576], to `sink`."""

    def before(n):
        return lambda _, args, kwargs: sink[f"stream.{n}"].append((args[0] if args else kwargs["hidden_states"]).half())

    for n in STREAMS:
        model.model.layers[n].register_forward_pre_hook(before(n), with_kwargs=True)
    model.model.norm.register_forward_hook(lambda _, __, out: sink["last"].append(out.half()))


@torch.inference_mode()
def answer(model, sink: dict[str, list], conversations: list[list[int]]) -> list[dict[str, torch.Tensor]]:
    """Greedy answers to conversations (token ids), all at once; what `sink` gathered is cut out for each of them."""
    for parts in sink.values():
        parts.clear()
    B, P = len(conversations), max(map(len, conversations))
    pad = [P - len(c) for c in conversations]
    ids = torch.tensor([[END] * p + c for p, c in zip(pad, conversations, strict=True)])  # [B, P], padded on the left
    mask = torch.arange(P)[None, :] >= torch.tensor(pad)[:, None]
    position = (mask.cumsum(1) - 1).clamp(min=0)
    rows = torch.arange(B)  # which conversation each row of the shrinking batch is
    states = [{name: [] for name in sink} for _ in range(B)]
    written: list[list[int]] = [[] for _ in range(B)]
    cache, feed = DynamicCache(config=model.config), ids
    cache.layers = [Reserved() for _ in cache.layers]
    for _ in range(ANSWER_TOKENS):
        out = model(feed, attention_mask=mask.long(), position_ids=position, cache=cache, logits_to_keep=1)
        for name, parts in sink.items():
            for row, state in zip(rows.tolist(), parts.pop(), strict=True):
                states[row][name].append(state[pad[row] :] if feed is ids else state)
        token = out.logits[:, -1].argmax(-1)
        for row, t in zip(rows.tolist(), token.tolist(), strict=True):
            written[row].append(t)
        keep = (token != END).nonzero()[:, 0]
        if len(keep) == 0:
            break
        if len(keep) < len(token):
            cache.batch_select_indices(keep)
        rows, mask, position, token = rows[keep], mask[keep], position[keep, -1:] + 1, token[keep]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        feed = token[:, None]
    return [
        {"written": torch.tensor(written[b]), **{name: torch.cat(parts) for name, parts in states[b].items()}} for b in range(B)
    ]


def converse(model, sink, tokenizer, prompts: list[Prompt]) -> list[dict[str, torch.Tensor]]:
    """All turns of all prompts. Returns samples as the module's docstring lists them, in the order of `prompts`."""
    samples: list[dict[str, torch.Tensor]] = [{} for _ in prompts]
    messages: list[list[dict]] = [[] for _ in prompts]
    for turn in range(max(len(p.turns) for p in prompts)):
        live = [i for i, p in enumerate(prompts) if turn < len(p.turns)]
        for i in live:
            messages[i].append({"role": "user", "content": prompts[i].turns[turn]})
        asked = [tokenizer.apply_chat_template(messages[i], add_generation_prompt=True)["input_ids"] for i in live]
        for i, ids, got in zip(live, asked, answer(model, sink, asked), strict=True):
            text = tokenizer.decode(got["written"], skip_special_tokens=True)
            messages[i].append({"role": "assistant", "content": text})
            samples[i] = {
                "token_ids": torch.tensor(ids + got["written"].tolist(), dtype=torch.int32),
                "loss_mask": mask_of(samples[i], ids, len(got["written"])),
                **{name: got[name] for name in sink},
            }
    return samples


def mask_of(before: dict[str, torch.Tensor], asked: list[int], answered: int) -> torch.Tensor:
    """True where the target wrote: in this answer, and in earlier ones if their ids came through decoding unchanged."""
    mask = torch.zeros(len(asked) + answered, dtype=torch.bool)
    mask[len(asked) :] = True
    if before and before["token_ids"].tolist() == asked[: len(before["token_ids"])]:
        mask[: len(before["loss_mask"])] = before["loss_mask"]
    return mask


def chunks(prompts: list[Prompt]) -> Iterator[tuple[int, list[Prompt]]]:
    """Numbered chunks; inside a window of chunks, prompts of like length go together, so that little is padded."""
    window = 8 * CHUNK
    number = 0
    for start in range(0, len(prompts), window):
        near = sorted(prompts[start : start + window], key=lambda p: (len(p.turns), sum(map(len, p.turns))))
        for first in range(0, len(near), CHUNK):
            yield number, near[first : first + CHUNK]
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=["train", "heldout", "other"], required=True)
    parser.add_argument("--limit", type=int, help="so many prompts only")
    parser.add_argument("--part", type=int, nargs=2, default=[0, 1], metavar=("I", "N"), help="every Nth chunk, from the Ith")
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--out", type=Path, default=Path("build/answers"))
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    model = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval()
    sink: dict[str, list[torch.Tensor]] = {**{f"stream.{n}": [] for n in STREAMS}, "last": []}
    watch(model, sink)
    folder = args.out / args.split
    folder.mkdir(parents=True, exist_ok=True)
    todo = list(chunks([p for p in all_prompts() if p.split == args.split][: args.limit]))
    todo.sort(key=lambda chunk: max(len(p.turns) for p in chunk[1]))  # several turns last: they take longest
    first, every = args.part
    tokens = 0
    for number, some in (bar := tqdm(todo[first::every], desc=f"answers: {args.split}", unit="chunk")):
        path = folder / f"{number:04d}.safetensors"
        if path.exists():
            continue
        samples = converse(model, sink, tokenizer, some)
        named = {f"{i}.{name}": t.contiguous() for i, s in enumerate(samples) for name, t in s.items()}
        about = json.dumps([{"id": p.id, "kind": p.kind, "topic": p.topic} for p in some])
        save_file(named, path.with_suffix(".partial"), metadata={"prompts": about})
        path.with_suffix(".partial").rename(path)
        tokens += sum(int(s["loss_mask"].sum()) for s in samples)
        bar.set_postfix(answer_tokens=tokens)


if __name__ == "__main__":
    main()
