"""The capacity of an instance of each type among the others, at the load that comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.late_shares import LateShares
from mark.domain.profile import Candidate
from mark.planning.demand.late_counting import INSTANCES
from mark.planning.demand.type_weights import TypeWeights
from tests.planning.build import resolved, sold

LOADS_RPS = np.geomspace(0.1, 100.0, 32)


def carrying(capacity_rps: float, of_each: float, alone: float, *, function: bool = False) -> Candidate:
    """Return a candidate whose instances carry from `alone` requests/s, by themselves, up to `of_each` among many.

    Half of the requests of a higher load are late, or answered in time by a function.
    """
    candidate = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}).candidates[0]
    most = of_each - (of_each - alone) / np.sqrt(INSTANCES)
    over = np.where(LOADS_RPS[None, :] > most[:, None], 0.5, 0.0)
    late, calls = (0.0 * over, over) if function else (over, 0.0 * over)
    shares = LateShares(
        INSTANCES, LOADS_RPS, late, calls, np.ones_like(over), 0.6, 80_000, float(not function), float(function)
    )
    return replace(candidate, capacity_rps=capacity_rps, late_shares=shares)


LARGE, SMALL = carrying(40.0, 50.0, 30.0), carrying(10.0, 15.0, 5.0)


def test_types_of_one_table_have_one_capacity_at_every_load() -> None:
    weights = TypeWeights(LARGE, [LARGE, replace(LARGE)], 0.02)
    for load_rps in (0.01, 1.0, 33.0, 170.0, 4_000.0, 40_000.0):
        assert weights.at(load_rps) == pytest.approx(40.0)


def test_one_instance_of_any_type_is_enough_for_little() -> None:
    assert TypeWeights(LARGE, [LARGE, SMALL], 0.02).at(0.5) == pytest.approx(40.0)


def test_fleets_that_carry_the_same_load_have_one_capacity() -> None:
    weights = TypeWeights(LARGE, [LARGE, SMALL], 0.02)
    assert SMALL.late_shares is not None
    assert LARGE.late_shares is not None
    for large, small in ((2, 6), (4, 16), (16, 64)):
        load_rps = LARGE.late_shares.carries_rps(large, 0.02)
        same_rps = SMALL.late_shares.carries_rps(small, 0.02)
        worth = weights.at(load_rps)[1] * small
        assert (worth >= 40.0 * large) == (same_rps >= load_rps), "enough small ones are worth the large ones"


def test_a_fleet_of_one_type_holds_the_load_of_its_own_table() -> None:
    weights = TypeWeights(LARGE, [LARGE, SMALL], 0.02)
    assert SMALL.late_shares is not None
    for count in (1, 2, 7):
        assert weights.holds_rps([0, count]) == SMALL.late_shares.carries_rps(count, 0.02)
    assert weights.holds_rps([0, 0]) == 0.0


def test_a_mixed_fleet_holds_less_than_if_all_were_of_its_largest_type() -> None:
    weights = TypeWeights(LARGE, [LARGE, SMALL], 0.02)
    assert weights.holds_rps([2, 0]) < weights.holds_rps([2, 3]) < weights.holds_rps([2, 6]) < weights.holds_rps([5, 0])
    held_rps = weights.holds_rps([2, 6])
    worth = float(np.array([2, 6]) @ weights.at(held_rps))
    assert worth == pytest.approx(40.0 * 4, rel=0.05), "as many of the large ones as carry it alone"


def test_types_beside_a_function_in_time_are_compared_by_the_requests_they_serve() -> None:
    """The function answers the requests beyond them in time, so by lateness one instance of any type is enough."""
    with_function = [carrying(40.0, 50.0, 30.0, function=True), carrying(10.0, 15.0, 5.0, function=True)]
    for load_rps in (0.5, 33.0, 170.0, 4_000.0):
        expected = TypeWeights(LARGE, [LARGE, SMALL], 0.02).at(load_rps)
        assert TypeWeights(with_function[0], with_function, 0.02).at(load_rps) == pytest.approx(expected)


def test_one_instance_counts_as_what_it_serves_beside_a_function_in_time() -> None:
    """One large instance serves 20 requests/s; a small one serves half of them, unless it breaks the promise."""
    large, small = carrying(40.0, 50.0, 30.0, function=True), carrying(10.0, 15.0, 5.0, function=True)
    assert TypeWeights(large, [large, small], 0.02).at(20.0) == pytest.approx([40.0, 20.0])
    assert TypeWeights(LARGE, [LARGE, SMALL], 0.02).at(20.0)[1] < 19.0
    counted = small.late_shares
    assert counted is not None
    late = replace(small, late_shares=replace(counted, late=np.full_like(counted.late, 0.03)))
    assert TypeWeights(large, [large, late], 0.02).at(20.0)[1] < 10.0


def test_an_instance_that_is_nearly_enough_counts_as_what_it_serves_in_time() -> None:
    """As a fraction of a large instance it would leave the missing one late."""
    assert SMALL.late_shares is not None
    few_late = replace(SMALL.late_shares, late=np.minimum(SMALL.late_shares.late, 0.04))
    load_rps = 1.2 * few_late.carries_rps(1, 0.02)
    assert float(few_late.late_at(load_rps, 1)) == pytest.approx(0.04)
    nearly = replace(SMALL, late_shares=few_late)
    assert TypeWeights(LARGE, [LARGE, nearly], 0.02).at(load_rps)[1] == pytest.approx(40.0 * 0.96)


def test_a_load_beyond_the_largest_fleet_takes_more_in_proportion() -> None:
    weights = TypeWeights(LARGE, [SMALL], 0.02)
    assert weights.at(1e4) == pytest.approx(weights.at(1e5))


def test_types_that_were_not_counted_keep_their_capacity() -> None:
    certain = replace(SMALL, late_shares=None)
    assert TypeWeights(LARGE, [LARGE, certain], 0.02).at(3.0).tolist() == [40.0, 10.0]
    assert TypeWeights(LARGE, [LARGE, SMALL], 0.02).at(0.0).tolist() == [40.0, 10.0]
