"""Figures as data: nothing invented between the points, nothing lost by thinning."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mark.studies.report.plots import MOST_POINTS, bill_figure, bills_figure, fleet_figure, latency_figure, load_figure
from tests.studies.report.results import result, timeline


def test_a_gap_stays_a_gap() -> None:
    line = timeline(10)
    line.arrival_rps[3] = np.nan
    assert load_figure(result(timeline=line))["data"][0]["y"][3] is None


@pytest.mark.parametrize("minutes", [10_080, 40_001])
def test_thinned_runs_keep_peaks_and_totals(minutes: int) -> None:
    line = timeline(minutes)
    line.arrival_rps[4321] = 9999.0
    line.arrival_rps[:50] = np.nan
    shown = result(timeline=line)
    load = load_figure(shown)
    assert len(load["x"]) <= MOST_POINTS
    assert all(len(trace["y"]) == len(load["x"]) for trace in load["data"])
    assert max(y for y in load["data"][0]["y"] if y is not None) == 9999.0
    assert load["data"][0]["y"][0] is None
    assert bill_figure(shown)["data"][0]["y"][-1] == 1.0
    assert "min)" in load["layout"]["xaxis"]["title"]["text"]


def test_offers_and_markets_that_never_served_are_left_out() -> None:
    line = timeline(10, offers=("c5.large/on-demand", "p2.xlarge/on-demand"))
    line.instances["p2.xlarge/on-demand"][:] = 0.0
    assert [trace["name"] for trace in fleet_figure(result(timeline=line))["data"]] == ["c5.large/on-demand"]
    assert [trace["name"] for trace in bill_figure(result())["data"]] == ["on-demand", "functions"]


def test_the_bill_of_a_policy_adds_up_its_markets() -> None:
    figure = bills_figure({"mark": result(), "b": result("b")})
    assert [trace["name"] for trace in figure["data"]] == ["mark", "b"]
    assert figure["data"][0]["y"][-1] == pytest.approx(1.1)


def test_the_latency_figure_marks_rt_max() -> None:
    shown = replace(result(), ccdf_ms=np.array([0.0, 10.0, 600.0]), ccdf_share=np.array([1.0, 0.1, 0.0]))
    figure = latency_figure({"mark": shown})
    assert figure["data"][0]["y"] == [0.1]
    assert figure["layout"]["shapes"][0]["x0"] == 600.0


def test_every_figure_is_json_even_without_any_minute() -> None:
    empty = result(timeline=timeline(0), ccdf_ms=np.zeros(0), ccdf_share=np.zeros(0))
    for figure in (load_figure(empty), fleet_figure(empty), bill_figure(empty), latency_figure({"m": empty})):
        json.dumps(figure, allow_nan=False)
