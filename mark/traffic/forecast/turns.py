"""Many predictors in one process: they learn in turns, and a simple predictor stands in until each is fitted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mark.domain.load import Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.predictor import Deferrable, Predictor
from mark.traffic.forecast.predictor_registry import make_predictor

AT_ONCE = 4  # services whose predictors are fitted when they begin, which takes seconds each
_STAND_IN = "seasonal-naive"
_STAND_IN_S = 3 * DAY_S  # of history that it uses, and a gap of a day


class InTurns:
    """Implements `Predictor`: `predictor` learns only in `learn`, a piece at a time.

    The owner of all predictors gives turns, counted in pieces and not in seconds, so that a run does not depend on the
    machine. Until `predictor` is fitted the stand-in forecasts, under its own name.
    """

    def __init__(self, predictor: Deferrable, stand_in: Predictor) -> None:
        self._predictor, self._stand_in = predictor, stand_in
        self._fitting: Iterator[None] | None = None
        self._since: list[Load] = []  # load that arrived while it was being fitted

    @property
    def name(self) -> str:
        return self._current.name

    @property
    def _current(self) -> Predictor:
        return self._predictor if self._fitting is None else self._stand_in

    def fit(self, history: Load) -> None:
        self._fitting, self._since = self._predictor.fitting(history), []
        self._stand_in.fit(_newest(history, round(_STAND_IN_S / history.step_s)))

    def update(self, observed: Load) -> None:
        self._current.update(observed)
        if self._fitting is not None:
            self._since.append(observed)

    def predict(self, steps: int) -> Forecast:
        return self._current.predict(steps)

    def learn(self) -> None:
        """Do one piece of learning."""
        if self._fitting is None:
            self._predictor.learn()
            return
        for _ in self._fitting:
            return  # more pieces follow
        self._fitting = None
        for observed in self._since:
            self._predictor.update(observed)
        if self._since:
            self._stand_in.fit(_newest(self._since[-1], 0))  # its history can be dropped
        self._since = []


def taking_turns(predictor: Predictor, of: int) -> Predictor:
    """Return `predictor`, to learn in turns if it can and the process has more than AT_ONCE predictors (`of`)."""
    if of <= AT_ONCE or not isinstance(predictor, Deferrable):
        return predictor
    return InTurns(predictor, make_predictor(_STAND_IN, 0))


def _newest(load: Load, steps: int) -> Load:
    first = max(0, len(load) - steps)
    start_s = load.start_s + first * load.step_s
    # Copies, so that two hundred histories do not stay in memory as a whole.
    return Load(start_s, load.step_s, np.array(load.mean_rps[first:]), np.array(load.peak_rps[first:]), load.fine)
