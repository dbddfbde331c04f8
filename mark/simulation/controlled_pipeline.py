"""A pipeline in the virtual world: the real controller buys each stage, which serves behind real bouncers.

A stage is a service whose requests are the calls of queries, each with the time that its query has left. So stages are
bought like services: with forecasts at the horizon of a boot, the planner and the SLO monitor. Stages that are bought
together are one service, whose instances have a replica of each stage (`mark.planning.graphs.stage_group`).

Stages are simulated one after the other through the controller's windows, which is exact
(`mark.simulation.query_flow`). Changes of shared instances within a window are decided from observations before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from mark.control.coming_calls import ComingCalls, PipelineCalls, StageNow, stage_now
from mark.control.ports import WINDOW_S
from mark.control.shared_limits import next_limits
from mark.control.views import Limits
from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.bill import Bill
from mark.domain.function_offer import FunctionCalls
from mark.domain.pipeline import Lineage, Pipeline, needed_s
from mark.domain.profile import Basis
from mark.domain.service import ResolvedService
from mark.insurance.insurance_settings import InsuranceSettings
from mark.kernel.arrays import Ints
from mark.kernel.departures import BY_FUNCTION, REFUSED
from mark.kernel.horizons import horizons_s
from mark.kernel.stage import StageSimulation
from mark.planning.graphs.estimate import QuerySample
from mark.planning.policies.policy_registry import make_policy
from mark.simulation.coded_flow import CodedAnswers, CodedCounts, CodedFlow
from mark.simulation.inputs import Inputs
from mark.simulation.parts import stage_of
from mark.simulation.query_flow import QueryFlow
from mark.simulation.run import WINDOWS_A_TICK, Simulation
from mark.simulation.selected_calls import SelectedQueries
from mark.simulation.world.shared_instances import SharedInstances
from mark.simulation.world.simulated_cloud import FleetResult
from mark.simulation.world.telemetry import CountedAnswers


@dataclass(frozen=True, eq=False, slots=True)
class ControlledStage:
    """A stage as a service with its part of RT_max in `inputs`; a call takes at least `least_s`."""

    inputs: Inputs
    least_s: float

    @property
    def part_s(self) -> float:
        """The stage's part of the pipeline's RT_max."""
        return self.inputs.service.slo.rt_max_s


@dataclass(frozen=True, eq=False, slots=True)
class ControlledGroup:
    """Stages that are bought together, by their places in the pipeline; the stage `lead` determines the load.

    `inputs` describe the group as a service. The inputs of its stages have the same offers.
    """

    stages: tuple[int, ...]
    lead: int
    inputs: Inputs
    dollar_shares: tuple[tuple[float, ...], ...]  # by offer: the share of an instance that each stage's workers take


@dataclass(frozen=True, slots=True)
class ControlledSelection:
    """Stages are candidates: a query is decided `deadline_s` after its arrival, if a candidate has answered before.

    `queries` determine the calls of each query, if there is a file of answers.
    """

    deadline_s: float
    queries: SelectedQueries | None = None

    @property
    def follows_prices(self) -> bool:
        return self.queries is not None and self.queries.selected.follows_prices


@dataclass(frozen=True, eq=False, slots=True)
class ControlledOutcome:
    """The results and costs of one stage.

    `calls` is the number of calls made; `wait_s` is the mean wait of those on instances, `busy_s` the workers' busy
    seconds. `paid` instances are by minute. For shared instances, `fleet` and `paid` are of all of them, and `bill` is
    the stage's part.
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
    assumed_usd: float  # part of the bill that rests on assumed rows of profiles
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class PipelineOutcome:
    """The `latency_s` of each query, infinite without an answer.

    A selection also has `calls`, those of each query, and the stages that `answered` it in time; both are (N, S). A
    service with parity models has `coded`.
    """

    latency_s: FloatArray
    stages: tuple[ControlledOutcome, ...]
    calls: IntArray | None = None
    answered: BoolArray | None = None
    coded: CodedAnswers | None = None


