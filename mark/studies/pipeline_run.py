"""From a pipeline file and a trace to bills and latencies: policies whose fleets follow the traffic, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.cloud.ec2.draws import Start
from mark.config.faults_section import load_faults
from mark.config.pipeline_config import PipelineConfig, StageConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput, Infeasible
from mark.domain.faults import Faults
from mark.domain.pipeline import Lineage, Pipeline
from mark.domain.profile import Basis
from mark.domain.service import FunctionUse, ResolvedService
from mark.domain.slo import Slo
from mark.planning.graphs.envelope import LONGEST_S
from mark.planning.graphs.estimate import Choices, PipelineEstimator, QuerySample, usd_per_hour
from mark.planning.graphs.fleet_cost import bought, usd_by_stage
from mark.planning.graphs.pipeline_policies import (
    PIPELINE_POLICIES,
    LoadWindow,
    PipelinePlanningContext,
    PipelinePolicy,
    PolicyPlan,
    pipeline_policy,
)
from mark.planning.graphs.stage_functions import functions_in_time
from mark.planning.graphs.stage_options import InstanceOption, instance_options, shared_options
from mark.planning.graphs.tuned_run import Activation, Tuning, run_tuned
from mark.planning.graphs.warm_start import WaitingTuner, led_in
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.simulation.selected_calls import SelectedCalls
from mark.studies.executor import HERE, StudyExecutor
from mark.studies.insured import check_policy, insured_visits
from mark.studies.pipeline_bound_study import promise_bound
from mark.studies.pipeline_plan import (
    FEWEST_QUERIES,
    WINDOW_S,
    drawn_sample,
    left_out,
    most_sampled,
    on_demand_stage,
    selected_sample,
    shares_instances,
    shortened,
    stage_looked_up,
    visits,
    without_gpu,
)
from mark.studies.pipeline_result import FunctionRun, PipelineRun, RunOutcome, StageRun, busy_share, pipeline_run
from mark.studies.pipeline_stages import controlled_run
from mark.studies.selection_law import NO_BOUND
from mark.traffic.traces.busiest import busiest_window
from mark.traffic.traces.trace import Part, Trace

# A query takes some hundred bytes of memory in each process.
MOST_QUERIES = 10_000_000
# Plans use the last day before the part: it has every hour of the day, and no old peak.
PLANNED_ON_S = 86_400.0
# A tuner has run this long when the part begins; all that it uses is younger.
LEAD_S = 600.0
# Numbers the instances of each stage separately in random draws.
_MOST_INSTANCES = 1_000_000


def simulate_pipeline(
    request: RunRequest,
    policies: Sequence[str],
    *,
    lineage: str | None = None,
    queries: str | None = None,
    answers: str | None = None,
    executor: StudyExecutor = HERE,
) -> dict[str, PipelineRun]:
    """Simulate each policy on the same arrivals and visits; return runs by the given names, in their order.

    `lineage`, `queries` and `answers` are as for a plan. Raises BadInput for unusable input, Infeasible if every
    instance type of a stage is too slow or a policy finds no plan that keeps the promise.
    """
    if len(set(policies)) < len(policies):
        raise BadInput("a policy is named twice", "policies", ",".join(policies))
    for policy in policies:
        if pipeline_policy(policy).plan is not None:
            _refuse_market(request, policy)
    # Opened before a driver's models are loaded, so that a wrong name shows within seconds.
    opened = _open(request, policies)
    config = opened.config
    for policy in policies:
        if pipeline_policy(policy).plan is not None:
            check_policy(config, policy)
            _refuse_faults(config, request, policy)
    selected: SelectedCalls | None = None
    if config.insured is None:
        pipeline, law, seen, selected = visits(config, opened.resolved, lineage, queries, answers, request.seed)
    else:
        queries_rps = opened.part.requests / opened.part.duration_s
        pipeline, law, seen = insured_visits(config, queries_rps, lineage, queries, answers)
    alone = replace(request, progress=None)
    tasks = [_Task(alone, policy, pipeline, law, selected) for policy in policies]
    if request.with_bound and config.selection is None and config.insured is None:
        tasks.append(_Task(alone, None, pipeline, law))
    outcomes = executor.map(_carried_out, tasks, request.progress)
    runs = [one for one in outcomes if isinstance(one, PipelineRun)]
    bounds = [one for one in outcomes if not isinstance(one, PipelineRun)]
    bound_usd, note = bounds[0] if bounds else (None, "")
    notes = (f"bound: {note}",) if note else ()
    if request.with_bound and config.selection is not None:
        notes = (NO_BOUND,)
    if request.with_bound and config.insured is not None:
        notes = ("bound: none is known of a service with parity models",)
    return {run.policy: replace(run, bound_usd=bound_usd, notes=(*seen, *run.notes, *notes)) for run in runs}


def usual_policies(request: RunRequest) -> tuple[str, ...]:
    """Return the policies to compare by default: all that can simulate the file's settings. Raises BadInput."""
    config = load_pipeline(request.service)
    only_controlled = config.insured is not None or _faults(config, request).any
    return tuple(name for name, policy in PIPELINE_POLICIES.items() if policy.plan is None or not only_controlled)


