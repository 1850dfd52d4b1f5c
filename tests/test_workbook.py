"""The workbook runner, on notebooks made here: two real kernels for the whole file, all else with execution replaced."""

import hashlib
import json
import re
from pathlib import Path

import nbformat
import pytest
import tiny
from bs4 import BeautifulSoup

import eagle3lib as e3
from eagle3lib.show import pages, workbook
from eagle3lib.show.execute import OF_THE_DEMO, cleaned
from eagle3lib.show.plan import Order
from eagle3lib.show.scrub import Scrubber
from eagle3lib.show.stamp import ROOT
from eagle3lib.show.workbook import run

v4 = nbformat.v4

ANSWERS = """\
from IPython.display import HTML, Markdown, display
with open(COUNT, "a") as file:
    file.write("x")
Markdown(f"**{STEPS} steps** on `{CHECKPOINT}`")"""

SHOWS = """\
import os, matplotlib.pyplot as plt, pandas as pd, ipywidgets
from tqdm.auto import tqdm
print(HEALTHY, SERVED, LOG, DEVICE, os.environ["TQDM_DISABLE"], CAPTURES + "/sample_00000.safetensors")
display(HTML("<script src='https://elsewhere.example/x.js'></script><img src='//elsewhere.example/y.png'><b>bold</b>"))
display(pd.DataFrame({"path": [CHECKPOINT + "/config.json"]}), ipywidgets.IntSlider())
for i in tqdm(range(3)): pass
plt.plot([1, 2]); plt.show()"""

FAILS = """\
import os, eagle3lib as e3
print("before", "hf_abcdefghijklmnopqrst1234")
e3.open_checkpoint(os.path.expanduser("~/secret drafter"))"""


def code(source, *tags):
    return v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def write(path, *cells, **about):
    node = v4.new_notebook(cells=list(cells), metadata={"eagle3": about} if about else {})
    nbformat.write(node, path)


