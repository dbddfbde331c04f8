"""Counters become windows, windows become load."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.telemetry.balancer_counts import UnseenRequests
from mark_infra.telemetry.counters import BouncerCounters, GatewayCounts
from mark_infra.telemetry.telemetry import (
    MOST_STEPS,
    BilledFunction,
    HistoryEnd,
    ScrapedTelemetry,
    ScrapeTarget,
    UnseenSource,
)

from mark.control.memory_store import MemoryStore
from mark.control.ports import OverflowTotals, RecentAnswers, ReleaseCounts
from mark.domain.errors import StoreError
from mark.domain.function_offer import FunctionOffer
from mark.domain.load import Load
from mark.serving.backend.metrics import SECONDS

FUNCTION = FunctionOffer(1024, 1e-5, 0.2, 1.0, 1000, 500.0, 900.0)


class Bench:
    """Bouncers that count, and a telemetry that hears their counters. Windows take 5 s, from number 0."""

    def __init__(
        self, *ids: str, store: MemoryStore | None = None, before_rps: float | None = None, **more: Any
    ) -> None:
        self.before_rps = before_rps
        self.store, self.kept, self.more = store or MemoryStore(), list[Load](), more
        self.window = 0
        self.counts: dict[str, BouncerCounters] = {}
        self.targets: dict[str, ScrapeTarget] = {}
        self.silent: set[str] = set()
        self.gateway: GatewayCounts | None = None
        self.telemetry = self.again()
        for id in ids:
            self.begin(id)

    def again(self, since_s: float = 0.0) -> ScrapedTelemetry:
        self.telemetry = ScrapedTelemetry(
            self.store,
            now_s=self.window * 5.0,
            history=HistoryEnd(since_s, self.before_rps),
            keep_load=self.kept.append,
            **self.more,
        )
        return self.telemetry

    def begin(self, id: str, ready_s: float | None = None) -> None:
        at_s = self.window * 5.0 if ready_s is None else ready_s
        self.targets[id], self.counts[id] = (
            ScrapeTarget(id, f"http://{id}", "c5.large/spot/a", at_s),
            BouncerCounters(workers=2.0),
        )

    def serve(self, *requests: float, misses: float = 0.0) -> None:
        """Pass a window in which each target serves its number of requests."""
        for id, count in zip(self.targets, requests, strict=False):
            c = self.counts[id]
            self.counts[id] = BouncerCounters(
                c.requests + count, c.misses + misses, 0.0, c.service_s + count * 0.1, workers=2.0
            )
        self.close()

    def close(self) -> None:
        answered = {id: c for id, c in self.counts.items() if id in self.targets and id not in self.silent}
        self.telemetry.close_window(self.window, list(self.targets.values()), answered, self.gateway)
        self.window += 1


def test_windows_are_the_sum_of_what_the_bouncers_counted_since() -> None:
    """The newest is last; there are at most twelve."""
    bench = Bench("a", "b")
    for count in range(14):
        bench.serve(count, 1.0)
    assert list(bench.telemetry.windows_rps()) == [(count + 1.0) / 5.0 for count in range(2, 14)]
    assert bench.telemetry.last_minute_rps() == pytest.approx(8.5 / 5.0)
    assert bench.telemetry.answers() == RecentAnswers(91 + 14, 91 + 14)


def cached(bench: Bench, id: str, requests: float, from_cache: float, misses: float = 0.0) -> None:
    """Return counters since the start, of a bouncer with a cache."""
    bench.counts[id] = BouncerCounters(requests, misses, service_s=1.0, from_cache=from_cache, workers=2.0)


def test_load_is_without_requests_that_a_cache_answered() -> None:
    """Attainment covers all requests. A release is judged by the requests that reached its model."""
    bench = Bench("a", "b")
    bench.targets["a"] = replace(bench.targets["a"], release="new")
    cached(bench, "a", 100.0, 75.0, misses=4.0)
    cached(bench, "b", 50.0, 0.0)
    bench.close()
    assert list(bench.telemetry.windows_rps()) == [(25.0 + 50.0) / 5.0]
    assert bench.telemetry.answers() == RecentAnswers(150, 146)
    assert bench.telemetry.recent().count == 150
    assert bench.telemetry.releases() == {"new": {"c5.large/spot/a": ReleaseCounts(25, 4, 0, 1.0, 0)}}


def test_a_release_has_no_more_misses_than_requests() -> None:
    """Requests that waited in a cache can miss, too."""
    bench = Bench("a")
    bench.targets["a"] = replace(bench.targets["a"], release="new")
    cached(bench, "a", 100.0, 98.0, misses=7.0)
    bench.close()
    assert bench.telemetry.releases() == {"new": {"c5.large/spot/a": ReleaseCounts(2, 2, 0, 1.0, 0)}}


def test_of_a_gateways_requests_the_share_is_load_that_was_load_at_the_bouncers() -> None:
    """This holds, too, if some bouncers do not answer."""
    bench = Bench("a", "b", gateway=True)
    bench.gateway = GatewayCounts(1000.0, 0.0)
    bench.close()
    bench.gateway = GatewayCounts(1200.0, 0.0)
    cached(bench, "a", 100.0, 60.0)
    bench.silent = {"b"}
    bench.close()
    assert bench.telemetry.windows_rps()[-1] == pytest.approx(200.0 * 0.4 / 5.0)
    assert bench.telemetry.answers().count == 200
    bench.gateway = GatewayCounts(1300.0, 0.0)
    bench.close()  # no request came to the bouncer that answers
    assert bench.telemetry.windows_rps()[-1] == pytest.approx(100.0 / 5.0)


def test_counts_of_a_cache_survive_a_restart() -> None:
    bench = Bench("a")
    cached(bench, "a", 100.0, 60.0)
    for _ in range(12):
        bench.close()
    bench.telemetry.load()
    bench.again()
    cached(bench, "a", 200.0, 150.0)
    bench.close()
    assert bench.telemetry.windows_rps()[-1] == pytest.approx(10.0 / 5.0)


def test_a_request_may_be_several_calls_that_are_counted() -> None:
    """The stages are bought together: misses are misses of requests, and no more than there are requests."""
    bench = Bench("a", calls_per_request=2.5)
    bench.serve(100, misses=4)
    bench.serve(100, misses=4)
    assert bench.telemetry.windows_rps()[-1] == pytest.approx(40.0 / 5.0)
    assert bench.telemetry.answers() == RecentAnswers(80, 72)
    assert bench.telemetry.recent() == RecentAnswers(80, 72)
    bench.serve(10, misses=9)
    assert bench.telemetry.answers() == RecentAnswers(84, 72)


def test_load_that_cannot_be_kept_is_given_again() -> None:
    """Otherwise the predictor would miss a minute."""
    bench = Bench("a")
    for _ in range(12):
        bench.serve(10.0)

    def full(load: Load) -> None:
        raise StoreError("full")

    bench.telemetry._keep_load = full
    with pytest.raises(StoreError):
        bench.telemetry.load()
    bench.telemetry._keep_load = bench.kept.append
    load = bench.telemetry.load()
    assert (load.start_s, list(load.mean_rps)) == (0.0, [2.0])
    assert len(bench.kept) == 1
    assert len(bench.telemetry.load()) == 0


def test_load_is_by_the_minute_once_and_kept() -> None:
    """A step has the mean and the highest window; only complete steps count."""
    bench = Bench("a")
    for window in range(25):
        bench.serve(10.0 if window != 13 else 40.0)
    load = bench.telemetry.load()
    assert (load.start_s, load.step_s) == (0.0, 60.0)
    assert list(load.mean_rps) == [2.0, 2.5]
    assert list(load.peak_rps) == [2.0, 8.0]
    assert len(bench.telemetry.load()) == 0
    assert bench.telemetry.load().start_s == 120.0
    for _ in range(11):
        bench.serve(5.0)
    assert list(bench.telemetry.load().mean_rps) == pytest.approx([(10.0 + 55.0) / 60.0])
    assert [len(load) for load in bench.kept] == [2, 1]


def test_load_begins_where_the_history_ended() -> None:
    """Steps before the first window are present as missing."""
    bench = Bench("a")
    bench.window = 36
    bench.again(since_s=60.0)
    for _ in range(12):
        bench.serve(5.0)
    load = bench.telemetry.load()
    assert load.start_s == 60.0
    assert np.array_equal(load.mean_rps, [np.nan, np.nan, 1.0], equal_nan=True)


@pytest.mark.parametrize("ahead_s", [660.0, 86_400.0, 10 * 365 * 86_400.0])
def test_a_history_of_the_future_hides_no_load(ahead_s: float) -> None:
    """A leader whose clock was ahead for a minute stored it."""
    bench = Bench("a")
    bench.window = 36
    bench.again(since_s=180.0 + ahead_s)
    for _ in range(24):
        bench.serve(5.0)
    load = bench.telemetry.load()
    assert (load.start_s, load.mean_rps.tolist()) == (180.0, [1.0, 1.0])


@pytest.mark.parametrize("days", [20, 36, 365, 3650])
def test_a_jump_of_the_clock_hands_out_bounded_steps(days: int) -> None:
    """Whole weeks of the gap are left out, but no observed load."""
    bench = Bench("a")
    for _ in range(12):
        bench.serve(5.0)
    assert len(bench.telemetry.load()) == 1
    bench.window += days * 86_400 // 5
    for _ in range(13):
        bench.serve(5.0)
    load = bench.telemetry.load()
    assert 7 * 1440 < len(load) <= MOST_STEPS
    assert (load.start_s - 60.0) % (7 * 86_400.0) == 0.0
    assert load.end_s == days * 86_400.0 + 120.0
    assert load.mean_rps[-1] == pytest.approx(1.0, rel=0.1)
    for _ in range(12):
        bench.serve(5.0)
    assert len(bench.telemetry.load()) == 1


def test_a_bouncer_that_restarts_counts_anew() -> None:
    """Its worker was lost or a standby resumed, so all its counts are new."""
    bench = Bench("a")
    bench.serve(100.0)
    bench.counts["a"] = BouncerCounters(workers=2.0)
    bench.serve(7.0)
    assert list(bench.telemetry.windows_rps()) == [20.0, 1.4]
    assert bench.telemetry.answers().count == 107


def test_a_vanished_bouncer_leaves_no_gap() -> None:
    """The other bouncers are the whole fleet."""
    bench = Bench("a", "b")
    bench.serve(10.0, 10.0)
    del bench.targets["b"]
    bench.serve(10.0)
    assert list(bench.telemetry.windows_rps()) == [4.0, 2.0]


@pytest.mark.parametrize("missing", [{"a", "b"}, {"b"}], ids=["all", "one"])
def test_a_bouncer_missing_for_a_while_is_not_counted_twice(missing: set[str]) -> None:
    """For a minute the cloud could not list the instances, or left one out: its old counts are not new afterwards."""
    bench = Bench("a", "b")
    for _ in range(30):
        bench.serve(10.0, 10.0)
    there = dict(bench.targets)
    for id in missing:
        del bench.targets[id]
    for _ in range(12):
        bench.close()
    bench.telemetry.load()
    bench.again()  # nor after a restart
    bench.targets = there
    bench.serve(10.0, 10.0)
    assert bench.telemetry.answers().count == 620
    rates = [10.0 / 13.0 / 5.0 if id in missing else 10.0 / 5.0 for id in "ab"]  # as if spread over the whole time
    assert bench.telemetry.windows_rps()[-1] == pytest.approx(sum(rates))


def test_a_standby_that_was_resumed_is_counted_from_then_on() -> None:
    """It may have counted more by now than when it was stopped."""
    bench = Bench("a")
    bench.serve(5.0)
    del bench.targets["a"]
    bench.close()
    bench.begin("a")
    bench.serve(100.0)
    assert bench.telemetry.answers().count == 105


def test_a_silent_bouncer_counts_as_average_and_is_corrected_later() -> None:
    """Rates stay right, and the totals lose no request."""
    bench = Bench("a", "b", "c")
    bench.serve(10.0, 10.0, 10.0)
    bench.silent = {"c"}
    bench.serve(10.0, 10.0, 10.0)
    bench.silent = set()
    bench.serve(10.0, 10.0, 10.0)
    assert list(bench.telemetry.windows_rps()) == pytest.approx([6.0, 6.0, 6.0])
    assert bench.telemetry.answers().count == 90


@pytest.mark.parametrize("answering", [0, 1])
def test_a_window_is_missing_when_most_could_not_be_asked(answering: int) -> None:
    """One of three tells too little."""
    bench = Bench("a", "b", "c")
    bench.serve(10.0, 10.0, 10.0)
    bench.silent = set("abc"[answering:])
    for _ in range(12):
        bench.serve(10.0, 10.0, 10.0)
    assert bench.telemetry.last_minute_rps() is None
    assert np.isnan(bench.telemetry.load().mean_rps).all()


def test_without_targets_the_rate_is_unknown() -> None:
    """The lack of an instance does not prove a lack of requests."""
    bench = Bench()
    bench.close()
    assert bench.telemetry.last_minute_rps() is None


def test_windows_that_were_slept_through_are_missing() -> None:
    """Requests counted in that time are spread over them."""
    bench = Bench("a")
    bench.serve(10.0)
    bench.window += 2
    bench.serve(30.0)
    assert np.array_equal(bench.telemetry.windows_rps(), [2.0, np.nan, np.nan, 2.0], equal_nan=True)


def test_a_restart_counts_on_from_what_it_kept() -> None:
    """No request is lost or counted twice, and the gap causes no spike."""
    bench = Bench("a")
    for _ in range(12):
        bench.serve(10.0)
    bench.telemetry.load()
    bench.serve(10.0)  # killed after this window
    for _ in range(3):
        bench.counts["a"] = bench.counts["a"]._replace(requests=bench.counts["a"].requests + 10.0)
        bench.window += 1
    bench.again(since_s=60.0)
    bench.serve(10.0)
    assert list(bench.telemetry.windows_rps()) == pytest.approx([2.0])
    assert bench.telemetry.answers().count == 170


def test_a_bouncer_older_than_telemetry_counts_from_its_start() -> None:
    """Its past is not counted as load."""
    bench = Bench()
    bench.window = 100
    bench.again()
    bench.begin("old", ready_s=10.0)
    bench.counts["old"] = BouncerCounters(1e6, workers=2.0)
    bench.serve(10.0)
    bench.serve(10.0)
    assert bench.telemetry.windows_rps()[-1] == 2.0
    assert bench.telemetry.answers().count == 10


def test_answers_are_counted_by_release_and_offer() -> None:
    """An old bouncer counts from its second scrape on, errors of the model included."""
    bench = Bench("a", "b")
    bench.targets["b"] = replace(bench.targets["b"], release="new")
    bench.serve(10.0, 20.0, misses=2.0)
    bench.counts["b"] = bench.counts["b"]._replace(requests=25.0, errors=5.0, by_functions=4.0)
    bench.close()
    found = bench.telemetry.releases()
    assert found == {"new": {"c5.large/spot/a": ReleaseCounts(25, 2, 5, 2.0, 4)}}


def test_the_mean_latency_is_of_what_was_answered() -> None:
    """It covers the last `look_back` requests; refused ones take no time."""
    bench = Bench("a", look_back=20)
    assert bench.telemetry.recent().latency_s is None
    for latency_s in (9.0, 0.5, 0.1):
        a = bench.counts["a"]
        bench.counts["a"] = a._replace(
            requests=a.requests + 10, answered=a.answered + 8, latency_s=a.latency_s + 8 * latency_s
        )
        bench.close()
    recent = bench.telemetry.recent()
    assert (recent.count, recent.latency_s) == (20, pytest.approx(0.3))
    assert (recent.p50_s, recent.p99_s) == (None, None)


def test_percentiles_are_of_the_last_requests_of_all_bouncers() -> None:
    """Forty answers took 0.16 to 0.25 s, and ten 1.6 to 2.5 s; older ones do not count any more."""
    bench = Bench("a", "b", look_back=50)
    slow, quick = ([bound >= least_s for bound in (*SECONDS, np.inf)] for least_s in (2.5, 0.25))
    for answers in (((5, slow), (0, quick)), ((0, slow), (40, quick)), ((10, slow), (0, quick))):
        for id, (count, within) in zip(bench.counts, answers, strict=True):
            c = bench.counts[id]
            before = c.within or (0.0,) * len(within)
            grown = tuple(n + count * inside for n, inside in zip(before, within, strict=True))
            bench.counts[id] = c._replace(requests=c.requests + count, answered=c.answered + count, within=grown)
        bench.close()
    recent = bench.telemetry.recent()
    assert recent.p50_s == pytest.approx(0.16 + 0.09 * 25 / 40)
    assert recent.p99_s == pytest.approx(1.6 + 0.9 * 9.5 / 10)
    for _ in range(9):
        bench.close()
    bench.telemetry.load()
    bench.again(since_s=60.0)  # the stored state has no latencies by size
    bench.counts = {id: c._replace(requests=c.requests + 10.0) for id, c in bench.counts.items()}
    bench.close()
    assert (bench.telemetry.recent().count, bench.telemetry.recent().p50_s) == (20, None)


def test_a_restart_goes_on_with_what_the_gateway_counted() -> None:
    bench = Bench("a", gateway=True)
    for minute in range(13):
        bench.gateway = GatewayCounts(1000.0 + 10.0 * minute, 0.0)
        bench.close()
    bench.telemetry.load()
    bench.again(since_s=60.0)
    bench.gateway = GatewayCounts(1130.0, 0.0)
    bench.close()
    assert bench.telemetry.windows_rps().tolist() == [2.0]


@pytest.mark.parametrize("counted", [6, 7])
def test_what_an_earlier_version_kept_counts_on(counted: int) -> None:
    """An earlier version counted no errors or no latencies, which must not double other counts."""
    bench = Bench("a")
    for _ in range(12):
        bench.serve(10.0)
    bench.telemetry.load()
    kept = bench.store.get("telemetry")
    assert kept is not None
    bench.store.put(
        "telemetry",
        {**kept, "last": {id: (window, (*seen[:counted], seen[-1])) for id, (window, seen) in kept["last"].items()}},
    )
    bench.again()
    bench.begin("a", ready_s=0.0)
    bench.counts["a"] = BouncerCounters(123.0, service_s=13.0, workers=2.0)
    bench.close()
    assert bench.telemetry.answers().count == 123


def test_the_gateway_counts_clients_that_found_no_instance() -> None:
    """Its clients are the load; its refusals count as late."""
    bench = Bench("a", gateway=True)
    bench.gateway = GatewayCounts(1000.0, 0.0)
    bench.serve(0.0)
    bench.gateway = GatewayCounts(1050.0, 40.0)
    bench.serve(10.0, misses=1.0)
    assert np.array_equal(bench.telemetry.windows_rps(), [np.nan, 10.0], equal_nan=True)
    assert bench.telemetry.answers() == RecentAnswers(50, 9)
    bench.targets.clear()
    bench.gateway = GatewayCounts(1060.0, 50.0)
    bench.close()
    assert bench.telemetry.windows_rps()[-1] == 2.0
    bench.gateway = None
    bench.close()
    assert math.isnan(bench.telemetry.windows_rps()[-1])


def test_the_gateways_function_answers_are_billed_and_can_be_late() -> None:
    """Bouncers' functions cost besides."""
    bench = Bench("a", gateway=True, function=BilledFunction(FUNCTION))
    bench.gateway = GatewayCounts(1000.0, 0.0)
    bench.serve(0.0)
    assert bench.telemetry.overflow() == OverflowTotals(0, 0.0)
    bench.gateway = GatewayCounts(1050.0, 10.0, by_functions=20.0, late=5.0, function_calls=21.0, function_billed_s=4.0)
    bench.serve(10.0, misses=1.0)
    assert bench.telemetry.answers() == RecentAnswers(50, 34)
    usd = 4.0 * FUNCTION.usd_per_s + 21 * FUNCTION.usd_per_million_requests / 1e6
    assert bench.telemetry.overflow() == OverflowTotals(20, pytest.approx(usd))  # type: ignore[arg-type]


