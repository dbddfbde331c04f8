"""The column of times of a table, joined from two columns if needed, and the rows without a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.cells import is_missing, read_numbers
from mark.traffic.traces.exports import Columns
from mark.traffic.traces.times import (
    EXCEL,
    FROM_START,
    TimeForm,
    Times,
    are_clocks,
    are_days,
    as_times,
    first_clock,
    month_of,
)

_TIME_NAMES = ("timestamp", "@timestamp", "time", "ts", "datetime", "date time", "t", "_time")
_STARTS = frozenset(
    ["start", "started", "begin", "began", "begins", "from", "created", "creation", "arrival", "arrived", "received"]
)
_ENDS = frozenset(
    [
        *("end", "ended", "ends", "stop", "stopped", "finish", "finished", "to", "until", "completed", "closed"),
        *("updated", "modified", "responded", "resolved", "ingested", "indexed"),
    ]
)
_EXCEL_FIRST, _EXCEL_LAST = 36_526.0, 55_000.0  # from the year 2000 to 2050
_DATE_WORDS = frozenset([*_TIME_NAMES, "day", "datum", "zeit", "fecha", "data", "jour", "bucket", "minute", "period"])
_DATE_WORDS |= frozenset({"date", "timestamp"})
_DAY_S = 86_400.0
_LAST_S = 1.001
_SAME = 1e-6
_FEW = 3
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_PARTS = {  # of a time, in English, German, French and Spanish
    **dict.fromkeys(("year", "jahr", "ann\u00e9e", "annee", "a\u00f1o"), "year"),
    **dict.fromkeys(("month", "monat", "mois", "mes"), "month"),
    **dict.fromkeys(("day", "tag", "jour", "d\u00eda", "dia"), "day"),
    **dict.fromkeys(("hour", "hr", "hour of day", "stunde", "heure", "hora"), "hour"),
    **{unit: unit for unit in ("minute", "second")},
}
_MOST_OF = {"year": 2106.0, "month": 12.0, "day": 31.0, "hour": 23.0, "minute": 59.0, "second": 60.0}
_TOTALS = frozenset(
    [
        *("total", "totals", "sum", "grand", "total", "overall", "average", "avg", "mean", "min", "max", "count"),
        *("summe", "gesamt", "gesamtergebnis", "somme", "totale"),
    ]
) | {"grand total"}


@dataclass(frozen=True, slots=True)
class TableRows:
    """Columns beside the times; `lines` are the rows' lines in the file.

    `bad` lines are left out; `skipped` describes other omissions.
    """

    columns: Columns
    times: Times
    lines: Sequence[int]
    bad: list[tuple[int, str]]
    skipped: list[str]

    def at(self, kept: Sequence[int] | np.ndarray) -> TableRows:
        if len(kept) == len(self.lines):
            return self
        columns = {name: [values[i] for i in kept] for name, values in self.columns.items()}
        times = replace(self.times, seconds=self.times.seconds[np.asarray(kept, dtype=np.intp)])
        return replace(self, columns=columns, times=times, lines=[self.lines[i] for i in kept])


def with_whole_times(columns: Columns) -> dict[str, tuple[Sequence[object], tuple[str, ...]]]:
    """Return candidates for the times, each with its source columns.

    A date and a clock in two columns are joined, and so are the numbers of years, months, days, hours and minutes.
    """
    found: dict[str, tuple[Sequence[object], tuple[str, ...]]] = {
        name: (values, (name,)) for name, values in columns.items()
    }
    days = [name for name, values in columns.items() if are_days(values) and _dates(name, values)]
    clocks = [name for name, values in columns.items() if are_clocks(values)]
    parts = _parts_of_times(columns)
    if len(days) == 1 and len(clocks) == 1:
        rows_of_both = zip(map(_dashed, columns[days[0]]), columns[clocks[0]], strict=True)
        both = [f"{day} {first_clock(clock)}" for day, clock in rows_of_both]
        found[f"{days[0]} {clocks[0]}"] = (both, (days[0], clocks[0]))
        del found[days[0]]
        return found
    if len(days) == 1:
        dates = [_dashed(day) for day in columns[days[0]]]
        used = [days[0]]
    elif not days and all(unit in parts for unit in ("year", "month")):
        units = [unit for unit in ("year", "month", "day") if unit in parts]
        numbers = [_whole(parts[unit][1]) for unit in units]
        dates = ["-".join(f"{part:02}" for part in row) for row in zip(*numbers, strict=True)]
        used = [parts[unit][0] for unit in units]
    elif not days and parts.keys() == {"year"} and np.all(np.diff(years := parts["year"][1]) == 1.0) and len(years) > 1:
        name = parts["year"][0]
        return {**found, name: ([f"{year}-01" for year in _whole(years)], (name,))}
    else:
        return found
    if "hour" not in parts or ("day" not in parts and len(used) > 1):
        if len(used) > 1:
            found[" ".join(used)] = (dates, tuple(used))
        return found
    clock = [parts["hour"]] + [parts[unit] for unit in ("minute", "second") if unit in parts]
    used += [name for name, _ in clock]
    hours, minutes, seconds = (_whole(clock[i][1]) if i < len(clock) else [0] * len(dates) for i in range(3))
    rows = zip(dates, hours, minutes, seconds, strict=True)
    for name in used:
        del found[name]
    found[" ".join(used)] = ([f"{day} {h:02}:{m:02}:{s:02}" for day, h, m, s in rows], tuple(used))
    return found


def _parts_of_times(columns: Columns) -> dict[str, tuple[str, FloatArray]]:
    """Return columns of whole numbers that are named after a part of a time, such as `hour`; months may have names."""
    found = {}
    for name, values in columns.items():
        if (unit := _PARTS.get(name.strip().lower())) is None:
            continue
        numbers = read_numbers(values)
        if numbers is None and unit == "month":
            numbers = read_numbers([month_of(str(value)) or None for value in values])
        if numbers is None or numbers.bad:
            continue
        known = numbers.values[np.isfinite(numbers.values)]  # a row of totals has none
        if np.all((known >= 0.0) & (known <= _MOST_OF[unit]) & (known == np.floor(known))):
            found[unit] = (name, numbers.values)
    return found


def _whole(numbers: FloatArray) -> list[int]:
    """Return whole numbers; -1, which no date has, for a missing one."""
    whole: list[int] = np.nan_to_num(numbers, nan=-1.0).astype(np.int64).tolist()
    return whole


def _dashed(day: object) -> str:
    """Return 20260501 as 2026-05-01; other dates as they are."""
    text = str(day).strip()
    return f"{text[:4]}-{text[4:6]}-{text[6:]}" if len(text) == 8 and text.isdigit() else text


def _dates(name: str, values: Sequence[object]) -> bool:
    try:
        digits = all(len(str(value).strip()) == 8 for value in values if not is_missing(value))  # 20260501
        return as_times(name, values) is not None and (digits or read_numbers(values) is None)
    except BadInput:
        return True  # day and month are ambiguous


def time_column(
    candidates: Mapping[str, tuple[Sequence[object], tuple[str, ...]]], where: str, asked: str | None, form: TimeForm
) -> tuple[str, Times, tuple[str, ...]] | None:
    if asked is not None:
        if asked not in candidates:
            raise BadInput(f"no such column in {where}: there are {', '.join(candidates)}", "time_column", asked)
        values, used = candidates[asked]
        times = as_times(asked, values, form)
        if times is None and (numbers := read_numbers(values)) is not None and not numbers.bad:
            unit = form.form or ("s" if _are_minutes_in_s(numbers.values) else None)
            if unit not in FROM_START:
                what = f"counts from the start, in {where}: say its unit by `time_format`, {' or '.join(FROM_START)}"
                raise BadInput(what, "time_column", asked)
            times = Times(numbers.values * FROM_START[unit], f"{unit} since the start", since_1970=False)
        if times is None:
            raise BadInput(
                f"holds no times that are known, in {where}, say their form by `time_format`", "time_column", asked
            )
        return asked, times, used
    found: dict[str, Times] = {}
    minimum = {"min"} if any(name.strip().lower() == "max" for name in candidates) else set()  # else minutes
    for name, (values, _) in candidates.items():
        if name.strip().lower() in minimum:
            continue
        try:
            if (times := as_times(name, values, form)) is not None:
                found[name] = times
        except BadInput as error:
            raise BadInput(error.what, f"{where} {error.where}", error.value) from None
    dates = {name: times for name, times in found.items() if times.since_1970} or found
    moving = {name: times for name, times in dates.items() if len(times.known) < 2 or np.ptp(times.known) > 0.0}
    dates = moving or dates
    if not dates and form.form is None:
        dates = _excel_days(candidates, where, form)
    if not dates:
        return None
    name = next(iter(dates)) if len(dates) == 1 else _of_several(dates, where)
    return name, dates[name], candidates[name][1]


def _are_minutes_in_s(values: FloatArray) -> bool:
    """Return whether numbers from the start are multiples of a minute in seconds, as 0, 60, 120.

    A step of whole seconds in ms, such as 15000, may be a multiple of 60 too.
    """
    steps = np.diff(np.unique(values[np.isfinite(values)]))
    return len(steps) > 1 and bool(np.all(steps % 60.0 == 0.0)) and bool(np.any(steps % 1000.0 != 0.0))


def span_stated(columns: Columns, start: str, times: Times, form: TimeForm) -> list[tuple[str, str]]:
    """Return the usual span from a row's start to its end, if the table has a column of ends."""
    if _words(start) & _ENDS:
        return []
    for name in columns:
        if name == start or not _words(name) & _ENDS:
            continue
        try:
            ends = as_times(name, columns[name], form)
        except BadInput:
            continue
        if ends is None or ends.since_1970 != times.since_1970 or np.ptp(ends.known) <= 0.0:
            continue
        span_s = float(np.nanmedian(ends.seconds - times.seconds))
        step_s = float(np.median(np.diff(np.unique(times.known))))
        # An end may be the last second of a row.
        return [("span of a row", f"{step_s if 0.0 < step_s - span_s <= _LAST_S else span_s:.10g} s")] * (span_s > 0.0)
    return []


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def _excel_days(
    candidates: Mapping[str, tuple[Sequence[object], tuple[str, ...]]], where: str, form: TimeForm
) -> dict[str, Times]:
    """Return columns of Excel's days if no other column is a time: the first one, or one that is named as a time.

    They are recognised by fractions of a day at one step. Raises BadInput for other numbers of such a size under the
    name of a time.
    """
    found: dict[str, Times] = {}
    for place, (name, (values, _)) in enumerate(candidates.items()):
        named = bool(set(name.lower().replace("_", " ").split()) & _DATE_WORDS)
        if place and not named:
            continue
        days = read_numbers(values)
        if days is None or days.unit is not None or days.bad:
            continue
        known = days.values[np.isfinite(days.values)]
        if len(known) < _FEW or not (known.min() >= _EXCEL_FIRST and known.max() <= _EXCEL_LAST):
            continue
        steps = np.diff(np.sort(np.round(known * _DAY_S)))
        at_one_step = steps.min() == np.median(steps) > 0.0 and np.all(steps % steps.min() == 0.0)
        if np.any(known != np.floor(known)) and at_one_step:
            times = as_times(name, values, replace(form, form=EXCEL))
            found |= {} if times is None else {name: times}
        elif named:
            raise BadInput("days of Excel? Say `time_format` excel", f"{where} column {name}", f"{known[0]:g}")
    return found


