"""Trace and Part: requests over time, and the piece of them to evaluate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.load_unit import REQUESTS, LoadUnit, UnitSizes
from mark.domain.time import DAY_S
from mark.traffic.traces.series import Series, load_of, steps_between, windows_per_step

Chunk = tuple[FloatArray, float]

MOST_REQUESTS = 1e11
LONGEST_S = 10 * 366 * DAY_S  # a longer span is a wrong time stamp
MOST_PART_S = 366 * DAY_S  # simulated at a time: a year; a single wrong time stamp would otherwise run for days
_MILLISECONDS = 1e11
_DATED_S = 1e9  # September 2001: larger times are Unix seconds
CHUNK_S = 300.0
CHUNK_REQUESTS = 2_000_000


def check_seconds(first: float, where: str) -> None:
    """Raise BadInput if the first `t_seconds` would be in the year 5138 or later, because its unit is a smaller one."""
    if first >= _MILLISECONDS:
        what = "t_seconds is in milliseconds or less: convert it, or say `time_column` t_seconds for times since 1970"
        raise BadInput(what, where, f"{first:g}")


def date_of(first_s: float) -> float | None:
    """Return the Unix time of a trace's first row, if its `t_seconds` are Unix seconds."""
    return first_s if first_s >= _DATED_S else None


class Source(Protocol):
    """The origin of a trace's arrivals."""

    def chunks(self, start_s: float, end_s: float, scale: float, seed: int) -> Iterator[Chunk]:
        """Yield arrivals of [start_s, end_s), as `Trace.chunks` says. Repeatable: equal arguments, equal arrivals."""


@dataclass(frozen=True, slots=True)
class Part:
    """A checked piece of a trace; seconds from its first row. `requests` is the number expected."""

    start_s: float
    end_s: float
    requests: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """Requests over time, counted in bins (`counts`) or known one by one (`arrivals`); starts at second 0.

    `duration_s` reaches from the first row to the end of the last bin. `gaps` are (start_s, end_s) without observation;
    `notes` list in words the bridged, filled, dropped or late parts. `gap_cv` is the coefficient of variation of the
    times between requests if they are known (NaN otherwise). `read_as` describes the interpretation of columns if a
    file leaves it open. `began_s` is the time of second 0 in Unix seconds, if the trace knows it (access logs do).
    `sizes` are those of the requests, if they are known. A trace that was `counted_in` a `unit` has requests of its
    mean size.
    """

    name: str
    kind: str
    bin_s: float
    duration_s: float
    rows: int
    series: Series
    source: Source
    gaps: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()
    gap_cv: float = math.nan
    read_as: str = ""
    began_s: float | None = None
    sizes: UnitSizes | None = None
    unit: LoadUnit = REQUESTS

    @property
    def first_s(self) -> float:
        return 0.0

    @property
    def read(self) -> str:
        """The trace that was read, in one line, which begins every answer about it; empty for a generator."""
        return "" if self.name.startswith("synthetic:") else f"read {self.summary}"

    @property
    def summary(self) -> str:
        """Requests (or units), span, mean and step, and the interpretation of columns."""
        counted = self.total_counts(0.0, self.duration_s) * self.unit.size
        seen_s = self.duration_s - sum(end - begin for begin, end in self.gaps)
        bins = f", every {step_shown(self.bin_s)}" if self.kind == "counts" else ""
        rate = f"{_number(counted)} {self.unit.name} in {_span(self.duration_s)}, {_number(counted / seen_s)}/s{bins}"
        return f"{rate}; {self.read_as}" if self.read_as else rate

    @property
    def more_notes(self) -> tuple[str, ...]:
        """The notes that `summary` does not repeat."""
        return tuple(note for note in self.notes if note != self.read_as)

    @property
    def step_s(self) -> float:
        """The forecast step: a minute, or the bin if that is longer."""
        return max(60.0, self.bin_s)

    def part(self, start_s: float = 0.0, duration_s: float | None = None, scale: float = 1.0) -> Part:
        """Return the piece to evaluate, cut at the trace's end.

        Raises BadInput for a start or duration outside the trace, a scale that is not above zero, a part without
        requests, one with more than 1e11 and one of more than 366 days.
        """
        check_times(start_s, duration_s)
        if not (math.isfinite(scale) and scale > 0.0):
            raise BadInput("must be a number above zero", "scale", scale)
        if start_s >= self.duration_s:
            raise BadInput(f"beyond the end of {self.name} at {self.duration_s:g} s", "start_s", start_s)
        end_s = self.duration_s if duration_s is None else min(self.duration_s, start_s + duration_s)
        if end_s - start_s > MOST_PART_S:
            what = "more than 366 days to evaluate; is a time stamp wrong?"
            raise BadInput(
                f"{what} (else choose a part with `start_s`, `duration_s`)", self.name, f"{end_s - start_s:g} s"
            )
        requests = self.total_counts(start_s, end_s, scale)
        if requests <= 0.0:
            raise BadInput(f"no requests between {start_s:g} and {end_s:g} s", self.name)
        if requests > MOST_REQUESTS:
            raise BadInput("more than 1e11 requests in the part", self.name, f"{requests:.4g}")
        return Part(start_s, end_s, requests)

    def total_counts(self, start_s: float, end_s: float, scale: float = 1.0) -> float:
        """Return the requests expected in [start_s, end_s)."""
        requests, _ = self.series.until(np.array([start_s, end_s]))
        return float(requests[1] - requests[0]) * scale

    def load(self, start_s: float, end_s: float, scale: float = 1.0) -> Load:
        """Return the expected load of [start_s, end_s) on forecast steps from `start_s`.

        The last step is cut at `end_s` and its rates are over the remaining time. Steps observed for less than half of
        their length are NaN. The peak is the highest 5 s rate if bins are 5 s or finer, otherwise the mean.
        """
        return self.series.load(start_s, end_s, self.step_s, scale)

    def chunks(self, start_s: float, end_s: float, scale: float = 1.0, seed: int = 0) -> Iterator[Chunk]:
        """Yield arrivals of [start_s, end_s) in order: (ascending times, covered until), in seconds from `start_s`.

        A chunk holds every arrival from the end of the one before up to "covered until": 300 s, less if the rate is
        high, so that it has at most about 2 million arrivals (a larger tie is not split). The last one ends at end_s -
        start_s. Counts draw Poisson(count x scale) per bin, uniform within it, from (seed, bin index); arrivals files
        are exact at scale 1 and otherwise repeat requests. The content of a part does not depend on where it was cut.
        """
        return self.source.chunks(start_s, end_s, scale, seed)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000.0 or value == int(value) else f"{value:.3g}"


