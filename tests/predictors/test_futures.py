from __future__ import annotations

import numpy as np
import pytest
from mark_predictors.arima import Arima
from mark_predictors.auto import Auto
from mark_predictors.futures import PATHS, blocks, observed
from mark_predictors.mstl import Mstl

from mark.domain.load import Load
from mark.traffic.forecast.predictor import Predictor
from tests.samples import first as first_of

STEPS = 60


@pytest.mark.parametrize("first", [0, 1, 40])
def test_stretches_of_the_past_differ_however_long_it_is(first: int) -> None:
    """They lie inside the past, in its order, and are never all the same."""
    for known in range(first + 3, 400):
        places = blocks(known, STEPS, 30, first)
        assert places.shape == (PATHS, STEPS)
        assert first <= places.min()
        assert places.max() < known
        assert len(np.unique(places[:, 0])) >= min(known - first, 50)


def test_stretches_that_are_mostly_gap_are_left_out() -> None:
    known = np.ones(300, dtype=bool)
    known[100:200] = False
    places = observed(blocks(300, STEPS, 1), known)
    assert places.shape == (PATHS, STEPS)
    assert known[places].mean(axis=1).min() >= 0.5
    every = blocks(300, STEPS, 1)
    np.testing.assert_array_equal(observed(every, np.zeros(300, dtype=bool)), every)


@pytest.mark.parametrize("predictor", [Mstl(), Arima(), Auto()], ids=lambda predictor: predictor.name)
@pytest.mark.parametrize("known", first_of(3, [13, 60, 121, 61, 119, 120, 130]))
def test_an_interval_has_a_width(predictor: Predictor, known: int) -> None:
    """For noise of a tenth, the 90 % interval is about a third wide, for any length of the history."""
    rates = 100.0 * np.exp(np.random.default_rng(1).normal(0.0, 0.1, known))
    predictor.fit(Load(0.0, 60.0, rates, rates))
    mean = predictor.predict(STEPS).mean_rps
    assert (mean[-1] - mean[0]).min() > 8.0


@pytest.mark.parametrize("predictor", [Mstl(), Arima(), Auto()], ids=lambda predictor: predictor.name)
def test_having_seen_nothing_is_not_having_been_right(predictor: Predictor) -> None:
    """An hour of data after a day of nothing: the day of nothing does not narrow the intervals."""
    nothing = np.full(1440, np.nan)
    rates = 100.0 * np.exp(np.random.default_rng(2).normal(0.0, 0.1, 60))
    predictor.fit(Load(0.0, 60.0, nothing, nothing))
    predictor.update(Load(86400.0, 60.0, rates, rates))
    mean = predictor.predict(STEPS).mean_rps
    assert (mean[-1] - mean[0]).mean() > 8.0
