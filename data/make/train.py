"""Train one of the demo's drafters on the target's answers, as EAGLE-3 trains: unrolled steps, true tokens fed.

    python data/make/train.py --name healthy --streams 2 15 27 --samples 20000
    python data/make/train.py --name embedding_fed --streams 0 2 15 --samples 14000 --config-streams 2 15 27

The forward is this project's own `Drafter`. Loss at step k: cross entropy to the target's distribution on the draft
vocabulary, weighted 0.8^k (EAGLE-3's weights, SafeAILab/EAGLE `traineagle3/cnets.py`), mean over the rows whose predicted
token the target wrote. The head is the target's rows, frozen. AdamW, cosine. Channels of the joined streams are divided by
their rms while training, which is folded into `fc` when saving: the streams' scales differ by a factor of ten.

State is kept in build/training/NAME and the run goes on from there when it is started again. The finished drafter is
written as SpecForge writes one, into data/drafters/NAME; `--early` writes it part-way too.
"""

import argparse
import json
import math
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
BATCH = 6
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
    weights["fc.weight"] = 0.02 * torch.randn(H, H * len(streams), generator=generator)
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
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def scale_of(samples: list[dict], streams: list[int], embedding) -> torch.Tensor:
    """Rms of each joined channel over answer rows of some samples, [n*Ht]."""
    rows = [joined(s, streams, embedding)[s["loss_mask"][:-1]] for s in samples[:: max(1, len(samples) // 200)]]
    return torch.cat(rows).pow(2).mean(0).sqrt().clamp(min=1e-3)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--streams", type=int, nargs=3, required=True)
    parser.add_argument("--config-streams", type=int, nargs=3, help="what config.json says, when it is to be wrong")
    parser.add_argument("--samples", type=int, required=True, help="how many samples to see in all")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--early", type=float, nargs="*", default=[], help="shares of the run at which to keep a copy")
    parser.add_argument("--answers", type=Path, default=Path("build/answers"))
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--work", type=Path, default=Path("build/training"))
    parser.add_argument("--out", type=Path, default=Path("data/drafters"))
    args = parser.parse_args()
    samples = [s for s in load_answers(args.answers / "train") if s["loss_mask"].sum() > 8]
    held = {name: load_answers(args.answers / name)[::2] for name in ("heldout", "other")}
    target = e3.open_target(args.target)
    work = args.work / args.name
    work.mkdir(parents=True, exist_ok=True)
    if (work / "state.pt").exists():
        state = torch.load(work / "state.pt", weights_only=True)
        vocab, scale = state["vocab"], state["scale"]
    else:
        vocab = frequent(samples, DRAFT_VOCAB, 49152)
        scale = scale_of(samples, args.streams, target.embedding())
        save(work / "first", first_weights(target, args.streams, vocab, scale), vocab, args.streams)
        state = None
    drafter = e3.Drafter(e3.open_checkpoint(work / "first", target=args.target))
    target.embedding().rows(torch.arange(49152))
    drafter.embedding = target.embedding()
    if state:
        drafter.weights.update(state["weights"])
    trained = [w.requires_grad_() for w in drafter.weights.values()]
    optimizer = torch.optim.AdamW(trained, lr=args.rate, betas=(0.9, 0.95), weight_decay=0.01)
    seen = 0
    if state:
        optimizer.load_state_dict(state["optimizer"])
        seen = state["seen"]
    scores, tally, started = [], torch.zeros(args.steps, 2), time.time()
    ids = args.config_streams or args.streams

    def folded() -> dict[str, torch.Tensor]:
        named = {name.replace("layers.0.", "midlayer."): w for name, w in drafter.weights.items()}
        return {**named, "fc.weight": named["fc.weight"] / scale, "lm_head.weight": drafter.head}

    bar = tqdm(total=args.samples, initial=seen, desc=args.name, unit="sample")
    while seen < args.samples:
        done = seen / args.samples
        rate = min(done / WARM, 1.0) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done))) * args.rate
        for group in optimizer.param_groups:
            group["lr"] = max(rate, 1e-6)
        steps = 2 if done < 0.4 else args.steps
        for i in range(seen, seen + BATCH):
            epoch, place = divmod(i, len(samples))
            order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(epoch))
            (loss_of(drafter, samples[order[place]], args.streams, scale, steps, tally) / BATCH).backward()
        torch.nn.utils.clip_grad_norm_(trained, 0.5)
        optimizer.step()
        optimizer.zero_grad()
        before, seen = seen, seen + BATCH
        bar.update(BATCH)
        for number, share in enumerate(args.early, start=1):
            if before < share * args.samples <= seen:
                save(args.out / f"{args.name}_early{number}", folded(), vocab, ids, head=False)
        if before // 1500 != seen // 1500 or seen >= args.samples:
            held_now = {name: evaluate(drafter, some, args.streams, scale) for name, some in held.items()}
            scores.append({"seen": seen, "training": (tally[:, 0] / tally[:, 1]).tolist(), **held_now})
            tally.zero_()
            line = {k: [round(x, 3) for x in v] for k, v in scores[-1].items() if k != "seen"}
            bar.write(f"{seen} samples, {time.time() - started:.0f} s: {line}")
            state = {"weights": drafter.weights, "optimizer": optimizer.state_dict(), "seen": seen}
            state |= {"vocab": vocab, "scale": scale}
            torch.save(state, work / "state.partial")
            (work / "state.partial").rename(work / "state.pt")
    save(args.out / args.name, folded(), vocab, ids)
    print(f"{args.out / args.name}: {json.dumps(scores[-1] if scores else {})}")


if __name__ == "__main__":
    main()
