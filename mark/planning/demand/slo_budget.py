"""Where functions cannot answer within RT_max, or there are none: what a miss costs, and what load is believed.

There every request is late that comes while capacity is short, and such misses are a budget: 1 - SL_min of what is
answered in a window of the SLO. What one costs is the budget's dual variable, learned from what was answered so far:

    usd_per_miss = NEUTRAL x usd_per_request / (1 - SL_min) x (burnt / SPEND + START) / (passed + START),

`burnt` being the spent share of the window's budget, `passed` the share of the window that lies behind, and
`usd_per_request` that of the cheapest full instance. So it rises while the budget is spent faster than the window
passes and falls while that is slower; SPEND leaves some of it to what no forecast foresees, START is what counts for a
service of which little was seen, and LEAST and MOST bound the factor: a quiet day does not make planning reckless, and
a budget that is gone does not buy the world.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import DAY_S, HOUR_S

WINDOW_S = DAY_S  # of the SLO: a day has its quiet hours and its busy ones
# Set by hand on 16 days of four traffic families with NASNet and OpenNMT, until 98 % was kept on all of them; the
# command was not recorded, and they were not refitted since.
NEUTRAL = 0.14
SPEND = 0.75
START = 0.125
LEAST, MOST = 0.25, 10.0


@dataclass(frozen=True, slots=True)
class Answered:
    """Of the SLO's window: `seen_s` of it lie behind, with `requests` requests, `late` of them late or refused."""

    seen_s: float = 0.0
    requests: int = 0
    late: int = 0

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
    """What was answered in the last `WINDOW_S`, by hour, from counts that only grow: a memory of the controller.

    `requests` and `late` are the counts as last seen; `hours` are (number of the hour, requests, late), oldest first.
    """

    began_s: float
    requests: int
    late: int
    hours: tuple[tuple[int, int, int], ...] = ()

    def seen(self, now_s: float, requests: int, late: int) -> Window:
        """With what was counted by now. A count that fell has begun anew."""
        anew = requests < self.requests or late < self.late
        more, later = (requests, late) if anew else (requests - self.requests, late - self.late)
        this = math.floor(now_s / HOUR_S)
        kept = [row for row in self.hours if this - WINDOW_S / HOUR_S < row[0] < this]
        _, so_far, late_so_far = self.hours[-1] if self.hours and self.hours[-1][0] == this else (this, 0, 0)
        hours = (*kept, (this, so_far + more, late_so_far + later))
        return Window(self.began_s, requests, late, hours)

    def answered(self, now_s: float) -> Answered:
        seen_s = min(now_s - self.began_s, WINDOW_S)
        return Answered(seen_s, sum(row[1] for row in self.hours), sum(row[2] for row in self.hours))


def sheds(resolved: ResolvedService) -> bool:
    """Do functions answer in time what instances cannot? Then an overflow is only money, and no miss."""
    function = resolved.function
    return function is not None and function.warm_s <= resolved.slo.rt_max_s


def neutral_usd(resolved: ResolvedService, offers: tuple[int, ...]) -> float:
    """Dollars per miss while the budget is spent as planned, `offers` being what may be bought; zero without any.

    By what can be held: spot and credits may be gone, and the promise stays.
    """
    lasting = [i for i in offers if resolved.offers[i].market not in (Market.SPOT, Market.BURSTABLE)]
    usd_per_request = min(
        (resolved.offers[i].usd_per_s / resolved.candidates[i].capacity_rps for i in lasting or offers),
        default=0.0,
    )
    return NEUTRAL * usd_per_request / (1.0 - resolved.slo.attainment)


def price_factor(answered: Answered, slo: Slo) -> float:
    """What the neutral price is multiplied by: more where the budget is spent faster than the window passes."""
    factor = (answered.burnt(slo) / SPEND + START) / (answered.passed + START)
    return min(max(factor, LEAST), MOST)


def believed(forecast: Forecast, last_minute_rps: float | None) -> Forecast:
    """The forecast with a median not below what came in the last minute: a surge has to end before that is believed.

    Forecasts say, rightly, that most surges are short; but where nothing is shed a minute of one that is not is lost.
    """
    if last_minute_rps is None:
        return forecast
    more_rps = np.maximum(0.0, last_minute_rps - forecast.mean_at(0.5))
    if not more_rps.any():
        return forecast
    return replace(forecast, mean_rps=forecast.mean_rps + more_rps, peak_rps=forecast.peak_rps + more_rps)
