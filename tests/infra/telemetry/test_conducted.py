"""Whole queries in the conductors' counters: how many were in time, and how long they took."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.telemetry.conducted import ConductedQueries
from mark_infra.telemetry.counters import BouncerCounters

from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers
from mark.domain.time import MINUTE_S
from mark.serving.backend.metrics import SECONDS

RT_MAX_S = 0.3
PER_MINUTE = round(MINUTE_S / WINDOW_S)


def counters(requests: float, misses: float) -> BouncerCounters:
    return BouncerCounters(requests=requests, misses=misses)


def of_latencies(seconds: Sequence[float], refused: int = 0) -> BouncerCounters:
    """Count these answers and refused queries as a conductor does."""
    late = sum(s > RT_MAX_S for s in seconds)
    within = (*(float(sum(s <= bound for s in seconds)) for bound in SECONDS), float(len(seconds)))
    return BouncerCounters(
        requests=len(seconds) + refused,
        misses=late + refused,
        answered=len(seconds),
        latency_s=sum(seconds),
        within=within,
    )


def windows(*counts: Mapping[str, tuple[float, float]], look_back: int = 1000) -> RecentAnswers:
    """Return the recent answers of windows, each by conductor; every conductor that ever answered is asked."""
    conducted, names = ConductedQueries(RT_MAX_S, look_back=look_back), {name for one in counts for name in one}
    for window, one in enumerate(counts):
        conducted.close_window(window, names, {name: counters(*now) for name, now in one.items()})
    return conducted.recent()


def heard(*counts: Mapping[str, BouncerCounters]) -> ConductedQueries:
    """Return the queries of windows, each by conductor, from window 0 on; every conductor ever heard is asked."""
    conducted, names = ConductedQueries(RT_MAX_S), {name for one in counts for name in one}
    for window, one in enumerate(counts):
        conducted.close_window(window, names, one)
    return conducted


def test_what_was_counted_before_the_first_question_is_left_out() -> None:
    assert windows({"a": (5000, 5000)}) == RecentAnswers(0, 0)
    assert windows({"a": (5000, 5000)}, {"a": (5010, 5001), "b": (7, 7)}) == RecentAnswers(10, 9)
    assert windows({"a": (0, 0), "b": (0, 0)}, {"a": (10, 1), "b": (30, 0)}) == RecentAnswers(40, 39)


def test_a_silent_conductor_is_caught_up_with() -> None:
    """A restarted conductor has counted from zero."""
    assert windows({"a": (10, 0)}, {}, {"a": (14, 1)}) == RecentAnswers(4, 3)
    assert windows({"a": (10, 0)}, {"a": (3, 1)}) == RecentAnswers(3, 2)


def test_one_that_is_replaced_is_forgotten() -> None:
    conducted = ConductedQueries(RT_MAX_S)
    for window, (asked, now) in enumerate((({"a"}, 10), ({"b"}, 0), ({"a", "b"}, 50))):
        conducted.close_window(window, asked, dict.fromkeys(asked, counters(now, 0)))
    assert conducted.recent().count == 50, "of b alone"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60),
    st.integers(1, 500),
)
def test_the_last_whole_windows_are_told_of(grown: list[tuple[int, int]], look_back: int) -> None:
    """Windows are taken until they have `look_back` queries together, as far back as RECENT_S."""
    grown = [(queries, min(missed, queries)) for queries, missed in grown]
    so_far = [(float(sum(q for q, _ in grown[:n])), float(sum(m for _, m in grown[:n]))) for n in range(len(grown) + 1)]
    kept = [(0, 0), *grown][-round(RECENT_S / WINDOW_S) :]
    queries = missed = 0
    while kept and queries < look_back:
        of_window, missed_of_it = kept.pop()
        queries, missed = queries + of_window, missed + missed_of_it
    assert windows(*({"a": one} for one in so_far), look_back=look_back) == RecentAnswers(queries, queries - missed)


def test_without_a_conductor_nothing_is_known() -> None:
    conducted = ConductedQueries(RT_MAX_S)
    for window in range(2 * PER_MINUTE):
        conducted.close_window(window, [], {})
    now, history = conducted.view(), conducted.history(0.1, 100)
    assert (now.per_s, now.recent, now.recent_ms, now.recent_p50_ms, now.recent_p99_ms) == (None,) * 5
    assert set(history.per_s + history.attainment + history.p50_ms + history.p99_ms) == {None}
    assert ConductedQueries(RT_MAX_S).history(24.0, 1440).per_s == (None,) * 1440


def test_wanted_calls_of_all_conductors_are_told_by_window() -> None:
    def wants(count: float) -> BouncerCounters:
        return BouncerCounters(wanted=(("large", count),))

    conducted = heard({"a": wants(5)}, {"a": wants(15), "b": wants(1)}, {}, {"a": wants(20), "b": wants(21)})
    found = conducted.wanted_rps("large")
    assert found is not None
    np.testing.assert_array_equal(found, [np.nan, 10.0 / WINDOW_S, np.nan, 25.0 / WINDOW_S])
    assert conducted.wanted_rps("small") is None
    assert heard({"a": counters(1, 0)}, {"a": counters(2, 0)}).wanted_rps("large") is None


def test_conductors_without_queries_are_heard_all_the_same() -> None:
    assert heard({"a": counters(7, 0)}, {"a": counters(7, 0)}).view().per_s == 0.0


def test_all_conductors_latencies_are_taken_together() -> None:
    """Quantiles of single conductors would differ."""
    quick, slow = [0.02] * 900, [0.2] * 100
    nothing = of_latencies([])
    now = heard({"a": nothing, "b": nothing}, {"a": of_latencies(quick), "b": of_latencies(slow)}).view()
    assert (now.recent, now.recent_ms) == (1.0, pytest.approx(38.0))
    assert now.recent_p50_ms == pytest.approx(16.0 + 9.0 * 500 / 900)
    assert now.recent_p99_ms == pytest.approx(160.0 + 90.0 * 90 / 100)


@given(
    st.lists(st.sampled_from([*SECONDS[:-1], 0.29, 0.3, 0.31]), min_size=1, max_size=60),
    st.integers(0, 5),
    st.sampled_from([0.5, 0.99]),
)
def test_a_quantile_is_beyond_the_promise_where_too_many_are(
    seconds: list[float], refused: int, quantile: float
) -> None:
    """The quantile also lies within the bounds around the true one; the counts by size alone leave both sides open."""
    conducted = heard({"a": of_latencies([])}, {"a": of_latencies(seconds, refused)})
    found = conducted.view().recent_p50_ms if quantile == 0.5 else conducted.view().recent_p99_ms
    assert found is not None
    kept = sum(s <= RT_MAX_S for s in seconds) >= quantile * len(seconds) - 1e-9
    assert (found <= RT_MAX_S * 1e3 + 1e-9) == kept
    true = sorted(seconds)[math.ceil(quantile * len(seconds) - 1e-9) - 1]
    bounds = [0.0, *sorted([*SECONDS, RT_MAX_S])]
    low, high = next((a, b) for a, b in itertools.pairwise(bounds) if a < true <= b)
    assert low * 1e3 - 1e-9 <= found <= high * 1e3 + 1e-9


def test_counters_that_begin_anew_are_counted_from_zero() -> None:
    """More queries than ever before may have come since: then the counts by size show the restart."""
    old, new = of_latencies([0.02] * 10), of_latencies([0.2] * 30)
    assert heard({"a": old}, {"a": of_latencies([0.2] * 4)}).recent().count == 4
    restarted = heard({"a": old}, {"a": new})
    assert (restarted.recent().count, restarted.recent().latency_s) == (30, pytest.approx(0.2))
    p50_s = restarted.recent().p50_s
    assert p50_s is not None
    assert 0.16 < p50_s <= 0.25


def test_a_conductor_that_comes_and_goes_hides_no_other() -> None:
    """Its counts while it is not asked are left out, because their time is unknown."""
    steady, conducted = 0, ConductedQueries(RT_MAX_S)
    for window in range(PER_MINUTE):
        steady += 50
        there = {"steady": of_latencies([0.02] * steady)}
        if window % 4 < 2:  # asked in two of four windows: 10 queries in the second of them
            there["other"] = of_latencies([0.2] * (100 * window + 10 * (window % 4)))
        conducted.close_window(window, list(there), there)
    expected = 50 * (PER_MINUTE - 1) + 3 * 110
    assert conducted.recent().count == expected
    assert conducted.view().per_s == pytest.approx(expected / MINUTE_S)


def test_history_has_the_quantiles_of_each_minute() -> None:
    """The minutes are on the wall, also if the clock of the windows is faster."""
    conducted, so_far = ConductedQueries(RT_MAX_S, lambda at_s: 1e9 + at_s / 10.0), list[float]()
    for window in range(3 * PER_MINUTE):
        so_far += [(0.02, 0.2, 0.5)[window // PER_MINUTE]] * 6
        conducted.close_window(window, ["a"], {"a": of_latencies(so_far)})
    by_minute, whole = conducted.history(3 / 60, 3), conducted.history(3 / 60, 1)
    assert (by_minute.start_unix_s, by_minute.step_s) == (pytest.approx(1e9), pytest.approx(6.0))
    assert by_minute.attainment == (1.0, 1.0, 0.0)
    assert by_minute.per_s == pytest.approx((11.0, 12.0, 12.0))
    assert by_minute.p50_ms == pytest.approx((20.5, 205.0, 515.0))
    assert (whole.step_s, whole.attainment) == (pytest.approx(18.0), (pytest.approx(138 / 210),))
    assert len(conducted.history(24.0, 1440).p99_ms) == 1440


def test_windows_that_were_missed_do_not_raise_the_rate() -> None:
    conducted = ConductedQueries(RT_MAX_S)
    for window in (0, 1, 2, 6):
        conducted.close_window(window, ["a"], {"a": counters(100 * window, 0)})
    assert conducted.view().per_s == pytest.approx(600 / (7 * WINDOW_S))


def test_a_day_is_remembered_and_no_more() -> None:
    conducted = ConductedQueries(RT_MAX_S)
    for minute in range(26 * 60):
        conducted.close_window(minute * PER_MINUTE, ["a"], {"a": counters(float(minute), 0)})
    assert len(conducted._minutes) == 24 * 60
