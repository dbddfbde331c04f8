"""Run with `pytest examples/own-predictor` where mark and this package are installed."""

import numpy as np
import pytest
from ewma_predictor import Ewma

from mark.domain.load import Load
from mark.testing.predictor_contract import PredictorContract, PredictorUnderTest


class TestEwma(PredictorContract):
    """The suite that every predictor of mark passes."""

    @pytest.fixture
    def trial(self) -> PredictorUnderTest:
        return PredictorUnderTest(Ewma)


def test_quantiles_begin_where_the_load_ends_and_widen() -> None:
    rates = np.random.default_rng(1).uniform(50.0, 150.0, 200)
    rates[120:130] = np.nan
    predictor = Ewma()
    predictor.fit(Load(0.0, 60.0, rates, rates))
    forecast = predictor.predict(60)
    width = forecast.mean_at(0.95) - forecast.mean_at(0.05)
    assert forecast.origin_s == 200 * 60.0
    assert (np.diff(width) > 0.0).all()
    assert 80.0 < forecast.mean_at(0.5)[0] < 120.0
