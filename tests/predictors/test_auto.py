from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_predictors import auto
from mark_predictors.auto import MEMBERS, Auto
from mark_predictors.futures import HIGHEST
from mark_predictors.seasonal_naive import SeasonalNaive

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.predictor import Predictor
from tests.predictors.real_traces import quantile_loss, real_rates

STEP_S = 300.0
HOUR, DAY = 12, 288
NAN = float("nan")
FINE = [0.005, 0.02, *LEVELS.tolist(), 0.98, 0.995]
# The quantiles of a normal distribution at these levels.
NORMAL = np.array([-2.576, -2.054, -1.645, -1.282, -1.036, -0.842, -0.674, -0.524, -0.385, -0.253, -0.126])
NORMAL = np.concatenate([NORMAL, [0.0], -NORMAL[::-1]])
_FITS: Predictor = Auto()  # for the type checker


def load(rates: FloatArray | list[float], first_step: int = 0, step_s: float = STEP_S) -> Load:
    rates = np.array(rates, dtype=np.float64)
    return Load(first_step * step_s, step_s, rates, 1.5 * rates)


def fitted(rates: FloatArray | list[float], step_s: float = STEP_S) -> Auto:
    predictor = Auto()
    predictor.fit(load(rates, step_s=step_s))
    return predictor


def noisy(steps: int, deviation: float = 0.05, seed: int = 1) -> FloatArray:
    """Return rates of 100 requests/s around a day's wave."""
    logs = 0.4 * np.sin(2.0 * np.pi * np.arange(steps) / DAY)
    return np.asarray(100.0 * np.exp(logs + np.random.default_rng(seed).normal(0.0, deviation, steps)))


@pytest.fixture(scope="module")
def _knowing() -> Auto:
    return fitted(noisy(600))


@pytest.fixture
def knowing(_knowing: Auto) -> Auto:
    """Return a predictor fitted on the first 600 steps of `noisy`, as a copy, because fitting takes long."""
    return deepcopy(_knowing)


def assert_same(one: Forecast, other: Forecast) -> None:
    assert one.paths_rps is not None
    assert other.paths_rps is not None
    np.testing.assert_array_equal(one.mean_rps, other.mean_rps)
    np.testing.assert_array_equal(one.peak_rps, other.peak_rps)
    np.testing.assert_array_equal(one.paths_rps, other.paths_rps)


class Forgetful(Auto):
    """Asks its members at every call."""

    def _members(self, steps: int) -> tuple[FloatArray, FloatArray, Forecast]:
        self._said = None
        return super()._members(steps)


def test_members_asked_for_a_record_are_asked_anew_after_an_observation() -> None:
    """Records are of 12 steps here, every fifth step. The day ends, and with it the last learning, after 20 steps."""
    kept, forgetful = Auto(), Forgetful()
    rates = noisy(340)
    for predictor in (kept, forgetful):
        predictor.fit(load(rates[:300]))
    for step in range(300, 340):
        for predictor in (kept, forgetful):
            predictor.update(load(rates[step : step + 1], step))
        for steps in (12, 6) if step % 2 else (6, 12):
            assert_same(kept.predict(steps), forgetful.predict(steps))


# -- weights and calibration, with members of given forecasts ---------------------------------------------------------


