"""HTML pages of executed notebooks, and the index over them. They need no network, no script and no kernel."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from nbformat import NotebookNode, v4

HEADING = re.compile("^h[1-6]$")
FETCHED = re.compile(r"@import[^;]*;|url\(\s*['\"]?(?:https?:)?//[^)]*\)", re.IGNORECASE)
WORD = re.compile(r"(?!NaN|None|True|False|dropped)[A-Za-z_]{3}")
EXTERNAL = re.compile(r"^(https?:)?//", re.IGNORECASE)
PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".svg": "image/svg+xml"}

# nbconvert's own page without what it fetches (require.js, MathJax, mermaid, the widget manager). Wide things scroll.
TEMPLATE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_css -%}<style>
body.jp-Notebook { overflow: auto; }
main { max-width: 1080px; margin: 0 auto; padding: 0 1em 4em; }
nav { padding: 0.8em 0; font-family: var(--jp-content-font-family); font-size: 14px; }
nav a { margin-right: 1.4em; }
nav a, .jp-RenderedMarkdown a { text-decoration: underline; }
.jp-OutputArea-child, .jp-OutputArea-output { display: block; box-sizing: border-box; min-width: 0; max-width: 100%; }
.jp-OutputArea-child { overflow-x: auto; }
.jp-OutputArea .highlight pre { font-family: var(--jp-code-font-family); white-space: pre-wrap; }
.jp-InputArea-editor, .jp-OutputArea-output { overflow-x: auto; }
.jp-OutputArea-output.jp-RenderedHTML { overflow-x: auto; width: fit-content; max-width: 100%; }
.jp-RenderedHTMLCommon table { table-layout: auto; margin-left: 0; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { max-width: 44em; }
.jp-RenderedHTMLCommon tbody :is(td, th) { vertical-align: top !important; }
.jp-RenderedHTMLCommon :is(tbody th, tr + tr th, .words) { text-align: left !important; }
@media (max-width: 760px) { body.jp-Notebook { padding: 0; } main { padding: 0 0.4em 4em; } }
.jp-RenderedHTMLCommon details { margin: 0.6em 0; }
.jp-RenderedImage img { max-width: 100%; height: auto; }
@media print { .jp-OutputArea-output.jp-RenderedHTML { max-height: none; } nav { display: none; } }
</style>{%- endblock -%}
{%- block body_header -%}{{ super() }}{{ resources.navigation }}{%- endblock -%}
"""

INDEX = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em; color: #111;
  background: #fff; }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; vertical-align: top; padding: 0.5em 1em 0.5em 0; border-top: 1px solid #ccc; }}
