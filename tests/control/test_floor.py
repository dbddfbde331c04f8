"""The rule for floors: which floor a plan justifies, and for how long."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mark.control.floor import STALE_S, Floor, floors
from mark.control.monitor import MonitorState
from mark.control.state import ControllerState
from mark.domain.plan import Plan, Target
from tests.control.control_fakes import ON_DEMAND, SPOT_A

NOW_S = 1000.0


def found(plan: Plan | None = None, **more: Any) -> tuple[Floor, ...]:
    at = {"now_s": NOW_S, "seen_s": NOW_S, "max_instances": 10} | more
    monitor = at.pop("monitor", MonitorState())
    return floors("ranker", at.pop("offers", (ON_DEMAND,)), ControllerState(plan=plan, monitor=monitor), **at)


def plan(count: int = 3, at_s: float = NOW_S - 20.0) -> Plan:
    return Plan(at_s, (Target(ON_DEMAND.name, count, "100 requests/s"),))


def test_floor_is_the_plan_with_its_reason_and_price() -> None:
    (floor,) = found(plan())
    assert floor == Floor("ranker", ON_DEMAND.name, 3, "100 requests/s", 3 * ON_DEMAND.usd_per_hour, 20.0)


def test_instances_are_counted_in_replicas() -> None:
    (floor,) = found(plan(), per_instance=4)
    assert (floor.replicas, floor.usd_per_hour) == (12, 3 * ON_DEMAND.usd_per_hour)


def test_without_a_plan_there_is_no_floor() -> None:
    assert found(None) == ()


@pytest.mark.parametrize("age_s", [0.0, STALE_S])
def test_floor_holds_for_three_rounds(age_s: float) -> None:
    assert len(found(plan(at_s=NOW_S - age_s))) == 1
    assert len(found(plan(), seen_s=NOW_S - age_s)) == 1


@pytest.mark.parametrize("age_s", [STALE_S + 1.0, math.inf, math.nan])
def test_stale_plan_or_load_has_no_floor(age_s: float) -> None:
    assert found(plan(at_s=NOW_S - age_s)) == ()
    assert found(plan(), seen_s=NOW_S - age_s) == ()


def test_plan_from_the_future_has_no_floor() -> None:
    """The clock was set back since."""
    assert found(plan(at_s=NOW_S + 3600.0)) == ()


def test_offer_that_the_plan_leaves_out_has_a_floor_of_zero() -> None:
    """The floor is fresh, so it releases the replicas that an earlier plan held."""
    first, second = found(plan(), offers=(ON_DEMAND, SPOT_A))
    assert (first.replicas, second.replicas) == (3, 0)
    assert second.reason == "the plan needs none of it"


def test_instances_of_the_slo_monitor_count_within_the_limit() -> None:
    monitor = MonitorState(launched_s=NOW_S, extra=4, pause_s=300.0, offer=ON_DEMAND.name)
    (floor,) = found(plan(), monitor=monitor)
    assert floor.replicas == 7
    assert floor.reason.endswith("4 more because too many answers are late")
    (floor,) = found(plan(), monitor=monitor, max_instances=5)
    assert floor.replicas == 5
    (floor,) = found(plan(), monitor=monitor, now_s=NOW_S + 100.0, seen_s=NOW_S + 100.0)
    assert floor.replicas == 7
