"""Is this recording what it seems to be? Findings that belong beside every number made from it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import binomtest
from torch import Tensor

from ..measure.lens import best_tokens, last_normed
from ..read.capture import Capture, Label
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from ..read.target import Target
from .finding import Finding, Findings

SAMPLES, ROWS, OTHERS = 96, 32, 48  # samples looked at, rows kept of each, samples whose tokens misfitting rows are held against
HEADED = 8  # of them, through the target's head: it is large
NEAR = 0.05  # rows this near to their tokens' embedding are it, in half precision
SAME = 0.5  # rows this near are that token's: of the demo's target 99 % have no other so near; four-bit numbers come within 0.2
GREEDY, CHANCE = 0.97, 0.1  # shares of next tokens that are the target's first choice: greedy text, text of something else
NOT_GREEDY = "text"  # where such a Finding stands
# Spread over mean of row sizes: the demo's raw streams 0.08 to 0.21, after a norm 0.00, with the final norm's weight 0.01 to 0.05
NORMED = 0.05
VALUES = 16  # that four bits can say; bfloat16 says as many as there are rows
ALPHA = 0.001  # that rows fit other tokens better by chance: 5 % over some fifty places tried
LAGS = (-1, 1, -2, 2)
RECORD, RIGHT_TARGET = "record them again", "the target that the states were recorded from"


@dataclass(frozen=True)
class Look:
    """What is kept of one stream of one sample: it is read once."""

    rows: Float[Tensor, "N Ht"]  # those at `Seen.at`
    zero: int  # rows of nothing but zeros, position 0 left out
    broken: int  # rows with NaN or infinite numbers
    repeated: int  # rows that are the row before, bit by bit, under another token

    @property
    def sound(self) -> bool:
        return not (self.zero or self.broken or self.repeated)


@dataclass(frozen=True)
class Seen:
    """One sample, its streams and its last state (label "last") looked at."""

    capture: Capture
    at: Int[Tensor, " N"]  # rows of its answer, evenly spread; of the whole where no answer is told
    looks: dict[Label, Look]

    @classmethod
    def of(cls, capture: Capture) -> "Seen":
        ids, mask = capture.token_ids, capture.loss_mask
        ends = len(ids) if capture.last is None else min(len(ids), len(capture.last))
        inside = torch.arange(2, max(ends - 3, 2))  # rows with tokens at all LAGS, and one further
        good = inside[mask[inside + 1]] if _answer_told(capture) else inside
        at = good[torch.linspace(0, len(good) - 1, min(ROWS, len(good))).long()]
        looks = {label: _look(label, capture.stream(label), ids, at) for label in capture.streams}
        if capture.last is not None:
            looks["last"] = _look("last", capture.last.float(), ids, at)
        return cls(capture, at, looks)

    def place(self, label: Label) -> str:
        return f"{self.capture.name}, {'last state' if label == 'last' else f'stream {label}'}"


def check_captures(ckpt: Checkpoint, captures: Sequence[Capture]) -> Findings:
    """What speaks against these captures, as far as these samples show; each Finding has a `name`.

    Up to 96 samples, evenly spread: no loss mask; rows that were never recorded, broken or repeated; one tensor twice; states
    that have passed a norm, or are stored in four bits. With the target given: r_0 must be the embedding of its tokens (unless
    the target scales its embedding), and the target's head must make the text's next token of the last state, always in its own
    greedy text. Raises InputError where there is no sample.
    """
    if not len(captures):
        raise InputError("captures: no sample; expected one or more: record some, or give the folder that has them")
    number = min(SAMPLES, len(captures))
    seen = [Seen.of(captures[i * len(captures) // number]) for i in range(number)]
    found = [_unmarked(seen), *_rows(seen), _twice(seen), _normed(seen), _coarse(seen)]
    if ckpt.target is not None:
        others = cache(lambda: [(c.name, c.token_ids) for c in captures[:OTHERS]])  # read where something does not fit
        choices = choices_of(ckpt.target, seen)
        embedding = _embedding(ckpt.target, seen, others, choices.share >= GREEDY)
        found += [embedding, _next_token(ckpt.target.path.name, choices, others, embedding)]
    return Findings([f for f in found if f])


def _answer_told(capture: Capture) -> bool:
    """Whether the mask says which tokens are the target's: some, and not all."""
    return bool(capture.loss_mask[1:].any()) and not _all_marked(capture)


