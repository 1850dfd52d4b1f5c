"""Tables and JSON on the terminal: nothing cut, nothing rounded that a machine reads."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from ..measure.intervals import told


def with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Columns `x`, `x low`, `x high` as one of text, `0.712 [0.690, 0.733]`; the others as they are."""
    shown = {}
    for name in table.columns:
        if f"{name} low" in table:
            both = zip(table[name], table[f"{name} low"], table[f"{name} high"], strict=True)
            shown[name] = [told(*triple, digits=3) for triple in both]
        elif not name.endswith((" low", " high")):
            shown[name] = table[name]
    return pd.DataFrame(shown, index=table.index)


def print_table(heading: str, table: pd.DataFrame) -> None:
    """Nothing cut; words begin at the left, numbers end at the right."""
    shown = table.reset_index()
    words = [name for name in shown if not pd.api.types.is_numeric_dtype(shown[name])]
    for name in words:
        width = max([len(name), *(len(str(value)) for value in shown[name])])
        shown[name] = [str(value).ljust(width) for value in shown[name]]
    shown.columns = [name.ljust(len(str(shown[name].iloc[0]))) if name in words else name for name in shown]
    with pd.option_context("display.max_colwidth", None):
        print(f"\n{heading}\n{shown.to_string(index=False, float_format='{:.4g}'.format)}")


def print_json(value: object) -> None:
    print(json.dumps(plain(value), ensure_ascii=False, indent=1, allow_nan=False))


def plain(value: object) -> object:
    """For JSON: a table as a list of rows, numbers unrounded, NaN and infinities as null, anything else as its text."""
    if isinstance(value, pd.DataFrame):
        return plain(value.reset_index().to_dict("records"))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
