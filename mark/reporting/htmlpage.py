"""The few pieces that HTML pages with figures are made of: one file that needs nothing else, no network and no server.

Texts are escaped here; what comes back is HTML.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


# plotly takes 0.3 s to import, and only pages with figures need it: these three functions do it.


def plotly_script() -> str:
    """plotly's JavaScript."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def new_figure(rows: int = 1, columns: int = 1, **options: Any) -> Figure:
    """An empty figure, or a grid of them; options are those of plotly's `make_subplots`."""
    from plotly.subplots import make_subplots

    return make_subplots(rows, columns, **options)


def html_page(*, title: str, kicker: str, sentences: Sequence[str], facts: str, sections: Sequence[str]) -> str:
    """The whole page. The first sentence is its heading; `sections` are HTML, empty ones are left out."""
    first, *more = sentences
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{files('mark.reporting').joinpath('page.css').read_text('utf-8')}</style>",
            f"<script>{plotly_script()}</script>",
            f"</head><body><main><header><p class=kicker>{html.escape(kicker)}</p>",
            f"<h1>{html.escape(first)}</h1>",
            *(f"<p>{html.escape(sentence)}</p>" for sentence in more),
            f"<p class=facts>{html.escape(facts)}</p></header>",
            *filter(None, sections),
            "<footer>Made by mark. A self-contained file: nothing is loaded from elsewhere.</footer>",
            "</main></body></html>\n",
        ]
    )


def section(title: str, body: str, lead: str = "") -> str:
    """`body` is HTML."""
    above = f"<p class=lead>{html.escape(lead)}</p>" if lead else ""
    return f"<section><h2>{html.escape(title)}</h2>{above}{body}</section>"


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first cell of a row is its head."""
    head = "".join(f"<th scope=col>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr><th scope=row>{html.escape(first)}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def bullets(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def drawn(figure: Figure) -> str:
    """A figure; plotly escapes what could end its script element, names in it must be escaped already."""
    from plotly.io import to_html

    config = {"displaylogo": False, "responsive": True}
    return str(to_html(figure, config=config, include_plotlyjs=False, full_html=False))


def styled(figure: Figure, height: int) -> Figure:
    """The figure in the page's look, `height` pixels high."""
    axis = {"gridcolor": "#eef2f6", "linecolor": "#cbd5e1", "zeroline": False, "automargin": True}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure.update_layout(
        template="none",
        height=height,
        font={"family": "system-ui, sans-serif", "size": 12.5, "color": "#475569"},
        margin={"l": 56, "r": 24, "t": 36, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.0 + 26.0 / height, "yanchor": "bottom", "x": 0},
        showlegend=True,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#94a3b8", "activecolor": "#0f172a"},
    )


def faint(colour: str, opacity: float) -> str:
    """A colour `#rrggbb` that lets through what lies below it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