def simulate_controlled(
    pipeline: Pipeline,
    stages: Sequence[ControlledStage],
    law: Lineage,
    served: QuerySample,
    policy: str,
    rt_max_s: float,
    limits: Limits,
    groups: Sequence[ControlledGroup] = (),
    selection: ControlledSelection | None = None,
    insurance: InsuranceSettings | None = None,
) -> PipelineOutcome:
    """Run every stage by its own controller with `policy`, and each of `groups` by one.

    All have the same part of one trace. Controllers share `limits`: each begins with its service's, and every minute
    they are divided by the services' use. By `law`, in the pipeline's order, each controller knows its share of the
    queries that others refuse. With a `selection`, queries go on without a refused call; if calls follow prices, a
    window's calls are chosen at its start. With an `insurance`, the stages are a model and its parity models, and the
    model's controller keeps the promise of the queries. Raises Infeasible, BadInput.
    """
    flow = QueryFlow(pipeline, served.arrivals_s, served.calls)
    coded: CodedFlow | None = None
    counts: CodedCounts | None = None
    if insurance is not None:
        coded = CodedFlow(
            insurance, rt_max_s, served.arrivals_s, lambda at_s: min(run_of[at].ready_rps() for at in parities)
        )
        counts = CodedCounts(coded, stages[0].inputs.service.slo_monitor.window)
    parities = range(1, len(stages))
    goes_on = selection is not None or coded is not None
    ways = [
        _StageWay(flow if coded is None else coded, at, one, rt_max_s, goes_on=goes_on) for at, one in enumerate(stages)
    ]
    calls = PipelineCalls(law.calls_per_query.tolist(), law.by_all.tolist())
    grouped = {at: group for group in groups for at in group.stages}
    runs: list[_StageRun | _GroupRun] = []
    for at, way in enumerate(ways):
        if at not in grouped:
            runs.append(_StageRun(way, policy, counts if at == 0 else None))
        elif at == grouped[at].stages[0]:
            group = grouped[at]
            runs.append(_GroupRun([ways[one] for one in group.stages], group, law.calls_per_query.tolist(), policy))
    run_of = {at: run for run in runs for at in run.places}
    parts_s = [one.part_s for one in stages]
    least_s = [one.least_s for one in stages]
    behind_s = needed_s(parts_s, pipeline.successors, pipeline.awaits_all)
    least_behind_s = needed_s(least_s, pipeline.successors, pipeline.awaits_all)
    for at, way in enumerate(ways):
        way.leaves(behind_s[at] - parts_s[at], least_behind_s[at] - least_s[at])
    if coded is not None:
        for at in parities:
            ways[at].leaves(coded.decode_s, coded.decode_s)
    for run in runs:
        run.begin()
    end_s, wanted = stages[0].inputs.duration_s, None
    if selection is not None and selection.queries is not None and selection.follows_prices:
        wanted = _WantedCalls(flow, selection.queries)
    for window in range(1, math.ceil(end_s / WINDOW_S) + 1):
        if window % WINDOWS_A_TICK == 1:
            _divide(limits, runs)
        # Read all stages at the same moment, before any of them advances.
        seen = [run_of[at].now(at) for at in range(len(stages))]
        for run in runs:
            run.coming = calls.coming(run.lead, seen, run.places) if wanted is None else wanted.coming(run.lead)
        if wanted is not None:
            wanted.choose([run_of[at].call_usd(at) for at in range(len(stages))], min(window * WINDOW_S, end_s))
        for at in range(len(stages)):
            run_of[at].pass_window(at, min(window * WINDOW_S, end_s))
        if counts is not None:
            counts.count(min(window * WINDOW_S, end_s))
    for at in range(len(stages)):
        run_of[at].finish(at)
    outcomes = tuple(run_of[at].outcome(at) for at in range(len(stages)))
    if coded is not None:
        answers = coded.answers()
        return PipelineOutcome(answers.latency_s, outcomes, coded=answers)
    if selection is None:
        return PipelineOutcome(flow.latency_s(), outcomes)
    latency_s, answered = flow.decided(selection.deadline_s)
    return PipelineOutcome(latency_s, outcomes, flow.calls, answered)


def _divide(whole: Limits, runs: Sequence[_StageRun | _GroupRun]) -> None:
    """Divide the limits twice, because one service must give up a share before another can get it."""
    for _ in range(2):
        holdings = [run.holding() for run in runs]
        for run, holding, limits in zip(runs, holdings, next_limits(whole, holdings), strict=True):
            if limits != holding.limits:
                run.limit(limits)


class _WantedCalls:
    """Calls that follow prices, and the calls wanted at planned prices, by which controllers plan.

    Planning by actual calls would let a high price hide demand: no instance would be bought, and the price would stay.
    """

    def __init__(self, flow: QueryFlow, queries: SelectedQueries) -> None:
        self._flow, self._queries = flow, queries
        self._next, self._now_s = 0, 0.0
        self._rps: deque[FloatArray] = deque(maxlen=WINDOWS_A_TICK)  # by window, the newest last

    def coming(self, stage: int) -> ComingCalls | None:
        """Return the calls that are wanted of a stage, by the windows that are over."""
        return ComingCalls(np.array([rps[stage] for rps in self._rps]), 1.0) if self._rps else None

    def choose(self, usd: Sequence[tuple[float, float]], until_s: float) -> None:
        """Choose the calls of the queries until `until_s`.

        `usd` has the planned and the current price of each stage's calls.
        """
        planned, now = zip(*usd, strict=True)
        first, self._next = self._next, self._flow.choose(self._next, until_s, partial(self._queries.asked, usd=now))
        self._rps.append(self._queries.wanted(first, self._next, planned) / (until_s - self._now_s))
        self._now_s = until_s


