"""Where functions cannot answer within RT_max, or there are none: what a miss costs.

There every request that capacity has no room for is a miss, and misses are a budget: 1 - SL_min of what is answered in
a window of the SLO. What one costs is the budget's dual variable, learned from what was answered so far:

    usd_per_miss = NEUTRAL x usd_per_request / (1 - SL_min) x ((burnt / SPEND + START) / (passed + START)) ^ GAIN,

`burnt` being the spent share of the window's budget, `passed` the share of the window that lies behind, and
`usd_per_request` that of the cheapest full instance. So it rises while the budget is spent faster than the window
passes and falls while that is slower; SPEND leaves some of it to what no forecast foresees, START is what counts for a
service of which little was seen, GAIN is how sharply it answers, and LEAST and MOST bound the factor: a quiet day does
not make planning reckless, and a budget that is gone does not buy the world.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import DAY_S, HOUR_S, STEP_S
from mark.planning.demand.served_load import capacity_for, overflow_rps

WINDOW_S = DAY_S  # of the SLO: a day has its quiet hours and its busy ones
# Fitted on seven parts of five traces with NASNet and OpenNMT-ende, and judged on fourteen others:
# benchmarks/miss_price.py fit, judge. SPREAD on small services with bursts: benchmarks/small_services.py.
NEUTRAL = 0.25
SPEND = 0.75
START = 0.125
GAIN = 2.0
LEAST, MOST = 0.02, 100.0
SPREAD = 0.25


@dataclass(frozen=True, slots=True)
class Answered:
    """Of the last day: `seen_s` of it was seen, with `requests` requests, `late` of them late or refused.

    `window_s` of the promise's window lie behind, with `window_requests` and `window_late`.
    """

    seen_s: float = 0.0
    requests: int = 0
    late: int = 0
    window_s: float = 0.0
    window_requests: int = 0
    window_late: int = 0

    @property
    def passed(self) -> float:
        """Share of the window that lies behind."""
        return min(1.0, self.seen_s / WINDOW_S)

    def burnt(self, slo: Slo) -> float:
        """Share of the window's budget that is spent, if the rest of the window brings as many requests: above 0."""
        if self.requests == 0:
            return 0.0
        return self.passed * self.late / (self.requests * (1.0 - slo.attainment))


