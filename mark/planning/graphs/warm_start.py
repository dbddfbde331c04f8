"""Start a tuner as if it had run before, or only once it has seen enough to go by."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.planning.graphs.estimate import Choices
from mark.planning.graphs.tuned_run import STEP_S
from mark.planning.graphs.tuner import Replicas, Tuner


@dataclass(frozen=True, slots=True)
class BegunTuner:
    """A tuner that continues from a state that it left."""

    tuner: Tuner
    state: Any

    def begin(self) -> Any:
        return self.state

    def step(self, state: Any, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, Any]:
        """See `mark.planning.graphs.tuner.Tuner`."""
        return self.tuner.step(state, arrivals_s, now_s)


@dataclass(frozen=True, slots=True)
class WaitingTuner:
    """The planned replicas until `until_s`, then the tuner's, which sees all arrivals from the beginning."""

    tuner: Tuner
    planned: Replicas
    until_s: float

    def begin(self) -> Any:
        return self.tuner.begin()

    def step(self, state: Any, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, Any]:
        """See `mark.planning.graphs.tuner.Tuner`."""
        return (self.planned, state) if now_s < self.until_s else self.tuner.step(state, arrivals_s, now_s)


def led_in(
    choices: Choices, tuner: Tuner, arrivals_s: FloatArray, from_s: float, begin_s: float, step_s: float = STEP_S
) -> tuple[Choices, Tuner]:
    """Return the choices with the tuner's replicas at `begin_s`, had it run since `from_s`, and the tuner from then on.

    `arrivals_s` ascend. This runs without simulation, because tuners see arrivals alone.
    """
    state = tuner.begin()
    replicas: Replicas = tuple(choice.replicas for choice in choices)
    for step in range(math.ceil((begin_s - from_s) / step_s - 1e-9)):
        now_s = from_s + step * step_s
        replicas, state = tuner.step(state, arrivals_s[: np.searchsorted(arrivals_s, now_s)], now_s)
    # A choice has at least one replica; if there should be none, the tuner removes it at its next step.
    begun = tuple(replace(choice, replicas=max(1, count)) for choice, count in zip(choices, replicas, strict=True))
    return begun, BegunTuner(tuner, state)
