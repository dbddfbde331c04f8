"""A pipeline whose replicas a tuner changes: every query is simulated, and dollars are counted by seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionCalls
from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.service import FunctionUse
from mark.domain.time import HOUR_S
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation
from mark.planning.graphs.estimate import Choices, QuerySample, StageChoice
from mark.planning.graphs.stage_functions import stage_functions
from mark.planning.graphs.tuner import Replicas, Tuner

STEP_S = 1.0

Activation = Callable[[int, int], float]
"""Seconds from asking for a replica to its first batch, by (stage, how many that stage asked for before)."""


@dataclass(frozen=True, eq=False, slots=True)
class TunedRun:
    """N queries in the order of their arrival, and T steps of the tuner for S stages."""

    begin_s: float
    end_s: float
    arrivals_s: FloatArray  # (N,)
    latency_s: FloatArray  # (N,)
    step_s: FloatArray  # (T,) time of each step
    paid: IntArray  # (T, S) replicas from the step on, serving or being activated
    active: IntArray  # (T, S) replicas that serve from the step on
    usd: float  # of replicas from `begin_s` to `end_s`
    usd_per_hour: FloatArray  # (T,) of the paid replicas
    stage_usd: FloatArray  # (S,) sums to `usd`
    paid_s: FloatArray  # (S,) sum over replicas of their paid seconds
    calls: IntArray  # (S,) answered by replicas
    wait_s: FloatArray  # (S,) sum over these calls, from ready to start
    busy_s: FloatArray  # (S,) sum over all workers
    by_function: tuple[FunctionCalls, ...] = ()  # by stage; empty: without functions
    function_usd: float = 0.0
    stage_function_usd: tuple[float, ...] = ()  # sums to `function_usd`

    @property
    def total_usd(self) -> float:
        """Dollars of replicas and functions."""
        return self.usd + self.function_usd

    def missed(self, slo_s: float) -> BoolArray:
        """Return for each query whether it was answered too late: shape (N,)."""
        return np.asarray(self.latency_s > slo_s + TOLERANCE_S)

    def miss_share(self, slo_s: float) -> float:
        """Return the share of the queries that are not answered within the SLO; 0 without queries."""
        return float(np.mean(self.missed(slo_s))) if len(self.arrivals_s) else 0.0

    def by_window(self, window_s: float, slo_s: float) -> tuple[FloatArray, FloatArray]:
        """Return the queries/s that arrived in each window of that length from `begin_s` on, and their miss share.

        The share is NaN in a window without queries.
        """
        windows = max(1, math.ceil((self.end_s - self.begin_s) / window_s - 1e-9))
        at = np.minimum(((self.arrivals_s - self.begin_s) / window_s).astype(np.int64), windows - 1)
        came = np.bincount(at, minlength=windows)
        late = np.bincount(at, weights=self.missed(slo_s), minlength=windows)
        with np.errstate(invalid="ignore"):
            return came / window_s, late / came


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tuner, asked every `step_s`; None: replicas stay fixed. A requested replica serves `activation_s` later."""

    tuner: Tuner | None
    activation_s: float | Activation
    step_s: float = STEP_S


FIXED = Tuning(None, 0.0)


