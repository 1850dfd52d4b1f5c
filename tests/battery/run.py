"""`make battery`: every case through the verdict; results.json and results.md beside this file.

    PYTHONPATH=tests python -m battery.run [--tune | --judged] [--only WORDS] [--again] [--processes 2] [--samples 48]

Finished rows are kept in build/battery, so that an interrupted run (Ctrl-C too) goes on where it stopped; a row is made again
when the library or the battery has changed. With --tune, --judged, --only or fewer samples nothing else is written: the results
beside this file are of whole runs.
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from tqdm import tqdm

from eagle3lib.judge import verdict as judge
from eagle3lib.read.errors import InputError
from eagle3lib.show.stamp import device_name, versions

from . import base
from .base import RECORDED, Texts
from .cases import Case, all_cases
from .report import report

HERE = Path(__file__).parent
_cases: dict[str, Case] = {}  # of a worker: made once


def sources() -> str:
    """One hash of what a verdict is made from, and of the battery."""
    digest = hashlib.sha256()
    library = Path(judge.__file__).parent.parent
    files = [file for floor in ("read", "run", "measure", "judge") for file in sorted((library / floor).glob("*.py"))]
    for file in [*files, *(f for f in sorted(HERE.glob("*.py")) if f.name not in ("run.py", "report.py"))]:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def answer(case: Case) -> dict:
    """The verdict's answer: where, what, sentence, sure. Where it crashes or refuses, that stands as its place."""
    try:
        given = case.inputs()
    except InputError as error:
        found = judge.broken(error)
    else:
        try:
            found = judge.verdict(**given, **known_probe(given))
            if found.evidence and found.evidence.probe and given.get("captures") is base.Texts(samples=len(given["captures"]))():
                _probes[_key(given)] = found.evidence.probe, given  # kept, so that the key stays theirs
        except InputError as error:
            return {"where": "refused", "what": "", "sentence": str(error), "sure": ""}
        except Exception as error:  # a crash is an answer of its own, and the run goes on
            return {"where": "crashed", "what": "", "sentence": f"{error!r}: {traceback.format_exc(limit=-1)}", "sure": ""}
    return {"where": found.where, "what": found.what, "sentence": found.sentence, "sure": found.sure}


_probes: dict[tuple, tuple] = {}  # a sound drafter on sound captures is probed once a process


def _key(given: dict) -> tuple[int, int, str | None]:
    return id(given.get("ckpt")), id(given.get("captures")), given.get("dtype")


def known_probe(given: dict) -> dict:
    """What the verdict would find again: most cases of servers and engines share drafter and captures."""
    return {"probed": _probes[_key(given)][0]} if _key(given) in _probes else {}


def row_of(case: Case) -> dict:
    """One case: what was answered, and whether place and name are right."""
    start = time.time()
    found = answer(case)
    return {
        "name": case.name, "group": case.group, "drafter": case.drafter, "tune": case.tune, "sight": case.sight,
        "needs": case.needs, "right where": sorted(case.where), "right what": sorted(case.what), **found,
        "place": found["where"] in case.where, "named": found["where"] in case.where and found["what"] in case.what,
        "seconds": round(time.time() - start, 1),
    }  # fmt: skip


def _start(samples: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it keeps what is finished
    torch.set_num_threads(1)
    _cases.update({case.name: case for case in all_cases(Texts(samples=samples))})


def _work(name: str) -> dict:
    return row_of(_cases[name])


def rows_of(file: Path) -> dict[str, dict]:
    """Rows by name, of the kept ones or of the results beside this file."""
    found = json.loads(file.read_text()) if file.exists() else {}
    return {row["name"]: row for row in found["rows"]} if "rows" in found else found


def _keep(file: Path, rows: dict) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    part.replace(file)  # whole, or the one before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--tune", action="store_true", help="only the cases that may be looked at while the verdict is made")
    some.add_argument("--judged", action="store_true", help="only the others: those whose figures count")
    parser.add_argument("--only", default="", help="only cases whose name holds these words")
    parser.add_argument("--again", action="store_true", help="forget kept rows")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long; what was run is reported")
    parser.add_argument("--samples", type=int, default=48, help="fewer prompts: for a quick look")
    args = parser.parse_args()
    made = f"{sources()}, {args.samples} prompts"
    cases = [c for c in all_cases() if (c.tune or not args.tune) and not (c.tune and args.judged) and args.only in c.name]
    file = RECORDED / f"rows_{args.samples}.json"
    kept = {} if args.again else rows_of(HERE / "results.json") | rows_of(file)
    todo = [case.name for case in cases if kept.get(case.name, {}).get("made") != made]
    random.Random(0).shuffle(todo)  # so that whatever is run so far is a fair sample
    start = time.time()
    if todo:
        with multiprocessing.get_context("spawn").Pool(min(args.processes, len(todo)), _start, (args.samples,)) as pool:
            bar = tqdm(pool.imap_unordered(_work, todo), desc="battery", unit="case", total=len(todo))
            try:
                for row in bar:
                    kept[row["name"]] = {**row, "made": made}
                    _keep(file, kept)
                    if time.time() - start > 60 * args.minutes:
                        break
                    bar.set_postfix_str(f"{row['name'][:40]}: {'right' if row['place'] else row['where']}")
            except KeyboardInterrupt:
                sys.exit(f"battery: stopped; {bar.n} rows are kept in {file}, the same command goes on with the rest")
    rows = [kept[case.name] for case in cases if kept.get(case.name, {}).get("made") == made]
    stamp = {**versions(), "device": device_name("cpu"), "sources": made}
    text = report(rows, {**stamp, "cases run": f"{len(rows)} of {len(cases)}"})
    if args.tune or args.only or args.samples != 48:
        print(text)
        return
    (HERE / "results.json").write_text(json.dumps({"stamp": stamp, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    (HERE / "results.md").write_text(text)
    print(text[: text.index("## Misses")])


if __name__ == "__main__":
    main()
