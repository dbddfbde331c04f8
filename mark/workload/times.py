"""Columns of times as people and tools write them, to seconds since 1970 (or since the first row)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput

# Since the year 1989 and until 2106, so that a number of requests is rarely taken for a time.
_FIRST_S, _LAST_S = 6e8, 4.3e9
_EPOCHS = (("epoch seconds", 1.0), ("epoch milliseconds", 1e3), ("epoch microseconds", 1e6), ("epoch nanoseconds", 1e9))
# What a column of small numbers must be called to be taken for times.
_SINCE_START = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "t_seconds", "elapsed_s", "time_s"), ("seconds", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("minutes", 60.0)),
    **dict.fromkeys(("h", "hour", "hours"), ("hours", 3600.0)),
    **dict.fromkeys(("day", "days"), ("days", 86400.0)),
}
_BLANK = (None, "", "null", "NaN", "nan")
_ZONE = r"(?:\s?(?:Z|z|UTC|GMT|[+-]\d\d:?\d\d))?"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ISO = re.compile(rf"\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}{_ZONE})?")
_COMMON_LOG = re.compile(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}")
_BY_PARTS = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}})(?:,?[T ]{_CLOCK}{_ZONE})?")


@dataclass(frozen=True, slots=True)
class Times:
    """A column of times. `since_1970`: are they dates, or seconds from an unknown start?"""

    seconds: FloatArray
    written: str  # how they are written, for the note that says what was assumed
    since_1970: bool


def as_times(name: str, values: Sequence[object]) -> Times | None:
    """The times that a column holds; None where it holds none.

    Numbers are times since 1970 where all lie between 1989 and 2106 in seconds, milli-, micro- or nanoseconds, and
    times since the start where the column's name is that of a unit. Texts are dates with a clock or without; those
    without a zone are UTC. Raises BadInput for dates of which day and month cannot be told apart.
    """
    numbers = as_numbers(values)
    if numbers is not None:
        return _of_numbers(name, numbers)
    texts = [value.strip() if isinstance(value, str) else "" for value in values]
    if all(map(_ISO.fullmatch, texts)):
        return Times(_parsed(texts, "ISO8601"), "ISO 8601", since_1970=True)
    if all(map(_COMMON_LOG.fullmatch, texts)):
        return Times(_parsed(texts, "%d/%b/%Y:%H:%M:%S %z"), "log format", since_1970=True)
    parts = [_BY_PARTS.fullmatch(text) for text in texts]
    if parts and all(parts):
        return _of_parts(name, texts, [(int(m[1]), m[2], int(m[3])) for m in parts if m])
    return None


def as_numbers(values: Sequence[object], *, blanks: bool = False) -> FloatArray | None:
    """Finite numbers, one for each value; None where one is none. With `blanks` empty cells are NaN, but not all."""
    try:
        numbers = np.array([np.nan if blanks and value in _BLANK else _number(value) for value in values])
    except (TypeError, ValueError, OverflowError):
        return None
    good = np.isfinite(numbers) | (np.isnan(numbers) & blanks)
    return numbers if np.all(good) and np.any(np.isfinite(numbers)) else None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.integer | np.floating):
        raise TypeError
    if isinstance(value, str) and "_" in value:  # Python's own 1_000 is no number elsewhere
        raise ValueError
    return float(value)


def _of_numbers(name: str, numbers: FloatArray) -> Times | None:
    for written, per_second in _EPOCHS:
        if numbers.min() >= _FIRST_S * per_second and numbers.max() <= _LAST_S * per_second:
            return Times(numbers / per_second, written, since_1970=True)
    unit = _SINCE_START.get(name.strip().lower())
    return None if unit is None else Times(numbers * unit[1], f"{unit[0]} since the start", since_1970=False)


def _of_parts(name: str, texts: Sequence[str], parts: Sequence[tuple[int, str, int]]) -> Times:
    """Dates as 23.11.2026, which is the day first, or with dashes or slashes, which may be either."""
    day_first = all(mark == "." for _, mark, _ in parts) or any(first > 12 for first, _, _ in parts)
    if not day_first and not any(second > 12 for _, _, second in parts):
        raise BadInput(
            "is the day first or the month? Write dates as 2026-11-23", f"time column {name}", texts[0] if texts else ""
        )
    return Times(_parsed(texts, "mixed", day_first), "day first" if day_first else "month first", since_1970=True)


def _parsed(texts: Sequence[str], form: str, day_first: bool = False) -> FloatArray:
    import pandas as pd  # here: 0.4 s, only for tables

    try:
        dates = pd.to_datetime(pd.Series(texts), utc=True, format=form, dayfirst=day_first)
    except ValueError as error:
        raise BadInput("is no date", "time column", str(error).split(",")[0]) from None
    return np.asarray(dates.astype("datetime64[us, UTC]").astype("int64"), dtype=np.float64) / 1e6
