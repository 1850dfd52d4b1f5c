"""Published EAGLE-3 heads and the accept lengths they were measured at: something to set beside one's own.

Chains of a stated K only, the bonus token counted. Trees, heads of unknown K and figures read off a picture are left out.
Their owners' figures, not measured here, on other targets and other texts: a yardstick, no threshold.
"""

from dataclasses import dataclass

import pandas as pd

from .finding import Finding


@dataclass(frozen=True)
class Head:
    """One head: text -> K -> accept length. `samples`: of training, where told."""

    name: str
    target: str
    samples: int | None
    source: str  # repo#number; "": the model card of `name`
    lengths: dict[str, dict[int, float]]


def _at(K: int, **texts: float) -> dict[str, dict[int, float]]:
    return {text.replace("_", " "): {K: tau} for text, tau in texts.items()}


def _upto(first: int, *lengths: float) -> dict[int, float]:
    return dict(enumerate(lengths, first))


WEAKEST = 1.2  # the lowest accept length that a published or reported weak drafter has, at any K (NickL77/BaldEagle#17)
ANGELSLIM = "Tencent/AngelSlim README (num_speculative_tokens=2)"
HEADS = (
    Head("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "Llama-3.1-8B-Instruct", None, "vllm-project/vllm#20780",
         {"MT-bench": _upto(2, 2.36, 2.79, 3.08, 3.32, 3.46, 3.54)}),
    Head("Qwen3-shaped head", "Qwen3-8B", 508_000, "vllm-project/speculators#563",
         {"coding": _upto(1, 1.81, 2.40, 2.80, 3.06, 3.22, 3.30, 3.33),
          "math": _upto(1, 1.83, 2.50, 2.95, 3.28, 3.45, 3.61, 3.68),
          "summarization": _upto(1, 1.69, 2.11, 2.35, 2.46, 2.50, 2.52, 2.52)}),
    Head("Llama-shaped head", "Qwen3-8B", 508_000, "vllm-project/speculators#563",
         {"coding": _upto(1, 1.79, 2.35, 2.71, 2.88, 3.00, 3.06, 3.10),
          "math": _upto(1, 1.81, 2.42, 2.87, 3.12, 3.30, 3.42, 3.45),
          "summarization": _upto(1, 1.67, 2.05, 2.25, 2.33, 2.37, 2.38, 2.39)}),
    Head("Llama-shaped head", "not told", None, "vllm-project/speculators#610",
         _at(5, HumanEval=3.242, math=3.479, summarization=2.284)),
    Head("Qwen3-shaped head", "not told", None, "vllm-project/speculators#610",
         _at(5, HumanEval=3.368, math=3.626, summarization=2.407)),
    Head("Llama-shaped head, EAGLE-3.1", "not told", None, "vllm-project/speculators#610",
         _at(5, HumanEval=3.484, math=3.691, summarization=2.480)),
    Head("EAGLE-3.1 head", "gpt-oss", None, "vllm-project/vllm#42764", _at(5, not_told=2.36)),
    Head("head of the control", "gpt-oss-120b", None, "vllm-project/vllm#27732", _at(3, not_told=2.29)),
    Head("speculator, mended", "gpt-oss-20b", None, "vllm-project/vllm#27732", _at(3, not_told=2.49)),
    *(Head(f"AngelSlim/{target}_eagle3", target, None, ANGELSLIM, _at(2, mean_of_four_benchmarks=tau))
      for target, tau in (("Qwen3-1.7B", 2.17), ("Qwen3-4B", 2.08), ("Qwen3-8B", 1.99), ("Qwen3-14B", 1.79),
                          ("Qwen3-32B", 1.91), ("Qwen3-30B-A3B", 2.04))),
    Head("lightseekorg/kimi-k2.5-eagle3", "Kimi-K2.5", 600_000, "",
         _at(3, MT_bench=2.687, CEval=2.295, GSM8K=3.201, HumanEval=3.285, MATH500=3.342)),
    Head("lightseekorg/kimi-k2.5-eagle3-mla", "Kimi-K2.5", None, "",
         _at(3, MT_bench=2.940, CEval=2.829, GSM8K=3.017, HumanEval=2.969, MATH500=3.051)),
    Head("lightseekorg/kimi-k2.6-eagle3-mla", "Kimi-K2.6", None, "",
         _at(3, MT_bench=2.624, CEval=2.494, GSM8K=2.987, HumanEval=3.241, MATH500=3.245)),
    Head("lightseekorg/kimi-k2.7-coder-eagle3.1-mla", "Kimi-K2.7-Code", None, "",
         _at(3, MT_bench=2.345, CEval=2.052, GSM8K=2.947, HumanEval=2.544, MATH500=2.664)),
    Head("AQ-MedAI/Kimi-K2-Instruct-eagle3", "Kimi-K2-Instruct", 1_400_000, "",
         _at(3, HumanEval=3.372, GSM8K=3.165, MATH500=3.490)),
    Head("AQ-MedAI/Kimi-K26-eagle3", "Kimi-K2.6", 1_000_000, "",
         _at(3, HumanEval=3.217, SWE_bench=2.553, GSM8K=3.172, MATH500=3.134)),
    Head("AQ-MedAI/Kimi-K2.7-Code-eagle3", "Kimi-K2.7-Code", 400_000, "",
         _at(3, HumanEval=2.91, GSM8K=3.23, MATH500=2.92, MT_bench=2.66)),
    Head("nvidia/Kimi-K2.6-Eagle3", "Kimi-K2.6", None, "", _at(3, MT_bench=2.62, SPEED_bench=2.67)),
    Head("k-l-lambda/kimi-k2.6-eagle3-mla", "Kimi-K2.6", None, "", _at(3, held_out_dialogues=2.345)),
    Head("k-l-lambda/kimi-k2.7-code-eagle3-mla", "Kimi-K2.7-Code", None, "", _at(3, served_traffic=2.345)),
    Head("head not named", "Llama-3.3-70B-Instruct", None, "vllm-project/vllm#50170", _at(3, not_told=2.77)),
    Head("head not named", "not told", None, "vllm-project/vllm#32628", _at(8, HumanEval=3.04)),
)  # fmt: skip
COLUMNS = ["head", "target", "text", "accept length", "training samples", "source"]
LONGEST = max(K for head in HEADS for lengths in head.lengths.values() for K in lengths)


