"""The backtest: the load that predictors get and when, its refusals, its scores and its files."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load import LEVELS, Forecast, Load
from mark.traffic.forecast.backtest import COLUMNS, Backtest, BacktestReplay, Split, backtest, split
from mark.traffic.forecast.perfect import PerfectPredictor
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.trace import Trace

NAN = float("nan")


def trace(rates: FloatArray, bin_s: float = 60.0) -> Trace:
    """Return a trace of these rates (requests/s); NaN is a gap."""
    starts = np.arange(len(rates)) * bin_s
    known = np.isfinite(rates)
    return trace_of_bins("t.csv", np.asarray(starts[known], np.float64), rates[known] * bin_s, bin_s)


def counting(steps: int) -> FloatArray:
    """Step k has the rate k: any shift shows."""
    return np.arange(steps, dtype=np.float64)


class Fake:
    """A predictor that gives `answer(origin's step, steps)` at every level and keeps the load that it gets."""

    name = "fake"

    def __init__(self, answer: Callable[[int, int], FloatArray] = lambda at, steps: np.zeros(steps)) -> None:
        self._answer = answer
        self.handed: list[Load] = []
        self.asked_at: list[int] = []  # how many loads had been handed over at each forecast

    def fit(self, history: Load) -> None:
        self.handed.append(history)

    def update(self, observed: Load) -> None:
        self.handed.append(observed)

    def predict(self, steps: int) -> Forecast:
        self.asked_at.append(len(self.handed))
        last = self.handed[-1]
        rates = np.ones((19, 1)) * self._answer(round(last.end_s / last.step_s), steps)
        return Forecast(last.end_s, last.step_s, LEVELS, rates, rates, self.name)


def scored(found: Backtest, name: str = "fake") -> Any:
    return found.scores[name]


# -- the split ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "start_s", "train", "origins", "last_s"),
    [
        ({}, 3000.0, 50, 10, 5700.0),  # the middle, and all before it
        ({"train_s": 1200.0}, 1200.0, 20, 16, 5700.0),  # the first 1200 s
        ({"start_s": 3600.0}, 3600.0, 60, 8, 5700.0),
        ({"start_s": 3600.0, "train_s": 600.0}, 3600.0, 10, 8, 5700.0),
        ({"start_s": 3600.0, "train_s": 9000.0, "duration_s": 601.0}, 3600.0, 60, 3, 4200.0),
        ({"start_s": 0.0, "duration_s": 60.0}, 0.0, 0, 1, 0.0),
    ],
)
def test_what_is_learned_and_what_is_judged(
    given: dict[str, float], start_s: float, train: int, origins: int, last_s: float
) -> None:
    """100 minutes: learn from [start - train, start), then an origin every 300 s of the part."""
    cut = split(trace(counting(100) + 1.0), **given)
    assert (cut.start_s, cut.train, len(cut.origins)) == (start_s, train, origins)
    assert cut.at_s(cut.origins[0]) == start_s
    assert cut.at_s(cut.origins[-1]) == last_s
    assert cut.load.start_s == start_s - 60.0 * train
    assert len(cut.load) == cut.origins[-1] + 60


@pytest.mark.parametrize(
    ("bin_s", "step_s", "steps", "every_s"),
    [(5.0, 60.0, 60, 300.0), (60.0, 60.0, 60, 300.0), (300.0, 300.0, 12, 300.0), (1800.0, 1800.0, 2, 1800.0)],
)
def test_steps_and_origins_follow_the_bins(bin_s: float, step_s: float, steps: int, every_s: float) -> None:
    cut = split(trace(np.ones(1000), bin_s))
    assert (cut.load.step_s, cut.steps, cut.origins.step * step_s) == (step_s, steps, every_s)
    assert cut.load.fine == (bin_s == 5.0)


def test_truth_reaches_beyond_the_part_within_the_trace() -> None:
    """Every origin of a part in the middle is thus scored over its whole horizon, except beyond the trace's end."""
    inside = split(trace(counting(200)), start_s=3000.0, duration_s=600.0)
    assert np.isfinite(inside.load.mean_rps).all()
    assert inside.load.mean_rps[-1] == 50 + 5 + 60 - 1
    beyond = split(trace(counting(100)), start_s=3000.0)
    assert np.flatnonzero(np.isnan(beyond.load.mean_rps)).tolist() == list(range(100, 155))


