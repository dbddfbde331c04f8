"""A stage behind mark's gateway: the kernel and the gateway's own class choose the same replica for each request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.faults import Faults
from mark.kernel.departures import REFUSED
from mark.kernel.stage import LEARNING
from tests.kernel.reference import Case, Change, candidate
from tests.kernel.test_hedging import check as check_hedged
from tests.kernel.test_reference import by_kernel, check

SERVICE_S = 0.1
SLOW = Faults(slow_share=0.2, slow_s=5.0, slow_factor=3.0)


def case_of(
    rate_rps: float, requests: int, *, faults: Faults = SLOW, bouncers: bool = False, sigma: float = 0.3, later: int = 6
) -> Case:
    """Return Poisson traffic on six equal replicas. Number 5 is drained at 10 s, and `later` is added at 20 s."""
    times = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate_rps, requests))
    changes = (
        *(Change(0.0, "add", number) for number in range(6)),
        Change(10.0, "drain", 5),
        Change(20.0, "add", later),
    )
    kind = candidate([SERVICE_S], sigma=sigma)
    return Case((kind,), changes, tuple(times), 3.0 * SERVICE_S, bouncers=bouncers, faults=faults, seed=1)


@pytest.mark.parametrize("routing", LEARNING)
def test_kernel_chooses_the_replicas_that_the_gateway_chooses(routing: str) -> None:
    check(replace(case_of(40.0, 1_500), routing=routing))


def test_replica_that_comes_back_begins_as_a_new_one() -> None:
    check(case_of(40.0, 1_200, sigma=0.0, later=5))


def test_hedged_kernel_chooses_the_replicas_that_the_gateway_chooses() -> None:
    check_hedged(case_of(30.0, 600), 2.0 * SERVICE_S)


def test_refused_requests_get_one_second_attempt_until_the_budget_is_spent() -> None:
    """Twice the capacity arrives, so about half is refused, which is more than the budget allows to ask again."""
    case = case_of(120.0, 3_000, bouncers=True)
    check(case)
    assert (by_kernel(case)[0].recording().slot == REFUSED).sum() > 1_000


def test_slow_replicas_get_fewer_requests() -> None:
    """A replica that takes three times as long gets about a third of a calm one's requests, not the same number."""
    case = case_of(30.0, 1_500)
    recording = by_kernel(case)[0].recording()
    slow = recording.finish_s - recording.start_s > 2.0 * SERVICE_S
    assert 0.02 < slow.mean() < 0.12  # 20 % of the time is slow


def test_hang_is_learned_as_a_slow_answer() -> None:
    check(case_of(40.0, 1_000, faults=Faults(hangs_per_hour=200.0, hang_s=2.0)))


def test_without_slow_replicas_routing_still_sees_every_queue() -> None:
    """Crashes teach a gateway nothing about time, so there no byte changes."""
    calm, crashing = case_of(40.0, 500, faults=Faults()), case_of(40.0, 500, faults=Faults(crashes_per_hour=1e-12))
    one, other = by_kernel(calm)[0].recording(), by_kernel(crashing)[0].recording()
    np.testing.assert_array_equal(one.slot, other.slot)
    np.testing.assert_array_equal(one.finish_s, other.finish_s)


@pytest.mark.parametrize("hedged", [False, True])
def test_a_pause_changes_no_choice(hedged: bool) -> None:
    """Ten minutes without requests have 2,400 ticks of the gateway, at which nothing is left to forget."""
    case = case_of(30.0, 300)
    paused = replace(case, arrivals_s=(*case.arrivals_s, *(600.0 + at_s for at_s in case.arrivals_s)))
    if hedged:
        check_hedged(paused, 2.0 * SERVICE_S)
    else:
        check(paused)
