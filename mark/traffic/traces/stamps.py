"""Times as logs write them, to microseconds since 1970, for many lines at a time.

ISO 8601 (`2026-05-01T10:00:00.123Z`, also with slashes), web servers' own (`01/May/2026:10:00:00 +0000`, also with a
fraction or without a zone) and numbers since 1970 in seconds, milli-, micro- or nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput

Micros = NDArray[np.int64]  # microseconds since 1970, negative for other texts
Mask = NDArray[np.bool_]

# Accepted as a time by the patterns of log formats. The parser below is stricter.
FRACTION = rb"(?:[.,]\d{1,9})?"
ZONE = rb"(?: ?(?:[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
CLOCK = rb"\d\d:\d\d:\d\d" + FRACTION + ZONE
ISO = rb"\d{4}(?:-\d\d-|/\d\d/)\d\d(?:[Tt \t]| - )" + CLOCK
WEB = rb"\d\d/[A-Z][a-z]{2}/\d{4}[: ]" + CLOCK

_WIDTH = 44
_DASH_OR_SLASH = np.frombuffer(b"-/", np.uint8)
_MONTHS = np.frombuffer(b"JanFebMarAprMayJunJulAugSepOctNovDec", dtype="S3")
_TWO = np.array([10, 1])
_FOUR = np.array([1000, 100, 10, 1])
_SIX = np.array([100_000, 10_000, 1_000, 100, 10, 1])
# From the year 1992 to 2065, so that requests and other eras, such as .NET's ticks, are rarely taken for times.
FIRST_S, LAST_S = 7e8, 3.0e9
_QUARTER_US = 15 * 60 * 1_000_000
_JUMBLED_US = 10 * 60 * 1_000_000  # usual disorder of the lines of one file
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False, slots=True)
class Stamps:
    """The times of lines: `micros` in UTC, or on a wall clock of an unknown zone if `local`."""

    micros: Micros
    local: Mask


def stamps_of(texts: Sequence[bytes]) -> Stamps:
    """Return the time of each text; negative for other texts."""
    table = np.array(texts, dtype=f"S{_WIDTH}").view(np.uint8).reshape(len(texts), _WIDTH)
    micros = np.full(len(texts), -1, dtype=np.int64)
    local = np.zeros(len(texts), dtype=np.bool_)
    iso, web = np.isin(table[:, 4], _DASH_OR_SLASH), table[:, 2] == ord("/")
    for rows, parse in ((iso, _iso), (web & ~iso, _web)):
        if rows.all():
            micros, local = parse(table)
        elif rows.any():
            micros[rows], local[rows] = parse(table[rows])
    numbers = np.flatnonzero(~(iso | web))
    if len(numbers):
        micros[numbers] = _numbers([texts[i] for i in numbers.tolist()])
    return Stamps(micros, local)


def civil_micros(digits: Micros) -> Micros:
    """Return microseconds since 1970 of UTC dates, rows of 20 digits YYYYMMDDhhmmssuuuuuu; negative if impossible."""
    year = digits[:, 0:4] @ _FOUR
    fields = (digits[:, i : i + 2] @ _TWO for i in range(4, 14, 2))
    micros = _micros(year, *fields)
    return np.asarray(micros + digits[:, 14:20] @ _SIX, dtype=np.int64)


def _iso(table: NDArray[np.uint8]) -> tuple[Micros, Mask]:
    apart = table[:, 11] == ord("-")  # 2026/05/01 - 10:00:00 of Gin
    if apart.any():
        table = table.copy()
        table[apart, 11:-2] = table[apart, 13:]
    digits = table[:, [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]].astype(np.int64) - 48
    right = np.isin(table[:, 4], _DASH_OR_SLASH) & (table[:, 7] == table[:, 4])
    right &= np.all(table[:, [13, 16]] == ord(":"), axis=1)
    right &= np.isin(table[:, 10], np.frombuffer(b"Tt \t", np.uint8))
    return _with_tail(digits, right, table, 19)


def _web(table: NDArray[np.uint8]) -> tuple[Micros, Mask]:
    digits = table.astype(np.int64)[:, :20] - 48
    names = np.ascontiguousarray(table[:, 3:6]).view("S3")[:, 0]
    month = np.zeros(len(table), dtype=np.int64)
    for number, name in enumerate(_MONTHS, 1):
        month[names == name] = number
    columns = (digits[:, 7:11], month // 10, month % 10, digits[:, 0:2], digits[:, [12, 13, 15, 16, 18, 19]])
    right = np.all(table[:, [2, 6, 14, 17]] == np.frombuffer(b"//::", np.uint8), axis=1)
    right &= np.isin(table[:, 11], np.frombuffer(b": ", np.uint8)) & (month > 0)
    return _with_tail(np.column_stack(columns), right, table, 20)


def _with_tail(digits: Micros, right: Mask, table: NDArray[np.uint8], at: int) -> tuple[Micros, Mask]:
    """Return the time of a date's 14 digits with an optional fraction and zone from column `at`."""
    rows = np.arange(len(table))
    right = right & np.all((digits >= 0) & (digits <= 9), axis=1)
    fraction = table[:, at + 1 : at + 10].astype(np.int64) - 48
    marked = np.isin(table[:, at], np.frombuffer(b".,", np.uint8))
    run = np.logical_and.accumulate((fraction >= 0) & (fraction <= 9), axis=1) & marked[:, None]
    length = run.sum(axis=1)
    right &= ~marked | (length > 0)
    micros = civil_micros(np.column_stack((digits, np.where(run, fraction, 0)[:, :6])))
    zone_at = at + np.where(marked, 1 + length, 0)
    zone_at += table[rows, zone_at] == ord(" ")
    zone = table[rows[:, None], zone_at[:, None] + np.arange(7)]
    sign = zone[:, 0]
    signed = (sign == ord("+")) | (sign == ord("-"))
    colon = zone[:, 3] == ord(":")
    hours = zone[:, 1:3].astype(np.int64) - 48
    minutes = np.where(colon[:, None], zone[:, 4:6], zone[:, 3:5]).astype(np.int64) - 48
    whole = zone[:, 3] == 0  # `+02`
    minutes[whole] = 0
    end = np.where(whole, 0, np.where(colon, zone[:, 6], zone[:, 5]))
    offset = np.all((hours >= 0) & (hours <= 9) & (minutes >= 0) & (minutes <= 9), axis=1) & signed & (end == 0)
    utc = np.isin(sign, np.frombuffer(b"Zz", np.uint8)) & (zone[:, 1] == 0)
    for word in (b"UTC", b"GMT"):
        utc |= np.all(zone[:, :4] == np.frombuffer(word + b"\0", np.uint8), axis=1)
    local = sign == 0
    right &= offset | utc | local
    east_s = np.where(sign == ord("-"), -1, 1) * ((hours @ _TWO) * 3600 + (minutes @ _TWO) * 60)
    micros = np.where(offset & (micros >= 0), micros - east_s * 1_000_000, micros)
    return np.asarray(np.where(right, micros, -1), dtype=np.int64), local & right