def test_a_step_cut_by_the_trace_end_is_not_truth() -> None:
    """3.5 minutes after the start: the half one is never over."""
    cut = split(trace(np.ones(14), 30.0), start_s=210.0, train_s=0.0)
    assert np.isfinite(cut.load.mean_rps).sum() == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start_s": 6000.0}, "start_s: beyond the end"),
        ({"train_s": 6000.0}, "train_s: leaves nothing of t.csv to judge"),
        ({"horizon_s": 0.0}, "horizon_s: must be above zero"),
        ({"horizon_s": 1e9}, "horizon_s: more than 10,080 steps of 60 s ahead"),
        ({"start_s": 5970.0}, "t.csv: less than one step of 60 s to judge"),
    ],
)
def test_a_part_that_is_not_there_is_bad_input(given: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        split(trace(counting(100)), **given)


# -- alignment ---------------------------------------------------------------------------------------------------------


def test_the_kth_answer_meets_the_kth_step() -> None:
    """Step k of the trace has the rate k. Forecasting k is always right; a step late errs by one, everywhere."""
    cut = split(trace(counting(3000)), start_s=90_000.0)
    right, late = (
        backtest(cut, {"fake": Fake(lambda at, steps, by=by: at + np.arange(steps) - by)})  # type: ignore[misc]
        for by in (0.0, 1.0)
    )
    assert scored(right).crps == 0.0
    assert scored(right).coverage_90 == 1.0
    assert scored(late).crps == pytest.approx(1.0)
    assert scored(late).coverage_90 == 0.0


def test_horizons_are_told_apart() -> None:
    """The truth is 1 and the h-th answer 1 + h: the error at the h-th step, which ends 60 (h + 1) s ahead, is h."""
    rows = scored(backtest(split(trace(np.ones(200))), {"fake": Fake(lambda at, steps: np.arange(1.0, 1.0 + steps))}))
    assert [row["horizon_s"] for row in rows.by_horizon] == [60.0 * (h + 1) for h in range(60)]
    assert [row["crps"] for row in rows.by_horizon] == pytest.approx(list(range(60)))


def test_load_is_handed_over_once_and_in_order() -> None:
    """The history comes first, then each step; at every origin exactly the past was handed over."""
    rates = np.where(counting(200) % 7 == 3, NAN, counting(200))
    cut = split(trace(rates), start_s=6000.0, train_s=3000.0)
    fake = Fake()
    backtest(cut, {"fake": fake})
    assert [len(load) for load in fake.handed] == [50] + [1] * (len(fake.handed) - 1)
    assert all(a.end_s == b.start_s for a, b in zip(fake.handed, fake.handed[1:], strict=False))
    seen = np.concatenate([load.mean_rps for load in fake.handed])
    assert np.array_equal(seen, rates[50 : 50 + len(seen)], equal_nan=True)
    assert fake.asked_at == [1 + 5 * k for k in range(len(cut.origins))]


# -- leakage -----------------------------------------------------------------------------------------------------------


def owners(array: Any) -> list[Any]:
    """Return the array and every array whose memory it borrows."""
    chain = [array]
    while getattr(chain[-1], "base", None) is not None:
        chain.append(chain[-1].base)
    return chain


def test_behind_what_a_predictor_is_handed_there_is_no_future() -> None:
    """A predictor that walks up `.base` finds only the load that it was handed."""
    cut = split(trace(counting(200)))
    fake = Fake()
    backtest(cut, {"fake": fake})
    for load in fake.handed:
        for rates in (load.mean_rps, load.peak_rps):
            assert all(owner.size == len(load) for owner in owners(rates))
            assert not np.shares_memory(rates, cut.load.mean_rps)
            assert not np.shares_memory(rates, cut.load.peak_rps)


def test_a_predictor_cannot_change_the_truth() -> None:
    class Spoiler(Fake):
        def update(self, observed: Load) -> None:
            super().update(observed)
            observed.mean_rps[:] = 0.0

    cut = split(trace(counting(200) + 1.0))
    before = cut.load.mean_rps.copy()
    backtest(cut, {"fake": Spoiler()})
    assert np.array_equal(cut.load.mean_rps, before, equal_nan=True)


def forecasts(
    make: Callable[[], Predictor], cut: Split, driver: Callable[..., Any] = BacktestReplay
) -> list[FloatArray]:
    return [forecast.mean_rps for forecast in driver("p", make(), cut)]


def leaks(make: Callable[[], Predictor], driver: Callable[..., Any] = BacktestReplay) -> bool:
    """Do two traces that part at second 9000 get different forecasts up to it?"""
    one, other = counting(200), counting(200)
    other[150:] = 7.0
    mine, theirs = (forecasts(make, split(trace(rates)), driver) for rates in (one, other))
    before = 11  # origins at 6000, 6300, ... 9000
    assert not all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))  # or the load was not looked at
    return not all(np.array_equal(a, b) for a, b in zip(mine[:before], theirs[:before], strict=True))


