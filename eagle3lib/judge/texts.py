"""Is this text fit to judge a drafter by? Tokens and masks only; and how two sets of token ids of the same prompts differ."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from os.path import commonprefix

import torch
from jaxtyping import Int
from torch import Tensor

from ..measure.acceptance import spans
from ..measure.ceiling import vocabulary_ceiling
from ..read.capture import Capture
from ..read.checkpoint import Checkpoint
from ..read.errors import InputError
from .finding import Finding, Findings

GRAM = 16  # tokens: a run so long that came before in the same answer is a loop, not a phrase
FEWEST = 6  # samples from which what all of them share is no accident
STEPS = 5  # draft steps at which the ceiling is said

Answers = Mapping[str, list[Tensor]]  # sample -> the runs of tokens that the target wrote


def check_texts(ckpt: Checkpoint, captures: Iterable[Capture]) -> Findings:
    """What the tokens and masks of a recording say about what can be concluded from it; no states are read.

    Masks that mark nothing, go on after the end of an answer, or begin within the template; answers that repeat themselves, or
    were all cut at one length; samples longer than the drafter's positions; how much of the text the draft vocabulary can
    express, and the accept length that it caps. Each Finding has a `name`.
    """
    some = [c.replace(streams={}, last=None, last_kind="none") for c in captures]  # of a large folder, only tokens are kept
    if not some:
        raise InputError("captures: no samples: there is nothing to check")
    ends = ckpt.target.end_tokens if ckpt.target else ()
    answers = {c.name: [c.token_ids[first:end] for first, end in spans(c.loss_mask.numpy())] for c in some}
    of_answers = (_empty(answers), _after_the_end(answers, ends), _begins_alike(answers), _repeats(answers), _cut(answers, ends))
    return Findings([f for found in (*of_answers, _too_long(ckpt, some), _coverage(ckpt, some)) for f in found])


def _boundaries(level: str, what: str, **told: object) -> Finding:
    return Finding(level, "captures", what, name="mask boundaries", **told)


def _empty(answers: Answers) -> Iterator[Finding]:
    none = [name for name, parts in answers.items() if not any(len(part) > 1 for part in parts)]
    if none:
        marked = f"{len(none)} of {len(answers)} samples mark no two tokens in a row as the target's ({none[0]})"
        what, settle = f"{marked}: nothing to draft from", "the loss mask that belongs to them"
        yield _boundaries("warning", what, evidence={"samples": len(none)}, settle=settle)


def _after_the_end(answers: Answers, ends: Sequence[int]) -> Iterator[Finding]:
    """Marked tokens after the token that ends an answer: the next turn's template, which the target did not write."""
    over: Counter[str] = Counter()
    for name, parts in answers.items():
        for part in parts:
            at = torch.isin(part, torch.tensor(list(ends))).nonzero()[:, 0]
            over[name] += len(part) - 1 - int(at[0]) if len(at) else 0
    if over := +over:  # those above zero
        what = (
            f"the mask goes on after the end of an answer in {len(over)} of {len(answers)} samples ({over.total()} tokens, "
            f"first in {next(iter(over))}): template, or padding, counted as the target's own"
        )
        yield _boundaries("warning", what, evidence={"tokens": over.total()}, change="end the mask with the end token")


def _begins_alike(answers: Answers) -> Iterator[Finding]:
    """Every answer begins with the same few tokens: the mask begins within the template, or the model has a habit."""
    first = [part[:GRAM].tolist() for parts in answers.values() for part in parts if len(part) > GRAM]
    tokens = commonprefix(first)
    if len(first) >= FEWEST and tokens:
        what = (
            f"all {len(first)} answers begin with the same {len(tokens)} tokens {tokens}: a habit of the model (as an opening "
            "think tag), or the mask begins within the template"
        )
        settle = "decode them: template tokens are not the target's"
        yield _boundaries("open", what, evidence={"tokens": len(tokens)}, settle=settle)


def repeating(answer: Int[Tensor, " N"]) -> int:
    """How many tokens of an answer end a run of 16 that came before in it."""
    ids = answer.tolist()
    runs = Counter(tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1))
    return runs.total() - len(runs)


def _repeats(answers: Answers) -> Iterator[Finding]:
    counted = {name: (sum(repeating(p) for p in parts), sum(map(len, parts))) for name, parts in answers.items()}
    loops = [name for name, (again, tokens) in counted.items() if 2 * again > tokens]
    if loops:
        again, tokens = map(sum, zip(*counted.values(), strict=True))
        what = (
            f"{len(loops)} of {len(answers)} answers repeat themselves over half their length ({loops[0]}): drafts are easy "
            "there, and accept length is not that of other text"
        )
        evidence = {"samples": len(loops), f"share of tokens that end a run of {GRAM} seen before": again / tokens}
        level = "warning" if 10 * len(loops) > len(answers) else "note"
        yield Finding(level, "text", what, evidence, settle="accept length without them", name="repeating text")


