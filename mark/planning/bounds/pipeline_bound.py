"""The clairvoyant lower bound of a pipeline's bill. Its exact statement and the proof: docs/bound.md, "Pipelines".

For each stage alone the program of `mark.planning.bounds.lower_bound` gives prices at which no instance that hosts the
stage earns more than it costs. At these prices each query that is in time pays for its calls of all stages, so the bill
is at least the sum that all queries pay, less the dearest of those that may be late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput, Infeasible
from mark.domain.function_offer import is_function
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Candidate
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.bounds.linear_program import BoundProgram
from mark.planning.bounds.lower_bound import StepSeries, best_proof, build_problem, program_of
from mark.planning.graphs.critical_paths import call_windows_s, pattern_path_s
from mark.planning.graphs.estimate import QuerySample
from mark.planning.resolve import choose_function

Ints = NDArray[np.int64]

# Limit of a stage's bins, each at least a window long; a longer part has wider bins.
MOST_BINS = 200_000
# Rounds in which prices are sought again for the queries that were late at the last prices. Any prices are a proof.
_ROUNDS = 3
# A bound is a sum of up to some million products; this is far above its rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class PipelineBoundProblem:
    """N queries of a part that ends at `end_s`: their arrivals, in seconds from its start, and their calls.

    `stages[s]` is stage s as a service of its own that has all of the pipeline's time; its commitments are not used.
    Raises BadInput for shapes that do not fit, and for arrivals that are negative or not finite.
    """

    pipeline: Pipeline
    arrivals_s: FloatArray  # (N,), in any order
    pattern: Ints  # (N,) rows of `calls`
    calls: Ints  # (patterns, S)
    stages: tuple[ResolvedService, ...]  # (S,)
    slo: Slo
    end_s: float
    warm_start: bool = True
    spot: tuple[StepSeries, ...] = ()
    spot_first_hour_free: bool = False
    shared: bool = False  # offers are priced at the share of an instance that a stage's workers take

    @classmethod
    def of_sample(
        cls,
        pipeline: Pipeline,
        sample: QuerySample,
        stages: Sequence[ResolvedService],
        slo: Slo,
        *,
        end_s: float,
        warm_start: bool = True,
        shared: bool = False,
    ) -> PipelineBoundProblem:
        """Build the problem of queries that bring their own calls."""
        calls, pattern = np.unique(sample.calls, axis=0, return_inverse=True)
        return cls(
            pipeline,
            sample.arrivals_s,
            pattern.reshape(-1),
            calls,
            tuple(stages),
            slo,
            end_s,
            warm_start,
            shared=shared,
        )

    def __post_init__(self) -> None:
        if len(self.stages) != len(self.pipeline.stages) or self.calls.shape[1:] != (len(self.stages),):
            raise BadInput(f"one service and one column for each of {len(self.pipeline.stages)} stages", "bound stages")
        if self.arrivals_s.ndim != 1 or self.pattern.shape != self.arrivals_s.shape:
            raise BadInput("one pattern for each arrival", "bound pattern", self.pattern.shape)
        if not (np.isfinite(self.arrivals_s).all() and self.arrivals_s.min(initial=0.0) >= 0.0):
            raise BadInput("must be finite and not negative", "bound arrivals_s")
        if not (math.isfinite(self.end_s) and self.end_s >= 0.0):
            raise BadInput("the end must be finite and not negative", "bound end_s", self.end_s)


@dataclass(frozen=True, slots=True)
class StageBound:
    """A stage's part of the bound. Dollars and share describe approximately the fleet that would attain it."""

    stage: str
    calls: int  # calls that queries in time need
    window_s: float  # the longest that a call may take from its earliest time; 0: no call is needed
    bin_s: float
    instance_usd: float
    function_usd: float
    function_share: float  # of the calls

    @property
    def usd(self) -> float:
        return self.instance_usd + self.function_usd


