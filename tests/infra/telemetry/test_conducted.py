"""Whole queries, by what conductors counted."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from mark_infra.telemetry.conducted import ConductedQueries
from mark_infra.telemetry.counters import BouncerCounters

from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers


def counters(requests: float, misses: float) -> BouncerCounters:
    return BouncerCounters(requests=requests, misses=misses)


def windows(*counts: Mapping[str, tuple[float, float]], look_back: int = 1000) -> RecentAnswers:
    """Each window by conductor; all are asked that ever answered."""
    conducted, names = ConductedQueries(look_back), {name for one in counts for name in one}
    for one in counts:
        conducted.close_window(names, {name: counters(*now) for name, now in one.items()})
    return conducted.recent()


def test_what_was_counted_before_the_first_question_is_left_out() -> None:
    assert windows({"a": (5000, 5000)}) == RecentAnswers(0, 0)
    assert windows({"a": (5000, 5000)}, {"a": (5010, 5001), "b": (7, 7)}) == RecentAnswers(10, 9)
    assert windows({"a": (0, 0), "b": (0, 0)}, {"a": (10, 1), "b": (30, 0)}) == RecentAnswers(40, 39)


def test_a_silent_conductor_is_caught_up_with() -> None:
    """One that began anew has counted from zero."""
    assert windows({"a": (10, 0)}, {}, {"a": (14, 1)}) == RecentAnswers(4, 3)
    assert windows({"a": (10, 0)}, {"a": (3, 1)}) == RecentAnswers(3, 2)


def test_one_that_is_replaced_is_forgotten() -> None:
    conducted = ConductedQueries()
    for asked, now in (({"a"}, 10), ({"b"}, 0), ({"a", "b"}, 50)):
        conducted.close_window(asked, dict.fromkeys(asked, counters(now, 0)))
    assert conducted.recent().count == 50, "of b alone"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60),
    st.integers(1, 500),
)
def test_the_last_whole_windows_are_told_of(grown: list[tuple[int, int]], look_back: int) -> None:
    """As many as have `look_back` queries together, and none before what RECENT_S remembers."""
    grown = [(queries, min(missed, queries)) for queries, missed in grown]
    so_far = [(float(sum(q for q, _ in grown[:n])), float(sum(m for _, m in grown[:n]))) for n in range(len(grown) + 1)]
    kept = [(0, 0), *grown][-round(RECENT_S / WINDOW_S) :]
    queries = missed = 0
    while kept and queries < look_back:
        of_window, missed_of_it = kept.pop()
        queries, missed = queries + of_window, missed + missed_of_it
    assert windows(*({"a": one} for one in so_far), look_back=look_back) == RecentAnswers(queries, queries - missed)
