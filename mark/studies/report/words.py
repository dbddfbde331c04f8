"""The formats of numbers, in one place, so that table, report and explanation agree. ASCII only, for pipes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from mark.domain.percent import exact_percent as exact_percent
from mark.domain.percent import percent as percent

HOURS_PER_MONTH = 730.0  # AWS's month: 8,760 h / 12


def usd(amount: float | None) -> str:
    """Return dollars to the cent, below ten cents to two significant digits, down to a millionth; "-" if undefined."""
    if amount is None or not math.isfinite(amount):
        return "-"
    sign, size = "-" if amount <= -1e-6 else "", abs(amount)
    if 1e-6 <= size < 0.1:
        return f"{sign}${size:.{1 - math.floor(math.log10(size))}f}"
    return f"{sign}${size:,.2f}" if size < 1e5 else f"{sign}${size:,.0f}"


def dollars(amount: float | None) -> str:
    """Return whole dollars from 10 on, for extrapolations: cents would pretend a precision that they lack."""
    if amount is None or not math.isfinite(amount) or abs(amount) < 10.0:
        return usd(amount)
    return f"-${-amount:,.0f}" if amount < 0.0 else f"${amount:,.0f}"


def usd_apart(more: float, less: float, shown: Callable[[float], str] = usd) -> str:
    """Return the difference of two amounts as they are shown, so that a reader who subtracts finds the same."""
    amounts = (float(shown(amount).replace("$", "").replace(",", "")) for amount in (more, less))
    return shown(round(next(amounts) - next(amounts), 12))


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:z,.{digits}f}"


# Formats of columns that need another number of digits.
number_0, number_1, number_3, number_4 = (partial(number, digits=digits) for digits in (0, 1, 3, 4))
percent_0, percent_2 = partial(percent, digits=0), partial(percent, digits=2)
grouped = "{:,}".format


def milliseconds(value: float | None) -> str:
    """Return whole milliseconds from 10 on, one digit below."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def latency(value: float | None) -> str:
    """Return milliseconds for a narrow column; from 100 s on, a duration with its unit."""
    return milliseconds(value) if value is None or not 1e5 <= value < math.inf else duration(value / 1e3)


def rate(rps: float) -> str:
    return f"{rps:,.0f}" if rps >= 100.0 else f"{rps:.3g}"


def count(n: float) -> str:
    """Return a count for reading: 940, 12,345, 14.0 million, 1.2 billion."""
    if n >= 1e9:
        return f"{n / 1e9:.1f} billion"
    if n >= 1e6:
        return f"{n / 1e6:.1f} million"
    return f"{n:,.0f}"


def duration(seconds: float) -> str:
    """Return the largest unit that reads naturally: 45 s, 10 min, 8.2 h, 7 days."""
    for unit_s, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= (2.0 if unit == "days" else 1.0) * unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"


def per_month(amount_usd: float, duration_s: float) -> float | None:
    """Return the same spending for a month of 730 h; None for a run without duration."""
    return amount_usd * HOURS_PER_MONTH * 3600.0 / duration_s if duration_s > 0.0 else None
