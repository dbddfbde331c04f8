from __future__ import annotations

import numpy as np
import pytest
from mark_predictors import ridge
from mark_predictors.load_history import ObservedHistory
from mark_predictors.logload import LogLoad
from mark_predictors.ridge import Ridge

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Load

STEP_S = 300.0
HOUR, DAY = 12, 288
NAN = float("nan")
MEDIAN = len(LEVELS) // 2


def load(rates: FloatArray, step_s: float = STEP_S) -> Load:
    return Load(0.0, step_s, rates, rates)


def learned(rates: FloatArray, step_s: float = STEP_S) -> Ridge:
    predictor = Ridge(LogLoad(ObservedHistory(load(rates, step_s))), LEVELS)
    predictor.learn()
    return predictor


def extend(predictor: Ridge, rates: FloatArray) -> None:
    predictor._load.history.append(load(rates, predictor._load.history.step_s))
    predictor._load.extend()


def waves(steps: int, day: int = DAY) -> FloatArray:
    """Return two smooth waves, of a day and of five hours, without noise."""
    at = 2.0 * np.pi * np.arange(steps) / day
    return np.asarray(100.0 * np.exp(0.5 * np.sin(at) + 0.2 * np.sin(24.0 / 5.0 * at)))


def noisy(steps: int, deviation: float = 0.1, seed: int = 1) -> FloatArray:
    return np.asarray(100.0 * np.exp(np.random.default_rng(seed).normal(0.0, deviation, steps)))


# -- one regression ----------------------------------------------------------------------------------------------------


def problem(rows: int = 400, noise: float = 0.0) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return features with a constant, their true weights, the target, and the recency of each row."""
    rng = np.random.default_rng(3)
    features = np.concatenate([np.ones((rows, 1)), rng.normal(0.0, 1.0, (rows, 3))], axis=1)
    truth = np.array([2.0, 1.0, -0.5, 0.0])
    return features, truth, features @ truth + rng.normal(0.0, noise, rows), rng.uniform(0.2, 1.0, rows)


def test_without_noise_it_is_least_squares() -> None:
    """It equals numpy's result; the penalty alone changes a thousandth."""
    features, truth, target, recency = problem()
    weights, errors = ridge._robust(features, target, recency)
    np.testing.assert_allclose(np.linalg.lstsq(features, target)[0], truth, atol=1e-9)
    np.testing.assert_allclose(weights, truth, atol=5e-3)
    np.testing.assert_allclose(errors, target - features @ weights)


def test_it_is_its_naive_loop() -> None:
    """Rows weighed one by one; the penalty as further rows of least squares."""
    features, _, target, recency = problem(noise=0.5)
    target[::9] += 20.0
    weight = recency.copy()
    for _ in range(4):
        rows = [np.sqrt(w) * row for w, row in zip(weight, features, strict=True)]
        values = [np.sqrt(w) * value for w, value in zip(weight, target, strict=True)]
        for k in range(features.shape[1]):  # the constant, first, as good as free
            rows.append(np.sqrt(1e-9 + (1e-3 * recency.sum() if k else 0.0)) * np.eye(features.shape[1])[k])
            values.append(0.0)
        expected = np.linalg.lstsq(np.array(rows), np.array(values))[0]
        errors = [value - sum(row * expected) for row, value in zip(features, target, strict=True)]
        usual = 1.5 * np.median(np.abs(errors))
        weight = np.array([r * min(1.0, usual / abs(e)) for r, e in zip(recency, errors, strict=True)])
    np.testing.assert_allclose(ridge._robust(features, target, recency)[0], expected, atol=1e-4)


def test_accidents_hardly_move_it() -> None:
    """A tenth of the targets far off, all to the same side: least squares follows, this does not."""
    features, truth, target, recency = problem(noise=0.1)
    target[::10] += 50.0
    assert abs(np.linalg.lstsq(features, target)[0][0] - truth[0]) > 4.0
    np.testing.assert_allclose(ridge._robust(features, target, recency)[0], truth, atol=0.25)


