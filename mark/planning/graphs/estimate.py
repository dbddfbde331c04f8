"""The estimator of InferLine (SoCC '20, section 4.2): each query of a sample, simulated through a configured pipeline.

The workers of a stage's replicas pull batches from one central queue, the earliest deadline first; a batch of b takes
the profile's time (its mean and, where the profile has one, its spread), and nothing else takes time. Points that the
paper leaves open: docs/semantics.md, 17.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import TOLERANCE_S
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation, StageOutcome
from mark.planning.graphs.critical_paths import critical_path_s
from mark.planning.graphs.packing import Placement, packed_usd_per_hour

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Memory for outcomes of stages: more than a search over an hour's sample uses again
MEMORY_BYTES = 256 << 20


@dataclass(frozen=True, eq=False, slots=True)
class StageOption:
    """A model on one kind of hardware; `service_s[b]` is the time of a batch of b, shape (largest batch + 1,).

    A replica is the unit that is bought: a share of a machine that serves one batch at a time, or a whole instance with
    `workers` processes, each of which pulls a batch from the stage's queue when it is free. With a `placement` it is
    one worker on a shared instance: whole instances are bought, and its own price is a lower bound of its addition to
    the bill. Index 0 of the times is unused. Two options are the same only if they are one object.

    Raises BadInput for a table without a batch of one, times that are not above zero and finite, a negative price, no
    worker, and several workers with a placement.
    """

    hardware: str
    usd_per_hour: float  # of one replica
    service_s: Floats
    workers: int = 1  # batches that a replica serves at a time
    sigma: float = 0.0  # of the logarithm of a batch's time, of which service_s is the mean; lognormal
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if len(self.service_s) < 2:
            raise BadInput("has no time for a batch of one", f"service_s of {self.hardware}")
        if not (np.isfinite(self.service_s[1:]).all() and self.service_s[1:].min() > 0.0):
            raise BadInput("must be above zero", f"service_s of {self.hardware}", self.service_s[1:])
        if not self.usd_per_hour >= 0.0:
            raise BadInput("must not be negative", f"usd_per_hour of {self.hardware}", self.usd_per_hour)
        if not 0.0 <= self.sigma < math.inf:
            raise BadInput("must not be negative", f"sigma of {self.hardware}", self.sigma)
        if self.workers < 1:
            raise BadInput("must be at least 1", f"workers of {self.hardware}", self.workers)
        if self.placement is not None and self.workers > 1:
            raise BadInput("a placement is that of one worker", f"workers of {self.hardware}", self.workers)

    @property
    def largest_batch(self) -> int:
        return len(self.service_s) - 1

    def calls_per_s(self, batch: int) -> float:
        """Return the rate of one replica that is always busy, in its best batch up to this size."""
        return self.workers * float((np.arange(1, batch + 1) / self.service_s[1 : batch + 1]).max())


@dataclass(frozen=True, slots=True)
class StageChoice:
    """The configuration of a stage: its hardware, the largest `batch` and the number of replicas.

    `beside` are more replicas that pull from the same queue on other hardware, in the free room of instances that are
    bought for other stages. Raises BadInput for a batch without a time in the option, and for less than one replica.
    """

    option: StageOption
    batch: int
    replicas: int
    beside: tuple[tuple[StageOption, int], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.option.largest_batch:
            where = f"batch on {self.option.hardware}"
            raise BadInput(f"must be 1 to {self.option.largest_batch}", where, self.batch)
        for option, replicas in self.parts:
            if replicas < 1:
                raise BadInput("must be at least 1", f"replicas on {option.hardware}", replicas)

    @property
    def usd_per_hour(self) -> float:
        """Dollars by the options' prices; for replicas with a placement a lower bound of their part of a bill."""
        return sum(replicas * option.usd_per_hour for option, replicas in self.parts)

    @property
    def parts(self) -> tuple[tuple[StageOption, int], ...]:
        """All replicas, by hardware."""
        return ((self.option, self.replicas), *self.beside)

    @property
    def workers(self) -> int:
        """Batches that all replicas together serve at a time."""
        return sum(replicas * option.workers for option, replicas in self.parts)

    @property
    def calls_per_s(self) -> float:
        """Rate of all replicas together, if they are always busy."""
        return sum(
            replicas * option.calls_per_s(min(self.batch, option.largest_batch)) for option, replicas in self.parts
        )


Choices = tuple[StageChoice, ...]
"""One for each stage of a pipeline, in its order."""


def least_usd_per_hour(choices: Choices) -> float:
    """Return the dollars by the options' prices: a lower bound of the bill, and equal to it if nothing is shared."""
    return sum(choice.usd_per_hour for choice in choices)


def usd_per_hour(choices: Choices) -> float:
    """Return the dollars per hour of all that the choices buy."""
    parts = [part for choice in choices for part in choice.parts]
    placed = [(option.placement, replicas) for option, replicas in parts if option.placement is not None]
    if not placed:
        return least_usd_per_hour(choices)
    alone = sum(replicas * option.usd_per_hour for option, replicas in parts if option.placement is None)
    return alone + packed_usd_per_hour(placed)


