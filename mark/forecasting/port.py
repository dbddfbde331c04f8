"""The port every predictor implements. Adapters live in `mark_predictors` or a user's own package."""

from __future__ import annotations

from typing import Protocol

from mark.domain.load import Forecast, Load


class Predictor(Protocol):
    """Learns from observed load and says what comes next.

    The life is: `fit` once on a history (which may be empty or hold NaN for missing steps), then any number of
    `update` (the steps that follow, in order, without refitting) and `predict`. Same data and seed, same answer.
    """

    name: str

    def fit(self, history: Load) -> None:
        """Learn from `history`. Never raises on a constant, short or empty history."""

    def update(self, observed: Load) -> None:
        """Take in steps that follow directly on everything seen so far."""

    def predict(self, steps: int) -> Forecast:
        """Quantiles for the next `steps` steps; step 0 begins where the observed load ends."""