def _all_marked(capture: Capture) -> bool:
    """Whether every token is marked as the target's own; nothing is where there is none."""
    return bool(capture.loss_mask[1:].any()) and bool(capture.loss_mask[1:].all())


def _look(label: Label, rows: Float[Tensor, "R Ht"], ids: Int[Tensor, " T"], at: Int[Tensor, " N"]) -> Look:
    zero, broken = (rows == 0).all(-1), ~torch.isfinite(rows).all(-1)
    same = (rows[1:] == rows[:-1]).all(-1) & ~zero[1:] & (ids[1 : len(rows)] != ids[: len(rows) - 1])
    # one repeated row may be a first one filled in; equal tokens make equal rows of r_0, wherever these belong
    repeated = int(same.sum()) if label != 0 and same.sum() > 1 else 0
    return Look(rows[at], int(zero[1:].sum()), int(broken.sum()), repeated)


def _unmarked(seen: Sequence[Seen]) -> Finding | None:
    """Samples whose file says nothing of who wrote which token, or says that all of it is an answer."""
    every = sum(_all_marked(one.capture) for one in seen)
    if not every:
        return None
    what = (
        f"{every} of {len(seen)} samples mark every token as the target's own, prompts too: what follows is no accept length "
        "of answers"
    )
    settle = "a loss mask (or prompt lengths) with the states"
    return Finding("warning", "captures", what, {"samples": every}, settle=settle, name="no loss mask")


def _rows(seen: Sequence[Seen]) -> list[Finding]:
    """Rows that are no states, whatever the target is."""
    kinds = (
        ("zero", "are all zeros", "they were never recorded", "zero rows"),
        ("broken", "hold NaN or infinite numbers", "beyond their number format, or never written", "broken numbers"),
        ("repeated", "repeat the row before, whose token is another", "states of other tokens", "rows of other tokens"),
    )
    found = []
    for kind, are, why, name in kinds:
        counts = {one.place(n): getattr(look, kind) for one in seen for n, look in one.looks.items() if getattr(look, kind)}
        if counts:
            what = f"{sum(counts.values())} rows {are}, the first in {next(iter(counts))}: {why}"
            found.append(Finding("fault", "captures", what, counts, change=RECORD, name=name))
    return found


def _twice(seen: Sequence[Seen]) -> Finding | None:
    """Two streams of a sample that are one tensor."""
    pairs = Counter(
        (a, b)
        for one in seen
        for (a, x), (b, y) in combinations(one.looks.items(), 2)
        if b != "last" and x.rows.any() and torch.equal(x.rows, y.rows)  # r_L may well be the last state, before the norm
    )
    if not pairs:
        return None
    (a, b), number = pairs.most_common(1)[0]
    what = f"streams {a} and {b} are one tensor in {number} of {len(seen)} samples"
    return Finding("fault", "captures", what, {"samples": number}, change=RECORD, name="one tensor twice")


def _normed(seen: Sequence[Seen]) -> Finding | None:
    """Streams whose rows are all of one size: a residual stream's are not."""
    spread = {}
    for label in {n: None for one in seen for n in one.looks if n not in (0, "last")}:
        looks = [one.looks[label] for one in seen if label in one.looks]
        size = torch.cat([look.rows.pow(2).mean(-1).sqrt() for look in looks])
        if len(size) >= ROWS and all(look.sound for look in looks):
            spread[label] = float(size.std() / size.mean())
    normed = {label: value for label, value in spread.items() if value < NORMED}
    if not normed:
        return None
    what = (
        f"the rows of stream {', '.join(map(str, normed))} are all of one size (standard deviation over mean "
        f"{max(normed.values()):.3f} at most): they have passed a norm, where the drafter is fed raw ones"
    )
    spread = {f"spread of row sizes, stream {label}": value for label, value in spread.items()}
    return Finding("warning", "captures", what, spread, settle="states recorded before any norm", name="normed states")