def with_choice(choices: Choices, stage: int, choice: StageChoice) -> Choices:
    """Return the choices with this one for that stage."""
    return (*choices[:stage], choice, *choices[stage + 1 :])


def with_more(choices: Choices, stage: int, replicas: int) -> Choices:
    """Return the choices with `replicas` more for the stage; below zero: fewer."""
    return with_choice(choices, stage, replace(choices[stage], replicas=choices[stage].replicas + replicas))


def with_one_less(choices: Choices, stage: int) -> Choices | None:
    """Remove one replica of that stage, from its first hardware or else from `beside`; None if it is the only one."""
    choice = choices[stage]
    if choice.replicas > 1:
        return with_more(choices, stage, -1)
    if not choice.beside:
        return None
    (option, replicas), *others = choice.beside
    return with_choice(
        choices, stage, StageChoice(option, min(choice.batch, option.largest_batch), replicas, tuple(others))
    )


@dataclass(frozen=True, eq=False, slots=True)
class QuerySample:
    """N queries: when they arrive (s), and how often each calls each stage (0: it does not visit it).

    Raises BadInput without queries, and for shapes other than (N,) and (N, stages).
    """

    arrivals_s: Floats  # (N,), in any order
    calls: Ints  # (N, stages)

    def __post_init__(self) -> None:
        if not len(self.arrivals_s):
            raise BadInput("has no query", "arrivals_s")
        if self.calls.ndim != 2 or len(self.calls) != len(self.arrivals_s):
            raise BadInput("one row for each arrival, one column for each stage", "calls", self.calls.shape)


@dataclass(frozen=True, eq=False, slots=True)
class StageEstimate:
    """Waits and batches of one stage's calls; means are NaN without calls."""

    stage: str
    calls: int
    wait_s: float  # mean of all, from ready to start
    service_s: float  # mean of a batch
    batches: Ints  # (largest batch + 1,) started, by size
    utilisation: float  # busy share of all workers from the sample's first arrival to the end of the last batch

    @property
    def batch(self) -> float:
        """Mean size of a batch."""
        started = int(self.batches.sum())
        return self.calls / started if started else math.nan


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """The simulated latency of each query, in the order of the sample."""

    latency_s: Floats  # (N,) infinite: never answered
    stages: tuple[StageEstimate, ...]
    usd_per_hour: float

    def miss_share(self, slo_s: float) -> float:
        """Return the share of the queries that are not answered within the SLO."""
        return float(np.count_nonzero(self.latency_s > slo_s + TOLERANCE_S) / len(self.latency_s))

    def quantile_s(self, share: float) -> float:
        """Return the lowest latency that at least `share` of the queries do not exceed."""
        rank = max(1, math.ceil(share * len(self.latency_s) - 1e-9))
        return float(np.partition(self.latency_s, rank - 1)[rank - 1])


