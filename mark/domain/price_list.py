"""What one more of something costs a service: a request, a miss, a millisecond of RT_max."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# How much less and more of RT_max is priced: of a service's by this share, of a pipeline's by these seconds.
SLO_SHIFT = 0.05
SHIFT_S = 0.010


@dataclass(frozen=True, slots=True)
class PriceList:
    """Marginal prices right now, in dollars; None: not known.

    `usd_per_request` is what one more request is expected to cost beyond what is paid in any case: nothing while ready
    capacity has room for it. `usd_per_miss` is what it is worth, at most, that one more request is not missed.
    `usd_per_planned_request` is the price of an instance for each request that it serves when its capacity is used.
    `usd_per_hour` is that of the whole fleet, and `ready_rps` what its ready instances can serve.
    """

    usd_per_request: float | None = None
    usd_per_miss: float | None = None
    usd_per_planned_request: float | None = None
    usd_per_hour: float | None = None
    ready_rps: float | None = None


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


@dataclass(frozen=True, slots=True)
class PromiseEstimate:
    """What RT_max and one shorter and longer cost for a load of `rps` requests/s, as profiles and prices say: without a
    plan, and so without reserves and what is booting. `other_slos` ascend by RT_max; there may be no shorter one.
    """

    rps: float | None  # None: of a pipeline of which only the stages' loads are known
    usd_per_hour: float | None  # None: nothing keeps it
    other_slos: tuple[SloPrice, ...]


def promise_estimate(
    rps: float | None, rt_max_s: float, shift_s: float, usd_within: Callable[[float], float]
) -> PromiseEstimate:
    """Of RT_max, and of `shift_s` less and more; `usd_within` says $/h by RT_max, and infinity where nothing keeps it.

    What keeps a promise keeps each looser one, so that none of these costs more than a tighter one.
    """
    least_usd, found = math.inf, []
    for within_s in (rt_max_s - shift_s, rt_max_s, rt_max_s + shift_s):
        least_usd = min(least_usd, usd_within(within_s) if within_s > 0.0 else math.inf)
        found.append(SloPrice(within_s, least_usd if math.isfinite(least_usd) else None))
    shorter, own, longer = found
    return PromiseEstimate(rps, own.usd_per_hour, (shorter, longer) if shorter.rt_max_s > 0.0 else (longer,))


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