class Told(Auto):
    """Its members believe in normal distributions of these means and deviations, at every step alike.

    Every forecast is scored, because no real member has to be waited for.
    """

    means_rps = (100.0,) * 4
    deviations_rps = (1.0,) * 4
    ready = (True,) * 4

    def _begin(self, history: Load) -> None:
        super()._begin(history)
        self._record_steps = 1

    def _learn(self) -> None:
        self._learned = len(self._load)

    def _ready(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array(self.ready)

    def _members(self, steps: int) -> tuple[FloatArray, FloatArray, Forecast]:
        believed = [m + d * NORMAL for m, d in zip(self.means_rps, self.deviations_rps, strict=True)]
        every = np.repeat(np.array(believed)[:, :, None], steps, axis=2)
        paths = np.random.default_rng(0).permuted(np.repeat(np.arange(100.0)[:, None], steps, axis=1), axis=0)
        rates = every[0, 2:-2]
        return every, paths, Forecast(0.0, STEP_S, LEVELS, rates, rates, "told")


def told(means_rps: list[float], deviations_rps: list[float], ready: tuple[bool, ...] = (True,) * 4) -> Told:
    predictor = Told()
    predictor.fit(load([]))
    predictor.means_rps, predictor.deviations_rps = tuple(means_rps), tuple(deviations_rps)  # type: ignore[assignment]
    predictor.ready = ready  # type: ignore[assignment]
    return predictor


def test_weights_follow_the_losses_as_a_loop_has_them() -> None:
    """A member's loss is the mean of its first ones, later forgotten by a part at each; the weight falls steeply."""
    means, deviations = [100.0, 101.0, 104.0, 102.0], [2.0] * 4
    rates = 100.0 + np.random.default_rng(2).normal(0.0, 2.0, 700)
    rates[300:310] = NAN
    predictor = told(means, deviations)
    predictor.update(load(rates))
    losses = []
    for mean, deviation in zip(means, deviations, strict=True):
        known, loss = 0, 0.0
        for rate in rates[1:].tolist():  # an hour ahead, from the first origin after the first step
            if rate != rate:
                continue
            total = 0.0
            for level, normal in zip(FINE[2:-2], NORMAL[2:-2].tolist(), strict=True):
                error = rate - (mean + deviation * normal)
                total += level * error if error > 0.0 else (level - 1.0) * error
            known += 1
            loss += max(0.003, 1.0 / known) * (total / 19.0 - loss)
        losses.append(loss)
    np.testing.assert_allclose(predictor._loss[:, 0], losses)
    inverse = [loss**-20.0 for loss in losses]
    np.testing.assert_allclose(predictor._weights()[:, 0], [one / sum(inverse) for one in inverse])
    assert predictor._weights()[2].max() < 1e-6


def test_a_predictor_without_an_answer_has_no_weight() -> None:
    """The weights of every horizon add up to one."""
    rates = 100.0 + np.random.default_rng(3).normal(0.0, 2.0, 60)
    predictor = told([100.0, 100.0, 110.0, 100.0], [2.0] * 4, ready=(False, False, True, False))
    assert predictor._weights().tolist() == [[0.0] * 5, [0.0] * 5, [1.0] * 5, [0.0] * 5]
    predictor.update(load(rates))
    predictor.ready = (False, True, True, False)
    np.testing.assert_array_equal(predictor._weights(), [[0.0] * 5, [0.5] * 5, [0.5] * 5, [0.0] * 5])
    predictor.update(load(rates, 60))
    weights = predictor._weights()
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert weights[0].max() == 0.0
    assert weights[1].min() > 0.99  # the third was mistaken all the time


def test_levels_are_corrected_as_a_loop_corrects_them() -> None:
    """Each level moves by a hundredth of its excess or lack of coverage, at every origin whose truth is known."""
    rates = 100.0 + np.random.default_rng(4).normal(0.0, 3.0, 500)
    rates[100:120] = NAN
    predictor = told([101.0] * 4, [1.0] * 4)
    predictor.update(load(rates))
    for k, ahead in enumerate((1, 2, 3, 6, 12)):
        levels = LEVELS.tolist()
        said: dict[int, list[float]] = {}
        for step, rate in enumerate(rates.tolist()):
            quantiles = said.get(step - ahead + 1)
            if quantiles is not None and rate == rate:
                for q, quantile in enumerate(quantiles):
                    levels[q] += 0.01 * (LEVELS[q] - (rate < quantile))
            found, highest = [], 0.0
            for level in levels:
                beyond = max(0.005 - level, 0.0) + max(level - 0.995, 0.0)
                inside = float(np.interp(level, FINE, 101.0 + NORMAL))
                highest = max(highest, 101.0 + (inside - 101.0) * (1.0 + 10.0 * beyond))
                found.append(highest)
            said[step + 1] = found
        np.testing.assert_allclose(predictor._levels[:, k], levels)


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [
        pytest.param(103.0, 2.0, id="off"),
        pytest.param(100.0, 12.0, id="shy", marks=pytest.mark.acceptance),
    ],
)
def test_coverage_holds_whatever_the_members_believe(mean: float, deviation: float) -> None:
    """This holds even if the noise doubles: a share q of the truth lies below the quantile q, after a while."""
    predictor = told([mean] * 4, [deviation] * 4)
    rng = np.random.default_rng(5)
    at = 0
    for noise in (2.0, 4.0):
        below = np.zeros(len(LEVELS))
        for step in range(1000):
            rate = 100.0 + rng.normal(0.0, noise)
            if step >= 400:
                below += rate < predictor.predict(1).mean_rps[:, 0]
            predictor.update(load([rate], at))
            at += 1
        np.testing.assert_allclose(below / 600, LEVELS, atol=0.035)


