"""Traces that know each request: arrivals files, and code shared with access logs and the gamma generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import blocks
from mark.traffic.traces.columns import read_numbers
from mark.traffic.traces.meanings import Kind, meaning_of
from mark.traffic.traces.series import Series
from mark.traffic.traces.steps import is_summary
from mark.traffic.traces.trace import CHUNK_REQUESTS, CHUNK_S, LONGEST_S, Chunk, Trace, check_seconds, date_of

BIN_S = 1.0
_LEAST_S = 60.0  # least length, so that a trace of one request leaves time to serve it
_JITTER_S = 0.5
_MOST_AT_ONCE = 50_000_000  # arrivals within a second that may be held in memory
_PEEK_ROWS, _LEAST_ROWS = 5000, 10  # rows that show a fixed step
_MOST_KEPT = 16_000_000  # requests kept rather than read again


@dataclass(frozen=True, eq=False, slots=True)
class ArrivalReplay:
    """A Source: the requests of `stream()`, exact at scale 1, otherwise repeated and jittered (docs/semantics.md, 1).

    `stream` starts over at each call and yields ascending seconds from the first request, block by block.
    """

    stream: Callable[[], Iterator[FloatArray]]
    duration_s: float
    busiest: float  # the most requests within a second

    def chunks(self, start_s: float, end_s: float, scale: float, seed: int) -> Iterator[Chunk]:
        if scale == 1.0:
            return _in_chunks(self.stream(), start_s, end_s)
        if (self.busiest + 1.0) * scale > _MOST_AT_ONCE:
            raise BadInput("too large for a trace of single requests; scale counts instead", "scale", scale)
        return _in_chunks(self._scaled(start_s, end_s, scale, seed), start_s, end_s)

    def _scaled(self, start_s: float, end_s: float, scale: float, seed: int) -> Iterator[FloatArray]:
        from mark.traffic.traces.draw import copy_scaled  # here: numba, 0.8 s, only for drawing

        state = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        # Few enough requests at a time that their copies fit an ordinary block.
        size = max(1, int(CHUNK_REQUESTS / (scale + 1.0)))
        waiting = np.empty(0)  # copies that a later request's copies may still precede
        for first, piece in _pieces(self.stream(), size):
            if piece[0] - _JITTER_S > end_s:
                break
            if piece[-1] + _JITTER_S < start_s:
                continue
            copies = np.empty(len(piece) * (int(scale) + 1))
            n = copy_scaled(piece, first, scale, _JITTER_S, self.duration_s, state, copies)
            waiting = np.sort(np.concatenate((waiting, copies[:n])))
            cut = int(np.searchsorted(waiting, piece[-1] - _JITTER_S))
            yield waiting[:cut]
            waiting = waiting[cut:]
        yield waiting


def _pieces(stream: Iterator[FloatArray], size: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield (number of the first request, at most `size` requests)."""
    first = 0
    for block in stream:
        for begin in range(0, len(block), size):
            yield first + begin, block[begin : begin + size]
        first += len(block)


def _in_chunks(stream: Iterator[FloatArray], start_s: float, end_s: float) -> Iterator[Chunk]:
    """Cut ascending arrivals at every CHUNK_S from `start_s`, and earlier if they are many."""
    held: list[FloatArray] = []
    size = 0
    edge = min(start_s + CHUNK_S, end_s)
    for block in stream:
        times = block[int(np.searchsorted(block, start_s)) :]
        while len(times):
            most = CHUNK_REQUESTS - size
            cut = int(np.searchsorted(times, edge))
            if cut > most:
                # Earlier, between two requests with different times.
                early = int(np.searchsorted(times, times[most])) or int(np.searchsorted(times, times[most], "right"))
                until_s = float(times[min(early, len(times) - 1)])
                held.append(times[:early])
                yield np.concatenate(held) - start_s, until_s - start_s
                held, size, times = [], 0, times[early:]
                continue
            held.append(times[:cut])
            size += cut
            if cut == len(times):
                break
            yield np.concatenate(held) - start_s, edge - start_s
            if edge >= end_s:
                return
            held, size, times = [], 0, times[cut:]
            edge = min(edge + CHUNK_S, end_s)
    while True:
        yield (np.concatenate(held) if held else np.empty(0)) - start_s, edge - start_s
        if edge >= end_s:
            return
        held = []
        edge = min(edge + CHUNK_S, end_s)


