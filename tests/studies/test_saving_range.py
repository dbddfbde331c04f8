"""The range of a saving: closed forms, and an independent bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.bill import Bill
from mark.simulation.result import SimulationResult, Timeline, TraceInfo
from mark.studies.saving_range import saving_range
from tests.studies.report.results import result

HOUR_S = 3600.0


def spent_by_hour(by_hour: list[float]) -> SimulationResult:
    """Return a run that spent these dollars in each hour, evenly over its minutes."""
    minutes = 60 * len(by_hour)
    zeros = np.zeros(minutes)
    spent = np.cumsum(np.repeat(np.array(by_hour) / 60.0, 60))
    line = Timeline(60.0 * np.arange(float(minutes)), zeros, zeros, zeros, zeros, {}, {"on_demand": spent})
    trace = TraceInfo("hours", 100, HOUR_S * len(by_hour))
    return result(trace=trace, timeline=line, bill=Bill(on_demand=float(spent[-1])))


def test_a_constant_share_has_no_width() -> None:
    theirs = [1.0 + hour for hour in range(24)]
    found = saving_range(spent_by_hour([0.25 * usd for usd in theirs]), spent_by_hour(theirs))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.75, 0.75))
    assert (found.over, found.blocks) == ("hours", 24)


def test_one_dear_hour_widens_the_range() -> None:
    """Half of the bill falls into one of 24 hours: e^-1 of all drawings miss it, and then we pay half."""
    ours = [1.0] * 23 + [23.0]
    found = saving_range(spent_by_hour(ours), spent_by_hour([2.0] * 24))
    assert found is not None
    assert found.high == pytest.approx(0.5)
    assert found.low < 1.0 - 46.0 / 48.0


def test_the_range_is_that_of_an_independent_bootstrap() -> None:
    drawn = np.random.default_rng(7)
    ours, theirs = drawn.uniform(0.5, 1.5, 48), drawn.uniform(1.0, 3.0, 48)
    found = saving_range(spent_by_hour(list(ours)), spent_by_hour(list(theirs)))
    assert found is not None
    shares = []
    for _ in range(4000):
        places = drawn.choice(48, 48)
        shares.append(1.0 - ours[places].sum() / theirs[places].sum())
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(shares, [5, 95])), abs=0.01)


@pytest.mark.parametrize(
    ("hours", "over", "blocks"),
    [(11, None, 0), (12, "hours", 12), (95, "hours", 95), (96, "days", 4), (180, "days", 7)],
)
def test_days_are_drawn_where_there_are_four(hours: int, over: str | None, blocks: int) -> None:
    found = saving_range(spent_by_hour([1.0] * hours), spent_by_hour([2.0] * hours))
    assert (None if found is None else (found.over, found.blocks)) == (None if over is None else (over, blocks))


def test_without_a_bill_to_save_from_there_is_no_range() -> None:
    assert saving_range(spent_by_hour([1.0] * 24), spent_by_hour([0.0] * 24)) is None


@given(st.lists(st.tuples(st.floats(0.01, 9.0), st.floats(0.01, 9.0)), min_size=12, max_size=30))
def test_the_range_lies_within_the_best_and_the_worst_hour(bills: list[tuple[float, float]]) -> None:
    found = saving_range(spent_by_hour([ours for ours, _ in bills]), spent_by_hour([theirs for _, theirs in bills]))
    assert found is not None
    shares = [1.0 - ours / theirs for ours, theirs in bills]
    assert min(shares) - 1e-6 <= found.low <= found.high <= max(shares) + 1e-6
