"""The budget of misses: what was answered in a window of the promise, and what a request without room costs.

A service may answer 1 - SL_min of the requests of a window late. What each costs the planner is decided by
`mark.planning.demand.promise_price`; this file counts, and prices what overflows at that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import DAY_S, HOUR_S, STEP_S

WINDOW_S = DAY_S  # for which counts are kept at least: a day has its quiet hours and its busy ones
# A miss costs so much of the instances' dollars a request over 1 - SL_min, where nothing says what it costs.
NEUTRAL = 0.25


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

    def burnt(self, slo: Slo) -> float:
        """Share of the window's budget that is spent, if the rest of the window brings as many requests: above 0."""
        if self.window_requests == 0:
            return 0.0
        passed = min(1.0, self.window_s / slo.window_s)
        return passed * self.window_late / (self.window_requests * (1.0 - slo.attainment))


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
    """Dollars per shed request that a plan is made for.

    Functions that answer in time take `capped_rps` at most, for the money that they may cost; what is shed beyond is
    refused, and each of these costs `refused_usd`, which is no less.
    """

    usd: float
    capped_rps: float = math.inf
    refused_usd: float = 0.0

    def priced(self, usd: FloatArray | float, steps: float = 1.0) -> FloatArray:
        """Dollars of overflow at `usd` each over `steps` steps, with what functions may not take at its own price."""
        if math.isinf(self.capped_rps):
            return np.asarray(usd)
        within_usd = self.capped_rps * STEP_S * steps * self.usd
        return np.asarray(usd + np.maximum(0.0, usd - within_usd) * (self.refused_usd / self.usd - 1.0))


def capped_rps(resolved: ResolvedService) -> float:
    """Calls/s that functions may get for their money; infinite without a limit, 0 without functions in time."""
    if not resolved.functions_in_time:
        return 0.0
    assert resolved.function is not None
    return resolved.service.max_function_usd_per_hour / HOUR_S / resolved.function.usd_per_request
