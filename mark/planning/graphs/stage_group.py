"""Stages that are bought together: for the planner one service, with workers of each stage on every instance.

An instance of a type has a fixed number of workers of each stage (`mark.planning.graphs.shared_workers`). The service's
requests are the calls of one of its stages, the lead, or the queries themselves. Each comes with calls of the others,
in fixed proportions on average, so an instance serves as many queries as its slowest stage.

Planners know one capacity of an instance and one time that a request may wait. Stages differ in both: a small stage is
quick and may wait for little. So the rate that an instance of each type serves in time is computed by stages, by the
planners' own formula (`mark.planning.demand.served_load`), and the instance gets the capacity with which planners find
that rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import Infeasible
from mark.domain.offer import Offer
from mark.domain.profile import BatchPolicy, Candidate, Profile, ProfileRow, weakest
from mark.domain.service import ResolvedService, ServiceConfig
from mark.planning.demand.served_load import capacity_for, load_for
from mark.planning.graphs.packing import Placement, placed_usd_per_hour, placement_of
from mark.planning.graphs.shared_workers import workers_together

_EXACT = 1e-9
_LEAST_WAIT = 0.01  # share of the stage's part of RT_max that its calls may always wait (`longest_wait_s`)


@dataclass(frozen=True, eq=False, slots=True)
class GroupedStage:
    """A stage as a service of its own, with its part of RT_max."""

    resolved: ResolvedService
    calls: float  # mean calls of a query
    without_gpu: bool = False  # its workers use no GPU of an instance

    @property
    def late_share(self) -> float:
        """Share of its calls that may be missed."""
        return 1.0 - self.resolved.slo.attainment

    def wait_s(self, on: Candidate, part_s: float | None = None) -> float:
        """Return how long its calls may wait for their service to begin there, with its part of RT_max or another
        one.
        """
        part_s = self.resolved.slo.rt_max_s if part_s is None else part_s
        return max(part_s - on.overhead_s - float(on.service_s[-1]), _LEAST_WAIT * part_s)

    def instances(self, on: Candidate, queries_rps: float, part_s: float | None = None) -> float:
        """Return how many of these miss no more of this load than allowed, as if they could be divided."""
        load_rps = queries_rps * self.calls
        if load_rps <= 0.0:
            return 0.0
        return capacity_for(load_rps, self.late_share, self.wait_s(on, part_s)) / on.capacity_rps


@dataclass(frozen=True, eq=False, slots=True)
class StageGroup:
    """Stages as one service with the offers that suit all of them; rates of `resolved` are of the lead's calls."""

    resolved: ResolvedService
    stages: tuple[ResolvedService, ...]  # with the same offers, each with the stage's own workers on an instance
    dollar_shares: tuple[tuple[float, ...], ...]  # by offer, each stage's part of an instance's dollars


@dataclass(frozen=True, eq=False, slots=True)
class _Shared:
    """An offer with workers of all stages on it."""

    offer: Offer
    placements: tuple[Placement, ...]
    candidates: tuple[Candidate, ...]
    queries_rps: float  # the rate that keeps its busiest workers busy
    bears_rps: float  # queries/s of which one instance serves enough in time
    limited_by: int  # the stage with the lowest rate


def lead_of(calls: Sequence[float], by_all: Sequence[bool]) -> int:
    """Return the lead of a group: the first stage that every query calls equally often, else the most called one.

    The lead's calls are the group's load. Calls made by chance are Poisson, as planners assume, whereas the calls of
    all stages together come in bunches. And calls that another stage refuses are missing at as few stages as possible.
    """
    alike = [at for at, by_every in enumerate(by_all) if by_every]
    return alike[0] if alike else max(range(len(calls)), key=lambda at: (calls[at], -at))


