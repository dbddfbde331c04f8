"""The alternatives against which a decision was weighed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import Delay, Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import HORIZON, overflow_rps
from mark.planning.demand.slo_budget import NEUTRAL
from mark.planning.planner import PlanningContext
from mark.planning.policies.alternatives import CHOSEN, KEPT, NONE, Alternative, Weighed, weigh
from mark.planning.policies.expected_cost import ExpectedCostPolicy
from tests.planning.build import fleet, forecast, resolved, sold, usual

MINUTES = float(HORIZON)


def plan(**counts: int) -> Plan:
    return Plan(0.0, tuple(Target(f"{name}/on-demand", n, "because") for name, n in counts.items()))


def context(
    rps: float, running: dict[str, int] | None = None, of: ResolvedService | None = None, **more: Any
) -> PlanningContext:
    there = {f"{name}/on-demand": n for name, n in (running or {}).items()}
    return PlanningContext(
        0.0, of or usual(), fleet(there), forecast(rps, **more), first=running is None, last_minute_rps=rps
    )


def weighed(made: Plan, seen: PlanningContext) -> Weighed:
    found = weigh(made, seen)
    assert found is not None
    return found


def labelled(found: Weighed, label: str) -> Alternative:
    return next(one for one in found.alternatives if one.label == label)


def test_a_first_fleet_costs_its_price_and_overflow() -> None:
    """At a certain 80 requests/s it is one large of 100 requests/s, without a launch.

    The overflow follows the queueing formula.
    """
    found = weighed(plan(large=1), context(80.0))
    of = usual()
    assert of.function is not None
    patience_s = 0.6 - 0.1  # less the service of the slower type
    overflow = float(overflow_rps(np.array(80.0), np.array(100.0), patience_s))
    assert found.chosen.label == CHOSEN
    assert (found.chosen.instances_usd_per_hour, found.chosen.launches_usd_per_hour) == (pytest.approx(1.5), 0.0)
    assert found.chosen.overflow_rps == pytest.approx(overflow, abs=0.05)
    call_usd = of.function.usd_per_request
    assert found.chosen.overflow_usd_per_hour == pytest.approx(found.chosen.overflow_rps * 3600.0 * call_usd)
    nothing = labelled(found, NONE)
    assert nothing.usd_per_hour == pytest.approx(80.0 * 3600.0 * call_usd, rel=1e-3)


def test_a_launch_is_paid_before_it_serves() -> None:
    """180 s of boot, 20 of them unbilled; then it serves for the minutes that are left."""
    found = weighed(plan(large=1), context(80.0, running={}))
    hours = MINUTES / 60.0
    assert found.chosen.launches_usd_per_hour == pytest.approx(1.5 * 160.0 / 3600.0 / hours)
    assert found.chosen.instances_usd_per_hour == pytest.approx(1.5 * (MINUTES - 3.0) / MINUTES)
    assert found.chosen.overflow_rps == pytest.approx(80.0 * 3.0 / MINUTES, rel=0.1)
    assert found.belief.horizon_s == 240.0


@pytest.mark.parametrize("running", [None, {"large": 1}])
def test_plan_for_a_rising_load_costs_least_with_its_later_launches(running: dict[str, int] | None) -> None:
    """One large carries the load at first, and five the load of half an hour later."""
    rates = np.where(np.arange(60.0) < 20.0, 70.0, 450.0)
    seen = replace(context(1.0, running), forecast=forecast(rates))
    made, _ = ExpectedCostPolicy("mark", usual()).plan(seen, None)
    assert made.counts == {"large/on-demand": 1}
    found = weighed(made, seen)
    assert found.chosen.launches_usd_per_hour > 0.0
    assert found.chosen.usd_per_hour < found.alternatives[0].usd_per_hour
    assert labelled(found, NONE).launches_usd_per_hour == 0.0


def test_later_launches_keep_the_limits() -> None:
    rates = np.where(np.arange(60.0) < 20.0, 70.0, 450.0)
    free, few, cheap = (
        weighed(plan(large=1), replace(context(1.0, of=usual(**limits)), forecast=forecast(rates))).chosen
        for limits in ({}, {"max_instances": 3}, {"max_usd_per_hour": 3.0})
    )
    each = free.launches_usd_per_hour / 4
    assert few.launches_usd_per_hour == pytest.approx(2 * each)
    assert cheap.launches_usd_per_hour == pytest.approx(each)


def test_resumed_instance_costs_its_resume() -> None:
    """A stopped one is ready after 60 s, of which 40 are billed; a launch takes 180 s."""
    of = resolved(replace(sold("large", 1.5), resume=Delay(60.0, 60.0)), latencies_ms={"large": 10.0})
    stopped = Instance(9, "large/on-demand", Phase.STOPPED, 0.0, 0.0)
    seen = replace(context(80.0, running={}, of=of), fleet=Fleet((stopped,)))
    found = weighed(plan(large=2), seen)
    assert found.chosen.launches_usd_per_hour == pytest.approx(1.5 * (40.0 + 160.0) / 3600.0 * 60.0 / MINUTES)


def test_running_instance_saves_no_launch() -> None:
    """A third one boots for 180 s, though a stopped one of its type would be resumed in 60 s."""
    of = resolved(replace(sold("large", 1.5), resume=Delay(60.0, 60.0)), latencies_ms={"large": 10.0})
    found = weighed(plan(large=3), context(80.0, running={"large": 2}, of=of))
    assert found.chosen.launches_usd_per_hour == pytest.approx(1.5 * 160.0 / 3600.0 * 60.0 / MINUTES)


def test_what_is_replaced_is_paid_until_its_replacement_serves() -> None:
    """Nine small ones instead of a large one: it serves on for the three minutes that they boot, and no longer."""
    found = weighed(plan(small=9), context(85.0, running={"large": 1}))
    assert found.chosen.instances_usd_per_hour == pytest.approx((1.5 * 3 + 9 * 0.2 * (MINUTES - 3)) / MINUTES)
    assert found.chosen.overflow_rps < 1.0
    # The same when the plan says that it holds on to it until then.
    held = weighed(plan(small=9, large=1), context(85.0, running={"large": 1}))
    assert held.chosen.usd_per_hour <= found.chosen.usd_per_hour + 1e-9


def test_what_is_no_longer_needed_is_paid_for_a_minute() -> None:
    found = weighed(plan(large=3), context(80.0, running={"large": 3}))
    assert found.chosen.instances_usd_per_hour == pytest.approx(1.5 + 2 * 1.5 / MINUTES)
    assert KEPT not in {one.label for one in found.alternatives}  # the plan changed nothing
    assert found.saved_against_kept_usd_per_hour is None


@pytest.mark.parametrize("least", [1, 2])
def test_least_number_of_instances_is_paid_throughout(least: int) -> None:
    """Without requests they pay for nothing. A third one is ended after a minute."""
    of = usual(min_instances=least)
    found = weighed(plan(small=least), context(0.0, of=of))
    assert found.chosen.instances_usd_per_hour == pytest.approx(0.2 * least)
    assert labelled(found, f"{least} large/on-demand").instances_usd_per_hour == pytest.approx(1.5 * least)
    kept = labelled(weighed(plan(small=least), context(0.0, {"small": 3}, of)), KEPT)
    assert kept.instances_usd_per_hour == pytest.approx(0.2 * (least + (3 - least) / MINUTES))
    assert found.alternatives[0].label == NONE
    assert found.alternatives[0].usd_per_hour < 1e-6


def test_alternatives_are_listed_cheapest_first() -> None:
    found = weighed(plan(large=1), context(150.0, running={"small": 3}))
    labels = {one.label for one in found.alternatives}
    assert {KEPT, NONE, "one large/on-demand more"} <= labels
    assert "one large/on-demand fewer" not in labels  # no instance: the same as functions alone, named once
    assert any(label.endswith(" small/on-demand") for label in labels)
    prices = [one.usd_per_hour for one in found.alternatives]
    assert prices == sorted(prices)
    assert len({tuple(one.counts.items()) for one in found.alternatives}) == len(found.alternatives)
    assert found.saved_usd_per_hour == pytest.approx(prices[0] - found.chosen.usd_per_hour)
    kept = labelled(found, KEPT)
    assert kept.counts == {"small/on-demand": 3}
    assert found.saved_against_kept_usd_per_hour == pytest.approx(kept.usd_per_hour - found.chosen.usd_per_hour)


@pytest.mark.parametrize("rps", [20.0, 40.0, 130.0, 700.0])
@pytest.mark.parametrize("running", [None, {"small": 4}, {"large": 2}, {"large": 9, "small": 9}])
def test_the_plan_is_close_to_the_best_alternative(rps: float, running: dict[str, int] | None) -> None:
    """Both price by the same formula; the planner may also stop now and come back, which is not priced here."""
    seen = context(rps, running, spread=0.2)
    made, _ = ExpectedCostPolicy("mark", usual()).plan(seen, None)
    found = weighed(made, seen)
    assert found.saved_usd_per_hour is not None
    assert found.saved_usd_per_hour >= -0.02 * found.chosen.usd_per_hour - 0.05


def test_a_single_kind_has_its_best_count() -> None:
    seen = context(150.0, spread=0.2)
    found = weighed(plan(), seen)
    best = next(one for one in found.alternatives if one.label.endswith(" small/on-demand") and "one" not in one.label)
    count = best.counts["small/on-demand"]
    for other in (count - 1, count + 1):
        assert weighed(plan(small=other), seen).chosen.usd_per_hour >= best.usd_per_hour


def test_committed_instances_cost_nothing_more() -> None:
    of = replace(usual(), committed={"large/on-demand": 1})
    found = weighed(plan(large=2), context(180.0, of=of))
    assert found.chosen.instances_usd_per_hour == pytest.approx(1.5, rel=0.01)
    assert weighed(plan(large=1), context(80.0, running={}, of=of)).chosen.launches_usd_per_hour == 0.0
    # Beside the one that is covered already a second is not.
    assert weighed(plan(large=2), context(180.0, running={"large": 1}, of=of)).chosen.launches_usd_per_hour > 0.0


def test_what_the_limits_forbid_is_no_alternative() -> None:
    """Two large ones for 3 $/h are allowed: neither a third one nor the twenty small ones instead."""
    for limits in ({"max_usd_per_hour": 3.0}, {"max_instances": 2}):
        found = weighed(plan(large=2), context(190.0, of=usual(**limits)))
        for one in found.alternatives:
            assert sum(one.counts.values()) <= limits.get("max_instances", 500)
            usd_per_hour = {"large/on-demand": 1.5, "small/on-demand": 0.2}
            assert sum(n * usd_per_hour[name] for name, n in one.counts.items()) <= 3.0 + 1e-9
        assert any("small" in one.label for one in found.alternatives)
    found = weighed(plan(large=1), context(190.0, of=usual(max_usd_per_hour=3.0)))
    assert "one large/on-demand more" in {one.label for one in found.alternatives}


def test_how_many_burstables_may_be_started_is_not_weighed() -> None:
    """The planner alone knows their credits: chosen burstables are priced, but not offered as alternatives."""
    of = resolved(sold("t2", 0.05, Market.BURSTABLE), sold("small", 0.2), latencies_ms={"t2": 100.0, "small": 100.0})
    for counts in ({}, {"t2/burstable": 2}):
        made = Plan(0.0, tuple(Target(name, n, "") for name, n in {"small/on-demand": 3, **counts}.items()))
        found = weighed(made, context(50.0, of=of))
        assert found.chosen.capacity_rps == pytest.approx(10.0 * (3 + sum(counts.values())))
        more = {one.counts.get("t2/burstable", 0) for one in found.alternatives if one.label != NONE}
        assert max(more) <= counts.get("t2/burstable", 0)


def test_slow_functions_are_no_alternative_and_lateness_has_a_price() -> None:
    found = weighed(plan(large=1), context(150.0, of=usual(function_ms=900.0)))
    assert found.overflow == "misses of the SLO"
    assert NONE not in {one.label for one in found.alternatives}
    assert labelled(found, "one large/on-demand more").overflow_rps < found.chosen.overflow_rps


def test_late_answers_are_priced_as_the_planner_does() -> None:
    """Cheap spot beside on-demand makes no miss cheaper: small ones take 10 requests/s for 0.2 $/h on demand."""
    of = resolved(sold("small", 0.2), sold("small", 0.06, Market.SPOT), latencies_ms={"small": 100.0}, function_ms=None)
    chosen = weighed(plan(small=1), context(80.0, of=of)).chosen
    miss_usd = NEUTRAL * 0.2 / 3600.0 / 10.0 / 0.02
    assert chosen.overflow_usd_per_hour == pytest.approx(chosen.overflow_rps * 3600.0 * miss_usd)


def test_beliefs_are_of_the_coming_minute_without_a_launch() -> None:
    rates = np.arange(60.0) + 50.0
    seen = replace(context(1.0, running={"large": 1}), forecast=forecast(rates, spread=0.5))
    kept, more = weighed(plan(large=1), seen).belief, weighed(plan(large=2), seen).belief
    assert (kept.horizon_s, more.horizon_s) == (60.0, 240.0)
    assert (kept.mean_rps[2], more.mean_rps[2]) == (50.0, 53.0)
    assert kept.mean_rps[0] == pytest.approx(50.0 * (1.0 - 0.5 * 0.9))
    assert kept.predictor == "test"


def test_without_a_forecast_nothing_is_weighed() -> None:
    assert weigh(plan(large=1), replace(context(10.0), forecast=None)) is None


def test_numbers_stay_finite_when_nothing_or_very_much_arrives() -> None:
    for rps in (0.0, 1e6):
        found = weighed(plan(large=1), context(rps, running={"small": 1}))
        assert all(math.isfinite(one.usd_per_hour) for one in (found.chosen, *found.alternatives))
