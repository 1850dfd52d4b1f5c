"""What each engine would have printed for these very hits: its own figures, by its own formulas, and from each the way back.

At one K, of a chain: N rounds, A accepted drafts, P = K N proposed ones, c_i rounds whose draft i was accepted (i from 1, so
A = sum c_i), and tau = 1 + A / N. A request of n rounds and a accepted drafts writes 1 + n + a tokens: reading its prompt gives
the first, each round its accepted drafts and one of the target's own. What an engine cuts off at a request's end is not here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..read.errors import InputError
from .acceptance import Acceptance, pooled

Value = float | Sequence[float]


@dataclass(frozen=True)
class Counted:
    """Rounds by accepted drafts of each request, [S, K + 1]; those of `starts` begin at every row."""

    by_request: np.ndarray
    starts: np.ndarray

    @property
    def K(self) -> int:
        return self.by_request.shape[1] - 1

    @property
    def N(self) -> int:
        return int(self.by_request.sum())

    @property
    def A(self) -> int:
        return int(self.by_request.sum(0) @ np.arange(self.K + 1))

    def at(self, i: int) -> int:
        """c_i; N for i = 0."""
        return int(self.by_request[:, i:].sum())

    def mean(self, of: Callable[[int, int], float]) -> float:
        """Mean over requests that had a round, each counting the same, of a figure of its rounds and accepted drafts."""
        rounds, accepted = self.by_request.sum(1), self.by_request @ np.arange(self.K + 1)
        return float(np.mean([of(int(n), int(a)) for n, a in zip(rounds, accepted, strict=True) if n]))


@dataclass(frozen=True)
class EngineFigure:
    """One figure of one engine. `of(counted, i)` computes it; `back(value, K)` gives tau, or `why` says why nothing can.

    A figure for each position has {i} in its name; its way back takes all K of them.
    """

    engine: str
    name: str
    formula: str
    counts: str  # what it counts
    source: str
    of: Callable[[Counted, int], float]
    back: Callable[[Value, int], float] | None = None
    why: str = ""


def _tau(c: Counted, i: int) -> float:
    return pooled(c.by_request)


def _rate(c: Counted, i: int) -> float:
    return c.A / (c.K * c.N)


def _per_cent(c: Counted, i: int) -> float:
    return 100 * _rate(c, i)


def _verified(c: Counted, i: int) -> float:
    return (c.A + c.N) / (c.N * (c.K + 1))


def _joint(c: Counted, i: int) -> float:
    return c.at(i) / c.N


ITSELF = ("per round, the target's own token among them", lambda v, K: v)  # what it counts, the way back
DRAFTS = ("per proposed draft, the target's own token not among them", lambda v, K: 1 + v * K)
PER_CENT = (DRAFTS[0], lambda v, K: 1 + v / 100 * K)
VERIFIED = ("per verified token, the target's own among them on both sides", lambda v, K: v * (K + 1))
JOINT = ("per round, a draft only where all before it were accepted", lambda v, K: 1 + sum(v))
METRICS_PY = "vllm-project/vllm vllm/v1/spec_decode/metrics.py"
SCHEDULER, TOKENIZER = "sgl-project/sglang scheduler_metrics_mixin.py", "sgl-project/sglang srt/managers/tokenizer_manager.py"
AIPERF = "ai-dynamo/aiperf aiperf/metrics/types/spec_decode_metrics.py"
NO_MEAN = "it is a mean over requests, each counting the same, and tau weighs them by their rounds"


def _row(engine: str, name: str, formula: str, kind: tuple, source: str, of: Callable[[Counted, int], float]) -> EngineFigure:
    return EngineFigure(engine, name, formula, kind[0], source, of, kind[1])


ENGINE_FIGURES = (
    _row("SGLang", "accept len", "(A + N) / N", ITSELF, SCHEDULER, _tau),
    _row("SGLang", "accept rate, newer", "A / P", DRAFTS, f"{SCHEDULER}; sgl-project/sglang#23530, #13212", _rate),
    _row("SGLang", "accept rate, older", "(A + N) / (N (K + 1))", VERIFIED, SCHEDULER, _verified),
    _row("SGLang", "avg_spec_accept_length", "(A + N) / N", ITSELF, "sgl-project/sglang srt/managers/scheduler.py", _tau),
    EngineFigure("SGLang", "spec_accept_length", "mean over requests of completion_tokens / spec_verify_ct",
                 "per round, with the token that reading the prompt gave: too high by 1 / spec_verify_ct", TOKENIZER,
                 lambda c, i: c.mean(lambda n, a: (1 + n + a) / n),
                 why=f"{NO_MEAN}; of each request, tau is spec_accept_length - 1 / spec_verify_ct"),
    EngineFigure("SGLang", "spec_accept_rate", "mean over requests of accepted / proposed", DRAFTS[0], TOKENIZER,
                 lambda c, i: c.mean(lambda n, a: a / (c.K * n)), why=f"{NO_MEAN}; of each request, tau is 1 + rate K"),
    _row("vLLM", "Mean acceptance length", "1 + A / N", ITSELF, METRICS_PY, _tau),
    _row("vLLM", "Per-position acceptance rate {i}", "c_i / N", JOINT, METRICS_PY, _joint),
    _row("vLLM", "Avg Draft acceptance rate", "100 A / P, in per cent", PER_CENT, METRICS_PY, _per_cent),
    _row("TensorRT-LLM", "acceptanceLength", "(A + N) / N, of one iteration; here of all", ITSELF,
         "NVIDIA/TensorRT-LLM cpp/include/tensorrt_llm/executor/types.h", _tau),
    _row("SafeAILab", "tau", "sum new_tokens / sum (idx + 1)", ITSELF, "SafeAILab/EAGLE evaluation/gen_ea_answer_*.py", _tau),
    _row("SafeAILab", "{i}-alpha", "c_(i+1) / c_i, i from 0",
         ("per round in which all drafts before were accepted", lambda v, K: 1 + float(np.cumprod(np.nan_to_num(v)).sum())),
         "SafeAILab/EAGLE evaluation/alpha.py; SafeAILab/EAGLE#191",
         lambda c, i: c.at(i) / c.at(i - 1) if c.at(i - 1) else float("nan")),
    _row("DeepSpec", "accept_length", "sum (accepted + 1) / proposals", ITSELF, "DeepSpec deepspec/eval", _tau),
    _row("DeepSpec", "accept_rate@{i}", "c_i / N", JOINT, "DeepSpec deepspec/eval", _joint),
    _row("DeepSpec", "verify_rate", "(A + N) / (P + N)", VERIFIED, "DeepSpec deepspec/eval", _verified),
    EngineFigure("DeepSpec", "tau_greedy", "1 + A / N, one round a row", "per row, whether a round begins there or not",
                 "DeepSpec deepspec/eval", lambda c, i: pooled(c.starts),
                 why="an engine begins no round at a row that accepted drafts have skipped, so it meets fewer easy ones"),
    _row("Automodel", "tau_real", "1 + accepted / drafts", ITSELF, "NeMo Automodel speculative/eagle decode_eval", _tau),
    EngineFigure("AIPerf", "spec_decode_acceptance_length", "mean over requests of 1 + accepted / rounds", ITSELF[0], AIPERF,
                 lambda c, i: c.mean(lambda n, a: 1 + a / n), why=NO_MEAN),
    _row("AIPerf", "spec_decode_token_weighted_acceptance_length", "1 + A / N", ITSELF, AIPERF, _tau),
    _row("AIPerf", "spec_decode_overall_draft_acceptance_rate", "100 A / P, in per cent", PER_CENT, AIPERF, _per_cent),
)  # fmt: skip


def engine_figures(acceptance: Acceptance, steps: int) -> pd.DataFrame:
    """Every engine's figures for the walk at K = `steps`; a row for each figure, and for each position where it has some.

    Columns: here (the value), formula, counts (what it counts), tau from it (nan where it does not tell), source. Raises
    InputError for a K that was not run, or where no round was. The formulas are a chain's: of a tree's counts those with drafted
    tokens in them do not hold.
    """
    counted = Counted(acceptance.counts(steps), acceptance.counts(steps, "starts"))
    if not counted.N:
        raise InputError(f"acceptance: no round at K = {steps}; expected counts of at least one sample that has one")
    rows = []
    for figure in ENGINE_FIGURES:
        places = range(1, steps + 1) if "{i}" in figure.name else (1,)
        values = [float(figure.of(counted, i)) for i in places]
        told = values if "{i}" in figure.name else values[0]
        tau = figure.back(told, steps) if figure.back else float("nan")
        for i, value in zip(places, values, strict=True):
            name = figure.name.format(i=i - 1 if figure.name.endswith("-alpha") else i)
            rows.append({"engine": figure.engine, "figure": name, "here": value, "formula": figure.formula,
                         "counts": figure.counts, "tau from it": float(tau), "source": figure.source})  # fmt: skip
    return pd.DataFrame(rows).set_index(["engine", "figure"])


def tau_from(engine: str, figure: str, value: Value, steps: int) -> float:
    """Accept length tau that a printed figure of a chain with K = `steps` tells; `figure` as in `ENGINE_FIGURES`.

    A figure with {i} takes the list of all K. Raises InputError, with the reason, for a figure that does not tell tau, one that
    is not known, or a value that no run can have.
    """
    row = next((one for one in ENGINE_FIGURES if (one.engine, one.name) == (engine, figure)), None)
    if row is None:
        known = "; ".join(f"{one.engine} {one.name}" for one in ENGINE_FIGURES)
        raise InputError(f"figure {engine} {figure}: not known; there are {known}")
    if row.back is None:
        raise InputError(f"figure {engine} {figure}: tells no accept length: {row.why}")
    several = "{i}" in figure
    if several != (not isinstance(value, int | float)) or (several and len(value) != steps):
        raise InputError(
            f"figure {engine} {figure}: {value!r} at K = {steps}; expected {'a list of K numbers' if several else 'one number'}"
        )
    if figure.startswith("Per-position") and list(value) != sorted(value, reverse=True):
        raise InputError(
            f"figure {engine} {figure}: {value!r} rises, but no later draft is accepted more often than one before it"
        )
    tau = float(row.back(value, steps))
    if not 1 <= tau <= steps + 1 + 1e-9:
        raise InputError(
            f"figure {engine} {figure}: {value!r} would be accept length {tau:.3f}, which a chain of K = {steps} cannot have: it "
            "has another definition or another K, or is of a tree"
        )
    return tau
