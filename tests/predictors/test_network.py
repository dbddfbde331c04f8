"""The promises of both torch predictors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_predictors.load_history import ObservedHistory

from mark.domain.arrays import FloatArray
from mark.domain.load import LEVELS, Load
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.predictor import State, Trainable
from tests.late_imports import bring
from tests.samples import first

if TYPE_CHECKING:
    import torch
    from mark_predictors import network
    from mark_predictors.lstm import Lstm
    from mark_predictors.lstm_quantile import LstmQuantile
    from mark_predictors.network import NetworkPredictor, Shape

    from tests.predictors.constant_network import Constant


BOTH = pytest.mark.parametrize("make", first(1, ["LstmQuantile", "Lstm"]), indirect=True)
NAN = float("nan")


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    bring(
        globals(),
        "torch",
        "mark_predictors:network",
        "mark_predictors.lstm:Lstm",
        "mark_predictors.lstm_quantile:LstmQuantile",
        "mark_predictors.network:NetworkPredictor",
        "mark_predictors.network:Shape",
        "tests.predictors.constant_network:Constant",
    )


@pytest.fixture(scope="module")
def make(request: pytest.FixtureRequest) -> type[NetworkPredictor]:
    found: type[NetworkPredictor] = globals()[request.param]
    return found


def load(rates: FloatArray, first_step: int = 0, step_s: float = 60.0) -> Load:
    rates = np.asarray(rates, dtype=np.float64)
    return Load(first_step * step_s, step_s, rates, 1.5 * rates)


def traffic(steps: int, seed: int = 0, level: float = 50.0) -> FloatArray:
    """Return a daily wave, a burst in every hour, and noise."""
    at = np.arange(steps)
    wave = level * (1.0 + 0.4 * np.sin(at * 2.0 * np.pi / 1440.0)) * np.where(at % 60 < 5, 3.0, 1.0)
    return np.asarray(wave * np.random.default_rng(seed).gamma(100.0, 0.01, steps))


@pytest.fixture(scope="module")
def trained() -> dict[type[NetworkPredictor], NetworkPredictor]:
    """Return each predictor after two epochs: enough for all tests but those of accuracy."""
    found: dict[type[NetworkPredictor], NetworkPredictor] = {}
    for make in (Lstm, LstmQuantile):
        found[make] = make(epochs=2)
        found[make].fit(load(traffic(2000)))
    return found


@pytest.fixture(scope="module")
def states(trained: dict[type[NetworkPredictor], NetworkPredictor]) -> dict[type[NetworkPredictor], State]:
    """Return each predictor's learned state."""
    return {make: predictor.state() for make, predictor in trained.items()}


def same(one: State, other: State) -> bool:
    return set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)


@BOTH
def test_the_seed_decides_everything_and_nothing_global_is_left_changed(make: type[NetworkPredictor]) -> None:
    """Random numbers drawn elsewhere, before or between, change nothing."""
    threads, before = torch.get_num_threads(), torch.random.get_rng_state()
    one, other, third = make(3, epochs=1), make(3, epochs=1), make(4, epochs=1)
    one.fit(load(traffic(700), step_s=1800.0))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    torch.rand(3)
    other.fit(load(traffic(700), step_s=1800.0))
    third.fit(load(traffic(700), step_s=1800.0))
    assert same(one.state(), other.state())
    assert not same(one.state(), third.state())


@pytest.mark.slow
@BOTH
def test_a_resumed_training_ends_like_an_unbroken_one(make: type[NetworkPredictor]) -> None:
    """Weights, moments, the best so far and the epoch's draws all come back from the checkpoint."""
    history = load(traffic(700), step_s=1800.0)
    whole, first, second = make(1, epochs=3), make(1, epochs=3), make(1, epochs=3)
    every = list(whole.training(history))
    begun = first.training(history)
    next(begun)
    rest = list(second.training(history, dict(first.checkpoint())))
    assert [epoch.number for epoch in every] == [1, 2, 3]
    assert rest == every[1:]
    assert same(whole.state(), second.state())


