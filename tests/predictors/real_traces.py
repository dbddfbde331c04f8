"""Public traces for the tests of predictors, if the data folder exists, and a predictor's loss on them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.traces import open_trace

DATA = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3] / "shared" / "data"))


def real_rates(name: str, step_s: float) -> FloatArray:
    """Return the mean rates of trace `name` in steps of `step_s`; skip the test if the file does not exist."""
    path = DATA / "traces" / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path.name}: set MARK_DATA to the data folder")
    trace = open_trace(str(path))
    load = trace.load(0.0, trace.duration_s)
    assert load.step_s == step_s
    return load.mean_rps


def quantile_loss(predictor: Predictor, rates: FloatArray, begin: int, horizon: int = 60, every: int = 37) -> float:
    """Return the mean quantile loss on minutes `rates` over origins `begin`, `begin + every`, ..., while it learns."""
    predictor.fit(Load(0.0, 60.0, rates[:begin], rates[:begin]))
    losses = []
    for origin in range(begin, len(rates) - horizon, every):
        forecast = predictor.predict(horizon)
        error = rates[origin : origin + horizon] - forecast.mean_rps
        levels = forecast.levels[:, None]
        losses.append(np.maximum(levels * error, (levels - 1.0) * error))
        new = rates[origin : origin + every]
        predictor.update(Load(origin * 60.0, 60.0, new, new))
    return float(np.nanmean(losses))
