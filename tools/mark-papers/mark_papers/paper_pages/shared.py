"""The common parts of the pages of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mark.domain.slo import Slo
from mark.studies.report.htmlpage import bullets, grid, html_page, section
from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import milliseconds, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

TICKS_MS = [step * 10**power for power in range(7) for step in (1, 2, 5)]  # of logarithmic axes
RT_MAX_LINE = {"color": "#dc2626", "width": 1.2, "dash": "dot"}

Table = tuple[str, Sequence[Sequence[str]]]
"""(title, cells)"""


def titled(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[RenderableType]:
    """Return a title and its table for the terminal."""
    table = columns(*heads)
    for cells in rows:
        table.add_row(*cells)
    return [text(title), table]


def figure_table(
    headline: str, heads: Sequence[str], tables: Sequence[Table], takeaways: Sequence[str], notes: Sequence[str]
) -> RenderableType:
    """Return a figure for the terminal."""
    parts = [part for title, cells in tables for part in titled(title, heads, cells)]
    return page(text(headline, "bold"), *parts, *sentences(takeaways), *small_print(notes))


def figure_page(
    figure: str,
    takeaways: Sequence[str],
    headline: str,
    plot: str,
    heads: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[str],
) -> str:
    """Return the whole page of a figure, such as "Fig. 7". `plot` is HTML, `heads` are the heads of every table."""
    return html_page(
        title=f"mark: {figure} of the MArk paper",
        kicker=f"mark · {figure} of the MArk paper",
        sentences=takeaways,
        facts=headline,
        sections=[
            plot,
            *(section(title, grid(heads, cells)) for title, cells in tables),
            section("Notes", bullets(notes)),
        ],
    )


def asked(model: str, slo: Slo) -> str:
    """Return the SLO of a model, as the title of its table."""
    return f"{model}: {percent(slo.attainment, 0)} within {milliseconds(slo.rt_max_s * 1e3)} ms asked"
