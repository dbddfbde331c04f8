"""The part of RT_max that each stage is planned with, where some stages are bought together.

The cost of a group is not a sum over its stages, because whole instances hold workers of all of them. So several splits
are made with costs that are sums: the cost of stages by themselves, and one sum for each instance type that a group may
be on. In these sums a stage costs as much as if instances could be divided; a stage of a group costs the share of the
instance that its workers take, at the prices of its resources. Of these splits the one is chosen whose whole instances
of all stages and groups cost least, on average over several loads around the planned one, because fleets follow the
load. Each split has as much capacity as it takes to miss no more than allowed (`mark.planning.demand.served_load`): in
a long part, some calls can wait. Among equal splits the cheapest with divisible instances is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Infeasible
from mark.domain.offer import Offer
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Candidate
from mark.domain.slo import Slo
from mark.planning.graphs.latency_split import StageCost, split_latency
from mark.planning.graphs.packing import placed_usd_per_hour, placement_of
from mark.planning.graphs.stage_group import (
    GroupedStage,
    divided_usd_per_hour,
    shared_types,
    shared_usd_per_hour,
    usd_per_vcpu_hour_of,
)
from mark.planning.resolve import choose_function
from mark.profiling.policy import candidate

# Multiples of the planned load
_LOADS = (0.5, 1.0, 1.5, 2.0)


@dataclass(frozen=True, eq=False, slots=True)
class SharedSplit:
    """The problem: `stages` have all of RT_max, `costs` are costs of each stage by itself, or its fixed seconds.

    `groups` are the places of the stages that are bought together; `rps` is the load in queries/s.
    """

    pipeline: Pipeline
    patterns: NDArray[np.int64]
    stages: Sequence[GroupedStage]
    costs: Sequence[StageCost | float]
    groups: Sequence[Sequence[int]]
    rt_max_s: float
    rps: float

    def found(self) -> list[float]:
        """Return the seconds of each stage, as `split_latency` does. Raises Infeasible without a split."""
        best: list[float] | None = None
        least = (math.inf, math.inf)
        reason: Infeasible | None = None
        for costs in self._sums():
            try:
                parts_s = split_latency(self.pipeline, self.patterns, costs, self.rt_max_s)
            except Infeasible as error:
                reason = reason or error
                continue
            # Among equal splits prefer room for more load: the cheapest one if instances could be divided.
            usd = round(self.usd_per_hour(parts_s), 9), self._divided_usd(parts_s)
            if best is None or usd < least:
                best, least = parts_s, usd
        if best is None:
            assert reason is not None
            raise reason
        return best

    def usd_per_hour(self, parts_s: Sequence[float]) -> float:
        """Return the $/h of this split, in the mean of several loads."""
        loads_rps = [load * self.rps for load in _LOADS]
        together = {at for group in self.groups for at in group}
        usd = sum(self._alone(at, seconds, loads_rps) for at, seconds in enumerate(parts_s) if at not in together)
        for group in self.groups:
            stages = [_at_part(self.stages[at], parts_s[at]) for at in group]
            usd += sum(shared_usd_per_hour(stages, rps) for rps in loads_rps)
        return usd / len(loads_rps)

    def _divided_usd(self, parts_s: Sequence[float]) -> float:
        """Return the $/h of this split as if all instances could be divided."""
        together = {at for group in self.groups for at in group}
        usd = sum(self._divided(at)(seconds) for at, seconds in enumerate(parts_s) if at not in together)
        for group in self.groups:
            usd += divided_usd_per_hour([_at_part(self.stages[at], parts_s[at]) for at in group], self.rps)
        return usd

    def _alone(self, at: int, seconds: float, loads_rps: Sequence[float]) -> float:
        """Return the $/h of a stage by itself, summed over the loads: instances of one offer, or functions alone."""
        stage, able = self.stages[at], _within(self.stages[at], seconds)
        total = 0.0
        for rps in loads_rps:
            usd = self._function_usd(at, seconds) * rps / self.rps
            for offer, on in able:
                usd = min(usd, max(1, math.ceil(stage.instances(on, rps, seconds) - 1e-9)) * offer.usd_per_hour)
            total += usd
        return total

    def _function_usd(self, at: int, seconds: float) -> float:
        """Return the $/h of functions if they answer all calls in time, else infinite."""
        stage, resolved = self.stages[at], self.stages[at].resolved
        if not resolved.service.functions:
            return math.inf
        service = replace(resolved.service, slo=Slo(seconds, resolved.slo.attainment))
        function, _ = choose_function(service, resolved.catalog, resolved.profiles)
        if function is None or function.warm_s > seconds:
            return math.inf
        return 3600.0 * self.rps * stage.calls * function.usd_per_request

    def _sums(self) -> Iterator[list[StageCost | float]]:
        yield list(self.costs)
        types = [shared_types([self.stages[at] for at in group]) for group in self.groups]
        for chosen, of_chosen in zip(self.groups, types, strict=True):
            for instance in of_chosen:
                costs: list[StageCost | float] = [
                    self._divided(at) if callable(cost) else cost for at, cost in enumerate(self.costs)
                ]
                for group, every in zip(self.groups, types, strict=True):
                    for at in group:
                        if callable(costs[at]):
                            costs[at] = self._by_workers(at, [instance] if group is chosen else every)
                yield costs

    def _divided(self, at: int) -> StageCost:
        """Return the cost of a stage by itself, as if instances could be divided."""
        stage = self.stages[at]

        def usd_per_hour(seconds: float) -> float:
            usd = self._function_usd(at, seconds)
            for offer, on in _within(stage, seconds):
                usd = min(usd, stage.instances(on, self.rps, seconds) * offer.usd_per_hour)
            return usd

        return usd_per_hour

    def _by_workers(self, at: int, instances: Sequence[str]) -> StageCost:
        """Return the cost of a stage of a group: the part of the cheapest of these types that its workers take."""
        stage, usd_per_vcpu_hour = self.stages[at], usd_per_vcpu_hour_of(self.stages)

        def usd_per_hour(seconds: float) -> float:
            usd = math.inf
            for offer, on in _within(stage, seconds):
                if offer.instance in instances:
                    placement = placement_of(offer, on.profile, stage.without_gpu)
                    of_worker = placed_usd_per_hour(placement, usd_per_vcpu_hour)
                    usd = min(usd, stage.instances(on, self.rps, seconds) * on.workers * of_worker)
            return usd

        return usd_per_hour


def _within(stage: GroupedStage, seconds: float) -> list[tuple[Offer, Candidate]]:
    """Return the offers that are fast enough for this part of RT_max, with the batches that are."""
    resolved = stage.resolved
    slo = Slo(seconds, resolved.slo.attainment)
    by_type: dict[str, Candidate | str] = {}
    found = []
    for offer, known in zip(resolved.offers, resolved.candidates, strict=True):
        if offer.instance not in by_type:
            by_type[offer.instance] = candidate(known.profile, slo, resolved.service.batching)
        on = by_type[offer.instance]
        if isinstance(on, Candidate):
            found.append((offer, on))
    return found


def _at_part(stage: GroupedStage, seconds: float) -> GroupedStage:
    """Return the stage with this part of RT_max and only the offers that are fast enough for it."""
    able = _within(stage, seconds)
    resolved = replace(
        stage.resolved,
        service=replace(stage.resolved.service, slo=Slo(seconds, stage.resolved.slo.attainment)),
        offers=tuple(offer for offer, _ in able),
        candidates=tuple(on for _, on in able),
    )
    return replace(stage, resolved=resolved)
