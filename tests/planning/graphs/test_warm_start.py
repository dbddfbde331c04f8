"""The start of tuners: in the state that they would have, once they have seen enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.planning.graphs.estimate import StageChoice
from mark.planning.graphs.tuner import Replicas, Tuner
from mark.planning.graphs.warm_start import BegunTuner, WaitingTuner, led_in
from tests.planning.graphs.planned import option


@dataclass(frozen=True)
class Counting:
    """Asks for a replica per query so far; its state is the time of the call."""

    def begin(self) -> tuple[float, ...]:
        return ()

    def step(self, state: tuple[float, ...], arrivals_s: np.ndarray, now_s: float) -> tuple[Replicas, tuple]:
        return (len(arrivals_s),), (*state, now_s)


_FITS: tuple[type[Tuner], ...] = (BegunTuner, WaitingTuner)
CHOICES = (StageChoice(option("x", 1.0, 0.0, 1.0), 1, 7),)


def test_a_tuner_led_in_begins_with_what_it_would_have() -> None:
    """It steps at -3, -2 and -1 s, the last of which has seen two queries, and continues at 0."""
    arrivals_s = np.array([-9.0, -1.5, -0.5, 0.5])
    (choice,), tuner = led_in(CHOICES, Counting(), arrivals_s, -3.0, 0.0)
    assert choice.replicas == 2
    assert tuner.begin() == (-3.0, -2.0, -1.0)
    assert tuner.step(tuner.begin(), arrivals_s[:3], 0.0) == ((3,), (-3.0, -2.0, -1.0, 0.0))


def test_without_a_time_before_it_begins_as_planned() -> None:
    (choice,), tuner = led_in(CHOICES, Counting(), np.array([]), 0.0, 0.0)
    assert choice.replicas == 7
    assert tuner.begin() == ()


def test_a_waiting_tuner_keeps_the_plan_and_knows_what_came() -> None:
    tuner = WaitingTuner(Counting(), (7,), until_s=60.0)
    replicas, state = tuner.step(tuner.begin(), np.array([1.0]), 59.0)
    assert (replicas, state) == ((7,), ())
    assert tuner.step(state, np.array([1.0, 2.0]), 60.0) == ((2,), (60.0,))


def test_a_stage_without_replicas_begins_with_one_until_a_step() -> None:
    (choice,), tuner = led_in(CHOICES, Counting(), np.array([0.5]), -3.0, 0.0)
    assert choice.replicas == 1
    assert tuner.step(tuner.begin(), np.array([]), 0.0)[0] == (0,)
