from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import Infeasible
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.domain.service import ControlSettings
from mark.planning.planner import PlanningContext
from mark.planning.policies.mark_paper import NO_DEMAND_RPS, TIE, MarkPaperPolicy, greedy
from mark.planning.policies.paper_system import Choices, paper_admission
from mark.planning.resolve import resolve
from mark.profiling.policy import paper_window_s
from mark.profiling.table import load_profiles
from tests.planning.build import fleet, forecast, resolved, sold, usual


def one_at_a_time(choices: Choices, peak_rps: list[float], most: int, most_usd: float) -> list[int]:
    """Run Algorithm 1, written as plainly as possible."""
    counts = [0] * len(choices.capacity_rps)
    left = [int(n) for n in choices.running]
    planned, usd = 0.0, 0.0
    while peak_rps[0] > planned:
        e = 0
        while e + 1 < len(peak_rps) and peak_rps[e + 1] > planned:
            e += 1
        costs = []
        for i, capacity in enumerate(choices.capacity_rps):
            served = sum(60.0 * min(capacity, peak_rps[t] - planned) for t in range(e + 1))
            launch = 0.0 if left[i] > 0 else choices.launch_usd[i]
            costs.append((launch + (e + 1) * choices.usd_per_step[i]) / served)
        pick = next(i for i, cost in enumerate(costs) if cost <= min(costs) * (1.0 + TIE))
        usd += choices.usd_per_step[pick]
        if sum(counts) + 1 > most or usd > most_usd * (1.0 + 1e-9):
            break
        counts[pick] += 1
        left[pick] -= left[pick] > 0
        planned += choices.capacity_rps[pick]
    return counts


NO_LIMIT = 1e9


def test_next_to_no_demand_buys_nothing() -> None:
    """A forecast that falls to zero ends in an empty fleet, not in an overflowing price per request."""
    choices = Choices(np.array([1.0]), np.array([0.03]), np.array([0.0]), np.array([0]))
    assert list(greedy(choices, np.array([2.2e-313, 0.0]), 10, NO_LIMIT).counts) == [0]


OFFERS = st.lists(st.tuples(st.floats(0.5, 60.0), st.floats(0.0005, 0.05), st.integers(0, 12)), min_size=1, max_size=6)


@settings(max_examples=150)
@given(
    offers=OFFERS,
    peaks=st.lists(st.floats(0.0, 400.0), min_size=1, max_size=20),
    most=st.integers(0, 120),
    launch_s=st.sampled_from([0.0, 180.0]),
)
def test_blocks_of_picks_equal_one_pick_at_a_time(
    offers: list[tuple[float, float, int]], peaks: list[float], most: int, launch_s: float
) -> None:
    """Taking repeated picks in blocks is only quicker: the plan is Algorithm 1's, pick by pick."""
    capacity, price, running = (np.array(column) for column in zip(*offers, strict=True))
    choices = Choices(capacity, price, price * launch_s / 60.0, running.astype(np.int64))
    peaks = [peak if peak >= NO_DEMAND_RPS else 0.0 for peak in peaks]
    picked = greedy(choices, np.array(peaks), most, NO_LIMIT if most % 2 else 10.0)
    assert list(picked.counts) == one_at_a_time(choices, peaks, most, NO_LIMIT if most % 2 else 10.0)


@settings(max_examples=40)
@given(base=st.floats(50.0, 3000.0), fall=st.floats(0.0, 1.0), capacity=st.floats(2.0, 60.0))
def test_large_fleets_on_falling_load_are_picked_alike(base: float, fall: float, capacity: float) -> None:
    """The steps that drop out one by one as capacity grows change e; blocks must notice each."""
    peaks = base * (1.0 - fall * np.linspace(0.0, 1.0, 55))
    choices = Choices(
        np.array([capacity, 55.3]), np.array([0.0003 * capacity, 0.015]), np.array([0.001, 0.045]), np.array([7, 0])
    )
    picked = greedy(choices, peaks, 500, NO_LIMIT)
    assert list(picked.counts) == one_at_a_time(choices, list(peaks), 500, NO_LIMIT)


def test_a_hand_computed_pick() -> None:
    """Large costs 0.025 $ a minute and 0.075 to launch; for 30 requests/s that last it loses to three small ones."""
    picked = MarkPaperPolicy(usual()).plan(PlanningContext(0.0, usual(), Fleet(()), forecast(30.0)), ())[0]
    assert picked.counts == {"small/on-demand": 3}
    assert MarkPaperPolicy(usual()).plan(PlanningContext(0.0, usual(), Fleet(()), forecast(95.0)), ())[0].counts == {
        "large/on-demand": 1
    }


