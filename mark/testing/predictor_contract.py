"""The contract of the port Predictor."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.predictor import Predictor, Savable

NAN = float("nan")
STEP_S = 300.0  # coarse, so that two days are few steps
DAY = 288
KNOWN = 620  # steps of a history: two days, and enough to train a network


@dataclass(frozen=True)
class PredictorUnderTest:
    """A predictor to test. `make` returns a new one, always of the same seed.

    `certain`: all quantiles are equal. `rtol`: tolerance on the forecast of ten times the load.
    """

    make: Callable[[], Predictor]
    certain: bool = False
    rtol: float = 0.01

    def fitted(self, load: Load) -> Predictor:
        """Return a new predictor, fitted on `load`."""
        predictor = self.make()
        predictor.fit(load)
        return predictor

    def fitted_on_wave(self) -> Predictor:
        """Return a copy of one fitted on the first `KNOWN` steps of `diurnal`, because fitting takes long."""
        return deepcopy(self._on_wave)

    def fitted_on_level(self) -> Predictor:
        """Return a copy of one fitted on the level load."""
        return deepcopy(self._on_level)

    @cached_property
    def _on_wave(self) -> Predictor:
        return self.fitted(diurnal(KNOWN))

    @cached_property
    def _on_level(self) -> Predictor:
        return self.fitted(_level())


def diurnal(steps: int, step_s: float = STEP_S, level_rps: float = 100.0, first: int = 0) -> Load:
    """Return a day's wave with correlated noise, and peaks 10 to 40 % above the mean."""
    noise = np.convolve(np.random.default_rng(7).normal(0.0, 0.03, steps + 9), np.ones(10), "valid")
    wave = 0.5 * np.sin(2.0 * np.pi * step_s * np.arange(steps) / 86400.0)
    mean = level_rps * np.exp(wave + noise)
    return part(Load(0.0, step_s, mean, mean * np.random.default_rng(8).uniform(1.1, 1.4, steps)), first)


def part(load: Load, begin: int, end: int | None = None) -> Load:
    """Return steps `begin` to `end` in separate arrays."""
    start_s = load.start_s + begin * load.step_s
    return Load(start_s, load.step_s, load.mean_rps[begin:end].copy(), load.peak_rps[begin:end].copy())


def _level() -> Load:
    """Return two days around 80 requests/s, with peaks of 10 more."""
    noise = np.random.default_rng(5).normal(0.0, 3.0, 2 * DAY)
    return Load(0.0, STEP_S, 80.0 + noise, 90.0 + noise)


def constant(rates: FloatArray | list[float], step_s: float = STEP_S) -> Load:
    """Return these rates, with peaks 20 % above them."""
    return Load(0.0, step_s, np.array(rates, dtype=np.float64), 1.2 * np.array(rates, dtype=np.float64))


def assert_same(one: Forecast, other: Forecast, rtol: float = 0.0) -> None:
    """Assert that quantiles, paths, origin and name are equal."""
    assert (one.origin_s, one.step_s, one.predictor) == (other.origin_s, other.step_s, other.predictor)
    np.testing.assert_allclose(one.mean_rps, other.mean_rps, rtol=rtol)
    np.testing.assert_allclose(one.peak_rps, other.peak_rps, rtol=rtol)
    assert (one.paths_rps is None) == (other.paths_rps is None)
    if one.paths_rps is not None and other.paths_rps is not None:
        np.testing.assert_allclose(one.paths_rps, other.paths_rps, rtol=rtol)


def assert_sound(forecast: Forecast, steps: int) -> None:
    """Assert sound quantiles and paths.

    Quantiles are finite, not negative, not crossing, at the port's levels, with peaks not below means.
    """
    assert forecast.levels.tolist() == LEVELS.tolist()
    assert forecast.steps == steps
    for rates in (forecast.mean_rps, forecast.peak_rps):
        assert np.isfinite(rates).all()
        assert (rates >= 0.0).all()
        assert (np.diff(rates, axis=0) >= 0.0).all()
    assert (forecast.peak_rps >= forecast.mean_rps).all()
    if forecast.paths_rps is not None:
        assert forecast.paths_rps.shape[1] == steps
        assert np.isfinite(forecast.paths_rps).all()
        assert (forecast.paths_rps >= 0.0).all()


