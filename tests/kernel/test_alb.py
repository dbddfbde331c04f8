"""Routing as an AWS load balancer does it: by raw counts, so replicas of different capacity need separate groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.kernel.accounting import Accounting
from mark.kernel.departures import BY_FUNCTION, REFUSED
from mark.kernel.stage import StageSimulation
from tests.kernel.reference import candidate, function

# Inception-v3 on c5.large, one by one, and on p2.xlarge, in batches of up to 8: 5 and 55 requests a second
SLOW, FAST = candidate([0.2]), candidate([0.0435 + 0.01456 * b for b in range(8)])
RT_MAX_S, END_S = 0.6, 600.0


def served(classes: list[int], fleet: list[int], rate_rps: float, sigma: float = 0.0) -> StageSimulation:
    """Serve Poisson traffic on replicas of SLOW (0) and FAST (1), with functions for late requests."""
    stage = StageSimulation(
        [replace(SLOW, sigma=sigma), replace(FAST, sigma=sigma)],
        accounts=Accounting(rt_max_s=RT_MAX_S, end_s=END_S),
        function=function(0.4, 0.0),
        routing="alb",
        classes=classes,
        seed=1,
        keep=True,
    )
    for number, kind in enumerate(fleet):
        stage.add(number, kind, 0.0)
    times = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate_rps, int(2 * rate_rps * END_S)))
    stage.advance(times[times < END_S], 0, np.inf)
    stage.finish()
    return stage


def counts(stage: StageSimulation, replicas: int) -> NDArray[np.int64]:
    slot = stage.recording().slot
    return np.bincount(slot[slot >= 0], minlength=replicas)


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_a_class_gets_its_share_of_capacity(sigma: float) -> None:
    """11 slow and 2 fast replicas do 55 and 110 requests a second: a third of the requests goes to the slow ones."""
    fleet = [0] * 11 + [1] * 2
    stage = served([0, 1], fleet, 60.0, sigma)
    assert counts(stage, len(fleet))[:11].sum() == pytest.approx(stage.by_instances / 3, rel=0.02)


def test_one_group_for_unequal_ones_overloads_the_slow() -> None:
    """A fast one needs more in flight than a slow one can bear: at 80 % of the load, a tenth goes to functions."""
    fleet = [0] * 11 + [1] * 2
    together, apart = served([0, 0], fleet, 132.0), served([0, 1], fleet, 132.0)
    assert together.accounts.by_functions > 0.1 * together.arrived
    assert apart.accounts.by_functions < 0.01 * apart.arrived


def test_idle_replicas_are_asked_in_turn() -> None:
    """Equal replicas get the same number of requests, to within one."""
    asked = counts(served([0, 1], [0] * 7, 0.05), 7)
    assert asked.sum() > 20
    assert asked.max() - asked.min() <= 1


def test_a_class_with_nothing_ready_gets_nothing() -> None:
    """All requests go to the other class; a replica of this class is asked once it is ready."""
    stage = StageSimulation(
        [SLOW, FAST], accounts=Accounting(rt_max_s=RT_MAX_S, end_s=END_S), routing="alb", classes=[0, 1], keep=True
    )
    times = np.arange(0.0, 200.0, 1.0)
    position = stage.advance(times, 0, 10.0)
    stage.add(0, 0, 10.0)
    position = stage.advance(times, position, 100.0)
    stage.add(1, 1, 100.0)
    stage.drain(0, 150.0)
    stage.advance(times, position, np.inf)
    stage.finish()
    slot = stage.recording().slot
    assert (slot[:10] == REFUSED).all()  # no instance exists
    assert (slot[10:100] == 0).all()
    assert (slot[100:] == 1).all()


def test_a_request_passed_on_counts_until_it_is_answered() -> None:
    """Its function answers at 0.95 s: until then the slow one is not asked, though the other was asked later."""
    stage = StageSimulation(
        [candidate([0.6]), candidate([0.1])],
        accounts=Accounting(rt_max_s=1.0, end_s=END_S),
        function=function(0.9, 0.0),
        routing="alb",
        keep=True,
    )
    stage.add(0, 0, 0.0)
    stage.add(1, 1, 0.0)
    stage.advance(np.array([0.0, 0.0, 0.05, 0.65, 0.8, 0.96]), 0, np.inf)
    stage.finish()
    assert stage.recording().slot.tolist() == [0, 1, BY_FUNCTION, 1, 1, 0]
