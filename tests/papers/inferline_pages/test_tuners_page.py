"""InferLine's tuner figures as table, JSON and page."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from mark_papers.inferline.tuners import SLO, FollowedLoad, TunerComparison
from mark_papers.inferline_pages.tuners_page import tuner_takeaways, tuners_report

from mark.domain.function_offer import FunctionCalls
from mark.domain.slo import Slo
from mark.planning.graphs.tuned_run import TunedRun
from mark.studies.report.htmlpage import html_of
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed


def run(usd: float, late: int) -> TunedRun:
    """Return a history of a hundred queries in 20 s, some of them late, on two replicas and then three."""
    latency_s = np.where(np.arange(100) < late, 1.0, 0.05)
    paid = np.array([[2]] * 10 + [[3]] * 10)
    dollars, hundred = np.array([usd]), np.array([100])
    return TunedRun(
        0.0, 20.0, np.arange(100) / 5.0, latency_s, np.arange(20.0), paid, paid, usd, paid[:, 0].astype(np.float64),
        dollars, paid.sum(axis=0).astype(np.float64), hundred, hundred * 0.01, hundred * 0.05,
    )  # fmt: skip


def found(figure: str = "inferline-fig6", title: str = "big spike") -> TunerComparison:
    runs = {"coarse": run(5.0, 7), "inferline": run(2.0, 1), "mark": run(1.5, 0)}
    paper = {"coarse": (36.30, 0.937), "inferline": (8.50, 0.998)}
    return TunerComparison(
        figure, "social", SLO, (FollowedLoad(title, 5.0, runs, paper), FollowedLoad(title, 90.0, runs, {}))
    )


def test_what_kept_the_promise_is_said_by_load_and_activation() -> None:
    assert tuner_takeaways(found()) == [
        "coarse missed the promise on big spike, activation 5 s (93.00 %), big spike, activation 90 s (93.00 %).",
        "inferline kept the promise in every case.",
        "mark kept the promise in every case.",
        "mark's bill is 0.75 to 0.75 times that of InferLine's planner and tuner.",
    ]


def test_table_json_and_page_agree_beside_the_papers_numbers() -> None:
    shown = printed(tuners_report(found()))
    assert "Fig. 6 of the paper" in shown
    assert "$36.30" in shown
    assert "93.7 %" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    data = json.loads(json.dumps(tuners_report(found()).data))
    load = data["loads"][0]
    assert (data["schema"], data["figure"], load["activation_s"]) == (1, "inferline-fig6", 5.0)
    assert load["paper"]["coarse"] == {"usd": 36.30, "in_time": 0.937}
    coarse = load["runs"]["coarse"]
    assert coarse["in_time"] == pytest.approx(0.93)
    assert (coarse["usd"], coarse["queries"], coarse["changes"]) == (5.0, 100, 1)
    assert coarse["windows"]["missed"] == [0.14, 0.0]
    assert coarse["windows"]["paid"] == [[2], [3]]
    assert "$36.30" in html_of(tuners_report(found()))


def test_the_table_of_activation_times_is_not_called_a_figure() -> None:
    shown = printed(tuners_report(found("inferline-activation")))
    assert "Not a figure of the paper" in shown
    assert "Activation times" in html_of(tuners_report(found("inferline-activation")))


def test_runs_with_functions_stand_beside_the_bound() -> None:
    """Functions' dollars are in the bill, and by themselves."""
    with_functions = replace(run(1.0, 1), by_function=(FunctionCalls(calls=7),), function_usd=0.2)
    load = FollowedLoad("big spike", 90.0, {"inferline": run(2.0, 1), "mark": run(1.5, 0)}, {}, bound_usd=1.0)
    load.runs["mark functions"] = with_functions
    made = TunerComparison("inferline-activation", "social", SLO, (load,))
    told = "Within 150 ms mark functions keeps 99.00 % or more in time, for 1.20 to 1.20 times the bound."
    assert tuner_takeaways(made)[-1] == told
    shown = printed(tuners_report(made))
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "by functions" in shown
    data = tuners_report(made).data["loads"][0]
    assert data["bound_usd"] == 1.0
    assert (data["runs"]["mark functions"]["usd"], data["runs"]["mark functions"]["function_usd"]) == (1.2, 0.2)
    assert "function_usd" not in data["runs"]["mark"]


def test_a_load_may_have_a_promise_of_its_own() -> None:
    """The same latencies within 500 ms and within 2 s."""
    one = FollowedLoad("big spike", 90.0, {"inferline": run(2.0, 7), "mark": run(1.5, 7)}, {})
    made = TunerComparison("inferline-activation", "social", SLO, (one, replace(one, slo=Slo(2.0, 0.99))))
    assert "mark missed the promise on big spike, activation 90 s (93.00 %)." in tuner_takeaways(made)
    assert "activation 90 s, within 2000 ms" in printed(tuners_report(made))
    assert [load["slo_ms"] for load in tuners_report(made).data["loads"]] == [150.0, 2000.0]


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(tuners_report(made))).tags for made in (found(title=EVIL), found()))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]
