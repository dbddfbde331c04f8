"""Stages of a pipeline that controllers buy: each a service with its part of RT_max, and their outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mark.cloud.billing.extras import LEFT_OUT, LEFT_OUT_WITH_EXTRAS
from mark.cloud.ec2.draws import service_seed
from mark.config.pipeline_config import PipelineConfig
from mark.control.shared_limits import pipeline_limits
from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.offer import Market, Offer
from mark.domain.pipeline import Lineage, Pipeline
from mark.domain.service import ResolvedService
from mark.domain.time import HOUR_S
from mark.planning.graphs.group_choice import chosen_groups
from mark.planning.graphs.group_split import SharedSplit
from mark.planning.graphs.latency_split import split_latency
from mark.planning.graphs.stage_cost import stage_cost
from mark.planning.graphs.stage_group import GroupedStage, lead_of, stage_group
from mark.simulation.controlled_pipeline import (
    ControlledGroup,
    ControlledOutcome,
    ControlledSelection,
    ControlledStage,
    PipelineOutcome,
    simulate_controlled,
)
from mark.simulation.inputs import Inputs, inputs_of
from mark.simulation.request import RunRequest
from mark.simulation.selected_calls import SelectedCalls
from mark.studies.pipeline_plan import drawn_sample, left_out, selected_sample, stage_looked_up, without_gpu
from mark.studies.pipeline_result import FunctionRun, PipelineRun, RunOutcome, StageRun, busy_share, pipeline_run
from mark.traffic.traces.trace import Part, Trace


def controlled_stages(
    request: RunRequest,
    config: PipelineConfig,
    pipeline: Pipeline,
    law: Lineage,
    trace: Trace,
    part: Part,
    loads_rps: FloatArray,
) -> tuple[list[ControlledStage], list[ControlledGroup]]:
    """Return the stages in the pipeline's order, and the groups that the file says are bought together.

    RT_max is split for queries/s by hour and minute (hours, minutes). Raises BadInput, Infeasible.
    """
    as_known = replace(request, slo=None, explain=False, progress=None)
    whole = stage_services(config, as_known, dict.fromkeys(pipeline.names, config.slo.rt_max_s))
    per_query = [float(n) for n in law.calls_per_query]
    by_name = {stage.name: stage.rt_max_s for stage in config.stages}
    said_s = [by_name[name] for name in pipeline.names]
    costs = [
        stage_cost(whole[name], loads_rps * calls) if said is None else said
        for name, calls, said in zip(pipeline.names, per_query, said_s, strict=True)
    ]
    # In the pipeline's order, which with a driver differs from the file's.
    places = [tuple(sorted(pipeline.names.index(name) for name in group)) for group in config.together]
    gpus = without_gpu(config, pipeline)
    if places or config.chooses_together:
        able = [GroupedStage(whole[name], per_query[at], gpus[at]) for at, name in enumerate(pipeline.names)]
        mean_rps = float(loads_rps.mean())
        split = SharedSplit(pipeline, law.calls, able, costs, places, config.slo.rt_max_s, mean_rps)
        if config.chooses_together:
            places = chosen_groups(split)
            config = replace(config, together=tuple(tuple(pipeline.names[at] for at in group) for group in places))
    if places:
        parts_s = replace(split, groups=places).found()
    else:
        parts_s = split_latency(pipeline, law.calls, costs, config.slo.rt_max_s)
    planned = stage_services(config, as_known, dict(zip(pipeline.names, parts_s, strict=True)))

    def inputs(at: int, resolved: ResolvedService, calls: float) -> Inputs:
        # Each stage has its own boots, but a controller draws the paths of all its forecasts from one seed.
        own = replace(
            as_known,
            seed=service_seed(request.seed, at),
            forecast_seed=request.seed,
            scale=request.scale * calls,
            with_bound=False,
        )
        return inputs_of(own, resolved, trace, part)

    grouped: dict[int, ResolvedService] = {}
    groups = []
    for group in places:
        alone = [GroupedStage(planned[pipeline.names[at]], per_query[at], gpus[at]) for at in group]
        lead = lead_of([one.calls for one in alone], law.by_all[list(group)].tolist())
        found = stage_group(config.group_service([one.resolved.service for one in alone]), alone, lead)
        grouped.update(zip(group, found.stages, strict=True))
        groups.append(
            ControlledGroup(
                group,
                group[lead],
                inputs(group[0], found.resolved, alone[lead].calls),
                found.dollar_shares,
            )
        )
    stages = []
    for at, (name, calls) in enumerate(zip(pipeline.names, per_query, strict=True)):
        resolved = grouped.get(at, planned[name])
        stages.append(ControlledStage(inputs(at, resolved, calls), _least_s(resolved)))
    return stages, groups


def loads_by_hour(trace: Trace, part: Part, scale: float) -> FloatArray:
    """Return queries/s of a part, (hours, steps): of its last whole hours, or of all of it if it is shorter.

    A step that was hardly observed gets the mean of the part.
    """
    load = trace.load(part.start_s, part.end_s, scale)
    rates = np.where(np.isfinite(load.mean_rps), load.mean_rps, part.requests / part.duration_s)
    steps = max(1, round(HOUR_S / load.step_s))
    hours = len(rates) // steps
    return rates[len(rates) - hours * steps :].reshape(hours, steps) if hours else rates[None, :]


def controlled_run(
    request: RunRequest,
    config: PipelineConfig,
    policy: str,
    pipeline: Pipeline,
    law: Lineage,
    trace: Trace,
    part: Part,
    known: Part,
    before: bool,
    selected: SelectedCalls | None = None,
) -> PipelineRun:
    """Simulate controllers with RT_max split for the load of `known`, `before` the part or at its beginning.

    Raises BadInput, Infeasible.
    """
    promise = f"{100.0 * config.slo.attainment:g} % within {config.slo.rt_max_s * 1e3:g} ms"
    try:
        loads_rps = loads_by_hour(trace, known, request.scale)
        stages, groups = controlled_stages(request, config, pipeline, law, trace, part, loads_rps)
        if groups and stages[0].inputs.service.faults.crashes:
            what = "instances that several stages share are simulated without crashes yet: leave it out"
            raise BadInput(what, request.faults or f"{config.source} [faults]", "crashes_per_hour")
        served, selection = drawn_sample(trace, part, law, request), None
        if config.selection is not None:
            resolved = {name: one.inputs.resolved for name, one in zip(pipeline.names, stages, strict=True)}
            served, queries = selected_sample(config, resolved, selected, served, request.seed, open_calls=True)
            selection = ControlledSelection(config.selection.deadline_s, queries)
        found = simulate_controlled(
            pipeline,
            stages,
            law,
            served,
            policy,
            config.slo.rt_max_s,
            pipeline_limits(config),
            groups,
            selection,
            None if config.insured is None else config.insurance,
        )
    except Infeasible as error:
        raise Infeasible(f"no plan of {policy} keeps the promise of {config.name} ({promise}): {error}") from None
    runs = tuple(
        _stage_run(name, stage, one, part.duration_s)
        for name, stage, one in zip(pipeline.names, stages, found.stages, strict=True)
    )
    # Count shared instances once.
    further = {at for group in groups for at in group.stages[1:]}
    counted = [at for at in range(len(runs)) if at not in further]
    instances = sum(runs[at].instances for at in counted)
    paid = sum(found.stages[at].paid for at in counted)
    most = max(float(np.max(paid)), *(run.most_instances for run in runs), instances)
    catalog = found.stages[0].resolved.catalog
    outcome = RunOutcome(
        found.latency_s,
        runs,
        instances,
        math.ceil(most),
        0.0,  # controllers stay within their parts of the limit
        found.calls,
        found.answered,
        None if selection is None else selection.queries,
        found.coded,
    )
    usd = sum(run.usd for run in runs)
    assumed = sum(one.assumed_usd for one in found.stages)
    return pipeline_run(
        request,
        config,
        policy,
        catalog.priced,
        trace,
        part,
        served.arrivals_s,
        outcome,
        known,
        notes=(
            *(_split(config, pipeline, stages, before) if config.insured is None else ()),
            *_chosen(config, pipeline, groups),
            *_together(pipeline, stages, groups, found),
            *_of_stages({name: one.notes for name, one in zip(pipeline.names, found.stages, strict=True)}, trace),
            *([f"{100.0 * assumed / usd:.0f} % of the dollars rest on assumed rows of profiles"] if assumed else []),
            *left_out(config, request, trace, catalog.bills_extras, functions=True, markets=True),
        ),
    )


def _split(config: PipelineConfig, pipeline: Pipeline, stages: Sequence[ControlledStage], before: bool) -> list[str]:
    """Return notes on the parts of RT_max, found for the load `before` the part if there is enough of it."""
    parts = ", ".join(f"{name} {1e3 * stage.part_s:.0f}" for name, stage in zip(pipeline.names, stages, strict=True))
    unwarned = "too little comes before: the split is for the beginning, which controllers meet unwarned"
    return [
        *([] if before else [unwarned]),
        f"parts of {1e3 * config.slo.rt_max_s:g} ms: {parts} ms (slo_ms of a stage says its own)",
    ]


def _stage_run(name: str, stage: ControlledStage, found: ControlledOutcome, duration_s: float) -> StageRun:
    hours = sorted(found.fleet.instance_hours.items(), key=lambda one: -one[1])
    used = [(found.resolved.index(offer), of_offer) for offer, of_offer in hours if of_offer > 0.0]
    offers, candidates = found.resolved.offers, found.resolved.candidates
    function = found.resolved.function
    return StageRun(
        name,
        ", ".join(dict.fromkeys(_shown(offers[at]) for at, _ in used)),
        max((candidates[at].policy.n_batch for at, _ in used), default=0),
        found.calls,
        found.bill.total - found.bill.other,
        sum(of_offer for _, of_offer in used) * 3600.0 / duration_s,
        found.fleet.peak_instances,
        busy_share(found.busy_s, sum(of_offer * 3600.0 * candidates[at].workers for at, of_offer in used)),
        found.wait_s,
        None if function is None else FunctionRun(function.offer.name, found.function, found.bill.functions),
        stage.part_s,
        paid=tuple(found.paid.tolist()),
    )


def _chosen(config: PipelineConfig, pipeline: Pipeline, groups: Sequence[ControlledGroup]) -> list[str]:
    """Return a note on the groups that were chosen because the file names none, in the file's syntax."""
    if not config.chooses_together:
        return []
    lists = ", ".join("[" + ", ".join(f'"{pipeline.names[at]}"' for at in group.stages) + "]" for group in groups)
    return [f"chosen for the load that is planned on: [packs] together = [{lists}]"]


