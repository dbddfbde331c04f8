"""Traces of counts: reading the file, its gaps, and drawing arrivals from bins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.bad_lines import may_be_cut
from mark.traffic.traces.blocks import blocks, ends_within_line
from mark.traffic.traces.columns import read_numbers
from mark.traffic.traces.series import REACH, Series, lengths_of
from mark.traffic.traces.steps import Rising, are_sums_so_far, rising
from mark.traffic.traces.trace import CHUNK_REQUESTS, CHUNK_S, LONGEST_S, Chunk, Trace, check_seconds, date_of

COLUMNS = ("t_seconds", "count")
GAPS = ("bridge", "zero", "interpolate", "fail")
_ONLY_BIN_S = 60.0  # the width of a single row
_LEAST_BIN_S = 0.999e-3  # a smaller width is a wrong unit, and no time stamp resolves it
_MOST_COUNT = 1e15
_MOST_FILLED = 20_000_000


@dataclass(frozen=True, eq=False, slots=True)
class PoissonBins:
    """A Source: each bin draws Poisson(count x scale) arrivals, uniform within it."""

    series: Series

    def chunks(self, start_s: float, end_s: float, scale: float, seed: int) -> Iterator[Chunk]:
        from mark.traffic.traces.draw import ROOM, Bins, draw_bins  # here: numba, 0.8 s, only for drawing

        series = self.series
        state = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        bins = Bins(series.starts_s, series.ends_s, series.counts, series.bin_s)
        row = max(0, int(np.searchsorted(series.starts_s, start_s, side="right")) - 1)
        piece = 0
        low = float(start_s)  # an int would have the same function compiled once more
        while low < end_s:
            high = float(min(low + CHUNK_S, end_s))
            before, _ = series.until(np.array([low, high]))
            expected = float(before[1] - before[0]) * scale
            # Room for the draw and for one more slice, because the last slice may be drawn whole and cut.
            room = int(min(expected + 6.0 * expected**0.5 + ROOM, CHUNK_REQUESTS))
            times = np.empty(room)
            n, row, piece, reached = draw_bins(bins, scale, state, row, piece, low, high, times)
            times = times[:n]
            if start_s:
                times -= start_s
            yield times, reached - start_s
            low = reached


def read_counts(path: Path, gaps: str = "bridge") -> Trace:
    """Read a `t_seconds,count` file, plain or gzip. `gaps` is one of GAPS.

    Raises BadInput with file and line for violations of docs/semantics.md, 15.
    """
    starts, counts = _rows(path)
    cut: tuple[str, ...] = ()
    if len(counts) > 2 and may_be_cut(counts[-1], counts[-2]) and ends_within_line(path):
        cut = (f"the last line may be cut within its number and is left out: {counts[-1]:g}",)
        starts, counts = starts[:-1], counts[:-1]
    width_s = float(np.diff(starts).min()) if len(starts) > 1 else _ONLY_BIN_S
    if width_s < _LEAST_BIN_S:
        where = f"{path} line {int(np.argmin(np.diff(starts))) + 3}"
        raise BadInput("bins narrower than 1 ms; is t_seconds in seconds?", where, f"{width_s:g} s")
    trace = trace_of_counts(path.name, str(path), starts, counts, width_s, gaps)
    return replace(trace, notes=(*cut, *trace.notes))


def trace_of_counts(
    name: str, where: str, starts: FloatArray, counts: FloatArray, width_s: float, gaps: str = "bridge"
) -> Trace:
    """Return a trace of bins `width_s` wide with ascending starts, with gaps treated by `gaps` (one of GAPS).

    `where` is for BadInput.
    """
    began_s = date_of(float(starts[0]))
    dates_s, starts = starts, starts - starts[0]
    if starts[-1] > LONGEST_S:
        raise BadInput("spans more than ten years; is a time stamp wrong?", where, f"{starts[-1]:g} s")
    own_s = lengths_of(dates_s, width_s)
    rows = len(starts)
    # A gap is at least half a bin, because stamps may wander a little.
    holes = np.flatnonzero(np.diff(starts) > REACH * own_s[:-1])
    ends = starts + own_s
    found = tuple(zip(ends[holes].tolist(), starts[holes + 1].tolist(), strict=True))
    notes: tuple[str, ...] = ()
    if found:
        if gaps == "fail":
            begin, end = found[0]
            raise BadInput(f"{len(found)} gaps, and `gaps` is fail", where, f"first from {begin:g} to {end:g} s")
        total_s = sum(end - begin for begin, end in found)
        begin, end = max(found, key=lambda gap: (gap[1] - gap[0], -gap[0]))
        word = {"bridge": "bridged", "zero": "filled with zeros", "interpolate": "interpolated"}[gaps]
        plural = "s" if len(found) > 1 else ""
        at = f"second {begin:g}"
        if began_s is not None:
            at = f"{datetime.fromtimestamp(began_s + begin, UTC):%Y-%m-%d %H:%M} UTC"
        longest = f"the longest {end - begin:g} s from {at}"
        notes = (f"{len(found)} gap{plural} {word}, {total_s:g} s in all, {longest}",)
    if gaps == "interpolate" and found:
        starts, counts = _interpolated(starts, counts, width_s, holes, where)
        own_s = np.append(np.diff(starts), own_s[-1])
    series = Series.of(starts, counts, width_s, own_s, silent=gaps == "zero")
    return Trace(
        name=name,
        kind="counts",
        bin_s=width_s,
        duration_s=float(series.ends_s[-1]),
        rows=rows,
        series=series,
        source=PoissonBins(series),
        gaps=found if gaps == "bridge" else (),
        notes=notes,
        began_s=began_s,
    )


def trace_of_bins(name: str, starts_s: FloatArray, counts: FloatArray, bin_s: float) -> Trace:
    """Return bins as a trace: `starts_s` ascend by `bin_s` or more, and time between bins is missing."""
    starts = starts_s - starts_s[0]
    holes = np.flatnonzero(np.diff(starts) > REACH * bin_s)
    gaps = tuple((float(starts[i] + bin_s), float(starts[i + 1])) for i in holes)
    series = Series.of(starts, counts, bin_s, silent=False)
    return Trace(
        name=name,
        kind="counts",
        bin_s=bin_s,
        duration_s=float(starts[-1]) + bin_s,
        rows=len(starts),
        series=series,
        source=PoissonBins(series),
        gaps=gaps,
    )


def _rows(path: Path) -> tuple[FloatArray, FloatArray]:
    """Return the starts as in the file, and the counts; checked."""
    tables: list[FloatArray] = []
    last: float | None = None
    for line, block in blocks(path):
        if line == 1:
            block = block[block.index(b"\n") + 1 :]
            line = 2
        table = read_numbers(block, line, path, COLUMNS, more=False)
        if not len(table):
            continue
        if last is None:
            check_seconds(float(table[0, 0]), f"{path} line {line}")
        times = table[:, 0] if last is None else np.concatenate(([last], table[:, 0]))
        steps = np.diff(times)
        if np.any(steps <= 0.0):
            at = int(np.argmax(steps <= 0.0)) + 1
            where = f"{path} line {line + at - (last is not None)}"
            raise BadInput(f"t_seconds must increase, {times[at - 1]:g} stands before", where, f"{times[at]:g}")
        if table[:, 1].max() > _MOST_COUNT:
            at = int(np.argmax(table[:, 1]))
            raise BadInput("a count beyond 1e15", f"{path} line {line + at}", f"{table[at, 1]:g}")
        tables.append(table)
        last = float(table[-1, 0])
    if not tables:
        raise BadInput("no rows below the header", str(path))
    rows = np.concatenate(tables)
    starts, counts = np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])
    if not counts.any():
        raise BadInput("no requests: every count is 0", str(path))
    if rising(counts) is Rising.SURELY or are_sums_so_far(counts):
        what = "count never falls, as that of a counter: say `count_unit` counter, or count if it is none"
        raise BadInput(what, str(path), f"{counts[0]:g} to {counts[-1]:g}")
    return starts, counts


def _interpolated(
    starts: FloatArray, counts: FloatArray, width_s: float, holes: NDArray[np.intp], where: str
) -> tuple[FloatArray, FloatArray]:
    """Return the bins with missing ones added on a line between the neighbours of each gap."""
    absent = np.floor((starts[holes + 1] - starts[holes]) / width_s - 1.0 + 1e-6)
    if absent.sum() > _MOST_FILLED:
        raise BadInput("too many bins to interpolate, use `gaps` bridge or zero", where, f"{absent.sum():.4g}")
    # The k-th new bin of a gap of n stands k / (n + 1) of the way between its neighbours.
    times = absent.astype(np.int64)
    gap = np.repeat(holes, times)
    k = np.arange(len(gap)) - np.repeat(np.cumsum(times) - times, times) + 1.0
    share = k / (np.repeat(times, times) + 1.0)
    new_starts = starts[gap] + share * (starts[gap + 1] - starts[gap])
    new_counts = counts[gap] + share * (counts[gap + 1] - counts[gap])
    return np.insert(starts, gap + 1, new_starts), np.insert(counts, gap + 1, new_counts)