def test_corrections_end_somewhere() -> None:
    """A load that is met exactly moves nothing; one that is never met leaves levels from which there is a way back."""
    still = told([100.0] * 4, [0.0] * 4)
    still.update(load([100.0] * 200))
    np.testing.assert_array_equal(still._levels, np.repeat(LEVELS[:, None], 5, axis=1))
    lost = told([100.0] * 4, [1.0] * 4)
    lost.update(load([1e6] * 500))
    assert lost._levels.max() == 1.2
    lost.update(load([100.0] * 200, 500))
    assert lost.predict(1).mean_at(0.5)[0] == pytest.approx(100.0, abs=3.0)


def test_between_the_scored_horizons_all_is_linear() -> None:
    """Beyond the last horizon the values are constant."""
    predictor = told([100.0] * 4, [1.0] * 4)
    values = np.random.default_rng(6).normal(size=(2, 5))
    expected = [np.interp(np.arange(1, 31), [1, 2, 3, 6, 12], row) for row in values]
    np.testing.assert_allclose(predictor._to_steps(30)(values), expected)


# -- peaks within a step -----------------------------------------------------------------------------------------------


def test_burst_by_the_clock_is_foreseen_with_its_peak() -> None:
    """20 s at 100 requests/s every half hour: in a minute's mean they are 35."""
    minutes = np.arange(1440)
    burst = minutes % 30 == 0
    mean = np.where(burst, 35.0, 2.0) * np.exp(np.random.default_rng(4).normal(0.0, 0.02, len(minutes)))
    predictor = Auto()
    predictor.fit(Load(0.0, 60.0, mean, np.where(burst, 100.0, 3.0)))
    forecast = predictor.predict(60)
    np.testing.assert_allclose(forecast.mean_at(0.5)[[0, 10]], [35.0, 2.0], rtol=0.1)
    np.testing.assert_allclose(forecast.peak_at(0.5)[[0, 10]], [100.0, 3.0], rtol=0.1)


def test_peaks_follow_what_foretold_them_better() -> None:
    """The members know no peaks; past steps with such a mean do, until peaks stop and the past is wrong."""
    rates = 100.0 + np.random.default_rng(5).normal(0.0, 2.0, 900)
    predictor = told([100.0] * 4, [2.0] * 4)
    predictor.update(load(rates[:600]))
    forecast = predictor.predict(12)
    np.testing.assert_allclose(forecast.peak_rps / forecast.mean_rps, 1.5, rtol=1e-3)
    predictor.update(Load(600 * STEP_S, STEP_S, rates[600:], rates[600:]))
    forecast = predictor.predict(12)
    np.testing.assert_allclose(forecast.peak_rps / forecast.mean_rps, 1.0, rtol=1e-3)


# -- paths -------------------------------------------------------------------------------------------------------------


def test_fine_quantiles_of_paths_are_numpys() -> None:
    """Hazen's, in which path k of n is the quantile (k + 1/2) / n."""
    paths = np.random.default_rng(7).gamma(1.0, 50.0, (100, 9))
    np.testing.assert_allclose(auto._fine(paths), np.quantile(paths, FINE, axis=0, method="hazen"))


