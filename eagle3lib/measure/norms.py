"""Row norms of hidden states: the quickest look at what a slot holds."""

from collections.abc import Iterable, Sequence

import pandas as pd
import torch
from tqdm import tqdm

from ..read.capture import Capture, Label
from ..read.embedding import EmbeddingRows


def row_norms(captures: Iterable[Capture], labels: Sequence[Label] | None = None) -> pd.DataFrame:
    """Euclidean norm of each row of each stream (or of those in `labels`).

    Columns: sample, stream, position, norm, answer (true where the target wrote the token). Position 0 is among them: in
    most models it is a sink whose norm is a hundred times the others', so quote medians.
    """
    frames = []
    for capture in tqdm(captures, desc="norms", unit="sample", leave=False):
        for label in labels if labels is not None else capture.streams:
            norm = capture.stream(label).norm(dim=-1)
            columns = {"sample": capture.name, "stream": label, "position": range(len(norm)), "norm": norm.double().numpy()}
            frames.append(pd.DataFrame({**columns, "answer": capture.loss_mask[: len(norm)].numpy()}))
    return pd.concat(frames, ignore_index=True)


def norm_summary(norms: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of the row norms of each stream, position 0 left out; a row for each stream."""
    kept = norms[norms.position > 0].groupby("stream").norm
    table = kept.quantile([0.25, 0.5, 0.75]).unstack()
    table.columns = ["lower quartile", "median", "upper quartile"]
    return table.assign(largest=kept.max(), rows=kept.size())


def channel_profile(captures: Iterable[Capture], labels: Sequence[Label] | None = None) -> pd.DataFrame:
    """Root mean square of each channel of each stream over all rows but position 0: a row for each channel, a column a stream."""
    sums: dict[Label, torch.Tensor] = {}
    counted: dict[Label, int] = {}
    for capture in tqdm(captures, desc="channels", unit="sample", leave=False):
        for label in labels if labels is not None else capture.streams:
            rows = capture.stream(label)[1:].double()
            sums[label] = sums.get(label, 0) + rows.pow(2).sum(0)
            counted[label] = counted.get(label, 0) + len(rows)
    found = {label: (sums[label] / counted[label]).sqrt().numpy() for label in sums}
    return pd.DataFrame(found, index=pd.RangeIndex(len(next(iter(found.values()))), name="channel"))


def massive_channels(profile: pd.DataFrame, top: int = 3) -> pd.DataFrame:
    """The channels of each stream that carry most of it: a few hold a large share in most models (arXiv 2402.17762).

    `profile`: `channel_profile`. The `top` channels of each stream, largest first: their share of the stream's summed squares,
    their root mean square, and how many times the median channel's that is.
    """
    found = []
    for stream, values in profile.items():
        share = values**2 / (values**2).sum()
        for channel in values.nlargest(top).index:
            found.append((stream, channel, share[channel], values[channel], values[channel] / values.median()))
    return pd.DataFrame(found, columns=["stream", "channel", "share", "root mean square", "times the median channel"])


def embedding_distance(captures: Iterable[Capture], embedding: EmbeddingRows) -> pd.DataFrame:
    """How far each stream's rows lie from the embedding rows of their own tokens: median of |r - e| / |e|, position 0 left out.

    About 0 (the precision of the recording) for r_0 of a target that does not scale its embedding, and for nothing else.
    """
    found: dict[Label, list[torch.Tensor]] = {}
    for capture in tqdm(captures, desc="embedding", unit="sample", leave=False):
        for label in capture.streams:
            rows = capture.stream(label)[1:]
            if rows.shape[1] != embedding.shape[1]:
                continue
            true = embedding.rows(capture.token_ids[1 : len(rows) + 1])
            found.setdefault(label, []).append((rows - true).norm(dim=-1) / true.norm(dim=-1))
    medians = {label: float(torch.cat(parts).median()) for label, parts in found.items()}
    return pd.DataFrame({"distance to the embedding": medians}).rename_axis("stream")