def test_demand_is_that_of_the_fifth_minute() -> None:
    """tau is five steps ahead, except for the first fleet, which is ready immediately."""
    rates = np.where(np.arange(60) < 5, 100.0, 10.0)
    planner = MarkPaperPolicy(usual())
    assert planner.plan(PlanningContext(0.0, usual(), Fleet(()), forecast(rates)), ())[0].counts == {
        "small/on-demand": 1
    }
    first = planner.plan(PlanningContext(0.0, usual(), Fleet(()), forecast(rates), first=True), ())[0]
    assert first.capacity_rps >= 100.0


def test_the_peak_is_planned_for_and_its_median() -> None:
    """F is the median of the highest 5 s rate in the step, not the mean rate."""
    plan = MarkPaperPolicy(usual()).plan(PlanningContext(0.0, usual(), Fleet(()), forecast(20.0, 0.9, peak=2.0)), ())[0]
    assert plan.counts == {"small/on-demand": 4}


def test_running_instances_are_used_before_launching() -> None:
    """Without O_i the small ones that run beat launching a large one, unless the load lasts long enough."""
    running = fleet({"small/on-demand": 10})
    short = np.where(np.arange(60) < 8, 99.0, 0.0)
    assert MarkPaperPolicy(usual()).plan(PlanningContext(0.0, usual(), running, forecast(short)), ())[0].counts == {
        "small/on-demand": 10
    }
    lasting, _ = MarkPaperPolicy(usual()).plan(PlanningContext(0.0, usual(), running, forecast(99.0)), ())
    assert lasting.counts == {"large/on-demand": 1}


def test_instances_of_the_last_six_plans_are_kept() -> None:
    """The fleet shrinks only after six consecutive plans without them."""
    planner, memory = MarkPaperPolicy(usual()), MarkPaperPolicy(usual()).begin()
    running = fleet({"small/on-demand": 3})
    plan, memory = planner.plan(PlanningContext(0.0, usual(), running, forecast(30.0)), memory)
    assert plan.counts == {"small/on-demand": 3}
    for minute in range(1, 6):
        plan, memory = planner.plan(PlanningContext(60.0 * minute, usual(), running, forecast(10.0)), memory)
        assert plan.counts == {"small/on-demand": 3}
        assert "cooling down" not in plan.targets[0].reason or minute
    plan, memory = planner.plan(PlanningContext(360.0, usual(), running, forecast(10.0)), memory)
    assert plan.counts == {"small/on-demand": 1}


def _by(control: ControlSettings) -> MarkPaperPolicy:
    of = usual()
    return MarkPaperPolicy(replace(of, service=replace(of.service, control=control)))


def test_tau_steps_and_launch_overhead_are_settings() -> None:
    rates = np.where(np.arange(60) < 2, 100.0, 10.0)
    context = PlanningContext(0.0, usual(), Fleet(()), forecast(rates))
    assert _by(ControlSettings(tau_s=60.0)).plan(context, ())[0].capacity_rps >= 100.0
    assert _by(ControlSettings(tau_s=120.0)).plan(context, ())[0].counts == {"small/on-demand": 1}
    # A large one costs as much to launch as to run for minutes: it pays only where the load is known to last.
    short = np.where(np.arange(60) < 8, 99.0, 0.0)
    running = PlanningContext(0.0, usual(), fleet({"small/on-demand": 10}), forecast(short))
    assert _by(ControlSettings()).plan(running, ())[0].counts == {"small/on-demand": 10}
    assert _by(ControlSettings(launch_overhead_s=0.0)).plan(running, ())[0].counts == {"large/on-demand": 1}
    lasting = replace(running, forecast=forecast(99.0))
    assert _by(ControlSettings()).plan(lasting, ())[0].counts == {"large/on-demand": 1}
    assert _by(ControlSettings(horizon_steps=3)).plan(lasting, ())[0].counts == {"small/on-demand": 10}


@pytest.mark.parametrize(("cool_down_s", "plans"), [(0.0, 1), (60.0, 1), (61.0, 2), (600.0, 10)])
def test_the_cool_down_is_a_setting(cool_down_s: float, plans: int) -> None:
    """An instance leaves with the last of `plans` plans that do without it."""
    planner, running = _by(ControlSettings(cool_down_s=cool_down_s)), fleet({"small/on-demand": 3})
    _, memory = planner.plan(PlanningContext(0.0, usual(), running, forecast(30.0)), planner.begin())
    kept = 0
    while True:
        plan, memory = planner.plan(PlanningContext(60.0, usual(), running, forecast(10.0)), memory)
        if plan.counts == {"small/on-demand": 1}:
            break
        kept += 1
    assert kept == plans - 1


