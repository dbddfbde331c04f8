"""The price of a late request: the lowest at which the SLO's window keeps the promise with the stated confidence.

At price p a planner holds the capacity that is worth its dollars, and leaves a share r(p) of the requests late: the
higher p, the smaller the share. r(p) is learned for a grid of prices, whether in use or not. Each minute, the
fleet that each price asks for, one boot ahead, is computed from the forecast; after that minute the late requests of
each fleet are computed from the load that came. So r(p) includes the forecast's errors. `Law` keeps the sums by hour;
the forecast's own distribution is added to them with the weight of `PRIOR_HOURS`, and scaled down if forecasts have
expected more late requests than came.

The real fleet differs from this one-step choice. If it holds more, because launches cost, `bias` is the ratio of late
requests to those expected at the prices in use, at most 1. If more were late, because boots vary or a release is slow,
the excess share e is assumed to be inversely proportional to the price; q is the mean price at which e was seen. In
the rest of a window, with N requests in H hours, the late ones then have

    mean m(p) = (bias r(p) + e q / p) N          variance v(p) = H s(p)^2

where s(p) is the standard deviation of an hour's late requests; that of the excess equals its mean. The error of the
counted shares, which is the same in all hours, is added. The price is the lowest one whose m + z sqrt(v) fits into the
rest of this window's budget (1 - SL_min of its requests) and into the whole budget of a window that begins now, so
that a quiet morning does not allow a bad evening. z is the normal quantile of the confidence. If no price fits into a
budget, the lowest of the prices that come nearest is taken. If all prices are expected to exceed this window's budget,
only the new window's budget counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast
from mark.domain.percent import exact_percent, percent
from mark.domain.plan import Plan
from mark.domain.promise_outlook import SAME_CONFIDENCE
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S, STEP_S
from mark.planning.demand.served_load import (
    HORIZON,
    BelievedLoad,
    Lateness,
    ServedLoad,
    cheapest_lasting,
    lateness_of,
    served_load,
    unrest_rps,
)
from mark.planning.demand.slo_budget import Answered, OverflowPrice, capped_rps, lasting

# Multiples of usd_per_request / (1 - SL_min), the price at which the allowed misses cost as much as all instances. At 5
# even the rarest believed load is worth its instances; a higher price would only keep instances for longer.
GRID = np.geomspace(0.1, 5.0, 21)
PRIOR_HOURS = 1.0  # the forecast's own distribution counts like this many observed hours
BIAS_HOURS = 1.0  # a bias of 1 counts like this many observed hours that spent exactly their budget
LEAST_BIAS = 0.2
SPREAD_HOURS = 2.0  # the forecast's own spread counts like this many observed hours
KEPT_HOURS = 24
NEAR = 0.1  # standard deviations that count as equal
_LEAST_RPS = 1.0 / STEP_S  # a load below a request a minute needs no instance
_MOST_COUNTS = 100_000  # numbers of instances that are compared for one price
_CERTAIN = 8.0  # deviations beyond which a probability is 0 or 1


@dataclass(frozen=True, slots=True)
class Hour:
    """Counts of one hour: requests, late ones by price of the grid, and (`used`) late ones at the prices in use.

    `places` sums over all requests the grid index of the price then in use. `foreseen` are the late requests, by price,
    that the forecasts expected.
    """

    number: int
    requests: float
    late: tuple[float, ...]
    used: float
    places: float
    foreseen: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Law:
    """The late requests that the prices of the grid would have left. A planner's memory.

    `coming` are the choices not yet due: (begin of the minute, capacity by price, price in use, foreseen late requests
    by price), oldest first.
    """

    hours: tuple[Hour, ...] = ()
    coming: tuple[tuple[float, tuple[float, ...], int, tuple[float, ...]], ...] = ()

    def due(self, now_s: float) -> tuple[FloatArray, int, FloatArray] | None:
        """Return capacity by price, the price in use, and foreseen late requests by price, of the minute that ended
        now; None without a choice for it.
        """
        asked = [one for one in self.coming if one[0] < now_s - 0.5 * STEP_S]
        return (np.array(asked[-1][1]), asked[-1][2], np.array(asked[-1][3])) if asked else None

    def since(self, now_s: float) -> Law:
        """Return the law without the choices of minutes that are over."""
        return replace(self, coming=tuple(one for one in self.coming if one[0] >= now_s - 0.5 * STEP_S))

    def counted(self, now_s: float, load_rps: float, late: FloatArray, used: int, foreseen: FloatArray) -> Law:
        """Count the minute that ended now: late requests of each price and those foreseen (prices,), and the price
        that was in use.
        """
        number = math.floor((now_s - STEP_S) / HOUR_S)
        last = self.hours[-1] if self.hours and self.hours[-1].number == number else None
        before = last or Hour(number, 0.0, (0.0,) * len(GRID), 0.0, 0.0, (0.0,) * len(GRID))
        hour = Hour(
            number,
            before.requests + load_rps * STEP_S,
            tuple((np.array(before.late) + late).tolist()),
            before.used + float(late[used]),
            before.places + used * load_rps * STEP_S,
            tuple((np.array(before.foreseen) + foreseen).tolist()),
        )
        earlier = self.hours if last is None else self.hours[:-1]
        return replace(self, hours=(*earlier, hour)[-KEPT_HOURS:])

    def asked(self, at_s: float, capacity_rps: FloatArray, used: int, foreseen: FloatArray) -> Law:
        """Add, by price, capacity and foreseen late requests of the minute that begins at `at_s`; a later call
        replaces them.
        """
        kept = tuple(one for one in self.coming if one[0] < at_s - 0.5 * STEP_S)
        return replace(self, coming=(*kept, (at_s, tuple(capacity_rps.tolist()), used, tuple(foreseen.tolist()))))


class PromisePrice:
    """The price of a late request, given the `offers` that may be bought, by index of `resolved`."""

    def __init__(self, resolved: ResolvedService, offers: Sequence[int]) -> None:
        self._slo = resolved.slo
        self.lateness = lateness_of(resolved, offers)
        unit = cheapest_lasting(resolved, offers)
        offer, candidate = resolved.offers[unit], resolved.candidates[unit]
        self._unit_rps, self._unit_usd = candidate.capacity_rps, offer.usd_per_s * STEP_S
        # At the reference's dollars per request this load pays for an instance of the cheapest type.
        least_usd_per_s = min(resolved.offers[i].usd_per_s for i in lasting(resolved, offers))
        self._pays_rps = candidate.capacity_rps * least_usd_per_s / offer.usd_per_s
        self._boot_steps = max(1, math.ceil(offer.boot.mean_s / STEP_S))
        self._allowed = 1.0 - resolved.slo.attainment
        shares = self.lateness.shares
        self._clustering = 1.0 if shares is None else shares.clustering(self._allowed)
        self._error = 0.0 if shares is None else shares.error(self._allowed)
        self.prices_usd = GRID * offer.usd_per_s / candidate.capacity_rps / self._allowed
        self._call_usd, self._capped_rps = call_usd(resolved), 0.0
        if self.lateness.shares is None:
            self._capped_rps = capped_rps(resolved)

    def seen(self, law: Law, now_s: float, load_rps: float | None, windows_rps: FloatArray) -> Law:
        """Return the law with the minute that just ended, its load `load_rps` (None: unknown) and its 5 s windows."""
        due, law = law.due(now_s), law.since(now_s)
        if due is None or load_rps is None or not math.isfinite(load_rps):
            return law
        capacity_rps, used, foreseen = due
        loads_rps = np.maximum(0.0, unrest_rps(load_rps, windows_rps))
        late_rps = self.late_rps(loads_rps[:, None], capacity_rps)
        return law.counted(now_s, load_rps, late_rps.mean(axis=0) * STEP_S, used, foreseen)

    def usd_per_miss(
        self, now_s: float, saved: ServedLoad, answered: Answered, law: Law, *, first: bool = False
    ) -> tuple[MissPrice, Law]:
        """Return the price of a late request now, without its function call, and the law with each price's capacity.

        `saved` is made from a forecast that begins now. `first`: this is the first fleet, which needs no boot.
        """
        lead = 0 if first else min(self._boot_steps, saved.steps - 1)
        prices_usd, capacity_rps, load_rps = self._choices(saved, lead)
        foreseen = self._foreseen(saved.believed, lead, capacity_rps)
        place, confidence = self._place(answered, law, foreseen, load_rps)
        # The first fleet serves until the next choice has booted.
        for step in range(self._boot_steps) if first else (lead,):
            law = law.asked(now_s + step * STEP_S, capacity_rps, place, foreseen.late_rps * STEP_S)
        return MissPrice(float(prices_usd[place]), confidence), law

    def asked_rps(self, forecast: Forecast) -> tuple[int, FloatArray]:
        """Return the number of steps of a boot, and the capacity that each price asks for after it: (prices,)."""
        lead = min(self._boot_steps, forecast.steps - 1)
        return lead, self._choices(served_load(forecast, self.lateness, lead + 1), lead)[1]

    def late_rps(self, load_rps: FloatArray, capacity_rps: FloatArray) -> FloatArray:
        """Return the requests/s that are late, without the calls of functions in time up to their limit. Broadcasts."""
        return np.maximum(0.0, self.lateness.late_rps(load_rps, capacity_rps) - self._capped_rps)

    def called_rps(self, load_rps: FloatArray, capacity_rps: FloatArray) -> FloatArray:
        """Return the requests/s that capacity leaves to functions. Arguments broadcast."""
        if self.lateness.shares is not None:
            return np.asarray(load_rps * self.lateness.shares.calls_at(load_rps, capacity_rps / self.lateness.unit_rps))
        left_rps = self.lateness.late_rps(load_rps, capacity_rps)
        return np.minimum(left_rps, self._capped_rps) if self._capped_rps > 0.0 else left_rps

    def window(self, answered: Answered, law: Law, forecast: Forecast, capacity_rps: FloatArray) -> WindowLaw:
        """Return the law of late requests by price, for a forecast that begins now. `capacity_rps` must be at least
        that of `asked_rps`.
        """
        lead = min(self._boot_steps, forecast.steps - 1)
        coming_rps = float(forecast.mean_at(0.5)[:HORIZON].mean())
        return self._window(
            answered, law, self._foreseen(BelievedLoad.of(forecast, lead + 1), lead, capacity_rps), coming_rps
        )

    def _choices(self, saved: ServedLoad, lead: int) -> tuple[FloatArray, FloatArray, float]:
        """Return, by price of the grid, dollars per miss and the requested capacity; and the mean load to come."""
        load_rps = float(np.diff(saved.load).mean())
        # Raise the prices if no instance is ever full: otherwise none would buy one for a small load.
        idle = max(1.0, self._pays_rps / load_rps) if load_rps >= _LEAST_RPS else 1.0
        prices_usd = self.prices_usd * idle
        return prices_usd, self._asked(saved, lead, prices_usd), load_rps

    def _foreseen(self, believed: BelievedLoad, lead: int, capacity_rps: FloatArray) -> Foreseen:
        demand, weights = believed.demand(lead + 1)
        late = self.late_rps(demand[lead][:, None], capacity_rps)
        mean = weights @ late
        return Foreseen(float(weights @ demand[lead]), mean, weights @ (late - mean) ** 2)

    def _asked(self, saved: ServedLoad, step: int, prices_usd: FloatArray) -> FloatArray:
        """Return the capacity that each price asks for in a step, in whole instances: (prices,)."""
        levels = np.arange(len(saved.served)) * saved.spacing_rps
        # The highest paths of a forecast may reach 1e15 requests/s, so only every k-th number is compared there.
        stride = max(1.0, math.ceil(levels[-1] / self._unit_rps / _MOST_COUNTS)) * self._unit_rps
        capacity_rps = np.arange(0.0, levels[-1] + stride, stride)

        def at(sums: FloatArray) -> FloatArray:
            return np.asarray(np.interp(capacity_rps, levels, sums[:, step + 1] - sums[:, step]))

        left_rps = saved.load[step + 1] - saved.load[step] - at(saved.served)
        late_rps = np.maximum(0.0, left_rps - self._capped_rps)
        if saved.called is not None:
            called_rps = at(saved.called)
        else:
            called_rps = np.minimum(left_rps, self._capped_rps) if self._capped_rps > 0.0 else left_rps
        usd = capacity_rps / self._unit_rps * self._unit_usd + self._call_usd * STEP_S * called_rps
        best = (usd + prices_usd[:, None] * STEP_S * late_rps).argmin(axis=1)
        return np.asarray(capacity_rps[best])

    def _place(self, answered: Answered, law: Law, foreseen: Foreseen, coming_rps: float) -> tuple[int, float]:
        """Return the grid index of the lowest price that keeps the promise, and its probability of keeping it in
        this window.
        """
        rest = self._window(answered, law, foreseen, coming_rps)
        window_hours = self._slo.window_s / HOUR_S
        hours = window_hours - answered.window_s / HOUR_S
        left = self._allowed * (answered.window_requests + rest.requests * hours) - answered.window_late
        fresh, this = (
            rest.deviations(self._allowed * rest.requests * window_hours, window_hours),
            rest.deviations(left, hours),
        )
        z = NormalDist().inv_cdf(self._slo.confidence)
        # If no price reaches the confidence, take the lowest of the prices that come nearest.
        keeps = fresh >= min(z, float(fresh.max()) - NEAR)
        if this.max() > 0.0:
            keeps &= this >= min(z, float(this.max()) - NEAR)
        place = int(np.argmax(keeps)) if keeps.any() else int(this.argmax())
        return place, probability(float(this[place]))

    def _window(self, answered: Answered, law: Law, foreseen: Foreseen, coming_rps: float) -> WindowLaw:
        """Return the law of late requests from the observed hours, with the forecast weighted as one more hour."""
        rate_rps = coming_rps
        if answered.seen_s > 0.0:
            rate_rps = (answered.requests + HOUR_S * coming_rps) / (answered.seen_s + HOUR_S)
        hourly = rate_rps * HOUR_S
        requests = np.array([hour.requests for hour in law.hours])
        late = np.array([hour.late for hour in law.hours]).reshape(-1, len(GRID))
        prior = PRIOR_HOURS * hourly
        pseudo = BIAS_HOURS * self._allowed * hourly
        told = np.array([hour.foreseen for hour in law.hours]).reshape(-1, len(GRID)).sum(axis=0)
        # Forecasts that expected more late requests than came are believed in proportion.
        believed = np.minimum(1.0, (late.sum(axis=0) + pseudo) / np.maximum(told + pseudo, 1e-9))
        by_forecast = believed * foreseen.late_rps / max(foreseen.load_rps, 1e-9)
        share = (late.sum(axis=0) + prior * by_forecast) / max(float(requests.sum()) + prior, 1e-9)
        # A higher price never leaves more late, so remove rounding differences.
        share = np.minimum.accumulate(share)
        used = sum(hour.used for hour in law.hours)
        bias = min(max((answered.late + pseudo) / max(used + pseudo, 1e-9), LEAST_BIAS), 1.0)
        excess = max(0.0, answered.late - used) / max(answered.requests, 1)
        seen_at = sum(hour.places for hour in law.hours) / max(float(requests.sum()), 1e-9)
        more = excess * np.interp(seen_at, np.arange(len(GRID)), GRID) / GRID * hourly
        off = late - share * requests[:, None]
        # A forecast's errors last for about two boots.
        alike = min(2.0 * self._boot_steps, HOUR_S / STEP_S)
        per_hour = HOUR_S / max(foreseen.load_rps, 1e-9) * rate_rps
        errors = believed * foreseen.variance * per_hour**2 * alike * STEP_S / HOUR_S
        variance = ((off**2).sum(axis=0) + SPREAD_HOURS * errors) / (len(requests) + SPREAD_HOURS)
        variance = bias**2 * variance + self._clustering * bias * share * hourly
        variance += more**2
        return WindowLaw(hourly, bias * share * hourly + more, variance, self._error * bias * hourly)


@dataclass(frozen=True, slots=True)
class WindowLaw:
    """An hour's requests, and the mean and variance of the late ones among them, by price.

    `error` is the standard error of the counted shares, in late requests per hour. It is the same in all hours.
    """

    requests: float
    late: FloatArray  # (prices,)
    variance: FloatArray  # (prices,)
    error: float

    def deviations(self, left: float, hours: float) -> FloatArray:
        """Return by how many standard deviations the late requests of `hours` stay below `left` of the budget."""
        return np.asarray((left - self.late * hours) / self._spread(hours))

    def most_late(self, deviations: float, hours: float) -> FloatArray:
        """Return the late requests of `hours` at `deviations` standard deviations above the mean: (prices,)."""
        return np.asarray(self.late * hours + deviations * self._spread(hours))

    def _spread(self, hours: float) -> FloatArray:
        return np.sqrt(self.variance * max(hours, 1e-3) + (self.error * hours) ** 2 + 1e-12)


@dataclass(frozen=True, slots=True)
class MissPrice:
    """Dollars per late request, and the probability that the window keeps the promise at that price."""

    usd: float
    confidence: float


def confidence_notes(confidence: float, slo: Slo) -> tuple[str, ...]:
    """Return a note if no price of a miss reaches the confidence that the service asks for."""
    if confidence >= slo.confidence - SAME_CONFIDENCE:
        return ()
    return (
        f"this window keeps the promise with a probability of {percent(confidence, 0)} at best; "
        f"slo_confidence asks for {exact_percent(slo.confidence, 0)}",
    )


def notes_without_confidence(plan: Plan, slo: Slo) -> list[str]:
    """Return the plan's notes for a reader who is told the probability elsewhere."""
    said = () if plan.confidence is None else confidence_notes(plan.confidence, slo)
    return [note for note in plan.notes if note not in said]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The forecast one boot ahead: requests/s that come, those left late by price, and the variance of these."""

    load_rps: float
    late_rps: FloatArray  # (prices,)
    variance: FloatArray  # (prices,)


def call_usd(resolved: ResolvedService) -> float:
    """Return the dollars of a call that is passed on to a function; 0 without such calls."""
    function = resolved.function
    if function is None or not (resolved.functions_in_time or resolved.service.late == "function"):
        return 0.0
    return function.usd_per_request


def learns_price(resolved: ResolvedService, lateness: Lateness) -> bool:
    """Return whether a request can be late or refused. Otherwise an overflow costs a call, and no more."""
    return lateness.shares is not None or not math.isinf(capped_rps(resolved))


def overflow_price(resolved: ResolvedService, usd_per_miss: float) -> OverflowPrice:
    """Return the price of requests that capacity has no room for, if late shares were not counted."""
    if not resolved.functions_in_time:
        return OverflowPrice(usd_per_miss + call_usd(resolved))
    usd, capped = call_usd(resolved), capped_rps(resolved)
    return OverflowPrice(usd) if math.isinf(capped) else OverflowPrice(usd, capped, max(usd, usd_per_miss))


def at_price(
    resolved: ResolvedService, lateness: Lateness, saved: ServedLoad, usd_per_miss: float
) -> tuple[OverflowPrice, ServedLoad]:
    """Return the price of unserved requests, and the served load when calls count as parts of a miss."""
    if lateness.shares is not None:
        return OverflowPrice(usd_per_miss), saved.less_calls(call_usd(resolved) / usd_per_miss)
    return overflow_price(resolved, usd_per_miss), saved


def probability(deviations: float) -> float:
    """Return the probability of staying below a normal mean plus `deviations` standard deviations."""
    return NormalDist().cdf(min(max(deviations, -_CERTAIN), _CERTAIN))
