"""Clairvoyant plans, each with one more friction: against closed forms, enumeration and the bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.offer import BurstCredits, Delay, Market
from mark.planning.bounds.cost_gap import CostGap, cost_gap
from mark.planning.bounds.lower_bound import BoundProblem, fluid_bound
from mark.planning.demand.served_load import overflow_rps
from tests.planning.bounds.test_lower_bound import Steps, offer, problem

QUICK = settings(max_examples=25, derandomize=True)
AT_ONCE = Delay(0.0, 0.0)


def found(made: BoundProblem, late: float = 0.0) -> CostGap:
    result = cost_gap(made, late)
    assert result is not None
    return result


def poisson(rate_rps: float, minutes: int = 60, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate_rps, 60 * minutes).astype(float)


def test_whole_instances_of_a_constant_load_are_rounded_up() -> None:
    """30 requests/s for an hour on instances of 20 at 1 $/h, without functions: 1.5 of them, or 2."""
    plans = found(problem([30.0] * 3600, (offer(), 20.0)))
    assert plans.fluid_usd == pytest.approx(1.5, rel=0.01)
    assert plans.whole_usd == pytest.approx(2.0, rel=0.01)
    assert plans.launching_usd == pytest.approx(plans.fluid_usd, rel=0.01)
    assert plans.launches_usd == 0.0


def test_a_small_type_fills_what_a_large_one_leaves() -> None:
    """25 requests/s: one of 20 at 1 $/h and one of 5 at 0.3 $/h, rather than two of the cheaper per request."""
    made = problem([25.0] * 3600, (offer("large"), 20.0), (offer("small", 0.3), 5.0))
    assert found(made).whole_usd == pytest.approx(1.3, rel=0.01)


def test_tiny_instances_cost_nothing_to_round() -> None:
    for functions in (None, 3e-5):
        made = problem(poisson(40.0), (offer(usd_per_hour=0.01), 0.2), usd_per_request=functions)
        plans = found(made, 0.0 if functions else 50.0)
        assert plans.whole_usd == pytest.approx(plans.fluid_usd, rel=0.005)


def test_whole_fleets_are_the_best_of_all_mixes() -> None:
    """The reference tries every mix of up to 12 of each, minute by minute."""
    kinds = [(1.0, 20.0), (0.35, 6.0), (0.2, 3.0)]
    counts = np.concatenate([np.full(60, rate) for rate in (3.0, 70.0, 22.0, 47.0, 10.0)])
    call = 2e-4
    made = problem(counts, *((offer(f"t{i}", usd), rps) for i, (usd, rps) in enumerate(kinds)), usd_per_request=call)
    least = 0.0
    for rate in counts[::60]:
        least += min(
            sum(n * usd for n, (usd, _) in zip(mix, kinds, strict=True)) / 60.0
            + 60.0 * call * max(0.0, rate - sum(n * rps for n, (_, rps) in zip(mix, kinds, strict=True)))
            for mix in itertools.product(range(13), repeat=3)
        )
    assert found(made).whole_usd == pytest.approx(least, rel=0.02)


def test_where_everything_is_ready_at_once_launches_cost_nothing() -> None:
    rate = 40.0 + 30.0 * np.sin(np.arange(60 * 120) / 600.0)
    counts = np.random.default_rng(2).poisson(rate)
    slow, quick = (
        found(problem(counts, (offer(boot=boot), 10.0), usd_per_request=5e-5))
        for boot in (Delay(180.0, 300.0), AT_ONCE)
    )
    assert quick.launches_usd == 0.0
    assert quick.launching_usd == pytest.approx(quick.fluid_usd, rel=0.005)
    assert slow.fluid_usd == pytest.approx(quick.fluid_usd, rel=1e-9)
    assert slow.launching_usd > 1.001 * slow.fluid_usd
    assert 0.0 < slow.launches_usd < slow.launching_usd


def test_the_last_step_is_paid_to_its_end() -> None:
    """For 30 requests/s over a minute and a half, two instances of 20 requests/s are paid at 1 $/h."""
    made = problem([30.0] * 90, (offer(), 20.0), usd_per_request=1e-3)
    assert found(made).whole_usd == pytest.approx(2.0 * 90.0 / 3600.0, rel=0.001)


def test_poisson_arrivals_queue_as_the_formula_says_and_no_more() -> None:
    """The reference is the best whole fleet of every minute by the planner's formula for Poisson arrivals."""
    counts, call = poisson(40.0), 5e-5
    fleets = np.arange(20)
    capacities = np.arange(0.0, 200.0, 10.0)
    least = 0.0
    for rate in counts[:-1].reshape(-1)[: 59 * 60].reshape(59, 60).mean(axis=1):
        least += float(np.min(fleets / 60.0 + 60.0 * call * overflow_rps(np.array(rate), capacities, 0.5)))
    made = problem(counts[: 59 * 60 + 1], (offer(), 10.0), usd_per_request=call)
    assert found(made).queueing_usd == pytest.approx(least, rel=0.02)


