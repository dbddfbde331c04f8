"""Queries of a pipeline, as its conductors count them: how many of the last ones were in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from threading import Lock

from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers
from mark_infra.telemetry.counters import BouncerCounters


class ConductedQueries:
    """Any thread may hand in windows, and any may read.

    `look_back` is how many queries `recent` tells of, about: it takes whole windows, of `RECENT_S` at most. What a
    conductor counted before it was first asked may be old, and is left out.
    """

    def __init__(self, look_back: int = 1000) -> None:
        self._look_back = look_back
        self._windows: deque[tuple[float, float]] = deque(maxlen=round(RECENT_S / WINDOW_S))  # queries, of them missed
        self._last: dict[str, BouncerCounters] = {}  # by conductor
        self._lock = Lock()

    def close_window(self, asked: Collection[str], answered: Mapping[str, BouncerCounters]) -> None:
        """A window is over in which these conductors were `asked`; those that `answered` count from their start on."""
        queries = missed = 0.0
        for name, now in answered.items():
            if (before := self._last.get(name)) is not None:
                grown = now.since(before)
                queries, missed = queries + grown.requests, missed + grown.misses
        known = {**self._last, **answered}
        self._last = {name: known[name] for name in asked if name in known}
        with self._lock:
            self._windows.append((queries, min(missed, queries)))

    def recent(self) -> RecentAnswers:
        """The last queries that were answered or refused."""
        queries = missed = 0.0
        with self._lock:
            for of_window, missed_of_it in reversed(self._windows):
                queries, missed = queries + of_window, missed + missed_of_it
                if queries >= self._look_back:
                    break
        return RecentAnswers(round(queries), round(queries - missed))