@dataclass(frozen=True, slots=True)
class PipelineBound:
    """No fleet pays less. `usd`, the sum of the stages, is None if no fleet can answer enough queries in time."""

    usd: float | None
    late_allowed: float  # queries
    stages: tuple[StageBound, ...]
    note: str

    @property
    def instance_usd(self) -> float:
        return sum(stage.instance_usd for stage in self.stages)

    @property
    def function_usd(self) -> float:
        return sum(stage.function_usd for stage in self.stages)

    @property
    def function_share(self) -> float:
        """Share of all calls that go to functions."""
        calls = sum(stage.calls for stage in self.stages)
        return sum(stage.calls * stage.function_share for stage in self.stages) / calls if calls else 0.0

    @property
    def bin_s(self) -> float:
        """The widest bin of all stages."""
        return max((stage.bin_s for stage in self.stages), default=0.0)


def pipeline_bound(problem: PipelineBoundProblem, late_allowed: float = 0.0) -> PipelineBound:
    """Return the least that any fleet can pay that answers all but `late_allowed` queries in time, knowing the future.

    Each instance hosts one stage, unless the problem's prices are of `shared` ones. Batches serve as much as their mean
    times allow. Deterministic. Raises BadInput for a `late_allowed` that is negative or not finite.
    """
    try:
        stages, late = stage_problems(problem, late_allowed)
    except Infeasible as error:
        return PipelineBound(None, late_allowed, (), str(error))
    slack = [stage.most_calls(late) for stage in stages]
    best: PipelineBound | None = None
    for _ in range(_ROUNDS):
        priced = [stage.priced(most) for stage, most in zip(stages, slack, strict=True)]
        worth = np.zeros(len(problem.arrivals_s))
        for stage, prices in zip(stages, priced, strict=True):
            worth += stage.calls * prices.usd[stage.place]
        in_time = _but_the_dearest(worth, late)
        found = tuple(stage.bound(prices, in_time) for stage, prices in zip(stages, priced, strict=True))
        usd = sum(stage.usd for stage in found) * (1.0 - _ROUNDING)
        if best is None or best.usd is None or usd > best.usd:
            notes = dict.fromkeys(f"{s.name}: {p.note}" for s, p in zip(stages, priced, strict=True) if p.note)
            best = PipelineBound(max(0.0, usd), late_allowed, found, "; ".join(notes))
        before, slack = slack, [float(stage.calls @ (1.0 - in_time)) for stage in stages]
        if np.allclose(slack, before, rtol=0.01):
            break
    assert best is not None
    return best


def stage_problems(problem: PipelineBoundProblem, late_allowed: float) -> tuple[list[StageProblem], float]:
    """Return the problem of each stage alone, and how many of the queries that could be in time may be late.

    Raises Infeasible if more than `late_allowed` cannot be in time, and BadInput if that is negative or not finite.
    """
    if not (math.isfinite(late_allowed) and late_allowed >= 0.0):
        raise BadInput("the number of late queries must be finite and not negative", "late_allowed", late_allowed)
    least_s = [least_call_s(stage) for stage in problem.stages]
    rt_max_s = problem.slo.rt_max_s + TOLERANCE_S
    hopeless = pattern_path_s(problem.pipeline, problem.calls, least_s) > rt_max_s
    late = late_allowed - int(np.count_nonzero(hopeless[problem.pattern]))
    if late < 0.0:
        what = f"take longer than {problem.slo.rt_max_s * 1e3:g} ms even if nothing waits"
        raise Infeasible(f"{late_allowed - late:,.0f} queries {what}, {late_allowed:,.0f} may be late")
    ready_s, until_s = call_windows_s(problem.pipeline, problem.calls, least_s, rt_max_s)
    needed = np.where(np.isfinite(until_s), problem.calls, 0)
    stages = [
        StageProblem.of(problem, stage, needed[:, stage], ready_s[:, stage], until_s[:, stage])
        for stage in range(len(problem.stages))
    ]
    for stage in stages:
        most = stage.most_calls(late)
        if stage.stranded > most * (1.0 + _ROUNDING):
            what = f"{stage.name} can answer {stage.stranded:,.0f} calls nowhere in time"
            raise Infeasible(f"{what}, {most:,.0f} may be late")
    return stages, late