class Greedy(Fake):
    """Says the last thing that it can get hold of."""

    def predict(self, steps: int) -> Forecast:
        last = owners(self.handed[-1].mean_rps)[-1].ravel()
        self._answer = lambda at, steps: np.full(steps, last[np.isfinite(last)][-1])
        return super().predict(steps)


def views(name: str, predictor: Predictor, cut: Split) -> Any:
    """Hand over slices of the whole load, which is wrong."""
    load = cut.load
    for origin in cut.origins:
        predictor.fit(Load(load.start_s, load.step_s, load.mean_rps[:origin], load.peak_rps[:origin]))
        yield predictor.predict(cut.steps)


def a_step_early(name: str, predictor: Predictor, cut: Split) -> Any:
    """Hand over the step that begins at the origin before the forecast, which is wrong."""
    for origin in cut.origins:
        predictor.fit(cut.seen(0, origin + 1))
        yield predictor.predict(cut.steps)


@pytest.mark.parametrize("name", ["seasonal-naive", "auto", "artefact"])
def test_no_forecast_depends_on_what_comes_after_its_origin(name: str) -> None:
    """Two traces that are equal up to an origin give equal forecasts up to it."""
    assert not leaks(lambda: make_predictor(name, 0))


def test_the_leak_test_finds_leaks() -> None:
    """A predictor that takes all it can get finds no future in the replay, and does in drivers that leak."""
    assert not leaks(Greedy)
    assert leaks(Greedy, views)
    assert leaks(Greedy, a_step_early)


def test_a_predictor_that_was_handed_the_future_is_refused() -> None:
    """Its observed load ends later than the origin, so its forecasts begin later too."""
    cut = split(trace(counting(200)))

    class Informed(Fake):
        def fit(self, history: Load) -> None:
            super().fit(cut.seen(0, cut.train + 60))

    with pytest.raises(BadInput, match=r"predictor oracle: its forecast's origin_s must be 6000: 9600\.0"):
        backtest(cut, {"oracle": Informed()})


# -- refusals
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda f: Forecast(f.origin_s + 60.0, f.step_s, f.levels, f.mean_rps, f.peak_rps, "x"), "origin_s"),
        (lambda f: Forecast(f.origin_s, 300.0, f.levels, f.mean_rps, f.peak_rps, "x"), "step_s must be 60: 300"),
        (lambda f: Forecast(f.origin_s, 60.0, f.levels, f.mean_rps[:, 1:], f.peak_rps[:, 1:], "x"), "steps must be 60"),
        (lambda f: Forecast(f.origin_s, 60.0, f.levels, f.mean_rps - 1.0, f.peak_rps, "x"), "failed to predict"),
        (lambda f: None, "origin_s"),
        (lambda f: dict[str, Any]()["no key"], r"failed to predict at second 6000: KeyError: 'no key'"),
    ],
)
def test_a_wrong_forecast_is_refused_by_name(wrong: Callable[[Forecast], Any], said: str) -> None:
    class Wrong(Fake):
        def predict(self, steps: int) -> Any:
            return wrong(super().predict(steps))

    with pytest.raises(BadInput, match=f"predictor mine: .*{said}"):
        backtest(split(trace(counting(200))), {"mine": Wrong()})


