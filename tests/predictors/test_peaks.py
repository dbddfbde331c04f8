from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_predictors.load_history import ObservedHistory
from mark_predictors.peaks import likely_peaks

from mark.domain.arrays import FloatArray
from mark.domain.load import Load

NAN = float("nan")
DAY = 1440
ONE_RPS = 1.0 / 60.0


def history(means: FloatArray, peaks: FloatArray) -> ObservedHistory:
    """Return a history of minutes."""
    return ObservedHistory(Load(0.0, 60.0, means, peaks))


def half_hours(minutes: int) -> tuple[FloatArray, FloatArray]:
    """Return means and peaks: 2 requests/s and 3, but 35 and 100 in every 30th minute."""
    burst = np.arange(minutes) % 30 == 0
    return np.where(burst, 35.0, 2.0), np.where(burst, 100.0, 3.0)


def test_peak_is_that_of_past_steps_with_such_a_mean() -> None:
    found = likely_peaks(history(*half_hours(DAY)), np.array([[2.0, 35.0, 33.0]]))
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found[0, :2], [3.0, 100.0])
    np.testing.assert_allclose(found[0, 2] + ONE_RPS, (33.0 + ONE_RPS) * (100.0 + ONE_RPS) / (35.0 + ONE_RPS))


def test_mean_that_was_hardly_ever_seen_has_no_peak() -> None:
    """A mean that fewer than eight steps had has no peak either, however near they are."""
    found = likely_peaks(history(*half_hours(DAY)), np.array([1.0, 9.0, 60.0]))
    assert np.isnan(found).all()
    means, peaks = half_hours(7 * 30)
    assert np.isnan(likely_peaks(history(means, peaks), np.array([35.0]))).all()
    means, peaks = half_hours(8 * 30)
    np.testing.assert_allclose(likely_peaks(history(means, peaks), np.array([35.0])), 100.0)


def test_mean_between_quiet_steps_and_bursts_has_the_peak_of_the_nearer_ones() -> None:
    burst = np.arange(DAY) % 2 == 0
    steps = history(np.where(burst, 13.0, 10.0), np.where(burst, 39.0, 12.0))
    found = likely_peaks(steps, np.array([10.9, 12.1]))
    ratios = (np.array([12.0, 39.0]) + ONE_RPS) / (np.array([10.0, 13.0]) + ONE_RPS)
    np.testing.assert_allclose(found + ONE_RPS, (np.array([10.9, 12.1]) + ONE_RPS) * ratios)


@pytest.mark.parametrize("steps", [0, 1, 14])
def test_short_history_has_no_peak(steps: int) -> None:
    assert np.isnan(likely_peaks(history(np.full(steps, 2.0), np.full(steps, 3.0)), np.full((2, 3), 2.0))).all()


def test_missing_steps_are_left_out() -> None:
    means, peaks = half_hours(DAY)
    missing = np.full(500, NAN)
    with_gap = history(np.concatenate([means, missing]), np.concatenate([peaks, missing]))
    wanted = np.array([2.0, 35.0])
    np.testing.assert_array_equal(likely_peaks(with_gap, wanted), likely_peaks(history(means, peaks), wanted))


def test_steps_older_than_three_days_do_not_count() -> None:
    means, peaks = half_hours(DAY)
    quiet = np.full(3 * DAY, 2.0)
    found = likely_peaks(
        history(np.concatenate([means, quiet]), np.concatenate([peaks, 2.0 * quiet])), np.array([2.0, 35.0])
    )
    np.testing.assert_allclose(found[0], 4.0, rtol=0.01)
    assert np.isnan(found[1])


def test_ratio_is_the_median_of_fifteen_neighbours() -> None:
    """It is exact at the middle of each fifteen, and linear in the logarithm between them."""
    chance = np.random.default_rng(1)
    means = 100.0 + chance.permutation(36) / 10.0
    peaks = means * chance.uniform(1.0, 2.0, 36)
    ordered = sorted(zip(means.tolist(), peaks.tolist(), strict=True))
    known = []
    for first in (0, 7, 14, 21):
        steps = ordered[first : first + 15]
        ratios = sorted((peak + ONE_RPS) / (mean + ONE_RPS) for mean, peak in steps)
        known.append((steps[7][0], ratios[7]))
    past = history(means, peaks)
    for mean, ratio in known:
        np.testing.assert_allclose(likely_peaks(past, np.array(mean)) + ONE_RPS, (mean + ONE_RPS) * ratio)
    (low, low_ratio), (high, high_ratio) = known[1:3]
    middle = math.sqrt((low + ONE_RPS) * (high + ONE_RPS))
    between = (low_ratio + high_ratio) / 2.0
    np.testing.assert_allclose(likely_peaks(past, np.array(middle - ONE_RPS)) + ONE_RPS, middle * between)


rates = st.floats(0.0, 1e6)


@given(st.lists(st.tuples(rates, st.floats(1.0, 12.0)), max_size=60), st.lists(rates, min_size=1, max_size=20))
def test_peak_is_never_below_the_mean(past: list[tuple[float, float]], wanted: list[float]) -> None:
    means = np.array([mean for mean, _ in past])
    peaks = means * np.array([times for _, times in past])
    found = likely_peaks(history(means, peaks), np.array(wanted))
    said = ~np.isnan(found)
    assert (found[said] >= np.array(wanted)[said] * (1.0 - 1e-9) - 1e-9).all()
    assert np.isfinite(found[said]).all()