def parameters(count):
    return code(
        'CHECKPOINT = "demo/drafter"  # a = b\nCAPTURES = "demo/captures"\nSERVED = None\nLOG = "demo/log"\n'
        f'HEALTHY = "demo/healthy"\nDEVICE = "cpu"\nSTEPS: int = 3\nCOUNT = {str(count)!r}',
        "parameters",
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A drafter, captures and three notebooks, in folders with spaces and letters of other languages."""
    place = tmp_path_factory.mktemp("wörk & {book}")
    (place / "notebooks").mkdir()
    write(
        place / "notebooks" / "01_answers.ipynb",
        v4.new_markdown_cell("# 01 · Answers\n\n[next](02_lacks.ipynb#there), [code](../tests/tiny.py), [web](https://example.com)"),
        parameters(place / "count"), code(ANSWERS, "answer"), v4.new_markdown_cell("## The figure"), code(SHOWS),
        question="How many?", needs=["CHECKPOINT", "CAPTURES"], demo_only=["HEALTHY"],
    )  # fmt: skip
    write(
        place / "notebooks" / "02_lacks.ipynb", v4.new_markdown_cell("# 02 · Lacks"), code("SERVED = None", "parameters"),
        question="Was it served right?", needs=["SERVED"],
    )  # fmt: skip
    write(place / "notebooks" / "03_fails.ipynb", v4.new_markdown_cell("# 03 · Fails"), code(FAILS), code("print('after')"))
    tiny.write_drafter(place / "mein Entwürfler")
    e3.write_captures(place / "aufnahmen 1", [tiny.capture(name=f"s{i}") for i in range(2)], target="tiny", n_layers=6)
    return place


def order(place, **changes):
    inputs = {"CHECKPOINT": place / "mein Entwürfler", "CAPTURES": place / "aufnahmen 1"}
    return Order(**{"inputs": inputs, "out": place / "out", "notebooks": place / "notebooks", **changes})


@pytest.fixture(scope="module")
def done(place):
    """The whole run, really executed. Returns what it told, and its lines."""
    lines = []
    return run(order(place, settings={"STEPS": 5}), lines.append), lines


@pytest.fixture
def fake(monkeypatch):
    """Execution replaced: what each notebook was passed, by name. Nothing runs."""
    seen = {}

    def execute(source, partial, passed):
        seen[source.stem] = passed
        nbformat.write(nbformat.read(source, as_version=4), partial)
        return ""

    monkeypatch.setattr(workbook, "execute", execute)
    return seen


def read(place, name):
    return nbformat.read(place / "out" / f"{name}.ipynb", as_version=4)


def outputs(node):
    return [output for cell in node.cells if cell.cell_type == "code" for output in cell.outputs]


def test_what_became_of_each(place, done):
    told, lines = done
    assert {name: one["status"] for name, one in told["notebooks"].items()} == {
        "01_answers": "done", "02_lacks": "lacking", "03_fails": "failed",
    }  # fmt: skip
    assert told["notebooks"]["01_answers"]["answer"] == "**5 steps** on `…/mein Entwürfler`"
    assert told["notebooks"]["01_answers"]["question"] == "How many?"
    assert Path(told["notebooks"]["03_fails"]["page"]).exists()
    assert any(line == "01_answers: running (1 of 2) ..." for line in lines)
    assert any(re.fullmatch(r"01_answers: done in \d+ s", line) for line in lines)


def test_nothing_of_the_demo_is_left(place, done):
    """Somebody's files were given: every path of the demo's is None, also those only the notebook knows of."""
    printed = next(o.text for o in outputs(read(place, "01_answers")) if o.output_type == "stream")
    assert printed.split()[:3] == ["None", "None", "None"]
    assert printed.split()[4] == "1"  # TQDM_DISABLE, in the kernel
    injected = next(c for c in read(place, "01_answers").cells if "injected-parameters" in c.metadata.get("tags", []))
    assert "CHECKPOINT = '…/mein Entwürfler'" in injected.source
    assert "HEALTHY = None" in injected.source


def test_an_executed_notebook_holds_results_and_no_notes(place, done):
    node = read(place, "01_answers")
    assert not {"papermill", "widgets"} & set(node.metadata)
    assert not [c for c in node.cells if {"papermill", "execution"} & set(c.metadata)]
    assert ["answer"] in [c.metadata.get("tags") for c in node.cells]
    assert not [o for o in outputs(node) if "0/3" in str(o.get("data", {}).get("text/plain"))], "a frozen progress bar"
    assert not list((place / "out").glob(".partial*"))


def test_the_failed_one_keeps_what_ran_and_says_why_in_front(place, done):
    node = read(place, "03_fails")
    assert "~/secret drafter: no such folder for a drafter checkpoint" in node.cells[0].source
    assert "before [removed]" in outputs(node)[0].text
    assert node.cells[-1].outputs == []
    assert not [c for c in node.cells if "papermill" in c.source]
    page = (place / "out" / "03_fails.html").read_text(encoding="utf-8")
    assert page.index("no such folder for a drafter") < page.index('03 · Fails<a class="anchor-link"')


def test_a_missing_input_is_named_with_its_option_and_its_question(place, done):
    for file in ("02_lacks.html", "index.html"):
        page = (place / "out" / file).read_text(encoding="utf-8")
        assert "--served DIR" in page and "Was it served right?" in page


def test_pages_fetch_nothing(place, done):
    for file in (place / "out").glob("*.html"):
        text = file.read_text(encoding="utf-8")
        page = BeautifulSoup(text, "html.parser")
        assert not page(["script", "link", "iframe", "object", "embed", "base"]), file.name
        assert not [tag for tag in page(src=True) if not tag["src"].startswith("data:")], file.name
        styles = [style.get_text() for style in page("style")] + [tag["style"] for tag in page(style=True)]
        assert styles and not re.search(r"@import|url\(\s*['\"]?(https?:)?//", "\n".join(styles), re.IGNORECASE), file.name
        assert len(text) < 1_000_000
    page = (place / "out" / "01_answers.html").read_text(encoding="utf-8")
    assert "<b>bold</b>" in page and "IntSlider" in page
    assert 'src="data:image/png;base64,' in page
    assert 'alt="Figure under the heading: The figure"' in page
    assert 'href="02_lacks.html#there"' in page and "tiny.py" not in page and 'href="https://example.com"' in page
    assert '<a href="index.html">index</a><a href="02_lacks.html">next: 02_lacks</a>' in page


def test_nothing_of_the_machine_is_in_the_folder(place, done):
    private = {str(place), str(Path.home() / "secret"), str(Path(e3.__file__).parent), "hf_abc", "pytest-of"}
    for file in (place / "out").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not [p for p in private if p in text or p in json.dumps(p)[1:-1] and json.dumps(p)[1:-1] in text], file.name
    traceback = "\n".join(outputs(read(place, "03_fails"))[-1].traceback)
    assert traceback.startswith("InputError: ~/secret drafter: no such folder")  # the sentence alone


def test_the_stamp(place, done):
    stamp = json.loads((place / "out" / "stamp.json").read_text(encoding="utf-8"))
    inputs = {one["parameter"]: one for one in stamp["inputs"]}
    weights = (place / "mein Entwürfler" / "model.safetensors").read_bytes()
    assert inputs["CHECKPOINT"]["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert inputs["CHECKPOINT"]["path"] == "…/mein Entwürfler"
    assert inputs["CAPTURES"]["samples"] == 2
    assert inputs["CAPTURES"]["bytes"] == sum(f.stat().st_size for f in (place / "aufnahmen 1").glob("*.safetensors"))
    assert stamp["parameters"]["01_answers"]["STEPS"] == 5
    assert stamp["versions"]["torch"] and stamp["device"] and "seed 0" in stamp["seeds"]
    index = (place / "out" / "index.html").read_text(encoding="utf-8")
    assert hashlib.sha256(weights).hexdigest() in index
    assert "<strong>5 steps</strong>" in index


def test_what_is_unchanged_is_not_run_again(place, done, fake):
    again = run(order(place, settings={"STEPS": 5}, names=["1"]))
    assert again["notebooks"]["01_answers"]["status"] == "kept"
    assert again["notebooks"]["01_answers"]["answer"] == "**5 steps** on `…/mein Entwürfler`"
    assert not fake
    assert (place / "count").read_text() == "x", "executed once"


@pytest.mark.parametrize("change", ["parameter", "input", "source", "library", "again"])
def test_what_changed_is_run_again(tmp_path, fake, monkeypatch, change):
    (tmp_path / "notebooks").mkdir()
    write(tmp_path / "notebooks" / "01.ipynb", parameters(0))
    folder = tiny.write_drafter(tmp_path / "drafter")
    asked = {"inputs": {"CHECKPOINT": folder}, "out": tmp_path / "out", "notebooks": tmp_path / "notebooks"}
    assert run(Order(**asked))["notebooks"]["01"]["status"] == "done"
    assert run(Order(**asked))["notebooks"]["01"]["status"] == "kept"
    if change == "parameter":
        asked["settings"] = {"STEPS": 4}
    elif change == "input":
        tiny.write_drafter(folder, rms_norm_eps=1e-6)
    elif change == "source":
        write(tmp_path / "notebooks" / "01.ipynb", parameters(0), code("1"))
    elif change == "library":
        monkeypatch.setattr(workbook, "library_hash", lambda: "another")
    assert run(Order(**asked, again=change == "again"))["notebooks"]["01"]["status"] == "done"


def test_the_demo_is_run_with_the_notebooks_own_values(place, tmp_path, fake):
    run(Order(out=tmp_path / "out", notebooks=place / "notebooks", names=["01_answers"]))
    assert fake == {"01_answers": {}}
    run(Order(out=tmp_path / "out", notebooks=place / "notebooks", names=["01"], settings={"STEPS": 1}, device="cpu"))
    assert fake == {"01_answers": {"DEVICE": "cpu", "STEPS": 1}}


def test_one_input_is_enough_to_switch_the_demo_off(place, tmp_path, fake):
    told = run(order(place, inputs={"CAPTURES": place / "aufnahmen 1"}, out=tmp_path / "out"))
    assert told["notebooks"]["01_answers"]["status"] == "lacking"
    assert "--checkpoint DIR" in told["notebooks"]["01_answers"]["why"]
    assert set(fake) == {"03_fails"}


def test_interrupted(place, tmp_path, monkeypatch, fake):
    """What was finished is kept; the notebook in hand leaves nothing under its name; the next run goes on."""
    asked, written, lines = order(place, out=tmp_path / "out", inputs={}), workbook.execute, []

    def stops(source, partial, passed):
        written(source, partial, passed)
        if source.stem == "03_fails":
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(workbook, "execute", stops)
    told = run(asked, lines.append)
    assert told["interrupted"]
    assert {n: one["status"] for n, one in told["notebooks"].items()} == {
        "01_answers": "done", "02_lacks": "lacking", "03_fails": "not run",
    }  # fmt: skip
    assert not list((tmp_path / "out").glob("*03_fails*")) + list((tmp_path / "out").glob(".partial*"))
    assert any("the same command goes on" in line for line in lines)
    monkeypatch.setattr(workbook, "execute", written)
    fake.clear()
    assert run(asked)["notebooks"]["01_answers"]["status"] == "kept"
    assert set(fake) == {"03_fails"}


def test_results_of_an_earlier_run_stay_and_are_told_apart(place, tmp_path, fake):
    run(order(place, out=tmp_path / "out", inputs={}))
    told = run(order(place, out=tmp_path / "out", names=["03"]))
    assert {n: one["status"] for n, one in told["notebooks"].items()} == {
        "01_answers": "older", "02_lacks": "older", "03_fails": "kept",
    }  # fmt: skip
    assert (tmp_path / "out" / "01_answers.ipynb").exists()
    assert "Made earlier, from other inputs" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", ["mein Entwürfler", "mein Entwürfler/out", "aufnahmen 1/a/b", "notebooks", "link/out"])
def test_out_is_never_where_the_inputs_are(place, where):
    link = place / "link"
    link.is_symlink() or link.symlink_to(place / "mein Entwürfler")
    with pytest.raises(e3.InputError, match="--out .* give another folder"):
        run(order(place, out=place / where))
    assert sorted(p.name for p in (place / "mein Entwürfler").iterdir()) == ["config.json", "model.safetensors"]


def test_out_holds_other_things_or_cannot_be_made(place, tmp_path):
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(e3.InputError, match=r"holds other things \(index.html\)"):
        run(order(place, out=tmp_path))
    assert (tmp_path / "index.html").read_text() == "mine"
    with pytest.raises(e3.InputError, match="cannot be written to"):
        run(order(place, out=tmp_path / "index.html" / "out"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"STEP": 5}}, "--set STEP: no such parameter; there are CAPTURES, CHECKPOINT, COUNT, .*STEPS"),
        ({"settings": {"CHECKPOINT": "x"}}, "--set CHECKPOINT: give --checkpoint DIR instead"),
        ({"names": ["07"]}, "07: no such notebook; there are 01_answers, 02_lacks, 03_fails"),
        ({"notebooks": Path("nowhere")}, "holds no notebooks: .* clone the repository"),
        ({"inputs": {"CHECKPOINT": Path("nowhere")}}, "nowhere: no such folder for a drafter checkpoint"),
        ({"inputs": {"LOG": Path("nowhere")}}, "nowhere: no such file; expected a log"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(place, tmp_path, fake, changes, said):
    with pytest.raises(e3.InputError, match=said):
        run(order(place, **{"out": tmp_path / "out", **changes}))
    assert not fake and not (tmp_path / "out").exists()


def test_a_path_that_replaces_one_of_the_demos_is_meant_from_here(place, tmp_path, fake, monkeypatch):
    monkeypatch.chdir(place)
    run(order(place, inputs={}, out=tmp_path / "out", names=["01"], settings={"HEALTHY": "mein Entwürfler"}))
    assert fake["01_answers"]["HEALTHY"] == str(place / "mein Entwürfler")


SCRUBBED = Scrubber(
    [Path("/data/team x/R&D/drafter")], [Path("/opt/eagle3")], home=Path("/home/jo"), host="gpu-node-17.example.org"
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/data/team x/R&D/drafter/config.json: no such file", "…/drafter/config.json: no such file"),
        ("<td>/data/team x/R&amp;D/drafter</td>", "<td>…/drafter</td>"),
        ("file:///data/team%20x/R%26D/drafter", "file://…/drafter"),
        ("/data/team x/R&D/other", "…/other"),
        ("/data/team x/R&D/drafter2", "…/drafter2"),
        ("/data/team", "/data/team"),
        ("old/data/team x", "old/data/team x"),
        ("/opt/eagle3/lib/x.py", "…/eagle3/lib/x.py"),
        ("'/home/jo/x', /home/jo", "'~/x', ~"),
        ("/home/someone.else/x and /Users/Jo Doe/x and /Users/jo and", "~/x and ~/x and ~ and"),
        (r"C:\Users\Jo Doe\x, 'C:\\Users\\jo\\x'", r"~\x, '~\\x'"),
        ("https://example.com/home/page", "https://example.com/home/page"),
        ("jo wrote data at home; root, a root", "jo wrote data at home; root, a root"),
        ("jo@gpu-node-17:~$ on gpu-node-17.example.org", "[user]@[host]:~$ on [host]"),
        ("/tmp/ipykernel_12/345.py:3: UserWarning", "[cell]:3: UserWarning"),
        ("/tmp/tmpab12/x /var/folders/ab/cd/T/tmp1/x", "[temp]/x [temp]/x"),
        ("hf_abcdefghijklmnopqrst1234 hf_hub_download", "[removed] hf_hub_download"),
        ("sk-proj-abcdef1234567890 sk-learn-contrib-package", "[removed] sk-learn-contrib-package"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [removed]"),
        ("\x1b[32mFile /home/jo/x\x1b[0m", "\x1b[32mFile ~/x\x1b[0m"),
        ("/home/\x1b[32mjo/x\x1b[0m", "~/x"),
        ("r_0 / r_2, a/b, 3 / 4, ~/x", "r_0 / r_2, a/b, 3 / 4, ~/x"),
    ],
)
def test_scrubbed(text, clean):
    assert SCRUBBED.text(text) == clean
    assert SCRUBBED.text(clean) == clean


@pytest.mark.parametrize("host", ["data", "vm", "localhost", ""])
def test_a_host_with_a_plain_name_is_no_word_to_remove(host):
    text = f"the {host} of a {host}-like thing"
    assert Scrubber([], [], host=host).text(text) == text


def test_sentences_on_the_demo_are_left_out_where_the_files_are_somebodys():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        words = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
        demo, own = (cleaned(nbformat.read(path, 4), passed) for passed in ({"STEPS": 3}, {"CAPTURES": "x"}))
        assert [cell.source for cell in demo.cells if cell.cell_type == "markdown"] == words
        left = [cell.source for cell in own.cells if cell.cell_type == "markdown"]
        assert not any("committed" in text for text in left), path.name
        assert all(abs(len(a) - len(b)) < 400 for a, b in zip(words, left, strict=True)), path.name
    text = "Given: a folder. As committed, it runs on `x.json` 0.32.0, as said. Without it, none."
    assert OF_THE_DEMO.sub("", text) == "Given: a folder. Without it, none."


def test_pictures_are_left_as_they_are():
    node = {"image/png": "/home/jo/x", "text/plain": "/home/jo/x", "n": [1, None]}
    assert SCRUBBED.all(node) == {"image/png": "/home/jo/x", "text/plain": "~/x", "n": [1, None]}


def test_a_page_embeds_pictures_of_its_own_folder(tmp_path):
    (tmp_path / "p.svg").write_text("<svg/>")
    made = pages.offline('<h2>A¶</h2><img src="p.svg"><img src="../q.png"><a href="a.ipynb">a</a>', ["b"], tmp_path)
    assert 'src="data:image/svg+xml;base64,' in made and "q.png" not in made
    assert "href" not in made, "no page of this name"
