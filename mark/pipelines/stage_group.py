"""Stages that are bought together: one service to what plans and buys, with workers of each stage on every instance.

An instance of a type has a fixed number of workers of each stage, as a pod has containers; what a worker takes is in
`mark.pipelines.options`. The service's requests are the calls of one of its stages, the lead. With each come calls of
the others, in fixed proportions in the mean, so an instance can do as many as the stage allows of which it can do the
fewest queries.
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
from mark.pipelines.options import placed_usd_per_hour, placement_of
from mark.pipelines.packs import Placement

_EXACT = 1e-9
_LEAST_SLACK = 0.01  # of its part of RT_max: what a stage's calls may wait at least (`longest_wait_s`)


@dataclass(frozen=True, eq=False, slots=True)
class GroupedStage:
    """A stage as the service that it would be by itself, with its part of RT_max."""

    resolved: ResolvedService
    calls: float  # of a query, in the mean
    without_gpu: bool = False  # its workers take none of an instance's GPUs


@dataclass(frozen=True, eq=False, slots=True)
class StageGroup:
    """Stages as one service, whose offers all of them can be on; rates of `resolved` are of the lead's calls."""

    lead: int
    resolved: ResolvedService
    stages: tuple[ResolvedService, ...]  # with the same offers, and of each the workers that an instance has
    dollar_shares: tuple[tuple[float, ...], ...]  # of an instance of each offer: what a stage's workers take of it


@dataclass(frozen=True, eq=False, slots=True)
class _Shared:
    """An offer with workers of all stages on it."""

    offer: Offer
    placements: tuple[Placement, ...]
    candidates: tuple[Candidate, ...]
    queries_rps: float
    limited_by: int  # the stage that it can do the fewest queries of


def lead_of(calls: Sequence[float], by_all: Sequence[bool]) -> int:
    """Which stage of a group tells its load: the first one that every query calls alike, else the most called one.

    What queries come to it by chance is Poisson, as planners take requests to be; the calls of all stages come in
    bunches. And what another stage of the group refuses is missing at as few as possible.
    """
    alike = [at for at, by_every in enumerate(by_all) if by_every]
    return alike[0] if alike else max(range(len(calls)), key=lambda at: (calls[at], -at))


