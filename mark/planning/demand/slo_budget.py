"""The budget of misses: the answers in a window of the promise, and the price of a request without room.

A service may answer 1 - SL_min of the requests of a window late. `mark.planning.demand.promise_price` decides how much
each costs the planner; this file counts answers, and prices overflow accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import DAY_S, HOUR_S, STEP_S

WINDOW_S = DAY_S  # Counts are kept for at least this long, because a day has its quiet hours and its busy ones.
# Default price of a miss: this share of the instances' dollars per request over 1 - SL_min
NEUTRAL = 0.25


@dataclass(frozen=True, slots=True)
class Answered:
    """Counts of the last day: `seen_s` of it was observed, with `requests` requests, `late` of them late or refused.

    `window_s` of the promise's window have passed, with `window_requests` and `window_late`.
    """

    seen_s: float = 0.0
    requests: int = 0
    late: int = 0
    window_s: float = 0.0
    window_requests: int = 0
    window_late: int = 0

    def burnt(self, slo: Slo) -> float:
        """Return the spent share of the window's budget, if the rest of the window brings requests at the same rate;
        may exceed 1.
        """
        if self.window_requests == 0:
            return 0.0
        passed = min(1.0, self.window_s / slo.window_s)
        return passed * self.window_late / (self.window_requests * (1.0 - slo.attainment))


@dataclass(frozen=True, slots=True)
class Window:
    """Answers by hour since `began_s`, from counts that only grow: a memory of the controller.

    `requests` and `late` are the last counts; `hours` are (number of the hour, requests, late), oldest first, for as
    long as the last day and the window of the promise reach back.
    """

    began_s: float
    requests: int
    late: int
    hours: tuple[tuple[int, int, int], ...] = ()

    def seen(self, now_s: float, requests: int, late: int, window_s: float = WINDOW_S) -> Window:
        """Return the window with the counts of now. A count that fell has restarted from zero."""
        anew = requests < self.requests or late < self.late
        more, later = (requests, late) if anew else (requests - self.requests, late - self.late)
        this = self._hour(now_s)
        kept = [row for row in self.hours if this - max(WINDOW_S, window_s) / HOUR_S < row[0] < this]
        _, so_far, late_so_far = self.hours[-1] if self.hours and self.hours[-1][0] == this else (this, 0, 0)
        hours = (*kept, (this, so_far + more, late_so_far + later))
        return Window(self.began_s, requests, late, hours)

    def answered(self, now_s: float, window_s: float = WINDOW_S) -> Answered:
        """Return the answers of the last day and of the promise's window; windows follow each other from
        `began_s` on.
        """
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
    """Return the dollars per miss while the budget is spent as planned, given the `offers` for sale; zero without
    any.
    """
    usd_per_request = min(
        (
            resolved.offers[i].usd_per_hour_at(1.0) / 3600.0 / resolved.candidates[i].capacity_rps
            for i in lasting(resolved, offers)
        ),
        default=0.0,
    )
    return NEUTRAL * usd_per_request / (1.0 - resolved.slo.attainment)


def lasting(resolved: ResolvedService, offers: Sequence[int]) -> list[int]:
    """Return the indices of the offers that can run for hours at full speed; without any, return all of them."""
    sold = resolved.offers
    return [i for i in offers if sold[i].market is not Market.SPOT and sold[i].always_full] or list(offers)


def shed_usd(resolved: ResolvedService, miss_usd: float) -> float:
    """Return the dollars per request that capacity has no room for.

    That is the function's call if it is in time; without a function a miss, and with a late function both.
    """
    function = resolved.function
    if resolved.functions_in_time:
        assert function is not None
        return function.usd_per_request
    if function is None or resolved.service.late == "refuse":
        return miss_usd
    return miss_usd + function.usd_per_request


@dataclass(frozen=True, slots=True)
class OverflowPrice:
    """Dollars per shed request, as a plan counts them.

    Functions that answer in time take at most `capped_rps`, which their budget allows; requests shed beyond that are
    refused, and each of these costs `refused_usd`, at least as much.
    """

    usd: float
    capped_rps: float = math.inf
    refused_usd: float = 0.0

    def priced(self, usd: FloatArray | float, steps: float = 1.0) -> FloatArray:
        """Return the dollars of overflow at `usd` each over `steps` steps, with calls beyond the cap at their own
        price.
        """
        if math.isinf(self.capped_rps):
            return np.asarray(usd)
        within_usd = self.capped_rps * STEP_S * steps * self.usd
        return np.asarray(usd + np.maximum(0.0, usd - within_usd) * (self.refused_usd / self.usd - 1.0))


def capped_rps(resolved: ResolvedService) -> float:
    """Return the calls/s that the functions' budget allows; infinite without a limit, 0 without functions in time."""
    if not resolved.functions_in_time:
        return 0.0
    assert resolved.function is not None
    return resolved.service.max_function_usd_per_hour / HOUR_S / resolved.function.usd_per_request
