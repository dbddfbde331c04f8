from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast
from mark.traffic.forecast.conditioning import condition_on_rate

CALM, SURGE = 100.0, 400.0


def of_paths(paths: FloatArray) -> Forecast:
    mean = np.quantile(paths, LEVELS, axis=0)
    return Forecast(0.0, 60.0, LEVELS, mean, 1.2 * mean, "test", paths)


def surges(lengths: list[int], calm: int, steps: int = 60) -> Forecast:
    """Return `calm` paths without a surge and, for each length, a path with a surge from the first step on."""
    paths = np.full((calm + len(lengths), steps), CALM)
    for path, length in zip(paths[calm:], lengths, strict=True):
        path[:length] = SURGE
    return of_paths(paths)


def test_surging_paths_say_how_long_a_surge_lasts() -> None:
    """80 calm paths say nothing any more; the remaining time is distributed as in the 20 others."""
    lengths = [5] * 5 + [10] * 10 + [30] * 5
    now = condition_on_rate(surges(lengths, calm=80), SURGE)
    assert now.paths_rps is not None
    assert sorted((now.paths_rps == SURGE).sum(axis=1).tolist()) == sorted(lengths)
    median = now.mean_at(0.5)
    assert (median[:10] == SURGE).all()
    # Peaks stay as far above the mean as they were: a fifth.
    assert now.peak_at(0.5)[:10] == pytest.approx(np.full(10, 1.2 * SURGE))
    assert (median[10:] == CALM).all()


def test_outside_of_it_the_calm_ones_stay() -> None:
    now = condition_on_rate(surges([10] * 20, calm=80), CALM)
    assert (now.mean_rps == CALM).all()


def test_a_surge_within_the_first_step_fits_the_second() -> None:
    paths = np.full((100, 60), CALM)
    paths[:20, 0], paths[:20, 1:8] = 0.5 * (CALM + SURGE), SURGE
    now = condition_on_rate(of_paths(paths), SURGE)
    assert now.paths_rps is not None
    assert (now.paths_rps[:, :8] == SURGE).all()


def test_what_no_path_foresaw_fades() -> None:
    now = condition_on_rate(surges([], calm=100), 1000.0).mean_at(0.5)
    assert now[0] == pytest.approx(1000.0)
    assert (np.diff(now[:16]) < 0.0).all()
    assert now[15:] == pytest.approx(np.full(45, CALM))


def test_without_paths_the_quantiles_do() -> None:
    forecast = replace(surges([10] * 20, calm=80), paths_rps=None)
    now = condition_on_rate(forecast, SURGE)
    assert now.mean_rps[:, 0] == pytest.approx(np.full(19, SURGE))
    assert now.predictor == "test"


@cases(st.floats(0.0, 1e6), st.integers(0, 2**31 - 1), st.integers(1, 70))
def test_whatever_is_seen_it_stays_a_forecast(rate_rps: float, seed: int, steps: int) -> None:
    """Forecast checks that it is finite, not negative and does not cross. Its first step is the observed rate."""
    rng = np.random.default_rng(seed)
    paths = rng.gamma(0.5, 100.0, (rng.integers(1, 120), steps)) * (rng.random(steps) > 0.2)
    now = condition_on_rate(of_paths(paths), rate_rps)
    assert now.mean_rps.shape == (19, steps)
    assert now.mean_rps[:, 0] == pytest.approx(np.full(19, rate_rps))
    assert (now.peak_rps >= now.mean_rps).all()


def test_forecast_near_zero_does_not_explode() -> None:
    """A stand-in's lowest quantiles are zero at night. A surge as a factor of these had no bound: 1e12 requests/s."""
    levels = np.array([0.1, 0.5, 0.9])
    mean = np.array([[0.0, 0.0, 20.0], [0.0, 0.0, 40.0], [1.0, 2.0, 60.0]])
    found = condition_on_rate(Forecast(0.0, 60.0, levels, mean, mean + 1.0, "stand-in"), 50.0)
    assert found.mean_rps.max() <= 60.0 * 50.0
    assert found.peak_rps.max() <= 60.0 * 50.0
    assert (found.mean_rps[:, 0] == 50.0).all()
