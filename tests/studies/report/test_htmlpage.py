"""Pages with figures: whole, self-contained, and safe with any text."""

from __future__ import annotations

import gzip
from importlib.resources import files

from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from mark.studies.report.figure_style import faint, styled
from mark.studies.report.htmlpage import html_of
from mark.studies.report.report import DataTable, Marked, Part, Plot, Prose, Report
from tests.studies.report.test_compare_report import EVIL, parsed


def page(text: str) -> str:
    parts: list[Part] = [
        DataTable((text, text), [(text, Marked(text, "ok", text))], text, text, notes=[text]),
        Marked(text),
        Plot(text, lambda: styled(Figure().add_scatter(x=[1.0], y=[2.0], name="x"), 300), text),
        Prose([text], text),
    ]
    return html_of(Report({}, text, parts, [text, text], [text], [text], read=text, subject=text))


def test_a_page_is_whole_and_loads_nothing() -> None:
    tags = parsed(page("plain")).tags
    names = [tag for tag, _ in tags]
    assert [names.count(name) for name in ("html", "h1", "section", "table", "li")] == [1, 1, 5, 1, 3]
    for tag, attrs in tags:
        assert tag not in ("link", "iframe", "img")
        assert "src" not in attrs, tag
        assert "href" not in attrs, tag


def test_no_text_becomes_markup() -> None:
    evil, plain = (parsed(page(text)).tags for text in (EVIL, "plain"))
    assert [tag for tag, _ in evil] == [tag for tag, _ in plain]


def test_bundle_is_that_of_the_pinned_plotly() -> None:
    """Otherwise run packaging/plotly_bundle.py: figures are made for the plotly that is installed."""
    assert (
        gzip.decompress(files("mark.studies.report").joinpath("plotly.min.js.gz").read_bytes()).decode()
        == get_plotlyjs()
    )


def test_a_faint_colour_keeps_its_hue() -> None:
    assert faint("#2563eb", 0.25) == "rgba(37,99,235,0.25)"
