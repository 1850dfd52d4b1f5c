"""What it costs to predict accept lengths: ours beside the obvious loop, `speculators`' forward and the matrix products alone.

    python benchmarks/acceptance.py [--speculators build/speculators/bin/python]      (`make bench`; a minute or two)

K = 8 over the demo's 24 held-out samples, float32. (a) the obvious loop: row by row, step by step, frozen below as it is;
(b) `speculators`' own model, the same rows and steps, eager attention, in its own environment; (c) the matrix products that K
steps of the scored rows need, weights, QK and PV, and nothing else; (d) `hits` with every marginal; (e) for accept lengths
only: a row that missed is left. Each is timed three times in turn and its fastest kept; what counts are the ratios.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from table import ROOT, figure, save, stamp

import eagle3lib as e3
from eagle3lib.run.chain import scored_rows, together
from eagle3lib.run.drafter import Memory

STEPS, ROUNDS = 8, 3
DRAFTER, STREAMS = ROOT / "data/drafters/healthy", (2, 15, 27)
TARGET, CAPTURES = ROOT / "build/target", ROOT / "data/captures/heldout"


def obvious(drafter: e3.Drafter, capture: e3.Capture) -> int:
    """One row after the other, one step after the other, keys kept; accepted drafts, summed over rows."""
    ids, g = capture.token_ids, capture.joined(drafter.recipe)
    memory, leading = Memory(), 0
    for row in range(len(ids) - 2):
        at = torch.tensor([row])
        out = drafter.forward(drafter.fuse(g[row : row + 1]), ids[row + 1 : row + 2], at, memory)
        memory = out.memory
        for step in range(STEPS):
            if row + 2 + step >= len(ids):
                break
            guess = int(drafter.predict(out.normed))
            if guess != int(ids[row + 2 + step]):
                break
            leading += bool(capture.loss_mask[row + 1 : row + 3 + step].all())
            if row + 3 + step < len(ids):
                out = drafter.forward(out.feed, ids[row + 2 + step : row + 3 + step], at, out.memory, step + 1)
        memory = memory.fresh()
    return leading


def inputs(drafter: e3.Drafter, captures: list[e3.Capture]) -> list[list[tuple]]:
    """Random factors of every matrix product that K steps need, group by group as they are drafted: pairs to multiply."""
    w, r = drafter.weights, drafter.recipe
    group = r.n_heads // r.n_kv_heads
    made = []
    for some in together(captures):
        texts = [len(c.token_ids) - 2 for c in some]
        pairs = [(torch.randn(sum(texts), r.n_streams * r.target_hidden_size), w["fc.weight"].T)]
        for step in range(STEPS):
            scored = [len(scored_rows(c.loss_mask, step)) for c in some]
            each = scored if step else texts  # the first step makes the keys of every row
            rows = sum(each)
            wide, narrow = torch.randn(rows, 2 * r.hidden_size), torch.randn(rows, r.hidden_size)
            pairs += [(wide, w[f"layers.0.self_attn.{letter}_proj.weight"].T) for letter in "qkv"]
            for n, T in zip(each, texts, strict=True):
                pairs += [
                    (torch.randn(r.n_kv_heads, n * group, r.head_dim), torch.randn(r.n_kv_heads, r.head_dim, T)),  # QK
                    (torch.randn(r.n_kv_heads, n * group, T), torch.randn(r.n_kv_heads, T, r.head_dim)),  # PV
                ]
            pairs.append((torch.randn(rows, r.n_heads * r.head_dim), w["layers.0.self_attn.o_proj.weight"].T))
            pairs += [(narrow, w[f"layers.0.mlp.{name}_proj.weight"].T) for name in ("gate", "up")]
            middle = w["layers.0.mlp.down_proj.weight"].T
            pairs.append((torch.randn(rows, middle.shape[0]), middle))
            pairs.append((torch.randn(sum(scored), r.hidden_size), drafter.head.T))
        made.append(pairs)
    return made


def products(made: list[list[tuple]]) -> None:
    """Multiply them."""
    for pairs in made:
        for a, b in pairs:
            a @ b


SPECULATORS = """
import sys, time, torch
sys.path.insert(0, "tests/truth")
from pathlib import Path
from live_demo import load_model, load_sample
from make_vectors import align
drafter, target, captures, steps, streams, rounds = sys.argv[1:]
model = load_model(Path(drafter), Path(target), [int(n) for n in streams.split(",")], int(steps))
samples = [load_sample(path, [int(n) for n in streams.split(",")]) for path in sorted(Path(captures).glob("*.safetensors"))]
for _ in range(int(rounds)):
    start = time.perf_counter()
    with torch.inference_mode():
        for ids, g in samples:
            model(**align(ids, g), ttt_steps=int(steps))
    print("seconds", time.perf_counter() - start)
