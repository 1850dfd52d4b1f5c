"""Train one of the demo's drafters on the target's answers, as EAGLE-3 trains: unrolled steps, true tokens fed.

    python data/make/train.py --name healthy --streams 2 15 27 --samples 9000
    python data/make/train.py --name embedding_fed --streams 0 2 15 --samples 7500 --config-streams 2 15 27

The forward is this project's own `Drafter`. Loss at step k: cross entropy to the target's distribution on the draft
vocabulary, weighted 0.8^k (EAGLE-3's weights, SafeAILab/EAGLE `traineagle3/cnets.py`), mean over the rows whose predicted
token the target wrote. The head is the target's rows, frozen. AdamW, cosine. Channels of the joined streams are brought
to one scale while training, which is folded into `fc` when saving: the streams' own scales differ by a factor of ten and more.

State is kept in build/training/NAME and the run goes on from there when it is started again. The finished drafter is
written as SpecForge writes one, into data/drafters/NAME; `--early` writes it part-way too.
"""

import argparse
import json
import math
import re
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional
from tqdm import tqdm

import eagle3lib as e3
from eagle3lib.run.chain import scored_rows

DRAFT_VOCAB = 4096
STEP_WEIGHT = 0.8
BATCH = 6  # samples a step of the optimizer
STEPS = 4  # unrolled, after a first part of the run with two
SHORT = 0.4  # share of the run with two steps
KEEP = 1500  # samples between two scores and states kept
WARM = 0.04  # share of the run in which the learning rate rises
INTERMEDIATE = 1536


def load_answers(folder: Path) -> list[dict[str, torch.Tensor]]:
    """All samples of a split, as `answers.py` lists them."""
    samples = []
    for path in tqdm(sorted(folder.glob("*.safetensors")), desc=f"read {folder.name}", unit="file"):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            for i, about in enumerate(json.loads(file.metadata()["prompts"])):
                prefix = f"{i}."
                sample = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
                samples.append({**sample, **about})
    return samples


def joined(sample: dict, streams: list[int], embedding) -> torch.Tensor:
    """The streams side by side, [T-1, n*Ht] float32; r_0 from the embedding table."""
    parts = [embedding.rows(sample["token_ids"][:-1]) if n == 0 else sample[f"stream.{n}"].float() for n in streams]
    return torch.cat(parts, dim=-1)


def first_weights(target, streams: list[int], vocab: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
    """Weights to start from: the target's last layer and norm where shapes allow, the last stream passed on unchanged by
    `fc`, small random numbers elsewhere. `scale` [n*Ht]: what the streams are divided by while training.
    """
    generator = torch.Generator().manual_seed(0)
    H = target.hidden_size
    theirs = {name: tensor.float() for name, tensor in target.files.items() if name.startswith("model.layers.29.")}
    last = {name.removeprefix("model.layers.29."): tensor for name, tensor in theirs.items()}
    weights = {}
    for part in ("q", "k", "v"):
        state = last[f"self_attn.{part}_proj.weight"]  # [out, H]
        embedding = 0.02 * torch.randn(state.shape, generator=generator)
        weights[f"midlayer.self_attn.{part}_proj.weight"] = torch.cat([embedding, state], dim=1)  # [out, 2H]
    for name in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"):
        weights[f"midlayer.{name}.weight"] = last[f"{name}.weight"]
    weights["midlayer.hidden_norm.weight"] = last["input_layernorm.weight"]
    weights["midlayer.input_layernorm.weight"] = torch.ones(H)
    weights["fc.weight"] = 0.002 * torch.randn(H, H * len(streams), generator=generator)
    weights["fc.weight"][:, -H:] += torch.diag(scale[-H:])
    weights["norm.weight"] = target.norm().float()
    weights["lm_head.weight"] = target.head_rows(vocab).float()
    return weights


def frequent(samples: list[dict], size: int, vocab_size: int) -> torch.Tensor:
    """The `size` most frequent tokens of the answers, ascending; ties go to the lower id."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sample in samples:
        counts += torch.bincount(sample["token_ids"][sample["loss_mask"]].long(), minlength=vocab_size)
    covered = counts.sort(descending=True, stable=True).values[:size].sum() / counts.sum()
    print(f"{int(counts.sum()):,} answer tokens; the {size} most frequent cover {covered:.3%}")
    return counts.sort(descending=True, stable=True).indices[:size].sort().values


def save(folder: Path, weights: dict[str, torch.Tensor], vocab: torch.Tensor, ids: list[int], head: bool = True) -> None:
    """A drafter's folder in SpecForge's layout; bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in weights.items()}
    if not head:
        del tensors["lm_head.weight"]
    tensors["d2t"] = vocab - torch.arange(len(vocab))
    tensors["t2d"] = torch.zeros(49152, dtype=torch.bool).index_fill_(0, vocab, True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 576,
        "intermediate_size": INTERMEDIATE, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "rope_scaling": None,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, "vocab_size": 49152, "draft_vocab_size": len(vocab),
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": ids},
    }  # fmt: skip
    text = json.dumps(config, indent=2)
    on_one_line = re.sub(r"\[[\s\d,]+\]", lambda ids: json.dumps(json.loads(ids[0])), text)  # lists of ids, as people write them
    (folder / "config.json").write_text(on_one_line + "\n")


