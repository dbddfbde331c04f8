"""A pipeline in the virtual world: each stage is bought by the real controller, and serves behind real bouncers.

A stage is a service whose requests are the calls of queries, each with what its query has left. So what a stage is
bought with is what a service is bought with: forecasts at the horizon of a boot, the planner, the SLO monitor. Stages
are simulated one after the other through the controller's windows, which is exact (`mark.simulation.query_flow`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mark.control.coming_calls import ComingCalls, PipelineCalls
from mark.control.ports import WINDOW_S
from mark.control.shared_limits import next_limits
from mark.control.views import Limits
from mark.domain.arrays import FloatArray
from mark.domain.bill import Bill
from mark.domain.function_offer import FunctionCalls
from mark.domain.pipeline import Lineage, Pipeline, needed_s
from mark.domain.profile import Basis
from mark.domain.service import ResolvedService
from mark.kernel.departures import BY_FUNCTION, REFUSED
from mark.kernel.horizons import horizons_s
from mark.kernel.stage import StageSimulation
from mark.kernel.state import Ints
from mark.pipelines.estimate import QuerySample
from mark.simulation.inputs import Inputs
from mark.simulation.query_flow import QueryFlow
from mark.simulation.run import WINDOWS_A_TICK, Simulation
from mark.simulation.world.cloud import FleetResult


@dataclass(frozen=True, eq=False, slots=True)
class ControlledStage:
    """`inputs` are of the stage as a service with its part of RT_max; a call takes `least_s` at least."""

    inputs: Inputs
    least_s: float

    @property
    def part_s(self) -> float:
        """Of the pipeline's RT_max."""
        return self.inputs.service.slo.rt_max_s


@dataclass(frozen=True, eq=False, slots=True)
class ControlledOutcome:
    """What one stage did and cost.

    `calls` are those that were made; `wait_s` is the mean wait of those on instances, `busy_s` the seconds that workers
    were at work. `paid` instances are by the minute.
    """

    resolved: ResolvedService
    bill: Bill
    fleet: FleetResult
    calls: int
    by_functions: int
    refused: int
    wait_s: float
    busy_s: float
    function: FunctionCalls
    paid: FloatArray
    assumed_usd: float  # of the bill: what rests on assumed rows of profiles
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class PipelineOutcome:
    """`latency_s` of each query, infinite where it was not answered."""

    latency_s: FloatArray
    stages: tuple[ControlledOutcome, ...]


def simulate_controlled(
    pipeline: Pipeline,
    stages: Sequence[ControlledStage],
    law: Lineage,
    served: QuerySample,
    policy: str,
    rt_max_s: float,
    limits: Limits,
) -> PipelineOutcome:
    """Every stage by its own controller with `policy`; all stages have the same part of one trace as inputs.

    They share `limits`: each begins with those of its service, and every minute they are divided by what stages hold.
    By `law`, in the pipeline's order, each knows what it will get of queries that others refuse. Raises Infeasible,
    BadInput.
    """
    flow = QueryFlow(pipeline, served.arrivals_s, served.calls)
    runs = [_StageRun(flow, at, one, policy, rt_max_s) for at, one in enumerate(stages)]
    parts_s = [one.part_s for one in stages]
    least_s = [one.least_s for one in stages]
    behind_s = needed_s(parts_s, pipeline.successors, pipeline.awaits_all)
    least_behind_s = needed_s(least_s, pipeline.successors, pipeline.awaits_all)
    for at, run in enumerate(runs):
        run.begin(behind_s[at] - parts_s[at], least_behind_s[at] - least_s[at])
    calls = PipelineCalls(law.calls_per_query.tolist(), law.by_all.tolist())
    end_s = stages[0].inputs.duration_s
    for window in range(1, math.ceil(end_s / WINDOW_S) + 1):
        if window % WINDOWS_A_TICK == 1:
            _divide(limits, runs)
        seen = [run.now() for run in runs]  # of all at the same moment, before the first one goes on
        for at, run in enumerate(runs):
            run.coming = calls.coming(at, seen)
            run.pass_window(min(window * WINDOW_S, end_s))
    for run in runs:
        run.finish()
    return PipelineOutcome(flow.latency_s(), tuple(run.outcome() for run in runs))


def _divide(whole: Limits, runs: Sequence[_StageRun]) -> None:
    """Twice, since what one is to have more of another gives up first."""
    for _ in range(2):
        holdings = [run.holding() for run in runs]
        for run, holding, limits in zip(runs, holdings, next_limits(whole, holdings), strict=True):
            if limits != holding.limits:
                run.limit(limits)


class _Calls:
    """The arrivals of one stage, handed over window by window."""

    def __init__(self) -> None:
        self.hand_over(np.empty(0), np.empty(0))

    def hand_over(self, times_s: FloatArray, limit_s: FloatArray) -> None:
        self._times_s, self._limit_s, self._next = times_s, limit_s, 0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        self._next = stage.advance(self._times_s, self._next, until_s, self._limit_s)


class _StageRun:
    def __init__(self, flow: QueryFlow, at: int, stage: ControlledStage, policy: str, rt_max_s: float) -> None:
        self._flow, self._at, self._rt_max_s = flow, at, rt_max_s
        self._part_s = stage.part_s
        self._calls = _Calls()
        inputs = stage.inputs
        self._resolved = inputs.resolved
        self._simulation = Simulation(
            inputs, policy, inputs.request.predictor, keep=True, arrivals=self._calls, rt_max_s=rt_max_s,
            coming=lambda: self.coming,
        )  # fmt: skip
        self.coming: ComingCalls | None = None  # to the stage, in the window that is next
        self._behind_s = self._least_behind_s = 0.0
        self._counts = np.zeros(3, dtype=np.int64)  # on instances, by functions, refused
        self._wait_s = 0.0
        self.holding, self.limit = self._simulation.holding, self._simulation.limit
        self.now = self._simulation.stage_now

    def begin(self, behind_s: float, least_behind_s: float) -> None:
        self._behind_s, self._least_behind_s = behind_s, least_behind_s
        self._simulation.begin()

    def pass_window(self, until_s: float) -> None:
        self._due(until_s)
        self._simulation.pass_window()
        self._simulation.stage.settle(until_s)
        self._answered()

    def finish(self) -> None:
        self._due(np.inf)
        self._simulation.finish()
        self._answered()

    def _due(self, until_s: float) -> None:
        times_s, queries = self._flow.due(self._at, until_s)
        left_s = self._flow.left_s(times_s, queries, self._rt_max_s)
        limit_s = horizons_s(left_s, self._part_s, self._behind_s, self._least_behind_s)
        self._calls.hand_over(times_s, limit_s)

    def _answered(self) -> None:
        gone = self._simulation.stage.departures()
        call: Ints = gone.request
        self._flow.answered(self._at, call, gone.answer_s)
        on_instance = gone.slot >= 0
        self._counts += (on_instance.sum(), (gone.slot == BY_FUNCTION).sum(), (gone.slot == REFUSED).sum())
        self._wait_s += float((gone.start_s - gone.arrival_s)[on_instance].sum())

    def outcome(self) -> ControlledOutcome:
        here, by_functions, refused = (int(count) for count in self._counts)
        return ControlledOutcome(
            self._resolved,
            self._simulation.bill(),
            self._simulation.fleet(),
            here + by_functions + refused,
            by_functions,
            refused,
            self._wait_s / here if here else math.nan,
            self._simulation.stage.all_busy_s(),
            self._simulation.stage.function_calls(),
            self._simulation.paid(),
            self._simulation.share_on(Basis.ASSUMED) * self._simulation.bill().total,
            self._simulation.notes,
        )
