"""The load of a workload that others run, minute by minute."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mark_infra.telemetry.watched_load import FRESH_S, MOST_MINUTES, WatchedLoad
from mark_infra.telemetry.watched_workload import WorkloadMinutes, WorkloadNow

from mark.control.memory_store import MemoryStore
from mark.control.ports import RecentAnswers
from mark.domain.errors import StoreError
from mark.testing.fakes import ManualClock


class Bench:
    def __init__(self, *, given: int = 10) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.clock.t_s = 60.0 * given
        self.load = WatchedLoad(self.store, self.clock, given=given)

    def minutes(self, *rps: float, in_time: float = math.nan) -> None:
        """Pass these minutes; Prometheus returns all missing ones."""
        self.clock.t_s += 60.0 * len(rps)
        missing = self.load.missing(self.clock.now_s())
        self.load.add(missing, WorkloadMinutes(np.array(rps), np.full(len(rps), in_time)))


def test_minutes_are_handed_out_once() -> None:
    bench = Bench()
    bench.minutes(5.0, 7.0)
    load = bench.load.load()
    assert (load.start_s, load.mean_rps.tolist(), load.fine) == (600.0, [5.0, 7.0], False)
    assert len(bench.load.load()) == 0
    bench.minutes(9.0)
    assert bench.load.load().start_s == 720.0


def test_answers_are_counted_once_although_the_store_fails() -> None:
    bench = Bench()
    bench.minutes(5.0, in_time=0.5)
    put = bench.store.put

    def fail(key: str, value: object) -> None:
        raise StoreError("locked")

    bench.store.put = fail  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        bench.load.load()
    bench.store.put = put  # type: ignore[method-assign]
    assert bench.load.load().mean_rps.tolist() == [5.0]
    assert bench.load.answers() == RecentAnswers(300, 150)


def test_minute_that_prometheus_did_not_answer_for_is_asked_for_again() -> None:
    bench = Bench()
    bench.clock.t_s += 300.0
    assert bench.load.missing(bench.clock.now_s()) == range(10, 15)
    assert len(bench.load.load()) == 0
    assert bench.load.missing(bench.clock.now_s()) == range(10, 15)


def test_minutes_of_a_long_gap_are_missing() -> None:
    bench = Bench()
    bench.clock.t_s += 60.0 * (MOST_MINUTES + 100)
    missing = bench.load.missing(bench.clock.now_s())
    assert len(missing) == MOST_MINUTES
    bench.load.add(missing, WorkloadMinutes(np.ones(MOST_MINUTES), np.full(MOST_MINUTES, math.nan)))
    load = bench.load.load()
    assert load.start_s == 600.0
    assert np.isnan(load.mean_rps[:100]).all()
    assert (load.mean_rps[100:] == 1.0).all()


@pytest.mark.parametrize("rps", [math.nan, math.inf, -math.inf, -1.0])
def test_number_that_is_no_rate_is_a_gap(rps: float) -> None:
    bench = Bench()
    bench.minutes(3.0, rps)
    np.testing.assert_array_equal(bench.load.load().mean_rps, [3.0, math.nan])
    bench.load.see(WorkloadNow(0.0, rps, 1))
    assert bench.load.last_minute_rps() is None
    assert bench.load.seen_s == -math.inf


def test_rate_of_now_ends_when_it_is_old() -> None:
    bench = Bench()
    bench.load.see(WorkloadNow(0.0, 4.0, 1))
    assert bench.load.last_minute_rps() == 4.0
    assert bench.load.windows_rps().tolist() == [4.0] * 12
    assert bench.load.seen_s == bench.clock.now_s()
    bench.clock.t_s += FRESH_S + 1.0
    assert bench.load.last_minute_rps() is None
    assert bench.load.recent() == RecentAnswers(0, 0)
    assert bench.load.seen_s == 600.0


@pytest.mark.parametrize(
    ("answered", "in_time", "recent"),
    [
        (100.0, 90.0, RecentAnswers(100, 90)),
        (None, None, RecentAnswers(0, 0)),
        (100.0, math.nan, RecentAnswers(0, 0)),
        (100.0, 101.0, RecentAnswers(0, 0)),
        (math.inf, 5.0, RecentAnswers(0, 0)),
    ],
)
def test_late_answers_count_where_they_are_known(
    answered: float | None, in_time: float | None, recent: RecentAnswers
) -> None:
    bench = Bench()
    bench.load.see(WorkloadNow(0.0, 1.0, 1, answered, in_time))
    assert bench.load.recent() == recent


def test_totals_outlive_the_process_and_count_known_latencies_only() -> None:
    bench = Bench()
    bench.minutes(1.0, 2.0, in_time=0.5)
    bench.load.load()
    bench.minutes(10.0)
    bench.load.load()
    again = WatchedLoad(bench.store, bench.clock, given=13)
    assert again.answers() == bench.load.answers() == RecentAnswers(180, 90)
