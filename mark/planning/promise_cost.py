"""The cost of a service's load by RT_max: estimated from its profiles, with no forecast and no plan.

With more time larger batches fit, slower types and functions, so that the cost falls in steps. It is the cost of whole
instances of one type, without instances that stand ready for more load or are spread over zones; a plan also has those.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.offer import Market
from mark.domain.price_list import SLO_SHIFT, PromiseEstimate, promise_estimate
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.domain.slo import LONGEST_RT_MAX_S, Slo
from mark.planning.resolve import choose_function, profile_of
from mark.profiling.policy import candidate

EPSILON_S = 1e-9  # times that differ by less count as equal


@dataclass(frozen=True, slots=True)
class PromiseSteps:
    """Cost by RT_max for one load: from each of the ascending `seconds` on, the $/h beside it, which fall."""

    seconds: tuple[float, ...]
    usd_per_hour: tuple[float, ...]

    def usd_within(self, rt_max_s: float) -> float:
        """Return the $/h; infinite if no step is so quick."""
        place = bisect_right(self.seconds, rt_max_s + EPSILON_S)
        return self.usd_per_hour[place - 1] if place else math.inf


class PromiseCost:
    """The cost steps of one service, at the prices of its catalogue, for any load. Made once, because that visits every
    batch.

    Types whose only offers are burstables count only without others, as in plans.
    """

    def __init__(self, resolved: ResolvedService) -> None:
        service, attainment = resolved.service, resolved.slo.attainment
        wanted = [o for o in resolved.catalog.offers if service.wants(o) and profile_of(resolved.profiles, o.instance)]
        steady = [offer for offer in wanted if offer.market is not Market.BURSTABLE] or wanted
        prices: dict[str, float] = {}
        for offer in steady:
            prices[offer.instance] = min(offer.usd_per_hour, prices.get(offer.instance, math.inf))
        steps: list[tuple[float, float, float]] = []  # seconds, and an instance's requests/s and $/h from there on
        for instance, usd_per_hour in sorted(prices.items()):
            profile = profile_of(resolved.profiles, instance)
            assert profile is not None
            batches = [2.0 * row.latency_ms / 1e3 for row in profile.rows if row.batch > 1]
            for seconds in sorted({profile.latency_s(1), *batches}):
                if (enough_s := seconds + profile.overhead_s) >= LONGEST_RT_MAX_S:
                    break
                found = candidate(profile, Slo(enough_s, attainment), service.batching)
                if isinstance(found, Candidate):
                    steps.append((enough_s, found.capacity_rps, usd_per_hour))
        self._instances = np.array(sorted(steps), dtype=np.float64).reshape(-1, 3)
        self._functions: list[tuple[float, float]] = []  # seconds, and dollars of a request
        within_s = math.nextafter(LONGEST_RT_MAX_S, 0.0)
        while resolved.function is not None and within_s > 0.0:
            use, _ = choose_function(
                replace(service, slo=Slo(within_s, attainment)), resolved.catalog, resolved.profiles
            )
            if use is None or use.warm_s > within_s:
                break
            self._functions.append((use.warm_s, use.usd_per_request))
            within_s = use.warm_s - EPSILON_S

    def steps(self, rps: float) -> PromiseSteps:
        """Return the steps for a load of `rps` requests/s."""
        seconds, capacity_rps, price = self._instances.T
        usd = np.maximum(1.0, np.ceil(rps / capacity_rps)) * price
        seconds = np.append(seconds, [s for s, _ in self._functions])
        usd = np.append(usd, [3600.0 * rps * usd_of_one for _, usd_of_one in self._functions])
        return _falling(seconds, usd)

    def estimate(self, rt_max_s: float, rps: float) -> PromiseEstimate:
        """Estimate this RT_max for this load, and two that are shorter and longer by the share `SLO_SHIFT`."""
        steps = self.steps(rps)
        return promise_estimate(rps, rt_max_s, SLO_SHIFT * rt_max_s, steps.usd_within)


def _falling(seconds: FloatArray, usd: FloatArray) -> PromiseSteps:
    """Return only the steps that are cheaper than all earlier ones."""
    order = np.lexsort((usd, seconds))
    seconds, usd = seconds[order], usd[order]
    before = np.append(np.inf, np.minimum.accumulate(usd)[:-1])
    kept = usd < before
    return PromiseSteps(tuple(seconds[kept].tolist()), tuple(usd[kept].tolist()))
