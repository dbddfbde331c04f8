"""Ways to plan a pipeline and to follow its load, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.planning.graphs.black_box import CoarseTuner, coarse_plan
from mark.planning.graphs.bridging import FunctionRole, bridging
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import Choices, QuerySample, StageOption
from mark.planning.graphs.explained_plan import MOST_CALLS, RESAMPLES, plan_pipeline
from mark.planning.graphs.horizon_tuner import HorizonTuner
from mark.planning.graphs.inferline import inferline_plan
from mark.planning.graphs.load_levels import load_levels
from mark.planning.graphs.tuner import STABLE_ACTIVATIONS, InferLineTuner, Tuner


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The first choices, the tuner of their replicas (None: they stay fixed), and the functions that stages use."""

    choices: Choices
    tuner: Tuner | None
    functions: tuple[FunctionUse | None, ...] = ()  # by stage; empty: without functions
    alone: tuple[bool, ...] = ()  # for each stage, whether it may have no replica; empty: none may


@dataclass(frozen=True, eq=False, slots=True)
class LoadWindow:
    """The queries of a window: all, and the first ones, which are simulated for a plan if there are many."""

    whole: QuerySample
    sample: QuerySample
    sample_s: float  # the length of the sample

    @property
    def calls_per_s(self) -> list[float]:
        """Mean rate of calls of each stage in the sample."""
        found: list[float] = (self.sample.calls.sum(axis=0) / self.sample_s).tolist()
        return found


@dataclass(frozen=True, eq=False, slots=True)
class PipelinePlanningContext:
    """A policy's input; `options[s]` are the instances that stage s may have for itself."""

    pipeline: Pipeline
    slo: Slo
    options: Sequence[Sequence[StageOption]]
    shared: Sequence[Sequence[StageOption]] | None  # the same options by the worker, where stages may share instances
    known: LoadWindow  # before the part begins
    busiest: LoadWindow  # of the part
    boot_s: Mapping[str, float]  # mean, by instance type
    seed: int = 0
    functions: Sequence[FunctionUse | None] = ()  # by stage, its function if that is in time; empty: without functions
    may_be_alone: bool = False  # whether a stage may have its function and no instance

    def activation_s(self, choices: Choices) -> float:
        """Return the boot time of the slowest instance type: a query waits for all of its stages."""
        return max(self.boot_s[option.hardware] for choice in choices for option, _ in choice.parts)


@dataclass(frozen=True, slots=True)
class PipelinePolicy:
    """A policy. `plan` raises Infeasible if it finds no plan that keeps the promise, and BadInput.

    Without `plan` each stage is bought by a controller, as a service is.
    """

    plan: Callable[[PipelinePlanningContext], PolicyPlan] | None
    foresees: bool = False  # whether it plans on the part itself
    uses_functions: bool = False


def _tuned(context: PipelinePlanningContext) -> PolicyPlan:
    pipeline, known, slo = context.pipeline, context.known, context.slo
    choices = configure(
        pipeline, known.sample, context.options, slo, resamples=RESAMPLES, seed=context.seed, most_calls=MOST_CALLS,
        lasting_calls_per_s=known.calls_per_s,
    ).choices  # fmt: skip
    if not np.ptp(known.whole.arrivals_s) > 0.0:
        return PolicyPlan(choices, None)  # because rates need a time span
    levels = load_levels(pipeline, known.whole, choices, slo)
    tuner = HorizonTuner(levels, context.activation_s(choices))
    if not any(context.functions):
        return PolicyPlan(choices, tuner)
    found = bridging(
        pipeline,
        known.whole,
        choices,
        tuner,
        slo,
        context.functions,
        may_be_alone=context.may_be_alone,
        seed=context.seed,
    )
    begun = tuple(
        replace(choice, replicas=min(choice.replicas, other.replicas)) if role >= FunctionRole.BRIDGE else choice
        for choice, other, role in zip(choices, found.choices, found.roles, strict=True)
    )
    return PolicyPlan(begun, found.tuner, found.functions, found.alone)


def _inferline(context: PipelinePlanningContext) -> PolicyPlan:
    pipeline, known = context.pipeline, context.known
    choices, _ = inferline_plan(pipeline, known.sample, context.options, context.slo)
    stable_s = STABLE_ACTIVATIONS * context.activation_s(choices)
    return PolicyPlan(choices, InferLineTuner.of(pipeline, known.whole, choices, stable_s))


def _coarse_mean(context: PipelinePlanningContext) -> PolicyPlan:
    sample = context.known.sample
    choices = coarse_plan(context.pipeline, sample, context.options, context.slo, by="mean")
    return PolicyPlan(choices, CoarseTuner.of(sample, choices))


def _coarse_peak(context: PipelinePlanningContext) -> PolicyPlan:
    choices = coarse_plan(context.pipeline, context.busiest.sample, context.options, context.slo, by="peak")
    return PolicyPlan(choices, None)


def _fixed(context: PipelinePlanningContext) -> PolicyPlan:
    busiest = context.busiest
    plan = plan_pipeline(
        context.pipeline,
        busiest.sample,
        context.options,
        context.slo,
        duration_s=busiest.sample_s,
        seed=context.seed,
        shared=context.shared,
    )
    return PolicyPlan(plan.found.choices, None)


# In the order in which lists show them.
PIPELINE_POLICIES: Mapping[str, PipelinePolicy] = {
    # Each stage by the controller that buys for services, within its part of RT_max; the default.
    "mark": PipelinePolicy(None),
    # Our planner of pipelines, with an instance for each stage alone, and our tuner at the horizon of a boot, with
    # functions.
    "tuned": PipelinePolicy(_tuned, uses_functions=True),
    # InferLine's planner and tuner as printed, which ours have to beat.
    "inferline": PipelinePolicy(_inferline),
    # The pipeline as one black box, enough of it for the mean rate of the last half minute, as autoscalers do.
    "coarse-mean": PipelinePolicy(_coarse_mean),
    # The same black box for the highest peak, all the time, as careful operators do.
    "coarse-peak": PipelinePolicy(_coarse_peak, foresees=True),
    # The plan of `mark plan`, all the time: shows whether following the load pays.
    "fixed": PipelinePolicy(_fixed, foresees=True),
}


def pipeline_policy(name: str) -> PipelinePolicy:
    """Return the policy. Raises BadInput for an unknown name."""
    if name not in PIPELINE_POLICIES:
        known = ", ".join(PIPELINE_POLICIES)
        raise BadInput(f"unknown of a pipeline (known: {known})", "policy", name, known=PIPELINE_POLICIES)
    return PIPELINE_POLICIES[name]
