"""The tuner that looks ahead by its activation: a margin, and no thrash."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.planning.graphs.envelope import envelope_windows_s
from mark.planning.graphs.horizon_tuner import MARGIN, HorizonTuner
from mark.planning.graphs.load_levels import LoadLevels
from mark.planning.graphs.tuner import Replicas, Tuner

WINDOWS_S = envelope_windows_s(1.0)
# A replica for each query/s, and one of a second stage for each two; a window holds even arrivals plus 4.
RATES = np.arange(1.0, 201.0)
LEVELS = LoadLevels(
    RATES,
    np.stack([RATES, np.ceil(RATES / 2.0)], axis=1).astype(np.int64),
    WINDOWS_S,
    np.ceil(np.outer(RATES, WINDOWS_S) + 4.0).astype(np.int64),
)
_FITS: Tuner = HorizonTuner(LEVELS, 5.0)


def evenly(rate: float, begin_s: float, end_s: float) -> np.ndarray:
    return begin_s + np.arange(round((end_s - begin_s) * rate)) / rate


def followed(tuner: HorizonTuner, arrivals_s: np.ndarray, begin_s: float, end_s: float) -> list[Replicas]:
    state, asked = tuner.begin(), []
    for now_s in np.arange(begin_s, end_s):
        replicas, state = tuner.step(state, arrivals_s[arrivals_s < now_s], float(now_s))
        asked.append(replicas)
    return asked


def test_a_steady_load_gets_its_level_and_the_horizons_margin() -> None:
    arrivals_s = evenly(40.0, 0.0, 300.0)
    for activation_s, margin in ((5.0, MARGIN), (90.0, MARGIN), (90.0, 0.0)):
        asked = set(followed(HorizonTuner(LEVELS, activation_s, margin), arrivals_s, 150.0, 300.0))
        assert len(asked) == 1
        (replicas,) = asked
        assert replicas[0] == pytest.approx(40.0 * (1.0 + margin * math.sqrt(activation_s)), abs=4.0)
        assert replicas[1] == math.ceil(replicas[0] / 2)


def test_more_load_is_noticed_at_the_next_step() -> None:
    arrivals_s = np.concatenate([evenly(20.0, 0.0, 200.0), evenly(60.0, 200.0, 260.0)])
    asked = np.array(followed(HorizonTuner(LEVELS, 90.0, 0.0), arrivals_s, 190.0, 260.0))[:, 0]
    assert asked[10] == asked[0]  # at 200 s no query has come
    assert asked[11] >= 50
    assert asked[-1] == pytest.approx(60.0, abs=4.0)


def test_a_replica_is_kept_for_the_time_of_a_boot() -> None:
    """Half a minute after a burst of 60 it is not recent any more, and its replicas stay for the remaining time."""
    arrivals_s = np.sort(np.concatenate([evenly(20.0, 0.0, 600.0), np.full(60, 200.0)]))
    for activation_s, held_s in ((5.0, 60.0), (180.0, 180.0)):
        asked = np.array(followed(HorizonTuner(LEVELS, activation_s, 0.0), arrivals_s, 190.0, 600.0))[:, 0]
        highest = 190 + np.flatnonzero(asked == asked.max())
        assert highest[0] == 201  # the first step that sees it
        assert highest[-1] == pytest.approx(200 + 30 + held_s, abs=2)
        assert asked[-1] == asked[0]


def test_stages_with_functions_follow_the_mean_others_have_a_margin() -> None:
    """Bursts of 30 within a second, every ten seconds, at 20 queries/s."""
    bursts_s = np.repeat(np.arange(0.5, 300.0, 10.0), 30)
    arrivals_s = np.sort(np.concatenate([evenly(17.0, 0.0, 300.0), bursts_s]))
    bridged, alone = (
        followed(HorizonTuner(LEVELS, 90.0, bridged=bridged), arrivals_s, 200.0, 290.0)[-1]
        for bridged in ((True, False), ())
    )
    assert bridged[0] == pytest.approx(20.0, abs=2.0)
    assert alone[0] > 2 * bridged[0]
    assert bridged[1] == alone[1]


def test_a_function_is_alone_while_few_queries_come() -> None:
    """The second stage has replicas only above ten queries a second, and for the hold time after that."""
    arrivals_s = np.concatenate([evenly(5.0, 0.0, 200.0), evenly(40.0, 200.0, 260.0), evenly(5.0, 260.0, 500.0)])
    tuner = HorizonTuner(LEVELS, 60.0, bridged=(False, True), alone_below=(0.0, 10.0))
    asked = np.array(followed(tuner, arrivals_s, 190.0, 500.0))
    assert asked[:, 0].min() >= 1
    assert asked[0, 1] == asked[10, 1] == 0
    # A half minute's mean is above ten once 5 of its seconds have 40, or until 5 of them are left.
    has = 190 + np.flatnonzero(asked[:, 1])
    assert (has[0], has[-1]) == (pytest.approx(205, abs=2), pytest.approx(260 + 25 + 60, abs=3))
    assert asked[60, 1] >= 20


@given(st.lists(st.floats(0.0, 120.0), max_size=60), st.sampled_from([5.0, 90.0]))
def test_every_stage_keeps_a_replica_and_steps_are_repeatable(arrivals: list[float], activation_s: float) -> None:
    tuner, arrivals_s = HorizonTuner(LEVELS, activation_s), np.sort(np.array(arrivals))
    asked = followed(tuner, arrivals_s, 100.0, 140.0)
    assert min(min(replicas) for replicas in asked) >= 1
    assert asked == followed(tuner, arrivals_s, 100.0, 140.0)


def test_the_margin_is_of_the_rate_not_its_bursts() -> None:
    """Bursts of 30 within a second come every ten seconds at 20 queries/s, and the level includes them already."""
    steady_s = evenly(17.0, 0.0, 300.0)
    bursts_s = np.repeat(np.arange(0.5, 300.0, 10.0), 30)
    arrivals_s = np.sort(np.concatenate([steady_s, bursts_s]))
    lean, wide = (
        np.array(followed(HorizonTuner(LEVELS, 100.0, margin), arrivals_s, 200.0, 290.0))[-1, 0]
        for margin in (0.0, 0.1)
    )
    assert lean > 35
    assert wide - lean == pytest.approx(0.1 * 10.0 * 20.0, abs=2.0)
