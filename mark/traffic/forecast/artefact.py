"""`artefact`: the forecast that the authors' published code used, for `mark-paper:artefact`.

It multiplies the highest rate of the last observed step by 1.2 and expects that for the whole horizon.
"""

from __future__ import annotations

import numpy as np

from mark.domain.load import LEVELS, Forecast, Load

HEADROOM = 1.2


class Artefact:
    """The observed maximum x 1.2, all quantiles equal; 0 before the first observation."""

    name = "artefact"

    def __init__(self, seed: int = 0) -> None:
        self._origin_s, self._step_s = 0.0, 60.0
        self._mean_rps, self._peak_rps = 0.0, 0.0

    def fit(self, history: Load) -> None:
        self._origin_s, self._step_s = history.end_s, history.step_s
        self.update(history)

    def update(self, observed: Load) -> None:
        known = np.flatnonzero(np.isfinite(observed.mean_rps) & np.isfinite(observed.peak_rps))
        if len(known):
            self._mean_rps = float(observed.mean_rps[known[-1]])
            self._peak_rps = float(observed.peak_rps[known[-1]])
        if len(observed):
            self._origin_s = observed.end_s

    def predict(self, steps: int) -> Forecast:
        every = np.ones((len(LEVELS), steps))
        return Forecast(
            self._origin_s, self._step_s, LEVELS, every * self._mean_rps, every * HEADROOM * self._peak_rps, self.name
        )