class _Calls:
    """The arrivals of one stage, handed over window by window."""

    def __init__(self) -> None:
        self.hand_over(np.empty(0), np.empty(0))

    def hand_over(self, times_s: FloatArray, limit_s: FloatArray) -> None:
        self._times_s, self._limit_s, self._next = times_s, limit_s, 0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        self._next = stage.advance(self._times_s, self._next, until_s, self._limit_s)


class _StageWay:
    """The calls that queries make to a stage, and their answers."""

    def __init__(
        self, flow: QueryFlow | CodedFlow, at: int, stage: ControlledStage, rt_max_s: float, *, goes_on: bool
    ) -> None:
        self._flow, self.at, self.stage, self.rt_max_s = flow, at, stage, rt_max_s
        self._goes_on = goes_on  # whether queries continue without a refused call
        self._behind_s = self._least_behind_s = 0.0
        self.calls = _Calls()
        self._counts = np.zeros(3, dtype=np.int64)  # on instances, by functions, refused
        self._wait_s = 0.0

    def leaves(self, behind_s: float, least_behind_s: float) -> None:
        """Set the parts of RT_max of the stages behind it, and the least time that these need."""
        self._behind_s, self._least_behind_s = behind_s, least_behind_s

    def due(self, until_s: float) -> None:
        """Hand over the stage's calls before `until_s`."""
        times_s, queries = self._flow.due(self.at, until_s)
        left_s = self._flow.left_s(times_s, queries, self.rt_max_s)
        limit_s = horizons_s(left_s, self.stage.part_s, self._behind_s, self._least_behind_s)
        self.calls.hand_over(times_s, limit_s)

    def answered(self, simulated: StageSimulation) -> None:
        """Pass on the stage's answers, as far as it was simulated."""
        gone = simulated.departures()
        call: Ints = gone.request
        if self._goes_on:
            missed = ~np.isfinite(gone.answer_s)
            # A refused call's start is the time of its refusal, or when it was given up after a crash.
            self._flow.missed(self.at, call[missed], gone.start_s[missed])
            self._flow.answered(self.at, call[~missed], gone.answer_s[~missed])
        else:
            self._flow.answered(self.at, call, gone.answer_s)
        on_instance = gone.slot >= 0
        self._counts += (on_instance.sum(), (gone.slot == BY_FUNCTION).sum(), (gone.slot == REFUSED).sum())
        self._wait_s += float((gone.start_s - gone.arrival_s)[on_instance].sum())

    def outcome(
        self, simulation: Simulation, simulated: StageSimulation, part: float, resolved: ResolvedService
    ) -> ControlledOutcome:
        """Return the stage's results, with its `part` of the simulated service's costs."""
        here, by_functions, refused = (int(count) for count in self._counts)
        bill = simulation.bill()
        return ControlledOutcome(
            resolved,
            bill
            if part == 1.0
            else Bill(**{market.name: part * getattr(bill, market.name) for market in fields(bill)}),
            simulation.fleet(),
            here + by_functions + refused,
            by_functions,
            refused,
            self._wait_s / here if here else math.nan,
            simulated.all_busy_s(),
            simulated.function_calls(),
            simulation.paid(),
            simulation.share_on(Basis.ASSUMED) * bill.total * part,
            simulation.notes,
        )


