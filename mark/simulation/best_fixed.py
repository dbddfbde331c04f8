"""`best-fixed`: the fixed fleet with the smallest bill that keeps the promise on the evaluated part.

It is the fleet to rent if the traffic were known beforehand, without an autoscaler or functions, so it is the bill that
an autoscaler has to beat. It is found by simulation: first fleets of one type, each with the fewest instances that keep
the promise, then cheaper mixtures of two types.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from itertools import count as count_from

import numpy as np

from mark.domain.offer import Market, Offer
from mark.domain.profile import Candidate
from mark.domain.time import HOUR_S
from mark.planning.planner import Policy
from mark.planning.policies.fixed import fixed_fleet, fixed_for_peak, offer_named
from mark.planning.policies.names import BEST_FIXED
from mark.simulation.inputs import Inputs
from mark.simulation.parts import Arrivals, bill_of, cloud_of, stage_of

MOST_MIXTURES = 6  # simulated, the cheapest first; runs that miss the promise end early
_SLACK = 0.95  # margin, because drawn service times and arrivals may be easier than their means


@dataclass(frozen=True, slots=True)
class _Type:
    offer: Offer
    able: Candidate
    fewest: int  # a smaller number cannot answer enough requests in time
    guess: int  # the number that a fluid queue would need


def best_fixed(inputs: Inputs) -> Policy:
    """Return the policy with that fleet, without bouncers and functions.

    The fleet may have any type that the service may buy, on demand if it is sold so, else burstable, in any number;
    spot is excluded because it can be interrupted. Instances are ready at second 0. If no such fleet keeps the promise
    (service times may exceed RT_max whatever the number), the result is the fleet for the highest minute, and its plan
    says so. The search is without crashes, because no controller replaces crashed instances here. Raises Infeasible if
    the resolved service offers no instance.
    """
    faults = inputs.service.faults.without_crashes()
    search = _Search(replace(inputs, service=replace(inputs.service, faults=faults)))
    found = search.of_one_type()
    if found is None:
        note = f"no fixed fleet keeps the promise ({search.runs} were simulated): this one is for the highest minute"
        return fixed_for_peak(BEST_FIXED, inputs.resolved, inputs.evaluated, notes=(note,))
    counts = search.of_two_types(*found)
    return _policy(counts, inputs, f"the smallest bill of the {search.runs} fixed fleets that were simulated")


def cheapest_of_one_type(inputs: Inputs) -> tuple[str, int] | None:
    """Return offer and number of the cheapest fixed fleet of one type that keeps the promise, or None."""
    found = _Search(inputs).of_one_type()
    return None if found is None else next(iter(found[0].items()))


def fewest_that_keep(keeps: Callable[[int], bool], low: int, guess: int, limit: int) -> int | None:
    """Return the smallest number from `low` to `limit` for which `keeps` is true, if it is for all higher ones.

    The search begins at `guess` and widens. Returns None if `limit` is not enough.
    """
    if low > limit:
        return None
    known: dict[int, bool] = {}

    def kept(count: int) -> bool:
        if count not in known:
            known[count] = keeps(count)
        return known[count]

    high, step = min(max(guess, low), limit), 1
    if kept(high):  # search below for a number that is too small
        while low < high and kept(below := max(low, high - step)):
            high, step = below, 2 * step
        low = max(low, high - step + 1)
    else:  # search above for a number that is enough
        while not kept(high):
            if high == limit:
                return None
            low, high, step = high + 1, min(limit, high + step), 2 * step
    return low + bisect_left(range(low, high), True, key=kept)


def _policy(counts: Mapping[str, int], inputs: Inputs, reason: str = "") -> Policy:
    return fixed_fleet(BEST_FIXED, counts, inputs.resolved, reason)


class _Search:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs, self._slo = inputs, inputs.resolved.slo
        load = inputs.evaluated
        self._step_s = load.step_s
        self._counts = np.nan_to_num(load.mean_rps) * load.step_s
        self._expected = float(self._counts.sum())
        self.runs = 0
        self._too_few: dict[str, int] = {}  # by type alone: the largest number that is known to be too small
        named = (
            offer_named(instance, inputs.resolved) for instance in sorted({o.instance for o in inputs.resolved.offers})
        )
        self._types = {
            offer.name: self._type(offer, able)
            for offer, able in named
            if offer.market in (Market.ON_DEMAND, Market.BURSTABLE)
        }

    def of_one_type(self) -> tuple[dict[str, int], float] | None:
        """Return the best fleet of a single type, and its bill."""
        best, best_usd = None, math.inf
        for floor_usd, name in sorted((self._floor_usd({name: t.fewest}), name) for name, t in self._types.items()):
            if floor_usd >= best_usd:  # the following types cannot be cheaper either
                self._too_few[name] = self._types[name].fewest - 1
                continue
            one = self._types[name]
            most = max(64, 16 * one.guess)  # if such a fleet misses the promise too, capacity is not the cause
            limit = bisect_left(range(1, most + 1), best_usd, key=lambda n: self._floor_usd({name: n}))
            if (found := self._fewest_that_keep(name, one, limit)) is not None and found[1] < best_usd:
                best, best_usd = {name: found[0]}, found[1]
        return None if best is None else (best, best_usd)

    def of_two_types(self, best: dict[str, int], best_usd: float) -> dict[str, int]:
        """Return `best`, or a cheaper mixture.

        A mixture is assumed to need more capacity than the largest insufficient fleet of one of its types.
        """
        mixtures = []
        for one, other in combinations(self._types, 2):
            one_rps, other_rps = self._types[one].able.capacity_rps, self._types[other].able.capacity_rps
            needed_rps = min(self._too_few[one] * one_rps, self._too_few[other] * other_rps)
            for i in count_from(1):
                j = max(1, math.floor((needed_rps - i * one_rps) / other_rps * (1.0 + 1e-9)) + 1)
                if (usd := self._floor_usd({one: i, other: j})) < best_usd:
                    mixtures.append((usd, {one: i, other: j}))
                if self._floor_usd({one: i, other: 1}) >= best_usd or i * one_rps > needed_rps:
                    break
        mixtures.sort(key=lambda mixture: mixture[0])
        for _, fleet in mixtures[:MOST_MIXTURES]:
            if (bill_usd := self._bill_usd(fleet)) is not None and bill_usd < best_usd:
                return fleet
        return best

    def _type(self, offer: Offer, able: Candidate) -> _Type:
        fastest_rps = max(able.capacity_rps, able.ceiling_rps) / _SLACK
        fewest = self._least(lambda n: self._answered(n * fastest_rps))
        return _Type(offer, able, fewest, self._least(lambda n: self._in_time(n * able.capacity_rps)))

    def _least(self, share: Callable[[int], float]) -> int:
        """Return the smallest number of instances whose share keeps the promise; shares grow with the number."""
        return 1 + bisect_left(range(1, 10_000), True, key=lambda n: share(n) >= self._slo.attainment)

    def _answered(self, capacity_rps: float) -> float:
        """Return an upper bound on the share of requests answered within RT_max, by the capacity of each step."""
        most = capacity_rps * (self._step_s + self._slo.rt_max_s)
        return float(np.minimum(self._counts, most).sum()) / self._expected if self._expected else 1.0

    def _in_time(self, capacity_rps: float) -> float:
        """Return the share in time for a fluid: the requests of steps that begin with less than RT_max of queue."""
        waiting = late = 0.0
        per_step, most = capacity_rps * self._step_s, capacity_rps * self._slo.rt_max_s
        for count in self._counts.tolist():
            if waiting > most:
                late += count
            waiting = max(0.0, waiting + count - per_step)
        return 1.0 - late / self._expected if self._expected else 1.0

    def _fewest_that_keep(self, name: str, one: _Type, limit: int) -> tuple[int, float] | None:
        """Return the smallest number up to `limit` that keeps the promise, and its bill; None if all miss it."""
        self._too_few[name] = one.fewest - 1
        bills_usd: dict[int, float | None] = {}

        def keeps(count: int) -> bool:
            bills_usd[count] = self._bill_usd({name: count})
            if bills_usd[count] is None:
                self._too_few[name] = max(count, self._too_few[name])
            return bills_usd[count] is not None

        fewest = fewest_that_keep(keeps, one.fewest, one.guess, limit)
        if fewest is None:
            return None
        usd = bills_usd[fewest]
        assert usd is not None
        return fewest, usd

    def _floor_usd(self, counts: Mapping[str, int]) -> float:
        """Return a lower bound on a fleet's bill, without surplus credits and the catalogue's extras."""
        committed = self._inputs.resolved.committed
        paid = {name: max(0, count - committed.get(name, 0)) for name, count in counts.items()}
        usd_per_hour = sum(count * self._types[name].offer.usd_per_hour for name, count in paid.items())
        return usd_per_hour * self._inputs.duration_s / HOUR_S

    def _bill_usd(self, counts: Mapping[str, int]) -> float | None:
        """Return the bill, or None if the promise is missed. A run ends as soon as too many requests are late."""
        self.runs += 1
        inputs, policy = self._inputs, _policy(counts, self._inputs)
        stage = stage_of(inputs, policy)
        cloud, arrivals = cloud_of(inputs, policy, stage), Arrivals(inputs)
        for name, count in counts.items():
            cloud.start_ready(name, count)
        # Expected requests plus an allowance for the variance of a Poisson process.
        most_late = (1.0 - self._slo.attainment) * (self._expected + 5.0 * math.sqrt(self._expected) + 10.0)
        now_s = 0.0
        while now_s < inputs.duration_s:
            if stage.accounts.late > most_late:
                return None
            now_s = min(now_s + self._step_s, inputs.duration_s)
            while (event_s := cloud.next_event_s()) < now_s:
                arrivals.advance(stage, event_s)
                cloud.advance(event_s)
            arrivals.advance(stage, now_s)
            cloud.advance(now_s)
        arrivals.advance(stage, math.inf)
        stage.finish()
        if stage.accounts.late > (1.0 - self._slo.attainment) * stage.arrived:
            return None
        return bill_of(inputs, policy, stage, cloud).total
