"""The cost of a stage by its time: for each hour the instances that serve the load of its minutes.

It counts as the planner of a stage does (mark/planning/policies/expected_cost.py): bouncers turn away requests that do
not fit while they wait, by a queueing formula. If the stage's function is in time it gets these calls, and one more
instance is held only if it is cheaper; otherwise the share turned away is at most the share that the promise allows. So
a stage without time for its function pays all the time for the capacity that its surges need, and so does a stage whose
calls cannot wait.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.planning.demand.served_load import overflow_rps
from mark.planning.graphs.latency_split import StageCost
from mark.planning.resolve import choose_function
from mark.profiling.policy import candidate

_SHORTEST_WAIT = 0.01  # share of the stage's time, as a plan takes it
_MOST = 4_000_000  # instances: more than any load needs


def stage_cost(stage: ResolvedService, loads_rps: FloatArray) -> StageCost:
    """Return the mean $/h of a stage over the hours as a function of its seconds; infinite where these are too few.

    `loads_rps` (hours, minutes) are calls/s. Throughout an hour the number of instances of one type stays the same.
    """
    service = stage.service
    prices = {offer.instance: math.inf for offer in stage.offers}
    for offer in stage.offers:
        prices[offer.instance] = min(prices[offer.instance], offer.usd_per_hour)
    profiles = {offer.instance: known.profile for offer, known in zip(stage.offers, stage.candidates, strict=True)}

    def usd_per_hour(seconds: float) -> float:
        slo = Slo(seconds, service.slo.attainment)
        function, _ = choose_function(replace(service, slo=slo), stage.catalog, stage.profiles)
        in_time = function is not None and function.warm_s <= seconds
        call_usd = function.usd_per_request if function is not None and in_time else math.inf
        least = service.min_instances if in_time else max(1, service.min_instances)
        usd = np.full(len(loads_rps), math.inf)
        if in_time and least == 0:
            usd = HOUR_S * call_usd * loads_rps.mean(axis=1)
        known = {instance: candidate(profile, slo, service.batching) for instance, profile in profiles.items()}
        usable = {instance: found for instance, found in known.items() if isinstance(found, Candidate)}
        # As a plan takes it: the wait on the slowest of all types
        slack_s = min((seconds - one.overhead_s - float(one.service_s[-1]) for one in usable.values()), default=0.0)
        wait_s = max(slack_s, _SHORTEST_WAIT * seconds)
        for instance, found in usable.items():
            fleets = _Fleets(loads_rps, found.capacity_rps, wait_s, prices[instance], call_usd, 1.0 - slo.attainment)
            usd = np.minimum(usd, fleets.cheapest_usd(least))
        return float(usd.mean())

    return usd_per_hour


class _Fleets:
    """Instances of one type that serve throughout each hour, and the calls they turn away."""

    def __init__(
        self,
        loads_rps: FloatArray,
        capacity_rps: float,
        wait_s: float,
        usd: float,
        call_usd: float,
        share: float,
    ) -> None:
        self._loads_rps, self._capacity_rps, self._wait_s = loads_rps, capacity_rps, wait_s
        self._usd, self._call_usd = usd, call_usd
        self._late_rps = share * loads_rps.mean(axis=1)

    def cheapest_usd(self, least: int) -> FloatArray:
        """Return the $ of each hour with the best number of instances, at least `least`."""
        high = np.full(len(self._loads_rps), max(1, least))
        while not (enough := self._enough(high)).all() and high.max() < _MOST:
            high = np.where(enough, high, 2 * high)
        low = np.full(len(high), least - 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            enough = self._enough(middle)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        calls_usd = HOUR_S * self._call_usd * self._over_rps(high) if math.isfinite(self._call_usd) else 0.0
        return np.asarray(self._usd * high + calls_usd)

    def _over_rps(self, count: IntArray) -> FloatArray:
        capacity_rps = self._capacity_rps * count[:, None].astype(np.float64)
        return np.asarray(overflow_rps(self._loads_rps, capacity_rps, self._wait_s).mean(axis=1))

    def _enough(self, count: IntArray) -> BoolArray:
        """Return whether one more costs more than the calls it saves or, without functions, few enough are late."""
        over_rps = self._over_rps(count)
        if math.isinf(self._call_usd):
            return np.asarray(over_rps <= self._late_rps)
        return np.asarray(HOUR_S * self._call_usd * (over_rps - self._over_rps(count + 1)) <= self._usd)
