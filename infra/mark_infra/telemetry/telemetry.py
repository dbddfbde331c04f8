"""The observed load of a service, from the metrics of its bouncers: the port `Telemetry` for real instances.

`mark_infra.telemetry.scraper` reads every bouncer once a window and passes its counters here, where they become
windows, and windows become load. Nothing here blocks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np

from mark.control.ports import RECENT_S, WINDOW_S, OverflowTotals, RecentAnswers, ReleaseCounts, Store, Telemetry
from mark.domain.arrays import FloatArray
from mark.domain.function_offer import FunctionOffer
from mark.domain.load import Load
from mark.domain.time import DAY_S, STEP_S
from mark.serving.backend.metrics import SECONDS
from mark_infra.telemetry.balancer_counts import UnseenRequests
from mark_infra.telemetry.counters import BouncerCounters, GatewayCounts
from mark_infra.telemetry.latency_quantile import latency_quantile_s

_PER_STEP = round(STEP_S / WINDOW_S)
_KEPT = 30 * 24 * 3600  # windows, while the load is not read
# Steps returned by one call. A longer gap is shortened by whole weeks, so that the hours of the week stay in place.
_WEEK = round(7 * DAY_S / STEP_S)
MOST_STEPS = 2 * _WEEK
_MISSED = round(3600.0 / WINDOW_S)  # windows for which the last counters of an unread bouncer are kept
_RECENT = round(RECENT_S / WINDOW_S)  # windows whose answers are recent
_GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A bouncer to read. `ready_s`: since when it serves, by the service's clock."""

    id: str
    url: str
    offer: str
    ready_s: float
    release: str = ""


@dataclass(frozen=True, slots=True)
class _Window:
    requests: float
    misses: float
    answered: float
    latency_s: float  # of the answered requests
    within: FloatArray  # of the answered requests, by size as in `BouncerCounters`; empty: unknown
    busy: Mapping[str, tuple[float, float]]  # by offer: busy worker-seconds, and available ones


@dataclass(frozen=True, slots=True)
class HistoryEnd:
    """The end of the predictor's history, and the rate of its last minute, used until the first window is over."""

    end_s: float = 0.0
    last_rps: float | None = None


@dataclass(frozen=True, slots=True)
class BilledFunction:
    """The function, and the work that this process itself had it do so far: invocations, and billed seconds."""

    offer: FunctionOffer
    spent: Callable[[], tuple[int, float]] | None = None


@dataclass(frozen=True, slots=True)
class UnseenSource:
    """Requests that bouncers do not see. Each of them that a function answered was billed `billed_s`."""

    so_far: Callable[[], UnseenRequests]
    billed_s: float = 0.0


