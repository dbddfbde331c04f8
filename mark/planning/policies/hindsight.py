"""The fixed fleet of hindsight: the capacity a planner holds if following the load cost more than one fixed fleet.

If the forecast cannot foresee bursts, plans follow each of them: a boot too late, at the price of a launch, or far too
large because anything seems possible. So every minute the costs of the last hours are compared: those of the plans, and
those of every fleet of up to `MOST_INSTANCES` of one offer, held throughout. The costs are instances, launches, and
misses at the price that the budget of misses gives them. The past counts half every `HALF_LIFE_S`. While the cheapest
of the fleets that kept the promise beats the plans by `MARGIN`, its capacity is the minimum that is held, and also the
maximum unless more is likely to be needed soon. It is not held if no load near it is likely to come at all.

That is following the leader among those fleets and the planner, discounted because loads change (Cesa-Bianchi and
Lugosi 2006, Prediction, Learning, and Games, sections 2.11 and 3.2). No larger fleets are compared: they have much to
save by following the load, and half an hour says little about their future.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.load import Forecast
from mark.domain.time import HOUR_S, STEP_S
from mark.planning.demand.served_load import Lateness, unrest_rps

# Chosen on small services with bursts (benchmarks/planner/small_services.py), such that NASNet and OpenNMT-ende pay no
# more for it (benchmarks/planner/miss_price.py judge --set MARGIN=0). They would with fleets up to 16 (a spike of the
# first half hour was held for hours: 8 % dearer), with the median for p90 (spikes, one in two hours, met the fleet of
# the quiet time before: 5 to 13 % dearer, a point less in time), and with fleets that had not kept the promise.
MOST_INSTANCES = 6
HALF_LIFE_S = 3.0 * HOUR_S
ENOUGH_S = 0.5 * HOUR_S  # a shorter past says nothing
MARGIN = 0.98
# The load fits if the p90 of the next `_SOON` steps, a boot at least, is below `_FITS` of the capacity, because a
# forecast's tails are wide, and its median below all of it. The capacity will not be needed if every p90 is below
# `_IDLE` of it.
_LIKELY, _SOON, _FITS, _IDLE = 0.9, 5, 1.25, 0.6


_NO_WINDOWS: FloatArray = np.empty(0)


@dataclass(frozen=True, slots=True)
class PastCosts:
    """Costs of the past, discounted; a planner's memory.

    `seen_s` of the past count, with `requests` requests. `planned_usd` is of the plans, `fixed_usd` and `fixed_late`
    (requests) of each of the `FixedFleets`. `plans` are the last plans, newest last: counts by offer of `offers`.
    """

    at_s: float
    offers: tuple[str, ...] = ()
    seen_s: float = 0.0
    requests: float = 0.0
    planned_usd: float = 0.0
    fixed_usd: tuple[float, ...] = ()
    fixed_late: tuple[float, ...] = ()
    plans: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FixedFleet:
    """`count` instances of the planner's offer number `offer`; costs as in `PastCosts`."""

    offer: int
    count: int
    fixed_usd: float
    planned_usd: float


