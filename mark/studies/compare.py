"""Many runs, and several policies on the same arrivals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import TypeVar

from mark.domain.errors import BadInput, Infeasible
from mark.planning.policies.names import split_policy
from mark.planning.policies.policy_registry import make_policy, policy_entry, predictor_of, wants_perfect_forecast
from mark.simulation.inputs import Inputs, TraceQuery, inputs_of, open_service, trace_query
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from mark.simulation.stopwatch import MadeForecasts
from mark.studies.executor import HERE, Share, StudyExecutor, part_of
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.in_units import counted_in
from mark.traffic.traces.trace import Trace

R = TypeVar("R")
Run = Callable[[RunRequest, Share | None, MadeForecasts | None], R]
"""Makes one run, with the forecasts that other runs made."""


def compare(
    request: RunRequest, policies: tuple[str, ...], *, executor: StudyExecutor = HERE
) -> dict[str, SimulationResult]:
    """Run every policy (`name[:predictor]`) over the same arrivals; return results by name, in the given order."""
    requests = policy_requests(open_named(request), policies)
    return dict(zip(policies, run_all(requests, executor=executor, progress=request.progress), strict=True))


def without_instances(request: RunRequest, policies: Sequence[str]) -> tuple[str, ...]:
    """Return the policies that need instances, for a service that functions alone can serve; otherwise nothing.

    Raises the errors of opening the inputs.
    """
    inputs = open_named(request)
    if inputs.resolved.offers:
        return ()
    unable = []
    for named in policies:
        try:
            make_policy(split_policy(named, request.predictor)[0], inputs.resolved, inputs.evaluated)
        except Infeasible:
            unable.append(named)
    return tuple(unable)


def policy_requests(inputs: Inputs, policies: Sequence[str]) -> list[RunRequest]:
    """Return the request of every policy. Raises BadInput for an unknown name, before hours are simulated."""
    request = inputs.request
    if len(set(policies)) < len(policies):
        raise BadInput("a policy is named twice", "policies", ",".join(policies))
    chosen = [split_policy(named, request.predictor) for named in policies]
    for policy, predictor in chosen:
        make_policy(policy, inputs.resolved, inputs.evaluated)
        make_predictor(predictor_of(policy, predictor)[0], request.seed)
    return [replace(request, policy=policy, predictor=predictor) for policy, predictor in chosen]


def run_all(
    requests: Sequence[RunRequest],
    *,
    executor: StudyExecutor = HERE,
    progress: Share | None = None,
) -> list[SimulationResult]:
    """Return the result of every request, in their order; `progress` takes the finished share.

    Raises the errors of a run and of the executor.
    """
    return map_runs(run_one, requests, executor=executor, progress=progress)


def map_runs(
    run: Run[R], requests: Sequence[RunRequest], *, executor: StudyExecutor, progress: Share | None
) -> list[R]:
    """Return `run` of every request, in their order.

    Runs that share forecasts make one task, as far as no worker gets more than its share of the runs with forecasts.
    """
    tasks = [replace(request, progress=None) for request in requests]  # a progress bar does not work in another process
    groups = _forecast_alike(tasks, executor.workers)
    parts = executor.map(partial(_run_sharing, run), [[tasks[place] for place in group] for group in groups], progress)
    found = dict(zip(chain(*groups), chain(*parts), strict=True))
    return [found[place] for place in range(len(tasks))]


def _run_sharing(run: Run[R], requests: Sequence[RunRequest], progress: Share | None = None) -> list[R]:
    made: MadeForecasts | None = {} if len(requests) > 1 else None
    return [run(request, part_of(progress, place, len(requests)), made) for place, request in enumerate(requests)]


def _forecast_alike(requests: Sequence[RunRequest], workers: int) -> list[list[int]]:
    """Return the places of all requests, those whose policies have the same predictor in groups for each of `workers`.

    Runs with forecasts come first, because they take several times as long as others.
    """
    plans = [policy_entry(request.policy).forecasts for request in requests]
    most = -(-sum(plans) // workers)
    groups: list[list[int]] = []
    newest: dict[Hashable, list[int]] = {}
    for place, request in enumerate(requests):
        perfect = request.foresight or wants_perfect_forecast(request.policy)
        alike: Hashable = place
        if plans[place] and not perfect:
            alike = (predictor_of(request.policy, request.predictor)[0], request.seed, request.forecast_seed)
        if alike not in newest or len(newest[alike]) == most:
            newest[alike] = []
            groups.append(newest[alike])
        newest[alike].append(place)
    return sorted(groups, key=lambda group: not plans[group[0]])


def run_one(request: RunRequest, progress: Share | None = None, made: MadeForecasts | None = None) -> SimulationResult:
    """Simulate one request, as a task of an executor, with the forecasts that other runs made.

    The trace stays open for the next run, which mostly needs the same one. Raises BadInput, Infeasible.
    """
    return simulate_inputs(open_named(replace(request, progress=progress)), request.policy, request.predictor, made)


def open_named(request: RunRequest) -> Inputs:
    """Return the inputs of a run, reusing the open trace if it is the same. Raises BadInput, Infeasible."""
    resolved = open_service(request)  # first, because its faults are told sooner than a long trace is read
    trace = counted_in(_last_trace(trace_query(request)), resolved.service)
    return inputs_of(request, resolved, trace, trace.part(request.start_s, request.duration_s, request.scale))


@lru_cache(maxsize=1)
def _last_trace(query: TraceQuery) -> Trace:
    return query.open()
