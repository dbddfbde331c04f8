from __future__ import annotations

import numpy as np
import pytest

from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.drift import AHEAD, Drift
from tests.traffic.forecast.faulty import load


def test_scores_are_those_of_a_plain_loop() -> None:
    """CRPS of both at 1, 5, 15 and 30 steps ahead, each when its truth comes; missing steps and forecasts left out."""
    rng = np.random.default_rng(4)
    truth = rng.uniform(50.0, 150.0, 100)
    truth[40:50] = np.nan
    made = {t: np.sort(rng.uniform(50.0, 150.0, (2, 19, 60)), axis=1) for t in range(100) if t not in range(20, 30)}
    drift = Drift()
    for t in range(100):
        if t in made:
            own = Forecast(60.0 * t, 60.0, LEVELS, made[t][0], made[t][0], "own")
            drift.forecast(own, made[t][1][:, AHEAD - 1])
        drift.observe(load(60.0 * t, [truth[t]]))

    expected = [0.0, 0.0]
    for t in range(100):
        origins = [(t + 1 - h, h) for h in (1, 5, 15, 30) if t + 1 - h in made]
        if np.isnan(truth[t]) or not origins:
            continue
        for side in (0, 1):
            score = 0.0
            for origin, h in origins:
                for level, rate in zip(LEVELS, made[origin][side][:, h - 1], strict=True):
                    error = truth[t] - rate
                    score += 2.0 * (level * error if error > 0.0 else (level - 1.0) * error) / 19.0 / len(origins)
            expected[side] += (score - expected[side]) / 90.0
    assert drift.scores == pytest.approx(expected)


def fed(own_rps: float, fallback_rps: float, truth_rps: float, steps: int) -> Drift:
    drift = Drift()
    for t in range(steps):
        rates = np.full((19, 60), own_rps)
        drift.forecast(Forecast(60.0 * t, 60.0, LEVELS, rates, rates, "own"), np.full((19, 4), fallback_rps))
        drift.observe(Load(60.0 * t, 60.0, np.array([truth_rps]), np.array([truth_rps])))
    return drift


@pytest.mark.parametrize(
    ("own_rps", "steps", "found"), [(109.0, 100, False), (111.0, 100, True), (111.0, 29, False), (200.0, 29, False)]
)
def test_ten_times_worse_over_half_an_hour_is_drift(own_rps: float, steps: int, found: bool) -> None:
    """The fallback is off by 1 request/s; fewer than 30 steps say nothing yet."""
    assert fed(own_rps, 101.0, 100.0, steps).found is found


def test_less_than_a_request_a_step_is_no_drift() -> None:
    """A perfect fallback on zero load does not condemn a forecast of almost zero."""
    assert not fed(0.9 / 60.0, 0.0, 0.0, 500).found
    assert fed(1.1 / 60.0 * 1.01, 0.0, 0.0, 500).found


def test_short_forecasts_are_scored_as_far_as_they_go() -> None:
    """Three steps of half an hour: only the first of the horizons."""
    drift = Drift()
    rates = np.full((19, 3), 120.0)
    drift.forecast(Forecast(0.0, 1800.0, LEVELS, rates, rates, "own"), np.full((19, 4), 100.0))
    drift.observe(load(0.0, [100.0] * 40, 1800.0))
    assert drift.scores == pytest.approx([20.0 / 90.0, 0.0])