class PipelineEstimator:
    """Estimates of one pipeline under one sample; choices are in the order of its stages.

    A stage's outcome depends on its own choice and on the choices of the stages before it, and is remembered under
    these. So a search that changes one stage simulates only that stage and the stages behind it. `seed` is for the
    times of batches of options that have a spread. Estimates do not depend on earlier ones; `calls_simulated` counts
    the work done for them.

    Raises BadInput for a sample with other stages, and for an SLO that is not above zero.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sample: QuerySample,
        *,
        slo_s: float | None = None,
        memory_bytes: int = MEMORY_BYTES,
        seed: int = 0,
    ) -> None:
        if sample.calls.shape[1] != len(pipeline.stages):
            raise BadInput(f"must have {len(pipeline.stages)} columns", "calls", sample.calls.shape)
        if slo_s is not None and not slo_s > 0.0:
            raise BadInput("must be above zero", "slo_s", slo_s)
        self.calls_simulated = 0
        self._pipeline, self._slo_s, self._seed = pipeline, slo_s, seed
        deadline_s = None if slo_s is None else sample.arrivals_s + slo_s
        self._queries = PipelineQueries.of(sample.arrivals_s, sample.calls, deadline_s)
        self._predecessors = pipeline.predecessors
        self._joins = [stage.join for stage in pipeline.stages]
        self._upstream: list[tuple[int, ...]] = []  # by stage, the stages that it depends on, itself included
        for stage, before in enumerate(self._predecessors):
            self._upstream.append(tuple(sorted({stage, *(s for p in before for s in self._upstream[p])})))
        self._memory: OrderedDict[tuple[int, tuple[StageChoice, ...]], StageOutcome] = OrderedDict()
        self._most_remembered = max(0, memory_bytes // (2 * self._queries.arrival_s.nbytes))

    def estimate(self, choices: Sequence[StageChoice]) -> Estimate:
        """Estimate all queries. Raises BadInput unless there is one choice for each stage."""
        simulated = self._simulate(choices, None)
        outcomes = [simulated.outcome(stage) for stage in range(len(choices))]
        as_given = self._queries.as_given
        latency_s = as_given(simulated.end_s() - self._queries.arrival_s)
        return Estimate(
            latency_s,
            tuple(self._of_stage(*of) for of in zip(self._pipeline.names, choices, outcomes, strict=True)),
            usd_per_hour(tuple(choices)),
        )

    def path_s(self, choices: Sequence[StageChoice]) -> Floats:
        """Return the time each stage adds to each query's latency along its critical path, shape (N, stages).

        Rows are in the order of the sample. Raises BadInput unless there is one choice for each stage.
        """
        simulated = self._simulate(choices, None)
        outcomes = [simulated.outcome(stage) for stage in range(len(choices))]
        as_given = self._queries.as_given
        ready_s, answer_s = (
            np.stack([as_given(times_s) for times_s in of], axis=1)
            for of in ([one.ready_s for one in outcomes], [one.answer_s for one in outcomes])
        )
        return critical_path_s(self._pipeline, ready_s, answer_s)

    def feasible(self, choices: Sequence[StageChoice], attainment: float) -> bool:
        """Return whether at least `attainment` of the queries are answered within the SLO.

        Stops as soon as too many have certainly missed it. Raises BadInput without an SLO, for an attainment outside of
        0 to 1, and unless there is one choice for each stage.
        """
        if self._slo_s is None:
            raise BadInput("a promise needs an SLO", "slo_s")
        if not 0.0 <= attainment <= 1.0:
            raise BadInput("must be 0 to 1", "attainment", attainment)
        most_missed = math.floor((1.0 - attainment) * len(self._queries.arrival_s) + 1e-9)
        return self._simulate(choices, most_missed).missed <= most_missed

    def miss_share(self, choices: Sequence[StageChoice]) -> float:
        """Return the share of the queries that are not answered within the SLO; faster than `estimate`.

        Raises BadInput without an SLO, and unless there is one choice for each stage.
        """
        if self._slo_s is None:
            raise BadInput("a promise needs an SLO", "slo_s")
        return self._simulate(choices, None).missed / len(self._queries.arrival_s)

    def _simulate(self, choices: Sequence[StageChoice], most_missed: int | None) -> PipelineSimulation:
        if len(choices) != len(self._joins):
            raise BadInput(f"one for each of {len(self._joins)} stages", "choices", len(choices))
        keys = [(stage, tuple(choices[s] for s in upstream)) for stage, upstream in enumerate(self._upstream)]
        known = {stage: self._memory[key] for stage, key in enumerate(keys) if key in self._memory}
        parts = [(stage, *part) for stage, choice in enumerate(choices) for part in choice.parts]
        simulated = PipelineSimulation(
            self._queries,
            self._predecessors,
            self._joins,
            [option.service_s[: choices[stage].batch + 1] for stage, option, _ in parts],
            sigmas=[option.sigma for _, option, _ in parts],
            seed=self._seed,
            known=known,
        )
        for kind, (stage, option, replicas) in enumerate(parts):
            for _ in range(0 if stage in known else replicas * option.workers):
                simulated.add(stage, kind, -math.inf)
        simulated.advance(most_missed=most_missed)
        complete = simulated.clock_s == math.inf
        for stage, key in enumerate(keys):
            if stage not in known:
                outcome = simulated.outcome(stage)
                self.calls_simulated += outcome.started
                if complete and self._most_remembered:
                    # Copies, because a row would keep the memory of all stages
                    self._memory[key] = replace(
                        outcome, ready_s=outcome.ready_s.copy(), answer_s=outcome.answer_s.copy()
                    )
            elif complete:
                self._memory.move_to_end(key)
        while len(self._memory) > self._most_remembered:
            self._memory.popitem(last=False)
        return simulated

    def _of_stage(self, name: str, choice: StageChoice, outcome: StageOutcome) -> StageEstimate:
        started, batches = outcome.started, int(outcome.batches.sum())
        first_s = float(self._queries.arrival_s[self._queries.order[0]])
        return StageEstimate(
            name,
            started,
            outcome.wait_s / started if started else math.nan,
            outcome.busy_s / batches if batches else math.nan,
            outcome.batches[: choice.batch + 1],
            outcome.busy_s / (choice.workers * (outcome.last_s - first_s)) if batches else 0.0,
        )


def estimate(
    pipeline: Pipeline,
    sample: QuerySample,
    choices: Sequence[StageChoice],
) -> Estimate:
    """Make one estimate; for more than one use `PipelineEstimator`. Raises BadInput as that does.

    >>> from mark.domain.pipeline import PipelineStage
    >>> pipeline = Pipeline((PipelineStage("detect", "yolo"), PipelineStage("plates", "ocr", after=("detect",))))
    >>> sample = QuerySample(np.array([0.0, 0.01, 0.5]), np.array([[1, 2], [1, 0], [1, 1]]))
    >>> gpu = StageOption("g6.xlarge", 0.8, np.array([0.0, 0.04, 0.05]))
    >>> seen = estimate(pipeline, sample, [StageChoice(gpu, 1, 1), StageChoice(gpu, 2, 1)])
    >>> seen.latency_s.round(3).tolist(), seen.miss_share(0.085), seen.usd_per_hour
    ([0.09, 0.07, 0.08], 0.3333333333333333, 1.6)
    """
    return PipelineEstimator(pipeline, sample, memory_bytes=0).estimate(choices)
