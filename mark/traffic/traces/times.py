"""Columns of times as people and tools write them, to seconds since 1970 (or since the first row)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from unicodedata import normalize
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.cells import plain_numbers, read_numbers
from mark.traffic.traces.stamps import CHANGING, FIRST_S, LAST_S, Stamps, TimeFormat, offset_us, stamps_of, zone_named

_EPOCHS = (("epoch seconds", 1.0), ("epoch milliseconds", 1e3), ("epoch microseconds", 1e6), ("epoch nanoseconds", 1e9))
# Names with which a column of small numbers is taken for times.
_SINCE_START = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "t_seconds", "elapsed_s", "time_s"), ("seconds", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("minutes", 60.0)),
    **dict.fromkeys(("h", "hour", "hours"), ("hours", 3600.0)),
    **dict.fromkeys(("day", "days"), ("days", 86400.0)),
}
DAY_FIRST, MONTH_FIRST, EXCEL = "day-first", "month-first", "excel"  # beside the forms of strptime
_YEAR_FIRST = "year-first"  # of two digits
_PARTS = {DAY_FIRST: ("y", "b", "a"), MONTH_FIRST: ("y", "a", "b"), _YEAR_FIRST: ("a", "b", "y")}
FROM_START = {"s": 1.0, "ms": 1e-3}  # forms of numbers that count from the start, in seconds
_EXCEL_S = 25_569 * 86_400.0  # Excel's day 0 is 30 December 1899
_OF_DATES = re.compile(r"(?i)dat|day|tag|fecha|jour|d\u00eda|giorno")
_SINCE_1970 = re.compile(r"(?i)epoch|unix|stamp|date")
# The unit of times at the end of a column's name, as in `ts_ms` and `timeUnixNano`.
_UNIT_OF = re.compile(
    r"(?:^|[^A-Za-z])(?P<low>ms|us|ns|(?:milli|micro|nano)[a-z]*)$|[a-z](?P<high>Ms|Us|Ns|(?:Milli|Micro|Nano)[a-z]*)$"
)
_PER_SECOND = {"s": 1.0, "ms": 1e3, "mil": 1e3, "us": 1e6, "mic": 1e6, "ns": 1e9, "nan": 1e9}
_LEAST = 0.5  # of the cells must be times
_CENTURY = 66  # the years of two digits are 1966 to 2065
_FIRST_HOUR, _LAST_YEAR = 1.99e9, 2066.0  # hours are written as 1990010100 and later
# The beginnings of their names in English, German, French, Spanish, Italian and Portuguese.
_MONTHS = {
    begin: month
    for month, begins in enumerate(
        (
            *("jan ene gen", "feb fev", "mar mrz", "apr avr abr", "may mai mag", "jun juin giu", "jul juil lug"),
            *("aug aou ago", "sep set", "oct okt out ott", "nov", "dec dez dic"),
        ),
        1,
    )
    for begin in begins.split()
}


def _clock(mark: str) -> str:
    return (
        rf"(?P<H>\d{{1,2}})(?P<between>{mark})(?P<M>\d\d)(?:(?P=between)(?P<S>\d\d)(?:[.,](?P<f>\d{{1,9}})\d*)?)?"
        r"(?:\s?(?P<half>[AaPp])\.?\s?[Mm]\.?)?"
    )


_CLOCK = _clock(":")
_SIGN = "[-+\u2212]"
_ZONE = (
    rf"(?:\s?(?P<zone>Z|z|(?:UTC|GMT)?{_SIGN}\d\d(?::?\d\d)?|(?:UTC|GMT){_SIGN}\d|UTC|GMT)"
    r"(?:\s?\([\w ]+\)|\[[\w/+-]+\]|\s[A-Z]{3,4})?|\s(?P<abbreviation>[A-Z]{3,5}))?"
)
_UNTIL = r"(?:\s*(?:-|\u2013|to|bis)\s*\d{1,2}:\d\d(?::\d\d)?)?"  # the end of a span, as in `10:00 - 11:00`
_TAIL = rf"(?:(?:[Tt]|,?\s+|\s@\s|:){_clock('[:.h]')}{_ZONE}{_UNTIL})?"
_MONTH = r"(?P<month>[^\W\d_]{3,10})\.?"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?")
_FORMS = (
    ("ISO 8601", re.compile(rf"(?P<y>\d{{4}})([-/.])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}}){_TAIL}")),
    ("year and month", re.compile(r"(?P<y>\d{4})[-/](?P<m>\d\d)")),
    ("month and year", re.compile(r"(?P<m>\d{1,2})[-/](?P<y>\d{4})")),
    ("month and year", re.compile(rf"{_MONTH}[ -](?P<y>\d{{4}})")),
    ("year and quarter", re.compile(r"(?P<y>\d{4})[ -]?Q(?P<q>[1-4])")),
    ("quarter and year", re.compile(r"Q(?P<q>[1-4])[ /-]?(?P<y>\d{4})")),
    (
        "compact",
        re.compile(rf"(?P<y>\d{{4}})(?P<m>\d\d)(?P<d>\d\d)(?:T?(?P<H>\d\d)(?:(?P<M>\d\d)(?P<S>\d\d)?)?{_ZONE})?"),
    ),
    ("by parts", re.compile(rf"(?P<a>\d{{1,2}})(?P<mark>[./-])(?P<b>\d{{1,2}})(?P=mark)(?P<y>\d{{4}}|\d\d){_TAIL}")),
    (
        "day, month, year",
        re.compile(rf"{_WEEKDAY}(?P<d>\d{{1,2}})(?:\.? |[/-]){_MONTH}[ /-](?P<y>\d{{4}}|\d\d(?!:)){_TAIL}"),
    ),
    ("ISO week", re.compile(rf"(?P<y>\d{{4}})-?W(?P<w>\d\d)(?:-?(?P<d>[1-7]))?{_TAIL}")),
    (
        "month, day, year",
        re.compile(rf"{_WEEKDAY}{_MONTH}\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s(?P<y>\d{{4}}){_TAIL}"),
    ),
    ("ctime", re.compile(rf"{_WEEKDAY}{_MONTH}\s+(?P<d>\d{{1,2}})\s{_CLOCK}{_ZONE}\s(?P<y>\d{{4}})")),
)
_CLOCK_ONLY = re.compile(rf"(?P<clock>{_CLOCK}){_UNTIL}")
_NO_CLOCK = re.compile(r"(?!.*\d:\d\d).*\d.*")


@dataclass(frozen=True, slots=True)
class TimeForm:
    """A user's settings for times: a form and a zone's name.

    The form is one of strptime, DAY_FIRST, MONTH_FIRST, EXCEL, or a unit of FROM_START.
    """

    form: str | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.zone is not None:
            zone_named(self.zone)
        known = (DAY_FIRST, MONTH_FIRST, EXCEL, *FROM_START)
        if self.form not in (None, *known) and "%" not in str(self.form):
            what = f"must be a form as %d/%m/%Y %H:%M, or one of {', '.join(known)}"
            raise BadInput(what, "time_format", self.form)


AS_WRITTEN = TimeForm()


@dataclass(frozen=True, slots=True)
class Times:
    """A column of times, NaN for a cell without one.

    `since_1970`: dates, otherwise seconds from an unknown start. `local`: clocks of an unknown zone, taken as UTC.
    """

    seconds: FloatArray
    written: str  # their form, for the note about the assumptions
    since_1970: bool
    local: bool = False

    @property
    def known(self) -> FloatArray:
        return self.seconds[np.isfinite(self.seconds)]


def as_times(name: str, values: Sequence[object], said: TimeForm = AS_WRITTEN) -> Times | None:
    """Return the times of a column; None if fewer than half of its cells are times.

    Numbers are times since 1970 if all lie between 1992 and 2065 in seconds, milli-, micro- or nanoseconds, and times
    since the start if the column's name is a unit. Texts are dates with a clock or without; without a zone they are in
    UTC, or in the given zone. Raises BadInput for dates whose day and month cannot be distinguished, and for clocks
    that a zone lacks or has twice.
    """
    if said.form == EXCEL:
        days = read_numbers(values)
        if days is None:
            return None
        seconds = np.round(days.values * 86_400.0, 1) - _EXCEL_S
        whole = np.round(seconds)
        if np.all(np.diff(whole[np.isfinite(whole)]) != 0.0):
            seconds = whole  # five decimals of a day are a second
        return _localised(name, Times(seconds, "days of Excel", since_1970=True, local=True), said.zone)
    numbers = _numbers(values)
    if numbers is not None and (found := _of_numbers(name, numbers, said.form)) is not None:
        return found
    texts = [value.strip() if isinstance(value, str) else "" if value is None else str(value) for value in values]
    if said.form is not None and "%" in said.form:
        return _localised(name, _parsed(texts, said.form, TimeFormat(said.form).stamps), said.zone)
    if numbers is not None and (said.form is None or said.form in FROM_START) and not _compact(texts):
        return None
    return _localised(name, _of_texts(name, texts, said), said.zone)


def are_clocks(values: Sequence[object]) -> bool:
    """Return whether these are times of day without a date."""
    return _mostly(values, _CLOCK_ONLY)


def first_clock(text: object) -> str:
    """Return the time of day, without the end of a span of hours."""
    found = _CLOCK_ONLY.fullmatch(str(text).strip())
    return found["clock"] if found else str(text)


def are_days(values: Sequence[object]) -> bool:
    """Return whether these are texts without a clock; `as_times` decides whether they are dates."""
    return _mostly(values, _NO_CLOCK)


def _mostly(values: Sequence[object], pattern: re.Pattern[str]) -> bool:
    def fits(some: Sequence[object]) -> bool:
        good = sum(isinstance(value, str) and pattern.fullmatch(value.strip()) is not None for value in some)
        return good >= 0.9 * len(some)

    return bool(values) and fits(values[:: max(1, len(values) // 50)]) and fits(values)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _numbers(values: Sequence[object]) -> FloatArray | None:
    """Return numbers with NaN for other cells, if most are numbers."""
    if (plain := plain_numbers(values)) is not None:
        return plain
    found = [plain_numbers([value]) for value in values[:20]]
    if sum(one is not None for one in found) < _LEAST * len(found):
        return None
    each = [plain_numbers([value]) for value in values]
    numbers = np.array([np.nan if one is None else one[0] for one in each])
    return numbers if np.isfinite(numbers).sum() > _LEAST * len(numbers) else None


def _of_numbers(name: str, numbers: FloatArray, form: str | None) -> Times | None:
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    known = numbers[np.isfinite(numbers)]
    of_minutes = np.floor(known / 100.0)  # 2605011030, whose year has two digits, would be a second of the year 2052
    if low >= _FIRST_HOUR and (_are_hours(known) or (np.all(known % 100.0 < 60.0) and _are_hours(of_minutes))):
        return None  # 2026050110, an hour of a day, would be a second of the year 2034
    said = _PER_SECOND[form] if form in FROM_START else _per_second_of(name)
    for written, per_second in _EPOCHS:
        open_unit = per_second == 1.0 and not _SINCE_1970.search(name) and _are_thousands(numbers)
        is_unit = said == per_second or (said is None and not open_unit)
        if is_unit and low >= FIRST_S * per_second and high <= LAST_S * per_second:
            return Times(numbers / per_second, written, since_1970=True)
    unit = _SINCE_START.get(name.strip().lower())
    return None if unit is None else Times(numbers * unit[1], f"{unit[0]} since the start", since_1970=False)


def _per_second_of(name: str) -> float | None:
    """Return the unit of time in a column's name, as a part of a second; None without one."""
    found = _UNIT_OF.search(name.strip())
    return None if found is None else _PER_SECOND[(found["low"] or found["high"])[:3].lower()]


