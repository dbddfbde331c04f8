from __future__ import annotations

import numpy as np
import pytest
from mark_predictors.level import Level
from mark_predictors.load_history import ObservedHistory
from mark_predictors.logload import LogLoad

from mark.domain.arrays import FloatArray
from mark.domain.load import Load

LEVELS = np.array([0.1, 0.5, 0.9])


def level_after(rates: FloatArray, step_s: float = 60.0) -> Level:
    return Level(LogLoad(ObservedHistory(Load(0.0, step_s, rates, rates))), LEVELS)


def test_the_median_is_the_mean_of_five_minutes_at_every_horizon() -> None:
    """The mean is that of logarithms."""
    rates = np.concatenate([np.full(200, 4.0), [8.0, 9.0, 10.0, 11.0, 12.0]])
    floor_rps = max(0.5 / 60.0, 0.02 * rates.mean())
    expected = np.exp(np.log(rates[-5:] + floor_rps).mean()) - floor_rps
    np.testing.assert_allclose(level_after(rates).quantiles(90)[1], expected)


def test_quantiles_are_those_of_the_errors_about_their_median() -> None:
    """A loop over the last two hours collects the errors of levels eight steps ahead."""
    rates = np.random.default_rng(1).gamma(20.0, 1.0, 400)
    floor_rps = max(0.5 / 60.0, 0.02 * rates.mean())
    logs = np.log(rates + floor_rps)
    errors = np.array([logs[at + 7] - logs[at - 5 : at].mean() for at in range(400 - 8 - 119, 400 - 8 + 1)])
    expected = np.exp(logs[-5:].mean() + np.quantile(errors - np.median(errors), LEVELS)) - floor_rps
    np.testing.assert_allclose(level_after(rates).quantiles(8)[:, 7], expected)


def test_a_gap_makes_no_level_and_shows_no_errors() -> None:
    """Its steps repeat the last rate, which never differs from itself."""
    rates = np.random.default_rng(1).gamma(20.0, 1.0, 400)
    rates[200:385] = np.nan
    floor_rps = max(0.5 / 60.0, 0.02 * np.nanmean(rates))
    logs = np.log(rates + floor_rps)
    targets = [*range(95, 200), *range(385, 400)]
    errors = np.array([logs[at] - seen(logs[: at - 7])[-5:].mean() for at in targets])
    expected = np.exp(logs[-5:].mean() + np.quantile(errors - np.median(errors), LEVELS)) - floor_rps
    np.testing.assert_allclose(level_after(rates).quantiles(8)[:, 7], expected)


def test_after_a_gap_the_level_is_that_of_the_minutes_before_it() -> None:
    """The day before was ten times as busy. The spread is that of a forecast as old as the newest observation."""
    rates = np.concatenate([np.full(1440, 90.0), np.random.default_rng(3).gamma(200.0, 0.05, 400)])
    known = level_after(rates[:-20]).quantiles(60)
    rates[-20:] = np.nan
    found = level_after(rates).quantiles(40)
    assert found[1, 0] == pytest.approx(10.0, rel=0.1)
    np.testing.assert_allclose(found, known[:, 20:])


def test_level_of_an_hour_ago_is_none() -> None:
    rates = np.full(400, 3.0)
    rates[-59:] = np.nan
    assert level_after(rates).ready
    rates[-60:] = np.nan
    assert not level_after(rates).ready


def seen(logs: FloatArray) -> FloatArray:
    return logs[~np.isnan(logs)]


def test_it_waits_for_steps_that_were_observed() -> None:
    assert not level_after(np.append(np.full(500, np.nan), np.full(20, 3.0))).ready


def test_beyond_known_errors_the_spread_grows_as_a_random_walk() -> None:
    """Thirty steps show errors up to eight steps ahead; 32 steps ahead they are twice as wide in logarithms."""
    rates = np.random.default_rng(2).gamma(200.0, 1.0, 30)
    floor_rps = max(0.5 / 60.0, 0.02 * rates.mean())
    found = np.log(level_after(rates).quantiles(32) + floor_rps)
    np.testing.assert_allclose(found[:, 31] - found[1, 31], 2.0 * (found[:, 7] - found[1, 7]))


@pytest.mark.parametrize(("steps", "ready"), [(0, False), (20, False), (21, True)])
def test_it_waits_for_twenty_errors(steps: int, ready: bool) -> None:
    level = level_after(np.full(steps, 3.0))
    assert level.ready is ready
    if ready:
        np.testing.assert_allclose(level.quantiles(60), 3.0)