def _coarse(seen: Sequence[Seen]) -> Finding | None:
    """Streams that take few values: of 32 rows, each channel (or of a row, all channels) has 16 at most, as four bits say."""
    few = {}
    for label in {n: None for one in seen for n in one.looks if n not in (0, "last")}:
        rows = torch.cat(
            [one.looks[label].rows for one in seen if label in one.looks and one.looks[label].sound] or [torch.empty(0, 0)]
        )
        rows = rows.unique(dim=0)[:ROWS] if len(rows) else rows
        if len(rows) == ROWS and rows.shape[1] > 2 * VALUES:
            counted = [torch.tensor([len(line.unique()) for line in way]).median() for way in (rows, rows.T)]
            few[label] = int(min(counted))
    coarse = [label for label, values in few.items() if values <= VALUES]
    if not coarse:
        return None
    what = (
        f"stream {', '.join(map(str, coarse))} takes {max(few[label] for label in coarse)} values at most in {ROWS} rows: stored "
        "in four bits or fewer"
    )
    values = {f"values in {ROWS} rows, stream {label}": number for label, number in few.items()}
    return Finding("warning", "captures", what, values, change=RECORD, settle="states in half precision", name="broken numbers")


Tokens = Int[Tensor, " N"]
Others = Callable[[], list[tuple[str, Tensor]]]  # name and token ids of samples of the same recording


def _where(fits: Callable[[Tokens], Bool[Tensor, " N"]], one: Seen, others: Others, ahead: int = 0) -> int | str:
    """Whose the rows are: 0 for their own tokens', or for nobody's; a lag; or the name of another sample.

    `fits`: which rows go with these tokens, those `ahead` rows further on. Another place must fit by more than chance
    (binomial test, paired by row).
    """
    ids, at = one.capture.token_ids, one.at + ahead
    own = fits(ids[at])
    if own.float().mean() > 0.5:
        return 0

    def better(tokens: Tokens) -> bool:
        here = fits(tokens)
        gained, lost = int((here & ~own).sum()), int((own & ~here).sum())
        return gained > lost and bool(binomtest(gained, gained + lost, alternative="greater").pvalue < ALPHA)

    lags = (lag for lag in LAGS if better(ids[at + lag]))
    samples = (name for name, theirs in others() if better(theirs[at.clamp(max=len(theirs) - 1)]))  # its own is not better
    return next(lags, None) or next(samples, 0)


def _elsewhere(what: str, places: dict[str, int | str]) -> Finding | None:
    """`places`: sample -> `_where`. The Finding for the commonest place that is not their own."""
    wrong = Counter(place if isinstance(place, int) else "another request" for place in places.values() if place)
    if not wrong:
        return None
    place, number = wrong.most_common(1)[0]
    counted, evidence = f"in {number} of {len(places)} samples", {str(p): n for p, n in wrong.items()}
    if isinstance(place, int):
        by = {1: "one", 2: "two"}[abs(place)]
        said = f"rows are {by} {'late' if place < 0 else 'early'}: {what} of row t is that of token t{place:+d}, {counted}"
        return Finding("fault", "captures", said, evidence, change="hand over row t with token t", name="rows")
    name, other = next((name, place) for name, place in places.items() if isinstance(place, str))
    said = f"rows of another request: {what} of {name} fits the tokens of {other}; so it is {counted}"
    return Finding("fault", "captures", said, evidence, change=RECORD, name="rows of other tokens")


