"""Cells of a table as numbers: separators of several languages, units, and the words for a missing value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from mark.domain.arrays import FloatArray

POINT, COMMA = "point", "comma"
MEASURE = "measure"  # the unit of a time, a size, a share: the number counts no requests
MIXED = "mixed"

_MISSING = frozenset(
    [
        *("", "-", "--", "\u2013", "\u2014", ".", "?", "null", "(null)", "none", "nil", "nan", "nat"),
        *("na", "n/a", "#n/a"),
        *("<na>", "undefined", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "\\n"),
        *("no data", "missing", "#div/0!", "#value!", "#ref!", "#name?", "#null!", "#num!"),
    ]
)
_SPACES = " '\u2019\u00a0\u202f\u2009"
# The first group lacks a leading zero: `0,500` is a half and not 500.
_SPACED = rf"[1-9]\d{{0,2}}(?:[{_SPACES}]\d{{3}})+"
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_FORMS = {
    POINT: rf"(?:[1-9]\d{{0,2}}(?:,\d{{2,3}})*,\d{{3}}|{_SPACED}|\d+)(?:\.\d*)?{_EXPONENT}|\.\d+{_EXPONENT}",
    COMMA: rf"(?:[1-9]\d{{0,2}}(?:\.\d{{3}})+|{_SPACED}|\d+)(?:,\d+)?{_EXPONENT}|,\d+{_EXPONENT}",
}
_CELLS = {name: re.compile(rf"([+\-\u2212]?)({form})\s*(\D*)") for name, form in _FORMS.items()}
_THREE = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}(?![\d.,])")  # one separator followed by three digits
_EXPONENTIAL = re.compile(r"[+-]?\d+([.,])\d+[eE][+-]?\d")
_SCIENTIFIC = re.compile(r"[+-]?\d+(?:[.,](\d*))?[eE]([+-]?\d{1,3})")
_LARGEST_POWER = 308  # of ten; larger numbers are infinite, and count as missing
_LEADING = re.compile(r"[+-]?(\d+)")
_ENOUGH = 3  # short numbers that show that digits are grouped
_PEEK = 200
_DROPPED = {POINT: str.maketrans("", "", "," + _SPACES), COMMA: str.maketrans(",", ".", "." + _SPACES)}

_SCALES = {"k": 1e3, "K": 1e3, "Mil": 1e6, "M": 1e6, "Bil": 1e9, "G": 1e9, "Tri": 1e12, "T": 1e12}
_UNIT = re.compile(r"(Mil|Bil|Tri|[kKMGT])?\s*(.*?)\s*", re.DOTALL)
_THINGS = "reqs?|requests?|r|q|query|queries|t|tx|ops?|io|hits?|calls?|c|invocations?|counts?"
_PER = re.compile(
    rf"(?:(?:{_THINGS})?\s*(?:/|per\s)\s*|(?:{_THINGS})p)(?:(s|secs?|seconds?)|(m|min|minutes?)|(h|hr|hours?))",
    re.IGNORECASE,
)
_COUNTS = re.compile(_THINGS)
_MEASURES = frozenset(
    [
        *("ms", "s", "sec", "secs", "second", "seconds", "us", "µs", "μs", "ns", "min", "mins", "minute", "minutes"),
        *("h", "hr", "hour", "hours", "d", "day", "days", "week", "weeks", "%", "b", "bit", "bits", "byte", "bytes"),
        *("ib", "kib", "mib", "gib", "bps", "b/s", "ib/s", "hz", "w", "v", "°c", "c°", "$", "usd", "€", "eur", "wk"),
        *("kbps", "mbps", "bytes/s"),
    ]
)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers; NaN for a value that is missing or `bad`.

    `unit` is the unit after the numbers: "per-second", "per-minute", "per-hour", "count", MEASURE, MIXED or None.
    `decimal` is the decimal sign that the column shows, or None. `unclear` is a cell with two readings. `grain` is the
    worth of the last digit of numbers that are rounded to a few digits, else 0, and `slip` the largest share of the sum
    that rounding may have changed.
    """

    values: FloatArray
    unit: str | None = None
    decimal: str | None = None
    unclear: str | None = None
    bad: tuple[int, ...] = ()
    slip: float = 0.0
    grain: float = 0.0


def read_numbers(values: Sequence[object], decimal: str | None = None) -> NumberColumn | None:
    """Return the numbers of a column; None if fewer than half of the filled cells are numbers.

    `decimal` is POINT or COMMA if it is known.
    """
    quick = _quick(values) if decimal != COMMA else None
    texts = [value.strip() for value in values if isinstance(value, str)]
    if quick is not None:
        sign, unclear = _decimal(texts) if decimal is None else (decimal, None)
        if sign != COMMA:
            slip, grain = _rounding(texts, float(np.nansum(np.abs(quick))))
            shown = sign if any("." in text for text in texts) else None
            return NumberColumn(quick, decimal=shown, unclear=unclear, slip=slip, grain=grain)
    peek = [text for text in texts[:_PEEK] if not is_missing(text)]
    if peek and not any(_one(text, sign) for text in peek for sign in _CELLS):
        return None  # words
    numbers = np.full(len(values), np.nan)
    if decimal is None:
        decimal, unclear = _decimal(texts)
    else:
        unclear = None
    units: set[str | None] = set()
    bad, known, off, grain = [], 0, 0.0, 0.0
    for i, value in enumerate(values):
        if is_missing(value):
            continue
        found = _one(value, decimal or POINT)
        if found is None:
            bad.append(i)
            continue
        numbers[i], unit, slip = found
        off += slip
        grain = max(grain, 2.0 * slip)
        known += 1
        units.add(unit)
    if known == 0 or len(bad) > known:
        return None
    if len(units) > 1:
        units.discard(None)  # `0` beside `3.02 req/s`
    unit = units.pop() if len(units) == 1 else MIXED
    total = float(np.nansum(np.abs(numbers)))
    if grain:
        return NumberColumn(numbers, unit, decimal, unclear, tuple(bad), off / total if total > 0.0 else 0.0, grain)
    return NumberColumn(numbers, unit, decimal, unclear, tuple(bad), *_rounding(texts, total))


