"""Runs with the same predictor and load share forecasts, which are those that each would make alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mark.domain.load import Forecast
from mark.simulation.stopwatch import MadeForecasts, SharingPredictor, Stopwatch
from mark.traffic.forecast.supervised import PREDICT_RAISED, Supervised
from tests.traffic.forecast.faulty import Faulty, load

RATES = [40.0, 60.0, 50.0, 70.0]


@dataclass
class Said:
    forecasts: list[Forecast]
    stands_in: list[str]
    causes: dict[str, str]


def said_by(supervised: Supervised, rates: list[float], raising: Faulty | None = None) -> Said:
    """Feed a minute at a time; `raising` fails in the second minute."""
    said = Said([], [], {})
    supervised.fit(load(-60.0, [30.0]))
    for minute, rate in enumerate(rates):
        if raising is not None:
            raising.fault = "predict" if minute == 1 else ""
        supervised.update(load(60.0 * minute, [rate]))
        said.forecasts.append(supervised.predict(5, 50.0))
        said.stands_in.append(supervised.stands_in)
    said.causes = supervised.causes
    return said


def sharing(predictor: Faulty, made: MadeForecasts, identity: str = "faulty") -> SharingPredictor:
    return SharingPredictor(predictor, Stopwatch(), made, identity=identity)


def same(one: Said, other: Said) -> None:
    for first, second in zip(one.forecasts, other.forecasts, strict=True):
        assert first.origin_s == second.origin_s
        assert first.predictor == second.predictor
        np.testing.assert_array_equal(first.mean_rps, second.mean_rps)
    assert (one.stands_in, one.causes) == (other.stands_in, other.causes)


def test_second_run_takes_forecasts_and_calls_nothing() -> None:
    """The reason for which the fallback stood in is shared too."""
    made: MadeForecasts = {}
    first, second = Faulty(), Faulty()
    alone = said_by(sharing(first, made), RATES, raising=first)
    assert alone.stands_in == ["", PREDICT_RAISED, "", ""]
    same(said_by(sharing(second, made), RATES), alone)
    assert second.calls == []


@pytest.mark.parametrize("differs_at", [0, 2])
def test_predictor_catches_up_when_the_load_differs(differs_at: int) -> None:
    made: MadeForecasts = {}
    said_by(sharing(Faulty(), made), RATES)
    rates = [*RATES]
    rates[differs_at] += 1.0
    late = Faulty()
    same(said_by(sharing(late, made), rates), said_by(Supervised(Faulty()), rates))
    assert late.calls == [("fit", 1), *[("update", 1), ("predict", 5)] * len(rates)]


def test_other_predictors_share_nothing() -> None:
    made: MadeForecasts = {}
    said_by(sharing(Faulty(), made), RATES)
    other = Faulty()
    said_by(sharing(other, made, identity="other"), RATES)
    assert len(other.calls) == 1 + 2 * len(RATES)
