"""A predictor that fails on request, and the load that it is fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.supervised import Supervised

RAISES = ("fit", "update", "predict")
WRONG = ("nan", "inf", "negative", "crossing", "shape", "origin", "step", "levels", "sure", "paths", "nothing")
FAULTS = (*RAISES, *WRONG, "exploding", "drifting", "slow")


class FakeClock:
    """Seconds that pass only when a fake lets them."""

    def __init__(self) -> None:
        self.t_s = 0.0

    def __call__(self) -> float:
        return self.t_s


class Faulty:
    """The last value and 10 % to both sides, or the `fault` of the moment. Counts its steps: one missed shows."""

    name = "faulty"

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.fault = ""
        self.clock = clock or FakeClock()
        self.calls: list[tuple[str, int]] = []  # method and number of steps
        self.fitted: Load | None = None
        self.end_s, self.step_s, self.rate_rps = 0.0, 60.0, 0.0

    def fit(self, history: Load) -> None:
        self._called("fit", len(history))
        self.fitted, self.end_s, self.step_s, self.rate_rps = history, history.start_s, history.step_s, 0.0
        self._see(history)

    def update(self, observed: Load) -> None:
        self._called("update", len(observed))
        self._see(observed)

    def predict(self, steps: int) -> Any:
        self._called("predict", steps)
        fault = self.fault
        rates = np.tile(self.rate_rps * np.linspace(0.9, 1.1, len(LEVELS))[:, None], (1, steps))
        rates = {"drifting": 5.0 * rates, "exploding": 1000.0 * rates + 100.0}.get(fault, rates)
        forecast = Forecast(
            self.end_s + 60.0 * (fault == "origin"),
            self.step_s * (2.0 if fault == "step" else 1.0),
            {"levels": LEVELS[::-1], "sure": LEVELS / 0.95}.get(fault, LEVELS),
            rates[:, 1:] if fault == "shape" else rates,
            rates[:, 1:] if fault == "shape" else rates.copy(),
            self.name,
            np.full((2, steps), np.nan) if fault == "paths" else None,
        )
        # A Forecast refuses such values when it is built, but they can be written into it later.
        broken = {"nan": np.nan, "inf": np.inf, "negative": -1.0, "crossing": 1e6}
        if fault in broken:
            forecast.mean_rps[0, -1] = broken[fault]
        return None if fault == "nothing" else forecast

    def _called(self, what: str, steps: int) -> None:
        self.calls.append((what, steps))
        if self.fault == "slow":
            self.clock.t_s += 10.0
        if self.fault == what:
            raise ArithmeticError(f"{what} of {steps} steps")

    def _see(self, load: Load) -> None:
        self.end_s += load.step_s * len(load)
        known = load.mean_rps[np.isfinite(load.mean_rps)]
        if len(known):
            self.rate_rps = float(known[-1])


def load(start_s: float, rates: Sequence[float], step_s: float = 60.0) -> Load:
    mean = np.array(rates, dtype=np.float64)
    return Load(start_s, step_s, mean, 1.2 * mean)


class Minutes:
    """A supervised predictor, minute by minute: `sim.pass_(fault)` is an update with the next minute and a forecast."""

    def __init__(self, predictor: Any = None, history: Sequence[float] = (), **more: Any) -> None:
        self.clock = FakeClock()
        self.predictor = predictor or Faulty(self.clock)
        self.supervised = Supervised(self.predictor, **more)
        self.end_s = 60.0 * len(history)
        self.rng = np.random.default_rng(1)
        self.supervised.fit(load(0.0, history))

    def pass_(self, fault: str = "", times: int = 1, rate_rps: float | None = None) -> list[str]:
        """Return the reasons for which the fallback stood in, one a minute."""
        reasons = []
        for _ in range(times):
            self.predictor.fault = fault
            rate = float(self.rng.uniform(90.0, 110.0)) if rate_rps is None else rate_rps
            self.supervised.update(load(self.end_s, [rate]))
            self.end_s += 60.0
            self.forecast = self.supervised.predict(60)
            assert_usable(self.forecast, self.end_s, 60.0, 60)
            assert self.forecast.predictor == ("last-value" if self.supervised.stands_in else self.predictor.name)
            reasons.append(self.supervised.stands_in)
        return reasons


def assert_usable(forecast: Forecast, origin_s: float, step_s: float, steps: int) -> None:
    """Check all that a planner relies on."""
    assert (forecast.origin_s, forecast.step_s, forecast.steps) == (origin_s, step_s, steps)
    assert (np.diff(forecast.levels) > 0.0).all()
    for rates in (forecast.mean_rps, forecast.peak_rps):
        assert rates.shape == (len(forecast.levels), steps)
        assert np.isfinite(rates).all()
        assert (rates >= 0.0).all()
        assert (np.diff(rates, axis=0) >= -1e-9).all()
