"""Rounds one by one: what was drafted, how much of it was accepted, what the target wrote after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..read.errors import InputError
from .chain import Hits


@dataclass(frozen=True)
class Round:
    """One verification. Its drafts guess the tokens from `row` + 2 on: rows as in `Hits`, the first one is P - 1."""

    row: int
    drafts: tuple[int, ...]
    accepted: int  # leading drafts that the target would have written, those past the end of the request among them
    after: int  # the token that the target wrote itself after them


def rounds_of(found: Hits, token_ids: Sequence[int], steps: int, end: int | None = None) -> list[Round]:
    """The rounds of K = `steps` that an engine would run over a sample, from its first row to drafts until `end`.

    `end`: how many tokens the request had, prompt and answer; by default the whole text. Drafts stop with the first that
    missed, for what would be drafted after it depends on it, and with the text, which tells no further. A round may accept
    tokens past `end`, where the text goes on. Raises InputError for more steps than were drafted.
    """
    if steps > len(found.guess):
        raise InputError(f"steps: {steps}, but {len(found.guess)} were drafted at each row: draft as many")
    leading, guess = found.leading(), found.guess
    rounds, row = [], found.start()
    while 0 <= row < min(end or len(token_ids), len(token_ids)) - 2:
        accepted = min(int(leading[row]), steps)
        drafts = tuple(guess[: min(accepted + 1, steps, len(token_ids) - 2 - row), row].tolist())
        place = row + 2 + accepted
        rounds.append(Round(row, drafts, accepted, int(token_ids[place]) if place < len(token_ids) else -1))
        row += accepted + 1
    return rounds