def stage_group(service: ServiceConfig, stages: Sequence[GroupedStage], lead: int | None) -> StageGroup:
    """Return the stages as this service, whose RT_max is at least the longest of their parts.

    Its requests are the calls of the stage at `lead`; None: they are queries. Raises Infeasible if no instance type has
    room for all stages and is fast enough for each.
    """
    shared = list(_shared(stages))
    skipped = dict(_skipped(stages, {one.offer.instance for one in shared}))
    if not shared:
        reasons = "; ".join(f"{instance}: {why}" for instance, why in sorted(skipped.items()))
        names = ", ".join(stage.resolved.service.stage for stage in stages)
        raise Infeasible(f"no instance type for all of {names} ({reasons})")
    calls = 1.0 if lead is None else stages[lead].calls or 1.0
    first, patience_s = stages[0].resolved, _patience_s(service, stages, shared, calls)
    usd_per_vcpu_hour = usd_per_vcpu_hour_of(stages)
    resolved = ResolvedService(
        service=service,
        catalog=first.catalog,
        offers=tuple(one.offer for one in shared),
        candidates=tuple(_as_one(service, stages, one, calls, patience_s) for one in shared),
        function=None,
        skipped=tuple(sorted(skipped.items())),
    )
    return StageGroup(
        resolved,
        tuple(
            replace(
                stage.resolved,
                offers=resolved.offers,
                candidates=tuple(one.candidates[at] for one in shared),
                function=None,
                skipped=resolved.skipped,
            )
            for at, stage in enumerate(stages)
        ),
        tuple(_dollar_shares(one, usd_per_vcpu_hour) for one in shared),
    )


def shared_types(stages: Sequence[GroupedStage]) -> list[str]:
    """Return the instance types that suit each of the stages and have room for all."""
    return list(dict.fromkeys(one.offer.instance for one in _shared(stages)))


def usd_per_vcpu_hour_of(stages: Sequence[GroupedStage]) -> float:
    """Return the vCPU price of the cheapest processor. The higher price of GPU instances is that of their GPUs."""
    offers = [offer for stage in stages for offer in stage.resolved.offers]
    return min((offer.usd_per_hour / offer.vcpu for offer in offers if offer.vcpu and not offer.gpus), default=0.0)


def shared_usd_per_hour(stages: Sequence[GroupedStage], queries_rps: float) -> float:
    """Return the $/h of the cheapest instances of one offer on which no stage misses more of these queries than it may.

    Infinite if no offer suits all stages.
    """
    return min(
        (max(1, math.ceil(needs - _EXACT)) * usd for needs, usd in _needs(stages, queries_rps)), default=math.inf
    )


def divided_usd_per_hour(stages: Sequence[GroupedStage], queries_rps: float) -> float:
    """Return the same $/h as if instances could be divided."""
    return min((needs * usd for needs, usd in _needs(stages, queries_rps)), default=math.inf)


def _needs(stages: Sequence[GroupedStage], queries_rps: float) -> Iterator[tuple[float, float]]:
    """Yield for each offer the number of instances, as if they could be divided, and the $/h of one."""
    for one in _shared(stages):
        needs = max(stage.instances(on, queries_rps) for stage, on in zip(stages, one.candidates, strict=True))
        yield needs, one.offer.usd_per_hour


def _by_offer(stage: GroupedStage) -> Mapping[str, Candidate]:
    resolved = stage.resolved
    return {offer.name: one for offer, one in zip(resolved.offers, resolved.candidates, strict=True)}


def _shared(stages: Sequence[GroupedStage]) -> Iterator[_Shared]:
    able = [_by_offer(stage) for stage in stages]
    for offer in stages[0].resolved.offers:
        if not offer.vcpu or not all(offer.name in of_stage for of_stage in able):
            continue
        alone = [of_stage[offer.name] for of_stage in able]
        placements = tuple(
            placement_of(offer, one.profile, stage.without_gpu) for stage, one in zip(stages, alone, strict=True)
        )
        workers = workers_together(placements, alone, [stage.calls for stage in stages])
        if workers is None:
            continue
        candidates = tuple(_with_workers(one, n) for one, n in zip(alone, workers, strict=True))
        # If queries never call these stages, count as if each query called all.
        calls = [stage.calls for stage in stages] if any(stage.calls for stage in stages) else [1.0] * len(stages)
        bears = [
            load_for(on.capacity_rps, stage.late_share, stage.wait_s(on)) / each if each > 0.0 else math.inf
            for stage, on, each in zip(stages, candidates, calls, strict=True)
        ]
        queries_rps = min(on.capacity_rps / each for on, each in zip(candidates, calls, strict=True) if each > 0.0)
        yield _Shared(offer, placements, candidates, queries_rps, min(bears), bears.index(min(bears)))


