"""Figures of panels with rows and curves: as a table, as JSON, and as a page."""

from __future__ import annotations

import html
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from mark.studies.report.figure_style import COLOURS, new_figure, styled
from mark.studies.report.report import Head, Part, Plot, Report, formatted
from mark.studies.report.words import number, percent
from mark_papers.paper_pages.shared import titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mark_papers.panels import FigurePanel, PanelFigure

_TIMES = ("_ms", "_us")


def panels_report(found: PanelFigure) -> Report:
    data = {
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
    parts: list[Part] = []
    for panel in found.panels:
        plot = [Plot(panel.title, partial(_plotted, panel))] if panel.curves else []
        parts += [*plot, *titled(panel.title, _heads(panel), _cells(panel), "In figures" if plot else "")]
    return Report(data, found.headline, parts, found.takeaways, found.notes, subject=found.paper)


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


def _heads(panel: FigurePanel) -> tuple[Head, ...]:
    first, *others = map(_head, panel.rows[0])
    return (first, *formatted(*others))


def _head(column: str) -> str:
    return column.replace("_", " ")


def _cells(panel: FigurePanel) -> list[list[str]]:
    return [[_cell(column, value) for column, value in row.items()] for row in panel.rows]


def _cell(column: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return number(value, 1) if column.endswith(_TIMES) else percent(value, 2)
