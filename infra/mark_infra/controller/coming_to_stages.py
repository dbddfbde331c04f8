"""The calls that the stages of a pipeline will get, by the services that buy the stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from mark.config.pipeline_config import PipelineConfig
from mark.control.coming_calls import ComingCalls, PipelineCalls, StageNow
from mark.planning.graphs.sited_group import GroupCalls


class ComingToStages:
    """The calls that will come to the stages of a pipeline, asked by the service that buys the stage."""

    def __init__(self, config: PipelineConfig, calls: PipelineCalls) -> None:
        self._calls, self._of_stages = calls, list(config.service_of_stages().values())
        self._groups = {one.name: GroupCalls.of(config, one) for one in config.bought_services() if one.together}
        self.services = tuple(dict.fromkeys(self._of_stages))

    def coming(self, service: str, seen: Mapping[str, StageNow | None]) -> ComingCalls | None:
        """Return the calls that the service will get, from the present state of all stages."""
        nows = [self._now(at, name, seen[name]) for at, name in enumerate(self._of_stages)]
        group = self._groups.get(service)
        if group is None:
            return self._calls.coming(self._of_stages.index(service), nows)
        return self._calls.coming(group.places[group.lead], nows, group.places)

    def _now(self, at: int, service: str, now: StageNow | None) -> StageNow | None:
        """Return a stage's state. A stage that is bought with others gets its part of their common state."""
        if now is None or service not in self._groups:
            return now
        group = self._groups[service]
        part = group.per_lead[group.places.index(at)]
        return replace(now, windows_rps=part * now.windows_rps, capacity_rps=part * now.capacity_rps)


def stages_alone(pipeline: PipelineConfig, services: Collection[str]) -> dict[str, str]:
    """Return the service's name by stage, for the stages of `services` that share their fleet with no other stage."""
    of = pipeline.service_of_stages()
    return {group[0]: of[group[0]] for group in pipeline.groups if len(group) == 1 and of[group[0]] in services}
