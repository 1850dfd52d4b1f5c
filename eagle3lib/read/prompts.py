"""Prompts to record from, as a JSON-lines file: one object a line.

    {"name": "q1", "input_ids": [1, 4210, …]}                           a prompt as token ids
    {"name": "q2", "input_ids": [1, 4210, …], "prompt_tokens": 37}      a text with its answer: nothing is generated
    {"name": "q3", "text": "…"}                                         as it stands, special tokens added
    {"name": "q4", "messages": [{"role": "user", "content": "…"}]}      through the chat template

`kind` and `topic`, if there, are kept with the capture. A line with `prompt_tokens` is how one text is recorded on two sides.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from .captures import SIDECAR, read_captures
from .errors import InputError
from .tensors import read_json

ABOUT = ("kind", "topic")  # fields of a prompt that a Capture keeps
GIVEN = ("input_ids", "text", "messages")


@dataclass(frozen=True)
class Prompt:
    """One line: the ids of a prompt or, with `answered`, of a prompt of so many tokens and the answer to it."""

    name: str
    ids: list[int]
    answered: int | None = None
    about: dict[str, str] = field(default_factory=dict)


def read_prompts(path: str | Path, tokens: Callable[[str | list], list[int]]) -> list[Prompt]:
    """The prompts of a JSON-lines file; `tokens` makes ids of a text, or of messages. Raises InputError naming the first line
    that is none.
    """
    file = Path(path)
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as text ({error})") from None
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, start=1):
        try:
            prompt = _prompt(json.loads(line), f"prompt_{number:05d}", tokens)
        except json.JSONDecodeError as error:
            raise InputError(f"{file}, line {number}: is not JSON ({error})") from None
        except InputError as error:
            raise InputError(f"{file}, line {number}: {line[:60]}: {error}") from None
        if prompt.name in prompts:
            raise InputError(f"{file}, line {number}: the name {prompt.name} is taken already: give each prompt its own")
        prompts[prompt.name] = prompt
    if not prompts:
        raise InputError(f"{file}: no prompts, expected a JSON object a line with input_ids")
    return list(prompts.values())


def _prompt(found: object, name: str, tokens: Callable[[str | list], list[int]]) -> Prompt:
    """Raises InputError for an object that is no prompt."""
    given = [key for key in GIVEN if isinstance(found, dict) and key in found]
    if len(given) != 1:
        raise InputError("expected an object with one of input_ids, text and messages")
    what = found[given[0]]
    if given == ["text"] and not isinstance(what, str):
        raise InputError(f"text is {str(what)[:40]}, expected a string")
    if given == ["messages"] and not _asks(what):
        raise InputError("messages must be a list of {role, content}, the last not the assistant's: its answer is to be written")
    ids = what if given == ["input_ids"] else tokens(what)
    if not isinstance(ids, list) or not ids or not all(type(i) is int and i >= 0 for i in ids):
        raise InputError(f"input_ids is {str(ids)[:60]}, expected one list of token ids, not a batch")
    if given == ["text"] and ids[:1] == ids[1:2]:
        raise InputError("the text begins with the token that the tokenizer adds: give input_ids")
    answered = found.get("prompt_tokens")
    if answered is not None and (type(answered) is not int or not 0 < answered < len(ids)):
        raise InputError(f"prompt_tokens is {answered!r}, expected fewer than the {len(ids)} of prompt and answer, and 1 or more")
    return Prompt(str(found.get("name", name)), ids, answered, {key: str(found[key]) for key in ABOUT if key in found})


def _asks(messages: object) -> bool:
    if not isinstance(messages, list) or not messages:
        return False
    return all(isinstance(m, dict) and {"role", "content"} <= set(m) for m in messages) and messages[-1]["role"] != "assistant"


def left_to_do(out: Path, prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts that `out` has no capture of. Raises InputError when one of its captures began with another prompt."""
    done: dict[str, tuple[Tensor, Tensor]] = {}
    if (out / SIDECAR).exists() and read_json(out / SIDECAR).get("samples"):
        done = {capture.name: (capture.token_ids, capture.loss_mask) for capture in read_captures(out)}
    for prompt in prompts:
        ids, mask = done.get(prompt.name, (None, None))
        P = prompt.answered or len(prompt.ids)
        if ids is not None and (ids[: len(prompt.ids)].tolist() != prompt.ids or int(mask.int().argmax()) != P):
            raise InputError(f"{out}: {prompt.name} was recorded from another prompt: record into another folder")
    return [prompt for prompt in prompts if prompt.name not in done]
