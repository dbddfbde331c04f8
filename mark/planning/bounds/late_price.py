"""The best price of a late request: the highest point of a concave function that tangents describe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_CLOSE = 1e-5  # relative: the search stops when a better price could add no more than this


@dataclass(frozen=True, slots=True)
class LatePrice:
    """`value` is proven at `usd` for a late request; then `left` requests have no instance."""

    usd: float
    value: float
    left: float


def best_late_price(
    evaluate: Callable[[float], tuple[float, float]],
    late_allowed: float,
    highest: float,
    evaluations: int,
    first: float | None = None,
) -> LatePrice:
    """Return approximately the price in [0, highest] with the largest value - price x late_allowed.

    `evaluate` returns a value that is concave in the price, and its slope, the requests that are left over. Any price
    proves a bound, so an early stop is safe. `first` is where the search begins.
    """

    def at(usd: float) -> LatePrice:
        value, left = evaluate(usd)
        return LatePrice(usd, value - usd * late_allowed, left)

    if late_allowed <= 0.0:
        return at(highest)
    low, high = LatePrice(0.0, 0.0, math.inf), None
    best = low
    usd = highest if first is None else min(first, highest)
    for _ in range(evaluations):
        found = at(usd)
        if found.value > best.value:
            best = found
        if found.left >= late_allowed:
            low = found
            if usd >= highest:
                break
        else:
            high = found
        if high is None:
            usd = min(highest, 4.0 * usd)
            continue
        if low.usd == 0.0:
            usd = 0.25 * high.usd
            if usd < 1e-9 * highest:
                break
            continue
        # The maximum lies below the crossing of the tangents at both ends.
        rise, fall = low.left - late_allowed, late_allowed - high.left
        usd = (high.value + fall * high.usd - low.value + rise * low.usd) / (rise + fall)
        if low.value + rise * (usd - low.usd) - best.value <= _CLOSE * abs(best.value):
            break
        # Values and slopes are a little inexact, so the crossing may miss the bracket or crawl along its ends.
        margin = 0.05 * (high.usd - low.usd)
        usd = min(max(usd, low.usd + margin), high.usd - margin)
        if high.usd > 8.0 * low.usd:
            usd = math.sqrt(low.usd * high.usd)
    return best
