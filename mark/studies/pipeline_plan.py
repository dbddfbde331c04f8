"""From a pipeline file and a trace to one plan: look up the inputs and draw the busiest window's traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.cloud.billing.extras import LEFT_OUT
from mark.config.fleet import markets_of
from mark.config.pipeline_config import PipelineConfig, StageConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput, Infeasible
from mark.domain.offer import Market
from mark.domain.pipeline import Lineage, Pipeline
from mark.domain.profile import Basis
from mark.domain.service import ResolvedService, ServiceConfig
from mark.planning.bounds.fixed_bound import FixedFleetBound, fixed_fleet_bound
from mark.planning.bounds.pipeline_bound import PipelineBoundProblem
from mark.planning.graphs.estimate import QuerySample
from mark.planning.graphs.explained_plan import PipelinePlan, plan_pipeline
from mark.planning.graphs.lineage_file import load_lineage
from mark.planning.graphs.stage_options import InstanceOption, instance_options, shared_options, shared_stages
from mark.planning.graphs.trace_file import trace_file
from mark.planning.marginal_prices import planned_usd
from mark.simulation.inputs import looked_up, trace_named_in
from mark.simulation.request import RunRequest
from mark.simulation.selected_calls import SelectedCalls, SelectedQueries, SelectionRun, selection_run
from mark.studies.selection_law import selection_law
from mark.traffic.traces.busiest import busiest_window
from mark.traffic.traces.trace import Part, Trace

WITHIN_S = 3600.0  # the busiest window is searched within this time after `--at`
WINDOW_S = 120.0
FEWEST_QUERIES = 1_000.0  # a window with fewer is made longer, because few queries say little about the slowest
MOST_QUERIES = 20_000.0  # a window with more is cut: more queries take time and hardly change the plan
MOST_STAGE_CALLS = 400_000.0  # of a stage; a window with more is cut, which happens if queries fan out
SHORT_S = 30.0  # a note mentions a cut window that is shorter


@dataclass(frozen=True, eq=False, slots=True)
class PlannedPipeline:
    """A plan and its inputs."""

    config: PipelineConfig
    plan: PipelinePlan
    bound: FixedFleetBound | None  # of a fixed fleet for the same queries
    lineage: Lineage
    trace: str
    at_s: float  # start of the search for the window, in seconds from the trace's first row
    until_s: float
    busiest: Part
    window: Part  # the simulated part of `busiest`, or all of it
    options: tuple[Mapping[str, InstanceOption], ...]  # by hardware, in the order of the plan's stages
    skipped: Mapping[str, Mapping[str, str]]  # by stage: hardware that it cannot run on, with the reason
    priced: str  # the catalogue, its region and the day of its prices
    notes: tuple[str, ...]
    read: str = ""  # the trace that was read, in words
    selection: SelectionRun | None = None  # of the window, if the file has a selection


def plan_pipeline_once(
    request: RunRequest,
    at_s: float | None = None,
    *,
    lineage: str | None = None,
    queries: str | None = None,
    answers: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> PlannedPipeline:
    """Return a pipeline's plan for the busiest window within an hour from `at_s`, by default within the request's part.

    The graph and the law of visits come from the file, with `lineage` (a file of `mark pipeline trace`) instead of its
    shares; or from the driver, traced on the file `queries`; or from the selection, whose candidates give `answers`.
    Raises BadInput for unusable input, Infeasible if every instance type of a stage is too slow, or no tried plan keeps
    the promise.
    """
    config = load_pipeline(request.service)
    config.check_uninsured("a plan of fixed stages")
    if at_s is not None:
        request = replace(request, start_s=at_s)
    # Looked up before a driver's models are loaded, so that a wrong name shows within seconds.
    resolved = {stage.name: on_demand_stage(config, stage, request) for stage in config.stages}
    trace = trace_named_in(request)
    part = _searched(request, trace, at_s)
    busiest = busiest_window(trace, part, WINDOW_S, fewest=FEWEST_QUERIES, scale=request.scale)
    pipeline, law, seen, selected = visits(config, resolved, lineage, queries, answers, request.seed)
    most_queries = most_sampled(law)
    window = shortened(trace, busiest, request.scale, most_queries)
    sample, selection = drawn_sample(trace, window, law, request), None
    if config.selection is not None:
        sample, asked = selected_sample(config, resolved, selected, sample, request.seed)
        answered = sample.calls > 0  # the plan is for all calls
        paid = [stage.usd_per_call for stage in config.stages]
        selection = selection_run(
            pipeline.names, sample.calls, paid, sample.calls.sum(axis=0).tolist(), asked, answered
        )
    options = [instance_options(resolved[name]) for name in pipeline.names]
    plan = _planned(config, pipeline, sample, options, window.duration_s, request.seed, progress)
    by_hardware = tuple({one.option.hardware: one for one in offered} for offered in options)
    catalog = resolved[pipeline.names[0]].catalog
    return PlannedPipeline(
        config=config,
        plan=plan,
        bound=_bound(plan, stages_that_share(config, pipeline, resolved), window.duration_s, shares_instances(config)),
        lineage=law,
        trace=trace.name,
        read=trace.read,
        at_s=part.start_s,
        until_s=part.end_s,
        busiest=busiest,
        window=window,
        options=by_hardware,
        skipped={name: dict(resolved[name].skipped) for name in pipeline.names},
        priced=catalog.priced,
        selection=selection,
        notes=(
            f"prices on demand of {catalog.priced}",
            *seen,
            *_few(len(sample.arrivals_s)),
            *_short(window, most_queries),
            *_limits(config, plan),
            *_assumed(plan, by_hardware),
            *(_whole(pipeline.names, plan, by_hardware) if shares_instances(config) else ()),
            *_steady(plan),
            *left_out(config, request, trace, catalog.bills_extras),
        ),
    )


def _searched(request: RunRequest, trace: Trace, at_s: float | None) -> Part:
    """Return the part to search for the busiest window: the request's, or an hour from `at_s`. Raises BadInput."""
    duration_s = request.duration_s
    if at_s is not None:
        if at_s >= trace.duration_s:
            raise BadInput(f"beyond the end of {trace.name} at {trace.duration_s:g} s", "at_s", at_s)
        duration_s = WITHIN_S if duration_s is None else min(WITHIN_S, duration_s)
    return trace.part(request.start_s, duration_s, request.scale)


