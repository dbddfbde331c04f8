"""Fig. 8 as table, JSON and page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mark_papers.paper.fig8 import Fig8, Fig8Row
from mark_papers.paper_pages.fig8_page import MOST_POINTS, ccdf, ccdf_figure, fig8_report, takeaways

from mark.studies.report.htmlpage import html_of
from tests.studies.report.results import result
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed


def found(model: str = "nasnet", trace: str = "day.csv.gz") -> Fig8:
    stream = {name: result() for name in ("mark", "mark-paper", "sagemaker")}
    mmpp = {**stream, "mark-paper": result(attainment=0.6), "sagemaker": result(usd=40.0, attainment=0.8)}
    return Fig8(trace, 604800.0, (Fig8Row(model, stream, mmpp),))


def test_a_curve_falls_monotonically_in_few_points() -> None:
    """Points are even in the logarithm of the share; the slowest answer has no logarithm and is left out."""
    share = np.append(np.geomspace(1.0, 1e-6, 20_000), 0.0)
    ms, slower = ccdf(result(ccdf_ms=np.arange(1.0, 20_002.0), ccdf_share=share))
    assert len(ms) == len(slower) <= MOST_POINTS
    assert (ms[0], slower[0]) == (1.0, 1.0)
    assert slower[-1] == pytest.approx(1e-6)
    assert np.all(np.diff(slower) < 0.0)
    ratios = np.array(slower[1:]) / np.array(slower[:-1])
    assert ratios.min() > 0.94
    assert ccdf(result(ccdf_ms=np.zeros(0), ccdf_share=np.zeros(0))) == ([], [])


def test_every_policy_has_a_curve_on_both_kinds_of_traffic() -> None:
    names = ("mark", "mark-paper", "sagemaker")
    lines = [(line.name, line.line.dash) for line in ccdf_figure(found()).data]
    solid, dashed = ([(f"{n}, {on}", dash) for n in names] for on, dash in (("the stream", "solid"), ("MMPP", "dash")))
    assert lines == solid + dashed


def test_the_takeaway_names_each_missed_slo_with_its_case() -> None:
    assert takeaways(found()) == [
        "mark kept the promise in every case.",
        "mark-paper missed the promise for nasnet on MMPP (60.0 %).",
        "sagemaker missed the promise for nasnet on MMPP (80.0 %).",
    ]


def test_table_json_and_page_hold_the_same_numbers() -> None:
    shown = printed(fig8_report(found()))
    assert "$40.50" in shown
    assert "1 day" not in shown
    assert "24 h from day 7" in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines()) <= 80
    data = json.loads(json.dumps(fig8_report(found()).data))
    row = data["rows"][0]
    assert (data["schema"], data["figure"], row["mmpp"]["sagemaker"]["bill_usd"]["total"]) == (1, "fig8", 40.5)
    assert len(row["stream"]["mark"]["ccdf"]["latency_ms"]) == len(row["stream"]["mark"]["ccdf"]["share_slower"])
    page = html_of(fig8_report(found()))
    assert "$40.50" in page
    assert "<h2>Slower than</h2>" in page


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(fig8_report(made))).tags for made in (found(EVIL, EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