def _with_workers(alone: Candidate, workers: int) -> Candidate:
    rows = tuple(replace(row, workers=workers) for row in alone.profile.rows)
    part = workers / alone.workers
    return replace(
        alone,
        profile=replace(alone.profile, rows=rows),
        capacity_rps=part * alone.capacity_rps,
        ceiling_rps=part * alone.ceiling_rps,
    )


def _patience_s(
    service: ServiceConfig, stages: Sequence[GroupedStage], shared: Sequence[_Shared], calls: float
) -> float:
    """Return how long requests may wait in the planner's formula for it to find the rate of the best offer.

    The best offer is the cheapest for its rate; a query makes `calls` requests. The wait exceeds RT_max if the formula
    finds less with RT_max.
    """
    best = min(shared, key=lambda one: one.offer.usd_per_hour / one.bears_rps)
    late_share = stages[best.limited_by].late_share
    low, high = 0.0, service.slo.rt_max_s
    while load_for(calls * best.queries_rps, late_share, high) < calls * best.bears_rps:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        if load_for(calls * best.queries_rps, late_share, middle) < calls * best.bears_rps:
            low = middle
        else:
            high = middle
    return high


def _as_one(
    service: ServiceConfig, stages: Sequence[GroupedStage], shared: _Shared, calls: float, patience_s: float
) -> Candidate:
    """Return all stages on one instance as one model; a query is `calls` requests to it, which may wait
    `patience_s`.
    """
    takes_s = max(service.slo.rt_max_s - patience_s, _LEAST_WAIT * service.slo.rt_max_s)
    rows = [row for one in shared.candidates for row in one.profile.rows if row.batch <= one.policy.n_batch]
    row = ProfileRow(
        1,
        1e3 * takes_s,
        workers=sum(one.workers for one in shared.candidates),
        basis=weakest(row.basis for row in rows or shared.candidates[0].profile.rows),
    )
    late_share = stages[shared.limited_by].late_share
    rps = min(calls * shared.queries_rps, capacity_for(calls * shared.bears_rps, late_share, patience_s))
    return Candidate(
        profile=Profile(service.model, shared.offer.instance, (row,)),
        policy=BatchPolicy(1, 0.0),
        service_s=np.array([0.0, takes_s]),
        capacity_rps=rps,
        ceiling_rps=rps,
    )


def _dollar_shares(shared: _Shared, usd_per_vcpu_hour: float) -> tuple[float, ...]:
    """Return each stage's part of the dollars at the resources' prices; a GPU costs the price beyond its vCPUs."""
    takes = [
        one.workers * placed_usd_per_hour(placement, usd_per_vcpu_hour)
        for one, placement in zip(shared.candidates, shared.placements, strict=True)
    ]
    if not sum(takes):
        takes = [float(one.workers) for one in shared.candidates]
    return tuple(taken / sum(takes) for taken in takes)


def _skipped(stages: Sequence[GroupedStage], shared: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the instance types that do not suit all stages, and why."""
    types = [{offer.instance for offer in stage.resolved.offers} for stage in stages]
    for stage in stages:
        for offer in stage.resolved.offers:
            if offer.instance in shared:
                continue
            others = [
                other.resolved.service.stage
                for other, of_other in zip(stages, types, strict=True)
                if offer.instance not in of_other
            ]
            if others:
                yield offer.instance, f"none of the types that {', '.join(others)} may have"
            else:
                yield offer.instance, "no room for a worker of each stage" if offer.vcpu else "its vCPUs are not known"
    for stage in stages:
        yield from stage.resolved.skipped
