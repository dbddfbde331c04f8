"""Every score beside a loop that spells it out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS
from mark.traffic.forecast.scores import ENOUGH, Tally, crps, naive_error, pinball

NAN = float("nan")


def naive_pinball(level: float, quantile: float, truth: float) -> float:
    return level * (truth - quantile) if truth >= quantile else (1.0 - level) * (quantile - truth)


def forecasts(count: int, steps: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return quantiles (19, steps) and truths (steps,), some of them missing."""
    rng = np.random.default_rng(seed)
    truths = rng.gamma(2.0, 50.0, (count, steps))
    truths[rng.random((count, steps)) < 0.2] = NAN
    return [(np.sort(rng.gamma(2.0, 50.0, (19, steps)), axis=0), truth) for truth in truths]


def tallied(pairs: list[tuple[FloatArray, FloatArray]]) -> Tally:
    tally = Tally(pairs[0][0].shape[1])
    for quantiles, truth in pairs:
        tally.add(quantiles, truth, 2.0 * quantiles, 2.0 * truth)
    return tally


def test_pinball_is_the_loop() -> None:
    quantiles, truth = forecasts(1, 30, 0)[0]
    loss = pinball(LEVELS, quantiles, truth)
    for q, level in enumerate(LEVELS):
        for h in range(30):
            if math.isnan(truth[h]):
                assert math.isnan(loss[q, h])
            else:
                assert loss[q, h] == pytest.approx(naive_pinball(level, quantiles[q, h], truth[h]))


def test_pinball_is_least_at_the_true_quantile() -> None:
    """This makes it a proper score: no forecaster gains by reporting anything other than its belief."""
    truth = np.random.default_rng(1).exponential(1.0, 20_000)
    said = np.linspace(0.1, 4.0, 79)
    for level in (0.1, 0.5, 0.9):
        losses = [pinball(np.array([level]), np.full((1, 1), x), truth).mean() for x in said]
        assert said[int(np.argmin(losses))] == pytest.approx(-math.log(1.0 - level), abs=0.08)


def test_crps_is_twice_the_mean_pinball_loss() -> None:
    quantiles, truth = forecasts(1, 30, 2)[0]
    for h, score in enumerate(crps(quantiles, truth)):
        losses = [naive_pinball(LEVELS[q], quantiles[q, h], truth[h]) for q in range(19)]
        assert score == pytest.approx(2.0 * sum(losses) / 19, nan_ok=True)


@given(said=st.floats(0.0, 1e6), came=st.floats(0.0, 1e6))
def test_crps_of_a_single_value_is_the_absolute_error(said: float, came: float) -> None:
    assert crps(np.full((19, 1), said), np.array([came]))[0] == pytest.approx(abs(said - came))


def test_crps_is_near_the_integral_of_the_whole_distribution() -> None:
    """A standard normal forecast and the truth at its middle: (sqrt(2) - 1) / sqrt(pi), from Gneiting and Raftery."""
    draws = np.random.default_rng(3).normal(size=200_000)
    exact = (math.sqrt(2.0) - 1.0) / math.sqrt(math.pi)
    assert crps(np.quantile(draws, LEVELS)[:, None], np.zeros(1))[0] == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("lag", [1, 7])
def test_the_naive_error_is_the_loop_over_known_pairs(lag: int) -> None:
    rng = np.random.default_rng(lag)
    rates = rng.random(200)
    rates[rng.random(200) < 0.2] = NAN
    errors = [abs(rates[t] - rates[t - lag]) for t in range(lag, 200)]
    known = [error for error in errors if not math.isnan(error)]
    assert naive_error(rates, lag) == pytest.approx(sum(known) / len(known))


def test_too_few_pairs_tell_no_naive_error() -> None:
    assert math.isnan(naive_error(np.arange(ENOUGH + 6.0), 7))
    assert naive_error(np.arange(ENOUGH + 7.0), 7) == 7.0
    assert math.isnan(naive_error(np.empty(0), 7))


def test_the_tally_is_the_loop_over_forecasts_and_steps() -> None:
    """CRPS, the median's error and coverage, over all and by step; steps with unknown truth do not count."""
    pairs = forecasts(40, 6, 4)
    tally = tallied(pairs)
    scores: dict[str, list[list[float]]] = {name: [[] for _ in range(6)] for name in ("crps", "error", "50", "90")}
    for quantiles, truth in pairs:
        for h in range(6):
            if math.isnan(truth[h]):
                continue
            at = {round(level, 2): quantiles[q, h] for q, level in enumerate(LEVELS)}
            losses = [naive_pinball(level, x, truth[h]) for level, x in at.items()]
            scores["crps"][h].append(2.0 * sum(losses) / len(losses))
            scores["error"][h].append(abs(truth[h] - at[0.5]))
            scores["50"][h].append(float(at[0.25] <= truth[h] <= at[0.75]))
            scores["90"][h].append(float(at[0.05] <= truth[h] <= at[0.95]))

    def overall(name: str) -> float:
        values = [value for step in scores[name] for value in step]
        return sum(values) / len(values)

    assert tally.crps == pytest.approx(overall("crps"))
    assert tally.median_error == pytest.approx(overall("error"))
    assert tally.coverage_50 == pytest.approx(overall("50"))
    assert tally.coverage_90 == pytest.approx(overall("90"))
    assert tally.peak_crps == pytest.approx(2.0 * overall("crps"))
    for h, row in enumerate(tally.by_step()):
        for key, name in (("crps", "crps"), ("median_error", "error"), ("coverage_50", "50"), ("coverage_90", "90")):
            assert row[key] == pytest.approx(sum(scores[name][h]) / len(scores[name][h]))


def test_without_any_truth_all_scores_are_undefined() -> None:
    tally = tallied([(np.ones((19, 2)), np.array([NAN, 1.0]))])
    assert tally.crps == 0.0
    assert math.isnan(tally.by_step()[0]["crps"])
    assert tally.by_step()[1] == {"crps": 0.0, "median_error": 0.0, "coverage_50": 1.0, "coverage_90": 1.0}
    assert math.isnan(Tally(3).crps)
    assert math.isnan(Tally(3).coverage_90)