def _numbers(texts: Sequence[bytes]) -> Micros:
    table = np.array(texts, dtype=f"S{_WIDTH}")
    try:
        numbers = np.full(len(texts), np.nan) if b"_" in table.tobytes() else table.astype(np.float64)
    except ValueError:
        numbers = np.full(len(texts), np.nan)
    unclear = np.flatnonzero(np.isnan(numbers))
    numbers[unclear] = [_number(texts[i]) for i in unclear.tolist()]
    micros = np.full(len(texts), -1, dtype=np.int64)
    for per_second in (1.0, 1e3, 1e6, 1e9):
        fits = (numbers >= FIRST_S * per_second) & (numbers <= LAST_S * per_second)
        micros[fits] = np.round(numbers[fits] / per_second * 1e6).astype(np.int64)
    return micros


def _number(text: bytes) -> float:
    try:
        return np.nan if b"_" in text else float(text)
    except ValueError:
        return np.nan


def _micros(year: Micros, month: Micros, day: Micros, hour: Micros, minute: Micros, second: Micros) -> Micros:
    """Return microseconds since 1970 of a date in UTC; below zero if a field is out of range.

    Days by the civil calendar of 400-year eras that begin in March, so that the leap day ends a year.
    """
    y = np.where(month <= 2, year - 1, year)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * y + y // 4 - y // 100 + y // 400 + day_of_year - 719_468
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = np.where(month == 2, np.where(leap, 29, 28), np.where(np.isin(month, (4, 6, 9, 11)), 30, 31))
    wrong = (
        (month < 1)
        | (month > 12)
        | (day < 1)
        | (day > last)
        | (hour > 23)
        | (minute > 59)
        | (second > 60)
        | (year < 1971)
    )
    micros = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000
    return np.where(wrong, np.int64(-2_000_000), micros)


