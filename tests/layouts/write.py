"""Write the folders, to look at them: `PYTHONPATH=tests python -m layouts.write FOLDER [NAME ...]`.

`--table` in place of a folder prints README's table.
"""

import sys
from pathlib import Path

from .refused import REFUSED
from .runs import LAYOUTS


def table() -> str:
    """README's table."""
    lines = ["| folder | comes out as | what it is | source |", "|---|---|---|---|"]
    for layout in LAYOUTS:
        told = f"the drafter of `{layout.same_as}`: {layout.about}" if layout.same_as else layout.about
        lines.append(f"| `{layout.name}` | {layout.producer or 'any'} | {told} | {layout.source} |")
    lines += [f"| `{one.name}` | refused | {one.about} | {one.source} |" for one in REFUSED]
    return "\n".join(lines)


def main(words: list[str]) -> None:
    if words == ["--table"]:
        print(table())
        return
    if not words:
        raise SystemExit(__doc__)
    folder, *names = words
    rows = {row.name: row for row in (*LAYOUTS, *REFUSED)}
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise SystemExit(f"{unknown[0]}: no such layout; there are {', '.join(rows)}")
    for name in names or rows:
        where = Path(folder) / name
        if where.exists():
            raise SystemExit(f"{where}: is there already: give another folder, or remove it")
        rows[name].write(where)
    print(f"{len(names or rows)} folders in {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
