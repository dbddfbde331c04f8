from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mark.domain.load import Load
from tests.late_imports import bring

if TYPE_CHECKING:
    import torch
    from mark_predictors.lstm import Lstm
    from mark_predictors.network import UNITS, WINDOW, Shape


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    bring(
        globals(),
        "torch",
        "mark_predictors.lstm:Lstm",
        "mark_predictors.network:UNITS",
        "mark_predictors.network:WINDOW",
        "mark_predictors.network:Shape",
    )


def load(rates: list[float]) -> Load:
    return Load(0.0, 60.0, np.array(rates), 2.0 * np.array(rates))


def test_it_is_the_network_of_the_paper() -> None:
    """One layer reads the window, and one gives mean and peak of all 60 steps together."""
    net = Lstm().network(Shape.of(load([1.0] * WINDOW)))
    sizes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    assert sizes["encoder.lstm.weight_hh_l0"] == (4 * UNITS, UNITS)
    assert sizes["out.weight"] == (2 * 60, UNITS)
    assert not any("l1" in name for name in sizes)
    assert isinstance(net, torch.nn.Module)


@pytest.mark.slow
def test_quantiles_come_from_errors_on_held_out_load() -> None:
    """Nothing to be learned but a level: the 90 % interval holds nine tenths of new values, and not nearly all."""
    noise = np.random.default_rng(1).gamma(25.0, 4.0, 3000)
    predictor = Lstm(epochs=2)
    predictor.fit(load(list(noise[:2000])))
    inside = []
    for origin in range(2000, 2940, 20):
        predictor.update(
            Load(60.0 * (origin - 20), 60.0, noise[origin - 20 : origin], 2.0 * noise[origin - 20 : origin])
        )
        forecast = predictor.predict(60)
        truth = noise[origin : origin + 60]
        inside.append((forecast.mean_rps[0] <= truth) & (truth <= forecast.mean_rps[-1]))
    assert 0.84 < np.mean(inside) < 0.95


def test_peaks_are_learned_besides_the_mean() -> None:
    """Peaks were twice the mean in training, and are about twice the mean in the forecast."""
    predictor = Lstm(epochs=3)
    predictor.fit(load(list(np.random.default_rng(2).gamma(400.0, 0.25, 900))))
    forecast = predictor.predict(60)
    assert forecast.peak_at(0.5) / forecast.mean_at(0.5) == pytest.approx(np.full(60, 2.0), rel=0.15)