td p {{ margin: 0 0 0.4em; }}
code {{ overflow-wrap: anywhere; background: #f2f2f2; }}
.wide {{ overflow-x: auto; }}
.one + .one {{ margin-top: 0.8em; }}
.why {{ color: #8a3b00; }}
.top {{ font-size: 17px; border: 1px solid #999; padding: 0 1em; margin: 1em 0; overflow-wrap: anywhere; }}
@media (max-width: 760px) {{ table, tbody, tr, td, tbody th {{ display: block; border: 0; }} thead {{ display: none; }}
  td, th {{ padding: 0; overflow-wrap: anywhere; }} tr {{ border-top: 1px solid #ccc; padding: 0.5em 0; }} }}
</style></head><body><main>
<h1>{title}</h1>
{top}
<div class="wide"><table><thead><tr><th>notebook</th><th>question</th><th>answer</th></tr></thead><tbody>
{rows}
</tbody></table></div>
<h2>Made with</h2>
<div class="wide"><table><tbody>
{facts}
</tbody></table></div>
</main></body></html>
"""


@dataclass(frozen=True)
class Row:
    """One notebook in the index. `answer` is markdown; where there is none, `why` says so."""

    name: str
    question: str
    answer: str | None
    why: str
    there: bool  # there is a page to lead to


def page(notebook: NotebookNode, name: str, names: Sequence[str], folder: Path) -> str:
    """The HTML page of the executed notebook `name`, one of `names`. Pictures that its markdown names are read from `folder`."""
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        extra_loaders=[DictLoader({"eagle3.html.j2": TEMPLATE})], template_file="eagle3.html.j2",
        exclude_input_prompt=True, exclude_output_prompt=True,
    )  # fmt: skip
    exporter.log.setLevel("CRITICAL")  # it warns of pictures without a text; they are given one below
    priority = exporter.config.NbConvertBase.display_data_priority
    exporter.config.NbConvertBase.display_data_priority = [
        kind for kind in priority if "widget" not in kind and "script" not in kind
    ]
    resources = {"metadata": {"name": title(notebook) or name}, "navigation": _navigation(name, names)}
    if (said := answer(notebook)) and notebook.cells[0].cell_type == "markdown":  # on the first screen
        shown = v4.new_markdown_cell("\n".join(f"> {line}" for line in ("**The answer, from below.**", "", *said.splitlines())))
        notebook = NotebookNode({**notebook, "cells": [notebook.cells[0], shown, *notebook.cells[1:]]})
    made, _ = exporter.from_notebook_node(notebook, resources=resources)
    return offline(made, names, folder)


def title(notebook: NotebookNode) -> str:
    """The first heading of a notebook, or nothing."""
    lines = (line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines())
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")


def _navigation(name: str, names: Sequence[str]) -> str:
    here = list(names).index(name)
    links = [("index", "index")]
    links += [(f"previous: {other}", other) for other in names[:here][-1:]]
    links += [(f"next: {other}", other) for other in names[here + 1 :][:1]]
    shown = (f'<a href="{quote(to)}.html">{html.escape(text)}</a>' for text, to in links)
    return f"<nav>{''.join(shown)}</nav>"


def offline(made: str, names: Sequence[str], folder: Path | None = None) -> str:
    """A page that fetches nothing: no script, no style or picture from elsewhere; pictures of `folder` are put into it.

    A link to one of the notebooks `names` leads to its page. A link to any other file stays as text: beside this page there
    is no such file. Each picture says under which heading it stands.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(made, "html.parser")
    for tag in soup(["script", "iframe", "object", "embed", "link", "base", "form", "meta"]):
        if tag.name != "meta" or tag.has_attr("http-equiv"):
            tag.decompose()
    for style in soup.select(".jp-RenderedMarkdown style, td style"):
        style.decompose()  # from a name; a table's own style stands before it
    for tag in soup(True):
        for name in [name for name in tag.attrs if name.lower().startswith("on")]:
            del tag[name]  # a sample's name may hold <svg onload=...>
        if str(tag.get("href", "")).strip().lower().startswith(("javascript:", "data:", "vbscript:")) and not tag.has_attr(
            "download"
        ):
            del tag["href"]
    for style in soup("style"):
        kept = FETCHED.sub("", style.get_text())
        if kept != style.get_text():
            style.string = kept
    for tag in soup(style=re.compile(r"url\(", re.IGNORECASE)):
        del tag["style"]
    for tag in soup(src=True):
        tag["src"] = _embedded(tag["src"], folder)
        if not tag["src"]:
            tag.replace_with("(a picture from elsewhere, which this page does not fetch)")
    for tag in soup(srcset=True):
        del tag["srcset"]
    for table in soup.select("table.dataframe"):
        lines = [line("td") for line in table.select("tbody tr")]
        heads = table.select("thead tr")[0]("th")[-len(lines[0]) :] if lines else []
        for column in zip(heads, *lines, strict=False):  # by pandas' own choice a sentence would end at the right, as numbers do
            if any(WORD.search(cell.get_text()) for cell in column[1:]):
                for cell in column:
                    cell["class"] = [*cell.get("class", []), "words"]
    for image in soup("img"):
        heading = image.find_previous(HEADING)
        if heading and image.get("alt", "No description").startswith("No description"):
            image["alt"] = f"Figure under the heading: {heading.get_text().removesuffix('¶')}"
    for link in soup("a", href=True):
        if EXTERNAL.match(link["href"]) or link["href"].startswith(("#", "mailto:")) or link.has_attr("download"):
            continue
        inside = re.fullmatch(r"([^/?#]+)\.(?:ipynb|html)(#.*)?", link["href"])
        if inside and unquote(inside[1]) in (*names, "index"):
            link["href"] = f"{inside[1]}.html{inside[2] or ''}"
        else:
            link.unwrap()
    return str(soup)


def _embedded(source: str, folder: Path | None) -> str:
    """A picture's address as data, or nothing when it lies elsewhere or is no picture."""
    if source.startswith("data:"):
        return source
    kind = PICTURES.get(Path(source).suffix.lower())
    if EXTERNAL.match(source) or folder is None or kind is None or not (folder / source).is_file():
        return ""
    return f"data:{kind};base64,{base64.b64encode((folder / source).read_bytes()).decode()}"


def answer(notebook: NotebookNode) -> str | None:
    """The first markdown that the cell tagged `answer` shows."""
    cells = (cell for cell in notebook.cells if "answer" in cell.metadata.get("tags", []))
    shown = (output.get("data", {}).get("text/markdown") for cell in cells for output in cell.get("outputs", []))
    return next(filter(None, shown), None)


def index(rows: Sequence[Row], facts: Mapping[str, object], heading: str = "EAGLE-3 workbook", first: str = "05_verdict") -> str:
    """The page over all pages: the answer of the notebook `first`, what each was asked and answered, what they were made with."""
    from nbconvert.filters import markdown2html

    told = "\n".join(f"<tr><th>{html.escape(name)}</th><td>{_shown(value)}</td></tr>" for name, value in facts.items() if value)
    top = "".join(f'<div class="top">{markdown2html(row.answer)}</div>' for row in rows if row.name == first and row.answer)
    made = INDEX.format(title=html.escape(heading), top=top, rows="\n".join(map(_row, rows)), facts=told)
    return offline(made, [row.name for row in rows])


def _row(row: Row) -> str:
    from nbconvert.filters import markdown2html

    said = markdown2html(row.answer) if row.answer else f'<p class="why">{html.escape(row.why)}</p>'
    to, name = quote(row.name), html.escape(row.name)
    if row.there:
        name = f'<a href="{to}.html">{name}</a><br><a download href="{to}.ipynb">notebook</a>'
    return f"<tr><td>{name}</td><td>{html.escape(row.question)}</td><td>{said}</td></tr>"


def _shown(value: object) -> str:
    """A value of the stamp as HTML: an object as lines, nested ones folded."""
    if isinstance(value, Mapping):
        lines = "".join(f"<div>{html.escape(str(k))}: {_shown(v)}</div>" for k, v in value.items())
        return f"<details><summary>{len(value)}</summary>{lines}</details>" if len(value) > 9 else lines
    if isinstance(value, list | tuple):
        return "".join(f'<div class="one">{_shown(item)}</div>' for item in value)
    text = html.escape(str(value))
    return f"<code>{text}</code>" if re.fullmatch("[0-9a-f]{64}", text) else text