def test_a_training_that_no_longer_helps_stops() -> None:
    """On noise without a pattern the validation loss soon stops falling."""
    noise = np.random.default_rng(6).gamma(4.0, 10.0, 620)
    epochs = list(Constant(epochs=200).training(load(noise, step_s=43200.0)))
    losses = [epoch.validation_loss for epoch in epochs]
    assert len(epochs) < 200
    assert int(np.argmin(losses)) < len(losses) - 10


@BOTH
def test_what_was_learned_is_taken_over_without_training(
    make: type[NetworkPredictor],
    trained: dict[type[NetworkPredictor], NetworkPredictor],
    states: dict[type[NetworkPredictor], State],
) -> None:
    """After `restore`, `fit` only takes its history, and the forecast equals that of the trained predictor."""
    learned, fresh = trained[make], make(7)
    fresh.restore(states[make])
    fresh.fit(load(traffic(2000)))
    assert same(fresh.state(), states[make])
    np.testing.assert_array_equal(fresh.predict(60).peak_rps, learned.predict(60).peak_rps)
    assert isinstance(fresh, Trainable)


@BOTH
def test_a_state_that_is_none_is_refused(
    make: type[NetworkPredictor], states: dict[type[NetworkPredictor], State]
) -> None:
    """An array that is missing, of another shape, or of the other network."""
    state = dict(states[make])
    lacking = {name: array for name, array in state.items() if name != "net/encoder.lstm.weight_hh_l0"}
    other = states[Lstm if make is LstmQuantile else LstmQuantile]
    for bad in (lacking, other, {}, {**state, "ranks": np.zeros((3, 7))}, {**state, "shape": np.zeros(2)}):
        with pytest.raises(ValueError, match="not a state"):
            make().restore(bad)
    with pytest.raises(ValueError, match="not trained"):
        make().state()
    with pytest.raises(ValueError, match="no training"):
        make().checkpoint()
    with pytest.raises(ValueError, match="not a checkpoint"):
        list(make().training(load(traffic(700)), {"progress": np.zeros(3)}))


@BOTH
@pytest.mark.parametrize("rates", [[], [NAN, NAN], [5.0], [5.0, NAN, 5.0, 5.0], [0.0] * 50])
def test_a_short_history_is_forecast_as_the_last_value(make: type[NetworkPredictor], rates: list[float]) -> None:
    """The forecast has the predictor's own name, because nothing failed."""
    predictor, simple = make(), LastValue()
    for one in (predictor, simple):
        one.fit(load(np.array(rates)))
        one.update(load(np.array([7.0]), len(rates)))
    forecast = predictor.predict(30)
    assert forecast.predictor == predictor.name
    np.testing.assert_array_equal(forecast.mean_rps, simple.predict(30).mean_rps)


@BOTH
@pytest.mark.parametrize("rates", [[], [NAN] * 300])
def test_before_anything_was_observed_nothing_is_expected(
    make: type[NetworkPredictor], states: dict[type[NetworkPredictor], State], rates: list[float]
) -> None:
    """This holds even if it learned from another history."""
    predictor = make()
    predictor.restore(states[make])
    predictor.fit(load(np.array(rates)))
    assert predictor.predict(60).mean_rps.max() == 0.0


