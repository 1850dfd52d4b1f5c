"""A real browser, as little of it as tells: one explorer moved in JupyterLab, one HTML page without a network.

All notebooks and all pages: `make test-browser`. Skipped where there is no Chromium.
"""

import nbformat
import pytest
from conftest import ROOT

from eagle3lib.show import figures, pages

pytest.importorskip("playwright", reason="no playwright here: pip install playwright")
from browser import lab

pytestmark = pytest.mark.skipif(not lab.CHROMIUM.exists(), reason=f"no {lab.CHROMIUM} on this machine: apt-get install chromium")

CELL = f"""import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import tiny
from eagle3lib.show import explorer
explorer.streams_and_positions([tiny.capture(), tiny.capture(T=30, name="longer")])"""


@pytest.fixture(scope="module")
def browser():
    with lab.chromium() as started:
        yield started


@pytest.mark.slow
def test_an_explorer_is_moved_by_keyboard(browser, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name in ("settings", "notebooks"):
        (tmp_path / name).mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "one.ipynb")
    page, wrong = lab.watched(browser.new_context())
    with lab.jupyterlab(tmp_path / "notebooks", tmp_path / "settings", ROOT) as address:
        assert lab.run_notebook(page, address, "one.ipynb", timeout=120)["explorers"] == 1
        (moved,) = lab.move_explorers(page)
        page.context.close()
    assert moved == {"controls": ["sample", "stream n", "position"], "reached and moved by keyboard": 3}
    assert not wrong


def html(tmp_path, more: str = ""):
    picture = figures.Picture(figsize=(2, 1))
    picture.subplots().plot([1, 2])
    output = nbformat.v4.new_output("display_data", {"image/png": pages.base64.b64encode(picture._repr_png_()).decode()})
    table = nbformat.v4.new_output("display_data", {"text/html": "<table><tr><td>1</td></tr></table>"})
    cell = nbformat.v4.new_code_cell("x", outputs=[output, table])
    told = pages.page(nbformat.v4.new_notebook(cells=[cell]), "one", ["one"], tmp_path)
    file = tmp_path / "one.html"
    file.write_text(told.replace("</body>", f"{more}</body>"), encoding="utf-8")
    return file


def test_a_page_shows_its_figure_and_table_without_a_network(browser, tmp_path):
    assert lab.look_at_page(browser, html(tmp_path)) == {"figures": 1, "tables": 1}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('<script src="https://example.org/x.js"></script>', "asks the network"),
        ('<img src="data:image/png;base64,AAAA">', "one.html"),
        ('<table style="display: none"><tr><td>1</td></tr></table>', "a table is not seen"),
    ],
)
def test_what_is_wrong_with_a_page_is_seen(browser, tmp_path, more, said):
    with pytest.raises(AssertionError, match=said):
        lab.look_at_page(browser, html(tmp_path, more))
