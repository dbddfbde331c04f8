"""A table with a column of times as a trace: of counts where another column holds them, else of one row a request.

Columns are recognised by their names and values, and what was assumed is the first note of the trace. Where a second
reading is possible the table is refused with what to add: a wrong guess costs more than a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.workload.arrivals import trace_of
from mark.workload.bad_lines import DEFAULT, BadLines
from mark.workload.counts import REACH, trace_of_counts
from mark.workload.exports import Columns, Export, read_export
from mark.workload.times import Times, as_numbers, as_times
from mark.workload.trace import Trace

UNITS = ("count", "per-second", "per-minute", "counter")
NONE = "none"  # --count-column none: one row a request

_TIME_NAMES = ("timestamp", "@timestamp", "time", "ts", "datetime", "date time", "start_time", "t")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_COUNT_WORDS = frozenset(
    ("count", "counts", "requests", "reqs", "hits", "calls", "invocations", "queries", "sum", "total")
)
_RATE_WORDS = {"rps": "per-second", "qps": "per-second", "tps": "per-second", "rpm": "per-minute", "qpm": "per-minute"}
_SOME_RATE = {"rate", "throughput"}  # of what, only the user knows
_RATE = re.compile(r"(?:/|per[ _-]?)(s|sec|second|m|min|minute)\b", re.IGNORECASE)
# What is measured of a request, and counts none.
_OTHER_WORDS = frozenset(
    [
        *("latency", "duration", "elapsed", "ms", "millis", "seconds", "time", "bytes", "size", "length", "status"),
        *("code", "port", "id", "pid", "line", "level", "connection", "connections", "average", "avg", "mean", "min"),
        *("max", "p50", "p90", "p95", "p99", "percent", "cpu", "memory", "version"),
    ]
)
_REGULAR = 1e-3  # of a step


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What a user says of a table: `time` and `count` name columns (or `none` for the second), `unit` is of UNITS.

    None: to be recognised.
    """

    time: str | None = None
    count: str | None = None
    unit: str | None = None
    time_format: str | None = None
    time_zone: str | None = None
    bad_lines: BadLines = DEFAULT

    def __post_init__(self) -> None:
        if self.unit not in (None, *UNITS):
            raise BadInput(f"must be one of {', '.join(UNITS)}", "count_unit", self.unit)

    @property
    def said(self) -> bool:
        return (self.time, self.count, self.unit) != (None, None, None)

    @property
    def asks_for_table(self) -> bool:
        """Is a column of counts asked for? A log has none."""
        return self.count not in (None, NONE) or self.unit is not None


RECOGNISED = TableColumns()


def read_table(path: Path, columns: TableColumns = RECOGNISED, gaps: str = "bridge") -> Trace | None:
    """The trace of a file that other tools wrote; None where it is no table, or none with a column of times.

    Raises BadInput, one line, for a table that may be read in two ways, and for what is broken in one.
    """
    export = read_export(path)
    return None if export is None else trace_of_table(export, path.name, str(path), columns, gaps)


def trace_of_table(
    export: Export, name: str, where: str, columns: TableColumns = RECOGNISED, gaps: str = "bridge"
) -> Trace | None:
    """See `read_table`. `where` is for BadInput."""
    found = _time_column(export.columns, where, columns.time)
    if found is None:
        if export.named and len(export.columns) > 1:
            raise BadInput(f"no column holds times that are known, name it by `time_column` ({export.form})", where)
        return None
    time_name, times = found
    others = {key: values for key, values in export.columns.items() if key != time_name}
    count_name = _count_column(others, times, where, columns.count, named=export.named)
    assumed = f"read as {export.form}: times from {time_name!r} ({times.written})"
    if count_name is None:
        trace = _of_requests(times, name, f"{assumed}, one row a request")
    else:
        counts = as_numbers(others[count_name], blanks=True)
        if counts is None:
            raise BadInput(f"holds more than numbers, in {where}", "count_column", count_name)
        seen = counts[np.isfinite(counts)]
        unit = columns.unit or export.unit or _unit(count_name, seen, where, named=export.named)
        trace = _of_counts(times, counts, unit, name, where, gaps, f"{assumed}, {_said(unit)} from {count_name!r}")
    return replace(trace, began_s=float(times.seconds.min()) if times.since_1970 else None)


# -- which column is which ---------------------------------------------------------------------------------------------


def _time_column(columns: Columns, where: str, asked: str | None) -> tuple[str, Times] | None:
    if asked is not None:
        if asked not in columns:
            raise BadInput(f"no such column in {where}: there are {', '.join(columns)}", "time_column", asked)
        times = as_times(asked, columns[asked])
        if times is None and (numbers := as_numbers(columns[asked])) is not None:
            times = Times(numbers, "seconds since the start", since_1970=False)
        if times is None:
            raise BadInput(f"holds no times that are known, in {where}", "time_column", asked)
        return asked, times
    found: dict[str, Times] = {}
    for name, values in columns.items():
        try:
            if (times := as_times(name, values)) is not None:
                found[name] = times
        except BadInput as error:
            raise BadInput(error.what, f"{where} {error.where}", error.value) from None
    dates = {name: times for name, times in found.items() if times.since_1970} or found
    if len(dates) > 1:
        # The same moments, written twice or at two precisions: the finest says most.
        first, *rest = dates.values()
        if all(np.all(np.abs(times.seconds - first.seconds) <= 1.0) for times in rest):
            return max(dates.items(), key=lambda item: len(np.unique(item[1].seconds)))
        usual = [name for name in dates if name.lower() in _TIME_NAMES]
        if len(usual) != 1:
            raise BadInput("several columns hold times, choose one with `time_column`", where, ", ".join(dates))
        return usual[0], dates[usual[0]]
    return next(iter(dates.items()), None)