@settings(max_examples=25)
@given(rates=st.lists(st.sampled_from([0.0, 1.0, 7.5, 7.5 + 2.0**-50, 7.5 + 2.0**-49, 900.0]), min_size=2, max_size=99))
def test_order_of_paths_is_stable_and_exact(rates: list[float]) -> None:
    """Equal rates keep the order of the paths; rates that differ in the last bit do not."""
    paths = np.array([rates, rates[::-1], np.linspace(3.0, 2.0, len(rates)).tolist()]).T
    np.testing.assert_array_equal(auto._order(paths), np.argsort(paths, axis=0, kind="stable"))


def test_paths_keep_their_order_and_take_the_quantiles() -> None:
    """At every step the path of rank k has the quantile (k + 1/2) / n, between the levels linear."""
    rng = np.random.default_rng(8)
    paths = rng.normal(size=(50, 7))
    fine = np.sort(rng.gamma(2.0, 50.0, (23, 7)), axis=0)
    mean = 1.5 * fine[2:-2]
    found = auto._in_order(paths, mean, fine)
    for step in range(7):
        tails = [mean[0, step] - (fine[2, step] - fine[k, step]) for k in (0, 1)]
        ends = [mean[-1, step] + fine[k, step] - fine[-3, step] for k in (-2, -1)]
        every = [max(0.0, value) for value in [*tails, *mean[:, step], *ends]]
        for rank, path in enumerate(np.argsort(paths[:, step]).tolist()):
            assert found[path, step] == pytest.approx(np.interp((rank + 0.5) / 50, FINE, every))


def test_surges_come_or_do_not() -> None:
    """Four times the load in the third quarter of an hour of every other hour, at random: so it is in the paths."""
    rng = np.random.default_rng(9)
    rates = 50.0 * np.exp(rng.normal(0.0, 0.05, 5 * DAY))
    surges = rng.permutation(5 * 24) < 60
    for hour in np.flatnonzero(surges).tolist():
        rates[hour * HOUR + 6 : hour * HOUR + 9] *= 4.0
    predictor = fitted(rates[: 4 * DAY + 3 * HOUR])
    drawn = []
    for origin in range(4 * DAY + 3 * HOUR, 5 * DAY, HOUR):
        forecast = predictor.predict(HOUR)
        assert forecast.paths_rps is not None
        drawn.append(forecast.paths_rps)
        predictor.update(load(rates[origin : origin + HOUR], origin))
    paths = np.concatenate(drawn)
    coming = paths[:, 6:9] > 100.0
    np.testing.assert_allclose(coming.mean(axis=0), 0.5, atol=0.1)
    assert ((paths[:, 6:9] > 75.0) & (paths[:, 6:9] < 140.0)).mean() < 0.1
    # One that is there in the first of the three steps is there in all.
    assert (coming[:, 0] == coming[:, 2]).mean() > 0.85
    assert (paths[:, :5] > 100.0).mean() < 0.05


# -- all together ------------------------------------------------------------------------------------------------------