@pytest.mark.parametrize(("method", "said"), [("fit", "fit at second 6000"), ("update", "update at second 6060")])
def test_a_predictor_that_raises_is_named_with_the_place(method: str, said: str) -> None:
    def broken(load: Load) -> None:
        raise ZeroDivisionError("boom")

    fake = Fake()
    setattr(fake, method, broken)
    with pytest.raises(BadInput, match=f"predictor mine: failed to {said}: ZeroDivisionError: boom") as caught:
        backtest(split(trace(counting(200))), {"mine": fake})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# -- scores ------------------------------------------------------------------------------------------------------------


def test_perfect_foresight_scores_zero_and_covers_all() -> None:
    rates = 5.0 + np.sin(counting(3000))
    cut = split(trace(rates, 5.0))
    score = scored(backtest(cut, {"fake": PerfectPredictor(cut.load)}))
    assert (score.crps, score.mase, score.peak_crps) == (0.0, 0.0, 0.0)
    assert (score.coverage_50, score.coverage_90) == (1.0, 1.0)


def test_mase_divides_by_the_training_error_of_the_day_before() -> None:
    """Learned: two days, the second 3 above the first. Judged: always 6 off. MASE is 2."""
    day = 10.0 + counting(1440) % 60
    rates = np.concatenate([day, day + 3.0, np.full(300, 50.0)])
    found = backtest(split(trace(rates), start_s=2 * 86400.0), {"fake": Fake(lambda at, steps: np.full(steps, 44.0))})
    assert found.mase_lag == "day"
    assert scored(found).mase == pytest.approx(2.0)


def test_without_a_day_mase_divides_by_the_last_value_error() -> None:
    """The rate rises by 1 a step, and forecasts are always 6 off. Without any history, MASE is undefined."""
    found = backtest(
        split(trace(counting(600))), {"fake": Fake(lambda at, steps: np.arange(at + 6.0, at + steps + 6.0))}
    )
    assert found.mase_lag == "step"
    assert scored(found).mase == pytest.approx(6.0)
    alone = backtest(split(trace(counting(600)), start_s=0.0), {"artefact": make_predictor("artefact", 0)})
    assert alone.mase_lag is None
    assert math.isnan(scored(alone, "artefact").mase)


def test_missing_truth_is_not_scored() -> None:
    """A gap is not a zero, and nothing is scored beyond the trace's end."""
    rates = np.where(counting(200) % 4 == 1, NAN, 1.0)
    score = scored(backtest(split(trace(rates)), {"fake": Fake(lambda at, steps: np.ones(steps))}))
    assert score.crps == 0.0
    assert score.coverage_90 == 1.0


def test_the_peak_is_scored_where_bins_are_fine() -> None:
    """Bins of 5 s: the mean is 2, the peak 13 (one bin in twelve); a forecast of 2 for both errs by 11."""
    fine = np.where(counting(12 * 200) % 12 == 0, 13.0, 1.0)
    two = Fake(lambda at, steps: np.full(steps, 2.0))
    score = scored(backtest(split(trace(fine, 5.0)), {"fake": two}))
    assert score.crps == pytest.approx(0.0)
    assert score.peak_crps == pytest.approx(11.0)
    coarse = Fake(lambda at, steps: np.full(steps, 2.0))
    assert math.isnan(scored(backtest(split(trace(np.full(200, 2.0))), {"fake": coarse})).peak_crps)


def test_other_levels_are_brought_to_ours() -> None:
    """A predictor that gives three quantiles of a uniform distribution is scored as one that gives nineteen."""

    class Three(Fake):
        levels = np.array([0.05, 0.5, 0.95])

        def predict(self, steps: int) -> Forecast:
            origin_s = self.handed[-1].end_s
            rates = 100.0 * self.levels[:, None] * np.ones(steps)
            return Forecast(origin_s, 60.0, self.levels, rates, rates, "three")

    class Nineteen(Three):
        levels = LEVELS

    rates = np.random.default_rng(0).uniform(0.0, 100.0, 400)
    found = backtest(split(trace(rates)), {"three": Three(), "nineteen": Nineteen()})
    assert scored(found, "three").crps == pytest.approx(scored(found, "nineteen").crps)
    assert scored(found, "three").coverage_90 == pytest.approx(0.9, abs=0.05)
    assert scored(found, "three").coverage_50 == pytest.approx(0.5, abs=0.08)