def least_call_s(stage: ResolvedService) -> float:
    """Return the least time of a call on any option of the stage; infinite without options."""
    profiles = [candidate.profile for candidate in stage.candidates]
    if stage.service.functions:
        profiles += [profile for name, profile in stage.profiles.items() if is_function(name)]
    # If times vary the quickest is not known.
    times_s = [
        min(0.0 if row.p99_ms is not None else row.latency_ms for row in one.rows) / 1e3 + one.overhead_s
        for one in profiles
    ]
    return min(times_s, default=math.inf)


def within_window(stage: ResolvedService, window_s: float, made_s: FloatArray) -> ResolvedService:
    """Return the stage with the offers that can answer calls within `window_s`, made at these times (ascending).

    Capacity is in batches that can fill up and end in time; offers that can answer at least one call stay.
    """
    service = replace(stage.service, slo=Slo(window_s, stage.slo.attainment))
    kept = [
        (offer, replace(candidate, ceiling_rps=ceiling))
        for offer, candidate in zip(stage.offers, stage.candidates, strict=True)
        if (ceiling := _ceiling_rps(candidate, window_s, made_s)) > 0.0
    ]
    function, _ = choose_function(service, stage.catalog, stage.profiles) if service.functions else (None, {})
    return replace(
        stage,
        service=service,
        offers=tuple(offer for offer, _ in kept),
        candidates=tuple(candidate for _, candidate in kept),
        function=function,
        committed={},
        committed_usd_per_hour=0.0,
    )


def _ceiling_rps(candidate: Candidate, window_s: float, made_s: FloatArray) -> float:
    """Return the most calls/s of an instance; 0: it is too slow for one. If times vary, the window is not used.

    Calls that one batch answers in time are made within the window less the time of the batch.
    """
    profile = candidate.profile
    if candidate.sigma > 0.0:
        return candidate.ceiling_rps
    sizes = np.arange(1, profile.rows[-1].batch + 1)
    batch_s = np.interp(sizes, [row.batch for row in profile.rows], [row.latency_ms / 1e3 for row in profile.rows])
    # Other calls may fill up a batch, so its size is at least the number of its calls in time.
    least_s = np.minimum.accumulate(batch_s[::-1])[::-1]

    def possible(calls: int) -> bool:
        left_s = window_s - float(least_s[calls - 1]) - candidate.overhead_s + TOLERANCE_S
        if calls > len(made_s) or left_s < 0.0:
            return False
        return float((made_s[calls - 1 :] - made_s[: len(made_s) - calls + 1]).min()) <= left_s

    # More calls take longer and were made over a longer time.
    low, high = 0, len(sizes) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    if low == len(sizes):
        return candidate.ceiling_rps
    return candidate.workers * float((sizes / least_s)[:low].max(initial=0.0))


