"""Answers of SGLang's /generate with hidden states, each saved as a JSON file, with `input_ids`, what was asked, beside it.

`meta_info["hidden_states"]` is the prompt's rows [T][W], then one row [W] for each token that was written but the last. The
rows are right where one request ran at a time, nothing came from the cache and the prompt was not cut into chunks
(sgl-project/sglang#4997, #8066, #32089). Under speculative decoding rows of the answer were lost until #28496: where they are
not as many as the answer's tokens, none of them is used. Token ids stand in an answer only where it was asked to: `output_ids` of
newer versions, `prompt_token_ids` with `return_prompt_token_ids`, else those of the log-probabilities.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from .dump_states import States, joined
from .errors import InputError
from .tensors import at

# Where token ids stand: plain, or in entries [log-probability, id, text].
PROMPT = (("input_ids",), ("prompt_token_ids",), ("meta_info", "input_token_logprobs"))
ANSWER = (("output_ids",), ("meta_info", "output_token_logprobs"))
HEAD = 2**20  # bytes in which an answer names its states: what stands before them is text and token ids


def is_whole(file: Path) -> bool | None:
    """Whether an answer's file is not cut off, by its end alone; None where it is no such answer."""
    with file.open("rb") as stream:
        head = stream.read(HEAD)
        if head and b'"meta_info"' not in head:
            return None
        stream.seek(max(file.stat().st_size - 64, 0))
        return stream.read().rstrip().endswith((b"}", b"]"))


def read_answer(file: Path) -> Mapping:
    """`token_ids` [T], `hidden_states` [R, W], R = T or T - 1, `loss_mask` [T] where the answer shows it, and the rest.

    Raises InputError, without the file's name, where it is no such answer as it should be.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"cannot be read as JSON ({error}): truncated, or still being written") from None
    if isinstance(found, list) and found and isinstance(found[0], dict) and "meta_info" in found[0]:
        raise InputError(
            f"holds {len(found)} answers in a list: where SGLang runs requests together it mixes up their rows "
            "(sgl-project/sglang#4997): ask one at a time, and write each answer into a file of its own"
        )
    meta = found.get("meta_info") if isinstance(found, dict) else None
    if not isinstance(meta, dict):
        return found if isinstance(found, dict) else {}
    entries = meta.get("hidden_states")
    if not isinstance(entries, list) or not entries:
        raise InputError("no hidden_states in meta_info: start the server with --enable-return-hidden-states and ask for them")
    if meta.get("cached_tokens"):
        raise InputError(
            f"{meta['cached_tokens']} tokens came from the server's cache, so their states were not computed, and those of "
            "others may stand in their place: start it with --disable-radix-cache"
        )
    return {**found, **_sample(entries, _ids(found, PROMPT), _ids(found, ANSWER) or [])}


def _sample(entries: list, prompt: list[int] | None, answer: list[int]) -> Mapping:
    """Rows and tokens of one answer, and `note`, what was left out."""
    try:
        rows = [torch.tensor(entry, dtype=torch.float32) for entry in entries]
    except (TypeError, ValueError) as error:
        raise InputError(f"hidden_states of meta_info is no table of numbers ({error}): ask again") from None
    shapes = [list(part.shape) for part in rows]
    if rows[0].ndim != 2 or not all(part.ndim in (1, 2) and part.shape[-1:] == rows[0].shape[-1:] for part in rows):
        raise InputError(
            f"hidden_states of meta_info begins with {shapes[:3]}, expected a row for each token of the prompt, then one for "
            "each token written: ask with return_hidden_states true"
        )
    if prompt is None:
        raise InputError(
            "no token ids of the prompt: write what was asked beside the answer, as input_ids, or ask with return_logprob and "
            "logprob_start_len 0"
        )
    if len(rows[0]) != len(prompt):
        raise InputError(
            f"{len(rows[0])} rows for the {len(prompt)} tokens of the prompt: start the server with --disable-radix-cache and "
            "--chunked-prefill-size -1, and ask one request at a time"
        )
    written = torch.cat([part.reshape(-1, rows[0].shape[1]) for part in rows[1:]]) if rows[1:] else rows[0][:0]
    fits, note = len(written) == max(len(answer) - 1, 0), ""
    if not fits:
        note = (
            f"{len(written)} rows for {len(answer)} tokens of the answer, expected one fewer than tokens: only the prompt's used"
        )
        written, answer = written[:0], answer[:1]
    ids = torch.tensor(prompt + answer)
    told = {"loss_mask": torch.arange(len(ids)) >= len(prompt)} if len(answer) > 1 or not fits else {}
    return {"token_ids": ids, "hidden_states": torch.cat([rows[0], written]), "note": note, **told}


def _ids(found: Mapping, places: tuple[tuple[str, ...], ...]) -> list[int] | None:
    """The token ids at the first of `places` that has some."""
    for place in places:
        held = at(found, place)
        plain = held if isinstance(held, list) else []
        entries = [entry[1] if isinstance(entry, list) and len(entry) > 1 else entry for entry in plain]
        if entries and all(type(entry) is int and 0 <= entry < 2**31 for entry in entries):
            return entries
    return None


def answered(held: Mapping, T: int, count: int | None) -> States:
    """States side by side, as many as `count`; without an EAGLE-3 drafter in the server, the last state alone."""
    states = joined("hidden_states")(held, T, count)
    return replace(states, note="; ".join(filter(None, (states.note, held["note"]))))
