"""Dollars against the promise, shown."""

from __future__ import annotations

from typing import Any

import pytest
from plotly.graph_objects import Figure

from mark.domain.slo import Slo
from mark.studies.frontier import Frontier, FrontierPoint
from mark.studies.report.frontier_report import frontier_report, nines_figure, rt_max_figure, takeaways
from mark.studies.report.htmlpage import html_of
from mark.studies.report.words import per_month
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed
from tests.studies.test_frontier import OWN, found, run

INFEASIBLE = FrontierPoint(Slo(0.1, 0.98), None, "no offer meets the SLO: closest is c5.large")


def points(**changes: Any) -> Frontier:
    """Return three RT_max with two attainments: no offer can keep the first, and the strictest of them is missed."""
    runs = {
        Slo(0.3, 0.9): run(Slo(0.3, 0.9), 11.0),
        Slo(0.6, 0.9): run(Slo(0.6, 0.9), 9.0),
        Slo(0.3, 0.98): run(Slo(0.3, 0.98), 13.0, **changes),
        OWN: run(OWN, 10.0),
    }
    return found(INFEASIBLE, *(FrontierPoint(slo, one, bound_usd=5.0) for slo, one in runs.items()))


def lines(figure: Figure) -> dict[str, Any]:
    return {line.name: line for line in figure.data}


def test_a_line_for_each_attainment_with_its_bound_below() -> None:
    drawn = lines(rt_max_figure(points(attained=0.5)))
    assert list(drawn) == ["90 %", "90 %, bound", "98 %", "98 %, bound", "the service's own promise"]
    assert list(drawn["98 %"].x) == [300.0, 600.0]
    assert list(drawn["98 %"].y) == [per_month(13.0, 86400.0), per_month(10.0, 86400.0)]
    assert list(drawn["98 %"].marker.symbol) == ["square-open", "square"]
    for name in ("90 %", "98 %"):
        assert list(drawn[f"{name}, bound"].y) == [per_month(5.0, 86400.0)] * 2
    assert (list(drawn["the service's own promise"].x), drawn["the service's own promise"].mode) == ([600.0], "markers")


def test_a_line_for_each_rt_max_over_nines() -> None:
    figure = nines_figure(points())
    drawn = lines(figure)
    assert list(drawn) == ["300 ms", "300 ms, bound", "600 ms", "600 ms, bound", "the service's own promise"]
    assert list(drawn["600 ms"].x) == [pytest.approx(1.0), pytest.approx(1.69897)]
    assert list(figure.layout.xaxis.ticktext) == ["90 %", "98 %"]


def test_the_page_is_whole_and_no_text_becomes_markup() -> None:
    page = html_of(frontier_report(points()))
    assert "$304 a month" in page
    assert "98 % in 600 ms, the service&#x27;s own promise" in page
    evil = Frontier(EVIL, EVIL, 0, OWN, (FrontierPoint(OWN, None, EVIL),))
    plain = Frontier("x", "y", 0, OWN, (FrontierPoint(OWN, None, "z"),))
    tags = [[tag for tag, _ in parsed(html_of(frontier_report(one))).tags] for one in (evil, plain)]
    assert tags[0] == tags[1]


def test_the_table_marks_the_own_promise_and_explains_infeasible_ones() -> None:
    shown = printed(frontier_report(points(attained=0.5)))
    assert max(map(len, shown.splitlines())) <= 80
    rows = {line.strip() for line in shown.splitlines()}
    assert any(row.startswith("* 98 % in 600 ms ") and " ok " in row for row in rows)
    assert any(row.startswith("98 % in 300 ms ") and " MISSED " in row for row in rows)
    assert any(row.startswith("98 % in 100 ms ") and " infeasible " in row for row in rows)
    assert "note: infeasible: no offer meets the SLO: closest is c5.large" in shown


def test_every_step_along_the_own_promise_has_its_price() -> None:
    shown = " ".join(printed(frontier_report(points())).split())
    assert "98 %: 600 ms to 300 ms +$3.04 98 %: 300 ms to 100 ms - 600 ms: 90 % to 98 % +$44 " in shown
    assert "<th scope=row>600 ms: 90 % to 98 %</th><td></td><td>+$44</td>" in html_of(frontier_report(points()))


def test_a_few_sentences_say_what_more_would_cost() -> None:
    said = takeaways(points())
    assert said[0] == "98 % in 600 ms, the service's own promise, costs $304 a month, 2.00 times the bound."
    assert said[1] == "The next 10 ms: $3.04 a month more (in proportion, from 600 ms to 300 ms)."
    assert said[2] == "The next nine: nothing stricter was measured."
    assert said[3].startswith("It is the cheapest point that is not worse")
    assert "no price from 600 ms to 300 ms, because the promise was missed" in takeaways(points(attained=0.5))[1]


def test_a_stricter_promise_for_less_is_named() -> None:
    said = takeaways(found(run(Slo(0.3, 0.98), 8.0), run(OWN, 10.0)))
    assert said[-1] == "Cheapest point that is not worse: 98 % in 300 ms for $243 a month, $61 a month less."
    assert said[1] == "The next 10 ms: $2.03 a month less (in proportion, from 600 ms to 300 ms)."


def test_a_promise_that_was_missed_has_no_price() -> None:
    said = takeaways(found(run(Slo(0.3, 0.98), 12.0), run(OWN, 10.0, 0.9)))
    assert said[0] == "98 % in 600 ms, the service's own promise, was missed: 90.00 % in time, for $304 a month."
    assert said[-1] == "Cheapest point that is not worse: 98 % in 300 ms, kept for $365 a month."
    assert takeaways(found(run(OWN, 10.0, 0.9)))[-1] == "No run kept the service's own promise or a stricter one."
    assert takeaways(found(run(OWN, 10.0, None))) == ["No requests arrived in this part of the trace."]
    assert takeaways(found(FrontierPoint(OWN, None, "too slow"))) == [
        "No offer can keep the service's own promise, 98 % in 600 ms."
    ]


def test_no_request_is_no_promise() -> None:
    assert frontier_report(found(run(OWN, 10.0, None))).data["points"][0]["kept"] is None


def test_the_json_leaves_out_what_depends_on_the_machine() -> None:
    data = frontier_report(points()).data
    assert [point["own"] for point in data["points"]] == [False, False, False, False, True]
    assert data["points"][0]["infeasible"] == INFEASIBLE.infeasible
    assert data["points"][0]["run"] is None
    assert "speed" not in data["points"][1]["run"]
    assert data["points"][4]["run"]["bill_usd"]["total"] == data["points"][4]["usd"] == 10.0
    assert data["next_10_ms"]["usd"] == pytest.approx(0.1)