@dataclass(frozen=True, eq=False, slots=True)
class _Prices:
    """Dollars of a call by bin, (bins,), less `launched_usd` of all together."""

    usd: FloatArray
    launched_usd: float = 0.0
    functions: float = 0.0  # approximate number of calls that go to functions
    note: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class StageProblem:
    """A stage's own problem: the calls of its N queries that are needed, and when these can be made.

    `resolved` has the offers that can answer them within the window, with their capacity in batches that do.
    """

    name: str
    calls_of: Ints  # (patterns,)
    made_after_s: FloatArray  # (patterns,) earliest time after the arrival
    place: NDArray[np.int32]  # (N,) the bin in which calls can be made
    bins: int
    bin_s: float
    window_s: float
    resolved: ResolvedService
    problem: PipelineBoundProblem

    @classmethod
    def of(
        cls, problem: PipelineBoundProblem, stage: int, calls: Ints, ready_s: FloatArray, until_s: FloatArray
    ) -> StageProblem:
        visited = calls > 0
        name, resolved = problem.pipeline.names[stage], problem.stages[stage]
        window_s = float((until_s - ready_s)[visited].max(initial=0.0))
        made_after_s = np.where(visited, ready_s, 0.0)
        # The most bins that fit whole, because requests of the last one are not paid for
        bins = max(1, min(MOST_BINS, int(problem.end_s / window_s))) if window_s > 0.0 else 1
        bin_s = max(problem.end_s / bins, window_s)
        made_s = problem.arrivals_s + made_after_s[problem.pattern]
        place = (
            np.minimum(made_s / bin_s, bins - 1).astype(np.int32) if bin_s > 0.0 else np.zeros(len(made_s), np.int32)
        )
        made_s = np.sort(np.repeat(made_s, calls[problem.pattern]))
        if len(made_s):
            resolved = within_window(resolved, window_s, made_s)
        return cls(name, calls, made_after_s, place, bins, bin_s, window_s, resolved, problem)

    @property
    def calls(self) -> Ints:
        """Calls of each query, (N,)."""
        return self.calls_of[self.problem.pattern]

    @property
    def made_s(self) -> FloatArray:
        """Earliest time of each call, ascending."""
        made_s = self.problem.arrivals_s + self.made_after_s[self.problem.pattern]
        return np.sort(np.repeat(made_s, self.calls))

    @property
    def stranded(self) -> float:
        """Calls that cannot be answered in time at any price."""
        if self.resolved.in_time_usd < math.inf or not self.calls.any():
            return 0.0
        if not self.resolved.offers:
            return float(self.calls.sum())
        program = self._program()
        return 0.0 if program is None else program.stranded * program.requests

    def most_calls(self, queries: float) -> float:
        """Return the calls of those `queries` queries that have the most."""
        return float(self.calls @ (1.0 - _but_the_dearest(self.calls.astype(np.float64), queries)))

    def priced(self, late: float) -> _Prices:
        """Return the prices that prove most if `late` calls may be late."""
        nothing = _Prices(np.zeros(self.bins))
        if float(self.calls.sum()) <= late:
            return nothing
        function_usd = self.resolved.in_time_usd
        if not self.resolved.offers:
            # Without instances the calls of the last bin cost as much as all others.
            return _Prices(np.full(self.bins, function_usd), functions=float(self.calls.sum()) - late)
        program = self._program()
        if program is None or late >= program.requests * float(program.demand.sum()):
            return nothing
        proof, worth = best_proof(program, late)
        launched_usd = proof.launched * program.usd
        usd = np.append(proof.prices * program.usd / program.requests, 0.0)
        if float(self.calls @ usd[self.place]) <= launched_usd:
            return nothing
        left_out = proof.left_out * program.requests - late if worth >= program.function else 0.0
        wider = f"found on bins of {self.bin_s * proof.factor:g} s, proven on bins of {self.bin_s:g} s"
        return _Prices(usd, launched_usd, max(0.0, left_out), wider if proof.factor > 1 else "")

    def bound(self, prices: _Prices, in_time: FloatArray) -> StageBound:
        calls = int(self.calls.sum())
        usd = float((self.calls * in_time) @ prices.usd[self.place]) - prices.launched_usd
        functions_usd = min(usd, prices.functions * self.resolved.in_time_usd) if prices.functions > 0.0 else 0.0
        share = min(1.0, prices.functions / calls) if calls else 0.0
        window_s = max(0.0, self.window_s - TOLERANCE_S)
        return StageBound(self.name, calls, window_s, self.bin_s, usd - functions_usd, functions_usd, share)

    def _program(self) -> BoundProgram | None:
        return program_of(
            build_problem(
                self.resolved,
                np.bincount(self.place, weights=self.calls, minlength=self.bins),
                end_s=self.problem.end_s,
                bin_s=self.bin_s,
                warm_start=self.problem.warm_start,
                spot=self.problem.spot,
                spot_first_hour_free=self.problem.spot_first_hour_free,
            )
        )


def _but_the_dearest(worth: FloatArray, late: float) -> FloatArray:
    """Return 1 for each query in time, 0 for the `late` ones of most worth, a fraction for the last of them: (N,)."""
    in_time = np.ones(len(worth))
    whole = math.floor(late)
    if whole >= len(worth):
        return np.zeros(len(worth))
    order = np.argpartition(worth, len(worth) - 1 - whole)
    in_time[order[len(worth) - whole :]] = 0.0
    in_time[order[len(worth) - 1 - whole]] = 1.0 - (late - whole)
    return in_time