def test_queues_cost_more_the_less_time_there_is_to_wait() -> None:
    costs = []
    for rt_max_s in (0.3, 0.6, 1.0):
        made = problem(poisson(40.0), (offer(), 10.0), usd_per_request=5e-5, rt_max_s=rt_max_s)
        plans = found(made)
        costs.append(plans.queueing_usd - plans.whole_usd)
    assert costs[0] > costs[1] > costs[2] > 0.0


@QUICK
@given(
    st.lists(st.floats(0.0, 60.0), min_size=2, max_size=6),
    st.lists(st.tuples(st.floats(0.2, 2.0), st.sampled_from([4.0, 10.0, 25.0])), min_size=1, max_size=3),
    st.sampled_from([1e-5, 4e-5, 2e-4, None]),
    st.booleans(),
)
def test_every_friction_costs_something_and_none_goes_below_the_bound(
    rates: list[float], kinds: list[tuple[float, float]], call: float | None, warm: bool
) -> None:
    counts = np.random.default_rng(0).poisson(np.repeat(rates, 60))
    if not counts[:-1].any():
        return
    offers = [(offer(f"t{i}", usd), rps) for i, (usd, rps) in enumerate(kinds)]
    made = problem(counts, *offers, usd_per_request=call, warm_start=warm)
    plans = cost_gap(made, 0.0)
    if plans is None:  # functions are cheaper than anything
        assert call is not None
        assert all(usd / 3600.0 / rps >= call for usd, rps in kinds)
        return
    bound = fluid_bound(made).fluid_usd
    assert bound is not None
    slack = 0.01 * bound + 1e-4  # capacity is searched on a grid
    assert plans.fluid_usd <= plans.whole_usd + slack
    assert plans.fluid_usd <= plans.launching_usd + slack
    assert bound <= plans.launching_usd + 0.05 * bound + 1e-3
    assert 0.0 <= plans.launches_usd <= plans.launching_usd + 1e-9
    assert all(math.isfinite(value) for value in (plans.queueing_usd, plans.whole_usd, plans.launching_usd))


def test_without_functions_the_late_requests_are_left_over() -> None:
    """The more requests may be late, the cheaper it is, in about the same way as the bound."""
    made = problem(poisson(40.0), (offer(), 10.0))
    total = float(made.counts.sum())
    costs = [found(made, share * total).fluid_usd for share in (0.0, 0.01, 0.05)]
    bounds = [fluid_bound(made, share * total).usd for share in (0.0, 0.01, 0.05)]
    assert costs[0] > costs[1] > costs[2]
    assert costs[1] == pytest.approx(bounds[1], rel=0.05)
    assert costs[2] == pytest.approx(bounds[2], rel=0.05)


def test_with_functions_more_may_be_late_than_are_called() -> None:
    """The price makes calls rare. Requests that may be late need not be called, which makes the plan cheaper."""
    made = problem(poisson(40.0), (offer(), 10.0), usd_per_request=1e-3)
    late = 0.02 * float(made.counts.sum())
    bound = fluid_bound(made, late).usd
    assert found(made, late).fluid_usd == pytest.approx(bound, rel=0.05)
    assert found(made, late).fluid_usd < 0.99 * found(made).fluid_usd


def test_committed_instances_serve_for_nothing() -> None:
    made = problem([30.0] * 3600, (offer(), 20.0))
    name = made.resolved.offers[0].name
    enough, half = (replace(made, resolved=replace(made.resolved, committed={name: n})) for n in (2, 1))
    assert found(enough).whole_usd == pytest.approx(0.0, abs=1e-6)
    assert found(half).fluid_usd == pytest.approx(0.5, rel=0.02)
    assert found(half).whole_usd == pytest.approx(1.0, rel=0.02)


def test_spot_is_used_while_it_is_there() -> None:
    """Spot is away for the second half hour (and two minutes of notice), in which the dearer type serves."""
    series = Steps("availability", (0.0, 1800.0), (1.0, 0.0), period_s=1e6)
    spot = offer("a.large", 0.2, Market.SPOT, zone="z")
    made = problem([20.0] * 3600, (offer(), 20.0), (spot, 20.0), spot=[series])
    assert found(made).whole_usd == pytest.approx((0.2 * 32 + 1.0 * 28) / 60.0, rel=0.02)
    assert found(made).fluid_usd == pytest.approx((0.2 * 32 + 1.0 * 28) / 60.0, rel=0.02)


def test_nothing_to_serve_or_burstables_alone_have_no_plans() -> None:
    assert cost_gap(problem([0.0] * 600, (offer(), 10.0)), 0.0) is None
    credits = BurstCredits(0.2, 24.0, 576.0, 60.0)
    burstable = offer("t.small", 0.1, Market.BURSTABLE, credits=credits)
    assert cost_gap(problem([3.0] * 600, (burstable, 10.0), usd_per_request=1.0), 0.0) is None