def heads_at(K: int) -> pd.DataFrame:
    """A row for each published figure at K draft steps, lowest first; no rows where there is none."""
    rows = [
        (head.name, head.target, text, lengths[K], head.samples, head.source or f"model card of {head.name}")
        for head in HEADS
        for text, lengths in head.lengths.items()
        if K in lengths
    ]
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("accept length", ignore_index=True)


def lowest(K: int) -> float | None:
    """The lowest accept length published at K, on any text; None where none is published."""
    table = heads_at(K)
    return float(table["accept length"].iloc[0]) if len(table) else None


def beside_heads(tau: float, low: float, high: float, K: int) -> Finding:
    """Where accept length `tau`, of interval `low` to `high`, stands among the published figures at K."""
    table, mine = heads_at(K), f"accept length {tau:.2f} [{low:.2f}, {high:.2f}] at K = {K}"
    if table.empty:
        return Finding("note", "published heads", f"{mine}: no figure is published at that K to set beside it")
    lengths = table["accept length"]
    least, most, under = float(lengths.min()), float(lengths.max()), int((lengths < tau).sum())
    heads = len(table[["head", "target", "source"]].drop_duplicates())
    place = (
        "below the lowest of" if high < least
        else "above the highest of" if low > most
        else f"higher than {under} of"
    )  # fmt: skip
    what = f"{mine}: {place} {len(table)} published figures of {heads} heads at that K ({least:.2f} to {most:.2f})"
    evidence = {"lowest": least, "highest": most, "figures": len(table), "heads": heads}
    return Finding("note", "published heads", what, evidence, settle="the same text with another head of the same target")
