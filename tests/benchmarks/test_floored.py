from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "scalers"))

from floored import FlooredScaler, Outage, floored

from mark.domain.errors import BadInput
from mark.domain.fleet import Fleet
from mark.domain.plan import Plan, Target
from mark.domain.scaler import HpaSettings
from mark.domain.service import AsIsPolicy
from mark.planning.planner import PlanningContext
from mark.planning.policies.pod_scaler import HpaRule, PodScaler
from tests.planning.build import fleet, forecast, load, usual

SMALL = "small/on-demand"


class Asked:
    """A planner that wants the given counts, and counts its calls."""

    def __init__(self, *wanted: int) -> None:
        self.wanted, self.times = wanted, 0

    def begin(self) -> int:
        return 0

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        self.times += 1
        return Plan(context.now_s, (Target(SMALL, self.wanted[memory], "told"),)), memory + 1


def played(planner: Asked, *outages: Outage, rate_rps: float = 5.0) -> list[int]:
    """Return the counts of an HPA, capped at two replicas, every 15 s while `planner` is asked once a minute."""
    scaler = PodScaler("as-is", SMALL, HpaRule(HpaSettings(stabilization_window_s=0.0), 5.0, 10.0), 10.0, 0.0, 1, 50)
    own = FlooredScaler("floor", scaler, planner, outages)  # type: ignore[arg-type]
    memory, counts, count = own.begin(), [], 1
    for tick in range(4 * len(planner.wanted)):
        believed = forecast(rate_rps) if tick % 4 == 0 else None
        context = PlanningContext(15.0 * tick, usual(), fleet({SMALL: count}), believed, rate_rps)
        plan, memory = own.plan(context, memory)
        count = plan.counts[SMALL]
        counts.append(count)
    return counts


def test_floor_is_planned_once_a_minute_and_holds_in_between() -> None:
    planner = Asked(7, 3, 0)
    assert played(planner) == [7] * 4 + [3] * 4 + [1] * 4
    assert planner.times == 3


def test_scaler_that_wants_more_gets_more() -> None:
    assert played(Asked(3, 3), rate_rps=30.0)[-1] == 6


def test_silent_floor_leaves_the_scaler_alone() -> None:
    """Between 60 and 120 s no floor is shown; after that the next minute's floor applies immediately."""
    assert played(Asked(7, 8, 9), Outage(60.0, 120.0)) == [7] * 4 + [1] * 4 + [9] * 4


def test_old_floor_is_kept_until_it_is_stale() -> None:
    """The last number before the outage is used for 30 s."""
    assert played(Asked(7, 8, 9), Outage(60.0, 120.0, 30.0)) == [7] * 4 + [7] * 2 + [1] * 2 + [9] * 4


def test_floor_plans_the_user_s_type_alone() -> None:
    """This is the first fleet of an HPA above the floor of one type: at least six for 60 requests/s."""
    policy = floored(usual(as_is=AsIsPolicy("hpa", "small", 1.0)), load(10.0))
    context = PlanningContext(0.0, policy.resolved, Fleet(()), forecast(60.0), last_minute_rps=60.0, first=True)
    plan, _ = policy.planner.plan(context, policy.planner.begin())
    assert set(plan.counts) == {SMALL}
    assert plan.counts[SMALL] >= 6
    assert (policy.every_s, policy.bouncers) == (15.0, False)


def test_floor_needs_a_scaler_that_reads_it() -> None:
    with pytest.raises(BadInput, match=r"\[policy\] kind: a floor is for hpa, keda, knative, ray or cron: fixed"):
        floored(usual(as_is=AsIsPolicy("fixed", "small", min_instances=3)), load(1.0))