def test_before_the_first_request_the_load_is_unknown() -> None:
    """Its windows are missing until the first request. After that silence means no load, after a restart as well."""
    bench = Bench("a", gateway=True)
    for requests in (0.0, 0.0, 50.0, 50.0):
        bench.gateway = GatewayCounts(requests, 0.0)
        bench.close()
    nan = np.nan
    assert np.array_equal(bench.telemetry.windows_rps(), [nan, nan, 10.0, 0.0], equal_nan=True)
    bench.gateway = GatewayCounts(0.0, 0.0)  # restarted
    bench.close()
    assert bench.telemetry.windows_rps()[-1] == 0.0


def test_before_the_first_window_the_rate_is_from_history() -> None:
    bench = Bench("a", before_rps=7.0)
    assert bench.telemetry.last_minute_rps() == 7.0
    bench.serve(10.0)
    assert bench.telemetry.last_minute_rps() == 2.0


def test_the_last_thousand_are_looked_back_at() -> None:
    """They are whole windows, the newest first."""
    bench = Bench("a")
    bench.serve(5000.0, misses=5000.0)
    bench.serve(600.0)
    bench.serve(600.0, misses=30.0)
    assert bench.telemetry.recent() == RecentAnswers(1200, 1170)


def test_as_many_are_looked_back_at_as_asked() -> None:
    bench = Bench("a", look_back=601)
    for _ in range(3):
        bench.serve(300.0, misses=3.0)
    assert bench.telemetry.recent() == RecentAnswers(900, 891)
    bench.serve(400.0)
    assert bench.telemetry.recent() == RecentAnswers(700, 697)