def _refuse_market(request: RunRequest, policy: str) -> None:
    for option, given in (
        ("--spot-trace", request.spot_traces),
        ("--spot-first-hour-free", request.spot_first_hour_free),
        ("--cold-start", request.cold_start),
    ):
        if given:
            raise BadInput(f"policy {policy} of a pipeline is simulated without this option", option)


def _faults(config: PipelineConfig, request: RunRequest) -> Faults:
    return config.faults if request.faults is None else load_faults(request.faults)


def _refuse_faults(config: PipelineConfig, request: RunRequest, policy: str) -> None:
    if _faults(config, request).any:
        what = f"policy {policy} of a pipeline is simulated without faults: mark is simulated with them"
        raise BadInput(what, f"{config.source} [faults]" if request.faults is None else "faults", request.faults)


@dataclass(frozen=True, eq=False, slots=True)
class _Task:
    request: RunRequest
    policy: str | None  # None: the bound
    pipeline: Pipeline
    law: Lineage
    selected: SelectedCalls | None = None  # of a selection with answers


def _carried_out(
    task: _Task, progress: Callable[[float], None] | None = None
) -> PipelineRun | tuple[float | None, str]:
    """Execute a task: return a run, or the bound and a note on it."""
    if task.policy is not None:
        return _run(task)
    bound = promise_bound(task.request, task.pipeline, task.law)
    return bound.usd, bound.note


@dataclass(frozen=True, eq=False, slots=True)
class _Opened:
    """The inputs of a run, except the driver's."""

    config: PipelineConfig
    resolved: Mapping[str, ResolvedService]  # by stage
    trace: Trace
    part: Part


def _open(request: RunRequest, policies: Sequence[str]) -> _Opened:
    config = load_pipeline(request.service)
    config.check_unhedged()
    # Controllers buy in all markets; other policies only on demand.
    controlled = all(pipeline_policy(policy).plan is None for policy in policies)
    resolved = {
        stage.name: stage_looked_up(config, stage, config.service(stage), request)
        if controlled
        else _with_functions(config, stage, request)
        for stage in config.stages
    }
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    if part.requests > MOST_QUERIES:
        what = f"at most {MOST_QUERIES:,} queries of a pipeline are simulated at a time: choose a shorter part"
        raise BadInput(what, trace.name, f"{part.requests:,.0f}")
    return _Opened(config, resolved, trace, part)


def _with_functions(config: PipelineConfig, stage: StageConfig, request: RunRequest) -> ResolvedService:
    """Return a stage on demand and with its functions.

    The stages that name functions share the limit on function dollars equally.
    """
    resolved = on_demand_stage(config, stage, request)
    naming = sum(bool(one.functions) for one in config.stages)
    limit = config.fleet.max_function_usd_per_hour / max(1, naming)
    service = replace(resolved.service, functions=stage.functions, max_function_usd_per_hour=limit)
    return replace(resolved, service=service)


