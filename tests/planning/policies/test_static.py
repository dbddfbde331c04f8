from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.errors import Infeasible
from mark.domain.fleet import Fleet
from mark.planning.planner import PlanningContext
from mark.planning.policies.static import static
from tests.planning.build import load, resolved, sold, usual

NAN = float("nan")


@pytest.mark.parametrize(("name", "count"), [("static-peak", 3), ("static-mean", 2)])
def test_enough_of_the_cheapest_type_for_peak_or_mean(name: str, count: int) -> None:
    """Large has 100 requests/s at the lowest price: three hold the highest minute of 250, two the mean of 150."""
    planner = static(name, usual(), load(100.0, NAN, 250.0, 100.0))
    for first in (True, False):
        plan, _ = planner.plan(PlanningContext(0.0, usual(), Fleet(()), first=first), planner.begin())
        assert plan.counts == {"large/on-demand": count}
        assert plan.capacity_rps == 100.0 * count


def test_the_type_whose_fleet_costs_least_is_taken() -> None:
    """A large one has the cheaper request/s (0.015 $/h against 0.02), but for 8 requests/s one small one is enough."""
    of = resolved(sold("large", 1.5), sold("small", 0.2), latencies_ms={"large": 10.0, "small": 100.0})
    for rate_rps, counts in (
        (8.0, {"small/on-demand": 1}),
        (70.0, {"small/on-demand": 7}),
        (80.0, {"large/on-demand": 1}),
    ):
        plan, _ = static("static-peak", of, load(rate_rps)).plan(PlanningContext(0.0, of, Fleet(())), None)
        assert plan.counts == counts


def test_exactly_full_instances_are_enough() -> None:
    """A rate of exactly three instances' capacity is not rounded up to four."""
    assert static("static-peak", usual(), load(300.0)).plan(PlanningContext(0.0, usual(), Fleet(())), None)[
        0
    ].counts == {"large/on-demand": 3}


def test_limits_are_kept_and_said() -> None:
    """A fleet that the service's limits cut short reports the number that it would have needed."""
    of = usual(max_usd_per_hour=3.1)
    plan, _ = static("static-peak", of, load(500.0)).plan(PlanningContext(0.0, of, Fleet(())), None)
    assert plan.counts == {"large/on-demand": 2}
    assert "5 instances are needed" in plan.notes[0]


def test_no_load_buys_nothing() -> None:
    """A part that is one gap has neither peak nor mean."""
    assert (
        static("static-mean", usual(), load(NAN)).plan(PlanningContext(0.0, usual(), Fleet(())), None)[0].counts == {}
    )


def test_nothing_to_buy_is_infeasible() -> None:
    """Functions alone are not a static fleet."""
    with pytest.raises(Infeasible):
        static("static-peak", replace(usual(), offers=(), candidates=()), load(1.0))
