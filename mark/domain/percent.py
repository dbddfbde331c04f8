"""Shares as percent, written alike in every text."""

from __future__ import annotations

import math


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in [0, 1] as percent, cut rather than rounded near 100, so that 99.999 % never reads as all."""
    if share is None or not math.isfinite(share):
        return "-"
    value = 100.0 * share
    if value < 100.0 and round(value, digits) == 100.0:
        value = math.floor(value * 10**digits) / 10**digits
    return f"{value:z.{digits}f} %"


def exact_percent(share: float, digits: int = 1) -> str:
    """Return a chosen share, such as a promise, as percent with all its decimals: at least `digits`, at most six."""
    value = round(100.0 * share, 6)
    decimals = next(n for n in range(digits, 7) if round(value, n) == value)
    return f"{value:z.{decimals}f} %"