def test_forecasts_are_counted_by_their_predictor() -> None:
    """A fallback bears another name."""

    class Tired(Fake):
        def predict(self, steps: int) -> Forecast:
            self.name = "fallback" if len(self.asked_at) >= 3 else "fake"
            return super().predict(steps)

    found = backtest(split(trace(np.ones(200))), {"fake": Tired()})
    assert scored(found).made_by == {"fake": 3, "fallback": len(found.split.origins) - 3}


def test_the_share_done_is_told() -> None:
    shares: list[float] = []
    backtest(split(trace(np.ones(120))), {"a": Fake(), "b": Fake()}, progress=shares.append)
    assert shares == pytest.approx([(k + 1) / 24 for k in range(24)])


def test_the_json_is_the_stable_object() -> None:
    data = backtest(split(trace(np.ones(120))), {"fake": Fake()}).as_json()
    assert (data["schema"], data["trace"], data["train_s"], data["origins"]) == (1, "t.csv", 3600.0, 12)
    score = data["predictors"]["fake"]
    assert {"mase", "crps", "coverage", "by_horizon", "fit_s", "update_ms", "predict_ms"} <= set(score)
    assert set(score["coverage"]) == {"0.5", "0.9"}
    assert {"horizon_s", "crps", "coverage_90"} <= set(score["by_horizon"][0])


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_alone_gives_the_same_crps(tmp_path: Path) -> None:
    """The file suffices to score again: rows joined with the trace by target_s, and a loop over levels."""
    rates = np.random.default_rng(1).gamma(5.0, 10.0, 1600)
    rates[1560:1570] = NAN
    path = str(tmp_path / "f.csv.gz")
    cut = split(trace(rates), start_s=90_000.0)
    found = backtest(cut, {name: make_predictor(name, 0) for name in ("seasonal-naive", "artefact")}, out=path)
    with gzip.open(path, "rt") as lines:
        header, *rows = [line.strip().split(",") for line in lines]
    assert ",".join(header) == COLUMNS
    assert len(rows) == 2 * len(cut.origins) * 60 * 19
    losses: dict[str, list[float]] = {"seasonal-naive": [], "artefact": []}
    for name, _, target_s, level_text, rate in rows:
        step = round(float(target_s) / 60.0)
        if step >= len(rates) or math.isnan(rates[step]):
            continue
        level, error = float(level_text), rates[step] - float(rate)
        losses[name].append(2.0 * max(level * error, (level - 1.0) * error))
    for name, values in losses.items():
        assert sum(values) / len(values) == pytest.approx(found.scores[name].crps, rel=1e-12)


def test_the_file_gives_the_same_coverage(tmp_path: Path) -> None:
    """50 requests a minute are a rate that no few digits hold: rounded, it would lie outside its own interval."""
    path, rate = tmp_path / "f.csv", 50.0 / 60.0
    found = backtest(split(trace(np.full(120, rate))), {"naive": make_predictor("seasonal-naive", 0)}, out=str(path))
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    assert {float(row[4]) for row in rows} == {rate}
    assert found.scores["naive"].coverage_90 == 1.0


def test_the_file_says_what_the_interface_says(tmp_path: Path) -> None:
    """Times from the trace's first row, the first target is the origin, levels 0.05 to 0.95, beyond the end too."""
    path = tmp_path / "f.csv"
    backtest(
        split(trace(counting(102)), start_s=6000.0),
        {"50%": Fake(lambda at, s: np.arange(float(at), at + s))},
        out=str(path),
    )
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    assert rows[0] == ["50%", "6000", "6000", "0.05", "100.0"]
    assert rows[20] == ["50%", "6000", "6060", "0.10", "101.0"]
    assert rows[-1] == ["50%", "6000", "9540", "0.95", "159.0"]
    assert [row[3] for row in rows[:19]] == [f"{k / 20:.2f}" for k in range(1, 20)]


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv.gz", tmp_path / "other.csv.gz"
    for path in (one, other):
        backtest(split(trace(np.ones(120))), {"fake": Fake()}, out=str(path))
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes()[4:8] == bytes(4)  # where gzip has its time stamp


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="out: cannot be written"):
        backtest(split(trace(np.ones(120))), {"fake": Fake()}, out=str(tmp_path))