# -- wall clocks -------------------------------------------------------------------------------------------------------


def zone_named(name: str) -> ZoneInfo:
    """Return the zone. Raises BadInput for an unknown one."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadInput("no such time zone, write it as Europe/Berlin or UTC", "time_zone", name) from None


class ZoneClock:
    """Converts times on the clock of a zone to UTC, in the order of the lines.

    In an hour that the clock showed twice, a line belongs to the first showing unless that would set it back by more
    than ten minutes from the line before.
    """

    def __init__(self, zone: str) -> None:
        self._zone, self._name = zone_named(zone), zone
        self._last: int | None = None
        # The first time of successive lines in such an hour, and whether the clock was set back.
        self._unclear: int | None = None
        self._set_back = False
        self._in_hour = False  # whether the last line was in one
        self.twice = 0  # lines within hours that the clock showed twice

    def utc(self, local: Micros) -> Micros:
        """Return the times in UTC. Raises BadInput for a time that the clock of this zone never showed."""
        quarters, place = np.unique(local // _QUARTER_US, return_inverse=True)
        first, second = (self._offsets(quarters, fold)[place] for fold in (0, 1))
        never = np.flatnonzero(first < second)
        if len(never):
            shown = (_NAIVE_EPOCH + timedelta(microseconds=int(local[never[0]]))).isoformat(" ")
            raise BadInput(f"the clock never showed {shown} there, it was set forward", "time_zone", self._name)
        utc = local - first
        unclear = np.flatnonzero(first != second)
        self.twice += len(unclear)
        last = -1 if self._in_hour else None
        for i in unclear.tolist():
            if last is None or np.any(np.abs(local[last + 1 : i] - local[i]) > _JUMBLED_US):
                self.end()
                self._unclear, self._set_back = int(local[i]), False
            last = i
            before = int(utc[i - 1]) if i else self._last
            if before is not None and utc[i] < before - _JUMBLED_US:
                utc[i] = local[i] - second[i]
                self._set_back = True
        if len(utc):
            self._last = int(utc[-1])
            self._in_hour = bool(len(unclear) and unclear[-1] == len(utc) - 1)
        return np.asarray(utc, dtype=np.int64)

    def begin(self) -> None:
        """Begin another file: its first line follows no other."""
        self._last, self._unclear, self._in_hour = None, None, False

    def end(self) -> None:
        """End a file. Raises BadInput if times fit both hours and no line shows that the clock was set back."""
        if self._unclear is not None and not self._set_back:
            shown = (_NAIVE_EPOCH + timedelta(microseconds=self._unclear)).isoformat(" ")
            what = f"{shown} came twice there, and no line goes back: log times with their offset from UTC"
            raise BadInput(what, "time_zone", self._name)

    def _offsets(self, quarters: Micros, fold: int) -> Micros:
        offsets = [offset_us(self._zone, quarter * _QUARTER_US, fold) for quarter in quarters.tolist()]
        return np.array(offsets, dtype=np.int64)


def offset_us(zone: ZoneInfo, local_us: int, fold: int) -> int:
    """Return how far the clock of a zone is ahead of UTC, before a change (fold 0) and after it (fold 1)."""
    shown = _NAIVE_EPOCH + timedelta(microseconds=local_us)
    return round((shown.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()) / timedelta(microseconds=1))


# One zone for each rule of clock changes.
CHANGING = (
    *("Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "America/Santiago", "Australia/Sydney"),
    *("Australia/Lord_Howe", "Pacific/Auckland", "Asia/Jerusalem", "Africa/Cairo"),
)
_HOUR_US = 3_600_000_000
_FEW_JUMPS = 3


def changed_clock(local: Micros) -> tuple[int, str] | None:
    """Return where successive times jump as a changed clock does, and a zone with that change; None otherwise.

    Back is from an hour that comes twice into that hour. Forward is over an hour that no clock showed, among times that
    are usually within a minute of one another.
    """
    steps = np.diff(local)
    back = np.flatnonzero((steps < -_HOUR_US // 3) & (steps > -_HOUR_US * 7 // 6))
    forward = np.flatnonzero((steps > _HOUR_US // 2) & (steps < _HOUR_US * 7 // 6))
    if len(back) > _FEW_JUMPS:  # in no order at all
        back = back[:0]
    if not len(back) and not len(forward):
        return None
    if np.median(np.abs(steps)) > 60_000_000:
        forward = forward[:0]
    known: dict[tuple[int, int], str | None] = {}
    for i in np.sort(np.concatenate((back, forward))).tolist():
        before, after = int(local[i]), int(local[i + 1])
        quarters = (before // _QUARTER_US, after // _QUARTER_US)
        if quarters not in known:
            known[quarters] = _zone_of_jump(*quarters)
        if (zone := known[quarters]) is not None:
            return i + 1, zone
    return None


def _zone_of_jump(before: int, after: int) -> str | None:
    for name in CHANGING:
        zone = ZoneInfo(name)

        def change(quarter: int, zone: ZoneInfo = zone) -> int:
            return offset_us(zone, quarter * _QUARTER_US, 1) - offset_us(zone, quarter * _QUARTER_US, 0)

        if after < before:
            if change(before) < 0 and change(after) < 0:
                return name
        elif change(before) == 0 == change(after) and all(change(q) > 0 for q in range(before + 1, after)):
            return name
    return None


# -- a format of the user's own ----------------------------------------------------------------------------------------

_DIRECTIVES = {
    "Y": r"\d{4}", "y": r"\d\d", "m": r"\d{1,2}", "d": r"\d{1,2}", "H": r"\d{1,2}", "I": r"\d{1,2}", "M": r"\d{1,2}",
    "S": r"\d{1,2}", "f": r"\d{1,6}", "j": r"\d{1,3}", "b": r"[A-Za-z]{3}", "B": r"[A-Za-z]+", "a": r"[A-Za-z]{3}",
    "A": r"[A-Za-z]+", "p": r"[AaPp][Mm]", "z": r"(?:Z|[+-]\d\d:?\d\d)", "%": "%",
}  # fmt: skip
_WHOLE = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "R": "%H:%M", "D": "%m/%d/%y"}


class TimeFormat:
    """Times written as `--time-format` says, with the directives of `strptime`."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"%([TFRD])", lambda found: _WHOLE[found[1]], text)
        parts = re.split(r"%(.)", self.text)
        unknown = [name for name in parts[1::2] if name not in _DIRECTIVES]
        if unknown or parts[-1].endswith("%"):
            raise BadInput(f"unknown directive %{''.join(unknown[:1])}, see strptime", "time_format", text)
        if not {"Y", "y"} & set(parts[1::2]):
            raise BadInput("needs a year, such as %Y-%m-%d %H:%M:%S", "time_format", text)
        pattern = "".join(_DIRECTIVES[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))
        self.pattern = rf"(?<![\w]){pattern}(?![\w])".encode()

    def stamps(self, texts: Sequence[bytes]) -> Stamps:
        known: dict[bytes, tuple[int, bool]] = {}
        for text in texts:
            if text not in known:
                known[text] = self._one(text)
        micros = np.array([known[text][0] for text in texts], dtype=np.int64)
        return Stamps(micros, np.array([known[text][1] for text in texts], dtype=np.bool_))

    def _one(self, text: bytes) -> tuple[int, bool]:
        try:
            at = datetime.strptime(text.decode("utf-8", "replace"), self.text)
        except ValueError:
            return -1, False
        local = at.tzinfo is None
        since = at - (_NAIVE_EPOCH if local else _EPOCH)
        return round(since / timedelta(microseconds=1)), local
