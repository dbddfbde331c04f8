"""The next day's bill and promise: closed forms, naive loops beside them, and how often the interval holds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.planning.next_day import (
    DAY,
    LEAST_WINDOWS,
    PROMISE_MAP,
    UNREST_FACTOR,
    NextDay,
    SeenHalfHours,
    conformal_width,
    kept_probability,
    next_day,
    unrest,
)


def in_proportion(rates_rps: FloatArray) -> FloatArray:
    """Return a plan that costs a tenth of a cent a half hour for each request a second."""
    return 1e-3 * rates_rps


def seen(rates_rps: FloatArray, usd_per_rps: float = 2e-3, late: float = 0.001) -> SeenHalfHours:
    return SeenHalfHours(rates_rps, usd_per_rps * rates_rps, np.full(len(rates_rps), late))


def days(levels: list[float] | FloatArray) -> FloatArray:
    """Return days of one shape, which swings by half, at these levels."""
    shape = 10.0 + 5.0 * np.sin(2.0 * np.pi * np.arange(DAY) / DAY)
    return np.concatenate([level * shape for level in levels])


def judged(known: SeenHalfHours, allowed: float = 0.02) -> NextDay:
    found = next_day(known, allowed, in_proportion)
    assert found is not None
    return found


def test_days_that_never_change_are_foretold_without_a_width() -> None:
    known = seen(days([1.0] * 12))
    found = judged(known).usd
    assert found.expected == pytest.approx(known.usd[-DAY:].sum())
    assert found.high / found.low == pytest.approx(1.0, abs=1e-9)
    assert (found.calibrated, found.past_windows) == (True, 21)


def test_bills_scale_the_interval_whatever_the_plan_costs() -> None:
    rates = days(np.exp(np.random.default_rng(1).normal(0.0, 0.2, 20)))
    one, three = judged(seen(rates, 1e-3)).usd, judged(seen(rates, 3e-3)).usd
    assert (three.low, three.expected, three.high) == pytest.approx((3 * one.low, 3 * one.expected, 3 * one.high))


@pytest.mark.untraced
def test_interval_holds_on_nine_of_ten_days_that_differ_by_chance() -> None:
    levels = np.exp(np.random.default_rng(5).normal(0.0, 0.3, 160))
    rates = days(levels)
    hits = []
    for day in range(12, 159):
        found = judged(seen(rates[: day * DAY])).usd
        hits.append(found.low <= 2e-3 * rates[day * DAY : (day + 1) * DAY].sum() <= found.high)
    assert 0.85 <= np.mean(hits) <= 0.95


def test_fewer_than_nine_past_days_are_not_calibrated_and_as_wide_as_the_day_is_restless() -> None:
    rates = days([1.0, 1.3, 0.8])
    found = judged(seen(rates)).usd
    assert (found.calibrated, found.past_windows) == (False, 3)
    assert math.log(found.high / found.expected) == pytest.approx(UNREST_FACTOR * unrest(rates[-DAY:]))


@pytest.mark.parametrize("load", [[2.0, 100.0], [1.0, 1.0, 1.0, 40.0], [5.0] * 7 + [80.0]])
def test_jobs_by_the_clock_do_not_widen_the_interval_of_a_single_day(load: list[float]) -> None:
    """By the changes from one half hour to the next, hourly bursts had an interval of a factor of 400 to each side."""
    found = judged(seen(np.resize(load, DAY))).usd
    assert not found.calibrated
    assert found.high < 1.1 * found.expected


def test_one_day_foretells_its_own_bill() -> None:
    known = seen(days([1.0]))
    assert judged(known).usd.expected == pytest.approx(known.usd.sum())


def test_without_bills_the_interval_is_wider_and_not_calibrated() -> None:
    known = seen(days(np.linspace(1.0, 1.2, 12)))
    with_bills = judged(known).usd
    nothing = np.full(len(known.usd), math.nan)
    found = next_day(replace(known, usd=nothing, late=nothing), 0.02, in_proportion, stated_confidence=0.9)
    assert found is not None
    assert not found.usd.calibrated
    assert found.usd.high / found.usd.low > with_bills.high / with_bills.low
    assert found.promise is not None
    assert (found.promise.probability, found.promise.calibrated) == (0.9, False)


@pytest.mark.parametrize(
    "rates",
    [days([1.0])[1:], np.zeros(DAY), np.concatenate([days([1.0] * 3), np.full(DAY, math.nan)])],
    ids=["less than a day", "no requests", "nothing seen in the last day"],
)
def test_nothing_is_foretold_without_a_known_day(rates: FloatArray) -> None:
    assert next_day(seen(rates), 0.02, in_proportion) is None


def test_missing_half_hours_are_bridged() -> None:
    rates = days([1.0] * 12)
    whole = judged(seen(rates)).usd.expected
    rates[-20:-17] = math.nan
    assert judged(seen(rates)).usd.expected == pytest.approx(whole, rel=0.02)


def test_forecasts_that_erred_less_count_more() -> None:
    errors = np.random.default_rng(2).normal(0.0, [0.1, 0.5, 0.1], (30, 3))
    weights, width = conformal_width(errors)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1] < 0.2 * weights[0]
    assert width is not None


def test_width_without_misses_to_learn_from_is_that_of_split_conformal() -> None:
    """A single forecast and just enough errors: the level has not moved, and the largest error is the width."""
    errors = np.linspace(0.01, 0.09, LEAST_WINDOWS)[:, None]
    assert conformal_width(errors)[1] == pytest.approx(0.09)
    assert conformal_width(errors[1:])[1] is None


def test_misses_widen_the_interval() -> None:
    calm = np.full((40, 1), 0.1)
    grown = np.concatenate([calm[:20], np.linspace(0.2, 0.6, 20)[:, None]])
    calm_width, grown_width = conformal_width(calm)[1], conformal_width(grown)[1]
    assert calm_width == pytest.approx(0.1)
    assert grown_width is not None
    assert grown_width > np.quantile(grown, 0.9)


def test_promise_is_likelier_the_fewer_were_late() -> None:
    chances = [kept_probability(np.full(20, late), 0.02)[0] for late in (0.0, 0.01, 0.02, 0.04, 0.5)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.95
    assert chances[-1] < 0.05


def test_promise_of_few_days_is_not_calibrated() -> None:
    assert [kept_probability(np.full(n, 0.01), 0.02)[1] for n in (1, LEAST_WINDOWS + 1, LEAST_WINDOWS + 2)] == [
        False, False, True,
    ]  # fmt: skip


def test_stated_probabilities_are_kept_as_often() -> None:
    """Late shares that wander around the promise: of the days in either half of the stated probabilities."""
    generator = np.random.default_rng(3)
    level = np.cumsum(generator.normal(0.0, 0.15, 500))
    late = 0.02 * np.exp(0.9 * (level - np.linspace(level[0], level[-1], 500)) + generator.normal(0.0, 0.2, 500))
    stated = np.array([kept_probability(late[max(0, now - 60) : now], 0.02)[0] for now in range(60, 498)])
    kept = late[61:499] <= 0.02
    assert np.mean((stated - kept) ** 2) < np.mean((kept.mean() - kept) ** 2)
    for part in np.array_split(np.argsort(stated), 2):
        assert stated[part].mean() == pytest.approx(kept[part].mean(), abs=0.12)


@settings(max_examples=60)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=70), st.floats(1e-4, 0.5))
def test_any_late_shares_give_a_probability(late: list[float], allowed: float) -> None:
    probability, _ = kept_probability(np.array(late), allowed)
    assert 0.0 <= probability <= 1.0


def test_shipped_map_says_more_than_even_chance_where_the_margin_is_wide() -> None:
    intercept, slope = PROMISE_MAP
    assert slope > 0.0
    assert intercept + 3.0 * slope > 0.0
