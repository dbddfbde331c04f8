from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mark_predictors.forest import PATHS, Analogs
from mark_predictors.history import History
from mark_predictors.logload import LogLoad

from mark.domain.load import FloatArray, Load

STEP_S = 120.0
HOUR, DAY = 30, 720  # steps
BEGIN = 3  # step of the hour in which surges begin
LONGEST = 12  # steps, so that calm steps are the usual ones of any two hours
SURGE = 4.0  # times the usual
NAN = float("nan")


def load(rates: FloatArray, step_s: float = STEP_S) -> Load:
    return Load(0.0, step_s, rates, rates)


class Kept(Analogs):
    """Remembers the forest as scikit-learn has it, and what it was grown on."""

    def _keep(self, forest: Any, features: FloatArray) -> None:
        self.forest, self.features = forest, features
        super()._keep(forest, features)


def learned(rates: FloatArray, seed: int = 0, step_s: float = STEP_S) -> Kept:
    analogs = Kept(LogLoad(History(load(rates, step_s))), seed)
    analogs.learn()
    return analogs


def extend(analogs: Analogs, rates: FloatArray) -> None:
    analogs._load.history.append(load(rates))
    analogs._load.extend()


def surging(hours: int, share: float, lasts: Callable[[np.random.Generator], int], seed: int) -> FloatArray:
    """50 requests/s with a little noise; in a `share` of the hours, at random, a surge that `lasts` so many steps."""
    rng = np.random.default_rng(seed)
    rates = 50.0 * np.exp(rng.normal(0.0, 0.05, hours * HOUR))
    for hour in range(hours):
        if rng.random() < share:
            begin = hour * HOUR + BEGIN
            rates[begin : begin + lasts(rng)] *= SURGE
    return rates


def geometric(rng: np.random.Generator) -> int:
    """It goes on with probability 0.85 at every step."""
    return min(int(rng.geometric(0.15)), LONGEST)


def uniform(rng: np.random.Generator) -> int:
    """4 to 12 steps, all equally likely."""
    return int(rng.integers(4, LONGEST + 1))


def in_surge(paths: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return paths > 50.0 * SURGE**0.5


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_surge_comes_in_the_share_of_paths_in_which_it_comes_in_truth(share: float) -> None:
    """An hour ahead, and five minutes; none comes at another time, and those that come last as surges last."""
    rates = surging(12 * 24, share, uniform, seed=1)
    analogs = learned(rates)
    coming, lengths = [], []
    for hour in range(20):
        # The hour before was calm in one half of them, a surge in the other.
        extend(analogs, surging(1, hour % 2, uniform, seed=100 + hour))
        paths = in_surge(analogs.paths(HOUR))
        coming.append(paths[:, BEGIN].mean())
        assert not paths[:, :BEGIN].any()
        lengths.extend(paths[paths[:, BEGIN]].sum(axis=1))
    assert np.mean(coming) == pytest.approx(share, abs=0.08)
    np.testing.assert_allclose(coming, share, atol=0.2)
    assert np.mean(lengths) == pytest.approx(12.5, abs=1.5)
    assert np.quantile(lengths, [0.1, 0.9]) == pytest.approx([6.0, 19.0], abs=2.0)


@pytest.mark.parametrize(
    ("lasts", "goes_on"),
    [
        # P(lasts more than age + h | more than age), for surges that are cut at LONGEST
        (geometric, lambda age, h: 0.85**h if age + h < LONGEST else 0.0),
        (uniform, lambda age, h: max(0.0, LONGEST - age - h) / (LONGEST - max(age, 3)) if age + h > 3 else 1.0),
    ],
    ids=["geometric", "uniform"],
)
@pytest.mark.parametrize("age", [2, 8])
def test_what_remains_of_a_surge_follows_its_law(
    lasts: Callable[[np.random.Generator], int], goes_on: Callable[[int, int], float], age: int
) -> None:
    """Once inside, the share of paths in which it still goes on after h steps is the closed form."""
    analogs = learned(surging(20 * 24, 0.5, lasts, seed=2))
    still = []
    for hour in range(20):
        extend(analogs, surging(1, 0.0, lasts, seed=200 + hour)[: BEGIN])
        inside = surging(1, 1.0, lambda _: LONGEST, seed=300 + hour)
        extend(analogs, inside[BEGIN : BEGIN + age])
        still.append(in_surge(analogs.paths(HOUR)).mean(axis=0))
        extend(analogs, inside[-1] + np.zeros(HOUR - BEGIN - age))
    ahead = np.arange(1, 13)
    expected = [goes_on(age, int(h)) for h in ahead]
    np.testing.assert_allclose(np.mean(still, axis=0)[: len(ahead)], expected, atol=0.12)
