"""`make test-browser`: every notebook in a real JupyterLab, every page of build/workbook with the network off; results.json.

    PYTHONPATH=tests python -m browser.run [--workbook build/workbook] [--only WORD]

The notebooks are run as copies. Each explorer is moved by keyboard. Nothing is written where something fails, is interrupted
(Ctrl-C ends server and browser too) or, with --only, is left out.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from eagle3lib.show.stamp import device_name, versions

from .lab import CHROMIUM, chromium, jupyterlab, look_at_page, move_explorers, run_notebook, watched

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WIDE = {"width": 1300, "height": 1000}


def copied(folder: Path) -> Path:
    """The notebooks in a folder of their own; what they open by `../` is linked to. Returns it."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for name in ("data", "build", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "settings").mkdir()
    return folder / "notebooks"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--workbook", type=Path, default=ROOT / "build" / "workbook")
    options.add_argument("--only", default="", help="notebooks and pages with this in their name")
    given = options.parse_args()
    if not CHROMIUM.exists():
        sys.exit(f"{CHROMIUM}: not there, expected Debian's Chromium: apt-get install chromium")
    pages = sorted(p for p in given.workbook.rglob("*.html") if given.only in p.name)
    if not pages and not given.only:
        sys.exit(f"{given.workbook}: no HTML page there, expected a workbook: run `eagle3 workbook --out {given.workbook}`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was started is ended
    found: dict = {"notebooks": {}, "pages": {}}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        notebooks = copied(Path(folder))
        with jupyterlab(notebooks, Path(folder) / "settings", ROOT) as address:
            for path in sorted(p for p in notebooks.glob("*.ipynb") if given.only in p.name):
                start = time.monotonic()
                context = browser.new_context(viewport=WIDE)
                page, wrong = watched(context)
                shown = run_notebook(page, address, path.name)
                moved = move_explorers(page)
                assert len(moved) == shown["explorers"], (
                    f"{path.name}: {shown['explorers']} explorers, {len(moved)} on the screen"
                )
                assert not wrong, f"{path.name}: {wrong}"
                context.close()
                found["notebooks"][path.name] = shown | {"moved": moved}
                print(f"{path.name}: {shown} in {time.monotonic() - start:.0f} s", flush=True)
        for path in pages:
            found["pages"][path.name] = look_at_page(browser, path)
            print(f"{path.name}: {found['pages'][path.name]}", flush=True)
        stamp = {"chromium": browser.version} | {
            name: metadata.version(name) for name in ("jupyterlab", "ipywidgets", "playwright")
        }
    if given.only:
        return
    counts = [*found["notebooks"].values()]
    found["total"] = {kind: sum(c[kind] for c in counts) for kind in ("cells run", "figures", "tables", "explorers")}
    found["stamp"] = (
        stamp | {k: v for k, v in versions().items() if k in ("python", "eagle3lib")} | {"device": device_name("cpu")}
    )
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['total']}, {len(found['pages'])} pages: nothing failed")


if __name__ == "__main__":
    main()
