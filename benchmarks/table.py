"""What the benchmarks share: rows of one table, the kind of machine they are of, and results.md, made of them all.

    python benchmarks/table.py      (`make bench` ends with it)

A row is a figure, what it is compared with, and a bound where there is one. Bounds are of memory, of shares of a floor that was
measured in the same run, or of seconds far above those measured. Ends with 1 where one is missed.
"""

import json
import os
import sys
import time
from pathlib import Path

from eagle3lib.show.stamp import device_name, versions

HERE, ROOT = Path(__file__).parent, Path(__file__).parent.parent
SCRIPTS = ("big_checkpoint", "forward", "acceptance", "scale")


def figure(what: str, found: float, beside: str = "", least: float | None = None, most: float | None = None) -> dict:
    """`found`, three digits of it; `beside`: its unit, or what it is a ratio to; at least `least`, at most `most`."""
    return {"what": what, "found": float(f"{found:.3g}"), "beside": beside, "least": least, "most": most}


def missed(one: dict) -> bool:
    return not (one["least"] or 0) <= one["found"] <= (one["most"] or float("inf"))


def stamp(device: str = "cpu") -> dict:
    """Versions and the kind of machine, never its name; and how busy it was, which ratios stand but seconds do not."""
    info = Path("/proc/cpuinfo")
    told = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    kind = {"device": device_name(device), "cpu": told[0] if told else "", "cores": os.cpu_count()}
    return {**versions(), **kind, "load before": round(os.getloadavg()[0], 1), "made": time.strftime("%Y-%m-%d")}


def save(name: str, made_on: dict, rows: list[dict], **details) -> None:
    """`name`.json beside this file, a row a line; and the rows on the terminal."""
    (HERE / f"{name}.json").write_text(json.dumps({"stamp": made_on, "rows": rows, **details}, indent=1) + "\n")
    for one in rows:
        print(f"{name}: {one['what']:70} {one['found']:>9,g} {one['beside']}" + ("   MISSED" if missed(one) else ""))


def bound(one: dict) -> str:
    return f"at least {one['least']:g}" if one["least"] else f"at most {one['most']:g}" if one["most"] else ""


def table(found: dict[str, dict]) -> str:
    """All of it as Markdown."""
    lines = ["# What it costs", "", "`make bench` writes this; the scripts say how each figure is made.", ""]
    lines += ["| script | what | found | unit, or beside what | bound | kept |", "|---|---|---|---|---|---|"]
    for name, one in found.items():
        for r in one["rows"]:
            kept = "" if not bound(r) else "no" if missed(r) else "yes"
            lines.append(f"| `{name}` | {r['what']} | {r['found']:,g} | {r['beside']} | {bound(r)} | {kept} |")
    lines += ["", "## On which machine", "", "| script | made | machine | load before | versions |", "|---|---|---|---|---|"]
    for name, one in found.items():
        s = one["stamp"]
        machine = f"{s['device']}; {s['cpu']}, {s['cores']} cores"
        with_what = f"eagle3lib {s['eagle3lib']}; torch {s['torch']}, Python {s['python']}"
        lines.append(f"| `{name}` | {s['made']} | {machine} | {s['load before']} | {with_what} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    found = {name: json.loads((HERE / f"{name}.json").read_text()) for name in SCRIPTS}
    (HERE / "results.md").write_text(table(found))
    bad = [f"{one['what']}: {one['found']:g}, {bound(one)}" for name in SCRIPTS for one in found[name]["rows"] if missed(one)]
    sys.exit("\n".join(bad) or None)


if __name__ == "__main__":
    main()
