"""Figures of panels with rows and curves: as a table, as JSON, and as a page."""

from __future__ import annotations

import html
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mark.studies.report.htmlpage import bullets, drawn, grid, html_page, new_figure, section, styled
from mark.studies.report.layout import page, sentences, small_print, text
from mark.studies.report.plots import COLOURS
from mark.studies.report.words import number, percent
from mark_papers.paper_pages.shared import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from rich.console import RenderableType

    from mark_papers.panels import FigurePanel, PanelFigure

_TIMES = ("_ms", "_us")


def panels_json(found: PanelFigure) -> dict[str, Any]:
    return {
        "schema": 1,
        "figure": found.figure,
        "panels": [
            {
                "title": panel.title,
                "rows": [dict(row) for row in panel.rows],
                "curves": [asdict(curve) for curve in panel.curves],
            }
            for panel in found.panels
        ],
        "notes": list(found.notes),
    }


def panels_table(found: PanelFigure) -> RenderableType:
    parts = [part for panel in found.panels for part in titled(panel.title, _heads(panel), _cells(panel))]
    return page(text(found.headline, "bold"), *parts, *sentences(found.takeaways), *small_print(found.notes))


def render_panels(found: PanelFigure) -> str:
    """Return the whole page, which is self-contained."""
    sections = []
    for panel in found.panels:
        if panel.curves:
            sections.append(section(panel.title, drawn(_plotted(panel))))
        sections.append(section("" if panel.curves else panel.title, grid(_heads(panel), _cells(panel))))
    return html_page(
        title=f"mark: {found.headline}",
        kicker=f"mark · {found.paper}",
        sentences=found.takeaways,
        facts=found.headline,
        sections=[*sections, section("Notes", bullets(found.notes))],
    )


def _plotted(panel: FigurePanel) -> Figure:
    figure = new_figure()
    for place, curve in enumerate(panel.curves):
        colour = COLOURS[place % len(COLOURS)]
        figure.add_scatter(
            x=curve.x, y=curve.y, name=html.escape(curve.name), mode="lines", line={"color": colour, "width": 1.5}
        )
    x_title, y_title = panel.axes
    figure.update_xaxes(title_text=_head(x_title))
    figure.update_yaxes(
        title_text=_head(y_title), tickformat=None if y_title.endswith(_TIMES) else ".0%", rangemode="tozero"
    )
    return styled(figure, 420)


def _heads(panel: FigurePanel) -> tuple[str, ...]:
    return tuple(_head(column) for column in panel.rows[0])


def _head(column: str) -> str:
    return column.replace("_", " ")


def _cells(panel: FigurePanel) -> list[list[str]]:
    return [[_cell(column, value) for column, value in row.items()] for row in panel.rows]


def _cell(column: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return number(value, 1) if column.endswith(_TIMES) else percent(value, 2)
