"""The contract of the port Predictor, over every predictor that is registered."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import pytest

from mark.testing.predictor_contract import PredictorContract, PredictorUnderTest
from mark.traffic.forecast.predictor_registry import make_predictor, predictor_names

TRAINED = tuple(name for name in predictor_names() if name.startswith("lstm"))
CERTAIN = ("artefact",)  # equal quantiles: the newest peak in all steps
NAMES = [
    pytest.param(
        name,
        marks=[
            pytest.mark.skipif(name in TRAINED and importlib.util.find_spec("torch") is None, reason="needs torch"),
            *[pytest.mark.slow] * (name == "lstm"),  # the other network is trained the same way
        ],
    )
    for name in predictor_names()
]


@pytest.fixture(scope="module", params=NAMES)
def trial(request: pytest.FixtureRequest) -> PredictorUnderTest:
    name = request.param
    if name not in TRAINED:
        return PredictorUnderTest(partial(make_predictor, name, 0), certain=name in CERTAIN)
    # Two epochs: the contract does not depend on how well a network learned, and training ends a little elsewhere.
    network: Any = type(make_predictor(name, 0))
    return PredictorUnderTest(partial(network, seed=0, epochs=2), rtol=0.2)


class TestRegisteredPredictors(PredictorContract): ...
