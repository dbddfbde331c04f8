"""The prices of one more request and one more miss now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.plan import Plan, Target
from mark.domain.price_list import PriceList
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import overflow_rps
from mark.planning.demand.slo_budget import neutral_usd
from mark.planning.marginal_prices import planned_usd, price_list, prices_of
from mark.planning.planner import PlanningContext
from mark.planning.resolve import buyable
from tests.planning.build import fleet, forecast, resolved, sold

SMALL = "small/on-demand"
PATIENCE_S = 0.5  # of `small`


def small(function_ms: float | None = 380.0, **more: float) -> ResolvedService:
    """Return a service of 10 requests/s at 0.2 $/h."""
    return resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, function_ms=function_ms, **more)  # type: ignore[arg-type]


def call_usd(of: ResolvedService) -> float:
    assert of.function is not None
    return of.function.usd_per_request


def request_usd(of: ResolvedService, instances: int, rps: float, spread: float = 0.0) -> float:
    found = price_list(of, {SMALL: instances}, forecast(rps, spread)).usd_per_request
    assert found is not None
    return found


@pytest.mark.parametrize("rps", [60.0, 90.0, 99.0, 100.0, 104.0, 130.0])
def test_one_more_request_is_the_slope_of_the_expected_cost(rps: float) -> None:
    """For one type and Poisson arrivals at a known rate, it is the finite difference of the planner's overflow cost.

    For 100 requests/s and half a second that is a closed form, (100 - L) / (exp((100 - L) 100 / L) - 1) calls a second.
    """
    of = small()

    def usd_per_s(load_rps: float) -> float:
        return call_usd(of) * float(overflow_rps(np.array(load_rps), np.array(100.0), PATIENCE_S))

    slope = (usd_per_s(rps + 1e-4) - usd_per_s(rps - 1e-4)) / 2e-4
    assert request_usd(of, 10, rps) == pytest.approx(slope, rel=1e-4, abs=1e-14)


def test_at_saturation_it_is_half_a_call_and_a_little() -> None:
    """L = C: by l'Hopital 1 / 2 + 1 / (2 C W) of the requests find no room."""
    of = small()
    assert request_usd(of, 10, 100.0) == pytest.approx(call_usd(of) * (0.5 + 1.0 / (2.0 * 100.0 * PATIENCE_S)))


def test_with_slack_it_is_nothing_and_without_room_a_call() -> None:
    of = small()
    assert request_usd(of, 10, 50.0) == 0.0
    assert request_usd(of, 0, 50.0) == pytest.approx(call_usd(of))
    assert request_usd(of, 1, 500.0) == pytest.approx(call_usd(of), rel=1e-3)


@given(
    instances=st.integers(0, 30), rps=st.floats(0.1, 500.0), times=st.floats(1.0, 5.0), spread=st.floats(0.0, 0.9),
    function_ms=st.floats(50.0, 600.0),
)  # fmt: skip
def test_more_load_costs_no_less_and_more_capacity_no_more(
    instances: int, rps: float, times: float, spread: float, function_ms: float
) -> None:
    of = small(function_ms)
    price = request_usd(of, instances, rps, spread)
    assert 0.0 <= price <= call_usd(of) * (1.0 + 1e-12)
    assert request_usd(of, instances, times * rps, spread) >= price * (1.0 - 1e-9)
    assert request_usd(of, instances + 1, rps, spread) <= price * (1.0 + 1e-9)


def test_an_uncertain_forecast_costs_the_chance_that_it_is_more() -> None:
    """Half of the quantiles lie above the ready capacity, where queues hardly matter."""
    of = resolved(sold("small", 0.2), latencies_ms={"small": 1.0}, rt_max_s=2.0)
    rps = float(of.candidates[0].capacity_rps)
    price = price_list(of, {SMALL: 1}, forecast(rps, 0.5)).usd_per_request
    assert price == pytest.approx(0.5 * call_usd(of), rel=1e-6)


