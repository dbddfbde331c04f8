"""The least that a fleet of whole instances costs because one of them must be there: docs/bound.md, "A whole instance".

The fluid program divides instances, so that a service with few requests pays for a hundredth of one. Here only two
states count, an instance or none, and what requests cost while there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.arrays import FloatArray
from mark.kernel.compiled import compiled

# Halvings of the price of a late request, below the price at which nothing is late.
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class WholeFloor:
    """`usd` is the least of a bill, `functions` how many requests the cheapest schedule sends to functions."""

    usd: float
    functions: float = 0.0


def whole_floor(
    counts: FloatArray,
    *,
    bin_usd: float,
    start_usd: float,
    function_usd: float,
    warm_start: bool,
    late_allowed: float = 0.0,
) -> WholeFloor:
    """Of the requests by bin, none of which waits longer than a bin; the last bin's may be served after the end.

    `bin_usd` and `start_usd` are the least that an instance costs in a bin and for its start, `function_usd` what a
    call costs (infinite: there is none in time). 0 where a start costs less than two bins, because smearing an
    instance's time over whole bins adds as much.
    """
    start = start_usd - 2.0 * bin_usd
    first = -2.0 * bin_usd if warm_start else start
    if start < 0.0 or not bin_usd > 0.0:
        return WholeFloor(0.0)

    def at(late_usd: float) -> tuple[float, float]:
        found: tuple[float, float] = _cheapest(counts, bin_usd, start, first, min(late_usd, function_usd))
        return found

    # No request is worth more than all of the time, so that at this price none is late.
    high = len(counts) * bin_usd + start_usd
    low, best = 0.0, WholeFloor(0.0)
    if function_usd < high:
        # More late requests than may be late are sent to functions, at the price of a call.
        high = function_usd
        usd, without = at(high)
        if without >= late_allowed:
            return WholeFloor(max(0.0, usd - late_allowed * high), without - late_allowed)
    if late_allowed <= 0.0:
        return WholeFloor(max(0.0, at(high)[0]))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        usd, without = at(middle)
        best = max(best, WholeFloor(usd - late_allowed * middle), key=lambda floor: floor.usd)
        low, high = (low, middle) if without < late_allowed else (middle, high)
        if high - low <= 1e-6 * high:
            break
    return best


@compiled
def _cheapest(
    counts: FloatArray, bin_usd: float, start_usd: float, first_usd: float, without_usd: float
) -> tuple[float, float]:
    """Dollars of the cheapest way through the bins with an instance or none, and its requests without one.

    A request has an instance if there is one in its bin or in the next one.
    """
    on, off = first_usd + bin_usd, 0.0
    on_without, off_without = 0.0, 0.0
    for at in range(1, len(counts) + 1):
        requests = counts[at - 1]
        stays_off, stays_off_without = off + requests * without_usd, off_without + requests
        goes_off, goes_off_without = on, on_without
        if off + start_usd < on:
            on, on_without = off + start_usd, off_without
        on += bin_usd
        if stays_off < goes_off:
            off, off_without = stays_off, stays_off_without
        else:
            off, off_without = goes_off, goes_off_without
    if off < on:
        return off, off_without
    return on, on_without