# -- all horizons ------------------------------------------------------------------------------------------------------


def test_waves_are_continued_at_every_horizon() -> None:
    """Load that is linear in the logarithms is found, by origin and by step: an alignment off by one would show."""
    rates = waves(8 * DAY)
    predictor = learned(rates[: 7 * DAY])
    misses = []
    for origin in range(7 * DAY, 8 * DAY - 2 * HOUR, 12):
        median = predictor.quantiles(HOUR)[MEDIAN]
        shifted = (rates[origin + shift : origin + shift + HOUR] for shift in (-1, 0, 1))
        misses.append([np.abs(np.log(median / truth)) for truth in shifted])
        extend(predictor, rates[origin : origin + 12])
    too_late, right, too_early = np.mean(misses, axis=0)
    assert right.max() < 0.02
    assert (right < np.minimum(too_late, too_early)).all()
    assert right.mean() < 0.7 * min(too_late.mean(), too_early.mean())


def test_surges_hardly_move_it() -> None:
    """Ten times the load at a step in thirty, at random: the median stays, by the most a surge in its features."""
    rates = waves(8 * DAY)
    surges = np.random.default_rng(5).random(len(rates)) < 1.0 / 30.0
    surges[-HOUR:] = False
    found = learned(np.where(surges, 10.0 * rates, rates)[: 7 * DAY]).quantiles(HOUR)[MEDIAN]
    np.testing.assert_allclose(found, rates[7 * DAY : 7 * DAY + HOUR], rtol=0.2)


def test_quantiles_hold_as_much_as_they_say() -> None:
    """The noise does not change, and every horizon with a separate regression is checked."""
    rates = noisy(12 * DAY)
    predictor = learned(rates[: 8 * DAY])
    below = []
    for origin in range(8 * DAY, 12 * DAY - HOUR, 3):
        below.append(rates[origin : origin + HOUR] <= predictor.quantiles(HOUR))
        extend(predictor, rates[origin : origin + 3])
    share = np.mean(below, axis=0)[:, [0, 1, 2, 3, 5, 7, 9, 11]]
    np.testing.assert_allclose(share, np.broadcast_to(LEVELS[:, None], share.shape), atol=0.08)


def test_between_the_regressions_it_is_linear_and_beyond_them_constant() -> None:
    """Minutes 1, 3, 6 and so on to an hour have separate regressions."""
    predictor = learned(waves(3 * 1440, day=1440), 60.0)
    quantiles = predictor.quantiles(90)
    logs = np.log(quantiles + predictor._load.floor_rps)
    known = np.array([1, 3, 6, 10, 15, 20, 30, 40, 50, 60])
    expected = [np.interp(np.arange(1, 91), known, row[known - 1]) for row in logs]
    np.testing.assert_allclose(logs, expected)
    np.testing.assert_array_equal(quantiles[:, :7], predictor.quantiles(7))
    assert (np.diff(quantiles, axis=0) >= 0.0).all()


def test_compiled_features_are_those_of_plain_arrays() -> None:
    """Steps of a minute: recent means, days before smoothed over eleven minutes, and the hour before."""
    predictor, origin, horizons = Ridge(LogLoad(ObservedHistory(load(noisy(9 * 1440), 60.0))), LEVELS), 12_000, (1, 30)
    logs = predictor._load.logs
    features, (base,) = predictor._features(np.array([origin]), np.array(horizons))
    assert base == pytest.approx(logs[origin - 5 : origin].mean())

    def smooth(ago: int) -> FloatArray:
        return np.array([logs[at - 5 : at + 6].mean() for at in origin - 1440 * np.arange(1, 8) - ago])

    for k, ahead in enumerate(horizons):
        level, change = smooth(1) - base, smooth(1 - ahead) - smooth(1)
        expected = [1.0, *(logs[origin - minutes : origin].mean() - base for minutes in (1, 2, 5, 15, 30, 60))]
        for days in (slice(1), slice(3), slice(7), slice(6, 7)):
            expected += [change[days].mean(), level[days].mean()]
        np.testing.assert_allclose(features[k, 0], [*expected, logs[origin + ahead - 61] - base], atol=1e-9)


