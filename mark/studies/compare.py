"""Many runs, on as many processes as there are cores: runs share nothing, so they need not wait for each other."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache

from mark.domain.errors import BadInput
from mark.forecasting.registry import make_predictor
from mark.planning.policies.names import split_policy
from mark.planning.policies.registry import make_policy, predictor_of
from mark.simulation.inputs import Inputs, TraceQuery, open_inputs, trace_query
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from mark.workload.trace import Trace


def compare(request: RunRequest, policies: tuple[str, ...], *, workers: int = 1) -> dict[str, SimulationResult]:
    """Run every policy (`name[:predictor]`) over the same arrivals; keyed by the names given, in their order."""
    requests = policy_requests(open_inputs(request), policies)
    return dict(zip(policies, run_all(requests, workers=workers, progress=request.progress), strict=True))


def policy_requests(inputs: Inputs, policies: Sequence[str]) -> list[RunRequest]:
    """The request of every policy; raises BadInput for a name that is none, before hours are simulated."""
    request = inputs.request
    if len(set(policies)) < len(policies):
        raise BadInput("a policy is named twice", "policies", ",".join(policies))
    chosen = [split_policy(named, request.predictor) for named in policies]
    for policy, predictor in chosen:
        make_policy(policy, inputs.resolved, inputs.evaluated)
        make_predictor(predictor_of(policy, predictor)[0], request.seed)
    return [replace(request, policy=policy, predictor=predictor) for policy, predictor in chosen]


def run_all(
    requests: Sequence[RunRequest], *, workers: int = 1, progress: Callable[[float], None] | None = None
) -> list[SimulationResult]:
    """The result of every request, in their order; `progress` takes the share that is done.

    With more than one worker, processes are spawned (a script that calls this needs the usual `__main__` guard).
    Raises what a run raises.
    """
    workers = min(workers, len(requests))
    if workers <= 1:
        return [_here(requests, place, progress) for place in range(len(requests))]
    # Spawned, because forking a process that has threads (a progress bar's) may hang.
    context = multiprocessing.get_context("spawn")
    results: dict[int, SimulationResult] = {}
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_on_interrupt) as pool:
        # The longest first would balance best, but which one that is is not known beforehand.
        places = {pool.submit(_run, replace(request, progress=None)): i for i, request in enumerate(requests)}
        try:
            for future in as_completed(places):
                results[places[future]] = future.result()
                if progress is not None:
                    progress(len(results) / len(requests))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[i] for i in range(len(requests))]


def _here(requests: Sequence[RunRequest], place: int, progress: Callable[[float], None] | None) -> SimulationResult:
    share = None if progress is None else (lambda part: progress((place + part) / len(requests)))
    return _run(replace(requests[place], progress=share))


def _run(request: RunRequest) -> SimulationResult:
    """One run; the trace stays open for the next one, which mostly wants the same."""
    trace = _last_trace(trace_query(request))
    return simulate_inputs(open_inputs(request, trace), request.policy, request.predictor)


@lru_cache(maxsize=1)
def _last_trace(query: TraceQuery) -> Trace:
    return query.open()


def _end_on_interrupt() -> None:
    """Ctrl-C ends a worker without a word; the parent says what there is to say."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
