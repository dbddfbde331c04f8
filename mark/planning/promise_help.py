"""The confidence with which a service can keep its promise, and changes that would help, from a past with forecasts.

Each minute of the past has the load that came and the forecast that was made when it began. Each price of a miss asks
for a fleet, one boot ahead; this fleet and the requests that it would have answered late are computed. That is the law
of `PromisePrice`, for all minutes together; it gives the probability that a window beginning now is kept, and the
dollars of those fleets. A change is judged the same way, for the changed service: with boots as long as resumes, with
other types, with another RT_max.

The law assumes launches that are ready after a mean boot. It neglects boots that take longer, the SLO monitor, and
instances that a planner keeps because launches cost: errors of opposite signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from mark.cloud.billing.meter import disks_of
from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.function_offer import EVERY_FUNCTION, is_function
from mark.domain.load import Forecast
from mark.domain.offer import Market, Offer
from mark.domain.profile import Profile
from mark.domain.promise_help import HelpKind, PromiseHelp
from mark.domain.promise_outlook import PromiseOutlook
from mark.domain.service import ResolvedService, ServiceConfig
from mark.domain.slo import LONGEST_RT_MAX_S
from mark.domain.time import HOUR_S, STEP_S
from mark.planning.demand.promise_price import GRID, KEPT_HOURS, NEAR, Hour, Law, PromisePrice, call_usd, probability
from mark.planning.demand.served_load import cheapest_lasting, unrest_rps
from mark.planning.demand.slo_budget import Answered
from mark.planning.market.spot import DISK_USD_PER_HOUR
from mark.planning.resolve import buyable, choose_function, profile_of, resolve

MINUTES = KEPT_HOURS * 60  # of the past count: a day, as in a planner's law
_TYPES = 3  # other types that are counted: each takes seconds
_MORE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # instances beyond the plan
# Multiples of RT_max; bisection finds the least that keeps the promise.
_RT_MAX = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
_BETTER = 0.05  # a change must raise the confidence by this
_TOLD = 1e-4  # shares are given to a hundredth of a per cent

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class PastMinute:
    """The load of one minute, by 5 s windows if these are known, and the forecast made when it began.

    The load is NaN if nothing was observed.
    """

    load_rps: float
    windows_rps: FloatArray
    forecast: Forecast

    @property
    def loads_rps(self) -> FloatArray:
        """Equal parts of the minute, as restless as the windows are beyond Poisson arrivals; empty if unknown."""
        if not math.isfinite(self.load_rps):
            return np.empty(0)
        return np.maximum(0.0, unrest_rps(self.load_rps, self.windows_rps))


def promise_outlook(
    resolved: ResolvedService, past: Sequence[PastMinute], coming: Forecast, progress: Progress = lambda share: None
) -> PromiseOutlook | None:
    """Return the confidence that can be had, by the last day of `past` and the forecast that begins now.

    None if only functions serve. Equal arguments, equal answers. Changes are looked for only if the promise cannot be
    kept at its confidence. That may count late shares of types that the service does not have yet: seconds each, the
    first time.
    """
    if not resolved.offers:
        return None
    outlook = _Outlook(resolved, past[-MINUTES:], coming)
    own = outlook.reached(resolved)
    confidence, usd = own.at(resolved.slo.confidence)
    found = PromiseOutlook(resolved.slo, confidence, usd, STEP_S * outlook.minutes, offer=outlook.offer)
    if found.can_be_had:
        return found
    helps: list[PromiseHelp] = []
    steps = (outlook.limits, outlook.warm_pool, outlook.more_instances, outlook.types, outlook.functions)
    for place, step in enumerate((*steps, outlook.rt_max, outlook.attainment)):
        progress(place / (len(steps) + 2))
        helps += [one for one in step(own) if one.confidence is not None and one.confidence >= confidence + _BETTER]
    return replace(found, helps=tuple(sorted(helps, key=lambda one: _order(one, found))))


def _order(one: PromiseHelp, found: PromiseOutlook) -> tuple[bool, float, float]:
    """Return the sort key: sufficient changes first, the cheapest in front; then by confidence."""
    assert one.confidence is not None
    assert one.usd_per_hour is not None
    enough = found.enough(one.confidence)
    return not enough, 0.0 if enough else -one.confidence, one.usd_per_hour


@dataclass(frozen=True, slots=True)
class _Reached:
    """By price of the grid: standard deviations by which a window is kept, and dollars an hour of its fleets."""

    deviations: FloatArray
    usd_per_hour: FloatArray
    most_late: Callable[[float], FloatArray]  # share of the requests, by deviations above the mean
    capacity_rps: FloatArray  # (minutes, prices)

    def place(self, confidence: float) -> int:
        """Return the least price that reaches the confidence, else the least of the prices that come nearest."""
        z = NormalDist().inv_cdf(confidence)
        return int(np.argmax(self.deviations >= min(z, float(self.deviations.max()) - NEAR)))

    def at(self, confidence: float) -> tuple[float, float]:
        """Return the reachable confidence, at most a little above the requested one, and its dollars an hour."""
        place = self.place(confidence)
        return probability(float(self.deviations[place])), float(self.usd_per_hour[place])


class _Outlook:
    """Judgements of a service and of changes to it, on the same past."""

    def __init__(self, resolved: ResolvedService, past: Sequence[PastMinute], coming: Forecast) -> None:
        self._resolved, self._past, self._coming = resolved, past, coming
        self.minutes = len(past)
        self._unit = cheapest_lasting(resolved, buyable(resolved))
        self._offer = resolved.offers[self._unit]
        self.offer = self._offer.name
        self._asked_by_own: list[tuple[int, FloatArray]] = []

    def reached(self, resolved: ResolvedService, more: int = 0, *, limited: bool = True) -> _Reached:
        """Judge a service, with `more` instances than requested, within its limits or without."""
        offers = buyable(resolved)
        promise = PromisePrice(resolved, offers)
        unit = cheapest_lasting(resolved, offers)
        offer, unit_rps = resolved.offers[unit], resolved.candidates[unit].capacity_rps
        most = min(resolved.service.max_instances, math.floor(resolved.service.max_usd_per_hour / offer.usd_per_hour))
        most_rps = most * unit_rps if limited else math.inf
        asked = self._asked(promise, resolved)
        # A minute is served by the fleet requested one boot before; no fleet was requested for the first boot's
        # minutes.
        lead = asked[0][0] if asked else 0
        capacity_rps = np.array([capacity for _, capacity in asked[: len(asked) - lead]]).reshape(-1, len(GRID))
        capacity_rps = np.minimum(capacity_rps + more * unit_rps, most_rps)
        law, requests, usd = Law(), 0.0, np.zeros(len(GRID))
        hours: dict[int, list[tuple[float, FloatArray]]] = {}
        for minute, capacity in zip(range(lead, len(asked)), capacity_rps, strict=True):
            loads_rps = self._past[minute].loads_rps
            if not len(loads_rps):
                continue
            late_rps = promise.late_rps(loads_rps[:, None], capacity).mean(axis=0)
            hours.setdefault(minute // 60, []).append((float(loads_rps.mean()), late_rps))
            usd += self._usd_per_hour(resolved, promise, loads_rps, capacity, offer, unit_rps)
            requests += float(loads_rps.mean()) * STEP_S
        for number, minutes in hours.items():
            came = STEP_S * sum(load for load, _ in minutes)
            late = tuple((STEP_S * np.sum([late for _, late in minutes], axis=0)).tolist())
            law = replace(law, hours=(*law.hours, Hour(number, came, late, 0.0, 0.0, late))[-KEPT_HOURS:])
        counted = sum(map(len, hours.values()))
        answered = Answered(seen_s=STEP_S * counted, requests=round(requests))
        _, capacity = promise.asked_rps(self._coming)
        capacity = np.minimum(capacity + more * unit_rps, most_rps)
        window = promise.window(answered, law, self._coming, capacity)
        if not counted:
            loads_rps = np.array([float(self._coming.mean_at(0.5)[0])])
            usd, counted = self._usd_per_hour(resolved, promise, loads_rps, capacity, offer, unit_rps), 1
        of_window_h = resolved.slo.window_s / HOUR_S
        all_requests = max(window.requests * of_window_h, 1e-9)
        return _Reached(
            window.deviations((1.0 - resolved.slo.attainment) * all_requests, of_window_h),
            usd / counted,
            lambda deviations: window.most_late(deviations, of_window_h) / all_requests,
            capacity_rps / unit_rps if len(capacity_rps) else capacity[None] / unit_rps,
        )

    def _asked(self, promise: PromisePrice, resolved: ResolvedService) -> list[tuple[int, FloatArray]]:
        """Return the capacities requested one boot ahead, by minute; kept for the unchanged service, which needs them
        often.
        """
        if resolved is not self._resolved:
            return [promise.asked_rps(one.forecast) for one in self._past]
        if not self._asked_by_own:
            self._asked_by_own = [promise.asked_rps(one.forecast) for one in self._past]
        return self._asked_by_own

    def _usd_per_hour(
        self,
        resolved: ResolvedService,
        promise: PromisePrice,
        loads_rps: FloatArray,
        capacity_rps: FloatArray,
        offer: Offer,
        unit_rps: float,
    ) -> FloatArray:
        called_rps: FloatArray | float = 0.0
        if call_usd(resolved) > 0.0:
            called_rps = promise.called_rps(loads_rps[:, None], capacity_rps).mean(axis=0)
        return np.asarray(capacity_rps / unit_rps * offer.usd_per_hour + called_rps * HOUR_S * call_usd(resolved))

    # -- changes -------------------------------------------------------------------------------------------------------

    def limits(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to allow as many instances as the promise takes."""
        free = self.reached(self._resolved, limited=False)
        if (free.deviations <= own.deviations).all():
            return
        place = free.place(self._resolved.slo.confidence)
        confidence, usd = free.at(self._resolved.slo.confidence)
        yield PromiseHelp(HelpKind.LIMITS, confidence, usd, instances=math.ceil(free.capacity_rps[:, place].max()))

    def warm_pool(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to resume instead of boot, if that is quicker; as many as are launched within one boot."""
        offer, service = self._offer, self._resolved.service
        steps = math.ceil(offer.boot.mean_s / STEP_S)
        if offer.market is not Market.ON_DEMAND or offer.resume is None:
            return
        if math.ceil(offer.resume.mean_s / STEP_S) >= steps:
            return
        offers = tuple(o if o.resume is None else replace(o, boot=o.resume) for o in self._resolved.offers)
        pooled = self.reached(replace(self._resolved, offers=offers))
        confidence, usd = pooled.at(self._resolved.slo.confidence)
        counts = pooled.capacity_rps[:, pooled.place(self._resolved.slo.confidence)]
        rises = counts[steps:] - counts[:-steps] if len(counts) > steps else np.zeros(1)
        size = max(1, math.ceil(float(rises.max())))
        if size > service.warm_pool:
            disks_usd = size * DISK_USD_PER_HOUR * disks_of(offer)
            yield PromiseHelp(HelpKind.WARM_POOL, confidence, usd + disks_usd, instances=size)

    def more_instances(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to hold more than the plan: the fewest that suffice, or that reach the highest
        confidence.
        """
        asked = self._resolved.slo.confidence
        found: list[tuple[float, float, int]] = []
        for more in _MORE:
            if more > self._resolved.service.max_instances:
                break
            confidence, usd = self.reached(self._resolved, more).at(asked)
            if found and confidence < found[-1][0] + 0.5 * _BETTER and more > _MORE[4]:
                break
            found.append((confidence, usd, more))
            if PromiseOutlook(self._resolved.slo, confidence, usd, 0.0).can_be_had:
                break
        confidence, usd, more = max(found, key=lambda one: (round(one[0] / _BETTER), -one[2]))
        yield PromiseHelp(HelpKind.MORE_INSTANCES, confidence, usd, instances=more)

    def types(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield changes to other types with a profile, each alone, that serve one request more quickly."""
        sold: dict[str, tuple[float, Profile]] = {}
        for offer in self._resolved.catalog.offers:
            profile = None if is_function(offer.instance) else profile_of(self._resolved.profiles, offer.instance)
            on_demand = offer.market is Market.ON_DEMAND and not offer.retired
            if on_demand and profile is not None and offer.instance != self._offer.instance:
                sold[offer.instance] = (offer.usd_per_hour, profile)
        own_s = self._resolved.candidates[self._unit].profile.latency_s(1)
        quickest_s, taken = own_s, 0
        # Each price only tries types that are quicker than all cheaper ones.
        for usd_per_hour, instance in sorted((usd, name) for name, (usd, _) in sold.items()):
            one_s = sold[instance][1].latency_s(1)
            if one_s >= quickest_s or usd_per_hour > self._resolved.service.max_usd_per_hour or taken == _TYPES:
                continue
            quickest_s, taken = one_s, taken + 1
            markets = tuple(dict.fromkeys((Market.ON_DEMAND, *self._resolved.service.markets)))
            changed = replace(self._service(), instances=(instance,), markets=markets)
            if (reached := self._changed(changed)) is not None:
                confidence, usd = reached.at(self._resolved.slo.confidence)
                yield PromiseHelp(HelpKind.TYPE, confidence, usd, instance=instance)

    def functions(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to add a function that answers in time, if the service lacks one."""
        if self._resolved.functions_in_time:
            return
        changed = replace(self._service(), functions=(EVERY_FUNCTION,))
        use, _ = choose_function(changed, self._resolved.catalog, self._resolved.profiles)
        if use is None or use.warm_s > self._resolved.slo.rt_max_s:
            return
        if (reached := self._changed(replace(changed, functions=(use.offer.name,)))) is not None:
            confidence, usd = reached.at(self._resolved.slo.confidence)
            yield PromiseHelp(HelpKind.FUNCTION, confidence, usd, instance=use.offer.name)

    def rt_max(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to the least RT_max tried that suffices, in whole milliseconds."""
        slo, function = self._resolved.slo, self._resolved.function
        tried = [slo.rt_max_s * factor for factor in _RT_MAX]
        if function is not None and function.warm_s > slo.rt_max_s:
            tried.append(function.warm_s)
        longer_s = sorted({math.ceil(seconds * 1e3 - 1e-6) / 1e3 for seconds in tried if seconds < LONGEST_RT_MAX_S})
        low, high, best = 0, len(longer_s), None
        while low < high:
            middle = (low + high) // 2
            changed = replace(self._service(), slo=replace(slo, rt_max_s=longer_s[middle]))
            reached = self._changed(changed)
            confidence, usd = reached.at(slo.confidence) if reached is not None else (0.0, math.inf)
            if PromiseOutlook(slo, confidence, usd, 0.0).can_be_had:
                high = middle
                best = PromiseHelp(
                    HelpKind.RT_MAX,
                    confidence,
                    usd,
                    rt_max_s=longer_s[middle],
                    longer_s=longer_s[middle] - slo.rt_max_s,
                )
            else:
                low = middle + 1
        if best is not None:
            yield best

    def attainment(self, own: _Reached) -> Iterator[PromiseHelp]:
        """Yield the change to the highest share that the present service keeps at the confidence."""
        confidence = self._resolved.slo.confidence
        late = own.most_late(NormalDist().inv_cdf(confidence))
        place = int(np.argmax(late <= late.min() * (1.0 + _BETTER)))
        share = math.floor((1.0 - float(late[place])) / _TOLD) * _TOLD
        if share > 0.0:
            usd = float(own.usd_per_hour[place])
            yield PromiseHelp(HelpKind.ATTAINMENT, confidence, usd, attainment=round(share, 4))

    def _service(self) -> ServiceConfig:
        """Return the service with its reference type alone: other types do not help, and each would cost a table."""
        service = self._resolved.service
        return replace(
            service,
            instances=(self._offer.instance,),
            committed=(),
            slo_monitor=replace(service.slo_monitor, instance=None),
        )

    def _changed(self, service: ServiceConfig) -> _Reached | None:
        """Judge the service after a change; None if the change is not possible."""
        try:
            changed = resolve(service, self._resolved.catalog, {service.model: self._resolved.profiles})
        except (BadInput, Infeasible):
            return None
        return self.reached(changed) if changed.offers else None
