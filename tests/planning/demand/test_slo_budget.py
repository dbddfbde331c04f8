from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.offer import Market
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.demand.served_load import capacity_for, overflow_rps
from mark.planning.demand.slo_budget import (
    LEAST,
    MOST,
    NEUTRAL,
    SPEND,
    SPREAD,
    WINDOW_S,
    Answered,
    OverflowPrice,
    Window,
    keeping_usd,
    neutral_usd,
    overflow_price,
    price_factor,
    shed_usd,
)
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from mark.planning.port import PlanningContext
from tests.planning.build import fleet, forecast, resolved, sold, usual

SLO = Slo(0.6, 0.98)
SMALL = "small/on-demand"


def small(function_ms: float | None) -> ResolvedService:
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=function_ms)


def decided(of: ResolvedService, answered: Answered) -> Plan:
    context = PlanningContext(0.0, of, fleet({SMALL: 10}), forecast(100.0, 0.4), answered=answered)
    return ExpectedCostPolicy("mark", of).plan(context, None)[0]


def test_the_price_by_hand() -> None:
    """Nothing seen, or spent as planned: neutral. A quiet half day makes a 25th of that, a bad one 4.3 times it."""
    assert price_factor(Answered(), SLO) == 1.0
    half = WINDOW_S / 2.0
    assert price_factor(Answered(half, 10_000, round(10_000 * 0.02 * SPEND)), SLO) == pytest.approx(1.0)
    assert price_factor(Answered(half, 10_000, 0), SLO) == pytest.approx((0.125 / 0.625) ** 2)
    assert price_factor(Answered(half, 10_000, 350), SLO) == pytest.approx(((0.875 / 0.75 + 0.125) / 0.625) ** 2)


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


def test_a_shed_request_costs_its_call_and_its_miss() -> None:
    """In time: the call. Late on the function: both. Refused, by choice or because there is none: the miss."""
    quick, slow, none = small(380.0), small(2000.0), small(None)
    assert quick.function is not None
    assert slow.function is not None
    assert shed_usd(quick, 1.0) == quick.function.usd_per_request
    assert shed_usd(slow, 1.0) == 1.0 + slow.function.usd_per_request
    refuses = replace(slow, service=replace(slow.service, late="refuse"))
    assert shed_usd(refuses, 1.0) == shed_usd(none, 1.0) == 1.0


@given(load_rps=st.floats(0.1, 500.0))
@settings(max_examples=30)
def test_one_more_instance_pays_where_too_much_is_shed(load_rps: float) -> None:
    """At the price that keeps the promise: of any fleet that sheds more than 2 %, and of one that sheds just that."""
    of = small(None)
    usd = keeping_usd(of, (0,), load_rps, 0.5)
    enough_rps = capacity_for(load_rps, 0.02, 0.5)
    assert overflow_rps(np.array(load_rps), np.array(enough_rps), 0.5) == pytest.approx(0.02 * load_rps, rel=1e-6)
    have_rps = enough_rps * np.linspace(0.1, 1.0, 20)
    saved_rps = overflow_rps(np.array(load_rps), have_rps, 0.5) - overflow_rps(np.array(load_rps), have_rps + 10.0, 0.5)
    assert np.all(usd * saved_rps >= (1.0 - 1e-9) * of.offers[0].usd_per_s)
    assert usd * saved_rps[-1] == pytest.approx(of.offers[0].usd_per_s)


@given(load_rps=st.floats(1.0, 1000.0), late=st.integers(0, 1_000))
def test_expected_overflow_is_dear_and_the_budget_prices_the_spread(load_rps: float, late: int) -> None:
    """The median costs what keeps the promise or more, the spread what the budget says or a quarter of that."""
    of, answered = small(None), Answered(WINDOW_S, 10_000, late)
    price, keeping = overflow_price(of, (0,), answered, load_rps, 0.5), keeping_usd(of, (0,), load_rps, 0.5)
    by_budget = neutral_usd(of, (0,)) * price_factor(answered, of.slo)
    assert price.usd == max(by_budget, keeping)
    assert price.usd * price.spread == pytest.approx(max(by_budget, SPREAD * keeping))
    quick = small(380.0)
    assert overflow_price(quick, (0,), answered, load_rps, 0.5) == OverflowPrice(shed_usd(quick, 0.0))


def test_a_small_fleet_keeps_the_promise_from_the_start() -> None:
    """Before anything was seen, and after a quiet day too: 15 requests/s need more than one instance of 10."""
    for answered in (Answered(), Answered(WINDOW_S, 10_000, 0)):
        context = PlanningContext(0.0, small(None), fleet({}), forecast(15.0), answered=answered, first=True)
        count = ExpectedCostPolicy("mark", small(None)).plan(context, None)[0].counts[SMALL]
        assert overflow_rps(np.array(15.0), np.array(10.0 * count), 0.5) <= 0.02 * 15.0


@pytest.mark.parametrize("function_ms", [700.0, None])
def test_a_budget_that_burns_buys_more_and_is_told(function_ms: float | None) -> None:
    """The same belief after a quiet day, none, and a bad one; the reason names the price and what is left."""
    of = small(function_ms)
    quiet, new, bad = Answered(WINDOW_S, 10_000, 0), Answered(), Answered(WINDOW_S, 10_000, 1_000)
    plans = [decided(of, answered) for answered in (quiet, new, bad)]
    counts = [plan.counts[SMALL] for plan in plans]
    assert counts[0] <= counts[1] <= counts[2]
    assert counts[0] < counts[2]
    usd = 1e3 * shed_usd(of, neutral_usd(of, (0,)))
    assert f"at {usd:.2g} $ a thousand; 100% of their budget is left" in plans[1].targets[0].reason
    assert "0% of their budget is left" in plans[2].targets[0].reason


def test_where_functions_are_in_time_nothing_depends_on_it() -> None:
    """An overflow is only money there: the budget does not change the plan."""
    bad = Answered(WINDOW_S, 10_000, 10_000)
    for of in (small(380.0), small(600.0)):
        assert decided(of, bad) == decided(of, Answered())
        assert "budget" not in decided(of, bad).targets[0].reason


def test_all_planners_take_the_same_price() -> None:
    """By the fast path, by default and by the integer program a burning budget buys as much."""
    of = usual(function_ms=None)
    bad = Answered(WINDOW_S, 10_000, 400)
    context = PlanningContext(0.0, of, fleet({SMALL: 3}), forecast(150.0, 0.2), answered=bad)
    plans = {how: ExpectedCostPolicy(how, of, how).plan(context, None)[0] for how in ("auto", "fast")}
    assert plans["auto"].counts == plans["fast"].counts