def _planned(
    config: PipelineConfig,
    pipeline: Pipeline,
    sample: QuerySample,
    options: Sequence[Sequence[InstanceOption]],
    duration_s: float,
    seed: int,
    progress: Callable[[float], None] | None,
) -> PipelinePlan:
    """Return a plan on instances of these options, shared if the file lets stages share them.

    Raises Infeasible, which names the promise.
    """
    shared = None
    if shares_instances(config):
        by_worker = shared_options(options, without_gpu(config, pipeline))
        shared = [[one.option for one in offered] for offered in by_worker]
    whole = [[one.option for one in offered] for offered in options]
    try:
        return plan_pipeline(
            pipeline, sample, whole, config.slo, duration_s=duration_s, seed=seed, progress=progress, shared=shared
        )
    except Infeasible as error:
        promise = f"{100.0 * config.slo.attainment:g} % within {config.slo.rt_max_s * 1e3:g} ms"
        raise Infeasible(f"no plan keeps the promise of {config.name} ({promise}): {error}") from None


def on_demand_stage(config: PipelineConfig, stage: StageConfig, request: RunRequest) -> ResolvedService:
    """Return a stage with its instance types on demand. Raises BadInput and Infeasible."""
    markets, where = config.fleet.markets, f"{config.source} [fleet] markets"
    if request.markets is not None:
        markets, where = markets_of(request.markets, "markets"), "markets"
    if Market.ON_DEMAND not in markets:
        raise BadInput("of a pipeline only instances on demand are planned so far", where, ", ".join(markets))
    service = replace(config.service(stage), markets=(Market.ON_DEMAND,), functions=())
    return stage_looked_up(config, stage, service, replace(request, markets=None))


def stage_looked_up(
    config: PipelineConfig, stage: StageConfig, service: ServiceConfig, request: RunRequest
) -> ResolvedService:
    """Look up a stage as this service. Raises BadInput, Infeasible, with the stage's section as the place."""
    try:
        return looked_up(service, request)
    except Infeasible as error:
        raise Infeasible(f"{config.source} [stage.{stage.name}]: {error}") from None
    except BadInput as error:
        if error.where != f"{config.source} [service] model":
            raise
        raise BadInput(error.what, f"{config.source} [stage.{stage.name}] model", error.value) from None


def visits(
    config: PipelineConfig,
    resolved: Mapping[str, ResolvedService],
    lineage: str | None,
    queries: str | None,
    answers: str | None,
    seed: int,
) -> tuple[Pipeline, Lineage, list[str], SelectedCalls | None]:
    """Return the result of `graph_and_law`, and the policy of a selection with answers. Raises BadInput."""
    if config.selection is None or queries is not None:
        if answers is not None:
            raise BadInput("are of a selection's candidates, and there is no [selection]", "answers", answers)
        return *graph_and_law(config, lineage, queries), None
    return selection_law(config, resolved, lineage, answers, seed)