class _StageRun:
    """A stage with its own instances.

    Its controller keeps the promise of `answers`, by default of the stage's own ones.
    """

    def __init__(self, way: _StageWay, policy: str, answers: CountedAnswers | None = None) -> None:
        self._way, self.places, self.lead = way, (way.at,), way.at
        inputs = way.stage.inputs
        self._resolved = inputs.resolved
        self._simulation = Simulation(
            inputs,
            policy,
            inputs.request.predictor,
            keep=True,
            arrivals=way.calls,
            rt_max_s=way.rt_max_s,
            coming=lambda: self.coming,
            answers=answers,
        )
        self.coming: ComingCalls | None = None  # to the stage, in the next window
        self.begin = self._simulation.begin
        self.holding, self.limit = self._simulation.holding, self._simulation.limit
        self.ready_rps = self._simulation.ready_rps

    def now(self, at: int) -> StageNow:
        return self._simulation.stage_now()

    def call_usd(self, at: int) -> tuple[float, float]:
        """Return the planned and the current price of a call."""
        return self._simulation.request_usd()

    def pass_window(self, at: int, until_s: float) -> None:
        self._way.due(until_s)
        self._simulation.pass_window()
        self._simulation.stage.settle(until_s)
        self._way.answered(self._simulation.stage)

    def finish(self, at: int) -> None:
        self._way.due(np.inf)
        self._simulation.finish()
        self._way.answered(self._simulation.stage)

    def outcome(self, at: int) -> ControlledOutcome:
        return self._way.outcome(self._simulation, self._simulation.stage, 1.0, self._resolved)


class _GroupRun:
    """Stages on shared instances. They advance through a window in turn, and the first one opens it."""

    def __init__(
        self, ways: Sequence[_StageWay], group: ControlledGroup, calls_per_query: Sequence[float], policy: str
    ) -> None:
        self._group, self.places, self.lead = group, group.stages, group.lead
        self._ways = {way.at: way for way in ways}
        # The stages have the same seed for faults, because a slow instance is slow for all of them.
        self._simulated = {way.at: _stage(way, policy, group.inputs.request.seed) for way in ways}
        self._shared = SharedInstances(list(self._simulated.values()), group.stages.index(group.lead))
        inputs = group.inputs
        self._simulation = Simulation(
            inputs, policy, inputs.request.predictor, coming=lambda: self.coming, shared=self._shared
        )
        self._telemetry = {way.at: self._simulation.telemetry_of(self._simulated[way.at]) for way in ways}
        calls = calls_per_query[group.lead]
        self.ready_rps = self._simulation.ready_rps
        self._per_lead = {at: calls_per_query[at] / calls if calls > 0.0 else 1.0 for at in group.stages}
        self.coming: ComingCalls | None = None  # to the lead, in the next window
        self.begin = self._simulation.begin
        self.holding, self.limit = self._simulation.holding, self._simulation.limit

    def now(self, at: int) -> StageNow:
        whole = self._simulation.stage_now()
        own = stage_now(self._telemetry[at], None, self._ways[at].stage.inputs.resolved)
        return replace(own, capacity_rps=whole.capacity_rps * self._per_lead[at])

    def call_usd(self, at: int) -> tuple[float, float]:
        """Return the planned and the current price: the stage's part of the price of a lead's call."""
        part, calls = self._part(at), self._per_lead[at]
        planned, now = self._simulation.request_usd()
        return (part * planned / calls, part * now / calls) if calls > 0.0 else (0.0, 0.0)

    def pass_window(self, at: int, until_s: float) -> None:
        if at == self.places[0]:
            self._simulation.open_window()
        way, simulated = self._ways[at], self._simulated[at]
        way.due(until_s)
        self._shared.take(simulated, way.calls.advance)
        way.calls.advance(simulated, until_s)
        simulated.settle(until_s)
        way.answered(simulated)
        self._telemetry[at].close_window()
        if at == self.places[-1]:
            self._shared.passed(until_s)
            self._simulation.close_window()

    def finish(self, at: int) -> None:
        way, simulated = self._ways[at], self._simulated[at]
        way.due(np.inf)
        way.calls.advance(simulated, np.inf)
        simulated.finish()
        way.answered(simulated)
        if at == self.places[-1]:
            self._simulation.finish()

    def outcome(self, at: int) -> ControlledOutcome:
        return self._ways[at].outcome(
            self._simulation, self._simulated[at], self._part(at), self._ways[at].stage.inputs.resolved
        )

    def _part(self, at: int) -> float:
        """Return the stage's share of the group's dollars, by the hours of its instances."""
        resolved, hours = self._group.inputs.resolved, self._simulation.fleet().instance_hours
        usd = np.array([offer.usd_per_hour * hours.get(offer.name, 0.0) for offer in resolved.offers])
        shares = np.array(self._group.dollar_shares)[:, self.places.index(at)]
        return float(usd @ shares / usd.sum()) if usd.sum() > 0.0 else 1.0 / len(self.places)


def _stage(way: _StageWay, policy: str, fault_seed: int) -> StageSimulation:
    """Return the data plane of a stage that shares its instances."""
    inputs = way.stage.inputs
    bought = make_policy(policy, inputs.resolved, inputs.evaluated)
    return stage_of(inputs, bought, keep=True, rt_max_s=way.rt_max_s, fault_seed=fault_seed)
