"""Fig. 9 of the paper: the load, the storm, the windows, and laws of one surge and one storm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mark_papers.paper.fig9 import (
    DURATION_S,
    HISTORY_S,
    STANDBY,
    STORM_AT_S,
    SURGE_AT_S,
    Altered,
    Panel,
    WindowSeries,
    run_fig9,
    steady_trace,
    storm_series,
)

from mark.domain.fleet import Fleet
from mark.domain.plan import Target
from mark.planning.planner import PlanningContext, Policy
from mark.planning.policies.policy_registry import make_policy
from mark.planning.policies.static import Static
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation
from tests.simulation.laws import check_laws

WINDOWS = round(DURATION_S / 5.0)


def run_panel(*, surges: tuple[float, ...] = (), storms: tuple[float, ...] = ()) -> Panel:
    """Return the only panel, in which every run obeys the laws on the same requests."""
    told: list[float] = []
    found = run_fig9(surges=surges, storms=storms, progress=told.append)
    assert told == [1.0]
    (panel,) = (*found.surges, *found.storms)
    totals = {line.result.requests.total for line in panel.lines}
    assert len(totals) == 1
    for line in panel.lines:
        check_laws(line.result)
        assert line.result.policy == line.name
        assert len(line.arrived) == WINDOWS
        assert line.arrived.sum() == line.result.requests.total
        assert line.share_in_time(0) == pytest.approx(line.result.slo_result.attainment)
    return panel


def by_name(lines: tuple[WindowSeries, ...]) -> dict[str, WindowSeries]:
    return {line.name: line for line in lines}


def quantile_98(values: list[float]) -> float:
    """Return the quantile, linear between the two neighbours in rank."""
    ascending, rank = sorted(values), 0.98 * (len(values) - 1)
    low = ascending[math.floor(rank)]
    return low + (rank - math.floor(rank)) * (ascending[math.ceil(rank)] - low)


def test_the_load_grows_evenly_for_two_minutes() -> None:
    trace = steady_trace(80.0, 0.5, 0, "x")
    load = trace.load(HISTORY_S, HISTORY_S + DURATION_S)
    assert load.mean_rps.tolist() == pytest.approx([80.0] * 11 + [90.0, 110.0] + [120.0] * 12)


def test_the_history_is_drawn_around_the_same_rate() -> None:
    """5 s counts of Poisson arrivals: variance = mean. A seed gives one history, another seed another."""
    past, again, other = (steady_trace(80.0, 0.5, seed, "x").series.counts[:17280] for seed in (1, 1, 2))
    assert past.mean() == pytest.approx(400.0, rel=0.002)
    assert past.var() == pytest.approx(400.0, rel=0.05)
    assert np.array_equal(past, again)
    assert not np.array_equal(past, other)


def test_a_storm_takes_its_share_once() -> None:
    series = storm_series(0.8)
    shares = [series.share_at(t) for t in (0.0, STORM_AT_S - 1.0, STORM_AT_S, STORM_AT_S + 59.0, STORM_AT_S + 60.0)]
    assert shares == pytest.approx([1.0, 1.0, 0.2, 0.2, 1.0])
    assert series.period_s > DURATION_S


def test_an_altered_planner_differs_in_one_thing_only() -> None:
    markets = ("on-demand", "spot", "burstable")
    request = RunRequest(trace="synthetic:poisson?rate=20", service="inception-v3", markets=markets, duration_s=300.0)
    inputs = open_inputs(request)
    mark = make_policy("mark", inputs.resolved, inputs.evaluated).planner
    dull = Altered(mark, reactive=False)
    assert (dull.name, dull.needs_forecast) == (mark.name, True)
    assert (mark.monitors_slo, mark.replans, dull.monitors_slo, dull.replans) == (True, True, False, False)

    targets = (Target("c5.large/spot/us-east-1a", 7, "x"), Target("c5.large/on-demand", 50, "x"))
    context = PlanningContext(0.0, inputs.resolved, Fleet(()))
    plan, _ = Altered(Static("s", targets, 1.0), standby_share=0.4).plan(context, None)
    assert plan.targets == targets
    assert [(t.offer, t.count) for t in plan.standbys] == [(f"{STANDBY}/burstable", 3)]  # 0.4 x 7 = 2.8


def test_windows_are_those_of_a_plain_loop_over_the_requests() -> None:
    """The reference goes request by request; the recording's mean and attainment equal the result's as well."""
    from mark_papers.paper.fig9 import _line

    trace = steady_trace(40.0, 0.0, 0, "x")
    request = RunRequest("x", "inception-v3", start_s=HISTORY_S, duration_s=DURATION_S, with_bound=False)
    inputs = open_inputs(request, trace)
    held = (Target("c5.large/on-demand", 7, "too few"),)
    policy = Policy(Static("static", held, 33.0), inputs.resolved, bouncers=True)
    line = _line("few", inputs, policy)

    arrived_s = np.concatenate([times for times, _ in trace.chunks(inputs.start_s, inputs.end_s)])
    simulation = Simulation(inputs, policy, "auto", keep=True)
    result = simulation.run()
    windows: list[list[float]] = [[] for _ in range(WINDOWS)]
    for at_s, answer_s in zip(arrived_s.tolist(), simulation.recording.finish_s.tolist(), strict=True):
        windows[int(at_s // 5.0)].append(1e3 * (answer_s - at_s))
    assert line.arrived.tolist() == [len(window) for window in windows]
    assert line.mean_ms.tolist() == pytest.approx([sum(window) / len(window) for window in windows])
    in_time = [sum(ms <= 600.0 + 1e-3 for ms in window) / len(window) for window in windows]
    assert line.in_time.tolist() == pytest.approx(in_time)
    assert line.p98_ms.tolist() == pytest.approx([quantile_98(window) for window in windows])
    assert line.missed_s == 5.0 * sum(share < 0.98 for share in in_time)

    everything = [ms for window in windows for ms in window]
    assert result.latency_ms.mean == pytest.approx(sum(everything) / len(everything))
    assert line.result.slo_result.attainment == pytest.approx(line.share_in_time(0))
    late = [sum(ms > 600.0 + 1e-3 for ms in window) for window in windows[WINDOWS // 2 :]]
    after = 1.0 - sum(late) / sum(len(window) for window in windows[WINDOWS // 2 :])
    assert line.share_in_time(WINDOWS // 2) == pytest.approx(after)


@pytest.mark.acceptance
@pytest.mark.usefixtures("brief_training")
def test_mark_keeps_the_slo_when_load_doubles() -> None:
    """An endpoint as tight as ours breaks it: it sees the surge after three minutes, and boots for five."""
    panel = run_panel(surges=(1.0,))
    lines = by_name(panel.lines)
    assert list(lines) == ["mark", "mark-not-reactive", "mark-paper", "sagemaker", "sagemaker-factor-1"]
    for name in ("mark", "mark-not-reactive", "mark-paper"):
        assert lines[name].share_in_time(round(SURGE_AT_S / 5.0)) > 0.98
        assert lines[name].result.requests.rejected == 0
    tight, wide = lines["sagemaker-factor-1"].result, lines["sagemaker"].result
    assert tight.timeline.capacity_rps[0] == pytest.approx(0.5 * wide.timeline.capacity_rps[0])
    assert lines["sagemaker-factor-1"].share_in_time(round(SURGE_AT_S / 5.0)) < 0.5
    assert not any(
        d.text.startswith("launch") and "SLO monitor" in d.text for d in lines["mark-not-reactive"].result.decisions
    )


@pytest.mark.slow
def test_standbys_make_up_for_a_storm() -> None:
    """No more of them than were lost, and as much capacity: 7.1 requests/s each for 4.7."""
    panel = run_panel(storms=(0.8,))
    for line in panel.lines:
        spot = [ready for offer, ready in line.result.timeline.instances.items() if "/spot/" in offer]
        before = sum(ready[round(STORM_AT_S / 60.0) - 1] for ready in spot)
        assert 15 <= before <= 25  # "20 instances"
        assert line.result.fleet.interrupted == pytest.approx(0.8 * before, abs=2.0)
        assert line.result.requests.rejected == 0
        assert (line.result.slo_result.attainment or 0.0) >= 0.98
    each = by_name(panel.lines)["mark-standby-each"].result
    resumed = [d for d in each.decisions if d.verb == "resume" and d.outcome == "done"]
    assert 0.98 * each.fleet.interrupted * 4.73 <= len(resumed) * 7.12
    assert len(resumed) <= each.fleet.interrupted
    assert {d.at_s for d in resumed} == {STORM_AT_S}
    assert all(STANDBY in d.text for d in resumed)
