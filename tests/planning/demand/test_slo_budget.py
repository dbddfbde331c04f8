from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.demand.slo_budget import NEUTRAL, WINDOW_S, Answered, Window, capped_rps, neutral_usd, shed_usd
from tests.planning.build import resolved, sold

SLO = Slo(0.6, 0.98)


def small(function_ms: float | None) -> ResolvedService:
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=function_ms)


def test_a_day_of_counts_forgets_earlier_hours() -> None:
    """Counts only grow; the last day of them is kept by hour, and a count that fell restarted from zero."""
    window = Window(0.0, 500, 500)  # before the controller began
    for hour in range(48):
        late = 500 + (hour + 1 if hour < 24 else 24)
        window = window.seen(3600.0 * hour + 60.0, 500 + 100 * (hour + 1), late)
        if hour == 11:
            assert window.answered(12 * 3600.0 - 1.0) == Answered(43_199.0, 1200, 12, 43_199.0, 1200, 12)
    assert len(window.hours) == 24
    found = window.answered(48 * 3600.0 - 1.0)
    assert (found.seen_s, found.requests, found.late) == (WINDOW_S, 2400, 0)
    again = window.seen(48 * 3600.0 - 30.0, 40, 2).seen(48 * 3600.0 - 1.0, 50, 2).answered(48 * 3600.0 - 1.0)
    assert (again.requests, again.late) == (2450, 2)


def test_windows_of_the_promise_follow_each_other() -> None:
    """A window of six hours: the counts of the third one begin with its first hour."""
    window, window_s = Window(100.0, 0, 0), 6 * 3600.0
    for hour in range(14):
        window = window.seen(100.0 + 3600.0 * hour + 60.0, 10 * (hour + 1), hour, window_s)
    found = window.answered(100.0 + 13.5 * 3600.0, window_s)
    assert found.window_s == pytest.approx(1.5 * 3600.0)
    assert (found.window_requests, found.window_late) == (20, 2)


def test_burnt_share_takes_the_rest_of_the_window_as_alike() -> None:
    half = Answered(WINDOW_S / 2.0, 10_000, 100, WINDOW_S / 2.0, 10_000, 100)
    assert half.burnt(SLO) == pytest.approx(0.25)
    assert Answered().burnt(SLO) == 0.0


def test_functions_get_as_many_calls_as_their_money_pays_for() -> None:
    of = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, max_function_usd_per_hour=1.0)
    assert of.function is not None
    assert capped_rps(of) * 3600.0 * of.function.usd_per_request == pytest.approx(1.0)
    assert capped_rps(small(None)) == capped_rps(small(2000.0)) == 0.0
    assert capped_rps(small(380.0)) == float("inf")


def test_a_miss_is_priced_by_what_stays() -> None:
    """Spot is cheaper but may be interrupted: the on-demand price counts if there is one."""
    of = resolved(sold("small", 0.2), sold("small", 0.06, Market.SPOT), latencies_ms={"small": 100.0})
    a_request = 0.2 / 3600.0 / 10.0
    assert neutral_usd(of, (0, 1)) == pytest.approx(NEUTRAL * a_request / 0.02)
    assert neutral_usd(of, (1,)) == pytest.approx(NEUTRAL * 0.3 * a_request / 0.02)
    assert neutral_usd(of, ()) == 0.0


def test_a_shed_request_costs_its_call_and_its_miss() -> None:
    """A request in time costs the call, a late one the call and the miss, a refused one the miss."""
    quick, slow, none = small(380.0), small(2000.0), small(None)
    assert quick.function is not None
    assert slow.function is not None
    assert shed_usd(quick, 1.0) == quick.function.usd_per_request
    assert shed_usd(slow, 1.0) == 1.0 + slow.function.usd_per_request
    refuses = replace(slow, service=replace(slow.service, late="refuse"))
    assert shed_usd(refuses, 1.0) == shed_usd(none, 1.0) == 1.0