def _are_thousands(numbers: FloatArray) -> bool:
    """Return whether all steps are multiples of 1000, as those of whole seconds in milliseconds from a start are."""
    steps = np.diff(np.unique(numbers[np.isfinite(numbers)]))
    return len(steps) > 1 and bool(np.all(steps % 1000.0 == 0.0))


def _are_hours(numbers: FloatArray) -> bool:
    """Return whether the digits of all numbers are year, month, day and hour."""
    days, hours = np.divmod(numbers, 100.0)
    months, day = np.divmod(days, 100.0)
    years, month = np.divmod(months, 100.0)
    fits = (hours < 24.0) & (day >= 1.0) & (day < 32.0) & (month >= 1.0) & (month < 13.0) & (years < _LAST_YEAR)
    return bool(np.all(fits & (numbers == np.floor(numbers))))


def _compact(texts: Sequence[str]) -> bool:
    """Return whether these are digits only, as 20260501 or 20260501100000: dates rather than numbers of requests."""
    known = filter(None, texts)  # a row of totals has none
    return all(text[:2] in ("19", "20") and len(text) in (8, 10, 12, 14) and text.isdigit() for text in known)


# -- texts -------------------------------------------------------------------------------------------------------------


def _of_texts(name: str, texts: Sequence[str], said: TimeForm) -> Times | None:
    if texts and all(map(_ISO.fullmatch, texts)):
        return _parsed(texts, "ISO 8601")
    for written, form in _FORMS:
        # Try some rows first, because most columns hold no times and a table may be long.
        peek = texts[:: max(1, len(texts) // 50)]
        if sum(form.fullmatch(text) is not None for text in peek) <= _LEAST * len(peek):
            continue
        matches = [form.fullmatch(text) for text in texts]
        found = [match for match in matches if match]
        if len(found) < _LEAST * len(texts):
            continue
        order = None
        if written == "by parts":
            if len(found[0]["y"]) == 2 and not (found[0]["H"] or _OF_DATES.search(name)):
                continue  # the parts of a version or a clock
            if not (order := _order(name, found, said)):
                continue
            written = str(order).replace("-", " ")
        short = written == "day, month, year" and len(found[0]["y"]) == 2
        if short and len({match["d"] for match in found}) == 1 < len({match["y"] for match in found}):
            continue  # the year may stand first, as in 26-Nov-01
        named = next(filter(None, (match.groupdict().get("abbreviation") for match in found)), None)
        if named is not None and said.zone is None:
            raise BadInput("names a zone by letters, say which one it is by `time_zone`", f"time column {name}", named)
        zoned = not _are_spans(found)
        return _parsed(["" if match is None else _as_iso(match, order, zoned=zoned) for match in matches], written)
    return None


def _are_spans(found: Sequence[re.Match[str]]) -> bool:
    """Return whether the ends of spans of one length stand where offsets would, as in `10:00-11:00`."""
    minutes = set()
    for match in found:
        zone = match.groupdict().get("zone") or ""
        if not zone or match["S"] is not None or not re.fullmatch(r"-\d\d:\d\d", zone):
            return False
        minutes.add((60 * (int(zone[1:3]) - int(match["H"])) + int(zone[4:]) - int(match["M"])) % 1440)
    return len(minutes) == 1 and len({match["zone"] for match in found}) > 1


def _as_iso(match: re.Match[str], order: str | None, *, zoned: bool = True) -> str:
    """Return the time in ISO 8601; empty for a week or a day before 24:00 that does not exist."""
    parts = match.groupdict()
    hour = int(parts.get("H") or 0)
    ends_day = hour == 24 and int(parts["M"] or 0) == int(parts["S"] or 0) == 0
    if order is not None:
        year, month, day = (str(parts[name]) for name in _PARTS[order])
    else:
        year, day = parts["y"], parts.get("d", 1)
        month = (
            parts["m"]
            if "m" in parts
            else str(3 * int(parts["q"]) - 2 if "q" in parts else month_of(parts.get("month", "")))
        )
    if len(year) == 2:
        year = ("20" if int(year) < _CENTURY else "19") + year
    try:
        if "w" in parts:
            text = date.fromisocalendar(int(year), int(parts["w"]), int(day or 1)).isoformat()
        else:
            text = f"{year}-{int(month):02}-{int(day):02}"
        if ends_day:
            text, hour = str(np.datetime64(text) + 1), 0
    except ValueError:
        return ""
    if parts.get("H") is None:
        return f"{text}T00:00:00"
    if half := parts.get("half"):
        if ends_day:
            return ""
        hour = hour % 12 + 12 * (half in "Pp")
    text += f"T{hour:02}:{parts['M'] or '00'}:{parts['S'] or '00'}"
    if fraction := parts.get("f"):
        text += f".{fraction}"
    zone = parts["zone"]
    if zone is None or not zoned:
        return text
    zone = zone.removeprefix("UTC").removeprefix("GMT")
    if not zone.strip("Zz"):
        return text + "Z"
    sign, hours, minutes = "+" if zone[0] == "+" else "-", zone[1:3].zfill(2), zone[-2:] if len(zone) > 3 else "00"
    return f"{text}{sign}{hours}:{minutes}"


def month_of(name: str) -> int:
    """Return the number of a month by its name or the beginning of it; 0 for another word."""
    plain = normalize("NFD", name.lower()).encode("ascii", "ignore").decode()
    return _MONTHS.get(plain[:3]) or _MONTHS.get(plain[:4], 0)


def _order(name: str, found: Sequence[re.Match[str]], said: TimeForm) -> str:
    """Return which part is first: 23.11.2026 has the day first; slashes need the whole column. Empty for no date."""
    if said.form in (DAY_FIRST, MONTH_FIRST):
        return str(said.form)
    short = any(len(match["y"]) == 2 for match in found)
    dotted = all(match["mark"] == "." for match in found)
    if dotted and not short:
        return DAY_FIRST
    possible = [DAY_FIRST, *([] if dotted else [MONTH_FIRST]), *([_YEAR_FIRST] if short else [])]
    orders = [order for order in possible if _fits(found, order)]
    if len(orders) == 1 or (not orders and short):
        return "".join(orders)
    # Consecutive days decide if each has several rows; with one row each it may be a row a month.
    longest = {order: _longest_step(found, order) for order in orders or (DAY_FIRST, MONTH_FIRST)}
    near, *far = sorted(longest, key=lambda order: longest[order])
    if far and longest[near] <= 2.0 and all(longest[order] > 20.0 for order in far):
        return near
    what = (
        f"is the day first or the month? Say `time_format` {DAY_FIRST} or {MONTH_FIRST}, or write dates as 2026-11-23"
    )
    if short:
        what = f"the order of day, month and year is open: say `time_format` {DAY_FIRST}, {MONTH_FIRST} or %y-%m-%d"
    raise BadInput(what, f"time column {name}", found[0][0])


def _fits(found: Sequence[re.Match[str]], order: str) -> bool:
    _, month, day = _PARTS[order]
    return all(1 <= int(match[month]) <= 12 and 1 <= int(match[day]) <= 31 for match in found)


def _longest_step(found: Sequence[re.Match[str]], order: str) -> float:
    """Return the longest step between two different days, in days; infinite if a day does not exist."""
    try:
        texts = sorted({_as_iso(match, order)[:10] for match in found})
        days = np.array(texts, dtype="datetime64[D]").astype(np.float64)
    except ValueError:
        return np.inf
    return float(np.diff(days).max()) if 1 < len(days) <= len(found) / 2 else np.inf


def _parsed(texts: Sequence[str], written: str, parse: Callable[[Sequence[bytes]], Stamps] = stamps_of) -> Times | None:
    found = parse([text.encode("utf-8", "replace") for text in texts])
    good = found.micros >= 0
    if np.count_nonzero(good) < _LEAST * len(texts):
        return None
    return Times(
        np.where(good, found.micros / 1e6, np.nan), written, since_1970=True, local=bool(found.local[good].all())
    )


# -- zones -------------------------------------------------------------------------------------------------------------


def set_back_at(local_s: float) -> str | None:
    """Return a zone whose clocks show this time twice; None if no known one does."""
    return next((name for name in CHANGING if _change(local_s, name) < 0.0), None)


def set_back_from(after_s: float, last_s: float) -> str | None:
    """Return a zone in which an hour that clocks show twice begins after `after_s`, and at `last_s` at the latest."""
    quarters = np.arange(np.floor(after_s / 900.0) + 1.0, np.floor(last_s / 900.0) + 1.0) * 900.0
    for at_s in quarters.tolist():
        for name in CHANGING:
            if _change(at_s, name) < 0.0 <= _change(at_s - 900.0, name):
                return name
    return None


def set_forward_between(begin_s: float, end_s: float) -> str | None:
    """Return a zone whose clocks show both times and leave out some between them."""
    for name in CHANGING:
        left_out = any(_change(at_s, name) > 0.0 for at_s in np.arange(begin_s, end_s, 900.0).tolist())
        if left_out and _change(begin_s, name) <= 0.0 and _change(end_s, name) <= 0.0:
            return name
    return None


def _change(local_s: float, zone_name: str) -> float:
    before, after = _offsets(local_s, ZoneInfo(zone_name))
    return after - before


def _offsets(local_s: float, zone: ZoneInfo) -> tuple[float, float]:
    """Return the clock's offset before a change and after it; they differ only in the hours around a change."""
    before, after = (offset_us(zone, round(local_s * 1e6), fold) / 1e6 for fold in (0, 1))
    return before, after


def _localised(name: str, times: Times | None, zone_name: str | None) -> Times | None:
    """Convert clocks of a zone to UTC. A repeated time is before the change until the rows go back, then after it."""
    if times is None or zone_name is None or not times.local:
        return times
    zone = ZoneInfo(zone_name)
    seconds = times.seconds.copy()
    # Offsets are looked up by quarter of an hour, because no zone changes its offset within one.
    quarters = np.floor(times.known / 900.0) * 900.0
    offsets = {quarter: _offsets(float(quarter), zone) for quarter in np.unique(quarters)}
    good = np.flatnonzero(np.isfinite(seconds))
    before = np.array([offsets[quarter][0] for quarter in quarters])
    after = np.array([offsets[quarter][1] for quarter in quarters])
    if np.any(before < after):
        at = float(times.known[int(np.argmax(before < after))])
        raise BadInput(
            f"a time that {zone_name} does not have, clocks are set forward", f"time column {name}", shown(at)
        )
    used = before.copy()
    twice = np.flatnonzero(before > after)
    for day in np.unique(np.floor(times.known[twice] / 86_400.0)):
        rows = twice[np.floor(times.known[twice] / 86_400.0) == day]
        later = _after_change(times.known, rows)
        if later is None:
            what = f"comes twice in {zone_name}, and the rows do not go back once there: write times with their offset"
            raise BadInput(what, f"time column {name}", shown(float(times.known[rows[0]])))
        used[later] = after[later]
    seconds[good] -= used
    return replace(times, seconds=seconds, written=f"{times.written}, {zone_name}", local=False)


def _after_change(local: FloatArray, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return which rows of an hour that comes twice are in its second occurrence; None if that is open."""
    if goes_down(local):
        found = _after_change(local[::-1], len(local) - 1 - rows[::-1])
        return None if found is None else len(local) - 1 - found
    steps = np.diff(local[rows])
    back = int(np.argmin(steps)) if len(steps) else 0
    if len(steps) and steps[back] <= 0.0:
        # The rows go back exactly once: far more than neighbours do, or to the same time if rows are hourly.
        return rows[back + 1 :] if np.sum(steps <= steps[back] / 2.0) == 1 else None
    first, last = int(rows[0]), int(rows[-1])
    if first == 0 or last == len(local) - 1:  # the file begins or ends in the hour
        return rows if first == 0 else rows[:0]
    if len(rows) > 1:
        return None
    # A single row, if rows are hours apart: the steps beside it are alike.
    early_s, late_s = local[first] - local[first - 1], local[last + 1] - local[last]
    if late_s < 3600.0 or early_s < 3600.0:
        return None
    return rows[:0] if abs(early_s - (late_s + 3600.0)) <= abs(early_s + 3600.0 - late_s) else rows


def goes_down(times: FloatArray) -> bool:
    """Return whether the newest rows are first."""
    return bool(np.sum(np.diff(times) < 0.0) > np.sum(np.diff(times) > 0.0))


def shown(seconds: float) -> str:
    """Return a time as a message shows it."""
    return str(np.datetime64(round(seconds), "s")).replace("T", " ")
