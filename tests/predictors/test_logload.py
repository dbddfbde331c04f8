from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_predictors.load_history import ObservedHistory
from mark_predictors.logload import LogLoad

from mark.domain.arrays import FloatArray
from mark.domain.load import Load

DAY = 24  # steps of an hour
STEP_S = 3600.0
NAN = float("nan")
SERIES = st.lists(st.one_of(st.floats(0.0, 1e5), st.just(NAN)), max_size=80)


def load(rates: FloatArray | list[float], step_s: float = STEP_S) -> Load:
    rates = np.array(rates, dtype=np.float64)
    return Load(0.0, step_s, rates, rates)


def logload(rates: FloatArray | list[float], step_s: float = STEP_S) -> LogLoad:
    return LogLoad(ObservedHistory(load(rates, step_s)))


def naive_rates(rates: list[float]) -> list[float]:
    """Return rates without gaps: from the day before (or two days, ...), else the newest before, else 0."""
    found: list[float] = []
    for k in range(len(rates)):
        at, newest = k, [value for value in rates[: k + 1] if not math.isnan(value)]
        while at >= 0 and math.isnan(rates[at]):
            at -= DAY
        found.append(rates[at] if at >= 0 else newest[-1] if newest else 0.0)
    return found


@settings(max_examples=60)
@given(rates=SERIES)
def test_holes_are_filled_as_a_loop_fills_them(rates: list[float]) -> None:
    """The floor is half a request a step, or a fiftieth of the mean."""
    found = logload(rates)
    known = [rate for rate in rates if not math.isnan(rate)]
    floor_rps = max(0.5 / STEP_S, 0.02 * sum(known) / len(known)) if known else 0.5 / STEP_S
    assert len(found) == len(rates)
    assert found.floor_rps == pytest.approx(floor_rps)
    np.testing.assert_allclose(found.logs, [math.log(rate + floor_rps) for rate in naive_rates(rates)], atol=1e-9)
    np.testing.assert_allclose(found.rates(found.logs), naive_rates(rates), rtol=1e-9, atol=1e-9 * floor_rps)


@settings(max_examples=40)
@given(rates=SERIES, cut=st.integers(0, 80))
def test_it_grows_as_if_it_had_all_been_there(rates: list[float], cut: int) -> None:
    """Step by step after the cut, with the floor of before until it is measured again."""
    whole, growing = logload(rates), logload(rates[:cut])
    floor_rps = growing.floor_rps
    for rate in rates[cut:]:
        growing.history.append(load([rate]))
        growing.extend()
    assert growing.floor_rps == floor_rps
    np.testing.assert_allclose(growing.rates(growing.logs), naive_rates(rates), rtol=1e-9, atol=1e-9)
    growing.measure()
    assert growing.floor_rps == whole.floor_rps
    np.testing.assert_array_equal(growing.logs, whole.logs)


def test_it_outgrows_its_first_room() -> None:
    """Three thousand steps come, some one by one and then many together: windows span the copied part."""
    rates = np.random.default_rng(1).gamma(2.0, 10.0, 3000)
    rates[1020:1030] = NAN
    growing = logload(rates[:1000])
    for begin, end in [*((k, k + 1) for k in range(1000, 1100)), (1100, 3000)]:
        growing.history.append(load(rates[begin:end]))
        growing.extend()
    windows = np.array([(0, 3000), (900, 1200), (1000, 1024), (2500, 3000)])
    expected = [growing.logs[begin:end].mean() for begin, end in windows.tolist()]
    np.testing.assert_allclose(growing.means(windows[:, 0], windows[:, 1]), expected)
    growing.measure()
    np.testing.assert_array_equal(growing.logs, logload(rates).logs)


@settings(max_examples=40)
@given(
    rates=st.lists(st.floats(0.0, 1e5), min_size=1, max_size=60),
    windows=st.lists(st.tuples(st.integers(-70, 70), st.integers(1, 30)), min_size=1, max_size=10),
)
def test_means_are_their_loop(rates: list[float], windows: list[tuple[int, int]]) -> None:
    """A window that reaches beyond the history uses its known part; a window wholly outside uses the nearest step."""
    found = logload(rates)
    begin = np.array([begin for begin, _ in windows])
    end = begin + np.array([length for _, length in windows])
    expected = []
    for b, e in zip(begin.tolist(), end.tolist(), strict=True):
        inside = [float(found.logs[k]) for k in range(b, e) if 0 <= k < len(rates)]
        nearest = float(found.logs[0 if e <= 0 else -1])
        expected.append(sum(inside) / len(inside) if inside else nearest)
    np.testing.assert_allclose(found.means(begin, end), expected, atol=1e-7)


@settings(max_examples=40)
@given(rates=st.lists(st.floats(0.0, 1e5), min_size=1, max_size=40), width=st.integers(1, 20), data=st.data())
def test_before_is_its_loop(rates: list[float], width: int, data: st.DataObject) -> None:
    """Newest first, and never the origin's own step; before the beginning its first step."""
    found = logload(rates)
    origins = np.array(data.draw(st.lists(st.integers(1, len(rates)), min_size=1, max_size=5)))
    expected = [[found.logs[max(0, origin - 1 - lag)] for lag in range(width)] for origin in origins.tolist()]
    np.testing.assert_array_equal(found.before(origins, width), expected)


@settings(max_examples=40)
@given(rates=SERIES.filter(bool), steps=st.integers(1, 10), data=st.data())
def test_known_is_its_loop(rates: list[float], steps: int, data: st.DataObject) -> None:
    """The step before an origin and all steps that it is judged by must be known."""
    found = logload([1.0] + rates + [1.0] * steps)
    seen = found.history.observed[0]
    origins = np.array(data.draw(st.lists(st.integers(1, 1 + len(rates)), min_size=1, max_size=5)))
    expected = [not any(math.isnan(seen[k]) for k in range(o - 1, o + steps)) for o in origins.tolist()]
    assert found.known(origins, steps).tolist() == expected


def test_ten_times_the_load_is_a_shift() -> None:
    """Zeros and holes included, as long as a fiftieth of the mean is more than half a request a step."""
    rates = np.random.default_rng(2).gamma(1.0, 50.0, 200)
    rates[20:30], rates[50] = 0.0, NAN
    one, ten = logload(rates), logload(10.0 * rates)
    np.testing.assert_allclose(ten.logs - one.logs, math.log(10.0))
    np.testing.assert_allclose(ten.rates(one.logs + math.log(10.0)), 10.0 * one.rates(one.logs), atol=1e-9)


@pytest.mark.parametrize(
    ("step_s", "hour", "day", "five_minutes"),
    [(60.0, 60, 1440, 5), (300.0, 12, 288, 1), (1800.0, 2, 48, 1), (43200.0, 1, 2, 1)],
)
def test_hours_and_days_are_counted_in_steps(step_s: float, hour: int, day: int, five_minutes: int) -> None:
    """The least number is one."""
    found = logload([1.0], step_s)
    assert (found.hour, found.day, found.steps(5)) == (hour, day, five_minutes)


def test_any_logarithm_is_a_rate() -> None:
    rates = logload([1.0]).rates(np.array([-1e3, 0.0, 1e3]))
    assert rates[0] == 0.0
    assert np.isfinite(rates).all()