class ScrapedTelemetry:
    """The port `Telemetry`. Any thread may add windows, one thread reads.

    Rates are requests per second of wall time, whatever the clock's `scale`, because instances serve in wall time. Load
    begins where the predictor's `history` ends (whole minutes); `keep_load` also gets it. Totals and last counters are
    in the store, so that a restart of the controller neither loses nor repeats requests, if the instance still has its
    counters.

    A window is missing (NaN) if the gateway could not be read or, without one, most of the bouncers. With a `gateway`,
    its clients' requests are counted, including requests that found no instance. Windows are also missing until the
    first of them, because the load of a service is not zero before traffic is switched over to it.

    `unseen` are the requests that reached a load balancer but no bouncer; without bouncers to read, they are the only
    known load. `look_back` is the approximate number of requests in `recent`, which takes whole windows. One request
    makes `calls_per_request` counted calls on average. Each missed call counts as a missed request, up to the number of
    requests.
    """

    def __init__(
        self,
        store: Store,
        *,
        now_s: float,
        history: HistoryEnd | None = None,
        scale: float = 1.0,
        gateway: bool = False,
        function: BilledFunction | None = None,
        look_back: int = 1000,
        keep_load: Callable[[Load], None] = lambda _: None,
        unseen: UnseenSource | None = None,
        calls_per_request: float = 1.0,
    ) -> None:
        self._store, self._gateway, self._keep_load = store, gateway, keep_load
        self._function = None if function is None else function.offer
        history = history or HistoryEnd()
        self._look_back, self._before_rps = look_back, history.last_rps
        self._spent, self._spent_before = None if function is None else function.spent, (0, 0.0)
        # Requests counted while another process led were its load.
        self._unseen, self._unseen_before = unseen, UnseenRequests() if unseen is None else unseen.so_far()
        self._window_s = WINDOW_S / scale  # in wall time
        self._calls_per_request = calls_per_request
        self._lock = Lock()
        # The number of steps returned so far. A leader whose clock was ahead may have kept future steps, so limit it.
        self._given = min(round(history.end_s / STEP_S), math.floor(now_s / STEP_S))
        self._first = math.floor(now_s / WINDOW_S)  # number of the oldest window in `_counts`
        self._counts: deque[float] = deque(maxlen=_KEPT)
        self._recent: deque[_Window] = deque(maxlen=_RECENT)
        kept = store.get("telemetry") or {}
        # When the service was first watched. Bouncers that served before are counted from their first answer on.
        self._began_s: float = kept.get("began_s", now_s)
        self._total: list[float] = list(kept.get("total", (0.0,) * 5))
        self._last: dict[str, tuple[int, tuple[Any, ...]]] = {
            id: (window, counters if id == _GATEWAY else _filled(counters))
            for id, (window, counters) in kept.get("last", {}).items()
        }
        self._releases: dict[str, dict[str, ReleaseCounts]] = {}

    # -- windows -------------------------------------------------------------------------------------------------------

    def close_window(
        self,
        window: int,
        asked: Sequence[ScrapeTarget],
        answered: Mapping[str, BouncerCounters],
        gateway: GatewayCounts | None,
    ) -> None:
        """Add window number `window` (from the origin); `answered` by target id. Skipped windows stay missing."""
        with self._lock:
            rate = requests = load = misses = answers = latency_s = 0.0
            old_requests = old_misses = 0.0  # of bouncers that were not read for longer than answers are recent
            counted, unknown = 0, 0  # bouncers with and without a comparable answer
            within = np.zeros(0)
            busy: dict[str, tuple[float, float]] = {}
            # Keep the counters of bouncers that are not read now. Otherwise, if the cloud left one out for a moment,
            # all its earlier counts would be new the next time.
            last = {id: seen for id, seen in self._last.items() if id != _GATEWAY and window - seen[0] <= _MISSED}
            for target in asked:
                now, before = answered.get(target.id), self._last.get(target.id)
                if now is None:
                    unknown += 1
                    if before is not None:
                        last[target.id] = before
                    continue
                last[target.id] = window, tuple(now)
                if before is not None and target.ready_s <= (before[0] + 1) * WINDOW_S:
                    passed, grown = max(1, window - before[0]), now.since(BouncerCounters(*before[1]))
                elif target.ready_s >= self._began_s:  # new, or a standby that was resumed
                    passed, grown = max(1, window - math.floor(target.ready_s / WINDOW_S)), now
                else:
                    continue  # it served before the first scrape, so its counts have no start
                counted += 1
                rate += grown.load / passed
                requests, misses = requests + grown.requests, misses + grown.misses
                load += grown.load
                if passed > _RECENT:
                    old_requests, old_misses = old_requests + grown.requests, old_misses + grown.misses
                else:
                    answers, latency_s = answers + grown.answered, latency_s + grown.latency_s
                if grown.within and passed <= _RECENT:
                    within = np.add(within, grown.within) if len(within) else np.array(grown.within)
                if target.release:
                    of_release = self._releases.setdefault(target.release, {})
                    of_release[target.offer] = of_release.get(target.offer, ReleaseCounts()) + ReleaseCounts(
                        round(grown.load), round(min(grown.misses, grown.load)), round(grown.errors), grown.service_s,
                        round(grown.by_functions),
                    )  # fmt: skip
                self._add(by_functions=grown.by_functions, calls=grown.function_calls, billed=grown.function_billed_s)
                busy_s, of_s = busy.get(target.offer, (0.0, 0.0))
                busy[target.offer] = busy_s + grown.service_s / passed, of_s + now.workers * self._window_s
            if self._gateway:
                cached = 1.0 - load / requests if requests else 0.0
                rate, requests, misses = self._through_gateway(window, gateway, misses, last)
                before = self._last.get(_GATEWAY)
                old = before is not None and window - before[0] > _RECENT
                old_requests, old_misses = (requests, misses) if old else (0.0, old_misses)
                rate *= 1.0 - cached
            elif counted < unknown or not counted:
                rate = math.nan
            else:
                rate *= (counted + unknown) / counted
            if self._unseen is not None:
                lost, by_function = self._newly_unseen(self._unseen)
                if not asked and lost + by_function > 0.0:
                    rate = 0.0
                rate, requests, misses = rate + lost + by_function, requests + lost + by_function, misses + lost
            rate, requests = rate / self._calls_per_request, requests / self._calls_per_request
            if self._spent is not None:
                spent, before_s = self._spent(), self._spent_before
                self._add(calls=spent[0] - before_s[0], billed=spent[1] - before_s[1])
                self._spent_before = spent
            self._last = last
            self._add(requests=requests, misses=min(misses, requests))
            if window - self._first - len(self._counts) > MOST_STEPS * _PER_STEP:  # the clock has jumped
                self._counts.clear()
                self._first = window
            while self._first + len(self._counts) < window:
                self._append(math.nan)
            if self._first + len(self._counts) == window:
                self._append(rate)
            requests = max(0.0, requests - old_requests / self._calls_per_request)
            misses = min(max(0.0, misses - old_misses), requests)
            self._recent.append(_Window(requests, misses, answers, latency_s, within, busy))

    def _through_gateway(
        self, window: int, now: GatewayCounts | None, misses: float, last: dict[str, tuple[int, tuple[Any, ...]]]
    ) -> tuple[float, float, float]:
        """Return (requests of the window, counted requests, counted misses)."""
        before = self._last.get(_GATEWAY)
        if now is None:
            if before is not None:
                last[_GATEWAY] = before
            return math.nan, 0.0, misses
        last[_GATEWAY] = window, tuple(now)
        if before is None or not (now.requests or self._total[0]):
            return math.nan, 0.0, 0.0
        grown = now.since(GatewayCounts(*before[1]))
        self._add(by_functions=grown.by_functions, calls=grown.function_calls, billed=grown.function_billed_s)
        return grown.requests / max(1, window - before[0]), grown.requests, misses + grown.refused + grown.late

    def _newly_unseen(self, source: UnseenSource) -> tuple[float, float]:
        now = source.so_far()
        lost, by_function = (n - before for n, before in zip(now, self._unseen_before, strict=True))
        self._unseen_before = now
        self._add(by_functions=by_function, calls=by_function, billed=by_function * source.billed_s)
        return lost, by_function

    def _add(
        self,
        requests: float = 0.0,
        misses: float = 0.0,
        by_functions: float = 0.0,
        calls: float = 0.0,
        billed: float = 0.0,
    ) -> None:
        for i, more in enumerate((requests, misses, by_functions, calls, billed)):
            self._total[i] += more

    def _append(self, count: float) -> None:
        if len(self._counts) == _KEPT:
            self._first += 1
        self._counts.append(count)

    # -- the port ------------------------------------------------------------------------------------------------------

    def load(self) -> Load:
        """Return the load, as the port defines it; at most `MOST_STEPS`, even if the clock has jumped."""
        with self._lock:
            first, end = self._given, (self._first + len(self._counts)) // _PER_STEP
            if end - first > MOST_STEPS:
                first += math.ceil((end - first - MOST_STEPS) / _WEEK) * _WEEK
            steps = max(0, end - first)
            counts = np.full(steps * _PER_STEP, np.nan)
            begin = self._first - first * _PER_STEP  # of the seen windows, in `counts`
            seen = np.array(self._counts)[max(0, -begin) : max(0, len(counts) - begin)]
            counts[max(0, begin) : max(0, begin) + len(seen)] = seen
            last = {id: (at, seen if id == _GATEWAY else _kept(seen)) for id, (at, seen) in self._last.items()}
            kept = {"began_s": self._began_s, "total": tuple(self._total), "last": last}
        by_step = counts.reshape(steps, _PER_STEP) / self._window_s
        present = np.isfinite(by_step)
        known = 2 * present.sum(axis=1) >= _PER_STEP
        filled = np.where(present, by_step, 0.0)
        mean = np.where(known, filled.sum(axis=1) / np.maximum(present.sum(axis=1), 1), np.nan)
        peak = np.where(known, filled.max(axis=1, initial=0.0), np.nan)
        load = Load(first * STEP_S, STEP_S, mean, np.fmax(peak, mean))
        if steps:
            self._store.put("telemetry", kept)
            self._keep_load(load)
            with self._lock:  # only now, so that steps are returned again if the store failed
                self._given = first + steps
                while self._counts and self._first < min(self._given, self._first + len(self._counts) - _PER_STEP):
                    self._counts.popleft()
                    self._first += 1
        return load

    def last_minute_rps(self) -> float | None:
        windows = self.windows_rps()
        if not len(windows):
            return self._before_rps
        seen = windows[np.isfinite(windows)]
        return float(seen.mean()) if len(seen) else None

    def windows_rps(self) -> FloatArray:
        with self._lock:
            newest = list(islice(reversed(self._counts), _PER_STEP))  # unread load may be long
        return np.array(newest[::-1], dtype=np.float64) / self._window_s

    def recent(self) -> RecentAnswers:
        requests = misses = answered = latency_s = 0.0
        within = np.zeros(len(SECONDS) + 1)
        with self._lock:
            for window in reversed(self._recent):
                requests, misses = requests + window.requests, misses + window.misses
                answered, latency_s = answered + window.answered, latency_s + window.latency_s
                if len(window.within):
                    within += window.within
                if requests >= self._look_back:
                    break
        return RecentAnswers(
            round(requests),
            round(requests - misses),
            latency_s / answered if answered else None,
            latency_quantile_s(within.tolist(), 0.5),
            latency_quantile_s(within.tolist(), 0.99),
        )

    def answers(self) -> RecentAnswers:
        with self._lock:
            requests, misses = self._total[:2]
        return RecentAnswers(round(requests), round(requests - misses))

    def utilization(self) -> Mapping[str, float]:
        busy: dict[str, list[float]] = {}
        with self._lock:
            for window in list(self._recent)[-_PER_STEP:]:
                for offer, (busy_s, of_s) in window.busy.items():
                    sums = busy.setdefault(offer, [0.0, 0.0])
                    sums[0], sums[1] = sums[0] + busy_s, sums[1] + of_s
        return {offer: min(1.0, busy_s / of_s) for offer, (busy_s, of_s) in sorted(busy.items()) if of_s > 0.0}

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        with self._lock:
            return {release: dict(by_offer) for release, by_offer in self._releases.items()}

    def overflow(self) -> OverflowTotals:
        with self._lock:
            _, _, by_functions, calls, billed_s = self._total
        usd = 0.0
        if self._function is not None:
            usd = billed_s * self._function.usd_per_s + calls * self._function.usd_per_million_requests / 1e6
        return OverflowTotals(round(by_functions), usd)


def _kept(counters: tuple[Any, ...]) -> tuple[float, ...]:
    """Return a bouncer's counters for the store, without latencies by size, which would take most of the space."""
    now = BouncerCounters._make(counters)
    return (*now.numbers, now.workers)


def _filled(counters: tuple[float, ...]) -> tuple[Any, ...]:
    """Return a bouncer's stored counters. Earlier versions had no errors and no latencies; workers are last."""
    *numbers, workers = counters
    return BouncerCounters(**dict(zip(BouncerCounters._fields, numbers, strict=False)))._replace(workers=workers)  # type: ignore[arg-type]


_: type[Telemetry] = ScrapedTelemetry
