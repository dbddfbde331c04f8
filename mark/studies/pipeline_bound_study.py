"""From a pipeline file and a trace to the clairvoyant bound: look up the inputs and draw each query's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mark.cloud.billing.extras import LEFT_OUT
from mark.cloud.ec2.spot_series import load_spot_series
from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market
from mark.domain.pipeline import Lineage, Pipeline
from mark.domain.service import ResolvedService
from mark.planning.bounds.lower_bound import StepSeries
from mark.planning.bounds.pipeline_bound import PipelineBound, PipelineBoundProblem, pipeline_bound
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.studies.pipeline_plan import graph_and_law, shares_instances, stage_looked_up, stages_that_share
from mark.traffic.traces.trace import Part, Trace

# A query takes some hundred bytes of memory.
MOST_QUERIES = 20_000_000
MEAN_TIMES = "batches take their mean times: p99_ms is left out"


@dataclass(frozen=True, slots=True)
class BoundedPipeline:
    """The bound with no late query, and the bound with all late queries that the promise allows."""

    config: PipelineConfig
    trace: str
    queries: int
    shared: bool  # whether several stages may be on one instance
    at_zero: PipelineBound
    within_slo: PipelineBound
    notes: tuple[str, ...]
    read: str = ""  # the trace that was read, in words


def bound_pipeline(
    request: RunRequest,
    *,
    lineage: str | None = None,
    queries: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> BoundedPipeline:
    """Return the least cost of a pipeline's fleet in the request's part; `lineage` and `queries` as for a plan.

    Each query's calls are drawn with the seed. Raises BadInput for unusable input, Infeasible if a stage has neither an
    instance type nor a function that is fast enough.
    """
    opened = _open(request)
    config = opened.config
    pipeline, law, seen = graph_and_law(config, lineage, queries)
    problem = opened.problem(pipeline, law)
    at_zero = pipeline_bound(problem)
    if progress is not None:
        progress(0.5)
    within_slo = pipeline_bound(problem, _late_allowed(problem))
    profiles = [candidate.profile for stage in opened.resolved.values() for candidate in stage.candidates]
    return BoundedPipeline(
        config,
        opened.trace.name,
        len(problem.arrivals_s),
        problem.shared,
        at_zero,
        within_slo,
        read=opened.trace.read,
        notes=(
            f"prices of {opened.catalog.priced}",
            *seen,
            *([MEAN_TIMES] if any(row.p99_ms is not None for one in profiles for row in one.rows) else []),
            *(["commitments are left out: every instance is paid"] if config.fleet.committed else []),
            *([LEFT_OUT] if opened.catalog.bills_extras else []),
        ),
    )


def promise_bound(request: RunRequest, pipeline: Pipeline, law: Lineage) -> PipelineBound:
    """Return the bound with all late queries that the promise allows, for a known graph and law of visits.

    Raises the errors of `bound_pipeline`.
    """
    problem = _open(request).problem(pipeline, law)
    return pipeline_bound(problem, _late_allowed(problem))


def _late_allowed(problem: PipelineBoundProblem) -> float:
    return (1.0 - problem.slo.attainment) * len(problem.arrivals_s)


@dataclass(frozen=True, eq=False, slots=True)
class _Opened:
    """The inputs of a bound, except the driver's."""

    request: RunRequest
    config: PipelineConfig
    resolved: Mapping[str, ResolvedService]  # by stage
    spot: tuple[StepSeries, ...]
    trace: Trace
    part: Part

    @property
    def catalog(self) -> Catalog:
        return self.resolved[self.config.names[0]].catalog

    def problem(self, pipeline: Pipeline, law: Lineage) -> PipelineBoundProblem:
        """Return the problem with the part's queries, whose calls are drawn with the seed."""
        request, part = self.request, self.part
        chunks = [times for times, _ in self.trace.chunks(part.start_s, part.end_s, request.scale, request.seed)]
        arrivals_s = np.concatenate(chunks) if chunks else np.empty(0)
        return PipelineBoundProblem(
            pipeline,
            arrivals_s,
            law.drawn_patterns(len(arrivals_s), np.random.default_rng(request.seed)),
            law.calls,
            stages_that_share(self.config, pipeline, self.resolved),
            self.config.slo,
            part.duration_s,
            not request.cold_start,
            self.spot,
            request.spot_first_hour_free,
            shares_instances(self.config),
        )


def _open(request: RunRequest) -> _Opened:
    """Open the inputs before a driver's models are loaded, so that a wrong name shows within seconds."""
    config = load_pipeline(request.service)
    config.check_uninsured("a bound")
    if config.selection is not None:
        what = "is not bounded: it can answer a query without a call that it asked for, so no bound of its calls holds"
        raise BadInput(what, f"{config.source} [selection]", config.selection.policy)
    resolved = {stage.name: stage_looked_up(config, stage, config.service(stage), request) for stage in config.stages}
    first = resolved[config.names[0]].catalog
    prices = {offer.instance: offer.usd_per_hour for offer in first.offers if offer.market is Market.ON_DEMAND}
    spot = tuple(load_spot_series(path, prices) for path in request.spot_traces)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    if part.requests > MOST_QUERIES:
        what = f"at most {MOST_QUERIES:,} queries of a pipeline are bounded at a time: choose a shorter part"
        raise BadInput(what, trace.name, f"{part.requests:,.0f}")
    if spot and shares_instances(config):
        what = 'series are not known by part of an instance: leave this out, or say [packs] allow = "separate"'
        raise BadInput(what, "spot_trace", ", ".join(request.spot_traces))
    return _Opened(request, config, resolved, spot, trace, part)
