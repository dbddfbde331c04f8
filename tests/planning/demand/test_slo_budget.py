from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offer import Market
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.demand.slo_budget import (
    LEAST,
    MOST,
    NEUTRAL,
    SPEND,
    WINDOW_S,
    Answered,
    Window,
    believed,
    neutral_usd,
    price_factor,
)
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.port import PlanningContext
from tests.planning.build import fleet, forecast, resolved, sold, usual

SLO = Slo(0.6, 0.98)
SMALL = "small/on-demand"


def small(function_ms: float | None) -> ResolvedService:
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=function_ms)


def decided(of: ResolvedService, answered: Answered, last_minute_rps: float | None = None) -> Plan:
    context = PlanningContext(
        0.0, of, fleet({SMALL: 10}), forecast(100.0, 0.4), last_minute_rps=last_minute_rps, answered=answered
    )
    return ExpectedCostPolicy("mark", of).plan(context, None)[0]


def test_the_price_by_hand() -> None:
    """Nothing seen, or spent as planned: neutral. After a quiet half day a fifth of that, after a bad one twice it."""
    assert price_factor(Answered(), SLO) == 1.0
    half = WINDOW_S / 2.0
    assert price_factor(Answered(half, 10_000, round(10_000 * 0.02 * SPEND)), SLO) == pytest.approx(1.0)
    assert price_factor(Answered(WINDOW_S / 4.0, 10_000, 0), SLO) == pytest.approx(0.125 / 0.375)
    assert price_factor(Answered(half, 10_000, 350), SLO) == pytest.approx((0.875 / 0.75 + 0.125) / 0.625)


@given(seen_s=st.floats(0.0, 1e7), requests=st.integers(0, 10**9), share=st.floats(0.0, 1.0), more=st.floats(0.0, 1.0))
def test_a_spent_budget_is_dearer_within_bounds(seen_s: float, requests: int, share: float, more: float) -> None:
    """For whatever was seen: more late answers never lower the price, and it stays within its bounds."""
    few, many = int(requests * share * more), int(requests * share)
    low, high = (price_factor(Answered(seen_s, requests, late), SLO) for late in (few, many))
    assert LEAST <= low <= high <= MOST


def test_the_window_forgets_what_lies_a_day_back() -> None:
    """Counts only grow; the window has the last day of them, by hour, and a count that fell began anew."""
    window = Window(0.0, 500, 500)  # before the controller began
    for hour in range(48):
        late = 500 + (hour + 1 if hour < 24 else 24)
        window = window.seen(3600.0 * hour + 60.0, 500 + 100 * (hour + 1), late)
        if hour == 11:
            assert window.answered(12 * 3600.0) == Answered(12 * 3600.0, 1200, 12)
    assert len(window.hours) == 24
    assert window.answered(48 * 3600.0) == Answered(WINDOW_S, 2400, 0)
    again = window.seen(48 * 3600.0 - 30.0, 40, 2).seen(48 * 3600.0 - 1.0, 50, 2)
    assert again.answered(48 * 3600.0) == Answered(WINDOW_S, 2450, 2)


def test_a_miss_is_priced_by_what_stays() -> None:
    """Spot is cheaper and may be gone: the on-demand price counts where there is one."""
    of = resolved(sold("small", 0.2), sold("small", 0.06, Market.SPOT), latencies_ms={"small": 100.0})
    a_request = 0.2 / 3600.0 / 10.0
    assert neutral_usd(of, (0, 1)) == pytest.approx(NEUTRAL * a_request / 0.02)
    assert neutral_usd(of, (1,)) == pytest.approx(NEUTRAL * 0.3 * a_request / 0.02)
    assert neutral_usd(of, ()) == 0.0


def test_a_surge_is_believed_until_it_ends() -> None:
    """The median is not below the last minute, the spread stays; what is above it already stays as it is."""
    raised = believed(forecast(100.0, 0.4, peak=1.2), 130.0)
    before = forecast(100.0, 0.4, peak=1.2)
    assert raised.mean_at(0.5) == pytest.approx([130.0] * 60)
    assert raised.mean_rps - before.mean_rps == pytest.approx(raised.peak_rps - before.peak_rps)
    assert believed(before, 90.0) is before
    assert believed(before, None) is before


@pytest.mark.parametrize("function_ms", [2000.0, None])
def test_a_budget_that_burns_buys_more_and_is_told(function_ms: float | None) -> None:
    """The same belief after a quiet day, none, and a bad one; the reason names the price and what is left."""
    of = small(function_ms)
    quiet, new, bad = Answered(WINDOW_S, 10_000, 0), Answered(), Answered(WINDOW_S, 10_000, 1_000)
    plans = [decided(of, answered) for answered in (quiet, new, bad)]
    counts = [plan.counts[SMALL] for plan in plans]
    assert counts[0] < counts[1] < counts[2]
    assert "at 0.039 $ a thousand; 100% of their budget is left" in plans[1].targets[0].reason
    assert "0% of their budget is left" in plans[2].targets[0].reason
    assert decided(of, new, last_minute_rps=150.0).counts[SMALL] > counts[1]


def test_where_functions_are_in_time_nothing_depends_on_it() -> None:
    """An overflow is only money there: neither the budget nor the last minute changes the plan."""
    bad = Answered(WINDOW_S, 10_000, 10_000)
    for of in (small(380.0), small(600.0)):
        assert decided(of, bad, 400.0) == decided(of, Answered(), None)
        assert "budget" not in decided(of, bad).targets[0].reason


def test_all_planners_take_the_same_price() -> None:
    """By the fast path, by default and by the integer program a burning budget buys as much."""
    of = usual(function_ms=None)
    bad = Answered(WINDOW_S, 10_000, 400)
    context = PlanningContext(0.0, of, fleet({SMALL: 3}), forecast(150.0, 0.2), answered=bad)
    plans = {how: ExpectedCostPolicy(how, of, how).plan(context, None)[0] for how in ("auto", "fast")}
    assert plans["auto"].counts == plans["fast"].counts