"""


def speculators(python: Path) -> float:
    """Seconds of their forward, the fastest of three, in their environment."""
    given = [str(DRAFTER), str(TARGET), str(CAPTURES), str(STEPS), ",".join(map(str, STREAMS)), str(ROUNDS)]
    said = subprocess.run([python, "-c", SPECULATORS, *given], capture_output=True, text=True, cwd=ROOT)
    found = [float(line.split()[1]) for line in said.stdout.splitlines() if line.startswith("seconds")]
    if not found:
        sys.exit(f"{python}: speculators' forward did not run: {said.stderr.strip().splitlines()[-1:]}")
    return min(found)


def timed(function, *given) -> tuple[float, object]:
    start = time.perf_counter()
    found = function(*given)
    return time.perf_counter() - start, found


@torch.inference_mode()
def measure(python: Path) -> dict:
    """All five, and how many drafts were right."""
    ckpt = e3.open_checkpoint(DRAFTER, target=TARGET)
    drafter = e3.Drafter(ckpt, ckpt.recipe.replace(streams=STREAMS))
    captures = [
        c.replace(streams={n: c.stream(n) for n in STREAMS}, last=None, last_kind="none") for c in e3.read_captures(CAPTURES)
    ]
    rows = [len(c.token_ids) - 2 for c in captures]
    made = inputs(drafter, captures)
    e3.hits(drafter, captures[:2], STEPS)
    seconds = {name: [] for name in ("(c) products", "(d) every marginal", "(e) accept lengths only")}
    for _ in range(ROUNDS):
        seconds["(c) products"].append(timed(products, made)[0])
        took, whole = timed(e3.hits, drafter, captures, STEPS)
        seconds["(d) every marginal"].append(took)
        took, some = timed(e3.hits, drafter, captures, STEPS, False)
        seconds["(e) accept lengths only"].append(took)
    took, leading = timed(lambda: sum(obvious(drafter, capture) for capture in captures))
    best = {"(a) obvious loop": took, "(b) speculators": speculators(python)} | {k: min(v) for k, v in seconds.items()}
    counted = {int(sum(int(one.leading().sum()) for one in found)) for found in (whole, some)} | {leading}
    if len(counted) != 1:
        sys.exit(f"the three ways count different drafts: {counted}")
    scored = sum(int(one.scored[0].sum()) for one in whole)
    ratios = {
        "(d) over (c)": best["(d) every marginal"] / best["(c) products"],
        "(b) over (d)": best["(b) speculators"] / best["(d) every marginal"],
        "(b) over (e)": best["(b) speculators"] / best["(e) accept lengths only"],
        "(a) over (e)": best["(a) obvious loop"] / best["(e) accept lengths only"],
    }
    return {
        "rows": sum(rows), "samples": len(captures), "K": STEPS, "threads": torch.get_num_threads(),
        "hit rate at step 1": sum(int((one.hit & one.scored)[0].sum()) for one in whole) / scored,
        "seconds": {name: round(value, 3) for name, value in best.items()},
        "ratios": {name: round(value, 2) for name, value in ratios.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speculators", type=Path, default=ROOT / "build/speculators/bin/python")
    args = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    made_on, found = stamp(), measure(args.speculators)
    ratios = found.pop("ratios")
    rows = [
        figure("every marginal at K = 8, seconds", ratios["(d) over (c)"], "its matrix products alone", most=1.3),
        figure("every marginal, times as fast", ratios["(b) over (d)"], "`speculators`' own forward", least=1.6),
        figure("accept lengths only, times as fast", ratios["(b) over (e)"], "`speculators`' own forward", least=4.0),
        figure("accept lengths only, times as fast", ratios["(a) over (e)"], "row by row, step by step"),
    ]
    save("acceptance", made_on, rows, measured=found)


if __name__ == "__main__":
    main()