@dataclass(frozen=True, slots=True)
class Window:
    """What was answered by hour since `began_s`, from counts that only grow: a memory of the controller.

    `requests` and `late` are the counts as last seen; `hours` are (number of the hour, requests, late), oldest first,
    for as long as the last day and the window of the promise reach back.
    """

    began_s: float
    requests: int
    late: int
    hours: tuple[tuple[int, int, int], ...] = ()

    def seen(self, now_s: float, requests: int, late: int, window_s: float = WINDOW_S) -> Window:
        """With what was counted by now. A count that fell has begun anew."""
        anew = requests < self.requests or late < self.late
        more, later = (requests, late) if anew else (requests - self.requests, late - self.late)
        this = self._hour(now_s)
        kept = [row for row in self.hours if this - max(WINDOW_S, window_s) / HOUR_S < row[0] < this]
        _, so_far, late_so_far = self.hours[-1] if self.hours and self.hours[-1][0] == this else (this, 0, 0)
        hours = (*kept, (this, so_far + more, late_so_far + later))
        return Window(self.began_s, requests, late, hours)

    def answered(self, now_s: float, window_s: float = WINDOW_S) -> Answered:
        """Windows of the promise follow each other from `began_s` on."""
        seen_s = max(0.0, now_s - self.began_s)
        this = self._hour(now_s)
        day = [row for row in self.hours if row[0] > this - WINDOW_S / HOUR_S]
        whole_hours = round(window_s / HOUR_S)
        window = [row for row in self.hours if row[0] >= this // whole_hours * whole_hours]
        return Answered(
            min(seen_s, WINDOW_S),
            sum(row[1] for row in day),
            sum(row[2] for row in day),
            math.fmod(seen_s, window_s),
            sum(row[1] for row in window),
            sum(row[2] for row in window),
        )

    def _hour(self, now_s: float) -> int:
        return math.floor(max(0.0, now_s - self.began_s) / HOUR_S)


def neutral_usd(resolved: ResolvedService, offers: tuple[int, ...]) -> float:
    """Dollars per miss while the budget is spent as planned, `offers` being what may be bought; zero without any."""
    usd_per_request = min(
        (resolved.offers[i].usd_per_s / resolved.candidates[i].capacity_rps for i in _lasting(resolved, offers)),
        default=0.0,
    )
    return NEUTRAL * usd_per_request / (1.0 - resolved.slo.attainment)


def _lasting(resolved: ResolvedService, offers: tuple[int, ...]) -> tuple[int, ...]:
    """What can be held, where there is any: spot and credits may be gone, and the promise stays."""
    lasting = tuple(i for i in offers if resolved.offers[i].market not in (Market.SPOT, Market.BURSTABLE))
    return lasting or offers


def keeping_usd(resolved: ResolvedService, offers: tuple[int, ...], load_rps: float, patience_s: float) -> float:
    """Dollars per shed request from which one more instance pays in every fleet that sheds more than 1 - SL_min.

    Overflow is convex in capacity, so that is what an instance costs over what it serves beyond the capacity x that
    sheds just so much of Poisson arrivals: min over offers of usd_per_s / (overflow(x) - overflow(x + capacity)). Below
    that, fleets of a few instances would wait for the budget to be spent before they hold what the promise needs. For
    less than a request a minute nothing need be held.
    """
    if load_rps * STEP_S < 1.0 or not offers:
        return 0.0
    capacity_rps = capacity_for(load_rps, 1.0 - resolved.slo.attainment, patience_s)
    chosen = _lasting(resolved, offers)
    more_rps = np.array([0.0, *(resolved.candidates[i].capacity_rps for i in chosen)])
    shed_rps = overflow_rps(np.array(load_rps), capacity_rps + more_rps, patience_s)
    usd_per_s = np.array([resolved.offers[i].usd_per_s for i in chosen])
    return float((usd_per_s / (shed_rps[0] - shed_rps[1:])).min())


def price_factor(answered: Answered, slo: Slo) -> float:
    """What the neutral price is multiplied by: more where the budget is spent faster than the window passes."""
    factor = (answered.burnt(slo) / SPEND + START) / (answered.passed + START)
    return min(max(math.pow(factor, GAIN), LEAST), MOST)


def shed_usd(resolved: ResolvedService, miss_usd: float) -> float:
    """Dollars per request that capacity has no room for: the function's call, and a miss where that is late or there
    is none."""
    function = resolved.function
    if resolved.functions_in_time:
        assert function is not None
        return function.usd_per_request
    if function is None or resolved.service.late == "refuse":
        return miss_usd
    return miss_usd + function.usd_per_request


@dataclass(frozen=True, slots=True)
class OverflowPrice:
    """Dollars per shed request that a plan is made for, and the weight of the forecast's spread at that price.

    What the median of the load sheds costs what keeps the promise (`keeping_usd`); what the quantiles shed beyond costs
    what the budget says, SPREAD of the former at least. Both are one price of a belief in which the median has the
    weight 1 - `spread`. With the full price for both a small fleet under bursts is bought for every quantile: 40 %
    dearer than the best fixed one, at 99.85 % instead of 98 % in time (10 % dearer with SPREAD; 15 % where the budget
    alone prices the spread, for then it follows each burst and is late for all). Where the budget's price is the higher
    one it stands alone: `spread` is 1.

    Functions that answer in time take `capped_rps` at most, for the money that they may cost; what is shed beyond is
    refused, and each of these costs `refused_usd`, which is no less.
    """

    usd: float
    spread: float = 1.0
    capped_rps: float = math.inf
    refused_usd: float = 0.0

    def priced(self, usd: FloatArray | float, steps: float = 1.0) -> FloatArray:
        """Dollars of overflow at `usd` each over `steps` steps, with what functions may not take at its own price."""
        if math.isinf(self.capped_rps):
            return np.asarray(usd)
        within_usd = self.capped_rps * STEP_S * steps * self.usd
        return np.asarray(usd + np.maximum(0.0, usd - within_usd) * (self.refused_usd / self.usd - 1.0))


def overflow_price(
    resolved: ResolvedService, offers: tuple[int, ...], answered: Answered, load_rps: float, patience_s: float
) -> OverflowPrice:
    """By the budget, and for the load that is expected never less than keeps the promise."""
    if resolved.functions_in_time:
        usd = shed_usd(resolved, 0.0)
        cap_usd_per_hour = resolved.service.max_function_usd_per_hour
        if math.isinf(cap_usd_per_hour):
            return OverflowPrice(usd)
        # Beyond the cap there is no function.
        without = overflow_price(replace(resolved, function=None), offers, answered, load_rps, patience_s)
        return OverflowPrice(usd, 1.0, cap_usd_per_hour / 3600.0 / usd, max(usd, without.usd))
    by_budget = shed_usd(resolved, neutral_usd(resolved, offers) * price_factor(answered, resolved.slo))
    keeping = keeping_usd(resolved, offers, load_rps, patience_s)
    if keeping <= by_budget:
        return OverflowPrice(by_budget)
    return OverflowPrice(keeping, max(by_budget / keeping, SPREAD))