def _run(task: _Task) -> PipelineRun:
    request, policy, pipeline, law = task.request, task.policy, task.pipeline, task.law
    assert policy is not None
    opened = _open(request, (policy,))
    config, trace, part = opened.config, opened.trace, opened.part
    named = pipeline_policy(policy)
    if named.plan is None:
        history = _history(request, trace, part)
        known = _beginning(request, trace, part) if history is None else history
        return controlled_run(
            request, config, policy, pipeline, law, trace, part, known, history is not None, task.selected
        )
    offered = [instance_options(opened.resolved[name]) for name in pipeline.names]
    before, known = _known(request, trace, part)
    busiest = busiest_window(trace, part, WINDOW_S, fewest=FEWEST_QUERIES, scale=request.scale)
    shared = None
    if shares_instances(config):
        by_worker = shared_options(offered, without_gpu(config, pipeline))
        shared = [[one.option for one in of_stage] for of_stage in by_worker]
    by_hardware = [{one.option.hardware: one for one in of_stage} for of_stage in offered]
    in_time, no_function = functions_in_time(
        pipeline,
        [opened.resolved[name] for name in pipeline.names],
        [min(float(one.option.service_s[1]) for one in of_stage) for of_stage in offered],
    )
    context = PipelinePlanningContext(
        pipeline,
        config.slo,
        [[one.option for one in of_stage] for of_stage in offered],
        shared,
        _window(trace, known, law, request),
        _window(trace, busiest, law, request),
        {name: one.offer.boot.mean_s for of_stage in by_hardware for name, one in of_stage.items()},
        request.seed,
        in_time,
        may_be_alone=config.fleet.min_instances == 0,
    )
    try:
        plan = named.plan(context)
    except Infeasible as error:
        promise = f"{100.0 * config.slo.attainment:g} % within {config.slo.rt_max_s * 1e3:g} ms"
        raise Infeasible(f"no plan of {policy} keeps the promise of {config.name} ({promise}): {error}") from None
    served, asked = selected_sample(
        config, opened.resolved, task.selected, drawn_sample(trace, part, law, request), request.seed
    )
    if plan.tuner is None:
        outcome = _as_planned(pipeline, served, plan.choices, config.slo, part.duration_s, request.seed)
    else:
        outcome = _followed(request, pipeline, trace, part, served, plan, config.slo, by_hardware, before)
    if config.selection is not None:
        answered = (served.calls > 0) & np.isfinite(outcome.latency_s)[:, None]
        outcome = replace(outcome, calls=served.calls, answered=answered, queries=asked)
    first = opened.resolved[pipeline.names[0]].catalog
    return pipeline_run(
        request,
        config,
        policy,
        first.priced,
        trace,
        part,
        served.arrivals_s,
        outcome,
        busiest if named.foresees else known,
        notes=(
            *_assumed(plan, outcome.stages, by_hardware),
            *_functions(named, plan, pipeline.names, in_time, no_function),
            *left_out(config, request, trace, first.bills_extras, functions=True),
        ),
    )


def _known(request: RunRequest, trace: Trace, part: Part) -> tuple[bool, Part]:
    """Return whether the time before the part is enough to plan on, and the busiest window to plan on.

    Otherwise that is the part's beginning, which a user would have to guess.
    """
    history = _history(request, trace, part)
    if history is None:
        return False, _beginning(request, trace, part)
    return True, busiest_window(trace, history, WINDOW_S, fewest=FEWEST_QUERIES, scale=request.scale)


def _history(request: RunRequest, trace: Trace, part: Part) -> Part | None:
    """Return the time before the part, if it is enough to plan on."""
    train_s = min(part.start_s, PLANNED_ON_S if request.train_s is None else request.train_s)
    if train_s < WINDOW_S:
        return None
    if trace.total_counts(part.start_s - train_s, part.start_s, request.scale) < FEWEST_QUERIES:
        return None
    return trace.part(part.start_s - train_s, train_s, request.scale)


def _beginning(request: RunRequest, trace: Trace, part: Part) -> Part:
    window_s = min(WINDOW_S, part.duration_s)
    while window_s < part.duration_s:
        if trace.total_counts(part.start_s, part.start_s + window_s, request.scale) >= FEWEST_QUERIES:
            break
        window_s = min(2.0 * window_s, part.duration_s)
    return trace.part(part.start_s, window_s, request.scale)


def _window(trace: Trace, window: Part, law: Lineage, request: RunRequest) -> LoadWindow:
    whole = drawn_sample(trace, window, law, request)
    sampled = shortened(trace, window, request.scale, most_sampled(law))
    first = slice(max(1, int(np.searchsorted(whole.arrivals_s, sampled.duration_s))))
    return LoadWindow(whole, QuerySample(whole.arrivals_s[first], whole.calls[first]), sampled.duration_s)


def _as_planned(
    pipeline: Pipeline, served: QuerySample, choices: Choices, slo: Slo, duration_s: float, seed: int
) -> RunOutcome:
    """Simulate the planned fleet without changes; stages may share instances."""
    seen = PipelineEstimator(pipeline, served, slo_s=slo.rt_max_s, memory_bytes=0, seed=seed).estimate(choices)
    packs = bought(choices)
    stages = []
    for s, (choice, stage, of_stage) in enumerate(zip(choices, seen.stages, usd_by_stage(choices), strict=True)):
        instances = sum(pack.count for pack in packs if pack.workers[s])
        busy_s = stage.service_s * int(stage.batches.sum()) if stage.calls else 0.0
        stages.append(
            StageRun(
                stage.stage,
                ", ".join(option.hardware for option, _ in choice.parts),
                choice.batch,
                stage.calls,
                of_stage * duration_s / 3600.0,
                float(instances),
                instances,
                busy_share(busy_s, choice.workers * duration_s),
                stage.wait_s,
            )
        )
    count = sum(pack.count for pack in packs)
    return RunOutcome(seen.latency_s, tuple(stages), float(count), count, usd_per_hour(choices))