def scale_of(samples: list[dict], streams: list[int], embedding) -> torch.Tensor:
    """What each joined channel is divided by: its rms over answer rows of some samples, over that of the last stream. [n*Ht].

    All channels then have one scale, and the stream that `fc` passes on at first does so with weights near one: with larger
    ones, the optimizer's steps would hardly move `fc`.
    """
    rows = [joined(s, streams, embedding)[s["loss_mask"][:-1]] for s in samples[:: max(1, len(samples) // 200)]]
    rms = torch.cat(rows).pow(2).mean(0).sqrt().clamp(min=1e-3)
    return rms / rms[-rms.numel() // len(streams) :].median()


def unroll(drafter: e3.Drafter, g: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, steps: int):
    """Steps of the drafter over one sample, true tokens fed: yields (step, rows, what the head sees at those rows)."""
    rows = torch.arange(len(ids) - 2)
    out = drafter.forward(drafter.fuse(g[rows]), ids[rows + 1], rows, e3.Memory())
    for step in range(steps):
        keep = torch.isin(rows, scored_rows(mask, step))
        rows, out = rows[keep], out.rows(keep)
        if len(rows) == 0:
            return
        if step:
            out = drafter.forward(out.feed, ids[rows + 1 + step], rows, out.memory, step)
        yield step, rows, out.normed


def loss_of(drafter, sample: dict, streams, scale, steps: int, tally: torch.Tensor) -> torch.Tensor:
    """Weighted loss of a sample; `tally` [steps, 2] gains hits and rows."""
    ids, mask = sample["token_ids"].long(), sample["loss_mask"]
    g = joined(sample, streams, drafter.embedding) / scale
    with torch.no_grad():
        wanted = (sample["last"].float() @ drafter.head.T).softmax(-1)  # [T-1, Vd]
    total = torch.zeros(())
    for step, rows, normed in unroll(drafter, g, ids, mask, steps):
        logits = drafter.logits(normed)
        total = total + STEP_WEIGHT**step * functional.cross_entropy(logits, wanted[rows + 1 + step])
        hits = drafter.target_ids[logits.argmax(-1)] == ids[rows + 2 + step]
        tally[step] += torch.tensor([float(hits.sum()), len(rows)])
    return total


def evaluate(drafter, samples, streams, scale, steps: int = 5) -> list[float]:
    """Marginal accuracy at each step, pooled over samples: argmax equals the target's next token, true tokens fed."""
    tally = torch.zeros(steps, 2)
    with torch.no_grad():
        for sample in samples:
            loss_of(drafter, sample, streams, scale, steps, tally)
    return (tally[:, 0] / tally[:, 1]).tolist()


class Run:
    """A training run: the drafter under training, and what is needed to go on with it."""

    def __init__(self, work: Path, streams: list[int], samples: list[dict], target_folder: Path, rate: float):
        self.state_file, self.streams, self.seen = work / "state.pt", streams, 0
        target = e3.open_target(target_folder)
        state = torch.load(self.state_file, weights_only=True) if self.state_file.exists() else None
        if state is None:
            self.vocab = frequent(samples, DRAFT_VOCAB, 49152)
            self.scale = scale_of(samples, streams, target.embedding())
            save(work / "first", first_weights(target, streams, self.vocab, self.scale), self.vocab, streams)
        else:
            self.vocab, self.scale, self.seen = state["vocab"], state["scale"], state["seen"]
        self.drafter = e3.Drafter(e3.open_checkpoint(work / "first", target=target_folder))
        self.drafter.embedding.rows(torch.arange(49152))  # once, for all samples
        if state is not None:
            self.drafter.weights.update(state["weights"])
        self.trained = [w.requires_grad_() for w in self.drafter.weights.values()]
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        if state is not None:
            self.optimizer.load_state_dict(state["optimizer"])

    def keep(self) -> None:
        """Write the state to go on from."""
        state = {"weights": self.drafter.weights, "optimizer": self.optimizer.state_dict(), "seen": self.seen}
        partial = self.state_file.with_suffix(".partial")
        torch.save(state | {"vocab": self.vocab, "scale": self.scale}, partial)
        partial.rename(self.state_file)

    def export(self, folder: Path, ids: list[int], head: bool = True) -> None:
        """Write the drafter as it is now; the streams' scale goes into `fc`."""
        named = {name.replace("layers.0.", "midlayer."): w for name, w in self.drafter.weights.items()}
        weights = {**named, "fc.weight": named["fc.weight"] / self.scale, "lm_head.weight": self.drafter.head}
        save(folder, weights, self.vocab, ids, head)

    def update(self, batch: list[dict], rate: float, steps: int, tally: torch.Tensor) -> None:
        """One step of the optimizer on a batch of samples."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for sample in batch:
            (loss_of(self.drafter, sample, self.streams, self.scale, steps, tally) / len(batch)).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 0.5)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seen += len(batch)


def rate_at(done: float, peak: float) -> float:
    """Learning rate after a share `done` of the run: a short rise, then a cosine to 3 % of `peak`."""
    return max(1e-6, min(done / WARM, 1.0) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done))) * peak)


def in_order(samples: list[dict], first: int, count: int) -> list[dict]:
    """Samples number `first` and on of an endless series of shuffled epochs."""
    picked = []
    for i in range(first, first + count):
        epoch, place = divmod(i, len(samples))
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(epoch))
        picked.append(samples[order[place]])
    return picked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--streams", type=int, nargs=3, required=True)
    parser.add_argument("--config-streams", type=int, nargs=3, help="what config.json says, when it is to be wrong")
    parser.add_argument("--samples", type=int, required=True, help="how many samples to see in all")
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--early", type=float, nargs="*", default=[], help="shares of the run at which to keep a copy")
    parser.add_argument("--answers", type=Path, default=Path("build/answers"))
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--work", type=Path, default=Path("build/training"))
    parser.add_argument("--out", type=Path, default=Path("data/drafters"))
    args = parser.parse_args()
    samples = [s for s in load_answers(args.answers / "train") if s["loss_mask"].sum() > 8]
    held = {name: load_answers(args.answers / name)[::2] for name in ("heldout", "other")}
    work, ids = args.work / args.name, args.config_streams or args.streams
    work.mkdir(parents=True, exist_ok=True)
    run = Run(work, args.streams, samples, args.target, args.rate)
    tally, started = torch.zeros(STEPS, 2), time.time()
    bar = tqdm(total=args.samples, initial=run.seen, desc=args.name, unit="sample")
    while run.seen < args.samples:
        before, done = run.seen, run.seen / args.samples
        batch = in_order(samples, before, BATCH)
        run.update(batch, rate_at(done, args.rate), 2 if done < SHORT else STEPS, tally)
        bar.update(BATCH)
        for number, share in enumerate(args.early, start=1):
            if before < share * args.samples <= run.seen:
                run.export(args.out / f"{args.name}_early{number}", ids, head=False)
        if before // KEEP != run.seen // KEEP or run.seen >= args.samples:
            scores = {"training": (tally[:, 0] / tally[:, 1]).tolist()}
            scores |= {name: evaluate(run.drafter, some, args.streams, run.scale) for name, some in held.items()}
            tally.zero_()
            line = {name: [round(x, 3) for x in values] for name, values in scores.items()}
            bar.write(f"{run.seen} samples, {time.time() - started:.0f} s: {json.dumps(line)}")
            run.keep()
    run.export(args.out / args.name, ids)
    print(f"{args.out / args.name}: written after {run.seen} samples")


if __name__ == "__main__":
    main()
