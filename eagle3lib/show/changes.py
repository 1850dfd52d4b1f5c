"""`--set KEY=VALUE`: pairs of text to values, and to a changed recipe."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields

from ..read.config import FLAGS
from ..read.errors import InputError
from ..read.recipe import Recipe
from ..read.rope import Rope
from ..read.rope_config import check_base

FROM_TENSORS = {f.name for f in fields(Recipe)} - {"streams", "eps", "rope", "sources", *FLAGS}  # widths and counts


TRUTH = {"true": True, "false": False}


def pairs(changes: Sequence[str]) -> list[tuple[str, str]]:
    """`["A=1"]` to `[("A", "1")]`. Raises InputError for one without an equals sign."""
    for change in changes:
        if "=" not in change:
            raise InputError(f"--set {change}: expected NAME=VALUE, as in --set streams=0,2,15")
    return [(name.strip(), value.strip()) for name, _, value in (change.partition("=") for change in changes)]


def json_or_text(value: str) -> object:
    """JSON, or whole numbers with commas between them as a list, or text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        numbers = value.split(",")
        return [int(n) for n in numbers] if len(numbers) > 1 and all(n.strip().isdecimal() for n in numbers) else value


def with_changes(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with `KEY=VALUE` changes. Raises InputError for an unknown key, or a value that the field cannot take."""
    for name, value in pairs(changes):
        if name == "rope_theta":
            check_base("--set", base := _number(name, value))
            recipe = recipe.replace(rope=Rope.plain(base, recipe.mla.rope if recipe.mla else recipe.head_dim))
        elif name == "rope":
            raise InputError("--set rope: is a list of frequencies; give --set rope_theta=VALUE for plain rotary positions")
        elif name in FROM_TENSORS:
            raise InputError(f"--set {name}: the tensors' shapes decide it, and another value fits none of them: leave it out")
        else:
            recipe = recipe.replace(**{name: _field(name, value)})
    return recipe


def _field(name: str, value: str) -> object:
    if name in FLAGS:
        if value.lower() in TRUTH:
            return TRUTH[value.lower()]
        raise InputError(f"--set {name}={value}: expected true or false")
    if name == "streams":
        try:
            return tuple(int(n) for n in value.strip("()[]").split(","))
        except ValueError:
            raise InputError(f"--set streams={value}: expected whole numbers with commas, as in streams=0,2,15") from None
    return _number(name, value) if name == "eps" else value


def _number(name: str, value: str) -> float:
    with suppress(ValueError):
        if 0 < float(value) < math.inf:
            return float(value)
    raise InputError(f"--set {name}={value}: expected a number above zero")
