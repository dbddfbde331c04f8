"""Rows of a table as bins: the length of each row, the requests in it, and sums of several series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.meanings import Unit
from mark.traffic.traces.series import REACH, lengths_of, months_of
from mark.traffic.traces.times import shown
from mark.traffic.traces.trace import step_shown

_EXACT = 1e-3  # of a step
_WIDTHS = (2.0**16, 2.0**31, 2.0**32, 2.0**64)  # where counters of a fixed width overflow
_USUAL = 3.0  # times the largest increase of other rows
_RESTART = 0.05  # of a counter: a part that came within one row, if other rows have less
_COINCIDENCE = 1e-3  # chance of a restart within a row of an overflow
_RUN = 3  # longer steps in a row that are the rows' own length and no gaps
_FAR = 7.0  # times the least step, as a week has days: a row so long with so many requests may be no gap

Bins = tuple[FloatArray, FloatArray, float]  # starts, requests, the least width


def rows_as_bins(seconds: FloatArray, values: FloatArray, unit: Unit, where: str, *, sure: bool) -> Bins:
    """Return the requests of each bin. With `sure`, by the user's word, longer steps are gaps."""
    order = np.argsort(seconds, kind="stable")
    between = np.diff(seconds[order])
    rows_s = float(between[between > 0.0].min()) if np.any(between > 0.0) else 60.0
    order = order[np.isfinite(values[order])]
    starts, counts = seconds[order], values[order] * unit.times
    steps = np.diff(starts)
    if np.any(steps <= 0.0):
        at = float(starts[int(np.argmax(steps <= 0.0))])
        twice = int((steps <= 0.0).sum())
        what = f"{twice:,} times have two rows: two series, or two exports that overlap? Keep one row each, the first"
        raise BadInput(what, where, shown(at) if at > 1e8 else f"{at:g} s")
    if not len(counts):
        raise BadInput("no row holds a value", where)
    if len(seconds) == 1:
        raise BadInput("a single row does not say how long it lasts: add the next one", where)
    if counts.min() < 0.0:
        raise BadInput("a count is negative", where, f"{counts.min():g}")
    if unit.counter and len(counts) < 2:
        raise BadInput("a counter needs two rows at least", where)
    least = float(steps.min()) if len(steps) else 60.0
    if least > REACH * rows_s and not (unit.counter or unit.per_s):
        if not sure:
            what = f"rows every {rows_s:g} s, and only every {least:g} s one with a value: requests of {least:g} s"
            raise BadInput(
                f"{what}, or are values missing? Delete the empty rows, or say `gaps` zero, interpolate or fail where "
                "values are missing",
                where,
            )
        least = rows_s
    width = _widths(starts, None if unit.counter or unit.per_s else counts, least, where, sure=sure)
    if unit.counter:
        within = steps <= REACH * width[:-1]  # within a gap the time of arrival is unknown
        if not within.any():
            raise BadInput("a counter needs two rows without a gap between them", where)
        counts = increases(counts[:-1][within], counts[1:][within], unit.wraps, where)
        starts, width = starts[:-1][within], width[:-1][within]
    elif unit.per_s:
        # Stamps that wander make rows of different lengths.
        own = np.append(steps, width[-1])
        counts = counts * np.where(own <= REACH * width, own, width) / unit.per_s
    if np.any(width > REACH * lengths_of(starts, least)):
        # A row of five minutes is five bins of one.
        times = np.round(width / least).astype(np.int64)
        place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        starts, counts = np.repeat(starts, times) + place * least, np.repeat(counts / times, times)
    return starts, counts, least


def increases(before: FloatArray, after: FloatArray, wraps: float, where: str) -> FloatArray:
    """Return the increases of a counter from one row to the next, shape (rows - 1,).

    After a restart a counter begins at 0, and one of a fixed width goes on after its largest number (`wraps`; 0: the
    numbers decide). Neither grows by far more than in other rows. Raises BadInput for a fall that is neither, as of a
    sum of counters of which one restarts, and where both are possible and differ.
    """
    found = after - before
    falls = np.flatnonzero(found < 0.0)
    if not len(falls):
        return found
    usual = _USUAL * float(np.max(found, initial=0.0))
    for i in falls.tolist():
        old, new = float(before[i]), float(after[i])
        widths = [width for width in ((wraps,) if wraps else _WIDTHS) if old <= width and width - old + new <= usual]
        restart = new <= max(usual, _RESTART * old) or usual == 0.0
        if not widths and not restart:
            what = f"the counter falls to {new:g}, which is no restart at 0 and no overflow: a sum of several counters?"
            raise BadInput(f"{what} Export sum(increase(...)) instead, or each of them", where, f"{old:g}")
        found[i] = widths[0] - old + new if widths else new
        if (
            widths
            and not wraps
            and usual > _COINCIDENCE * widths[0]
            and widths[0] - old > 0.01 * found[found > 0.0].sum()
        ):
            what = f"the counter falls to {new:g}: a restart, or an overflow at {widths[0]:.0f}?"
            way = "say `count_unit` counter-32" if widths[0] == 2.0**32 else "export its increases"
            raise BadInput(f"{what} For an overflow {way}; before a restart delete the row", where, f"{old:g}")
    return found