def selected_sample(
    config: PipelineConfig,
    resolved: Mapping[str, ResolvedService],
    selected: SelectedCalls | None,
    sample: QuerySample,
    seed: int,
    *,
    open_calls: bool = False,
) -> tuple[QuerySample, SelectedQueries | None]:
    """Return the sample with the calls that the policy asks for, and its queries; without a policy the sample as it is.

    Calls are chosen at planned prices. With `open_calls`, calls that follow prices are left open: the sample has all.
    """
    if selected is None:
        return sample, None
    count = len(sample.arrivals_s)
    queries = SelectedQueries(selected, count, [stage.usd_per_call for stage in config.stages], seed)
    if open_calls and selected.follows_prices:
        return replace(sample, calls=np.ones_like(sample.calls)), queries
    calls = queries.asked(0, count, [planned_usd(resolved[name], {}) for name in config.names])
    return replace(sample, calls=calls), queries


def graph_and_law(
    config: PipelineConfig, lineage: str | None, queries: str | None
) -> tuple[Pipeline, Lineage, list[str]]:
    """Return the graph, the law of visits, and notes.

    Graph and law come from the file, with `lineage` (a file of `mark pipeline trace`, by default the one that the file
    names) instead of its shares; or from the driver, traced on the file `queries`. Raises BadInput.
    """
    if config.driver is None:
        if queries is not None:
            what = "there is no driver to run on queries: the sections [stage.NAME] say the graph, and `lineage` visits"
            raise BadInput(what, "queries", queries)
        assert config.pipeline is not None
        lineage = lineage or config.lineage_file
        if lineage is None:
            law = Lineage.independent(config.names, [stage.share for stage in config.stages])
            some = any(stage.share < 1.0 for stage in config.stages)
            notes = ["visits are taken as independent of each other: the file says shares only"] if some else []
            return config.pipeline, law, notes
        law = load_lineage(lineage, config.names)
        return config.pipeline, law, _unvisited(law)
    if queries is None:
        what = f"the driver {config.driver} is traced for this: give `queries` FILE, as `mark pipeline trace` takes it"
        if lineage is not None:
            what += " (a lineage does not say which stages wait for which)"
        raise BadInput(what, f"{config.source} [service] pipeline")
    if lineage is not None:
        raise BadInput("repeats the driver's `queries`: give one of them", "lineage", lineage)
    found = trace_file(config, queries)
    notes = [
        f"calls of {stage} follow each other (line {line}), and are planned as if begun together"
        for stage, line in found.repeated.items()
    ]
    return found.pipeline, found.lineage, [*notes, *_unvisited(found.lineage)]


def _unvisited(law: Lineage) -> list[str]:
    never = [name for name, share in zip(law.stages, law.shares, strict=True) if not share]
    return [f"no query visits {', '.join(never)}: one replica of the cheapest"] if never else []


def most_sampled(law: Lineage) -> float:
    """Return the largest number of a window's queries to simulate for a plan."""
    return min(MOST_QUERIES, MOST_STAGE_CALLS / float(law.calls_per_query.max(initial=1.0)))


def shortened(trace: Trace, window: Part, scale: float, most_queries: float) -> Part:
    """Return the window, cut if it has more than `most_queries`."""
    if window.requests <= most_queries:
        return window
    return trace.part(window.start_s, window.duration_s * most_queries / window.requests, scale)


def drawn_sample(trace: Trace, window: Part, law: Lineage, request: RunRequest) -> QuerySample:
    """Return the window's queries in seconds from its start. Raises BadInput if the draw is empty."""
    chunks = [times for times, _ in trace.chunks(window.start_s, window.end_s, request.scale, request.seed)]
    arrivals_s = np.concatenate(chunks) if chunks else np.empty(0)
    if not len(arrivals_s):
        raise BadInput(f"no request was drawn between {window.start_s:g} and {window.end_s:g} s", trace.name)
    return QuerySample(arrivals_s, law.drawn(len(arrivals_s), np.random.default_rng(request.seed)))


def shares_instances(config: PipelineConfig) -> bool:
    """Return whether several stages may be on one instance."""
    return config.packs == "auto" and len(config.stages) > 1