def angle_to(rows: Float[Tensor, "N Ht"], true: Float[Tensor, "N Ht"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """How far rows are from their direction in `true`, as a share of their length along it, and their size in units of it."""
    size = (rows * true).sum(-1) / true.pow(2).sum(-1)
    along = size[:, None] * true
    return (rows - along).norm(dim=-1) / along.norm(dim=-1), size


def _embedding(target: Target, seen: Sequence[Seen], others: Others, right_target: bool) -> Finding | None:
    """Whether r_0, and no other stream, is the embedding of the tokens beside it, whatever scale the target gives it."""
    table, apart, sizes, places = target.embedding(), {}, [], {}
    for one in (one for one in seen if len(one.at)):
        for label, look in one.looks.items():
            rows = look.rows
            if label == 0 and rows.shape[1] != table.shape[1]:
                what = f"r_0 is {rows.shape[1]} wide, the target's embedding {table.shape[1]}: another target"
                return Finding("fault", "target", what, settle=RIGHT_TARGET, name="another target")
            if isinstance(label, int) and look.sound and rows.shape[1] == table.shape[1]:
                angle, size = angle_to(rows, table.rows(one.capture.token_ids[one.at]))
                apart.setdefault(label, []).append(angle)
                if label == 0:
                    sizes.append(size)
                    places[one.capture.name] = _where(
                        lambda tokens, rows=rows: angle_to(rows, table.rows(tokens))[0] < SAME, one, others
                    )
    far = {label: float(torch.cat(parts).nanmedian()) for label, parts in apart.items()}
    evidence = {f"distance of stream {label}": distance for label, distance in far.items()}
    wrong = [label for label, distance in far.items() if label and distance < NEAR]
    if wrong:
        what = f"stream {wrong[0]} is the embedding of its tokens, which is r_0: streams are not what they are called"
        return Finding("fault", "captures", what, evidence, change="name the streams as they are", name="streams")
    if 0 not in far:
        return None
    if misplaced := _elsewhere("r_0", places):
        return misplaced
    if NEAR <= far[0] < SAME:
        what = f"r_0 is the embedding of its tokens, but coarsely (distance {far[0]:.2f}): stored in too few bits, or changed"
        return Finding("warning", "captures", what, evidence, change=RECORD, name="broken numbers")
    if far[0] >= SAME:
        other = "another stream, or rows of other tokens" if right_target else "another target, or another stream"
        what = f"r_0 is not the embedding of its tokens in {target.path.name} (distance {far[0]:.2f}): {other}"
        where, name = ("captures", "streams") if right_target else ("target", "another target")
        return Finding("fault", where, what, evidence, settle=RIGHT_TARGET, name=name)
    spread = float(torch.std(torch.cat(sizes), correction=0) / torch.cat(sizes).mean())
    if spread < NEAR:
        return None
    what = "r_0 points where the embedding of its tokens does, but not at one scale: it has passed a norm"
    return Finding("fault", "captures", what, {"spread of scales": spread}, change=RECORD, name="normed states")


@dataclass(frozen=True)
class Choices:
    """What the target's head makes of the last states, in the samples that tell which tokens are its own."""

    some: list[Seen]
    chosen: list[Tensor]  # of each sample, at its rows
    right: int = 0  # of them, the text's next token
    total: int = 0

    @property
    def share(self) -> float:
        return self.right / max(self.total, 1)


def choices_of(target: Target, seen: Sequence[Seen]) -> Choices:
    known = [one for one in seen if one.capture.last_kind in ("post_norm", "pre_norm") and "last" in one.looks]
    known = [known[i * len(known) // min(HEADED, len(known))] for i in range(min(HEADED, len(known)))]
    some = [one for one in known if _answer_told(one.capture) and one.looks["last"].sound]
    if not sum(len(one.at) for one in some):
        return Choices([], [])
    best = best_tokens(target, torch.cat([last_normed(target, one.capture, one.at) for one in some]))
    right = int((best == torch.cat([one.capture.token_ids[one.at + 1] for one in some])).sum())
    return Choices(some, list(best.split([len(one.at) for one in some])), right, len(best))


def _next_token(target: str, choices: Choices, others: Others, embedding: Finding | None) -> Finding | None:
    """Whether the target's own choice, head of the last state, is the text's next token."""
    if not choices.total or choices.share >= GREEDY:
        return None
    places = {
        one.capture.name: _where(lambda tokens, mine=mine: tokens == mine, one, others, ahead=1)
        for one, mine in zip(choices.some, choices.chosen, strict=True)
    }
    if misplaced := _elsewhere("the last state", places):
        return misplaced
    evidence = {"rows": choices.total, "right": choices.right}
    counted = f"the text's next token in {choices.right} of {choices.total} rows"
    if choices.share < CHANCE:
        right = embedding is None and 0 in choices.some[0].looks  # the target is, as its embedding fits
        what = f"{target}'s own choice is {counted}: {'' if right else 'another target, or '}rows of other tokens"
        where, name = ("captures", "rows of other tokens") if right else ("target", "another target")
        return Finding("fault", where, what, evidence, settle=RIGHT_TARGET, name=name)
    if embedding is not None and embedding.name in ("another target", "broken numbers"):
        return None  # nothing can be said of who wrote the text
    what = (
        f"the text is not {target}'s own greedy writing: its first choice is {counted}; accept lengths are those of this text, "
        "and trainers' figures, which score against the first choice, cannot be compared"
    )
    return Finding("warning", NOT_GREEDY, what, evidence, name="text")