def test_busy_is_the_share_of_the_workers_time() -> None:
    """0.1 s a request, two workers, 5 s."""
    bench = Bench("a", "b")
    for _ in range(12):
        bench.serve(50.0, 25.0)
    assert bench.telemetry.utilization() == {"c5.large/spot/a": pytest.approx(0.375)}


def test_functions_cost_what_they_are_billed_for() -> None:
    """Seconds and calls are billed at the catalogue's price."""
    bench = Bench("a", function=BilledFunction(FUNCTION))
    bench.counts["a"] = BouncerCounters(100.0, 0.0, 40.0, 0.0, 50.0, 20.0, workers=1.0)
    bench.close()
    overflow = bench.telemetry.overflow()
    assert overflow.requests == 40
    assert overflow.usd == pytest.approx(20.0 * 1e-5 + 50 * 0.2e-6)


def test_rates_are_of_the_wall_where_control_seconds_are_shorter() -> None:
    """With ten control seconds a second a window takes half a second."""
    bench = Bench("a", scale=10.0)
    for _ in range(12):
        bench.serve(10.0)
    assert bench.telemetry.last_minute_rps() == pytest.approx(20.0)
    assert list(bench.telemetry.load().mean_rps) == pytest.approx([20.0])
    assert bench.telemetry.utilization()["c5.large/spot/a"] == 1.0


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=3, max_size=3), max_size=40))
def test_silences_neither_lose_nor_double_count_requests(windows: list[list[int | None]]) -> None:
    """At the end all bouncers answer once more: the total equals their counts."""
    bench = Bench("a", "b", "c")
    everything: list[list[int | None]] = [*windows, [0, 0, 0]]
    for counts in everything:
        bench.silent = {id for id, count in zip("abc", counts, strict=True) if count is None}
        bench.serve(*(count or 0 for count in counts))
    assert bench.telemetry.answers().count == sum(count or 0 for counts in windows for count in counts)
    windows_rps = bench.telemetry.windows_rps()
    assert (windows_rps[np.isfinite(windows_rps)] >= 0.0).all()


