from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.load import Load
from mark.traffic.forecast.fallback import LastValue
from tests.traffic.forecast.faulty import load

RATES = st.one_of(st.floats(0.0, 1e6), st.just(float("nan")))


@given(
    history=st.lists(RATES, max_size=80),
    steps=st.integers(1, 90),
    step_s=st.sampled_from([60.0, 300.0, 1800.0]),
    recent_rps=st.one_of(st.none(), st.floats(0.0, 1e6)),
)
def test_it_is_a_forecast_whatever_was_seen(
    history: list[float], steps: int, step_s: float, recent_rps: float | None
) -> None:
    """Building it checks that quantiles are finite, do not cross and are not negative.

    Its name tells that it stands in.
    """
    fallback = LastValue()
    fallback.fit(load(1200.0, history, step_s))
    forecast = fallback.predict(steps, recent_rps)
    known = [rate for rate in history if np.isfinite(rate)]
    assert (forecast.origin_s, forecast.step_s, forecast.steps) == (1200.0 + len(history) * step_s, step_s, steps)
    assert forecast.predictor == "last-value"
    assert forecast.mean_at(0.5) == pytest.approx(known[-1] if recent_rps is None and known else recent_rps or 0.0)
    assert (forecast.peak_rps >= forecast.mean_rps).all()
    for rates in (forecast.mean_rps, forecast.peak_rps):
        width = rates[-1] - rates[9]
        assert (np.diff(width) >= -1e-9 * (1.0 + width[-1])).all()  # never narrower further ahead


def test_it_spreads_as_counts_do_while_no_errors_are_known() -> None:
    """100 requests/s over a minute are 6000 +- 77: the 95th percentile is 1.645 deviations up, and grows as a walk."""
    forecast = LastValue().predict(4, 100.0)
    up = 1.6449 * 6000.0**0.5 / 60.0
    assert forecast.mean_at(0.95) == pytest.approx([100.0 + up * k**0.5 for k in (1, 2, 3, 4)], rel=1e-4)


def test_its_peak_is_the_highest_of_twelve_windows() -> None:
    """The reference draws the highest of twelve Poisson counts over 5 s and takes quantiles."""
    forecast = LastValue().predict(1, 100.0)
    highest = np.random.default_rng(1).poisson(500.0, (40_000, 12)).max(axis=1) / 5.0
    for level in (0.1, 0.5, 0.9):
        assert forecast.peak_at(level)[0] == pytest.approx(np.quantile(highest, level), rel=0.01)


def test_its_spread_is_that_of_its_own_errors() -> None:
    """The reference is a loop over the past: errors of the last value h steps ahead, h = 1, 15 and 60."""
    walk = np.abs(np.cumsum(np.random.default_rng(2).normal(0.0, 10.0, 1440)) + 500.0)
    fallback = LastValue()
    fallback.fit(load(0.0, walk.tolist()))
    forecast = fallback.predict(60)
    for ahead in (1, 15, 60):
        errors = [walk[i + ahead] - walk[i] for i in range(len(walk) - ahead)]
        assert forecast.mean_at(0.95)[ahead - 1] - walk[-1] == pytest.approx(np.quantile(errors, 0.95), rel=0.05)


def test_nine_of_ten_walks_stay_within_the_interval() -> None:
    """Coverage of the 90 % interval, 60 steps ahead, of a random walk whose errors it has seen for a day."""
    inside = np.zeros(60)
    for seed in range(200):
        walk = 2000.0 + np.cumsum(np.random.default_rng(seed).normal(0.0, 5.0, 780))
        fallback = LastValue()
        fallback.fit(load(0.0, walk[:720].tolist()))
        forecast = fallback.predict(60)
        inside += (forecast.mean_at(0.05) <= walk[720:]) & (walk[720:] <= forecast.mean_at(0.95))
    assert (inside / 200.0 > 0.8).all()
    assert 0.85 < inside.mean() / 200.0 < 0.97


def test_gaps_are_no_zeros() -> None:
    """A missing step counts neither as the last value nor as an error."""
    fallback = LastValue()
    fallback.fit(load(0.0, [100.0, float("nan")] * 200))
    forecast = fallback.predict(2)
    assert forecast.mean_at(0.5).tolist() == [100.0, 100.0]
    assert forecast.mean_at(0.05)[0] > 95.0


def test_updates_and_one_fit_are_the_same() -> None:
    """The load may come step by step or in one fit."""
    rates = np.random.default_rng(3).uniform(0.0, 100.0, 300).tolist()
    whole, stepwise = LastValue(), LastValue()
    whole.fit(load(0.0, rates))
    stepwise.fit(Load(0.0, 60.0, np.empty(0), np.empty(0)))
    for i, rate in enumerate(rates):
        stepwise.update(load(60.0 * i, [rate]))
    assert np.array_equal(whole.predict(60).mean_rps, stepwise.predict(60).mean_rps)