def step_shown(seconds: float) -> str:
    return f"{seconds:g} s" if seconds <= DAY_S else _span(seconds)


def _span(seconds: float) -> str:
    for unit_s, name in ((DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2.0 * unit_s:
            span = seconds / unit_s
            return f"{span:.3g} {name}" if span < 1000.0 else f"{span:,.0f} {name}"
    return f"{seconds:.3g} s"


def drawn_load(trace: Trace, start_s: float, end_s: float, scale: float = 1.0, seed: int = 0) -> Load:
    """Return the load that the drawn arrivals of [start_s, end_s) really make, on the grid of `Trace.load`.

    Peaks are over 5 s windows for every bin width. Steps that `Trace.load` misses are missing here too.
    """
    from mark.traffic.traces.draw import add_windows  # here: numba, 0.8 s, only for drawing

    step_s = trace.step_s
    windows = windows_per_step(step_s)
    width_s = step_s / windows
    steps = steps_between(start_s, end_s, step_s)
    counts = np.zeros(steps * windows, dtype=np.uint32)
    covered_s = 0.0
    for times, until_s in trace.chunks(start_s, end_s, scale, seed):
        first = int(covered_s / width_s)
        add_windows(times, -first * width_s, width_s, counts[first:])
        covered_s = until_s
    edges = np.minimum(start_s + np.arange(steps * windows + 1) * width_s, end_s)
    _, seen_s = trace.series.until(edges)
    shape = (steps, windows)
    return load_of(
        counts.reshape(shape).astype(np.float64),
        np.diff(seen_s).reshape(shape),
        np.diff(edges).reshape(shape),
        start_s,
        step_s,
        fine=True,
    )


def check_times(start_s: float, duration_s: float | None) -> None:
    """Raise BadInput for a start below zero or a duration that is not above it."""
    if not (math.isfinite(start_s) and start_s >= 0.0):
        raise BadInput("must be zero or more seconds", "start_s", start_s)
    if duration_s is not None and not (math.isfinite(duration_s) and duration_s > 0.0):
        raise BadInput("must be above zero seconds", "duration_s", duration_s)
