"""Row norms of hidden states: the quickest look at what a slot holds."""

from collections.abc import Iterable, Sequence

import pandas as pd
from tqdm import tqdm

from ..read.capture import Capture, Label


def row_norms(captures: Iterable[Capture], labels: Sequence[Label] | None = None) -> pd.DataFrame:
    """Euclidean norm of each row of each stream (or of those in `labels`).

    Columns: sample, stream, position, norm, answer (true where the target wrote the token). Position 0 is among them: in
    most models it is a sink whose norm is a hundred times the others', so quote medians.
    """
    frames = []
    for capture in tqdm(captures, desc="norms", unit="sample", leave=False):
        for label in labels if labels is not None else capture.streams:
            norm = capture.stream(label).norm(dim=-1)
            frames.append(
                pd.DataFrame(
                    {"sample": capture.name, "stream": label, "position": range(len(norm)), "norm": norm.double().numpy(),
                     "answer": capture.loss_mask[: len(norm)].numpy()}
                )
            )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def norm_summary(norms: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of the row norms of each stream, position 0 left out; a row for each stream."""
    kept = norms[norms.position > 0].groupby("stream").norm
    table = kept.quantile([0.25, 0.5, 0.75]).unstack()
    table.columns = ["lower quartile", "median", "upper quartile"]
    return table.assign(largest=kept.max(), rows=kept.size())
