"""InferLine's tuner, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.planning.graphs.envelope import most_within
from mark.planning.graphs.estimate import QuerySample, StageChoice
from mark.planning.graphs.tuner import InferLineTuner, Replicas, replicas_for
from tests.planning.graphs.planned import chain, option

# A replica of stage a does 10 calls/s; a replica of b does 20, and half of the queries call b.
CHOICES = (
    StageChoice(option("x", 1.0, 0.0, 0.1, 1), 1, 5),
    StageChoice(option("y", 1.0, 0.0, 0.05, 1), 1, 2),
)
HALF = np.array([[1, 1], [1, 0]])


def evenly(rate: float, begin_s: float, end_s: float) -> np.ndarray:
    return begin_s + np.arange(round((end_s - begin_s) * rate)) / rate


def sample(arrivals_s: np.ndarray) -> QuerySample:
    return QuerySample(arrivals_s, np.resize(HALF, (len(arrivals_s), 2)))


TUNER = InferLineTuner.of(chain("a", "b"), sample(evenly(20.0, 0.0, 120.0)), CHOICES)


def followed(arrivals_s: np.ndarray, until_s: int, tuner: InferLineTuner = TUNER) -> list[Replicas]:
    """Return the replicas asked for at each step of one second."""
    state, asked = tuner.begin(), []
    for now_s in np.arange(1.0, until_s + 1.0):
        replicas, state = tuner.step(state, arrivals_s[arrivals_s < now_s], float(now_s))
        asked.append(replicas)
    return asked


def test_it_starts_from_what_the_planner_knows() -> None:
    """rho: 20 queries/s are 20 of 50 calls/s at a, and 10 of 40 at b. T_s: 150 ms."""
    assert TUNER.provisioning.tolist() == pytest.approx([0.4, 0.25], rel=1e-3)
    assert TUNER.windows_s[0] == pytest.approx(0.15)
    assert TUNER.sample_counts[-1] == pytest.approx(20.0 * TUNER.windows_s[-1], abs=1.5)
    assert TUNER.planned == (5, 2)


def test_the_load_of_the_sample_changes_nothing() -> None:
    assert set(followed(evenly(20.0, 0.0, 60.0), 60)) == {(5, 2)}


def test_more_load_is_noticed_at_once_and_scaled_by_formula() -> None:
    """r x 1 / (10 x 0.4) and r x 0.5 / (20 x 0.25), with r of a little above 60, since windows hold whole queries."""
    arrivals_s = np.concatenate([evenly(20.0, 0.0, 30.0), evenly(60.0, 30.0, 60.0)])
    asked = followed(arrivals_s, 60)
    assert set(asked[:30]) == {(5, 2)}
    rate = (most_within(arrivals_s, TUNER.windows_s) / TUNER.windows_s).max()
    assert 60.0 <= rate < 68.0
    assert asked[30][0] >= 15
    assert asked[59] == (math.ceil(rate / 4.0), math.ceil(rate / 10.0))


def test_bursts_are_noticed_at_the_same_rate() -> None:
    """Six queries arrive together where the sample had three within 150 ms; longer windows are as in the sample."""
    steady_s = evenly(20.0, 0.0, 40.0)
    burst_s = np.where((steady_s >= 29.7) & (steady_s < 30.0), 29.9, steady_s)
    asked = followed(np.sort(burst_s), 40)
    assert asked[28] == (5, 2)
    assert asked[29] == (int(np.ceil(6 / 0.15 / 4.0 - 1e-9)), int(np.ceil(6 / 0.15 / 10.0 - 1e-9)))


def test_it_scales_down_after_15_calm_seconds_by_recent_peaks() -> None:
    """After a fall to 4 queries/s the least rho, 0.25, sizes both stages: 4 / 2.5 and 2 / 5, rounded up."""
    arrivals_s = np.concatenate([evenly(20.0, 0.0, 30.0), evenly(4.0, 30.0, 120.0)])
    asked = followed(arrivals_s, 120)
    assert set(asked[:49]) == {(5, 2)}  # the last 30 s still have windows of 20 a second
    assert asked[-1] == (2, 1)


def test_a_change_is_followed_by_15_s_without_scaling_down() -> None:
    """After a burst its replicas stay as long as its windows count, and for 15 s after the last change."""
    arrivals_s = np.sort(np.concatenate([evenly(20.0, 0.0, 200.0), np.full(20, 50.0)]))
    asked = followed(arrivals_s, 200)
    up = next(n for n, replicas in enumerate(asked) if replicas != (5, 2))
    down = next(n for n in range(up, len(asked)) if asked[n] != asked[up])
    assert up == 50
    assert down - up >= 15
    slow = followed(arrivals_s, 200, replace(TUNER, stable_s=100.0))
    assert next(n for n in range(up, len(slow)) if slow[n] != slow[up]) - up >= 100


@given(st.lists(st.floats(0.0, 60.0), max_size=80))
def test_every_stage_keeps_a_replica_and_steps_are_repeatable(arrivals: list[float]) -> None:
    arrivals_s = np.sort(np.array(arrivals))
    asked = followed(arrivals_s, 60)
    assert min(min(replicas) for replicas in asked) >= 1
    assert asked == followed(arrivals_s, 60)


def test_a_stage_that_the_sample_never_calls_has_no_say() -> None:
    arrivals_s = evenly(20.0, 0.0, 60.0)
    never = QuerySample(arrivals_s, np.resize(np.array([[1, 0]]), (len(arrivals_s), 2)))
    tuner = InferLineTuner.of(chain("a", "b"), never, CHOICES)
    assert [one[1] for one in followed(evenly(40.0, 0.0, 20.0), 20, tuner)][::19] == [2, 1]
    assert followed(evenly(1.0, 0.0, 90.0), 90, tuner)[-1] == (1, 1)


def test_replicas_are_rounded_up_and_one_at_least() -> None:
    each = np.array([10.0, 10.0, 10.0, 0.0])
    assert replicas_for(np.array([0.0, 20.0, 20.1, 0.0]), each).tolist() == [1, 2, 3, 1]