@BOTH
@settings(max_examples=15)
@given(
    rates=st.lists(st.one_of(st.floats(0.0, 1e6), st.just(NAN)), max_size=90),
    repeated=st.integers(1, 20),
    steps=st.integers(1, 150),
    cut=st.integers(0, 90),
)
def test_whatever_was_seen_the_answer_is_a_forecast(
    make: type[NetworkPredictor],
    states: dict[type[NetworkPredictor], State],
    rates: list[float],
    repeated: int,
    steps: int,
    cut: int,
) -> None:
    """It is finite, not negative and does not cross (Forecast checks that); load may come in pieces or together."""
    series = np.tile(np.array(rates), repeated)
    at_once, pieces = make(), make()
    for predictor in (at_once, pieces):
        predictor.restore(states[make])
    at_once.fit(load(series))
    pieces.fit(load(series[:cut]))
    pieces.update(load(series[cut:], min(cut, len(series))))
    forecast, again = at_once.predict(steps), pieces.predict(steps)
    assert forecast.steps == steps
    assert forecast.origin_s == 60.0 * len(series)
    np.testing.assert_array_equal(forecast.mean_rps, again.mean_rps)
    if forecast.paths_rps is not None:
        assert np.all(np.isfinite(forecast.paths_rps))
        assert forecast.paths_rps.min() >= 0.0


@BOTH
@pytest.mark.parametrize(("step_s", "horizon"), [(20.0, 60), (300.0, 12), (1800.0, 12), (43200.0, 2)])
def test_steps_of_any_length_can_be_learned(make: type[NetworkPredictor], step_s: float, horizon: int) -> None:
    """Further ahead than it learned it is less sure, not mistaken."""
    predictor = make(epochs=1)
    predictor.fit(load(traffic(700), step_s=step_s))
    assert predictor.state()["corrections"].shape == (horizon, 2, 19)
    forecast = predictor.predict(80)
    assert forecast.step_s == step_s
    logs = np.log(forecast.mean_rps + 1.0 / step_s)
    widths = logs[-1] - logs[0]
    assert widths[-1] > 1.1 * widths[horizon - 1]


@BOTH
def test_a_learned_step_is_not_mistaken_for_another(
    make: type[NetworkPredictor], states: dict[type[NetworkPredictor], State]
) -> None:
    """A state learned from minutes does not apply to half hours, so the predictor is trained again."""
    predictor = make(epochs=1)
    predictor.restore(states[make])
    predictor.fit(load(traffic(700), step_s=1800.0))
    assert float(predictor.state()["shape"][0]) == 1800.0


@BOTH
def test_ten_times_the_load_looks_the_same(
    make: type[NetworkPredictor], states: dict[type[NetworkPredictor], State]
) -> None:
    """Levels differ a hundredfold between services; a network sees them relative to its window."""
    forecasts = []
    for times in (1.0, 64.0):
        predictor = make()
        predictor.restore(states[make])
        predictor.fit(load(times * 1000.0 + times * traffic(900)))
        forecasts.append(predictor.predict(60).mean_rps / times)
    np.testing.assert_allclose(forecasts[0], forecasts[1], rtol=1e-3)


@BOTH
def test_a_gap_is_no_zero(make: type[NetworkPredictor]) -> None:
    """The forecast after a gap of twenty minutes is of the level before it."""
    rates = np.full(900, 80.0)
    rates[300:340] = rates[-20:] = NAN
    predictor = make(epochs=3)
    predictor.fit(load(rates))
    np.testing.assert_allclose(predictor.predict(60).mean_at(0.5), 80.0, rtol=0.1)


@BOTH
def test_paths_have_the_quantiles_as_their_marginals(
    make: type[NetworkPredictor], states: dict[type[NetworkPredictor], State]
) -> None:
    """At every step the share of paths below a quantile is its level."""
    predictor = make()
    predictor.restore(states[make])
    predictor.fit(load(traffic(900)))
    forecast = predictor.predict(90)
    paths = forecast.paths_rps
    assert paths is not None
    below = (paths[:, None, :] < forecast.mean_rps[1:-1] - 1e-9).mean(axis=0)
    np.testing.assert_allclose(below, np.broadcast_to(LEVELS[1:-1, None], below.shape), atol=1.5 / len(paths) + 0.05)


