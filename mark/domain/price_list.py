"""The marginal prices of a service: of a request, a miss, a millisecond of RT_max."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Shifts of RT_max that are priced: a share of a service's, seconds of a pipeline's.
SLO_SHIFT = 0.05
SHIFT_S = 0.010


@dataclass(frozen=True, slots=True)
class PriceList:
    """Current marginal prices in USD; None if unknown.

    `usd_per_request` is the expected price of one more request beyond the sunk costs: zero while ready capacity has
    room for it. `usd_per_miss` is the most that avoiding one more miss is worth. `usd_per_planned_request` is the price
    of an instance for each request when its capacity is used. `usd_per_hour` is that of the whole fleet, and
    `ready_rps` the capacity of its ready instances.
    """

    usd_per_request: float | None = None
    usd_per_miss: float | None = None
    usd_per_planned_request: float | None = None
    usd_per_hour: float | None = None
    ready_rps: float | None = None


@dataclass(frozen=True, slots=True)
class SloPrice:
    """The price of another RT_max; None if no fleet was found that keeps it."""

    rt_max_s: float
    usd_per_hour: float | None

    def as_json(self, own_usd_per_hour: float) -> dict[str, float | None]:
        """Return the price with its difference from the price of the service's own RT_max."""
        return {
            "rt_max_ms": self.rt_max_s * 1e3,
            "usd_per_hour": self.usd_per_hour,
            "difference_usd_per_hour": None if self.usd_per_hour is None else self.usd_per_hour - own_usd_per_hour,
        }


@dataclass(frozen=True, slots=True)
class PromiseEstimate:
    """The prices of RT_max, and of a shorter and a longer one, for a load of `rps` requests/s.

    Estimated from profiles and prices without a plan, so without reserves and booting instances. `other_slos` ascend by
    RT_max; there may be no shorter one.
    """

    rps: float | None  # None: a pipeline of which only the stages' loads are known
    usd_per_hour: float | None  # None: no fleet keeps it
    other_slos: tuple[SloPrice, ...]


def promise_estimate(
    rps: float | None, rt_max_s: float, shift_s: float, usd_within: Callable[[float], float]
) -> PromiseEstimate:
    """Return the prices of RT_max, and of `shift_s` less and more.

    `usd_within` returns $/h by RT_max, infinity if impossible. A fleet that keeps a promise keeps each looser one, so a
    looser one never costs more than a tighter one.
    """
    least_usd, found = math.inf, []
    for within_s in (rt_max_s - shift_s, rt_max_s, rt_max_s + shift_s):
        least_usd = min(least_usd, usd_within(within_s) if within_s > 0.0 else math.inf)
        found.append(SloPrice(within_s, least_usd if math.isfinite(least_usd) else None))
    shorter, own, longer = found
    return PromiseEstimate(rps, own.usd_per_hour, (shorter, longer) if shorter.rt_max_s > 0.0 else (longer,))


def usd_per_hour_per_ms(prices: Sequence[SloPrice]) -> float | None:
    """Return the USD/h that each millisecond less of RT_max costs, from the first to the last price, by RT_max.

    None if there are fewer than two prices, or one of the two is unknown.
    """
    if len(prices) < 2:
        return None
    short, long = prices[0], prices[-1]
    if short.usd_per_hour is None or long.usd_per_hour is None:
        return None
    return (short.usd_per_hour - long.usd_per_hour) / ((long.rt_max_s - short.rt_max_s) * 1e3)
