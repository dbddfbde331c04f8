"""A pipeline whose instances each serve the whole file: its controller's planning input, by the file alone.

The requests are queries. A query calls each stage as often as the file's lineage says, else once; an instance has the
workers that its server gives each stage (`mark.planning.graphs.shared_workers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mark.config.pipeline_config import LEAST_CONDUCTORS, PipelineConfig
from mark.domain.errors import BadInput, Infeasible
from mark.domain.offer import Catalog
from mark.domain.profile import Profile
from mark.domain.service import ServiceConfig
from mark.planning.graphs.lineage_file import calls_per_query
from mark.planning.graphs.stage_group import GroupedStage, StageGroup, stage_group
from mark.planning.resolve import committed_of, profile_of, resolve
from mark.profiling.version_profiles import service_profiles
from mark.serving.conductor.graph import StageGraph, parts


def whole_fleet(config: PipelineConfig, service: ServiceConfig, catalog: Catalog) -> StageGroup:
    """Return the stages of `service`, the whole file as one, with the instance types that have room for all of them.

    Raises BadInput if nothing says how often a query calls a stage, Infeasible if no instance type keeps the promise.
    """
    calls = calls_per_query(config)
    if calls is None:
        what = "takes a file that says how often a query calls each stage: [service] lineage"
        raise BadInput(what, f"{config.source} [conductors] count", config.conductors)
    alone = [config.stage_service(stage, config.slo.rt_max_s) for stage in config.stages]
    profiles = [service_profiles(one) for one in alone]
    of_model = [found.get(one.model, {}) for one, found in zip(alone, profiles, strict=True)]
    parts_s = stage_parts_s(config, _single_s(alone, of_model, catalog))
    stages = [
        GroupedStage(resolve(config.stage_service(stage, part_s), catalog, found), calls_of_stage, stage.without_gpu)
        for stage, part_s, found, calls_of_stage in zip(config.stages, parts_s, profiles, calls, strict=True)
    ]
    try:
        found = stage_group(service, stages, None)
    except Infeasible as error:
        advice = f"[conductors] count = {LEAST_CONDUCTORS} gives each stage a fleet of its own"
        raise Infeasible(f"{error}; {advice}", error.helps) from None
    committed, usd_per_hour = committed_of(service, catalog)
    resolved = replace(found.resolved, committed=committed, committed_usd_per_hour=usd_per_hour)
    return replace(found, resolved=resolved)


def stage_parts_s(config: PipelineConfig, single_s: Sequence[float]) -> list[float]:
    """Return each stage's part of RT_max: its own `slo_ms`, else as its server splits it, by the seconds of one
    item.
    """
    graph = None if config.pipeline is None else StageGraph(config.pipeline)
    shares = parts(single_s, graph)
    return [
        share * config.slo.rt_max_s if stage.rt_max_s is None else stage.rt_max_s
        for stage, share in zip(config.stages, shares, strict=True)
    ]


def _single_s(
    services: Sequence[ServiceConfig], of_model: Sequence[Mapping[str, Profile]], catalog: Catalog
) -> list[float]:
    """Return the mean time of one item in each stage over the types that all may have and have a profile on; else 1.

    An instance splits RT_max by the times of its own type; a fleet may have several types.
    """
    types = {offer.instance for offer in catalog.offers if all(service.wants(offer) for service in services)}
    found = [[profile_of(profiles, instance) for profiles in of_model] for instance in sorted(types)]
    known = [[one.latency_s(1) + one.overhead_s for one in of_type if one is not None] for of_type in found]
    complete = [of_type for of_type in known if len(of_type) == len(services)]
    if not complete:
        return [1.0] * len(services)
    return [sum(of_stage) / len(complete) for of_stage in zip(*complete, strict=True)]
