from __future__ import annotations

from mark.domain.fleet import Fleet
from mark.planning.planner import PlanningContext
from mark.planning.policies.reactive import PodAutoscaler, reactive
from tests.planning.build import Minutes, fleet, load, resolved, sold, usual

SMALL = "small/on-demand"


def small(**changes: object) -> PodAutoscaler:
    return PodAutoscaler("reactive", SMALL, 10.0, 20.0, **changes)  # type: ignore[arg-type]


def started(count: int) -> Minutes:
    play = Minutes(small(), usual(), boot=3)
    play.ready = {SMALL: count}
    return play


def test_the_cheapest_type_per_request_is_scaled() -> None:
    """1.5 $/h for 100 requests/s beats 0.2 $/h for 10; the first fleet runs at half load."""
    planner = reactive(usual(), load(20.0))
    plan, _ = planner.plan(PlanningContext(0.0, usual(), Fleet(()), last_minute_rps=120.0, first=True), planner.begin())
    assert plan.counts == {"large/on-demand": 3}


def test_desired_is_utilisation_over_target() -> None:
    """40 requests/s on four instances of ten is all of them; half is the target, so eight."""
    assert started(4).minute(40.0) == {SMALL: 8}


def test_ten_per_cent_off_changes_nothing() -> None:
    """The tolerance of the autoscaler."""
    assert started(4).minute(21.9) == {SMALL: 4}


def test_overflow_counts_as_utilisation() -> None:
    """Requests that functions took are demand too; the busy share alone would ask for one instance."""
    assert started(4).minute(80.0) == {SMALL: 8}  # at most doubled ...
    assert started(10).minute(130.0) == {SMALL: 26 - 6}
    assert started(1).minute(25.0) == {SMALL: 5}  # ... or four more


def test_scale_in_waits_for_the_highest_wish_of_five_minutes() -> None:
    """Five low minutes pass before the fleet shrinks."""
    play = started(8)
    wanted = [play.minute(rate)[SMALL] for rate in (40.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0)]
    assert wanted == [8, 8, 8, 8, 8, 2, 2]


def test_pending_instances_are_not_launched_twice() -> None:
    """While two boot, the same demand wants the same count."""
    play = started(4)
    assert [play.minute(40.0)[SMALL] for _ in range(4)] == [8] * 4


def test_bounds_hold_and_one_stays() -> None:
    """The count is at least one and at most max_instances."""
    planner = small(max_instances=6)
    context = PlanningContext(60.0, usual(), fleet({SMALL: 4}), last_minute_rps=1e6)
    assert planner.plan(context, ())[0].counts == {SMALL: 6}
    idle = PlanningContext(60.0, usual(), fleet({SMALL: 1}), last_minute_rps=0.0)
    assert planner.plan(idle, ())[0].counts == {SMALL: 1}


def test_a_lost_fleet_comes_back() -> None:
    """Without anything to measure, one instance is launched."""
    assert small().plan(PlanningContext(60.0, usual(), Fleet(()), last_minute_rps=50.0), ())[0].counts == {SMALL: 1}


def test_nothing_observed_changes_nothing() -> None:
    """In a gap the fleet stays."""
    assert small().plan(PlanningContext(60.0, usual(), fleet({SMALL: 4})), ())[0].counts == {SMALL: 4}


def test_spot_is_taken_only_without_on_demand() -> None:
    """Policies are compared on on-demand instances if those are sold."""
    from mark.domain.offer import Market

    of = resolved(sold("small", 0.05, Market.SPOT, "a"), sold("small", 0.2), latencies_ms={"small": 100.0})
    assert reactive(of, load(1.0)).offer == SMALL
    only = resolved(sold("small", 0.05, Market.SPOT, "a"), latencies_ms={"small": 100.0})
    assert reactive(only, load(1.0)).offer == "small/spot/a"
