"""The common parts of the pages of the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mark.domain.slo import Slo
from mark.studies.report.report import DataTable, Head, Marked, Part, Plot, Report
from mark.studies.report.words import milliseconds, percent

TICKS_MS = [step * 10**power for power in range(7) for step in (1, 2, 5)]  # of logarithmic axes
RT_MAX_LINE = {"color": "#dc2626", "width": 1.2, "dash": "dot"}

FigureTable = tuple[str, Sequence[Sequence[Any]]]
"""(title, cells)"""


def titled(title: str, heads: Sequence[Head], rows: Sequence[Sequence[Any]], on_page: str = "") -> list[Part]:
    """Return a title and its table; `on_page` is the title of its section, if it has another."""
    return [Marked(title), DataTable(heads, rows, on_page or title)]


def figure_report(
    figure: str,
    data: Mapping[str, Any],
    headline: str,
    plot: Plot,
    heads: Sequence[Head],
    tables: Sequence[FigureTable],
    takeaways: Sequence[str],
) -> Report:
    """Return a figure of the paper, such as "Fig. 7". `heads` are the heads of every table."""
    parts = [part for title, cells in tables for part in titled(title, heads, cells)]
    return Report(data, headline, [plot, *parts], takeaways, data["notes"], subject=f"{figure} of the MArk paper")


def asked(model: str, slo: Slo) -> str:
    """Return the SLO of a model, as the title of its table."""
    return f"{model}: {percent(slo.attainment, 0)} within {milliseconds(slo.rt_max_s * 1e3)} ms asked"
