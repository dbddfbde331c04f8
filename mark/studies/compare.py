"""Many runs, and several policies on the same arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from mark.domain.errors import BadInput, Infeasible
from mark.planning.policies.names import split_policy
from mark.planning.policies.policy_registry import make_policy, predictor_of
from mark.simulation.inputs import Inputs, TraceQuery, inputs_of, open_inputs, open_service, trace_query
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from mark.studies.executor import HERE, StudyExecutor
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.in_units import counted_in
from mark.traffic.traces.trace import Trace


def compare(
    request: RunRequest, policies: tuple[str, ...], *, executor: StudyExecutor = HERE
) -> dict[str, SimulationResult]:
    """Run every policy (`name[:predictor]`) over the same arrivals; return results by name, in the given order."""
    requests = policy_requests(open_inputs(request), policies)
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
    progress: Callable[[float], None] | None = None,
) -> list[SimulationResult]:
    """Return the result of every request, in their order; `progress` takes the finished share.

    Raises the errors of a run and of the executor.
    """
    tasks = [replace(request, progress=None) for request in requests]  # a progress bar does not work in another process
    return executor.map(run_one, tasks, progress)


def run_one(request: RunRequest, progress: Callable[[float], None] | None = None) -> SimulationResult:
    """Simulate one request, as a task of an executor.

    The trace stays open for the next task, which mostly needs the same one. Raises BadInput, Infeasible.
    """
    return simulate_inputs(open_named(replace(request, progress=progress)), request.policy, request.predictor)


def open_named(request: RunRequest) -> Inputs:
    """Return the inputs of a run, reusing the open trace if it is the same. Raises BadInput, Infeasible."""
    resolved = open_service(request)  # first, because its faults are told sooner than a long trace is read
    trace = counted_in(_last_trace(trace_query(request)), resolved.service)
    return inputs_of(request, resolved, trace, trace.part(request.start_s, request.duration_s, request.scale))


@lru_cache(maxsize=1)
def _last_trace(query: TraceQuery) -> Trace:
    return query.open()