def _of_several(dates: Mapping[str, Times], where: str) -> str:
    """Return the best column of the same moments: the finest; the start, not the end; otherwise the usual name."""
    first, *rest = dates.values()
    if all(np.nanmax(np.abs(times.seconds - first.seconds)) <= 1.0 for times in rest):
        return max(dates, key=lambda name: len(np.unique(dates[name].known)))
    words = {name: _words(name) for name in dates}
    for fits in (
        [name for name in dates if words[name] & _STARTS],
        [name for name in dates if not words[name] & _ENDS],
        [name for name in dates if name.lower() in _TIME_NAMES],
        [name for name, times in dates.items() if _on_grid(times.known)],
    ):
        if len(fits) == 1:
            return fits[0]
    raise BadInput("several columns hold times, choose one with `time_column`", where, ", ".join(dates))


def _on_grid(seconds: FloatArray) -> bool:
    """Return whether all steps are multiples of the shortest one, as those of Artillery's `period`."""
    steps = np.diff(np.unique(seconds))
    return len(steps) > 1 and bool(np.all(np.abs(steps / steps.min() - np.round(steps / steps.min())) < _SAME))


def without_bad_times(rows: TableRows, cells: Sequence[object], name: str) -> TableRows:
    """Remove rows without a time: a total at the end is skipped, others are bad lines."""
    wrong = np.flatnonzero(~np.isfinite(rows.times.seconds))
    if not len(wrong):
        return rows
    totals = 0
    last = len(rows.lines) - 1
    for i in wrong[::-1].tolist():
        cell = str(cells[i]).strip().strip(":").lower() if len(cells) else ""
        if i == last - totals and (cell in _TOTALS or (cell == "" and not rows.bad)):
            totals += 1
    bad = [(rows.lines[i], f"no time in {name!r}: {cell_of(cells, i)}") for i in wrong.tolist() if i <= last - totals]
    kept = np.flatnonzero(np.isfinite(rows.times.seconds))
    found = rows.at(kept)
    found.bad.extend(bad)
    found.skipped.extend([f"{totals} row{'s' if totals > 1 else ''} of totals at the end"] if totals else [])
    return found


def cell_of(cells: Sequence[object], i: int) -> str:
    return repr(str(cells[i])[:60]) if len(cells) else "a date and a clock are needed"