def _rounding(texts: Sequence[str], total: float) -> tuple[float, float]:
    """Return `slip` and `grain` of numbers such as 1.02E+06, if all have equally many digits.

    Programs that write each number with as many digits as it needs are exact.
    """
    found = [match for match in map(_SCIENTIFIC.fullmatch, texts) if match and int(match[2]) <= _LARGEST_POWER]
    if len({len(match[1] or "") for match in found}) != 1 or total <= 0.0:
        return 0.0, 0.0
    grains = [10.0 ** (int(match[2]) - len(match[1] or "")) for match in found]
    rounded = [grain for grain in grains if grain > 1.0]
    return 0.5 * sum(rounded) / total, max(rounded, default=0.0)


def plain_numbers(values: Sequence[object]) -> FloatArray | None:
    """Return finite numbers, one for each value; None if any value is not one."""
    numbers = _quick(values)
    return numbers if numbers is not None and len(numbers) and np.all(np.isfinite(numbers)) else None


def is_missing(value: object) -> bool:
    """Return whether the cell marks a missing value."""
    return str(value).strip().lower() in _MISSING


def _quick(values: Sequence[object]) -> FloatArray | None:
    """Return numbers in Python's form, as most columns have them, NaN for `nan` and infinity; None for other forms."""
    try:
        numbers = np.array([_float(value) for value in values])
    except (TypeError, ValueError, OverflowError):
        return None
    numbers[np.isinf(numbers)] = np.nan
    return numbers if np.any(np.isfinite(numbers)) else None


def _float(value: object) -> float:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    if isinstance(value, str):
        if "_" in value:  # Python's own 1_000 is no number elsewhere
            raise ValueError
        return float(value)
    if isinstance(value, int | float | Decimal | np.integer | np.floating):
        return float(value)
    raise TypeError


def _one(value: object, decimal: str) -> tuple[float, str | None, float] | None:
    """Return number, unit, and the largest error of the number if it was rounded to thousands or millions."""
    if not isinstance(value, str):
        try:
            return _float(value), None, 0.0
        except (TypeError, ValueError, OverflowError):
            return None
    found = _CELLS[decimal].fullmatch(value.strip())
    if found is None:
        return None
    digits = found[2].translate(_DROPPED[decimal])
    number = float(digits)
    if not np.isfinite(number):
        return None
    scale, unit = _unit(found[3])
    if unit == "":
        return None
    slip = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * scale if scale > 1.0 else 0.0
    return (-number if found[1] in ("-", "\u2212") else number) * scale, unit, slip


def _unit(text: str) -> tuple[float, str | None]:
    """Return the factor and the unit; "" for an unknown one."""
    found = _UNIT.fullmatch(text)
    scale, unit = (_SCALES.get(found[1], 1.0), found[2]) if found else (1.0, text)
    for factor, word in ((scale, unit), (1.0, text.strip())):
        low = word.lower()
        if not low:
            return factor, None
        if (per := _PER.fullmatch(word)) is not None:
            return factor, "per-second" if per[1] else "per-minute" if per[2] else "per-hour"
        if _COUNTS.fullmatch(low):
            return factor, "count"
        if low in _MEASURES:
            return factor, MEASURE
    return 1.0, ""


def _decimal(texts: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the decimal sign of a column, and a cell that leaves it open.

    `1,500` is 1500 or one and a half. Whole numbers below a thousand decide it: digits are grouped, because three
    decimals would follow every number. Whole numbers above decide it too: they would be grouped.
    """
    open_cell: str | None = None
    shorts = 0
    longs = False
    for text in texts:
        if "," not in text and "." not in text:
            digits = _LEADING.match(text)
            if digits is not None:
                shorts += 0 < int(digits[1][:4]) < 1000 and len(digits[1]) <= 3
                longs = longs or len(digits[1]) > 3
            continue
        if (exponent := _EXPONENTIAL.match(text)) is not None:  # digits are not grouped there
            return (POINT if exponent[1] == "." else COMMA), None
        three = _THREE.match(text)
        if three is not None:
            if _unit(text[three.end() :].strip())[0] > 1.0:
                return (POINT if three[1] == "." else COMMA), None  # `1.002 K` is scaled, so its digits are not grouped
            open_cell = open_cell or text
            continue
        fits = [sign for sign in (POINT, COMMA) if _CELLS[sign].fullmatch(text)]
        if len(fits) == 1:
            return fits[0], None
    if open_cell is None:
        return None, None
    decimal, grouped = (COMMA, POINT) if "," in open_cell else (POINT, COMMA)
    if longs:
        return decimal, None
    return (grouped, None) if shorts >= _ENOUGH else (None, open_cell)
