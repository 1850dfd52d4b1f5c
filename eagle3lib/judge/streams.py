"""Which stream is each slot of a recording? Told by what the states do, where no file says it.

Four things tell. r_0 is the embedding of its tokens. The state after the final norm, f, is of one size once the norm's weight is
divided out, and the target's head makes the text's next token of it. r_L gives that token through the norm, always in greedy
text; r_{L-1} and what lies before does so less often. And another recording of the same tokens, whose streams are labelled,
tells every stream that it holds. Norms and neighbours are shown beside, but they order streams and name none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..measure.alike import alike
from ..measure.lens import best_tokens, through_norm
from ..read.capture import Capture, Label
from ..read.errors import InputError
from ..read.target import Target
from .checks import GREEDY, HEADED, NEAR, Seen, angle_to, choices_of
from .states import said, told

NORMED = 0.01  # spread over mean of row sizes, the norm's weight divided out: rounding alone leaves 0.001 of f in bfloat16


@dataclass(frozen=True)
class Streams:
    """What each slot was found to be. `table` shows the evidence; a DataFrame when shown."""

    table: pd.DataFrame
    found: dict[Label, tuple[Label | None, str]]  # label in the recording -> what it is (n, "last" or None), how that is known

    def relabel(self, capture: Capture) -> Capture:
        """The capture with its streams called what they are; how each is known comes along, f becomes the last state.

        What nothing tells is slot0, slot1, … by its place, and so is a stream that is there already. Raises InputError for a
        stream that was not looked at.
        """
        streams, known, last, kind = {}, {}, capture.last, capture.last_kind
        for label in capture.streams:
            if label not in self.found:
                raise InputError(f"{capture.name}: stream {label} was not among those looked at: look at this recording itself")
            found, how = self.found[label]
            if found == "last":
                last, kind = capture.streams[label], "post_norm"
                continue
            name = f"slot{len(streams)}" if found is None or found in streams else found
            streams[name], known[name] = capture.streams[label], how
        return replace(capture, streams=streams, known=known, last=last, last_kind=kind)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def which_streams(
    captures: Sequence[Capture], target: Target | None = None, reference: Sequence[Capture] | None = None
) -> Streams:
    """What each stream of `captures` is, with the evidence; up to 8 samples, 32 rows of each.

    `target` (`e3.open_target`) lets embedding, norm and head be asked; `reference`, a recording of the same tokens with known
    streams, tells those that it holds. A row of `table` for each slot: what it is, how that is known, distance to the embedding
    of its tokens (scale apart), how often the head makes the text's next token of it (through the norm, and as it is), spread of
    its row sizes with the norm's weight divided out, median norm, nearest other slot. Raises InputError without target and
    reference: nothing could be told.
    """
    if target is None and reference is None:
        raise InputError("which_streams: nothing to tell streams by: give the target's folder (target=), or reference=")
    number = min(HEADED, len(captures))
    seen = [Seen.of(captures[i * len(captures) // number]) for i in range(number)]
    seen = [one for one in seen if len(one.at)]
    if not seen:
        raise InputError("captures: no sample has 6 rows or more: there is nothing to look at")
    labels = [label for label in seen[0].looks if label != "last"]
    rows = {label: torch.cat([one.looks[label].rows for one in seen if label in one.looks]) for label in labels}
    ids = torch.cat([one.capture.token_ids[one.at] for one in seen])
    following = torch.cat([one.capture.token_ids[one.at + 1] for one in seen])
    near = {} if reference is None else {one.slot: one for one in alike(captures, reference) if told(one)}
    measured = {label: _measure(rows, label, target, ids, following) for label in labels}
    greedy = any(m[how] >= GREEDY for m in measured.values() for how in ("head, through the norm", "head, as it is"))
    greedy = greedy or (target is not None and choices_of(target, seen).share >= GREEDY)
    found = {}
    for label, m in measured.items():
        if label in near:
            one = near[label]
            how = f"{said(one)} of the reference, distance {one.distance:.2g}, next nearest {one.second:.2g}"
            found[label] = (one.stream if one.form == "as it is" and not one.lag else None, how)
        else:
            found[label] = _by_itself(label, m, target, greedy)
    rows = [{"slot": label, "is": _name(is_), "known by": how, **measured[label]} for label, (is_, how) in found.items()]
    table = pd.DataFrame(rows).set_index("slot")
    return Streams(table, found)


def _measure(
    rows: dict[Label, Tensor], label: Label, target: Target | None, ids: Int[Tensor, " N"], following: Int[Tensor, " N"]
) -> dict[str, object]:
    states, nan = rows[label], float("nan")
    m = {"distance to the embedding": nan, "head, through the norm": nan, "head, as it is": nan, "spread after the norm": nan}
    if target is not None and states.shape[1] == target.hidden_size and len(states) == len(ids):
        m["distance to the embedding"] = float(angle_to(states, target.embedding().rows(ids))[0].nanmedian())
        m["head, through the norm"] = _share(best_tokens(target, through_norm(target, states)), following)
        m["head, as it is"] = _share(best_tokens(target, states), following)
        weight = target.norm().float()
        size = (states / torch.where(weight == 0, 1.0, weight)).pow(2).mean(-1).sqrt()  # [N]
        m["spread after the norm"] = float(size.std() / size.mean())
    m["median norm"] = float(states.norm(dim=-1).median())
    others = [(_relative(states, rows[b]), b) for b in rows if b != label and rows[b].shape == states.shape]
    m["nearest slot"] = "{1} ({0:.2f})".format(*min(others, key=lambda other: other[0])) if others else ""
    return m


# What a slot is by the target alone, and how that is known; the first that holds. L: the target's layers; None without a target.
BY_ITSELF: tuple[tuple[Callable, Callable, str], ...] = (
    (lambda s: s.away < NEAR, lambda s: 0, "the embedding of its tokens (distance {away:.2g})"),
    (lambda s: s.spread < NORMED and s.plain >= GREEDY, lambda s: "last",
     "after the final norm: rows of one size, the head makes {plain:.0%} of the next tokens of it"),
    (lambda s: s.spread >= NORMED and s.through >= GREEDY, lambda s: s.L,
     "the head makes {through:.0%} of the next tokens of it through the norm: nothing before r_L does"),
    (lambda s: s.named == 0 and s.away >= NEAR, lambda s: None,
     "called r_0, but not the embedding of its tokens (distance {away:.2g})"),
    (lambda s: s.named is not None and s.named == s.L and s.greedy, lambda s: None,
     "called r_{named}, but the head makes only {through:.0%} of the next tokens of it"),
    (lambda s: s.named is not None, lambda s: s.named, "its name in the recording"),
    (lambda s: s.L is None, lambda s: None, "not in the reference"),
    (lambda s: s.greedy, lambda s: None,
     "neither embedding nor the last ({through:.0%} of the next tokens through the norm): a stream between"),
    (lambda s: True, lambda s: None,
     "not the embedding, nor what gives the next token: neither r_L nor f, unless the text is not the target's own"),
)  # fmt: skip


def _by_itself(label: Label, m: dict, target: Target | None, greedy: bool) -> tuple[Label | None, str]:
    """What a slot is by the target alone, and how that is known."""
    slot = SimpleNamespace(
        away=m["distance to the embedding"], through=m["head, through the norm"], plain=m["head, as it is"],
        spread=m["spread after the norm"], named=label if isinstance(label, int) else None, greedy=greedy,
        L=target.n_layers if target else None,
    )  # fmt: skip
    return next((is_(slot), how.format(**vars(slot))) for holds, is_, how in BY_ITSELF if holds(slot))


def _share(best: Int[Tensor, " N"], following: Int[Tensor, " N"]) -> float:
    return float((best == following).float().mean())


def _relative(a: Float[Tensor, "N Ht"], b: Float[Tensor, "N Ht"]) -> float:
    """Median distance of rows, as a share of the larger."""
    return float(((a - b).norm(dim=-1) / torch.maximum(a.norm(dim=-1), b.norm(dim=-1)).clamp(min=1e-12)).median())


def _name(stream: Label | None) -> str:
    return "?" if stream is None else "f, after the norm" if stream == "last" else f"r_{stream}"
