"""Figs. 5 and 9 of InferLine as table, JSON and page."""

from __future__ import annotations

import json

from mark_papers.inferline.planners import PlannedLoad, PlannerComparison
from mark_papers.inferline_pages.planners_page import planner_takeaways, planners_report

from mark.studies.report.htmlpage import html_of
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed


def found(figure: str = "inferline-fig5", pipeline: str = "image") -> PlannerComparison:
    usd = {"coarse-peak": 6.0, "coarse-mean": 3.0, "inferline": 4.0, "mark": 3.5}
    missed = {"coarse-peak": 0.0, "coarse-mean": 0.8, "inferline": 0.02, "mark": 0.004}
    calm = PlannedLoad(pipeline, 150.0, 150.0, 1.0, usd, missed)
    bursty = PlannedLoad(pipeline, 150.0, 150.0, 4.0, {**usd, "coarse-peak": 12.0}, missed)
    return PlannerComparison(figure, (calm, bursty))


def test_the_papers_ratio_stands_beside_ours() -> None:
    lines = planner_takeaways(found())
    assert lines[0] == "Coarse-grained for the peak costs up to 3.0 times InferLine's plan; the paper: up to 7.6."
    assert "inferline misses more than 1 % of new queries in 2 of 2 cases, at most 2.00 %." in lines
    assert "mark misses more than 1 % of new queries in 0 of 2 cases, at most 0.40 %." in lines
    assert lines[-1] == "mark pays 0.88 to 0.88 times the bill of InferLine's planner."


def test_table_json_and_page_hold_the_same_numbers() -> None:
    shown = printed(planners_report(found()))
    assert "Fig. 5 of the paper" in shown
    assert "$12.00 0.0 %" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    data = json.loads(json.dumps(planners_report(found()).data))
    assert (data["schema"], data["figure"], data["coarse_over_inferline_at_most"]) == (1, "inferline-fig5", 3.0)
    assert data["rows"][1]["usd_per_hour"]["coarse-peak"] == 12.0
    page = html_of(planners_report(found()))
    assert "$12.00 0.0 %" in page
    assert "Fig. 9" in html_of(planners_report(found("inferline-fig9")))


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(planners_report(made))).tags for made in (found(pipeline=EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