def trace_of(
    name: str,
    stream: Callable[[], Iterator[FloatArray]],
    *,
    notes: Callable[[], tuple[str, ...]],
    duration_s: float | None = None,
    most_kept: int = _MOST_KEPT,
) -> Trace:
    """Return a trace of the requests of `stream`, which is read once here for its totals.

    Up to `most_kept` requests are kept in memory; if there are more, every later use reads `stream` again. `notes` is
    called after that. Without `duration_s` the trace ends with the second of the last request, and lasts at least a
    minute. Raises BadInput for no requests and for a span above ten years.
    """
    seconds: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    kept: list[FloatArray] = []
    rows, last, squares = 0, 0.0, 0.0
    for times in stream():
        if not len(times):
            continue
        if times[-1] > LONGEST_S:
            raise BadInput("spans more than ten years; is a time stamp wrong?", name, f"{times[-1]:g} s")
        waits = np.diff(times, prepend=last)
        squares += float(waits @ waits)
        last = float(times[-1])
        rows += len(times)
        if rows <= most_kept:
            kept.append(times)
        else:
            kept.clear()
        second = times.astype(np.int64)
        begins = np.flatnonzero(np.diff(second, prepend=-1))
        seconds.append(second[begins])
        counts.append(np.diff(begins, append=len(second)))
    if not rows:
        raise BadInput("no requests", name)
    # A second may be split over two blocks.
    second, place = np.unique(np.concatenate(seconds), return_inverse=True)
    per_second = np.bincount(place, weights=np.concatenate(counts)).astype(np.float64)
    length_s = max(_LEAST_S, math.floor(last) + BIN_S) if duration_s is None else duration_s
    mean_wait_s = last / (rows - 1) if rows > 1 else 0.0
    variance = squares / (rows - 1) - mean_wait_s**2 if rows > 1 else 0.0
    return Trace(
        name=name,
        kind="arrivals",
        bin_s=BIN_S,
        duration_s=length_s,
        rows=rows,
        series=Series.of(second.astype(np.float64), per_second, BIN_S, silent=True),
        source=ArrivalReplay((lambda: iter(kept)) if kept else stream, length_s, float(per_second.max())),
        notes=notes(),
        gap_cv=math.sqrt(max(0.0, variance)) / mean_wait_s if mean_wait_s > 0.0 else math.nan,
    )


def read_arrivals(path: Path, header: str) -> Trace:
    """Read a file of one row a request: `t_seconds` and further columns, whose names are noted. Streamed, twice.

    Raises BadInput with file and line for times that are not numbers, not finite, negative or going back, for a further
    column that is named after requests, and for further columns at a fixed step.
    """
    further = [column.strip() for column in header.split(",")[1:]]
    kinds = (Kind.REQUESTS, Kind.COUNT, Kind.PERHAPS, Kind.PART)
    counted = [column for column in further if meaning_of(column).kind in kinds]
    if counted:
        what = f"does {counted[0]} count the requests of each row? Say `count_column` {counted[0]}, or none"
        raise BadInput(f"{what} for one row a request", f"{path} line 1", header)
    first = next(_times(path), np.empty(0))[:_PEEK_ROWS]
    if further and len(first) >= _LEAST_ROWS and is_summary(first):
        what = (
            f"rows at a fixed step: does {further[0]} count the requests of each row? Say `count_column` {further[0]}"
        )
        raise BadInput(f"{what}, or none for one row a request", f"{path} line 1", header)
    notes = (f"request size columns kept aside: {', '.join(further)}",) if further else ()
    origin = float(first[0]) if len(first) else 0.0
    trace = trace_of(path.name, lambda: (times - origin for times in _times(path)), notes=lambda: notes)
    return replace(trace, began_s=date_of(origin))


def _times(path: Path) -> Iterator[FloatArray]:
    """Yield times as in the file, block by block, checked."""
    last: float | None = None
    for line, block in blocks(path):
        if line == 1:
            block = block[block.index(b"\n") + 1 :]
            line = 2
        times = read_numbers(block, line, path, ("t_seconds",), more=True)[:, 0]
        if not len(times):
            continue
        if last is None:
            last = float(times[0])
            check_seconds(last, f"{path} line {line}")
        steps = np.diff(times, prepend=last)
        if np.any(steps < 0.0):
            at = int(np.argmax(steps < 0.0))
            before = times[at - 1] if at else last
            raise BadInput(
                f"t_seconds must not go back, {before:g} stands before", f"{path} line {line + at}", f"{times[at]:g}"
            )
        last = float(times[-1])
        yield times