def test_a_miss_costs_a_call_where_functions_are_in_time() -> None:
    """This holds for any load, and also before any forecast."""
    of = small()
    for believed in (None, forecast(1.0), forecast(1000.0)):
        assert price_list(of, {SMALL: 1}, believed).usd_per_miss == call_usd(of)


def test_beyond_what_functions_may_cost_a_request_is_refused() -> None:
    """There one more is a miss, at the plan's price; below it is a call."""
    of = small(max_function_usd_per_hour=0.01)
    few, many = (price_list(of, {SMALL: 1}, forecast(rps), 0.01) for rps in (5.0, 500.0))
    assert few.usd_per_miss == call_usd(of)
    assert few.usd_per_request is not None
    assert few.usd_per_request < few.usd_per_miss
    assert many.usd_per_request == pytest.approx(0.01, rel=1e-3)
    assert many.usd_per_miss == 0.01
    assert price_list(of, {SMALL: 1}, None) == PriceList(usd_per_planned_request=planned_usd(of, {SMALL: 1}))


@pytest.mark.parametrize("function_ms", [None, 700.0])
def test_the_plan_prices_a_miss_where_functions_are_late(function_ms: float | None) -> None:
    """A late request's call is added; without a plan's price the neutral price is used."""
    of = small(function_ms)
    call = 0.0 if function_ms is None else call_usd(of)
    unsaid, said = (price_list(of, {SMALL: 1}, forecast(100.0), usd) for usd in (None, 0.02))
    assert unsaid.usd_per_miss == neutral_usd(of, buyable(of)) + call
    assert said.usd_per_miss == 0.02 + call
    assert said.usd_per_request == pytest.approx(said.usd_per_miss, rel=0.02)


def test_what_is_not_known_is_none() -> None:
    alone = small(None)
    assert price_list(alone, {SMALL: 1}, None) == PriceList(None, None, planned_usd(alone, {SMALL: 1}))
    assert price_list(small(), {SMALL: 1}, None).usd_per_request is None


def test_functions_alone_cost_a_call() -> None:
    of = replace(small(), offers=(), candidates=())
    assert price_list(of, {}, forecast(7.0)) == PriceList(call_usd(of), call_usd(of), call_usd(of))
    assert price_list(replace(of, function=None), {}, None) == PriceList()


def test_what_is_not_the_service_s_holds_nothing() -> None:
    of = small()
    assert price_list(of, {"huge/on-demand": 9}, forecast(9.0)).usd_per_request == pytest.approx(call_usd(of))


def test_a_first_fleet_is_ready_at_once_later_ones_boot() -> None:
    of, plan = small(), Plan(0.0, (Target(SMALL, 10, ""),))
    first = PlanningContext(0.0, of, fleet({}), forecast(50.0), first=True)
    assert prices_of(plan, first).usd_per_request == 0.0
    booting = PlanningContext(0.0, of, fleet({SMALL: 1}, {SMALL: 9}), forecast(50.0))
    assert prices_of(plan, booting) == price_list(of, {SMALL: 1}, forecast(50.0))


def test_a_planned_request_costs_its_part_of_a_full_instance_whatever_the_load() -> None:
    """10 requests/s at 0.2 $/h, and 20 at 0.3: of a fleet both count by their number, without one the cheaper."""
    both = resolved(sold("small", 0.2), sold("big", 0.3), latencies_ms={"small": 100.0, "big": 50.0}, function_ms=None)
    per_s = {"small": 0.2 / 3600.0, "big": 0.3 / 3600.0}
    assert planned_usd(both, {SMALL: 3}) == pytest.approx(per_s["small"] / 10.0)
    fleet_usd = (2 * per_s["small"] + per_s["big"]) / 40.0
    assert planned_usd(both, {SMALL: 2, "big/on-demand": 1}) == pytest.approx(fleet_usd)
    assert planned_usd(both, {}) == pytest.approx(per_s["big"] / 20.0)


def test_a_planned_request_costs_a_call_where_functions_alone_serve() -> None:
    of = small()
    assert planned_usd(replace(of, offers=(), candidates=()), {}) == call_usd(of)