def _cut(answers: Answers, ends: Sequence[int]) -> Iterator[Finding]:
    """Answers of exactly the greatest length that do not end with an end token."""
    longest = max(sum(map(len, parts)) for parts in answers.values())
    last = [parts[-1] for parts in answers.values() if parts and sum(map(len, parts)) == longest]
    cut = sum(int(part[-1]) not in ends for part in last)
    if ends and cut >= max(2, len(answers) // 10):
        what = f"{cut} of {len(answers)} answers were cut at {longest} tokens: nothing is known of drafting further on"
        yield Finding("note", "text", what, {"answers": cut, "tokens": longest}, name="cut answers")


def _too_long(ckpt: Checkpoint, captures: Sequence[Capture]) -> Iterator[Finding]:
    configs = {"drafter": ckpt.config, "target": ckpt.target.config if ckpt.target else {}}
    limits = {whose: config.get("max_position_embeddings") for whose, config in configs.items()}
    longest = max(captures, key=lambda c: len(c.token_ids))
    over = [(limit, whose) for whose, limit in limits.items() if isinstance(limit, int) and len(longest.token_ids) > limit]
    if over:
        limit, whose = min(over)
        what = (
            f"{longest.name} has {len(longest.token_ids)} tokens, but the {whose}'s max_position_embeddings is {limit}: guesses "
            "beyond it tell of its length, not of the drafter"
        )
        yield Finding("warning", "text", what, {"limit": limit}, settle="accept length by position", name="length")


def _coverage(ckpt: Checkpoint, captures: Sequence[Capture]) -> Iterator[Finding]:
    text = torch.cat([c.token_ids[c.loss_mask] for c in captures])
    share = float(torch.isin(text, ckpt.target_ids).float().mean())  # nan where nothing is marked
    if share < 1:
        tau = vocabulary_ceiling(ckpt, captures, STEPS).tau(STEPS)
        what = (
            f"the draft vocabulary has {share:.1%} of the text's {len(text)} tokens: a drafter that is always right within it "
            f"reaches accept length {tau:.2f} at K = {STEPS}, of {STEPS + 1}"
        )
        evidence = {"share of tokens": share, f"ceiling at K = {STEPS}": tau}
        yield Finding("note" if share > 0.5 else "warning", "checkpoint", what, evidence, name="draft vocabulary")


def compare_texts(
    mine: Sequence[Capture],
    theirs: Sequence[Capture],
    decode: Callable[[list[int]], str] = str,
    who: tuple[str, str] = ("the first recording", "the second"),
) -> Finding:
    """Whether samples of one name have the same prompts on both sides; and if not, what the commonest difference is.

    `decode` (a tokenizer's) shows tokens as text. Level "ok": the same prompts; "fault": the same insertion, deletion or
    replacement in most samples, which is a template's; "open": no names in common, or differences of their own in each.
    """
    by_name = {capture.name: capture for capture in theirs}
    pairs = [(one, by_name[one.name]) for one in mine if one.name in by_name]
    if not pairs:
        what = f"{who[0]} and {who[1]} have no sample of one name"
        return Finding("open", "captures", what, settle="the same names for the same prompts", name="text")
    changes = [_changes(*_prompts(a, b)) for a, b in pairs]
    differ = sum(map(bool, changes))
    if not differ:
        return Finding("ok", "captures", f"the prompts of {who[0]} are those of {who[1]} in {len(pairs)} samples", {})
    counted = Counter(change for of_one in changes for change in set(of_one))
    (place, here, there), number = counted.most_common(1)[0]
    evidence = {"samples": len(pairs), "with other tokens": differ, "with this difference": number}
    shown = " where ".join(
        f"{name} has {decode(list(ids))!r}" if ids else f"{name} has nothing"
        for name, ids in zip(who, (here, there), strict=True)
    )
    if 2 * number <= len(pairs):
        what = f"the prompts differ in {differ} of {len(pairs)} samples, in {number} of them so: {shown}"
        return Finding("open", "captures", what, evidence, settle="the same prompts on both sides", name="text")
    what = f"the prompts differ in {differ} of {len(pairs)} samples by the same tokens, {place}: {shown}"
    return Finding("fault", "captures", what, evidence, change="one chat template, applied once, on both sides", name="template")


def _prompts(a: Capture, b: Capture) -> tuple[list[int], list[int]]:
    """Both prompts. Where one side has no mask, its text as far as the other's prompt goes; where none has, both texts."""
    ends = [int(c.loss_mask.int().argmax()) if c.loss_mask[2:].any() and not c.loss_mask[1] else 0 for c in (a, b)]
    first, second = (end or max(ends) or len(c.token_ids) for end, c in zip(ends, (a, b), strict=True))
    return a.token_ids[:first].tolist(), b.token_ids[:second].tolist()


def _changes(a: list[int], b: list[int]) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Place, tokens here and tokens there of each difference."""
    found = []
    for kind, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            place = "at the start" if a0 == b0 == 0 else "at the end" if (a1, b1) == (len(a), len(b)) else "within"
            found.append((place, tuple(a[a0:a1]), tuple(b[b0:b1])))
    return found
