from __future__ import annotations

import numpy as np

from mark.domain.load import Load
from mark.traffic.forecast.artefact import Artefact


def test_the_observed_maximum_times_one_point_two() -> None:
    """The highest rate of the last observed step stays for the whole horizon; a gap does not change it."""
    predictor = Artefact()
    assert predictor.predict(2).peak_at(0.5).tolist() == [0.0, 0.0]
    predictor.fit(Load(0.0, 60.0, np.array([1.0, 10.0]), np.array([2.0, 15.0])))
    predictor.update(Load(120.0, 60.0, np.array([np.nan]), np.array([np.nan])))
    forecast = predictor.predict(2)
    assert forecast.origin_s == 180.0
    assert forecast.peak_at(0.5).tolist() == [18.0, 18.0]
    assert forecast.mean_at(0.5).tolist() == [10.0, 10.0]
