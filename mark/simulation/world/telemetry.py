"""The telemetry that the controller gets in the simulated world."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mark.control.ports import RECENT_S, WINDOW_S, OverflowTotals, RecentAnswers, ReleaseCounts
from mark.domain.arrays import FloatArray
from mark.domain.load import Load
from mark.domain.offer import Offer
from mark.domain.time import MINUTE_S
from mark.simulation.world.simulated_cloud import SimulatedCloud

_MINUTE = round(MINUTE_S / WINDOW_S)  # windows


class CountedAnswers(Protocol):
    """Counts of answers, which only grow, except for recent answers."""

    @property
    def departed(self) -> int:
        """Requests answered or refused."""

    @property
    def in_time(self) -> int: ...

    @property
    def late(self) -> int:
        """Requests answered after RT_max."""

    @property
    def rejected(self) -> int: ...

    @property
    def window(self) -> int:
        """The most answers that `recent` covers."""

    def recent(self) -> tuple[int, int]:
        """Return the number of recent answers, and how many of them were in time."""


class CountedCalls(CountedAnswers, Protocol):
    """Answers by servers, which may have functions."""

    @property
    def by_functions(self) -> int: ...


class CountedPlane(Protocol):
    """Instances as servers of requests, with counts of their work."""

    @property
    def arrived(self) -> int: ...

    @property
    def accounts(self) -> CountedCalls: ...

    def busy_s(self, number: int) -> float:
        """Return the worker-seconds of an instance's batches."""

    def function_usd(self) -> float:
        """Return the bill of all calls of functions."""


@dataclass(frozen=True, slots=True)
class SeenTrace:
    """The evaluated part of a trace, from 0 to `end_s`, in bins of `bin_s`.

    `gaps` are (start, end) pairs whose windows are missing, not empty. `before_rps` is the rate right before the start,
    None if unknown.
    """

    end_s: float
    bin_s: float
    gaps: tuple[tuple[float, float], ...] = ()
    before_rps: float | None = None


