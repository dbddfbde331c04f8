"""Figures of panels as table, JSON and page."""

from __future__ import annotations

import json

from mark_papers.panels import Curve, FigurePanel, PanelFigure, Row
from mark_papers.panels_page import panels_report

from mark.studies.report.htmlpage import html_of
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed


def found(figure: str = "clipper-fig3-9", title: str = "forests on digits") -> PanelFigure:
    rows: tuple[Row, ...] = (
        {"forests": "4", "p99_all_ms": 31.25, "error": 0.0125},
        {"forests": "8", "p99_all_ms": 40.0, "error": 0.01},
    )
    panel = FigurePanel(title, rows, (Curve(title, (4.0, 8.0), (31.25, 40.0)),), ("forests", "p99_ms"))
    plain = FigurePanel("without curves", ({"answers": "exp4", "share": 1.0},))
    return PanelFigure(
        figure, "Crankshaw's thesis", "Fig. 3.9 of Clipper", (panel, plain), ("It holds.",), ("digits only",)
    )


def test_table_json_and_page_hold_the_same_numbers() -> None:
    shown = printed(panels_report(found()))
    lines = [line.split() for line in shown.splitlines()]
    assert ["forests", "p99", "all", "ms", "error"] in lines
    assert ["4", "31.2", "1.25", "%"] in lines
    assert ["exp4", "100.00", "%"] in lines
    assert "note: digits only" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    data = json.loads(json.dumps(panels_report(found()).data))
    assert (data["schema"], data["figure"]) == (1, "clipper-fig3-9")
    assert data["panels"][0]["rows"][0] == {"forests": "4", "p99_all_ms": 31.25, "error": 0.0125}
    assert data["panels"][0]["curves"] == [{"name": "forests on digits", "x": [4.0, 8.0], "y": [31.25, 40.0]}]
    assert data["notes"] == ["digits only"]
    page = html_of(panels_report(found()))
    assert "31.2" in page
    assert "Fig. 3.9 of Clipper" in page
    assert "Crankshaw&#x27;s thesis" in page


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(panels_report(made))).tags for made in (found(title=EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
