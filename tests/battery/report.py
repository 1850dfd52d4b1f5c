"""Rows of the battery to words: shares with exact bounds, misses with their reasons, every case in a line."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import binomtest

from .base import RECORDED

HERE = Path(__file__).parent
NO_ACCUSATION = frozenset({"nothing", "training or text", "cannot tell"})
SOUND = ("sound", "weak")  # groups in which nothing is wired wrong


def share(right: int, of: int) -> str:
    """As "40 of 50, 80 % [66, 90]": Clopper-Pearson's exact 95 % bounds."""
    if not of:
        return "none"
    found = binomtest(right, of).proportion_ci(method="exact")
    return f"{right} of {of}, {100 * right / of:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def accuses(row: dict) -> bool:
    return row["where"] not in NO_ACCUSATION


def reasons() -> dict[str, str]:
    """misses.md: `- case: why`, written by hand."""
    file = HERE / "misses.md"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(match.groups() for line in lines if (match := re.fullmatch(r"- `(.+?)`: (.+)", line)))


def looked_at() -> set[str]:
    """Names in looked_at.md."""
    return set(re.findall(r"^- `(.+?)`$", (HERE / "looked_at.md").read_text(encoding="utf-8"), re.MULTILINE))


def effects() -> dict[str, str]:
    """Accept length as it should be and as it is, for each case of which sight.py measured it."""
    file = RECORDED / "effects.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return {
        name: "does not run" if isinstance(effect, str) else f"{effect['should']:.2f} → {effect['now']:.2f}"
        for name, effect in found.items()
    }


def summary(rows: Sequence[dict]) -> list[str]:
    """A line for each group of cases: right place, right name, false alarms."""
    lines = ["| cases | right place | right place and name | median s |", "|---|---|---|---|"]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    seen = looked_at()
    new = [row for row in rows if row["name"] not in seen and not row["tune"]]
    for title, some in [
        ("all", rows),
        ("faults that show in what was given", [row for row in rows if row["sight"] == "visible"]),
        *([("never looked at before", new)] if len(new) not in (0, len(rows)) else []),
        *((group, [r for r in rows if r["group"] == group]) for group in groups),
    ]:
        place, named = (share(sum(r[key] for r in some), len(some)) for key in ("place", "named"))
        seconds = sorted(r["seconds"] for r in some)[len(some) // 2] if some else 0
        lines.append(f"| {title} | {place} | {named} | {seconds:.0f} |")
    calm = [r for r in rows if r["group"] in SOUND]
    alarms = share(sum(accuses(r) and not r["place"] for r in calm), len(calm))
    wrong = [r for r in rows if accuses(r)]
    return [
        *lines, "",
        f"False alarms, where nothing is wired wrong: {alarms}.  ",
        f"Accusations that name a wrong place, of all accusations: {share(sum(not r['place'] for r in wrong), len(wrong))}.",
        "",
    ]  # fmt: skip


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def report(rows: Sequence[dict], stamp: dict) -> str:
    """results.md."""
    judged, tune = [r for r in rows if not r["tune"]], [r for r in rows if r["tune"]]
    why, cost = reasons(), effects()
    lines = [
        "# The battery",
        "",
        "Faults put into files, captures and engines, one verdict each. `tests/battery/README.md` says how.",
        "",
    ]
    for title, some in (("Judged", judged), ("For tuning", tune)):
        if some:
            lines += [f"## {title}: {len(some)} cases", "", *summary(some)]
    lines += ["## Misses", "", "| case | answered | right | why |", "|---|---|---|---|"]
    for r in rows:
        if not r["named"]:
            right = f"{', '.join(r['right where'])}: {', '.join(r['right what'])}"
            answer = f"{r['where']}: {r['what'] or r['sentence'][:120]}"
            lines.append(f"| {r['name']} | {cell(answer)} | {right} | {cell(why.get(r['name'], ''))} |")
    lines += [
        "",
        "## Every case",
        "",
        "| case | for | accept length | answered | place | name | sure | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        marks = ("yes" if r[key] else "no" for key in ("place", "named"))
        use, answer = "tuning" if r["tune"] else "judging", f"{r['where']}: {r['what']}"
        cells = [r["name"], use, cost.get(r["name"], ""), answer, *marks, r["sure"][:60], f"{r['seconds']:.0f}"]
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    told = ", ".join(f"{key} {value}" for key, value in stamp.items())
    return "\n".join([*lines, "", f"Made with {told}.", ""])
