from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mark_papers.mark_optimal import MarkOptimalPolicy, paper_capacities

from mark.domain.errors import Infeasible
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.domain.service import ControlSettings, ResolvedService
from mark.planning.planner import PlanningContext
from mark.planning.policies.mark_paper import MarkPaperPolicy
from tests.planning.build import fleet, forecast, resolved, sold, usual

NOTHING = Fleet(())


def planned(of: ResolvedService, rate_rps: float | np.ndarray, running: Fleet = NOTHING, **more: object) -> dict:
    context = PlanningContext(0.0, of, running, forecast(rate_rps), **more)  # type: ignore[arg-type]
    return MarkOptimalPolicy(of).plan(context, ())[0].counts


def test_instances_are_planned_for_the_rate_of_the_mean_wait() -> None:
    """A small one has 10 requests/s of throughput and 9.09 within 500 ms of wait: three for 27, four for 28."""
    small = paper_capacities(usual().candidates, usual().slo)[1]
    assert small == pytest.approx(10.0 / 1.1)
    assert planned(usual(), 3.0 * small - 0.1) == {"small/on-demand": 3}
    assert planned(usual(), 3.0 * small + 0.1) == {"small/on-demand": 4}


def test_what_comes_later_decides_what_is_launched_now() -> None:
    """Greedy fills minute by minute; here one large one is launched for load that grows in a quarter of an hour."""
    grows = np.where(np.arange(60) < 20, 55.0, 98.0)
    assert planned(usual(), grows) == {"large/on-demand": 1}
    fades = np.where(np.arange(60) < 20, 55.0, 5.0)
    assert planned(usual(), fades) == {"small/on-demand": 7}


def test_demand_begins_at_tau_and_now_for_a_first_fleet() -> None:
    rates = np.where(np.arange(60) < 5, 90.0, 9.0)
    assert planned(usual(), rates) == {"small/on-demand": 1}
    assert planned(usual(), rates, first=True) == {"large/on-demand": 1}


def test_running_instances_are_free_of_launch() -> None:
    running = fleet({"small/on-demand": 11})
    short = np.where(np.arange(60) < 8, 97.0, 0.0)
    assert planned(usual(), short, running) == {"small/on-demand": 11}
    assert planned(usual(), 97.0, running)["large/on-demand"] == 1  # the small ones cool down


def test_the_cool_down_and_launch_price_are_settings() -> None:
    of = usual()
    prompt = replace(of, service=replace(of.service, control=ControlSettings(cool_down_s=0.0)))
    assert planned(prompt, 9.0, fleet({"small/on-demand": 3})) == {"small/on-demand": 1}
    memory = ({"small/on-demand": 3},)
    context = PlanningContext(0.0, of, fleet({"small/on-demand": 3}), forecast(9.0))
    assert MarkOptimalPolicy(of).plan(context, memory)[0].counts == {"small/on-demand": 3}


def test_it_costs_no_more_than_algorithm_1_with_equal_capacities() -> None:
    """If requests are served immediately, both plan with equal capacities.

    RT_max is 30 s here, and services take 1 ms or less.
    """
    of = resolved(
        sold("large", 1.5),
        sold("small", 0.2),
        latencies_ms={"large": 0.1, "small": 1.0},
        rt_max_s=30.0,
        max_instances=90,
    )
    for rate in (900.0, 2_300.0, 9_700.0):
        context = PlanningContext(0.0, of, Fleet(()), forecast(rate), first=True)
        usd = {offer.name: offer.usd_per_hour for offer in of.offers}
        ours, theirs = (policy(of).plan(context, ())[0].counts for policy in (MarkOptimalPolicy, MarkPaperPolicy))
        assert sum(usd[o] * n for o, n in ours.items()) <= sum(usd[o] * n for o, n in theirs.items()) + 1e-9


@pytest.mark.parametrize(("instances", "usd"), [(2, 1000.0), (500, 0.45)])
def test_limits_of_the_service_are_kept_and_told(instances: int, usd: float) -> None:
    of = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, max_instances=instances, max_usd_per_hour=usd)
    plan, _ = MarkOptimalPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(30.0)), ())
    assert plan.counts == {"small/on-demand": 2}
    assert plan.notes == ("stopped at the service's limit of instances or $/h",)


def test_burstables_are_standbys_for_spot_as_in_mark_paper() -> None:
    of = resolved(
        sold("small", 0.2, Market.SPOT, "a"),
        sold("tiny", 0.01, Market.BURSTABLE),
        latencies_ms={"small": 100.0, "tiny": 100.0},
    )
    plan, _ = MarkOptimalPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(53.0)), ())
    assert plan.counts == {"small/spot/a": 6}
    assert [(t.offer, t.count) for t in plan.standbys] == [("tiny/burstable", 2)]


def test_reasons_speak_of_load_and_dollars() -> None:
    plan, _ = MarkOptimalPolicy(usual()).plan(PlanningContext(0.0, usual(), Fleet(()), forecast(18.0)), ())
    (target,) = plan.targets
    assert "peak 18 requests/s at +300 s with capacity 0 there or coming" in target.reason
    assert "0.0061 $ per thousand in the cheapest fleet for 55 min: 0.42 $/h" in target.reason
    assert plan.solver == "dp, proven"


def test_without_a_forecast_the_fleet_stays() -> None:
    context = PlanningContext(0.0, usual(), fleet({"small/on-demand": 2}))
    plan, _ = MarkOptimalPolicy(usual()).plan(context, ())
    assert plan.counts == {"small/on-demand": 2}


def test_a_type_without_room_to_wait_is_no_candidate() -> None:
    """100 ms of service within 100 ms: a mean wait of zero allows a rate of zero."""
    of = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, rt_max_s=0.1, function_ms=None)
    with pytest.raises(Infeasible):
        MarkOptimalPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(1.0)), ())
    served = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}, rt_max_s=0.1, function_ms=50.0)
    plan, _ = MarkOptimalPolicy(served).plan(PlanningContext(0.0, served, Fleet(()), forecast(1.0)), ())
    assert plan.counts == {}