def _together(
    pipeline: Pipeline, stages: Sequence[ControlledStage], groups: Sequence[ControlledGroup], found: PipelineOutcome
) -> list[str]:
    """Return notes on the workers of shared instances, by the types that were bought."""
    notes = []
    for group in groups:
        of_stages = [stages[at].inputs.resolved for at in group.stages]
        hours = found.stages[group.stages[0]].fleet.instance_hours
        on_each = {
            offer.instance: ", ".join(
                f"{pipeline.names[at]} {of_stage.candidates[place].workers}"
                for at, of_stage in zip(group.stages, of_stages, strict=True)
            )
            for place, offer in enumerate(of_stages[0].offers)
            if hours.get(offer.name, 0.0) > 0.0
        }
        notes += [f"workers on each {instance}: {workers}" for instance, workers in on_each.items()]
    return notes


def _shown(offer: Offer) -> str:
    return offer.instance if offer.market is Market.ON_DEMAND else f"{offer.instance} {offer.market.value}"


def _of_stages(notes: Mapping[str, Sequence[str]], trace: Trace) -> list[str]:
    """Return every note once, with the names of its stages unless it holds for all."""
    stages: dict[str, list[str]] = {}
    for name, of_stage in notes.items():
        for note in of_stage:
            stages.setdefault(note, []).append(name)
    known = {LEFT_OUT, LEFT_OUT_WITH_EXTRAS, *trace.notes}
    return [
        note if len(names) == len(notes) else f"{', '.join(names)}: {note}"
        for note, names in stages.items()
        if note not in known
    ]


def stage_services(
    config: PipelineConfig, request: RunRequest, parts_s: Mapping[str, float]
) -> dict[str, ResolvedService]:
    """Return the stages by name, each with its part of RT_max in seconds. Raises BadInput, Infeasible."""
    return {
        stage.name: stage_looked_up(config, stage, config.stage_service(stage, parts_s[stage.name]), request)
        for stage in config.stages
    }


def _least_s(stage: ResolvedService) -> float:
    """Return the least time of a call."""
    times_s = [float(c.service_s[1]) + c.overhead_s for c in stage.candidates]
    if stage.function is not None:
        times_s.append(stage.function.warm_s)
    return min(times_s)
