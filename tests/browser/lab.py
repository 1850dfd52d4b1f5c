"""A real JupyterLab and a real Chromium: start them, run a notebook, move its explorers by keyboard, look at a page."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKEN = "eagle3"
QUIET = {"fetchNews": "false", "checkForUpdates": False}  # JupyterLab asks the network for both
RUN_ALL = "async () => { await jupyterapp.commands.execute('notebook:run-all-cells'); }"
OUTPUTS = """() => { const model = jupyterapp.shell.currentWidget.content.model; return Array.from(model.cells)
    .filter(cell => cell.type === 'code').map(cell => ({source: cell.sharedModel.source, count: cell.executionCount,
    outputs: cell.outputs.toJSON()})); }"""
PICTURE = """async image => { const bytes = await (await fetch(image.src)).arrayBuffer(); const hash = await
    crypto.subtle.digest('SHA-256', bytes); return Array.from(new Uint8Array(hash)).join(','); }"""
KINDS = {"figures": "image/png", "tables": "text/html", "explorers": "application/vnd.jupyter.widget-view+json"}
CONTROLS = ".noUi-handle, select, button"  # of an explorer


@contextlib.contextmanager
def jupyterlab(folder: Path, settings: Path, root: Path, theme: str = "JupyterLab Light") -> Iterator[str]:
    """A server over `folder`, its settings in `settings`, kernels told EAGLE3_ROOT. Yields its address; ends it in any case."""
    for plugin, told in (("notification", QUIET), ("themes", {"theme": theme})):
        file = settings / "user-settings" / "@jupyterlab" / "apputils-extension" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(told))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mine = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "user-settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}  # fmt: skip
    environment = {**os.environ, "EAGLE3_ROOT": str(root), "TQDM_DISABLE": "1", "JUPYTER_PREFER_ENV_PATH": "1"}
    environment |= {name: str(settings / place) for name, place in mine.items()}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
               f"--IdentityProvider.token={TOKEN}", f"--notebook-dir={folder}", "--LabApp.expose_app_in_browser=True",
               "--ServerApp.port_retries=0", "--LabApp.extension_manager=readonly"]  # fmt: skip
    with (settings / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", server, settings / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGTERM)  # it ends its kernels
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


def _wait(address: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(240):
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(address, timeout=5):
            return
        assert server.poll() is None, f"JupyterLab ended: {log.read_text()[-2000:]}"
        time.sleep(0.5)
    raise AssertionError("JupyterLab did not answer in two minutes")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def watched(context: BrowserContext) -> tuple[Page, list[str]]:
    """A page, and the list that everything going wrong in it is added to."""
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda e: wrong.append(f"script: {e}"))
    page.on("requestfailed", lambda r: wrong.append(f"request failed: {r.url} {r.failure}"))
    page.on("response", lambda r: wrong.append(f"answer {r.status}: {r.url}") if r.status >= 400 else None)
    return page, wrong


def run_notebook(page: Page, address: str, name: str, timeout: float = 600) -> dict[str, int]:
    """Open a notebook and run all its cells. Counts of what it shows. AssertionError for a cell that did not run or failed."""
    page.set_default_timeout(1000 * timeout)
    page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'")
    page.evaluate(RUN_ALL)
    cells = [cell for cell in page.evaluate(OUTPUTS) if cell["source"].strip()]
    shown = [output for cell in cells for output in cell["outputs"]]
    failed = [f"{o['ename']}: {o['evalue']}" for o in shown if o["output_type"] == "error"]
    assert not failed, f"{name}: {failed}"
    assert all(cell["count"] for cell in cells), f"{name}: a cell has not run"
    kinds = [set(o.get("data", {})) for o in shown]
    counts = {name: sum(kind in k for k in kinds) for name, kind in KINDS.items()}
    return {"cells run": len(cells), **counts}


def move_explorers(page: Page, timeout: float = 60) -> list[dict]:
    """Each explorer of the open notebook, by keyboard alone: Tab reaches every control, and moving any slider or list changes the
    picture. A row for each: the names of its controls and how many there are.
    """
    rows, explorers = [], page.locator(".e3-explorer")
    for i in range(explorers.count()):
        one = explorers.nth(i)
        one.scroll_into_view_if_needed()
        picture, alert = one.locator("img"), one.locator("[role=alert]")
        picture.wait_for()
        controls = [c for c in one.locator(CONTROLS).all() if c.is_enabled()]
        names = [name for text in one.locator(".widget-label, button").all_text_contents() if (name := text.strip())]
        assert _by_tab(page, controls) == len(controls), f"explorer {i}: Tab does not reach every control of {names}"
        for n, control in enumerate(controls):
            before = picture.evaluate(PICTURE)
            if _press(page, control):
                assert _changes(picture, before, timeout), f"explorer {i}: the picture stays when control {n} of {names} is moved"
        assert not alert.count(), f"explorer {i}: {alert.all_inner_texts()}"
        rows.append({"controls": names, "reached and moved by keyboard": len(controls)})
    return rows


def _press(page: Page, control) -> bool:
    """One step forward, or back from the end. False for a button, and where there is nothing to choose: they are left alone."""
    now, most, kind = control.evaluate(
        "c => c.tagName === 'SELECT' ? [c.selectedIndex, c.options.length - 1, 'list']"
        " : c.tagName === 'BUTTON' ? [0, 0, 'button'] : [+c.ariaValueNow, +c.ariaValueMax, 'slider']"
    )
    if kind == "button" or not most:
        return False
    on = now < most
    control.focus()
    # arrows alone move a slider; of a list JupyterLab takes them to go to another cell, unless it is open
    for key in (
        ["ArrowRight" if on else "ArrowLeft"] if kind == "slider" else ["Space", "ArrowDown" if on else "ArrowUp", "Enter"]
    ):
        page.keyboard.press(key)
        time.sleep(0.3)
    return True


def _by_tab(page: Page, controls: list) -> int:
    """How many of the controls Tab reaches, from the first on."""
    controls[0].focus()
    reached = 0
    for control in controls:
        for _ in range(4):  # a slider's readout lies between
            if control.evaluate("c => c === document.activeElement"):
                reached += 1
                break
            page.keyboard.press("Tab")
    return reached


def _changes(picture, before: str, timeout: float) -> bool:
    for _ in range(int(timeout * 5)):
        if picture.evaluate(PICTURE) != before:
            return True
        time.sleep(0.2)
    return False


def look_at_page(browser: Browser, file: Path) -> dict[str, int]:
    """Open an HTML page with the network off: every figure and table is visible and has a size. Counts of them."""
    context = browser.new_context()
    asked: list[str] = []

    def only_files(route) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    context.route("**/*", only_files)
    page, wrong = watched(context)
    page.goto(file.resolve().as_uri(), wait_until="load")
    page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
    figures, tables = page.locator("img").all(), page.locator("table").all()
    for figure in figures:
        assert figure.is_visible() and figure.evaluate("i => i.complete && i.naturalWidth > 0 && i.naturalHeight > 0"), file.name
    for table in tables:
        box = table.bounding_box()
        assert table.is_visible() and box and box["width"] > 0 and box["height"] > 0, f"{file.name}: a table is not seen"
    context.close()
    assert not asked, f"{file.name} asks the network for {asked}"
    assert not wrong, f"{file.name}: {wrong}"
    return {"figures": len(figures), "tables": len(tables)}