def _count_column(others: Columns, times: Times, where: str, asked: str | None, *, named: bool) -> str | None:
    """The column of counts or rates; None where each row is a request."""
    if asked is not None:
        if asked != NONE and asked not in others:
            raise BadInput(f"no such column in {where}: there are {', '.join(others)}", "count_column", asked)
        return None if asked == NONE else asked
    numbers = [name for name, values in others.items() if as_numbers(values, blanks=True) is not None]
    likely = [name for name in numbers if named and _counts_by_name(name)]
    if len(likely) > 1:
        raise BadInput("several columns may hold counts, choose one with `count_column`", where, ", ".join(likely))
    if not _regular(times.seconds):
        if likely or (numbers and not named):
            what = "times are irregular; counts? Name it by `count_column`, or none for one row a request"
            raise BadInput(what, where, ", ".join(likely or numbers))
        return None
    if likely:
        return likely[0]
    unknown = [name for name in numbers if not (named and _words(name) & _OTHER_WORDS)]
    if len(unknown) == 1 and len(others) == 1:
        return unknown[0]
    if unknown:
        what = "which column holds counts? Name it by `count_column`, or none for one row a request"
        raise BadInput(what, where, ", ".join(unknown))
    return None


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


def _counts_by_name(name: str) -> bool:
    words = _words(name)
    rate = _RATE.search(name) is not None or bool(words & (_RATE_WORDS.keys() | _SOME_RATE))
    return rate or (bool(words & _COUNT_WORDS) and not words & _OTHER_WORDS)


def _unit(name: str, counts: FloatArray, where: str, *, named: bool) -> str:
    """What a column counts, by its name; whole numbers under another name are counts."""
    if named:
        if (found := _RATE.search(name)) is not None:
            return "per-minute" if found[1].lower().startswith("m") else "per-second"
        for word in _words(name):
            if word in _RATE_WORDS:
                return _RATE_WORDS[word]
        if _words(name) & _COUNT_WORDS:
            return "count"
    if np.all(counts == np.floor(counts)) and not (named and _words(name) & _SOME_RATE):
        return "count"
    units = "|".join(UNITS)
    raise BadInput(f"requests in each row, or a rate? Say `count_unit` {units}", f"{where} column {name}")


def _said(unit: str) -> str:
    return {
        "count": "requests of each row",
        "per-second": "requests/s",
        "per-minute": "requests/min",
        "counter": "a counter's increases",
    }[unit]


# -- traces ------------------------------------------------------------------------------------------------------------


def _regular(seconds: FloatArray) -> bool:
    """Do times ascend in whole multiples of one step, as those of counts do? A single row does."""
    steps = np.diff(seconds)
    if np.any(steps == 0.0):
        return False
    steps = np.abs(steps)  # newest first, or as they came
    if len(steps) < 2:
        return True
    ratio = steps / steps.min()
    return bool(np.all(np.abs(ratio - np.round(ratio)) < _REGULAR) and np.median(ratio) < 2.0)


def _of_requests(times: Times, name: str, assumed: str) -> Trace:
    seconds = np.sort(times.seconds, kind="stable")
    notes = [assumed]
    if np.array_equal(seconds, np.floor(seconds)) and len(np.unique(seconds)) < len(seconds):
        # As with access logs: the requests of a second are spread over it.
        _, first, counts = np.unique(seconds, return_index=True, return_counts=True)
        seconds = seconds + (np.arange(len(seconds)) - np.repeat(first, counts)) / np.repeat(counts, counts)
        notes.append("whole-second stamps: requests of a second are spread evenly over it")
    stream = seconds - seconds[0]
    return trace_of(name, lambda: iter([stream]), notes=lambda: tuple(notes))


def _of_counts(times: Times, counts: FloatArray, unit: str, name: str, where: str, gaps: str, assumed: str) -> Trace:
    known = np.isfinite(counts)
    if not known.all():
        assumed += f", {int((~known).sum())} rows without a value left out"
    order = np.argsort(times.seconds, kind="stable")
    order = order[known[order]]
    starts, counts = times.seconds[order], counts[order]
    steps = np.diff(starts)
    if np.any(steps <= 0.0):
        at = float(starts[int(np.argmax(steps <= 0.0))])
        raise BadInput("two rows of one time: one series at a time, summed", where, f"{at:.15g}")
    if counts.min() < 0.0:
        raise BadInput("a count is negative", where, f"{counts.min():g}")
    if unit == "counter":
        if len(counts) < 2:
            raise BadInput("a counter needs two rows at least", where)
        increases = np.diff(counts)
        within = steps <= REACH * steps.min()  # when what came in a gap came is not known
        counts = np.where(increases < 0.0, counts[1:], increases)[within]  # a restart begins at 0
        starts = starts[:-1][within]
        width_s = float(steps.min())
    else:
        width_s = float(steps.min()) if len(steps) else 60.0
    if width_s < 1e-3:
        raise BadInput("bins narrower than 1 ms", where, f"{width_s:g} s")
    if unit in ("per-second", "per-minute"):
        counts = counts * width_s / (60.0 if unit == "per-minute" else 1.0)
    if not counts.any():
        raise BadInput("no requests: every count is 0", where)
    trace = trace_of_counts(name, where, starts, counts, width_s, gaps)
    return replace(trace, notes=(f"{assumed}, every {width_s:g} s", *trace.notes))
