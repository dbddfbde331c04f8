"""Many predictors in one process learn in turns; until its turn, a simple one forecasts under its own name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mark_predictors.auto import Auto
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.traffic.forecast import supervised as module
from mark.traffic.forecast.supervised import Supervised
from mark.traffic.forecast.turns import AT_ONCE, InTurns, taking_turns
from tests.traffic.forecast.faulty import Faulty

STEP_S = 300.0
DAY = 288


def load(first: int, last: int) -> Load:
    rates: FloatArray = np.asarray(100.0 + 50.0 * np.sin(2.0 * np.pi * np.arange(first, last) / DAY))
    return Load(first * STEP_S, STEP_S, rates, 1.2 * rates)


class Slow(Faulty):
    """Is fitted in three pieces; `learned` counts the turns after."""

    learned = 0

    def fitting(self, history: Load) -> Iterator[None]:
        yield
        yield
        self.fit(history)

    def learn(self) -> None:
        self.learned += 1


def test_few_learn_at_once_and_many_in_turns() -> None:
    """With few services no fit is delayed; a predictor whose fit cannot be delayed never is."""
    auto, naive = Auto(), SeasonalNaive()
    assert taking_turns(auto, AT_ONCE) is auto
    assert taking_turns(naive, 200) is naive
    assert isinstance(taking_turns(auto, AT_ONCE + 1), InTurns)


def test_the_stand_in_forecasts_until_the_fit_is_done() -> None:
    """The fitted predictor continues at the newest step; its next turn is for a due fit."""
    slow = Slow()
    turns = InTurns(slow, SeasonalNaive())
    turns.fit(load(0, DAY))
    for at in range(DAY, DAY + 2):
        turns.learn()
        turns.update(load(at, at + 1))
        assert (turns.name, turns.predict(3).predictor, turns.predict(3).origin_s) == (
            "seasonal-naive",
            "seasonal-naive",
            (at + 1) * STEP_S,
        )
    turns.learn()
    assert (turns.name, turns.predict(3).origin_s, slow.learned) == ("faulty", (DAY + 2) * STEP_S, 0)
    turns.update(load(DAY + 2, DAY + 3))
    turns.learn()
    assert (turns.predict(3).origin_s, slow.learned) == ((DAY + 3) * STEP_S, 1)


def test_auto_fitted_in_pieces_equals_auto_fitted_at_once() -> None:
    """Turns change when a predictor learns, but not its result."""
    at_once, pieces = Auto(), Auto()
    at_once.fit(load(0, 6 * DAY))
    assert sum(1 for _ in pieces.fitting(load(0, 6 * DAY))) >= 1
    for one in (at_once, pieces):
        one.update(load(6 * DAY, 6 * DAY + 20))
    np.testing.assert_array_equal(at_once.predict(12).mean_rps, pieces.predict(12).mean_rps)


@pytest.mark.slow
def test_auto_in_turns_learns_only_what_is_due() -> None:
    """A day later there is something new to learn; until the turn, updates only follow the load."""
    turns, at_once, late = Auto(), Auto(), Auto()
    at_once.fit(load(0, 2 * DAY))
    for one in (turns, late):
        for _ in one.fitting(load(0, 2 * DAY)):
            pass
    for one in (turns, at_once, late):
        one.update(load(2 * DAY, 3 * DAY))
    turns.learn()
    forecasts = [one.predict(12).mean_rps.tobytes() for one in (turns, at_once, late)]
    assert forecasts[0] == forecasts[1] != forecasts[2]
    turns.learn()
    assert turns.predict(12).mean_rps.tobytes() == forecasts[0]


class Broken(Slow):
    def fitting(self, history: Load) -> Iterator[None]:
        yield
        raise ArithmeticError("no shape")


def test_a_fit_that_raises_in_its_turn_failed() -> None:
    """The last value stands in and says why, as for any predictor whose fit raised."""
    supervised = Supervised(InTurns(Broken(), SeasonalNaive()))
    supervised.fit(load(0, DAY))
    supervised.learn()
    assert (supervised.predict(3).predictor, supervised.stands_in) == ("seasonal-naive", "")
    supervised.learn()
    assert (supervised.predict(3).predictor, supervised.stands_in) == ("last-value", module.FIT_RAISED)
    supervised.update(load(DAY, DAY + 3))
    assert (supervised.predict(3).predictor, supervised.stands_in) == ("seasonal-naive", "")  # its turns begin again


def test_a_predictor_that_takes_no_turns_is_left_alone() -> None:
    """A predictor that is fitted in one piece learns when it is updated."""
    slow = Slow()
    supervised = Supervised(slow)
    supervised.fit(load(0, 10))
    supervised.learn()
    assert slow.learned == 0
