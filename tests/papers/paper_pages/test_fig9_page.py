"""Fig. 9 as table, JSON and page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from mark_papers.paper.fig9 import Fig9, Panel, WindowSeries
from mark_papers.paper_pages.fig9_page import fig9_report, panels_figure, takeaways

from mark.simulation.result import Decision, Requests
from mark.studies.report.htmlpage import html_of
from tests.studies.report.results import result, timeline
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed

RESUMED = tuple(
    Decision(420.0, "resume", "resume #1", outcome, 0.0) for outcome in ("done", "done", "no such instance")
)


def line(name: str, **changes: Any) -> WindowSeries:
    """Return two minutes in windows of 5 s: 100 ms before the second minute, then half late for 10 s, then 100 ms."""
    mean_ms, in_time = np.full(24, 100.0), np.ones(24)
    mean_ms[12:14], in_time[12:14] = 900.0, 0.5
    run = result(**dict[str, Any](timeline=timeline(2), decisions=RESUMED) | changes)
    return WindowSeries(name, run, np.full(24, 10.0), in_time, mean_ms, 2.0 * mean_ms)


def found(title: str = "+50 %", **changes: Any) -> Fig9:
    panel = Panel(title, 60.0, (line("mark", **changes), line("other", attainment=0.9)))
    return Fig9((panel,), (panel,))


def test_a_window_at_the_promised_share_is_not_missed() -> None:
    at, below = (replace(line("mark"), in_time=np.full(24, share)) for share in (0.98, 0.97))
    assert (at.missed_s, below.missed_s) == (0.0, 120.0)


def test_the_json_tells_before_from_after() -> None:
    data = json.loads(json.dumps(fig9_report(found()).data))
    (panel,) = data["storms"]
    assert (data["figure"], data["window_s"], panel["title"], panel["at_s"]) == ("fig9", 5.0, "+50 %", 60.0)
    run = panel["runs"]["mark"]
    assert run["in_time_after"] == 11.0 / 12.0
    assert (run["missed_s"], run["mean_before_ms"], run["worst_mean_ms"], run["resumed"]) == (10.0, 100.0, 900.0, 2)
    assert {len(values) for values in run["windows"].values()} == {24}


def test_the_table_fits_80_columns_and_marks_the_slo() -> None:
    shown = printed(fig9_report(found()))
    assert "Surges: mark kept the promise in every case." in shown
    assert "Surges: other missed the promise for +50 % (90.0 %)." in shown
    assert "No request was left unanswered." in shown
    assert "resumed" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_unanswered_requests_are_counted_over_all_runs() -> None:
    """Three in the run that both panels hold."""
    lost = found(requests=Requests(instances=97, functions=0, rejected=3))
    assert takeaways(lost)[-1] == "6 requests were left unanswered."


def test_the_figure_shows_latency_share_and_capacity_of_every_run() -> None:
    figure = panels_figure(found().surges)
    lines = [trace for trace in figure.data if trace.name == "mark"]
    latency, share, capacity = lines
    assert (latency.x[0], latency.x[-1], latency.y[12]) == (2.5 / 60.0, 117.5 / 60.0, 900.0)
    assert (share.y[11], share.y[12]) == (1.0, 0.5)
    assert (list(capacity.x), list(capacity.y)) == ([0.0, 1.0], [120.0, 120.0])
    assert [trace.name for trace in figure.data].count("load") == 1


def test_a_page_holds_what_there_is() -> None:
    page = html_of(fig9_report(found()))
    assert "Fig. 9a-c of the paper" in page
    assert "Fig. 9d of the paper" in page
    only = Fig9((), found().storms)
    assert "Fig. 9a-c" not in html_of(fig9_report(only))
    assert "Fig. 9a-c" not in printed(fig9_report(only))


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(fig9_report(made))).tags for made in (found(EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
