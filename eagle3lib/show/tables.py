"""Small tables for the notebooks, put together from what was measured."""

from collections.abc import Mapping, Sequence

import pandas as pd

from ..measure.acceptance import Acceptance
from ..measure.accuracy import Accuracy
from ..read.capture import Capture, Label
from ..read.served import Served
from .figures import label
from .printed import with_intervals
from .sets import Rows


def slots(captures: Sequence[Capture], choices: Mapping[str, Sequence[Label]], *measured: pd.DataFrame | None) -> pd.DataFrame:
    """A row for each recorded stream: which slot it is in each choice (such as "as trained"), how its label is known, what was
    measured.

    `measured`: tables by stream (`norm_summary`, `embedding_distance`, `logit_lens`); those that are None are left out.
    """
    first = captures[0]
    streams = list(first.streams)
    table = pd.DataFrame(index=pd.Index(streams, name="stream", dtype=object))
    for name, chosen in choices.items():
        table[name] = [", ".join(f"slot {i + 1}" for i, s in enumerate(chosen) if s == stream) or "-" for stream in streams]
    called = {"median": "median norm", "distance to the embedding": "distance to the embedding",
              "agreement": "next token by the target's head"}  # fmt: skip
    for part in measured:
        if part is not None:
            table = table.join(part.filter(list(called)).rename(columns=called))
    table["how its label is known"] = [first.known.get(stream, "not told: by its place in the recording") for stream in streams]
    return table.rename(index=label)


def live(runs: Sequence[Served], sets: Mapping[str, Rows], drafter: str) -> pd.DataFrame:
    """What serving or live decoding gave, a row for each run that was of this `drafter` (its folder's name).

    A run that tells its streams belongs to the set of `sets` with the same; a log that does not, to the first: as configured.
    K is 0 where a log does not tell it.
    """
    rows = []
    for run in runs:
        alike = [name for name, one in sets.items() if run.streams in (None, one.drafter.recipe.streams)]
        if alike and run.drafter in (None, drafter):
            rows.append((alike[0], run.steps or 0, run.rounds, run.accepted, run.accept_length, run.source))
    return pd.DataFrame(rows, columns=["name", "K", "rounds", "accepted", "accept length", "source"])


def beside_live(curves: Mapping[str, Acceptance], runs: pd.DataFrame) -> pd.DataFrame:
    """Predicted accept lengths, and those measured where it is served, or live, beside them; a row for each name and K."""
    tables = []
    for name, found in curves.items():
        table = found.table()
        measured = runs[runs.name == name].drop_duplicates("K").set_index("K")["accept length"]
        if len(runs):
            table["served or live"] = [f"{measured[K]:.3f}" if K in measured.index else "-" for K in table.index]
        tables.append(table)
    return pd.concat(dict(zip(curves, tables, strict=True)), names=["drafter"])


def histogram(found: Acceptance, steps: int) -> pd.DataFrame:
    """Rounds by accepted drafts at K = `steps` (walk), and the share of rounds that accepted at least so many."""
    counts = found.counts(steps).sum(0)
    at_least = counts[::-1].cumsum()[::-1] / counts.sum()
    index = pd.RangeIndex(steps + 1, name="accepted drafts")
    return pd.DataFrame({"rounds": counts, "share": counts / counts.sum(), "at least so many": at_least}, index=index)


def hypotheses(table: pd.DataFrame) -> pd.DataFrame:
    """The probe's table, as text: a p-value too small for three decimals with its power of ten, never as 0.000; for a choice
    that was dropped before the last prompt there is none.
    """

    def as_text(value: float) -> str:
        return "-" if value != value else f"{value:.0e}" if 0 < value < 0.001 else f"{value:.3f}"

    told = table.drop(columns="samples").map(as_text).assign(samples=table.samples)
    for column in ("p configured", "p best"):
        told[column] = told[column].where(table[column] != 0, "dropped")
    return told


def definitions(curves: Mapping[str, Acceptance]) -> pd.DataFrame:
    """The accept length by three definitions, a row for each name and K."""
    rows = [
        {"drafter": name, "K": K, "walk, pooled": found.tau(K), "walk, mean of requests": found.mean_of_requests(K)[0],
         "all starts, pooled": found.tau(K, "starts")}
        for name, found in curves.items() for K in sorted(found.walks)
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index(["drafter", "K"])


def per_position(curves: Mapping[str, Acceptance], steps: int) -> pd.DataFrame:
    """Share of rounds in which draft 1, 2, ... was accepted at K = `steps` (walk): what vLLM prints as per-position rates."""
    columns = [f"draft {k + 1}" for k in range(steps)]
    return pd.DataFrame([found.per_position(steps) for found in curves.values()], index=list(curves), columns=columns)


def accuracy(found: Accuracy, columns: Sequence[str] = ("marginal", "joint", "conditional")) -> pd.DataFrame:
    """Accuracies by step (columns of `Accuracy.table`), each as "value [low, high]"."""
    return with_intervals(found.table())[["rows", *columns]]


def figures(table: pd.DataFrame, steps: int = 2) -> pd.DataFrame:
    """Trainers' figures of the first `steps` steps and over all steps, each as "value [low, high]", with its definition."""
    step = table.index.get_level_values("figure").str.extract(r"_(?:len|ar|sim|greedy)$|[_@](\d+)$")[0]
    kept = table[(step.isna() | step.fillna("0").astype(int).lt(steps)).to_numpy()]
    shown = with_intervals(kept.rename(columns={"low": "here low", "high": "here high"}))
    return shown.replace({"here": {"-": "not computable from these captures"}})
