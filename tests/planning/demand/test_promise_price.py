"""The price of a miss: the least one with which a window keeps the promise at the stated confidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.demand.promise_price import GRID, KEPT_HOURS, Law, PromisePrice
from mark.planning.demand.served_load import overflow_rps, served_load
from mark.planning.demand.slo_budget import Answered
from mark.planning.planner import PlanningContext
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from tests.planning.build import fleet, forecast, resolved, sold, usual

SMALL = "small/on-demand"
HOUR_S, DAY_S = 3600.0, 86_400.0


def small(function_ms: float | None = None, confidence: float = 0.95) -> ResolvedService:
    """Return a service with 10 requests/s an instance at 0.2 $/h, 98 % within 600 ms."""
    of = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=function_ms)
    return replace(of, service=replace(of.service, slo=Slo(0.6, 0.98, confidence)))


def price(of: ResolvedService, answered: Answered, law: Law | None = None, rps: float = 100.0) -> float:
    believed = forecast(rps, 0.4)
    asks = PromisePrice(of, (0,))
    found, _ = asks.usd_per_miss(0.0, served_load(believed, asks.lateness), answered, law or Law())
    return found.usd


def learned(late: np.ndarray, hours: int = 12, rps: float = 100.0, times: float = 1.0) -> Law:
    """Return the law of `hours` hours in which each price left those shares late, `times` as many as foreseen.

    The price in use is the promised one.
    """
    law = Law()
    for hour in range(hours):
        for _ in range(60):
            came, used = late * rps * 60.0, int(np.argmin(abs(late - 0.02)))
            law = law.counted(HOUR_S * hour + 120.0, rps, came, used, came / times)
    return law


def half_a_day(late: int) -> Answered:
    return Answered(DAY_S / 2.0, 4_320_000, late, DAY_S / 2.0, 4_320_000, late)


def test_a_spent_budget_never_makes_misses_cheaper() -> None:
    law = learned(np.geomspace(0.2, 0.0002, len(GRID)))
    found = [price(small(), half_a_day(late), law) for late in (0, 40_000, 86_000, 120_000, 160_000)]
    assert found == sorted(found)
    assert found[-1] > 1.5 * found[0]


def test_more_confidence_is_never_cheaper() -> None:
    law = learned(np.geomspace(0.2, 0.0002, len(GRID)), hours=4)
    found = [price(small(confidence=c), half_a_day(80_000), law) for c in (0.5, 0.8, 0.95, 0.99)]
    assert found == sorted(found)


def test_the_least_price_that_keeps_the_promise_is_taken() -> None:
    """Prices below the tenth leave 5 % late, from there on 0.5 %: certain hours, so the tenth is enough."""
    shares = np.where(np.arange(len(GRID)) < 10, 0.05, 0.005)
    asks = PromisePrice(small(), (0,))
    assert price(small(), half_a_day(40_000), learned(shares)) == pytest.approx(asks.prices_usd[10])


def test_small_load_makes_an_instance_worth_its_price() -> None:
    """One request/s uses an instance for ten: at the price of a late request the instance costs less than its
    misses.
    """
    assert price(small(), Answered(), rps=1.0) * 3600.0 * 1.0 > 0.2


def test_a_dear_type_does_not_make_the_misses_of_a_small_load_dear() -> None:
    """A type of 400 requests/s for 4 $/h is cheaper per request. At one request/s a miss is worth such an instance, but
    not five of them, because one small instance is enough.
    """
    both = resolved(
        sold("small", 0.2), sold("big", 4.0), latencies_ms={"small": 100.0, "big": 2.5}, function_ms=None, rt_max_s=0.6
    )
    asks = PromisePrice(both, (0, 1))
    found, _ = asks.usd_per_miss(0.0, served_load(forecast(1.0, 0.4), asks.lateness), Answered(), Law())
    assert 4.0 / HOUR_S < found.usd < 2.0 * 4.0 / HOUR_S


def test_a_quiet_morning_is_no_licence_for_the_evening() -> None:
    """Nothing was late for half a day, but a window that begins now must be kept as well."""
    shares = np.where(np.arange(len(GRID)) < 10, 0.05, 0.005)
    asks = PromisePrice(small(), (0,))
    kept = replace(half_a_day(21_600), window_late=0)
    assert price(small(), kept, learned(shares)) == pytest.approx(asks.prices_usd[10])


def test_promise_that_no_price_keeps_buys_nothing() -> None:
    """All prices leave 5 % late, so the least one is as good as any."""
    asks = PromisePrice(small(), (0,))
    law = learned(np.full(len(GRID), 0.05))
    assert price(small(), half_a_day(200_000), law) == pytest.approx(asks.prices_usd[0])


def test_the_probability_of_a_kept_window_is_said() -> None:
    """At noon: with a third of the budget spent the window is safe, with twice the budget it is lost."""
    believed, of = forecast(100.0, 0.4), small()
    asks = PromisePrice(of, (0,))
    law = learned(np.where(np.arange(len(GRID)) < 10, 0.05, 0.005))
    found = [
        asks.usd_per_miss(0.0, served_load(believed, asks.lateness), half_a_day(late), law)[0].confidence
        for late in (60_000, 340_000)
    ]
    assert found[0] > 0.99
    assert found[1] < 0.01
    plans = [decided(of, half_a_day(late)) for late in (0, 800_000)]
    assert plans[0].notes == ()
    assert plans[1].notes == (
        "this window keeps the promise with a probability of 0 % at best; slo_confidence asks for 95 %",
    )


def test_prices_are_counted_with_the_load_that_came() -> None:
    """The fleet that a price orders one boot ahead meets the load of that minute."""
    of, believed = small(), forecast(100.0, 0.4)
    asks = PromisePrice(of, (0,))
    law = Law()
    for minute in range(6):
        law = asks.seen(law, 60.0 * minute, 140.0, np.full(12, 140.0))
        _, law = asks.usd_per_miss(60.0 * minute, served_load(believed, asks.lateness), Answered(), law)
    assert [at_s for at_s, *_ in law.coming] == [300.0, 360.0, 420.0, 480.0]
    law = asks.seen(law, 360.0, 140.0, np.full(12, 140.0))
    (hour,) = law.hours
    capacity_rps = np.array(law.coming[0][1])
    late = overflow_rps(np.array(140.0), capacity_rps, asks.lateness.patience_s)
    assert np.array(hour.late) / hour.requests == pytest.approx(late / 140.0)
    assert np.all(np.diff(hour.late) <= 0.0)
    assert np.array(hour.foreseen) / 3.0 == pytest.approx(np.array(law.coming[0][3]))  # of three minutes


def test_late_requests_of_the_first_fleet_count_at_its_price() -> None:
    """The next choice serves after a boot of three minutes; until then the first fleet meets the load."""
    of, believed = small(), forecast(100.0, 0.4)
    asks = PromisePrice(of, (0,))
    load = served_load(believed, asks.lateness)
    miss, law = asks.usd_per_miss(0.0, load, Answered(), Law(), first=True)
    place = int(np.abs(asks.prices_usd - miss.usd).argmin())
    for minute in range(4):
        law = asks.seen(law, 60.0 * minute, 140.0, np.full(12, 140.0))
        _, law = asks.usd_per_miss(60.0 * minute, load, Answered(), law)
    (hour,) = law.hours
    assert hour.requests == 3 * 60.0 * 140.0
    assert hour.places == place * hour.requests
    assert hour.used == hour.late[place] > 0.0


def test_forecasts_that_expected_too_many_late_requests_are_believed_less() -> None:
    """A hundredth of the foreseen late requests came: the price falls. A hundred times as many do not raise it."""
    shares, answered = np.full(len(GRID), 0.0005), half_a_day(40_000)
    found = [price(small(), answered, learned(shares, hours=3, times=times)) for times in (0.01, 1.0, 100.0)]
    assert found[0] < found[1] == found[2]


def test_a_forecast_whose_highest_paths_explode_is_priced_in_bounded_memory() -> None:
    """An hour with a thousand times the usual load leaves such a forecast: 1e15 requests/s on the highest paths."""
    believed, of = forecast(100.0, 0.4), small()
    asks = PromisePrice(of, (0,))
    load = served_load(believed, asks.lateness)
    high = replace(load, spacing_rps=1e15 / (len(load.served) - 1))
    _, law = asks.usd_per_miss(0.0, high, Answered(), Law())
    ((_, capacity_rps, *_),) = law.coming
    assert np.isfinite(capacity_rps).all()


def test_a_minute_without_an_observation_is_left_out() -> None:
    asks = PromisePrice(small(), (0,))
    law = Law(coming=((0.0, (50.0,) * len(GRID), 0, (0.0,) * len(GRID)),))
    for unknown in (None, float("nan")):
        assert asks.seen(law, 60.0, unknown, np.empty(0)) == Law()


def test_the_law_keeps_a_day() -> None:
    assert len(learned(np.full(len(GRID), 0.01), hours=40).hours) == KEPT_HOURS


def decided(of: ResolvedService, answered: Answered, how: str = "auto") -> Plan:
    context = PlanningContext(0.0, of, fleet({SMALL: 10}), forecast(100.0, 0.4), answered=answered)
    return ExpectedCostPolicy("mark", of, how).plan(context, None)[0]


@pytest.mark.parametrize("function_ms", [700.0, None])
def test_a_budget_that_burns_buys_more_and_is_told(function_ms: float | None) -> None:
    of = small(function_ms)
    new, bad = decided(of, Answered()), decided(of, half_a_day(170_000))
    assert new.counts[SMALL] < bad.counts[SMALL]
    assert "100 % of their budget is left" in new.targets[0].reason
    assert "; 2 % of their budget is left" in bad.targets[0].reason
    assert new.usd_per_miss is not None
    assert bad.usd_per_miss is not None
    assert new.usd_per_miss < bad.usd_per_miss


def test_where_functions_are_in_time_nothing_depends_on_it() -> None:
    """An overflow only costs money then, so the budget does not change the plan."""
    for function_ms in (380.0, 600.0):
        of = small(function_ms)
        assert decided(of, half_a_day(2_000_000)) == decided(of, Answered())
        assert "budget" not in decided(of, Answered()).targets[0].reason
        assert decided(of, Answered()).usd_per_miss is None


def test_a_small_fleet_keeps_the_promise_from_the_start() -> None:
    """This holds before any observation and after a quiet day: 15 requests/s need more than one instance of 10."""
    for answered in (Answered(), half_a_day(0)):
        context = PlanningContext(0.0, small(), fleet({}), forecast(15.0), answered=answered, first=True)
        count = ExpectedCostPolicy("mark", small()).plan(context, None)[0].counts[SMALL]
        assert overflow_rps(np.array(15.0), np.array(10.0 * count), 0.5) <= 0.02 * 15.0


def test_all_planners_take_the_same_price() -> None:
    of = usual(function_ms=None)
    context = PlanningContext(0.0, of, fleet({SMALL: 3}), forecast(150.0, 0.2), answered=half_a_day(170_000))
    plans = {how: ExpectedCostPolicy(how, of, how).plan(context, None)[0] for how in ("auto", "fast")}
    assert plans["auto"].counts == plans["fast"].counts