def from_zero(series: Sequence[tuple[FloatArray, FloatArray]]) -> list[tuple[FloatArray, FloatArray]]:
    """Return the times and values of several counters, each with a zero a step before it if it began later than others.

    The counter of an instance that is launched begins at 0, so its first value came within a step, unless it is far
    above the increases of others. A counter with one row at the begin has no increase and is left out.
    """
    if len(series) < 2:
        return list(series)
    in_order = [(at_s[order := np.argsort(at_s, kind="stable")], values[order]) for at_s, values in series]
    first_s = min(float(at_s[0]) for at_s, _ in in_order)
    rises = np.concatenate([np.diff(values) for _, values in in_order])
    steps = np.concatenate([np.diff(at_s) for at_s, _ in in_order])
    if not np.any(steps > 0.0):
        return in_order
    step_s, usual = float(steps[steps > 0.0].min()), _USUAL * float(np.nanmax(rises, initial=0.0))
    found = []
    for at_s, values in in_order:
        if at_s[0] > first_s and values[0] <= usual:
            at_s, values = np.append(at_s[0] - step_s, at_s), np.append(0.0, values)
        if len(at_s) > 1:
            found.append((at_s, values))
    return found


def added(bins: Sequence[Bins], where: str) -> Bins:
    """Return the sum of several series, each at the times of the others; a missing row adds nothing."""
    width_s = min(width for _, _, width in bins)
    starts, place = np.unique(np.concatenate([starts for starts, _, _ in bins]), return_inverse=True)
    if (len(starts) > 1 and float(np.diff(starts).min()) < 0.999 * width_s) or max(
        w for _, _, w in bins
    ) > 1.001 * width_s:
        raise BadInput("the series have different times: sum them in the query", where)
    counts = np.bincount(place, weights=np.concatenate([counts for _, counts, _ in bins])).astype(np.float64)
    return starts, counts, width_s


def _widths(starts: FloatArray, counts: FloatArray | None, least: float, where: str, *, sure: bool) -> FloatArray:
    """Return the length of each row: the `least` step, or the row's own if rows have another step for a while.

    `counts` (requests of each row) distinguish such rows from rows of the least step with gaps between them, because
    longer rows hold more. Raises BadInput if they do not decide. With `sure` no rows have another step.
    """
    steps = np.diff(starts)
    if not len(steps):
        return np.full(len(starts), 60.0)
    found = lengths_of(starts, least)
    ratio = steps / found[:-1]
    long = ratio > REACH
    if sure or not long.any():
        return found
    changes = np.flatnonzero(np.diff(np.round(ratio, 3)) != 0.0) + 1
    begins, ends = np.append(0, changes), np.append(changes, len(ratio))
    same = np.abs(ratio - np.round(ratio)) < _EXACT
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        few = end - begin < _RUN
        factor = float(np.round(ratio[begin]))
        if not long[begin] or not same[begin] or (few and (counts is None or factor < _FAR)):
            continue
        last = end + 1 if end == len(steps) and not few else end
        if counts is not None:
            short = np.median(counts[:-1][~long])
            more = float(np.median(counts[begin:last]) / short) if short > 0.0 else np.inf
            # Equal gaps one behind the other, or from a month to the next, are rather rows of weeks or months.
            alone = end - begin == 1 and months_of(starts[begin : last + 1]) is None
            if alone and not factor / 2.0 < more < np.inf:
                continue
            if few or not factor / 2.0 < more < factor * 2.0:
                apart = step_shown(float(steps[begin]))
                what = f"from {shown(float(starts[begin]))} on rows are {apart} apart and not {step_shown(least)}"
                raise BadInput(
                    f"{what}: are these rows longer, or are some missing? Cut the file there, or say `gaps` zero, "
                    "interpolate or fail where rows are missing",
                    where,
                )
        found[begin:last] = factor * least
    return found