def test_what_comes_later_is_not_seen() -> None:
    """The features at an origin are equal before and after later steps come."""
    rates = noisy(10 * DAY)
    predictor = learned(rates[:2400])
    live = []
    for origin in range(2400, 2800, 50):
        live.append(predictor._features(np.array([origin]), predictor._ahead))
        extend(predictor, rates[origin : origin + 50])
    features, base = predictor._features(np.arange(2400, 2800, 50), predictor._ahead)
    np.testing.assert_array_equal(features, np.concatenate([one[0] for one in live], axis=1))
    np.testing.assert_array_equal(base, np.concatenate([one[1] for one in live]))


def test_the_newest_days_count_most() -> None:
    """After a wave has moved, two new days of it weigh more than eight old ones."""
    rates = np.concatenate([noisy(8 * DAY, 0.02), 0.5 * noisy(2 * DAY, 0.02, seed=2)])
    at_once = learned(rates).quantiles(HOUR)
    assert at_once[MEDIAN] == pytest.approx(np.full(HOUR, 50.0), rel=0.05)
    # The errors of the last days make the quantiles: the fall two days ago is one of a hundred.
    assert (at_once[-1] / at_once[0]).max() < 1.25


def test_ten_times_the_load_is_ten_times_the_quantiles() -> None:
    rates = noisy(3 * DAY)
    np.testing.assert_allclose(learned(10.0 * rates).quantiles(60), 10.0 * learned(rates).quantiles(60), rtol=1e-6)


def test_a_gap_is_neither_learned_nor_a_zero() -> None:
    rates = noisy(6 * DAY, 0.02)
    rates[4 * DAY : 5 * DAY] = rates[-3:] = NAN
    quantiles = learned(rates).quantiles(HOUR)
    np.testing.assert_allclose(quantiles[MEDIAN], 100.0, rtol=0.05)
    assert quantiles[0].min() > 90.0


@pytest.mark.parametrize(("steps", "ready"), [(0, False), (110, False), (140, True)])
def test_too_little_to_learn_from_is_said(steps: int, ready: bool) -> None:
    """It takes a hundred origins at every horizon."""
    assert learned(noisy(steps)).ready == ready
    assert not learned(np.full(steps, NAN)).ready


@pytest.mark.parametrize("every", [None, 24], ids=["nothing", "pairs"])
def test_once_ready_it_stays_ready(every: int | None) -> None:
    """For days no step, or only pairs of steps, are observed: enough for one step ahead, too little for more."""
    predictor = learned(noisy(2 * DAY))
    rates = noisy(11 * DAY, 0.5)
    rates[np.arange(len(rates)) % every >= 2 if every else slice(None)] = NAN
    extend(predictor, rates)
    before = predictor.quantiles(HOUR)
    predictor.learn()
    assert predictor.ready
    np.testing.assert_array_equal(predictor.quantiles(HOUR), before)


@pytest.mark.parametrize("step_s", [60.0, 300.0, 1800.0, 43200.0])
def test_any_step_and_any_horizon_will_do(step_s: float) -> None:
    """Steps of half a day work too, although an hour is less than one of them."""
    predictor = learned(noisy(600), step_s)
    if step_s == 43200.0:
        assert not predictor.ready  # ten days of them are too few
        return
    for steps in (1, 2, 100):
        quantiles = predictor.quantiles(steps)
        assert quantiles.shape == (len(LEVELS), steps)
        np.testing.assert_allclose(quantiles[MEDIAN], 100.0, rtol=0.2)
