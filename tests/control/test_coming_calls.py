"""The calls that a stage will get for queries that the stages before it refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.coming_calls import (
    ComingCalls,
    PipelineCalls,
    StageNow,
    higher_rps,
    higher_windows_rps,
    stage_now,
    with_coming,
)
from mark.control.ports import RecentAnswers
from mark.control.traffic_envelope import surprise_rps
from mark.domain.load import Load
from mark.domain.plan import Plan
from mark.testing.fakes import FakeTelemetry
from tests.control.control_fakes import resolved

CHAIN = PipelineCalls([1.0, 1.0, 0.1], [True, True, False])
CALM, SURGE = np.full(12, 20.0), np.concatenate([np.full(10, 20.0), np.full(2, 200.0)])


def now(rps: np.ndarray = CALM, *, misses: bool = False, capacity_rps: float = 0.0) -> StageNow:
    return StageNow(rps, misses, capacity_rps)


def test_nothing_is_coming_while_no_stage_before_misses_calls() -> None:
    """Arrivals then show all demand, and the first stage always sees all queries."""
    assert CHAIN.coming(1, [now(SURGE), now(), now()]) is None
    assert CHAIN.coming(0, [now(SURGE, misses=True), now(), now()]) is None
    assert CHAIN.coming(1, [now(SURGE), now(misses=True), now(misses=True)]) is None
    assert CHAIN.coming(1, [None, None, None]) is None


def test_each_stage_will_get_its_part_of_what_comes() -> None:
    """This holds although the second stage is not reached yet."""
    seen = [now(SURGE, misses=True), now(), now(0.1 * CALM)]
    for stage, per_query in ((1, 1.0), (2, 0.1)):
        coming = CHAIN.coming(stage, seen)
        assert coming is not None
        assert coming.per_query == per_query
        assert coming.queries_rps.tolist() == SURGE.tolist()
        assert coming.last_minute_rps() == pytest.approx(per_query * 50.0)


def test_what_a_stage_before_will_never_do_is_not_coming() -> None:
    """The stage before is at a limit: its plan holds 60 calls/s and cannot grow."""
    coming = CHAIN.coming(2, [now(SURGE, misses=True, capacity_rps=300.0), now(capacity_rps=60.0), now()])
    assert coming is not None
    assert coming.queries_rps.tolist() == np.minimum(SURGE, 60.0).tolist()


def test_stages_bought_together_are_no_limit_to_each_other() -> None:
    seen = [now(SURGE, misses=True, capacity_rps=300.0), now(capacity_rps=60.0), now()]
    alone, together = CHAIN.coming(2, seen), CHAIN.coming(2, seen, (1, 2))
    assert alone is not None
    assert together is not None
    assert (alone.queries_rps.max(), together.queries_rps.max()) == (60.0, SURGE.max())


def test_queries_are_counted_where_each_calls_alike() -> None:
    """A stage that only some queries visit does not show their number; two calls of each query count double."""
    calls = PipelineCalls([0.5, 2.0, 1.0], [False, True, True])
    coming = calls.coming(2, [now(SURGE, misses=True), now(2.0 * CALM), now()])
    assert coming is not None
    assert coming.queries_rps.tolist() == CALM.tolist()
    assert PipelineCalls([0.5, 1.0], [False, True]).coming(1, [now(SURGE, misses=True), now()]) is None


def test_a_stage_that_no_query_calls_gets_nothing() -> None:
    assert PipelineCalls([1.0, 0.0], [True, False]).coming(1, [now(SURGE, misses=True), now()]) is None


def test_queries_show_a_surge_before_rare_calls_do() -> None:
    """A tenth of 20 queries/s call the stage.

    In 10 s, half as many calls again may be chance; half as many queries may not.
    """
    more = ComingCalls(np.full(12, 30.0), 0.1)
    assert more.surprise_rps(2, 2.0) == pytest.approx(3.0)
    assert surprise_rps(np.full(2, 3.0), 2.0) is None
    assert more.surprise_rps(1, 2.0) is None  # one window says nothing yet
    assert more.surprise_rps(12, 3.0) is None


@pytest.mark.parametrize(
    ("arrived", "queries", "expected"),
    [(30.0, 20.0, 30.0), (10.0, 20.0, 20.0), (None, 20.0, 20.0), (10.0, np.nan, 10.0), (None, np.nan, None)],
)
def test_the_rate_is_the_higher_of_both(arrived: float | None, queries: float, expected: float | None) -> None:
    assert higher_rps(arrived, ComingCalls(np.full(12, queries), 1.0)) == expected
    assert higher_rps(arrived, None) == arrived


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=5), st.floats(0.0, 1e4), st.booleans())
def test_only_the_last_step_is_raised_and_never_lowered(rates: list[float], queries_rps: float, fine: bool) -> None:
    load = Load(0.0, 60.0, np.array(rates), np.array(rates), fine)
    coming = ComingCalls(np.full(12, queries_rps), 0.5)
    found = with_coming(load, coming)
    assert found.mean_rps[:-1].tolist() == rates[:-1]
    assert found.mean_rps[-1] == pytest.approx(max(rates[-1], 0.5 * queries_rps))
    assert (found.peak_rps >= found.mean_rps).all()
    assert with_coming(load, None) is load


def test_a_missing_step_becomes_what_is_coming() -> None:
    load = Load(0.0, 60.0, np.array([np.nan]), np.array([np.nan]))
    assert with_coming(load, ComingCalls(SURGE, 0.1)).mean_rps.tolist() == pytest.approx([5.0])
    assert with_coming(load, ComingCalls(SURGE, 0.1)).peak_rps.tolist() == pytest.approx([20.0])
    assert with_coming(load, ComingCalls(SURGE[:11], 0.1)) is load  # of no whole minute
    hours = replace(load, step_s=3600.0)
    assert with_coming(hours, ComingCalls(SURGE, 0.1)) is hours


def test_a_stage_misses_as_its_monitor_sees_it() -> None:
    telemetry = FakeTelemetry()
    telemetry.windows = [3.0, 4.0]
    seen = stage_now(telemetry, Plan(0.0, (), capacity_rps=7.0), resolved())
    assert (seen.windows_rps.tolist(), seen.misses, seen.capacity_rps) == ([3.0, 4.0], False, 7.0)
    telemetry.latest = RecentAnswers(1000, 979)  # 98 % are promised
    seen = stage_now(telemetry, None, resolved())
    assert (seen.misses, seen.capacity_rps) == (True, 0.0)


def test_windows_are_those_of_the_higher_mean() -> None:
    """A tenth of 50 queries/s is coming: 5 calls/s, more than the 2 that arrive and less than 20."""
    coming = ComingCalls(SURGE, 0.1)
    assert higher_windows_rps(CALM, coming).tolist() == CALM.tolist()
    assert higher_windows_rps(0.1 * CALM, coming).tolist() == (0.1 * SURGE).tolist()
    assert higher_windows_rps(np.full(12, np.nan), coming).tolist() == (0.1 * SURGE).tolist()
    assert higher_windows_rps(CALM, ComingCalls(np.full(12, np.nan), 0.1)).tolist() == CALM.tolist()
    assert higher_windows_rps(CALM, None).tolist() == CALM.tolist()
