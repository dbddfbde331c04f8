"""Fig. 7 as table, JSON and page."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from mark_papers.paper.fig7 import Fig7, Fig7Row
from mark_papers.paper_pages.fig7_page import box_figure, fig7_report, latency_at_ms, reduction, takeaways

from mark.simulation.result import Latency
from mark.studies.report.htmlpage import html_of
from tests.studies.report.results import result
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed

# Equally many answers at 1, 2, ..., 100 ms.
EVEN: dict[str, Any] = {"ccdf_ms": np.arange(1.0, 101.0), "ccdf_share": 1.0 - np.arange(1.0, 101.0) / 100.0}


def found(model: str = "nasnet", trace: str = "day.csv.gz") -> Fig7:
    runs = {
        "mark": result(latency_ms=Latency(mean=50.0, p50=50.0), **EVEN),
        "mark-spot": result(latency_ms=Latency(mean=40.0, p50=40.0), **EVEN),
        "mark-paper": result(attainment=0.9, latency_ms=Latency(mean=150.0, p50=150.0)),
        "sagemaker": result(usd=40.0, latency_ms=Latency(mean=100.0, p50=100.0)),
    }
    return Fig7(trace, 604800.0, (Fig7Row(model, runs),))


@pytest.mark.parametrize(("share", "ms"), [(0.01, 1.0), (0.25, 25.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)])
def test_a_latency_that_a_share_does_not_exceed(share: float, ms: float) -> None:
    assert latency_at_ms(result(**EVEN), share) == ms


def test_without_answers_there_is_none() -> None:
    assert math.isnan(latency_at_ms(result(ccdf_ms=np.zeros(0), ccdf_share=np.zeros(0)), 0.5))


def test_a_box_lies_where_the_latencies_do() -> None:
    mark, *_, sagemaker = box_figure(found()).data
    edges = [mark[key][0] for key in ("lowerfence", "q1", "median", "q3", "upperfence", "mean")]
    assert edges == [1.0, 25.0, 50.0, 75.0, 99.0, 50.0]
    assert (mark.name, sagemaker.name) == ("mark", "sagemaker")


def test_the_takeaway_names_slo_keepers_and_the_fastest() -> None:
    assert takeaways(found()) == [
        "mark, mark-spot and sagemaker kept the promise in every case.",
        "mark-paper missed the promise for nasnet (90.0 %).",
        "The median with mark is up to 50 % below SageMaker's (the paper: up to 57 %).",
        "The median with mark-spot is up to 60 % below SageMaker's (the paper: up to 60 %).",
    ]
    slower = Fig7Row(
        "x", {"mark": result(latency_ms=Latency(p50=200.0)), "sagemaker": result(latency_ms=Latency(p50=100.0))}
    )
    assert reduction(slower, "mark") == -1.0
    assert reduction(Fig7Row("x", {"mark": result(), "sagemaker": result(latency_ms=Latency())}), "mark") is None


def test_a_policy_slower_everywhere_is_reported_as_such() -> None:
    runs = {name: result(latency_ms=Latency(p50=p50)) for name, p50 in (("mark", 9.0), ("mark-spot", 8.0))}
    slower = Fig7("t", 0.0, (Fig7Row("nasnet", {**runs, "sagemaker": result(latency_ms=Latency(p50=7.0))}),))
    assert takeaways(slower)[1] == "The median with mark is nowhere below SageMaker's (the paper: up to 57 %)."


def test_table_json_and_page_hold_the_same_numbers() -> None:
    shown = printed(fig7_report(found()))
    assert "nasnet: 98 % within 600 ms asked" in shown
    assert "$40.50" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    data = json.loads(json.dumps(fig7_report(found()).data))
    assert (data["schema"], data["figure"], data["trace"]) == (1, "fig7", "day.csv.gz")
    assert data["rows"][0]["runs"]["mark"]["box_ms"] == {"p1": 1.0, "p25": 25.0, "p50": 50.0, "p75": 75.0, "p99": 99.0}
    page = html_of(fig7_report(found()))
    assert "$40.50" in page
    assert "<h2>Latency</h2>" in page


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(fig7_report(made))).tags for made in (found(EVIL, EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