def stages_that_share(
    config: PipelineConfig, pipeline: Pipeline, resolved: Mapping[str, ResolvedService]
) -> tuple[ResolvedService, ...]:
    """Return the stages in the pipeline's order; if stages may share instances, at the prices of their parts."""
    stages = tuple(resolved[name] for name in pipeline.names)
    return shared_stages(stages, without_gpu(config, pipeline)) if shares_instances(config) else stages


def without_gpu(config: PipelineConfig, pipeline: Pipeline) -> list[bool]:
    """Return, for each stage, whether its workers leave an instance's GPUs unused."""
    by_name = {stage.name: stage.without_gpu for stage in config.stages}
    return [by_name[name] for name in pipeline.names]


def _bound(
    plan: PipelinePlan, stages: Sequence[ResolvedService], duration_s: float, shared: bool
) -> FixedFleetBound | None:
    problem = PipelineBoundProblem.of_sample(
        plan.pipeline, plan.sample, stages, plan.slo, end_s=duration_s, shared=shared
    )
    return fixed_fleet_bound(problem, (1.0 - plan.slo.attainment) * len(plan.sample.arrivals_s))


def _few(queries: int) -> list[str]:
    return [f"{queries} queries are few to tell how late the latest are"] if queries < 0.9 * FEWEST_QUERIES else []


def _short(window: Part, most_queries: float) -> list[str]:
    if window.duration_s >= SHORT_S or window.requests < 0.9 * most_queries:
        return []
    return [
        f"only {window.duration_s:.3g} s of this traffic are simulated: slower swings within the window are not in it"
    ]


def _limits(config: PipelineConfig, plan: PipelinePlan) -> list[str]:
    fleet, instances = config.fleet, sum(pack.count for pack in plan.packs)
    notes = []
    if plan.found.usd_per_hour > fleet.max_usd_per_hour:
        notes.append(f"dearer than [fleet] max_usd_per_hour = {fleet.max_usd_per_hour:g} allows")
    if instances > fleet.max_instances:
        notes.append(f"{instances} instances are more than [fleet] max_instances = {fleet.max_instances} allows")
    return notes


def _whole(names: Sequence[str], plan: PipelinePlan, by_hardware: Sequence[Mapping[str, InstanceOption]]) -> list[str]:
    """Return notes on workers that take a whole instance because their use of it was not measured."""
    found = []
    for name, choice, options in zip(names, plan.found.choices, by_hardware, strict=True):
        for option, _ in choice.parts:
            one = options[option.hardware]
            if one.profile.workers == 1 and one.profile.vcpus is None and one.offer.vcpu > 1.0 and not one.offer.gpus:
                found.append(
                    f"a worker of {name} takes all {one.offer.vcpu:g} vCPUs of {option.hardware}, because its profile "
                    "has no vcpus and memory_mb: `mark profile` measures them"
                )
    return found


def _steady(plan: PipelinePlan) -> list[str]:
    if not any(option.sigma for choice in plan.found.choices for option, _ in choice.parts):
        return []
    return ["the least of a fixed fleet is by mean times: that luck with them might do better is left out"]


def _assumed(plan: PipelinePlan, options: tuple[Mapping[str, InstanceOption], ...]) -> list[str]:
    usd = sum(
        of_stage
        for of_stage, choice, by_hardware in zip(plan.stage_usd_per_hour, plan.found.choices, options, strict=True)
        if any(by_hardware[option.hardware].basis is Basis.ASSUMED for option, _ in choice.parts)
    )
    return (
        [f"{100.0 * usd / plan.found.usd_per_hour:.0f} % of the dollars rest on assumed rows of profiles"]
        if usd
        else []
    )


def left_out(
    config: PipelineConfig,
    request: RunRequest,
    trace: Trace,
    bills_extras: bool,
    *,
    functions: bool = False,
    markets: bool = False,
) -> list[str]:
    """Return notes on parts that are not planned or not in the bill, and on gaps of the trace.

    With `functions`, and with `markets`, these count as planned.
    """
    wanted = config.fleet.markets if request.markets is None else markets_of(request.markets, "markets")
    later = [market.value for market in wanted if market is not Market.ON_DEMAND and not markets]
    if not functions and any(stage.functions for stage in config.stages):
        later.append("functions")
    if config.fleet.committed:
        later.append("commitments")
    notes = [f"not planned for pipelines yet: {', '.join(later)}"] if later else []
    if trace.bin_s > 5.0 and trace.kind == "counts":
        notes.append(f"within a bin of {trace.bin_s:g} s of the trace arrivals are Poisson; burstier ones need more")
    if bills_extras:
        notes.append(LEFT_OUT)
    return notes
