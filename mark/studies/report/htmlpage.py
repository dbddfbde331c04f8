"""A report as a self-contained HTML page with figures, which needs no network and no server.

Every text is escaped here; only a `Markup` and the HTML of a drawing are taken as they are.
"""

from __future__ import annotations

import gzip
import html
import json
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mark.domain.extras import module_of
from mark.studies.report.figure_style import ON_DARK
from mark.studies.report.report import DataTable, Marked, Markup, Part, Plot, Prose, Report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@lru_cache(maxsize=1)
def packed_plotly() -> str:
    """Return plotly's JavaScript (4.8 MB) in 1.9 MB, copied by packaging/plotly_bundle.py; `page_script` unpacks it."""
    return _packed("plotly", files("mark.studies.report").joinpath("plotly.min.js.gz").read_bytes())


def packed(name: str, text: str) -> str:
    """Return a script element that holds `text` as gzip in base64, for the page's script to unpack by its name."""
    return _packed(name, gzip.compress(text.encode(), mtime=0))


def _packed(name: str, compressed: bytes) -> str:
    return f"<script type=text/plain id={name}>{b64encode(compressed).decode()}</script>"


def asset(name: str) -> str:
    return files("mark.studies.report").joinpath(name).read_text("utf-8")


def page_script(own: str = "") -> str:
    """Return the last element of a page with figures: it draws them and runs `own`, a function's text or nothing."""
    return f"<script>const ON_DARK = {json.dumps(ON_DARK)};\n{asset('figures.js')}\nfigures.start({own});</script>"


def html_of(report: Report) -> str:
    """Return the report's page: self-contained, with its plots and every table that has a title."""
    first, *more = report.sentences or [report.headline]
    facts = "<br>".join(map(html.escape, filter(None, (report.read, report.headline))))
    lists = (("Warnings", report.warnings), ("Notes", report.notes))
    sections = [*map(_part, report.parts), *(_section(title, _bullets(lines)) for title, lines in lists if lines)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>mark: {html.escape(report.subject)}, {html.escape(report.headline)}</title>",
            f"<style>{asset('page.css')}</style>",
            f"</head><body><main><header><p class=kicker>mark · {html.escape(report.subject)}</p>",
            f"<h1>{html.escape(first)}</h1>",
            *(f"<p>{html.escape(sentence)}</p>" for sentence in more),
            f"<p class=facts>{facts}</p></header>",
            *filter(None, sections),
            "<footer>Made by mark. A self-contained file: nothing is loaded from elsewhere.</footer>",
            "</main>",
            packed_plotly(),
            page_script(report.script),
            "</body></html>\n",
        ]
    )


def _part(part: Part) -> str:
    """Return the HTML of a part; empty for parts of the terminal alone."""
    match part:
        case Markup():
            return part.html
        case Plot():
            figure = part.drawn()
            return _section(part.title, figure if isinstance(figure, str) else _drawn(figure), part.lead)
        case DataTable() if part.title:
            return _section(part.title, _grid(part) + _bullets(part.notes), part.lead)
        case Prose() if part.title:
            return _section(part.title, "".join(f"<p>{html.escape(line)}</p>" for line in part.lines))
    return ""


def _section(title: str, body: str, lead: str = "") -> str:
    above = f"<p class=lead>{html.escape(lead)}</p>" if lead else ""
    return f"<section><h2>{html.escape(title)}</h2>{above}{body}</section>"


def _bullets(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _grid(table: DataTable) -> str:
    """Return a table. The first cell of a row is its head, and marks the row if it is the best."""
    kinds = [" class=words" if isinstance(head, str) else "" for head in table.heads]
    names = [head if isinstance(head, str) else head[0] for head in table.heads]
    heads = "".join(f"<th scope=col{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    rows = []
    for first, *cells in table.cells():
        others = "".join(f"<td{kind}>{_cell(cell)}</td>" for kind, cell in zip(kinds[1:], cells, strict=True))
        best = " class=best" if first.mark == "best" else ""
        rows.append(f"<tr{best}><th scope=row>{html.escape(first.words)}</th>{others}</tr>")
    return f"<div class=wide><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _cell(cell: Marked) -> str:
    shown = html.escape(cell.words)
    if cell.mark in ("ok", "dips", "missed"):
        shown = f"<span class={cell.mark}>{shown}</span>"
    return f'<span title="{html.escape(cell.hint)}">{shown}</span>' if cell.hint else shown


def _drawn(figure: Figure | dict[str, Any]) -> str:
    """Return a figure for the page's script. Names in it must be escaped already; nothing in it can end its element."""
    if isinstance(figure, dict):
        kind, data = '"figure plot"', json.dumps(figure, separators=(",", ":"), allow_nan=False)
    else:
        kind = f'figure style="height:{figure.layout.height or 340}px"'
        data = str(module_of("plotly.io", "a page with figures").to_json(figure, validate=False))
    data = data.replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<div class={kind}><script type="application/json">{data}</script></div>'
