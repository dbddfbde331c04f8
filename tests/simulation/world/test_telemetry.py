"""The observations that the simulated world gives the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mark.control.ports import RecentAnswers
from mark.simulation.world.telemetry import SeenTrace, SimulatedTelemetry


def observed(
    bin_s: float,
    arrivals: list[int],
    before_rps: float | None = None,
    gaps: tuple[tuple[float, float], ...] = (),
) -> SimulatedTelemetry:
    """Return telemetry after one 5 s window for each entry of `arrivals`."""
    stage = SimpleNamespace(arrived=0, accounts=SimpleNamespace(departed=0, in_time=0))
    telemetry = SimulatedTelemetry(
        cast(Any, stage),
        cast(Any, None),
        (),
        (),
        seen=SeenTrace(5.0 * max(1, len(arrivals)), bin_s, gaps, before_rps),
        step_s=max(60.0, bin_s),
    )
    for count in arrivals:
        stage.arrived += count
        telemetry.close_window()
    return telemetry


@pytest.mark.parametrize(("bin_s", "peak_rps"), [(1.0, 20.0), (5.0, 20.0), (10.0, 2.5), (60.0, 2.5), (120.0, 2.5)])
def test_peaks_are_over_5_s_or_a_coarse_traces_minute(bin_s: float, peak_rps: float) -> None:
    """Semantics 13: a minute with 150 requests, 100 of them in one window, then a quiet one."""
    load = observed(bin_s, [100, *([0] * 6), *([10] * 5), *([5] * 12)]).load()
    assert load.peak_rps[0] == pytest.approx(peak_rps)


def test_the_rate_before_the_start_holds_until_the_first_window() -> None:
    """The first plan knows the last minute of the history; from the first window on only observations count."""
    assert observed(1.0, [], before_rps=7.5).last_minute_rps() == 7.5
    assert observed(1.0, [], before_rps=None).last_minute_rps() is None
    assert observed(1.0, [10, 20], before_rps=7.5).last_minute_rps() == 3.0


def test_windows_are_rates_and_missing_within_a_gap() -> None:
    """The newest is last, at most twelve are kept; seconds 60 to 70 were not observed."""
    assert observed(1.0, []).windows_rps().tolist() == []
    assert observed(1.0, [10, 25]).windows_rps().tolist() == [2.0, 5.0]
    seen = observed(1.0, list(range(14)), gaps=((60.0, 70.0),)).windows_rps()
    np.testing.assert_array_equal(seen, [*(k / 5.0 for k in range(2, 12)), np.nan, np.nan])


def test_all_answers_are_counted_and_refused_is_late() -> None:
    """Answered by instances or functions, some of them late, and refused."""
    stage = SimpleNamespace(arrived=100, accounts=SimpleNamespace(rejected=10, late=5))
    telemetry = SimulatedTelemetry(cast(Any, stage), cast(Any, None), (), (), seen=SeenTrace(5.0, 1.0), step_s=60.0)
    assert telemetry.answers() == RecentAnswers(100, 85)


def test_the_last_requests_are_remembered_for_two_minutes() -> None:
    """At one request a second, a bad start among the last thousand would count for a quarter of an hour."""
    accounts = SimpleNamespace(departed=0, in_time=0, window=1000, recent=lambda: (1000, 900))
    stage = SimpleNamespace(arrived=0, accounts=accounts)
    telemetry = SimulatedTelemetry(cast(Any, stage), cast(Any, None), (), (), seen=SeenTrace(300.0, 1.0), step_s=60.0)

    def window(requests: int, in_time: int) -> RecentAnswers:
        accounts.departed, accounts.in_time = accounts.departed + requests, accounts.in_time + in_time
        telemetry.close_window()
        return telemetry.recent()

    assert window(5, 0) == RecentAnswers(5, 0)
    for _ in range(23):
        last = window(5, 5)
    assert last == RecentAnswers(120, 115)
    assert window(5, 5) == RecentAnswers(120, 120)
    assert window(880, 700) == RecentAnswers(995, 815)
    assert window(10, 10) == RecentAnswers(1000, 900)  # the last thousand alone