def _followed(
    request: RunRequest,
    pipeline: Pipeline,
    trace: Trace,
    part: Part,
    served: QuerySample,
    plan: PolicyPlan,
    slo: Slo,
    by_hardware: Sequence[Mapping[str, InstanceOption]],
    before: bool,
) -> RunOutcome:
    """Simulate the tuner. It has run `before` the part, or begins after its longest window."""
    choices, tuner = plan.choices, plan.tuner
    assert tuner is not None
    lead_s = min(LEAD_S, part.start_s) if before else 0.0
    seen_s = np.empty(0)
    if before:
        chunks = trace.chunks(part.start_s - lead_s, part.start_s, request.scale, request.seed)
        seen_s = np.concatenate([np.empty(0), *(times for times, _ in chunks)]) - lead_s
        choices, tuner = led_in(choices, tuner, seen_s, min(0.0, LONGEST_S - lead_s), 0.0)
    else:
        alone = plan.alone or (False,) * len(choices)
        planned = tuple(0 if by_itself else choice.replicas for choice, by_itself in zip(choices, alone, strict=True))
        tuner = WaitingTuner(tuner, planned, LONGEST_S)
    uncalled = np.zeros((len(seen_s), len(choices)), dtype=np.int64)  # before the part only times matter
    found = run_tuned(
        pipeline,
        QuerySample(np.concatenate([seen_s, served.arrivals_s]), np.concatenate([uncalled, served.calls])),
        choices,
        Tuning(tuner, _boots(choices, by_hardware, request.seed)),
        begin_s=0.0,
        end_s=part.duration_s,
        slo_s=slo.rt_max_s,
        seed=request.seed,
        functions=plan.functions or None,
        alone=plan.alone,
    )
    called = [
        None if use is None else FunctionRun(use.offer.name, calls, usd)
        for use, calls, usd in zip(plan.functions, found.by_function, found.stage_function_usd, strict=True)
    ] or [None] * len(choices)
    stages = [
        StageRun(
            name,
            choice.option.hardware,
            choice.batch,
            int(found.calls[s]) + (0 if function is None else function.called.calls),
            float(found.stage_usd[s]) + (0.0 if function is None else function.usd),
            float(found.paid_s[s] / part.duration_s),
            int(found.paid[:, s].max()),
            busy_share(float(found.busy_s[s]), float(found.paid_s[s]) * choice.option.workers),
            float(found.wait_s[s] / found.calls[s]) if found.calls[s] else math.nan,
            function,
        )
        for s, (name, choice, function) in enumerate(zip(pipeline.names, choices, called, strict=True))
    ]
    return RunOutcome(
        found.latency_s,
        tuple(stages),
        sum(stage.instances for stage in stages),
        int(found.paid.sum(axis=1).max()),
        float(found.usd_per_hour.max()),
    )


def _boots(choices: Choices, by_hardware: Sequence[Mapping[str, InstanceOption]], seed: int) -> Activation:
    """Return drawn boot times for each instance, as in a service's run."""
    offers = [of_stage[choice.option.hardware].offer for of_stage, choice in zip(by_hardware, choices, strict=True)]
    return lambda stage, asked: Start(seed, stage * _MOST_INSTANCES + asked, 0).boot_s(offers[stage])


def _assumed(
    plan: PolicyPlan, stages: Sequence[StageRun], by_hardware: Sequence[Mapping[str, InstanceOption]]
) -> list[str]:
    functions = plan.functions or [None] * len(stages)
    usd = 0.0
    for stage, choice, use, of_stage in zip(stages, plan.choices, functions, by_hardware, strict=True):
        if any(of_stage[option.hardware].basis is Basis.ASSUMED for option, _ in choice.parts):
            usd += stage.usd - stage.function_usd
        if use is not None and use.basis == Basis.ASSUMED:
            usd += stage.function_usd
    total = sum(stage.usd for stage in stages)
    return [f"{100.0 * usd / total:.0f} % of the dollars rest on assumed rows of profiles"] if usd else []


def _functions(
    named: PipelinePolicy,
    plan: PolicyPlan,
    names: Sequence[str],
    in_time: Sequence[FunctionUse | None],
    why: Mapping[str, str],
) -> list[str]:
    """Return notes on the file's functions that are not used, with reasons."""
    if not any(in_time) and not why:
        return []
    if not named.uses_functions:
        return ["functions are left out: only mark and tuned use them"]
    used = plan.functions or [None] * len(names)
    idle = [name for name, use, mine in zip(names, in_time, used, strict=True) if use is not None and mine is None]
    return [
        *(f"no function for {name}: {reason}" for name, reason in why.items()),
        *([f"no function for {', '.join(idle)}: it does not pay on the load that is planned on"] if idle else []),
    ]