def test_the_papers_admission_sheds_and_waits_for_a_full_batch() -> None:
    service = load_service("inception-v3")
    own = resolve(replace(service, late="refuse"), load_catalog("aws-2019"), load_profiles())
    admitted = paper_admission(own)
    assert (admitted.service.late, admitted.service.batching) == ("function", "paper")
    assert admitted.offers == own.offers
    windows_s = {}
    for offer, before, after in zip(own.offers, own.candidates, admitted.candidates, strict=True):
        assert after.policy.n_batch == before.policy.n_batch
        assert before.policy.w_batch_s == 0.0
        assert after.policy.w_batch_s == pytest.approx(
            max(0.0, paper_window_s(before.profile, own.slo, before.policy.n_batch))
        )
        windows_s[offer.instance] = after.policy.w_batch_s
    assert windows_s["p2.xlarge"] > 0.0


def test_cooling_down_launches_nothing() -> None:
    """A launch that an older plan wanted and never got is not made once it is no longer wanted."""
    planner = MarkPaperPolicy(usual())
    _, memory = planner.plan(PlanningContext(0.0, usual(), Fleet(()), forecast(30.0)), ())
    plan, _ = planner.plan(PlanningContext(60.0, usual(), Fleet(()), forecast(10.0)), memory)
    assert plan.counts == {"small/on-demand": 1}


@pytest.mark.parametrize(("instances", "usd"), [(2, 1000.0), (500, 0.45)])
def test_limits_of_the_service_end_the_filling(instances: int, usd: float) -> None:
    """max_instances and max_usd_per_hour are not exceeded, and the plan says that it stopped."""
    of = usual(max_instances=instances, max_usd_per_hour=usd)
    plan = MarkPaperPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(30.0)), ())[0]
    assert plan.counts == {"small/on-demand": 2}
    assert plan.notes


def test_burstables_are_standbys_for_spot_and_nothing_else() -> None:
    """A fifth of the spot instances, rounded up, of the cheapest burstable per request; no base on burstables."""
    of = resolved(
        sold("small", 0.2, Market.SPOT, "a"),
        sold("tiny", 0.01, Market.BURSTABLE),
        sold("dear", 0.09, Market.BURSTABLE),
        latencies_ms={"small": 100.0, "tiny": 100.0, "dear": 100.0},
    )
    plan = MarkPaperPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(59.0)), ())[0]
    assert plan.counts == {"small/spot/a": 6}
    assert [(t.offer, t.count) for t in plan.standbys] == [("tiny/burstable", 2)]


def test_burstables_are_bought_where_nothing_else_is_sold() -> None:
    """A service that offers burstables only gets them."""
    of = resolved(sold("tiny", 0.01, Market.BURSTABLE), latencies_ms={"tiny": 100.0})
    plan = MarkPaperPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(15.0)), ())[0]
    assert plan.counts == {"tiny/burstable": 2}
    assert plan.standbys == ()


def test_equal_costs_go_to_the_first_name() -> None:
    """Two zones at one price: the choice does not depend on the order of the catalogue."""
    zones = [sold("small", 0.2, Market.SPOT, zone) for zone in "ba"]
    of = resolved(*zones, latencies_ms={"small": 100.0})
    assert MarkPaperPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(25.0)), ())[0].counts == {
        "small/spot/a": 3
    }


def test_reasons_speak_of_load_and_money() -> None:
    """Every target states the forecast and its time, the existing capacity, and the price of a request."""
    plan = MarkPaperPolicy(usual()).plan(
        PlanningContext(0.0, usual(), fleet({"small/on-demand": 1}), forecast(30.0)), ()
    )[0]
    (target,) = plan.targets
    assert "peak 30 requests/s at +300 s with capacity 10 there or coming" in target.reason
    assert "$ per thousand" in target.reason


def test_without_a_candidate_and_without_functions_it_is_infeasible() -> None:
    """Algorithm 1 reports an error when no candidate can meet the SLO."""
    of = replace(usual(), offers=(), candidates=(), function=None)
    with pytest.raises(Infeasible):
        MarkPaperPolicy(of).plan(PlanningContext(0.0, of, Fleet(()), forecast(30.0)), ())


def test_memory_is_not_changed() -> None:
    """A policy is pure: the same arguments give the same plan again."""
    planner, context = (
        MarkPaperPolicy(usual()),
        PlanningContext(0.0, usual(), fleet({"small/on-demand": 5}), forecast(30.0)),
    )
    _, memory = planner.plan(context, planner.begin())
    assert planner.plan(context, memory) == planner.plan(context, memory)