def test_what_no_bouncer_saw_is_load_too() -> None:
    """Lost requests are misses. Requests that a function answered are no misses, and are billed."""
    seen = [UnseenRequests()]
    bench = Bench("a", unseen=UnseenSource(lambda: seen[0], 0.5), function=BilledFunction(FUNCTION))
    bench.serve(10.0)
    seen[0] = UnseenRequests(20.0, 5.0)
    bench.serve(10.0)
    bench.serve(10.0)
    assert list(bench.telemetry.windows_rps()) == [2.0, 7.0, 2.0]
    assert bench.telemetry.answers() == RecentAnswers(55, 35)
    overflow = bench.telemetry.overflow()
    assert overflow.requests == 5
    assert overflow.usd == pytest.approx(2.5 * FUNCTION.usd_per_s + 5 * FUNCTION.usd_per_million_requests / 1e6)


@pytest.mark.parametrize("by_gateway", [False, True])
def test_misses_of_an_outage_of_the_controller_are_not_recent(by_gateway: bool) -> None:
    """Otherwise the SLO monitor of the next controller would launch instances because of them."""
    bench = Bench("a", gateway=by_gateway)
    for _ in range(12):
        bench.gateway = GatewayCounts(10.0 * (bench.window + 1)) if by_gateway else None
        bench.serve(10.0)
    bench.telemetry.load()
    before = bench.telemetry.answers()
    bench.window += 300
    bench.again(since_s=60.0)
    bench.gateway = GatewayCounts(bench.gateway.requests + 1000.0) if bench.gateway is not None else None
    bench.serve(1000.0, misses=500.0)
    assert bench.telemetry.recent().count == 0
    assert bench.telemetry.answers().count == before.count + 1000
    assert bench.telemetry.answers().in_time == before.in_time + 500
    bench.gateway = GatewayCounts(bench.gateway.requests + 10.0) if bench.gateway is not None else None
    bench.serve(10.0)
    recent = bench.telemetry.recent()
    assert (recent.count, recent.in_time) == (10, 10)