def test_a_window_sees_nothing_of_what_comes_after_it() -> None:
    """For any step, the inputs do not depend on the future; only the truth does."""
    for step_s in (60.0, 300.0, 1800.0, 7200.0, 43200.0):
        rates = traffic(1000)
        other = rates.copy()
        other[701:] = np.random.default_rng(1).gamma(1.0, 300.0, 299)
        shape = Shape.of(load(rates, step_s=step_s))
        one, changed = (
            network._Table(ObservedHistory(load(series, step_s=step_s)), shape, 0, 1000, torch.device("cpu")).batch(
                np.array([700 - 199]), np.array([119, 199])
            )
            for series in (rates, other)
        )
        assert torch.equal(one.ahead, changed.ahead)
        assert torch.equal(one.inputs[:, :200], changed.inputs[:, :200])
        assert torch.equal(one.reference, changed.reference)
        assert not torch.equal(one.truth[:, 1], changed.truth[:, 1])


def test_a_forecast_sees_what_training_saw() -> None:
    """The same origin has the same inputs, at the end of the known load and in the middle of it."""
    rates = traffic(4000)
    rates[3300:3310] = NAN
    shape = Shape.of(load(rates))
    cpu, begin, end = torch.device("cpu"), 3500 - network.WINDOW, np.array([network.WINDOW - 1])
    live = network._Table(ObservedHistory(load(rates[:3500])), shape, begin, 3560, cpu).batch(np.array([0]), end)
    past = network._Table(ObservedHistory(load(rates)), shape, 0, 4000, cpu).batch(np.array([begin]), end)
    assert torch.equal(live.inputs, past.inputs)
    assert torch.equal(live.ahead, past.ahead)
    assert torch.equal(live.reference, past.reference)
    assert torch.isnan(live.truth).all()
    expected = np.log(rates[3500:3560] + 1.0 / 60.0) - float(past.reference[0])
    np.testing.assert_allclose(past.truth[0, 0, :, 0].numpy(), expected, atol=1e-5)


def test_pinball_is_its_naive_loop() -> None:
    """Steps with unknown truth have no loss."""
    rng = np.random.default_rng(0)
    predicted, truth = rng.normal(size=(7, 3, 19)), rng.normal(size=(7, 3))
    truth[2, 1] = NAN
    losses = []
    for i in range(7):
        for j in range(3):
            for q, level in enumerate(LEVELS):
                error = truth[i, j] - predicted[i, j, q]
                if not np.isnan(error):
                    losses.append(level * error if error > 0.0 else (level - 1.0) * error)
    found = network.pinball(torch.tensor(predicted), torch.tensor(truth), torch.tensor(LEVELS))
    assert found.item() == pytest.approx(np.mean(losses))
    assert network.pinball(torch.zeros(2, 19), torch.full((2,), NAN), torch.tensor(LEVELS)).item() == 0.0


@pytest.mark.parametrize("levels", [1, 19])
def test_corrections_put_the_right_share_of_truth_below_each_level(levels: int) -> None:
    """They equal a naive loop: at every step, row and level the quantile of the errors."""
    rng = np.random.default_rng(0)
    predicted, truth = np.sort(rng.normal(size=(40, 3, 2, levels))), rng.normal(3.0, 1.0, size=(40, 3, 2))
    truth[5, 1, 0] = NAN
    found = network._corrections(predicted, truth)
    for h in range(3):
        for row in range(2):
            for q, level in enumerate(LEVELS):
                errors = truth[:, h, row] - predicted[:, h, row, min(q, levels - 1)]
                assert found[h, row, q] == pytest.approx(np.nanquantile(errors, level))


def test_ranks_keep_the_order_of_what_came() -> None:
    """Each column holds every rank once; a truth above another in the same quantiles has the higher rank."""
    rng = np.random.default_rng(0)
    logs = np.broadcast_to(np.linspace(-1.0, 1.0, 19), (50, 4, 19))
    truth = rng.normal(0.0, 1.0, (50, 4))
    ranks = network._ranks(logs, truth)
    np.testing.assert_array_equal(np.sort(ranks, axis=0)[:, 0], (np.arange(50) + 0.5) / 50)
    np.testing.assert_array_equal(np.argsort(ranks, axis=0), np.argsort(truth, axis=0))
