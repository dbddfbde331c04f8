"""What one more of something costs a service: a request, a miss, a millisecond of RT_max."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PriceList:
    """Marginal prices right now, in dollars; None: not known.

    `usd_per_request` is what one more request is expected to cost beyond what is paid in any case: nothing while ready
    capacity has room for it. `usd_per_miss` is what it is worth, at most, that one more request is not missed.
    """

    usd_per_request: float | None = None
    usd_per_miss: float | None = None


@dataclass(frozen=True, slots=True)
class SloPrice:
    """What another RT_max would cost; None: nothing was found that keeps it."""

    rt_max_s: float
    usd_per_hour: float | None

    def as_json(self, own_usd_per_hour: float) -> dict[str, float | None]:
        """With the difference from what the service's own RT_max costs."""
        return {
            "rt_max_ms": self.rt_max_s * 1e3,
            "usd_per_hour": self.usd_per_hour,
            "difference_usd_per_hour": None if self.usd_per_hour is None else self.usd_per_hour - own_usd_per_hour,
        }


def usd_per_hour_per_ms(prices: Sequence[SloPrice]) -> float | None:
    """Dollars an hour for each millisecond that RT_max is shorter: from the first price to the last, by RT_max.

    None where there are less than two, or one of the two is not known.
    """
    if len(prices) < 2:
        return None
    short, long = prices[0], prices[-1]
    if short.usd_per_hour is None or long.usd_per_hour is None:
        return None
    return (short.usd_per_hour - long.usd_per_hour) / ((long.rt_max_s - short.rt_max_s) * 1e3)