class FixedFleets:
    """All fleets of one offer of up to `most` instances, `MOST_INSTANCES` at most, beside a planner's plans.

    By offer of `offers`: `usable_rps` of an instance, `launch_usd`, `boot_steps`, `committed` (instances that are paid
    for anyway and so cost nothing), and `most`, 0 for an offer that cannot be held for hours. A fleet keeps the promise
    if it leaves at most `late_share` of the requests late, by the lateness of its own type in `alone`. `lateness` is
    for the capacity of a plan, and for all fleets if `alone` is empty.
    """

    def __init__(
        self,
        offers: Sequence[str],
        usable_rps: FloatArray,
        launch_usd: FloatArray,
        boot_steps: IntArray,
        committed: IntArray,
        most: IntArray,
        *,
        late_share: float,
        lateness: Lateness,
        alone: Sequence[Lateness] = (),
    ) -> None:
        self._offers = tuple(offers)
        self._usable_rps, self._launch_usd, self._boot_steps = usable_rps, launch_usd, boot_steps
        self._soon = max(_SOON, int(boot_steps.max(initial=0)) + 1)
        self._committed, self._late_share, self._lateness = committed, late_share, lateness
        most = np.minimum(most, MOST_INSTANCES)
        self._offer = np.repeat(np.arange(len(most)), most)
        self._count = np.concatenate([np.arange(1, n + 1) for n in most])
        self._capacity_rps = self._count * usable_rps[self._offer]
        self._types = [(own, self._offer == i) for i, own in enumerate(alone) if most[i]]
        if not alone:
            self._types = [(lateness, np.ones(len(self._offer), dtype=np.bool_))]
        self._paid = np.maximum(0, self._count - committed[self._offer])

    def seen(
        self,
        past: PastCosts | None,
        now_s: float,
        load_rps: float | None,
        counts: IntArray,
        usd_per_step: FloatArray,
        usd_per_miss: float,
        windows_rps: FloatArray = _NO_WINDOWS,
        usable_rps: FloatArray | None = None,
    ) -> PastCosts:
        """Add the time since the past was last seen, in which `load_rps` came, and a new plan: `counts`.

        `usable_rps` is the capacity of each offer's instances at that load, if it differs from the usual one.
        `windows_rps` are the rates of the last minute's 5 s windows, NaN where nothing was observed. They decide
        whether a fleet kept the promise, because bursts of seconds hide in a minute's mean. A minute without
        observation (None) is left out; a plan that is made again within a minute is replaced.
        """
        plan = tuple(int(n) for n in counts)
        if past is None or not self.fit(past) or now_s < past.at_s:  # the clock was set back
            none = (0.0,) * len(self._count)
            return PastCosts(now_s, self._offers, fixed_usd=none, fixed_late=none, plans=(plan,))
        steps = (now_s - past.at_s) / STEP_S
        if steps < 0.5:
            return replace(past, plans=(*past.plans[:-1], plan))
        plans = (*past.plans, plan)[-(int(self._boot_steps.max()) + 2) :]
        if load_rps is None or not math.isfinite(load_rps):
            return replace(past, at_s=now_s, plans=plans)
        discount = math.pow(0.5, steps * STEP_S / HALF_LIFE_S)
        steps = min(steps, 2.0)  # a controller that was away does not know the load
        serving_rps = float(self._serving(past.plans) @ (self._usable_rps if usable_rps is None else usable_rps))
        planned_late = float(self._lateness.late_rps(load_rps, serving_rps)) * steps * STEP_S
        late = self._late_rps(np.array([load_rps])) * steps * STEP_S
        fixed_late = self._late_rps(unrest_rps(load_rps, windows_rps)) * steps * STEP_S
        held, before = np.array(past.plans[-1]), np.array(past.plans[-2:][0])
        planned_usd = steps * float(np.maximum(0, held - self._committed) @ usd_per_step)
        planned_usd += float(np.maximum(0, held - before) @ self._launch_usd) + usd_per_miss * planned_late
        fixed_usd = steps * self._paid * usd_per_step[self._offer] + usd_per_miss * late
        return PastCosts(
            now_s,
            self._offers,
            discount * past.seen_s + steps * STEP_S,
            discount * past.requests + load_rps * steps * STEP_S,
            discount * past.planned_usd + planned_usd,
            tuple((discount * np.array(past.fixed_usd) + fixed_usd).tolist()),
            tuple((discount * np.array(past.fixed_late) + fixed_late).tolist()),
            plans,
        )

    def _late_rps(self, loads_rps: FloatArray) -> FloatArray:
        """Return the late requests/s of each fleet, on average over equally likely loads."""
        late_rps = np.empty(len(self._count))
        for lateness, own in self._types:
            late_rps[own] = lateness.late_rps(loads_rps[:, None], self._capacity_rps[own]).mean(axis=0)
        return late_rps

    def _serving(self, plans: Sequence[Sequence[int]]) -> IntArray:
        """Return the serving instances under the last of `plans`, by offer: the least of all plans of the last boot."""
        counts = np.array(plans, dtype=np.int64)
        first = np.maximum(0, len(counts) - 1 - self._boot_steps)
        return np.array([counts[first[i] :, i].min() for i in range(len(first))], dtype=np.int64)

    def fit(self, past: PastCosts) -> bool:
        """Return whether the past is that of these fleets; a service's offers and limits may change."""
        return past.offers == self._offers and len(past.fixed_usd) == len(self._count)

    def best(self, past: PastCosts) -> FixedFleet | None:
        """Return the cheapest fleet that kept the promise, if it beats the plans by `MARGIN`; else None."""
        if past.seen_s < ENOUGH_S or not past.fixed_usd or not self.fit(past):
            return None
        kept = np.array(past.fixed_late) <= self._late_share * past.requests
        cost_usd = np.where(kept, past.fixed_usd, np.inf)
        i = int(cost_usd.argmin())
        if cost_usd[i] >= MARGIN * past.planned_usd:
            return None
        return FixedFleet(int(self._offer[i]), int(self._count[i]), past.fixed_usd[i], past.planned_usd)

    def hold(
        self,
        fleet: FixedFleet,
        counts: IntArray,
        running: IntArray,
        ready: IntArray,
        buyable: BoolArray,
        forecast: Forecast,
        usd_per_step: FloatArray,
        usable_rps: FloatArray,
    ) -> IntArray:
        """Return `counts` with the capacity of `fleet` as a minimum, and as a maximum unless more is likely to be
        needed. `usable_rps` is that of an instance of each offer at the load that comes.

        Unchanged if no load near it is likely. Running instances are preferred to launches, and dearer ones leave
        before cheaper ones; but `ready` ones leave only as far as other ready ones replace them, so that a swapped
        instance serves until its replacement does. If the market refuses offers the capacity may be lower.
        """
        capacity_rps = fleet.count * float(usable_rps[fleet.offer])
        if float(forecast.mean_at(_LIKELY).max()) < _IDLE * capacity_rps:
            return counts
        likely_rps = float(forecast.mean_at(_LIKELY)[: self._soon].max())
        expected_rps = float(forecast.mean_at(0.5)[: self._soon].max())
        counts, least_rps = counts.copy(), capacity_rps * (1.0 - 1e-9)
        dearest = np.argsort(-usd_per_step / usable_rps, kind="stable")
        if likely_rps <= _FITS * capacity_rps and expected_rps <= capacity_rps:
            spare_rps = float(counts @ usable_rps) - least_rps
            for i in dearest:
                each_rps = float(usable_rps[i])
                spare = max(0, min(math.floor(spare_rps / each_rps), int(counts[i])))
                spare_rps -= spare * each_rps
                serving_rps = float(np.minimum(counts, ready) @ usable_rps)
                to_spare = max(0, math.floor((serving_rps - least_rps) / each_rps))
                counts[i] -= min(spare, max(0, int(counts[i] - ready[i])) + to_spare)
        launched = (fleet.offer, fleet.count if buyable[fleet.offer] else 0)
        for i, most in (*((i, int(running[i] - counts[i])) for i in dearest[::-1]), launched):
            missing = math.ceil((least_rps - float(counts @ usable_rps)) / float(usable_rps[i]))
            counts[i] += max(0, min(missing, most))
        return counts
