"""The bound that is reported: the higher of the fluid bound and the one in whole instances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.offer import Market
from mark.planning.bounds.lower_bound import BoundProblem, fluid_bound
from mark.planning.bounds.whole_bound import highest_bound, whole_proof
from tests.planning.bounds.test_lower_bound import Steps, offer, problem, spot


def swinging(hours: float, mean: float, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    at = np.arange(int(hours * 3600))
    return rng.poisson(mean * (1.0 + 0.6 * np.sin(2.0 * np.pi * at / len(at)))).astype(float)


def two_types(counts: np.ndarray, **more: object) -> BoundProblem:
    return problem(counts, (offer(), 10.0), (offer("b.xlarge", 3.0), 40.0), **more)


def test_small_service_pays_for_one_whole_instance() -> None:
    """A hundredth of an instance would be enough for its requests."""
    rare = problem(np.full(7200, 1.0), (offer(), 100.0), (offer("b.xlarge", 3.0), 400.0))
    strict, loose = highest_bound(rare), highest_bound(rare, 0.02 * 7200)
    assert strict.usd == strict.whole_usd == pytest.approx(2.0, rel=0.001)
    assert loose.usd == pytest.approx(1.96, rel=0.01)
    assert strict.fluid_usd == fluid_bound(rare).usd
    assert "whole instances" in strict.note
    # Committed instances serve without further cost.
    committed = replace(rare, resolved=replace(rare.resolved, committed={rare.resolved.offers[0].name: 1}))
    assert highest_bound(committed).usd == pytest.approx(0.0, abs=0.03)


def test_equal_problems_are_proven_once() -> None:
    """Each policy that is compared on a trace builds the problem anew."""
    counts = swinging(0.5, 3.0)
    proven = highest_bound(two_types(counts), 5.0)
    assert highest_bound(two_types(counts.copy()), 5.0) is proven
    assert highest_bound(two_types(counts), 6.0) is not proven
    assert highest_bound(two_types(counts + 1.0), 5.0).usd != proven.usd


@pytest.mark.untraced
@pytest.mark.parametrize("mean", [0.05, 1.0, 12.0, 300.0])
@pytest.mark.parametrize("late_share", [0.0, 0.02])
@pytest.mark.parametrize("usd_per_request", [None, 1e-4])
def test_bound_lies_between_the_fluid_bound_and_a_plan(
    mean: float, late_share: float, usd_per_request: float | None
) -> None:
    made = two_types(swinging(1.0, mean), usd_per_request=usd_per_request)
    found = highest_bound(made, late_share * float(made.counts.sum()), with_plan=True)
    assert found.usd is not None
    assert found.fluid_usd is not None
    assert found.whole_usd is not None
    assert found.feasible_usd is not None
    assert found.usd == max(found.fluid_usd, found.whole_usd)
    assert found.usd <= found.feasible_usd * (1.0 + 1e-9)
    assert found.instance_usd + found.function_usd == pytest.approx(found.usd)


def test_great_demand_keeps_the_fluid_bound() -> None:
    """With a thousand instances, whole ones cost no more, and blocks leave some of the carried requests free."""
    made = problem(swinging(1.0, 10_000.0), (offer(), 10.0))
    found = highest_bound(made)
    assert found.usd == found.fluid_usd
    assert found.whole_usd is not None
    assert 0.9 * found.fluid_usd <= found.whole_usd < found.fluid_usd
    assert "whole" not in found.note


def test_nothing_to_serve_has_no_whole_bound() -> None:
    made = two_types(np.zeros(100))
    assert (highest_bound(made).usd, highest_bound(made).whole_usd) == (0.0, None)
    assert whole_proof(two_types(np.ones(100)), 100.0) is None
    assert highest_bound(problem([3.0, 4.0]), 6.0).status == "infeasible"


def test_committed_instances_are_paid_once() -> None:
    made = two_types(swinging(1.0, 12.0))
    name = made.resolved.offers[0].name
    resolved = replace(made.resolved, committed={name: 1}, committed_usd_per_hour=0.6)
    found = highest_bound(replace(made, resolved=resolved), with_plan=True)
    plain = highest_bound(made).usd
    assert found.usd is not None
    assert found.feasible_usd is not None
    assert plain is not None
    assert 0.6 < found.usd <= found.feasible_usd
    # Paying for the committed one as for any other would cost a dollar instead of 0.6.
    assert found.usd <= plain


def test_spot_that_is_gone_leaves_the_dear_type() -> None:
    gone = Steps("availability", (0.0, 1800.0), (1.0, 0.0))
    counts = np.full(3600, 9.0)
    alone = highest_bound(problem(counts, spot(), spot=(gone,), usd_per_request=1.0))
    both = highest_bound(problem(counts, spot(), (offer("b.xlarge", 3.0), 40.0), spot=(gone,)), with_plan=True)
    always = highest_bound(problem(counts, spot()))
    assert always.usd is not None
    assert both.usd is not None
    assert alone.usd is not None
    assert both.usd > 2.0 * always.usd
    assert alone.usd > 100.0 * always.usd
    # The plan may only use the type that is always there.
    assert both.feasible_usd == pytest.approx(3.0, rel=0.1)


def test_free_spot_has_no_whole_bound() -> None:
    made = problem([10.0] * 100, spot(), spot_first_hour_free=True)
    assert highest_bound(made).whole_usd is None


def test_burstables_run_at_full_speed_in_whole_bounds() -> None:
    """Credits only add to a bill, so they may be left out."""
    from tests.planning.bounds.test_lower_bound import burstable

    made = problem(np.full(3600, 3.0), burstable(), (offer(), 10.0))
    assert made.resolved.offers[0].market is Market.BURSTABLE
    found = highest_bound(made)
    assert found.usd is not None
    assert found.fluid_usd is not None
    assert found.usd >= found.fluid_usd


def test_disks_of_instances_are_in_the_bound() -> None:
    made = two_types(np.full(7200, 9.0))
    catalog = replace(made.resolved.catalog, bills_extras=True)
    billed = replace(made, resolved=replace(made.resolved, catalog=catalog))
    plain, found = highest_bound(made), highest_bound(billed)
    assert plain.disks_usd == 0.0
    # 8 GiB at $0.08 a GiB and month, for two hours.
    assert found.disks_usd == pytest.approx(2.0 * 0.64 / 730.0, rel=0.05)
    assert found.usd == pytest.approx((plain.usd or 0.0) + found.disks_usd, rel=1e-6)
    assert found.fluid_usd == plain.fluid_usd


def test_the_same_problem_has_the_same_bound() -> None:
    made = two_types(swinging(0.5, 12.0))
    assert highest_bound(made, 30.0, with_plan=True) == highest_bound(made, 30.0, with_plan=True)