def test_a_daily_pattern_is_learned_without_a_shift() -> None:
    """The same day over and over, with sudden steps: forecast where they are, not one before or after."""
    day = 100.0 + 50.0 * np.sin(np.arange(DAY) * 2.0 * np.pi / DAY) + 60.0 * (np.arange(DAY) // 7 % 2)
    days = np.tile(day, 6)
    predictor = fitted(days[: 5 * DAY])
    misses = []
    for origin in range(5 * DAY, 6 * DAY - 2 * HOUR, 5):
        median = predictor.predict(HOUR).mean_at(0.5)
        misses.append([np.abs(median - days[origin + s : origin + s + HOUR]).mean() for s in (-1, 0, 1)])
        predictor.update(load(days[origin : origin + 5], origin))
    early, right, late = np.mean(misses, axis=0)
    assert right < 0.5 * min(early, late)


@pytest.mark.parametrize("rates", [[], [NAN, NAN], [5.0], [5.0, NAN, 5.0], [0.0] * 50, [5.0] * 10])
@pytest.mark.parametrize("step_s", [60.0, 1800.0])
def test_a_short_or_empty_history_is_no_error(rates: list[float], step_s: float) -> None:
    """It answers from the first step on, with the observed rates."""
    forecast = fitted(rates, step_s).predict(60)
    known = [rate for rate in rates if rate == rate]
    assert forecast.origin_s == len(rates) * step_s
    np.testing.assert_allclose(forecast.mean_rps, known[0] if known else 0.0, rtol=1e-9)


@settings(max_examples=25)
@given(
    rates=st.lists(st.one_of(st.floats(0.0, 1e6, allow_subnormal=False), st.just(NAN), st.just(0.0)), max_size=60),
    cut=st.integers(0, 60),
    steps=st.integers(1, 90),
)
def test_whatever_was_seen_the_answer_is_a_forecast(rates: list[float], cut: int, steps: int) -> None:
    """Finite, not negative and not crossing (building a Forecast checks that), with peaks not below means."""
    predictor = fitted(rates[:cut])
    predictor.update(load(rates[cut:], min(cut, len(rates))))
    forecast = predictor.predict(steps)
    assert forecast.steps == steps
    assert forecast.origin_s == STEP_S * len(rates)
    assert (forecast.peak_rps >= forecast.mean_rps).all()
    assert forecast.paths_rps is not None
    assert forecast.paths_rps.shape == (100, steps)
    assert np.isfinite(forecast.paths_rps).all()
    assert forecast.paths_rps.min() >= 0.0


def test_it_grows_up_without_ever_being_fitted() -> None:
    """First followers, then a regression, then the forest joins; each is scored from its first forecast."""
    rates = noisy(400)
    predictor = fitted([])
    ready_at: dict[str, int] = {}
    for at, rate in enumerate(rates.tolist()):
        predictor.update(load([rate], at))
        for member, ready in zip(MEMBERS, predictor._ready().tolist(), strict=True):
            if ready:
                ready_at.setdefault(member, at + 1)
        if at in (10, 380):
            assert predictor.predict(HOUR).mean_at(0.5) == pytest.approx(rates[at + 1 : at + 1 + HOUR], rel=0.35)
    assert (ready_at["mstl"], ready_at["level"]) == (1, 21)
    assert 100 < ready_at["ridge"] < ready_at["forest"] < 400
    weights = predictor._weights()
    assert weights.min() > 0.0
    # One step ahead, every fifth forecast is scored.
    spoke = [ready_at["forest"], ready_at["ridge"], 1, ready_at["level"]]
    assert predictor._scored[:, 0].tolist() == [sum(at % 5 == 0 for at in range(first, 400)) for first in spoke]


def test_in_bulk_is_step_by_step(knowing: Auto) -> None:
    """Results are equal to the last bit, over a gap and the next training, however often it is asked in between."""
    rates = noisy(900)[600:]
    rates[100:110] = NAN
    bulk, steps = knowing, deepcopy(knowing)
    bulk.update(load(rates, 600))
    assert bulk._learned > 600
    for at, rate in enumerate(rates.tolist(), start=600):
        steps.update(load([rate], at))
        if at % 50 == 0:
            steps.predict(7)
    assert_same(bulk.predict(60), steps.predict(60))


def test_the_seed_decides(knowing: Auto) -> None:
    """The same data and seed, the same bits; another seed is another forest."""
    assert_same(fitted(noisy(600)).predict(60), knowing.predict(60))
    other = Auto(seed=1)
    other.fit(load(noisy(600)))
    assert not np.array_equal(other.predict(60).mean_rps, knowing.predict(60).mean_rps)


def test_the_level_before_a_gap_is_kept(knowing: Auto) -> None:
    """A gap does not count as zero, neither in the forecast nor in the scores."""
    scored, levels = knowing._scored.copy(), knowing._levels.copy()
    knowing.update(load([NAN] * HOUR, 600))
    np.testing.assert_array_equal(knowing._scored, scored)
    np.testing.assert_array_equal(knowing._levels, levels)
    np.testing.assert_allclose(knowing.predict(HOUR).mean_at(0.5), noisy(624)[612:], rtol=0.25)


def test_a_jump_to_ten_times_the_load_is_followed(knowing: Auto) -> None:
    """After two hours and after four it is the level, above which the peaks are as before."""
    rates = 10.0 * noisy(660)[600:]
    knowing.update(load(rates[:24], 600))
    forecast = knowing.predict(HOUR)
    np.testing.assert_allclose(forecast.mean_at(0.5).mean(), rates[24:36].mean(), rtol=0.25)
    knowing.update(load(rates[24:48], 624))
    forecast = knowing.predict(HOUR)
    np.testing.assert_allclose(forecast.mean_at(0.5).mean(), rates[48:].mean(), rtol=0.15)
    np.testing.assert_allclose(forecast.peak_at(0.5) / forecast.mean_at(0.5), 1.5, rtol=0.1)


def test_a_lasting_rise_is_believed_within_an_hour(knowing: Auto) -> None:
    """The load triples for good, which two days never showed."""
    rates = 3.0 * noisy(624)[600:]
    knowing.update(load(rates[:HOUR], 600))
    median = knowing.predict(HOUR).mean_at(0.5)
    np.testing.assert_allclose(median[:6], rates[HOUR : HOUR + 6], rtol=0.15)


def test_nights_without_a_request_are_no_trouble() -> None:
    """Half of each day has no requests: at night forecasts are almost zero, before the morning they rise."""
    rates = np.where(np.arange(4 * DAY) % DAY < DAY // 2, 0.0, noisy(4 * DAY))
    predictor = fitted(rates[: 3 * DAY + HOUR])
    assert predictor.predict(HOUR).mean_at(0.9).max() < 15.0  # a hundred by day
    predictor.update(load(rates[3 * DAY + HOUR : 3 * DAY + DAY // 2 - 6], 3 * DAY + HOUR))
    median = predictor.predict(HOUR).mean_at(0.5)
    assert median[:5].max() < 5.0
    assert median[8:].min() > 30.0


@pytest.mark.slow
def test_it_beats_the_baseline_on_real_traffic() -> None:
    """On a day of a public stream its quantile loss is at least a quarter below seasonal-naive's."""
    rates = real_rates("twitter_stream_2021_d00_14_60s", 60.0)[: 5 * 1440]
    ours, theirs = (quantile_loss(predictor, rates, 4 * 1440) for predictor in (Auto(), SeasonalNaive()))
    assert ours < 0.75 * theirs


@settings(max_examples=10)
@given(st.lists(st.booleans(), min_size=16, max_size=40), st.floats(2.0, 500.0))
def test_no_forecast_goes_far_beyond_all_experience(busy: list[bool], burst: float) -> None:
    """A burst from 1 to `burst` is a large factor; as an error on top of the burst it would be the factor's square."""
    rates = np.where(np.repeat(busy, 4), burst, 1.0)
    predictor = Auto()
    predictor.fit(load([]))
    predictor.update(load(rates))
    forecast = predictor.predict(24)
    most = HIGHEST * rates.max() * (1.0 + 1e-9)
    assert forecast.paths_rps is not None
    assert max(forecast.mean_rps.max(), forecast.paths_rps.max()) <= most
    assert forecast.peak_rps.max() <= 1.5 * most  # peaks are half as high again


def test_forest_and_ridge_are_held_to_experience_too() -> None:
    """Twelve bursts out of silence, and one that has just begun: without a limit paths go to 160 times the highest."""
    chance = np.random.default_rng(3)
    rates = np.ones(900)
    for start in chance.choice(880, 12, replace=False):
        rates[start : start + 8] = 200.0
    rates[-4:] = 200.0
    predictor = Auto()
    predictor.fit(load(rates[:700]))
    predictor.update(load(rates[700:], 700))
    forecast = predictor.predict(24)
    assert predictor._ready().all()
    most = HIGHEST * 200.0 * (1.0 + 1e-9)
    assert forecast.paths_rps is not None
    assert forecast.mean_rps.max() <= most
    assert forecast.paths_rps.max() <= most
    assert forecast.peak_rps.max() <= 1.5 * most