class PredictorContract:
    """Derive from this class and define a fixture `trial` that returns a `PredictorUnderTest`.

    A fixture outside of the class, with scope "module", saves time with predictors that are slow to fit.
    """

    def test_a_forecast_follows_the_load_and_has_the_steps_asked(self, trial: PredictorUnderTest) -> None:
        """The history begins neither at 0 nor on a multiple of the step."""
        seen = diurnal(DAY // 2)
        seen = Load(90.0, STEP_S, seen.mean_rps, seen.peak_rps)
        predictor = trial.fitted(seen)
        for steps in (1, 60, 120):
            forecast = predictor.predict(steps)
            assert_sound(forecast, steps)
            assert (forecast.origin_s, forecast.step_s, forecast.predictor) == (seen.end_s, STEP_S, predictor.name)
        predictor.update(Load(seen.end_s, STEP_S, np.full(2, 50.0), np.full(2, 60.0)))
        assert predictor.predict(60).origin_s == seen.end_s + 2 * STEP_S

    @pytest.mark.parametrize("step_s", [60.0, 1800.0])
    def test_any_step_will_do(self, trial: PredictorUnderTest, step_s: float) -> None:
        """Minutes, with less than a day of history, and half hours, with a horizon of more than a day."""
        seen = diurnal(500 if step_s == 60.0 else 240, step_s)
        forecast = trial.fitted(seen).predict(60)
        assert_sound(forecast, 60)
        assert (forecast.origin_s, forecast.step_s) == (seen.end_s, step_s)

    @pytest.mark.parametrize(
        ("rates", "level_rps"),
        [([], 0.0), ([NAN] * 30, 0.0), ([0.0] * 400, 0.0), ([7.0], 7.0), ([7.0] * 400, 7.0), ([NAN, 7.0, NAN], 7.0)],
        ids=["empty", "missing", "zero", "one", "constant", "one-in-gaps"],
    )
    def test_a_history_without_news_is_no_error(
        self, trial: PredictorUnderTest, rates: list[float], level_rps: float
    ) -> None:
        """The known level stays: 0 for an empty history, one value for that value."""
        forecast = trial.fitted(constant(rates)).predict(60)
        assert_sound(forecast, 60)
        np.testing.assert_allclose(forecast.mean_at(0.5), level_rps, rtol=0.05, atol=1e-9)

    def test_it_learns_from_nothing(self, trial: PredictorUnderTest) -> None:
        """A predictor fitted on an empty history forecasts a constant rate after seeing it for a while."""
        predictor = trial.fitted(constant([]))
        predictor.update(constant([0.0, NAN, *[40.0] * 100]))
        forecast = predictor.predict(60)
        assert_sound(forecast, 60)
        assert forecast.origin_s == 102 * STEP_S
        np.testing.assert_allclose(forecast.mean_at(0.5), 40.0, rtol=0.1)

    def test_same_data_and_seed_same_bytes(self, trial: PredictorUnderTest) -> None:
        seen = diurnal(KNOWN)
        assert_same(trial.fitted(seen).predict(60), trial.fitted_on_wave().predict(60))

    def test_asking_changes_nothing(self, trial: PredictorUnderTest) -> None:
        """The next answer is the same. After the next step, so is the answer of a twin that was never asked."""
        seen = diurnal(KNOWN + 1)
        asked, twin = trial.fitted_on_wave(), trial.fitted_on_wave()
        assert_same(asked.predict(60), asked.predict(60))
        asked.predict(7)
        for predictor in (asked, twin):
            predictor.update(part(seen, KNOWN))
        assert_same(asked.predict(60), twin.predict(60))

    def test_steps_may_come_one_by_one_or_at_once(self, trial: PredictorUnderTest) -> None:
        """One gap is among the steps. Sums in another order may differ in the last digits."""
        seen = diurnal(KNOWN + 80)
        seen.mean_rps[KNOWN + 20 : KNOWN + 30] = seen.peak_rps[KNOWN + 20 : KNOWN + 30] = NAN
        at_once, in_pieces = trial.fitted_on_wave(), trial.fitted_on_wave()
        at_once.update(part(seen, KNOWN))
        for k in range(KNOWN, len(seen)):
            in_pieces.update(part(seen, k, k + 1))
        assert_same(at_once.predict(60), in_pieces.predict(60), rtol=1e-9)

    def test_what_was_handed_over_is_not_kept(self, trial: PredictorUnderTest) -> None:
        """The caller may change its arrays afterwards."""
        seen, more = diurnal(DAY // 2), diurnal(DAY // 2 + 20, first=DAY // 2)
        predictor = trial.fitted(seen)
        predictor.update(more)
        before = predictor.predict(60)
        for load in (seen, more):
            load.mean_rps[:] = load.peak_rps[:] = 1e6
        assert_same(predictor.predict(60), before)

    def test_nothing_handed_over_is_written_to(self, trial: PredictorUnderTest) -> None:
        """Read-only arrays are accepted, and a forecast does not change when the next is made."""
        seen, more = diurnal(DAY // 2), diurnal(DAY // 2 + 20, first=DAY // 2)
        for load in (seen, more):
            load.mean_rps.flags.writeable = load.peak_rps.flags.writeable = False
        predictor = trial.fitted(seen)
        forecast = predictor.predict(60)
        mean, peak = forecast.mean_rps.copy(), forecast.peak_rps.copy()
        predictor.update(more)
        predictor.predict(60)
        np.testing.assert_array_equal(forecast.mean_rps, mean)
        np.testing.assert_array_equal(forecast.peak_rps, peak)

    @pytest.mark.parametrize("gap", [6, DAY], ids=["half-an-hour", "a-day"])
    def test_a_gap_is_no_zero(self, trial: PredictorUnderTest, gap: int) -> None:
        """After a gap, in the history or after it, the forecast is near the level, with doubt on both sides."""
        flat = _level()
        missing = np.full(gap, NAN)
        after = trial.fitted_on_level()
        after.update(Load(flat.end_s, STEP_S, missing, missing))
        within = np.concatenate([flat.mean_rps, missing]), np.concatenate([flat.peak_rps, missing])
        for predictor in (after, trial.fitted(Load(0.0, STEP_S, *within))):
            forecast = predictor.predict(60)
            assert_sound(forecast, 60)
            assert forecast.origin_s == (2 * DAY + gap) * STEP_S
            np.testing.assert_allclose(forecast.mean_at(0.5), 80.0, rtol=0.2)
            assert forecast.mean_at(0.05).mean() > 50.0

    def test_ten_times_the_load_is_ten_times_the_forecast(self, trial: PredictorUnderTest) -> None:
        """No rate is large or small in absolute terms."""
        forecast = trial.fitted_on_wave().predict(60)
        tenfold = trial.fitted(diurnal(KNOWN, level_rps=1000.0)).predict(60)
        np.testing.assert_allclose(tenfold.mean_rps, 10.0 * forecast.mean_rps, rtol=trial.rtol)
        np.testing.assert_allclose(tenfold.peak_rps, 10.0 * forecast.peak_rps, rtol=trial.rtol)

    def test_far_ahead_it_is_less_sure(self, trial: PredictorUnderTest) -> None:
        """A random walk's 90 % interval, over several origins, is at least as wide at the last step as at the first."""
        if trial.certain:
            pytest.skip("all quantiles are equal")
        walk = 100.0 * np.exp(np.cumsum(np.random.default_rng(1).normal(0.0, 0.01, 2 * DAY)))
        seen = Load(0.0, STEP_S, walk, 1.2 * walk)
        predictor = trial.fitted(part(seen, 0, 3 * DAY // 2))
        widths = []
        for origin in range(3 * DAY // 2, 2 * DAY, 12):
            forecast = predictor.predict(60)
            widths.append(forecast.mean_rps[-1] - forecast.mean_rps[0])
            predictor.update(part(seen, origin, origin + 12))
        first, last = np.mean(widths, axis=0)[[0, -1]]
        assert first > 0.0
        assert last >= first

    def test_paths_are_where_the_quantiles_come_from(self, trial: PredictorUnderTest) -> None:
        """If there are paths, a share q of them lies below the quantile q in every step."""
        if trial.certain:
            pytest.skip("all quantiles are equal")
        forecast = trial.fitted_on_wave().predict(60)
        paths = forecast.paths_rps
        if paths is None:
            pytest.skip("has no sample paths")
        assert paths.shape[0] >= 50
        below = (paths[:, None, :] <= forecast.mean_rps * (1.0 + 1e-9)).mean(axis=0)
        # The standard deviation of a share of 50 draws is at most 0.07.
        assert np.abs(below - LEVELS[:, None]).max() < 0.2
        assert np.abs(below - LEVELS[:, None]).mean() < 0.05
        assert len(np.unique(paths, axis=0)) > paths.shape[0] // 2

    def test_what_was_learned_can_be_kept(self, trial: PredictorUnderTest) -> None:
        """A predictor restored with the state and fitted on the same history forecasts the same, also after updates."""
        seen = diurnal(KNOWN + 20)
        learned = trial.fitted_on_wave()
        if not isinstance(learned, Savable):
            pytest.skip("has nothing worth keeping")
        restored = trial.make()
        assert isinstance(restored, Savable)
        with pytest.raises(ValueError, match=r".+"):
            restored.state()
        with pytest.raises(ValueError, match=r".+"):
            restored.restore({"other": np.zeros(3)})
        state = {key: np.array(values) for key, values in learned.state().items()}
        restored.restore(state)
        restored.fit(part(seen, 0, KNOWN))
        assert restored.version == learned.version
        assert_same(restored.predict(60), learned.predict(60), rtol=1e-9)
        for predictor in (restored, learned):
            predictor.update(part(seen, KNOWN))
        assert_same(restored.predict(60), learned.predict(60), rtol=1e-9)
        # The restored predictor has its own copy of the state.
        for values in state.values():
            values.fill(0)
        assert_same(restored.predict(60), learned.predict(60), rtol=1e-9)
        assert {key: values.tolist() for key, values in restored.state().items()} == {
            key: values.tolist() for key, values in learned.state().items()
        }
