"""What of RT_max each stage is planned with where some are bought together.

What a group costs is no sum over its stages: whole instances hold workers of all of them. So several splits are made by
costs that are sums, and the one counts whose stages and groups cost least: that of stages by themselves, and one for
each instance type that a group may be on, by what workers take of it at the prices of its resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Candidate
from mark.domain.slo import Slo
from mark.pipelines.latency_split import StageCost, split_latency
from mark.pipelines.options import placed_usd_per_hour, placement_of
from mark.pipelines.stage_group import GroupedStage, shared_types, shared_usd_per_hour, usd_per_vcpu_hour_of
from mark.profiling.policy import candidate


@dataclass(frozen=True, eq=False, slots=True)
class SharedSplit:
    """What is to be split: `stages` have all of RT_max, `costs` are those of them by themselves or said parts.

    `groups` are the places of those that are bought together; `rps` is the load in queries/s.
    """

    pipeline: Pipeline
    patterns: NDArray[np.int64]
    stages: Sequence[GroupedStage]
    costs: Sequence[StageCost | float]
    groups: Sequence[Sequence[int]]
    rt_max_s: float
    rps: float

    def found(self) -> list[float]:
        """Seconds of each stage, as `split_latency` has them. Raises Infeasible where there is no split."""
        best: list[float] | None = None
        least = (math.inf, math.inf)
        reason: Infeasible | None = None
        for costs in self._sums():
            try:
                parts_s = split_latency(self.pipeline, self.patterns, costs, self.rt_max_s)
            except Infeasible as error:
                reason = reason or error
                continue
            usd = self.usd_per_hour(parts_s)
            if best is None or usd < least:
                best, least = parts_s, usd
        if best is None:
            assert reason is not None
            raise reason
        return best

    def usd_per_hour(self, parts_s: Sequence[float]) -> tuple[float, float]:
        """Of this split: with whole instances of what is shared, and as if those could be divided."""
        together = {at for group in self.groups for at in group}
        alone = sum(cost(parts_s[at]) for at, cost in enumerate(self.costs) if callable(cost) and at not in together)
        of_groups = [
            shared_usd_per_hour([_at_part(self.stages[at], parts_s[at]) for at in group], self.rps)
            for group in self.groups
        ]
        return alone + sum(whole for whole, _ in of_groups), alone + sum(fluid for _, fluid in of_groups)

    def _sums(self) -> Iterator[list[StageCost | float]]:
        yield list(self.costs)
        types = [shared_types([self.stages[at] for at in group]) for group in self.groups]
        for chosen, of_chosen in zip(self.groups, types, strict=True):
            for instance in of_chosen:
                costs = list(self.costs)
                for group, every in zip(self.groups, types, strict=True):
                    for at in group:
                        if callable(costs[at]):
                            costs[at] = self._by_workers(at, [instance] if group is chosen else every)
                yield costs

    def _by_workers(self, at: int, instances: Sequence[str]) -> StageCost:
        """Of a stage's load, at the price of what workers take of the cheapest of these types."""
        stage = self.stages[at]
        offers = zip(stage.resolved.offers, stage.resolved.candidates, strict=True)
        usd_per_vcpu_hour = usd_per_vcpu_hour_of(self.stages)
        able = [
            (known, placed_usd_per_hour(placement_of(offer, known.workers, stage.without_gpu), usd_per_vcpu_hour))
            for offer, known in offers
            if offer.instance in instances
        ]

        def usd_per_hour(seconds: float) -> float:
            slo = Slo(seconds, stage.resolved.slo.attainment)
            usd = math.inf
            for known, of_worker in able:
                found = candidate(known.profile, slo, stage.resolved.service.batching)
                if isinstance(found, Candidate):
                    usd = min(usd, self.rps * stage.calls * found.workers / found.capacity_rps * of_worker)
            return usd

        return usd_per_hour


def _at_part(stage: GroupedStage, seconds: float) -> GroupedStage:
    """The stage with this part of RT_max: its offers that are fast enough, with the batches that are."""
    resolved = stage.resolved
    slo = Slo(seconds, resolved.slo.attainment)
    by_type: dict[str, Candidate | str] = {}
    able = []
    for offer, known in zip(resolved.offers, resolved.candidates, strict=True):
        if offer.instance not in by_type:
            by_type[offer.instance] = candidate(known.profile, slo, resolved.service.batching)
        found = by_type[offer.instance]
        if isinstance(found, Candidate):
            able.append((offer, found))
    service = replace(resolved.service, slo=slo)
    narrowed = replace(
        resolved,
        service=service,
        offers=tuple(offer for offer, _ in able),
        candidates=tuple(found for _, found in able),
    )
    return replace(stage, resolved=narrowed)
