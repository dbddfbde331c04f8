"""Functions of a pipeline's stages: which are in time, and when a call goes to one instead of waiting for a replica."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline, needed_s
from mark.domain.profile import Profile
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.service import FunctionUse, ResolvedService
from mark.domain.slo import Slo
from mark.kernel.central_queues import StageFunction
from mark.planning.graphs.critical_paths import call_windows_s, longest_path_s
from mark.planning.graphs.estimate import Choices
from mark.planning.resolve import choose_function


def functions_in_time(
    pipeline: Pipeline, stages: Sequence[ResolvedService], least_s: Sequence[float]
) -> tuple[tuple[FunctionUse | None, ...], dict[str, str]]:
    """Return for each stage the function with the cheapest call of those in time, or None; and the reasons for None.

    `stages[s]` is stage s as a service of its own, with the pipeline's RT_max. A function is in time if it fits the
    time that a query through all stages has left when each other stage takes `least_s`, the least time of its calls.
    The reasons are given for the stages that name functions. Raises BadInput for a size that the catalogue lacks.
    """
    found: list[FunctionUse | None] = [None] * len(stages)
    why: dict[str, str] = {}
    for at, (name, stage) in enumerate(zip(pipeline.names, stages, strict=True)):
        if not stage.service.functions:
            continue
        left_s = _left_s(pipeline, at, least_s, stage.slo.rt_max_s)
        # An RT_max must be above zero: no function is in time within so little.
        within = replace(stage.service, slo=Slo(max(left_s + TOLERANCE_S, TOLERANCE_S), stage.slo.attainment))
        use, passed_over = choose_function(within, stage.catalog, stage.profiles)
        if use is None:
            why[name] = ", ".join(f"{size}: {reason}" for size, reason in passed_over.items())
        elif use.warm_s <= within.slo.rt_max_s:
            found[at] = use
        else:
            profiles = [stage.profiles[size] for size in (use.offer.name, *passed_over) if size in stage.profiles]
            fastest = min(profiles, key=_call_s)
            takes_ms, left_ms = _call_s(fastest) * 1e3, max(0.0, left_s) * 1e3
            why[name] = f"{fastest.instance} takes {takes_ms:.0f} ms of {left_ms:.0f} that others leave"
    return tuple(found), why


def stage_functions(
    pipeline: Pipeline, choices: Choices, functions: Sequence[FunctionUse | None], alone: Sequence[bool] = ()
) -> dict[int, StageFunction]:
    """Return the functions of the stages that have one, by stage.

    A stage behind takes at least the time of a single call on a replica, or with a function the function's time or a
    full batch, whichever is longer. So a call that goes to the function at its last moment can do the same at all later
    stages that have one. If the function is `alone`, calls go there immediately unless a replica is free. Raises
    BadInput unless there is one choice and one function, or None, for each stage, and for a stage that is alone without
    a function.
    """
    if not len(pipeline.stages) == len(choices) == len(functions):
        raise BadInput(f"one for each of {len(pipeline.stages)} stages", "functions", len(functions))
    alone = alone or [False] * len(functions)
    for name, use, by_itself in zip(pipeline.names, functions, alone, strict=True):
        if by_itself and use is None:
            raise BadInput("has neither replicas nor a function", f"alone of {name}")
    batch_s = [float(choice.option.service_s[choice.batch]) for choice in choices]
    takes_s = [
        float(choice.option.service_s[1]) if use is None else use.warm_s if by_itself else max(use.warm_s, full_s)
        for choice, use, full_s, by_itself in zip(choices, functions, batch_s, alone, strict=True)
    ]
    needed = needed_s(takes_s, pipeline.successors, pipeline.awaits_all)
    return {
        stage: StageFunction(use, needed[stage] - takes_s[stage], math.inf if alone[stage] else batch_s[stage])
        for stage, use in enumerate(functions)
        if use is not None
    }


def _left_s(pipeline: Pipeline, stage: int, least_s: Sequence[float], rt_max_s: float) -> float:
    """Return the longest time that a call of the stage may take in a query through all stages; no time if not above
    zero.
    """
    others_s = [*least_s[:stage], 0.0, *least_s[stage + 1 :]]
    whole_s = longest_path_s(pipeline, others_s)
    if whole_s > rt_max_s:
        return rt_max_s - whole_s
    every = np.ones((1, len(others_s)), dtype=np.int64)
    ready_s, until_s = call_windows_s(pipeline, every, others_s, rt_max_s)
    return min(float(until_s[0, stage]), rt_max_s) - float(ready_s[0, stage])


def _call_s(profile: Profile) -> float:
    return profile.latency_s(1) + profile.overhead_s
