"""The plan of a service with parity models: a fleet for the model, and one for each parity model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.studies.decision import PlannedService, planned_for
from mark.studies.insured import insured_visits
from mark.studies.pipeline_stages import controlled_stages


@dataclass(frozen=True, slots=True)
class InsuredPlan:
    """The first fleets of a part that starts at `at_s`, by stage."""

    config: PipelineConfig
    at_s: float
    read: str  # the trace that was read, in words
    stages: dict[str, PlannedService]
    notes: tuple[str, ...]

    @property
    def usd_per_hour(self) -> float:
        """The price of all fleets."""
        prices = {
            (name, offer.name): offer.usd_per_hour
            for name, planned in self.stages.items()
            for offer in planned.context.resolved.offers
        }
        return sum(
            target.count * prices[name, target.offer]
            for name, planned in self.stages.items()
            for target in planned.plan.targets
        )


def plan_insured_once(
    request: RunRequest,
    at_s: float | None = None,
    *,
    lineage: str | None = None,
    queries: str | None = None,
    answers: str | None = None,
) -> InsuredPlan:
    """Return the plan of policy `mark` for the stages at `at_s` of the trace, by default its last minute.

    Coding groups have the size that the minute's load gives. Raises BadInput, Infeasible.
    """
    config = load_pipeline(request.service)
    trace = trace_named_in(request)
    if at_s is None:
        at_s = max(0.0, trace.duration_s - 60.0)
    if at_s >= trace.duration_s:
        raise BadInput(f"beyond the end of {trace.name} at {trace.duration_s:g} s", "at_s", at_s)
    request = replace(request, start_s=at_s)
    part = trace.part(at_s, request.duration_s, request.scale)
    queries_rps = part.requests / part.duration_s
    pipeline, law, notes = insured_visits(config, queries_rps, lineage, queries, answers)
    stages, _ = controlled_stages(request, config, pipeline, law, trace, part, np.array([[queries_rps]]))
    planned = {name: planned_for(stage.inputs) for name, stage in zip(pipeline.names, stages, strict=True)}
    return InsuredPlan(config, at_s, trace.read, planned, tuple(notes))
