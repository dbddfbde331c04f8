from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mark_predictors.periods import profile, short_periods

from mark.domain.arrays import FloatArray
from tests.predictors.real_traces import real_rates

DAY = 1440
NAN = float("nan")


def bursts(steps: int, period: int, phase: int, height: float, seed: int) -> FloatArray:
    """Return noise, and two steps of `height` deviations of it in every period."""
    noise = np.random.default_rng(seed).normal(0.0, 1.0, steps)
    return noise + height * ((np.arange(steps) - phase) % period < 2)


@settings(max_examples=25)
@example(seed=327, period=120, phase=1, scale=1.0, shift=0.0, share_missing=0.25)
@given(
    seed=st.integers(0, 1000),
    period=st.integers(5, 200),
    phase=st.integers(0, 199),
    scale=st.floats(0.01, 100.0),
    shift=st.floats(-50.0, 50.0),
    share_missing=st.floats(0.0, 0.3),
)
def test_a_period_in_noise_is_found_at_any_scale(
    seed: int, period: int, phase: int, scale: float, shift: float, share_missing: float
) -> None:
    """It is the only period found, also with gaps of single steps and of hours.

    With a quarter missing, twice the period may win by chance; its profile is as good.
    """
    series = shift + scale * bursts(4 * DAY, period, phase % period, 6.0, seed)
    series[np.random.default_rng(seed).random(len(series)) < share_missing] = NAN
    series[1000:1060] = NAN
    found = short_periods(series, 60.0)
    assert found == (period,) or (share_missing > 0.2 and found == (2 * period,))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), steps=st.integers(0, 4 * DAY), step_s=st.sampled_from([60.0, 300.0, 1800.0]))
def test_noise_has_no_period_nor_has_what_wanders(seed: int, steps: int, step_s: float) -> None:
    """White noise, a random walk, and both around the smooth wave of a day."""
    noise = np.random.default_rng(seed).normal(0.0, 1.0, steps)
    wave = 5.0 * np.sin(2.0 * np.pi * step_s * np.arange(steps) / 86400.0)
    for series in (noise, np.cumsum(noise), wave + noise + 0.1 * np.cumsum(noise)):
        assert short_periods(series, step_s) == ()


def test_one_sharp_hour_a_day_is_no_short_period() -> None:
    """A day's profile repeats at every part of a day, but that does not count."""
    series = np.random.default_rng(4).normal(0.0, 0.3, 6 * DAY)
    series[np.arange(6 * DAY) % DAY == 77] += 20.0
    assert short_periods(series, 60.0) == ()


def test_two_rhythms_are_two_periods() -> None:
    """Found one after the other, though neither is a part of the other."""
    series = bursts(6 * DAY, 60, 3, 8.0, 1) + bursts(6 * DAY, 7, 2, 6.0, 2)
    assert set(short_periods(series, 60.0)) == {60, 7}


@pytest.mark.parametrize(("step_s", "period"), [(300.0, 12), (1800.0, 4)])
def test_coarse_steps_count_in_steps(step_s: float, period: int) -> None:
    """An hour in steps of five minutes, two hours in half hours."""
    assert short_periods(bursts(2000, period, 1, 5.0, 3), step_s) == (period,)


@pytest.mark.parametrize("series", [[], [1.0], [NAN] * 500, [3.0] * 500, [NAN, 1.0] * 300])
def test_where_nothing_can_be_said_there_is_none(series: list[float]) -> None:
    assert short_periods(np.array(series), 60.0) == ()


def test_one_giant_step_hides_nothing() -> None:
    series = bursts(4 * DAY, 60, 3, 6.0, 5)
    series[2000] = 1e6
    assert short_periods(series, 60.0) == (60,)


def test_the_profile_is_the_mean_by_phase() -> None:
    """The profile equals that of a loop; a phase that was never observed is 0."""
    values = np.random.default_rng(6).normal(0.0, 1.0, 100)
    values[np.arange(100) % 7 == 4] = NAN
    expected = np.zeros(7)
    for phase in range(7):
        seen = [value for k, value in enumerate(values.tolist()) if (k + 3) % 7 == phase and value == value]
        expected[phase] = sum(seen) / len(seen) if seen else 0.0
    np.testing.assert_allclose(profile(values, 7, first=3), expected)


@pytest.mark.parametrize(
    ("trace", "step_s", "periods"),
    [
        ("twitter_stream_2021_d00_14_60s", 60.0, {120}),
        ("twitter_prod_d0_6_60s", 60.0, {30, 60}),
        ("nyc_taxi_d000_143_1800s", 1800.0, set()),
        ("nasa_1995_07_60s", 60.0, set()),
    ],
)
def test_on_real_traffic(trace: str, step_s: float, periods: set[int]) -> None:
    """Deletions come in bursts each half hour, of which every fourth is alike; taxis and visitors as they like."""
    rates = real_rates(trace, step_s)
    found = short_periods(np.log(rates + 0.3 * np.nanmean(rates)), step_s)
    assert set(found) <= periods
    assert bool(found) == bool(periods)