def run_tuned(
    pipeline: Pipeline,
    queries: QuerySample,
    choices: Choices,
    tuning: Tuning,
    *,
    begin_s: float,
    end_s: float,
    slo_s: float,
    seed: int = 0,
    functions: Sequence[FunctionUse | None] | None = None,
    alone: Sequence[bool] = (),
) -> TunedRun:
    """Serve the queries that arrive in [begin_s, end_s); the tuner also sees earlier ones.

    At `begin_s` the planned replicas are active. A requested replica is paid from its request on. Replicas leave in
    reverse order of their requests; a leaving replica takes no further batch, and is paid for as long as its largest
    batch takes. `seed` is for the times of batches of options that have a spread. `functions` are the functions of the
    stages, or None: they answer calls that no replica begins in time (`mark.planning.graphs.stage_functions`), and
    bridge until another replica is active. Stages whose function is `alone` have only the replicas that a tuner
    requests: a call that is late there, or finds no environment, is not answered unless there is a replica.

    Raises BadInput where no query arrives, for a step that is not above zero, functions of other stages, and replicas
    that share instances, because the cost of one more depends on the others.
    """
    for name, choice in zip(pipeline.names, choices, strict=True):
        if choice.beside or choice.option.placement is not None:
            raise BadInput("shares instances, and only replicas by themselves are tuned", f"choice of {name}")
    tuner, activation_s, step_s = tuning.tuner, tuning.activation_s, tuning.step_s
    if not step_s > 0.0:
        raise BadInput("must be above zero", "step_s", step_s)
    order = np.argsort(queries.arrivals_s, kind="stable")
    arrivals_s, calls = queries.arrivals_s[order], queries.calls[order]
    first, last = np.searchsorted(arrivals_s, (begin_s, end_s))
    if first == last:
        raise BadInput("no query arrives in the part that is served", "arrivals_s")
    served_s = arrivals_s[first:last]
    numbered = PipelineQueries.of(served_s, calls[first:last], served_s + slo_s)
    simulated = PipelineSimulation(
        numbered,
        pipeline.predecessors,
        [stage.join for stage in pipeline.stages],
        [choice.option.service_s[: choice.batch + 1] for choice in choices],
        sigmas=[choice.option.sigma for choice in choices],
        seed=seed,
        functions=None if functions is None else stage_functions(pipeline, choices, functions, alone),
    )
    fleets = [_StageFleet(simulated, stage, choice) for stage, choice in enumerate(choices)]
    for fleet, by_itself in zip(fleets, alone or [False] * len(fleets), strict=True):
        # A tuner says at once how many replicas it wants; a replica that leaves then is paid for one batch.
        for _ in range(0 if by_itself and tuner is None else fleet.choice.replicas):
            fleet.ask(begin_s, -math.inf)
    state = None if tuner is None else tuner.begin()
    steps = max(1, math.ceil((end_s - begin_s) / step_s - 1e-9))
    times_s = begin_s + step_s * np.arange(steps, dtype=np.float64)
    paid, active = [], []
    for now_s in times_s:
        if tuner is not None:
            simulated.advance(now_s)
            replicas, state = tuner.step(state, arrivals_s[: np.searchsorted(arrivals_s, now_s)], now_s)
            _carry_out(fleets, replicas, now_s, activation_s)
        paid.append([len(fleet.held) for fleet in fleets])
        active.append([fleet.active(now_s) for fleet in fleets])
    simulated.advance()
    prices = np.array([choice.option.usd_per_hour for choice in choices])
    paid_s = np.array([fleet.paid_s(end_s) for fleet in fleets])
    stage_usd = paid_s / HOUR_S * prices
    outcomes = [simulated.outcome(stage) for stage in range(len(choices))]
    called = [] if functions is None else outcomes
    return TunedRun(
        begin_s,
        end_s,
        served_s,
        numbered.as_given(simulated.end_s() - numbered.arrival_s),
        times_s,
        np.array(paid),
        np.array(active),
        float(stage_usd.sum()),
        np.array(paid) @ prices,
        stage_usd,
        paid_s,
        np.array([outcome.started for outcome in outcomes]),
        np.array([outcome.wait_s for outcome in outcomes]),
        np.array([outcome.busy_s for outcome in outcomes]),
        tuple(outcome.by_function for outcome in called),
        sum(outcome.function_usd for outcome in called),
        tuple(outcome.function_usd for outcome in called),
    )


def _carry_out(
    fleets: Sequence[_StageFleet], replicas: Replicas, now_s: float, activation_s: float | Activation
) -> None:
    for fleet, wanted in zip(fleets, replicas, strict=True):
        for _ in range(wanted - len(fleet.held)):
            takes_s = activation_s(fleet.stage, fleet.asked) if callable(activation_s) else activation_s
            fleet.ask(now_s, now_s + takes_s)
        for _ in range(len(fleet.held) - wanted):
            fleet.remove(now_s)


@dataclass(slots=True)
class _StageFleet:
    """The replicas of one stage, and the paid seconds of those that left."""

    simulated: PipelineSimulation
    stage: int
    choice: StageChoice
    held: list[tuple[float, float, list[int]]] = field(default_factory=list)  # request, ready, numbers of its workers
    gone_s: float = 0.0
    asked: int = 0

    def ask(self, now_s: float, ready_s: float) -> None:
        numbers = [self.simulated.add(self.stage, self.stage, ready_s) for _ in range(self.choice.option.workers)]
        self.held.append((now_s, ready_s, numbers))
        self.asked += 1

    def remove(self, now_s: float) -> None:
        asked_s, ready_s, numbers = self.held.pop()
        for number in numbers:
            self.simulated.drain(self.stage, number, now_s)
        batch_s = float(self.choice.option.service_s[self.choice.batch]) if ready_s < now_s else 0.0
        self.gone_s += now_s + batch_s - asked_s

    def active(self, now_s: float) -> int:
        return sum(ready_s <= now_s for _, ready_s, _ in self.held)

    def paid_s(self, end_s: float) -> float:
        return self.gone_s + sum(end_s - asked_s for asked_s, _, _ in self.held)