def test_requests_lost_before_this_process_led_are_no_burst() -> None:
    """A controller that stands by counts them as well, for days, and the leader has told them."""
    seen = [UnseenRequests(9000.0, 5000.0)]
    bench = Bench("a", unseen=UnseenSource(lambda: seen[0], 0.5), function=BilledFunction(FUNCTION))
    bench.serve(10.0)
    seen[0] = UnseenRequests(9020.0, 5000.0)
    bench.serve(10.0)
    assert list(bench.telemetry.windows_rps()) == [2.0, 6.0]
    assert bench.telemetry.answers() == RecentAnswers(40, 20)
    assert bench.telemetry.overflow().requests == 0


def test_without_a_bouncer_the_balancer_alone_tells_the_load() -> None:
    """Without its data, which are a minute late or more, the load stays unknown, more so with a silent bouncer."""
    seen = [UnseenRequests()]
    bench = Bench(unseen=UnseenSource(lambda: seen[0]))
    bench.close()
    seen[0] = UnseenRequests(20.0)
    bench.close()
    bench.begin("a")
    bench.silent.add("a")
    seen[0] = UnseenRequests(30.0)
    bench.close()
    assert np.array_equal(bench.telemetry.windows_rps(), [np.nan, 4.0, np.nan], equal_nan=True)
    assert bench.telemetry.answers() == RecentAnswers(30, 0)