class SimulatedTelemetry:
    """Counts arrivals in 5 s windows and hands them out as forecast steps; implements `Telemetry`.

    `step_s` is a multiple of 5 s. The promise concerns `answers`, by default the stage's own. `in_flight` counts the
    unanswered requests; it is only given if a policy needs it, because it is slow.
    """

    def __init__(
        self,
        stage: CountedPlane,
        cloud: SimulatedCloud,
        offers: tuple[Offer, ...],
        workers: tuple[int, ...],
        *,
        seen: SeenTrace,
        step_s: float,
        answers: CountedAnswers | None = None,
        in_flight: Callable[[float], int | None] | None = None,
    ) -> None:
        self._stage, self._cloud, self._in_flight = stage, cloud, in_flight
        self._promised: CountedAnswers = stage.accounts if answers is None else answers
        self._workers = {offer.name: n for offer, n in zip(offers, workers, strict=True)}
        self._step_s, self._bin_s, self._before_rps = step_s, seen.bin_s, seen.before_rps
        windows = int(np.ceil(seen.end_s / WINDOW_S)) + 1
        self._counts = np.zeros(windows)
        self._missing = np.zeros(windows, dtype=bool)
        for start, end in seen.gaps:
            first, last = start / WINDOW_S, end / WINDOW_S
            self._missing[max(0, int(np.ceil(first - 1e-9))) : max(0, int(last + 1e-9))] = True
        self._newest: deque[float] = deque(maxlen=_MINUTE)  # counts of the last windows, NaN for missing ones
        self._closed = 0  # windows counted so far
        self._given = 0  # windows handed out as load
        self._arrived = 0
        self._departed = deque([RecentAnswers(0, 0)], maxlen=round(RECENT_S / WINDOW_S) + 1)  # by the ends of windows
        self._busy_s: dict[int, float] = {}
        self._utilization: dict[str, float] = {}

    def close_window(self) -> None:
        """Count the 5 s window whose end the kernel has just reached."""
        arrived = self._stage.arrived
        self._counts[self._closed] = count = arrived - self._arrived
        self._newest.append(math.nan if self._missing[self._closed] else float(count))
        self._arrived = arrived
        self._closed += 1
        self._departed.append(RecentAnswers(self._promised.departed, self._promised.in_time))

    def measure_utilization(self, over_s: float) -> None:
        """Measure the busy share of ready instances since the last call, `over_s` ago, by offer."""
        busy: dict[str, float] = {}
        count: dict[str, int] = {}
        seen: dict[int, float] = {}
        for instance in self._cloud.fleet().instances:
            if instance.ready_s is None or instance.phase != "ready":
                continue
            now_busy = self._stage.busy_s(instance.number)
            seen[instance.number] = now_busy
            if instance.number in self._busy_s:
                busy[instance.offer] = busy.get(instance.offer, 0.0) + now_busy - self._busy_s[instance.number]
                count[instance.offer] = count.get(instance.offer, 0) + 1
        self._busy_s = seen
        self._utilization = {
            offer: min(1.0, busy[offer] / (count[offer] * self._workers[offer] * over_s)) for offer in sorted(busy)
        }

    def load(self) -> Load:
        per_step = round(self._step_s / WINDOW_S)
        steps = (self._closed - self._given) // per_step
        if steps == 0:
            return Load(self._given * WINDOW_S, self._step_s, np.zeros(0), np.zeros(0), self._bin_s <= WINDOW_S)
        first, last = self._given, self._given + steps * per_step
        counts = np.where(self._missing[first:last], np.nan, self._counts[first:last]).reshape(steps, per_step)
        self._given = last
        present = np.isfinite(counts)
        known = present.mean(axis=1) >= 0.5
        total, windows = np.where(present, counts, 0.0).sum(axis=1), np.maximum(present.sum(axis=1), 1)
        mean = np.where(known, total / windows / WINDOW_S, np.nan)
        fine = self._bin_s <= WINDOW_S
        peak = np.where(known, self._peaks(np.where(present, counts, 0.0), fine), np.nan)
        return Load(first * WINDOW_S, self._step_s, mean, np.fmax(peak, mean), fine)

    def _peaks(self, counts: np.ndarray, fine: bool) -> np.ndarray:
        """Return the highest 5 s rate of each step; on coarser traces the highest one-minute rate."""
        width = 1 if fine else round(MINUTE_S / WINDOW_S)
        if counts.shape[1] % width:
            width = counts.shape[1]
        return np.asarray(
            counts.reshape(counts.shape[0], -1, width).sum(axis=2).max(axis=1, initial=0.0) / (width * WINDOW_S)
        )

    def last_minute_rps(self) -> float | None:
        if self._closed == 0:
            return self._before_rps
        counts = [count for count in self._newest if count == count]
        return sum(counts) / (len(counts) * WINDOW_S) if counts else None

    def windows_rps(self) -> FloatArray:
        return np.array(self._newest) / WINDOW_S

    def recent(self) -> RecentAnswers:
        accounts = self._promised
        before = self._departed[0]
        count = accounts.departed - before.count
        if count >= accounts.window:
            return RecentAnswers(*accounts.recent())
        return RecentAnswers(count, accounts.in_time - before.in_time)

    def answers(self) -> RecentAnswers:
        arrived, accounts = self._stage.arrived, self._promised
        in_flight = None if self._in_flight is None else self._in_flight(self._closed * WINDOW_S)
        return RecentAnswers(arrived, arrived - accounts.rejected - accounts.late, in_flight=in_flight)

    def utilization(self) -> dict[str, float]:
        return self._utilization

    def overflow(self) -> OverflowTotals:
        return OverflowTotals(self._stage.accounts.by_functions, self._stage.function_usd())

    def releases(self) -> dict[str, dict[str, ReleaseCounts]]:
        return {}
