"""Instances that stages share: each stage meets their events in time, and their answers are counted together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from mark.domain.arrays import FloatArray
from mark.kernel.accounting import Accounting
from mark.kernel.stage import Admission, StageSimulation
from mark.simulation.world.shared_instances import SharedInstances
from mark.simulation.world.simulated_cloud import DataPlane
from mark.simulation.world.telemetry import CountedPlane
from tests.kernel.reference import candidate

_is_plane: type[DataPlane] = SharedInstances
_is_counted: Callable[..., CountedPlane] = SharedInstances
KINDS = [candidate([0.05, 0.06, 0.07]), candidate([0.2])]
WINDOW_S = 5.0


def stage(seed: int) -> StageSimulation:
    return StageSimulation(
        KINDS, accounts=Accounting(rt_max_s=0.3, end_s=2 * WINDOW_S), admission=Admission(late=1), seed=seed, keep=True
    )


def arrivals(rate_rps: float, seed: int) -> FloatArray:
    times_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, 200))
    return np.asarray(times_s[times_s < 2 * WINDOW_S])


class Coming:
    def __init__(self, times_s: FloatArray) -> None:
        self.times_s, self.next = times_s, 0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        self.next = stage.advance(self.times_s, self.next, until_s)


def changes(plane: SharedInstances | StageSimulation) -> list[tuple[float, Callable[[], None]]]:
    """Return changes within the first window: a second instance comes, the first becomes slow and then leaves."""
    return [
        (1.3, lambda: plane.add(2, 1, 1.3)),
        (2.0, lambda: plane.set_speed(1, 0.5, 2.0)),
        (3.7, lambda: plane.drain(1, 3.7)),
        (4.4, lambda: plane.remove(1, 4.4)),
    ]


def test_every_stage_goes_through_a_window_as_by_itself() -> None:
    loads = [arrivals(8.0, 1), arrivals(5.0, 2)]
    stages = [stage(1), stage(2)]
    shared = SharedInstances(stages, 0)
    shared.add(1, 0, 0.0)
    for _, change in changes(shared):
        change()
    for one, times_s in zip(stages, loads, strict=True):
        coming = Coming(times_s)
        shared.take(one, coming.advance)
        coming.advance(one, math.inf)
        one.finish()
    for seed, (one, times_s) in enumerate(zip(stages, loads, strict=True), 1):
        alone, coming = stage(seed), Coming(times_s)
        alone.add(1, 0, 0.0)
        for at_s, change in changes(alone):
            coming.advance(alone, at_s)
            change()
        coming.advance(alone, math.inf)
        alone.finish()
        for found, expected in zip(one.departures(), alone.departures(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_it_is_idle_when_all_stages_are() -> None:
    stages = [stage(1), stage(2)]
    shared = SharedInstances(stages, 0)
    shared.add(1, 1, 0.0)
    stages[0].advance(np.array([4.95]), 0, WINDOW_S)
    stages[1].advance(np.array([4.90]), 0, WINDOW_S)
    shared.passed(WINDOW_S)
    shared.drain(1, WINDOW_S)
    assert shared.idle_at(1) == pytest.approx(5.15)


def test_within_a_window_nothing_drained_is_known_idle() -> None:
    shared = SharedInstances([stage(1), stage(2)], 0)
    shared.add(1, 0, 0.0)
    shared.drain(1, 2.0)
    assert shared.idle_at(1) == math.inf
    shared.passed(WINDOW_S)
    assert shared.idle_at(1) < math.inf


def test_the_lead_misses_what_any_stage_misses() -> None:
    stages = [stage(1), stage(2)]
    shared = SharedInstances(stages, 0)
    shared.add(1, 1, 0.0)
    stages[0].advance(np.array([0.0, 1.0, 2.0, 3.0]), 0, WINDOW_S)  # 0.2 s each
    stages[1].advance(np.array([0.0, 0.01, 0.02, 2.0]), 0, WINDOW_S)  # one is served, two would be late
    for one in stages:
        one.settle(WINDOW_S)
    answers = shared.accounts
    assert (shared.arrived, answers.departed, answers.rejected, answers.late, answers.in_time) == (4, 4, 2, 0, 2)
    assert answers.recent() == (4, 2)
    stages[1].advance(np.full(9, 4.0), 0, WINDOW_S)
    assert (answers.rejected, answers.in_time, answers.recent()) == (4, 0, (4, 0)), "no more than there were"
