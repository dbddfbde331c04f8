"""The least that a fixed fleet of whole instances costs an hour: docs/bound.md, "A fixed fleet".

The bound is for plans of a pipeline, whose fleet is fixed; if stages share instances, it counts whole workers at their
parts' prices. It knows every arrival like the bound of the bill.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import Infeasible
from mark.kernel.compiled import compiled
from mark.planning.bounds.pipeline_bound import PipelineBoundProblem, StageProblem, stage_problems
from mark.planning.solver.mixed_program import Constraint, solve_mixed

# Bisections of the rate that a stage needs, from twice a sufficient rate
_HALVINGS = 40
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class FixedFleetBound:
    """No fixed fleet of whole instances (if shared: of whole workers) costs less; dollars by stage."""

    stages: tuple[float, ...]

    @property
    def usd_per_hour(self) -> float:
        return sum(self.stages)


def fixed_fleet_bound(problem: PipelineBoundProblem, late_allowed: float = 0.0) -> FixedFleetBound | None:
    """Bound the fleets that answer all but `late_allowed` queries in time without functions; None if no fleet can.

    Raises BadInput for a `late_allowed` that is negative or not finite.
    """
    try:
        stages, late = stage_problems(problem, late_allowed)
    except Infeasible:
        return None
    found = [_least_usd_per_hour(stage, least_calls_per_s(stage, stage.most_calls(late))) for stage in stages]
    return None if math.inf in found else FixedFleetBound(tuple(found))


def least_calls_per_s(stage: StageProblem, late_calls: float) -> float:
    """Return the calls/s that a stage needs so that at most `late_calls` are not answered within the window."""
    made_s = stage.made_s
    if len(made_s) <= late_calls:
        return 0.0
    low, high = 0.0, 1.0 / stage.window_s
    while _unanswered(made_s, stage.window_s, high) > late_calls:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _unanswered(made_s, stage.window_s, middle) > late_calls:
            low = middle
        else:
            high = middle
    return low


@compiled
def _unanswered(made_s: FloatArray, window_s: float, calls_per_s: float) -> int:
    """Return the calls that one server of this rate must leave out to answer all others within the window.

    It takes each call that it can, first come, first served: because calls and windows are all alike, no other rule
    leaves out fewer.
    """
    waiting, before_s, left_out = 0.0, 0.0, 0
    room = calls_per_s * window_s * (1.0 + 1e-9)
    for at_s in made_s:
        waiting = max(0.0, waiting - calls_per_s * (at_s - before_s))
        before_s = at_s
        if waiting + 1.0 <= room:
            waiting += 1.0
        else:
            left_out += 1
    return left_out


def _least_usd_per_hour(stage: StageProblem, calls_per_s: float) -> float:
    """Return the $/h of whole instances, or workers, that together serve `calls_per_s`; infinite without offers."""
    if calls_per_s <= 0.0:
        return 0.0
    kinds = sorted(
        (offer.usd_per_hour / parts, -candidate.ceiling_rps / parts)
        for offer, candidate in zip(stage.resolved.offers, stage.resolved.candidates, strict=True)
        for parts in [candidate.workers if stage.problem.shared else 1]
    )
    kept: list[tuple[float, float]] = []
    for usd, minus_rps in kinds:
        if not kept or -minus_rps > kept[-1][1]:
            kept.append((usd, -minus_rps))
    if not kept:
        return math.inf
    usd_per_hour, rps = np.array(kept).T
    # In units of the required rate, so that the solver's tolerances fit any rate
    enough = Constraint(range(len(kept)), rps / calls_per_s, 1.0 - _ROUNDING)
    found = solve_mixed(usd_per_hour, np.ones(len(kept), dtype=bool), np.full(len(kept), math.inf), [enough])
    return found.bound * (1.0 - 1e-9) if found.optimal else 0.0
