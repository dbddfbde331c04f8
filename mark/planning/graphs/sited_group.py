"""Stages that a site's controller buys together: its planning input, by the pipeline's file alone."""

from __future__ import annotations

from dataclasses import dataclass

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog
from mark.domain.service import ServiceConfig
from mark.planning.graphs.lineage_file import called_by_all, calls_per_query
from mark.planning.graphs.stage_group import GroupedStage, StageGroup, lead_of, stage_group
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """The calls that queries make of stages that are bought together, in the order of the service's stages."""

    places: tuple[int, ...]  # in the pipeline
    lead: int  # index of the lead among these
    calls: tuple[float, ...]  # mean calls of a query

    @classmethod
    def of(cls, config: PipelineConfig, service: ServiceConfig) -> GroupCalls:
        """Count the calls. Raises BadInput if no file says how often a query calls each stage."""
        calls = calls_per_query(config)
        if calls is None:
            what = "takes a file that says how often a query calls each stage: [service] lineage"
            raise BadInput(what, f"{config.source} [packs] together", ", ".join(service.together))
        by_all = called_by_all(config)
        places = tuple(config.names.index(name) for name in service.together)
        own = tuple(calls[at] for at in places)
        return cls(places, lead_of(own, [by_all[at] for at in places]), own)

    @property
    def per_lead(self) -> tuple[float, ...]:
        """Calls of each stage for each call of the lead."""
        lead = self.calls[self.lead]
        return tuple(calls / lead if lead > 0.0 else 1.0 for calls in self.calls)


def sited_group(config: PipelineConfig, service: ServiceConfig, catalog: Catalog) -> StageGroup:
    """Return the stages of `service`, which is one of the services that the file's stages are bought as.

    Raises BadInput, Infeasible.
    """
    known = GroupCalls.of(config, service)
    alone = {one.stage: one for one in config.stage_services()}
    stages = [
        GroupedStage(resolve(alone[name], catalog, service_profiles(alone[name])), calls, config.stages[at].without_gpu)
        for name, at, calls in zip(service.together, known.places, known.calls, strict=True)
    ]
    return stage_group(service, stages, known.lead)