def stage_group(service: ServiceConfig, stages: Sequence[GroupedStage], lead: int) -> StageGroup:
    """The stages as this service, whose RT_max is no shorter than the part of any of them.

    Raises Infeasible where there is no instance type that has room for all of them and is fast enough for each.
    """
    shared = list(_shared(stages))
    skipped = dict(_skipped(stages, {one.offer.instance for one in shared}))
    if not shared:
        reasons = "; ".join(f"{instance}: {why}" for instance, why in sorted(skipped.items()))
        raise Infeasible(f"no instance type for all of {', '.join(service.together)} ({reasons})")
    first = stages[0].resolved
    usd_per_vcpu_hour = usd_per_vcpu_hour_of(stages)
    resolved = ResolvedService(
        service=service,
        catalog=first.catalog,
        offers=tuple(one.offer for one in shared),
        candidates=tuple(_as_one(service, stages, one, lead) for one in shared),
        function=None,
        skipped=tuple(sorted(skipped.items())),
    )
    return StageGroup(
        lead,
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
    """Instance types with room for all of the stages, that each may have."""
    return list(dict.fromkeys(one.offer.instance for one in _shared(stages)))


def usd_per_vcpu_hour_of(stages: Sequence[GroupedStage]) -> float:
    """Of the cheapest processor: what is dearer about an instance with GPUs is theirs."""
    offers = [offer for stage in stages for offer in stage.resolved.offers]
    return min((offer.usd_per_hour / offer.vcpu for offer in offers if offer.vcpu and not offer.gpus), default=0.0)


def shared_usd_per_hour(stages: Sequence[GroupedStage], queries_rps: float) -> tuple[float, float]:
    """$/h of the cheapest instances of one offer that do so many queries, whole ones and as if they could be divided.

    Infinite where no offer is for all stages.
    """
    found = [
        (max(1, math.ceil(queries_rps / one.queries_rps - _EXACT)) * usd, queries_rps / one.queries_rps * usd)
        for one in _shared(stages)
        for usd in [one.offer.usd_per_hour]
    ]
    return min(found, default=(math.inf, math.inf))


def workers_on_one(placements: Sequence[Placement], worker_rps: Sequence[float]) -> tuple[int, ...] | None:
    """Workers of each stage on one instance, so that the queries/s of all of them are as many as possible.

    `worker_rps` (queries/s) is what one worker of each stage can do, infinite where no query calls it; `placements`
    what it takes. None where there is no room for one of each. The stage that can do the fewest has one more as long as
    there is room; what is left then is for the others, in the same way. That is the best: for a rate all stages need at
    least ceil(rate / worker_rps) workers, and these are what the steps on the way to it give.
    """
    host = placements[0].host
    vcpus = host.vcpus + _EXACT - sum(one.vcpus for one in placements)
    gpus = host.gpus + _EXACT - sum(one.gpus for one in placements)
    if vcpus < 0.0 or gpus < 0.0:
        return None
    workers = [1] * len(placements)
    growing = [at for at, rps in enumerate(worker_rps) if rps < math.inf]
    while growing:
        least = min(growing, key=lambda at: workers[at] * worker_rps[at])
        takes = placements[least]
        if takes.vcpus <= vcpus and takes.gpus <= gpus:
            workers[least] += 1
            vcpus, gpus = vcpus - takes.vcpus, gpus - takes.gpus
        else:
            growing.remove(least)
    return tuple(workers)


def _by_offer(stage: GroupedStage) -> Mapping[str, Candidate]:
    resolved = stage.resolved
    return {offer.name: one for offer, one in zip(resolved.offers, resolved.candidates, strict=True)}


def _shared(stages: Sequence[GroupedStage]) -> Iterator[_Shared]:
    able = [_by_offer(stage) for stage in stages]
    for offer in stages[0].resolved.offers:
        if not offer.vcpu or not all(offer.name in of_stage for of_stage in able):
            continue
        alone = [of_stage[offer.name] for of_stage in able]
        worker_rps = [
            one.capacity_rps / one.workers / stage.calls if stage.calls > 0.0 else math.inf
            for one, stage in zip(alone, stages, strict=True)
        ]
        placements = tuple(
            placement_of(offer, one.workers, stage.without_gpu) for stage, one in zip(stages, alone, strict=True)
        )
        workers = workers_on_one(placements, worker_rps)
        if workers is None:
            continue
        rps = [n * rps for n, rps in zip(workers, worker_rps, strict=True)]
        candidates = tuple(_with_workers(one, n) for one, n in zip(alone, workers, strict=True))
        limited_by = rps.index(min(rps))
        if rps[limited_by] == math.inf:  # no query calls any: as if each called all
            rps[limited_by] = min(one.capacity_rps for one in candidates)
        yield _Shared(offer, placements, candidates, rps[limited_by], limited_by)


def _with_workers(alone: Candidate, workers: int) -> Candidate:
    rows = tuple(replace(row, workers=workers) for row in alone.profile.rows)
    part = workers / alone.workers
    return replace(
        alone,
        profile=replace(alone.profile, rows=rows),
        capacity_rps=part * alone.capacity_rps,
        ceiling_rps=part * alone.ceiling_rps,
    )


def _as_one(service: ServiceConfig, stages: Sequence[GroupedStage], shared: _Shared, lead: int) -> Candidate:
    """All stages on one instance as a model of one kind of calls, the lead's.

    Its time leaves of RT_max as much as makes its queue as long as that of the stage that limits the instance: capacity
    x wait is the number of calls that are queued before some are refused (`mark.planning.demand.served_load`).
    """
    at = shared.limited_by
    limiting, part_s = shared.candidates[at], stages[at].resolved.slo.rt_max_s
    wait_s = max(part_s - limiting.overhead_s - float(limiting.service_s[-1]), _LEAST_SLACK * part_s)
    if stages[lead].calls > 0.0:
        wait_s *= stages[at].calls / stages[lead].calls
    takes_s = max(service.slo.rt_max_s - wait_s, _LEAST_SLACK * service.slo.rt_max_s)
    rows = [row for one in shared.candidates for row in one.profile.rows if row.batch <= one.policy.n_batch]
    row = ProfileRow(
        1,
        1e3 * takes_s,
        workers=sum(one.workers for one in shared.candidates),
        basis=weakest(row.basis for row in rows or limiting.profile.rows),
    )
    rps = shared.queries_rps * (stages[lead].calls or 1.0)
    return Candidate(
        profile=Profile(service.model, shared.offer.instance, (row,)),
        policy=BatchPolicy(1, 0.0),
        service_s=np.array([0.0, takes_s]),
        capacity_rps=rps,
        ceiling_rps=rps,
    )


def _dollar_shares(shared: _Shared, usd_per_vcpu_hour: float) -> tuple[float, ...]:
    """At resources' prices; a GPU's worth is what it costs beyond the vCPUs beside it."""
    takes = [
        one.workers * placed_usd_per_hour(placement, usd_per_vcpu_hour)
        for one, placement in zip(shared.candidates, shared.placements, strict=True)
    ]
    if not sum(takes):
        takes = [float(one.workers) for one in shared.candidates]
    return tuple(taken / sum(takes) for taken in takes)


def _skipped(stages: Sequence[GroupedStage], shared: set[str]) -> Iterator[tuple[str, str]]:
    """Instance types that are not for all stages, and why."""
    for stage in stages:
        for offer in stage.resolved.offers:
            if offer.instance not in shared:
                yield offer.instance, "no room for a worker of each stage" if offer.vcpu else "its vCPUs are not known"
    for stage in stages:
        yield from stage.resolved.skipped
