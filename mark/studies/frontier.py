"""Dollars against the promise: one run for each promise of a grid, each with a bound that no policy undercuts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.config.service_file import load_service
from mark.domain.errors import Infeasible
from mark.domain.slo import LONGEST_RT_MAX_S, Slo
from mark.planning.policies.names import split_policy
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.stopwatch import MadeForecasts
from mark.studies.compare import map_runs, run_one
from mark.studies.executor import StudyExecutor

RT_MAX_FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)  # times the service's own RT_max
NINES_AROUND = (-1, 0, 1)  # one nine less: ten times as many may be late


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One promise: its run, or the reason why no offer can keep it.

    `bound_usd` holds for this promise. It is the highest of the run's own bound and the bounds of the looser promises
    measured, because a run that keeps this promise keeps those too. None without a bound.
    """

    slo: Slo
    result: SimulationResult | None
    infeasible: str = ""
    bound_usd: float | None = None

    @property
    def usd(self) -> float | None:
        """The bill of the evaluated part; None if infeasible."""
        return None if self.result is None else self.result.bill.total

    @property
    def kept(self) -> bool | None:
        """Whether the run kept this promise; None if it is infeasible or without requests."""
        attained = None if self.result is None else self.result.slo_result.attainment
        return None if attained is None else attained >= self.slo.attainment

    @property
    def regret(self) -> float | None:
        """Bill over bound; None without a bound (`regret_reason` of the result says why)."""
        if self.result is None or self.result.regret is None or not self.bound_usd:
            return None
        return self.result.bill.total / self.bound_usd


@dataclass(frozen=True, slots=True)
class StricterStep:
    """The step from one promise to the next stricter one that was measured, along one of its two numbers.

    `usd` is the cost of `step`: dollars of the part for 10 ms less or for one more nine, in proportion between the two.
    None, with the reason, if one of the two promises was not kept.
    """

    to: Slo
    usd: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Frontier:
    """Points by confidence, attainment, then RT_max, all ascending; `own`, the service's own promise, is among them."""

    service: str
    policy: str
    seed: int
    own: Slo
    points: tuple[FrontierPoint, ...]

    def __post_init__(self) -> None:
        if self.own not in [point.slo for point in self.points]:
            raise ValueError("the service's own promise is not among the points")

    @property
    def own_point(self) -> FrontierPoint:
        return next(point for point in self.points if point.slo == self.own)

    @property
    def any_result(self) -> SimulationResult | None:
        """A run that stands for the trace, policy and prices that all share: the service's own if it has one."""
        found = [self.own_point, *self.points]
        return next((point.result for point in found if point.result is not None), None)

    def beaten_by(self, point: FrontierPoint) -> FrontierPoint | None:
        """Return the cheapest run that kept a promise at least as strict for less money, or None.

        A point that no run beats is on the frontier.
        """
        return _cheapest(
            other for other in self._as_strict(point.slo) if point.usd is None or (other.usd or 0.0) < point.usd
        )

    def cheapest_not_worse(self) -> FrontierPoint | None:
        """Return the cheapest run that kept the service's own promise or a stricter one."""
        return _cheapest(self._as_strict(self.own))

    def next_10_ms(self, point: FrontierPoint) -> StricterStep | None:
        """Return the cost of an RT_max shorter by 10 ms at this point; None if no shorter one was measured."""
        slo = point.slo
        alike = (p for p in self.points if replace(p.slo, rt_max_s=slo.rt_max_s) == slo)
        shorter = [p for p in alike if p.slo.rt_max_s < slo.rt_max_s]
        if not shorter:
            return None
        stricter = max(shorter, key=lambda p: p.slo.rt_max_s)
        return _step(point, stricter, (slo.rt_max_s - stricter.slo.rt_max_s) * 1e3 / 10.0)

    def next_nine(self, point: FrontierPoint) -> StricterStep | None:
        """Return the cost of one more nine at this point; None if no higher attainment was measured."""
        slo = point.slo
        alike = (p for p in self.points if replace(p.slo, attainment=slo.attainment) == slo)
        more = [p for p in alike if p.slo.attainment > slo.attainment]
        if not more:
            return None
        stricter = min(more, key=lambda p: p.slo.attainment)
        return _step(point, stricter, nines(stricter.slo.attainment) - nines(slo.attainment))

    def _as_strict(self, slo: Slo) -> list[FrontierPoint]:
        """Return the points whose run kept a promise that implies `slo`."""
        return [point for point in self.points if point.kept and implies(point.slo, slo)]


def frontier(
    request: RunRequest,
    rt_max_s: Sequence[float] = (),
    attainments: Sequence[float] = (),
    confidences: Sequence[float] = (),
    *,
    executor: StudyExecutor,
) -> Frontier:
    """Simulate the request's policy for each promise; see `promises_around` for the defaults.

    Raises BadInput, but not Infeasible: an infeasible promise is a point too.
    """
    service = load_service(request.service, any_unit=True)
    own = service.slo
    slos = promises_around(own, rt_max_s, attainments, confidences)
    policy, predictor = split_policy(request.policy, request.predictor)
    request = replace(request, policy=policy, predictor=predictor)
    tasks = [replace(request, slo=slo) for slo in slos]
    outcomes = map_runs(run_or_why_not, tasks, executor=executor, progress=request.progress)
    return Frontier(service.name, policy, request.seed, own, with_bounds(dict(zip(slos, outcomes, strict=True))))


def promises_around(
    own: Slo, rt_max_s: Sequence[float] = (), attainments: Sequence[float] = (), confidences: Sequence[float] = ()
) -> tuple[Slo, ...]:
    """Return every RT_max with every attainment and confidence, and the service's own promise, in ascending order.

    The order is by confidence, attainment, then RT_max. The service gives the windows and the defaults: its confidence;
    0.5, 0.75, 1, 1.5 and 2 times its RT_max; its attainment with a nine less and a nine more, for 0.98 these are 0.8
    and 0.998. An attainment below 0.9 cannot lose a nine. Raises BadInput for an invalid promise.
    """
    limits_s = rt_max_s or [
        limit_s for by in RT_MAX_FACTORS if (limit_s := _times(own.rt_max_s, by)) < LONGEST_RT_MAX_S
    ]
    shares = attainments or [share for more in NINES_AROUND if (share := with_nines(own.attainment, more)) > 0.0]
    slos = {
        Slo(limit_s, share, confidence, own.window_s)
        for limit_s in limits_s
        for share in shares
        for confidence in confidences or [own.confidence]
    }
    return tuple(sorted(slos | {own}, key=lambda slo: (slo.confidence, slo.attainment, slo.rt_max_s)))


def nines(attainment: float) -> float:
    """Return how many nines a share has: 1 for 0.9, 2 for 0.99, 1.7 for 0.98."""
    return -math.log10(1.0 - attainment)


def with_nines(attainment: float, more: int) -> float:
    """Return the share with `more` more nines; zero or below if it has too few to lose."""
    # Without rounding 0.98 less one nine would be 0.7999999999999998.
    return attainment if more == 0 else round(1.0 - (1.0 - attainment) * 10.0**-more, 12)


def _times(rt_max_s: float, factor: float) -> float:
    # Without rounding 0.75 times 0.6 s would be 449.99999999999994 ms.
    return rt_max_s if factor == 1.0 else round(rt_max_s * factor * 1e3, 9) / 1e3


def implies(strict: Slo, loose: Slo) -> bool:
    """Return whether a run that keeps `strict` keeps `loose`. Of two promises, neither may imply the other."""
    return (
        strict.rt_max_s <= loose.rt_max_s
        and strict.attainment >= loose.attainment
        and strict.confidence >= loose.confidence
    )


def with_bounds(outcomes: Mapping[Slo, SimulationResult | Infeasible]) -> tuple[FrontierPoint, ...]:
    """Return the points, each with the highest bound proven for it, so that no stricter promise has a lower bound.

    A proven bound need not be tight: its bins are as wide as RT_max, and prices are found on coarser ones. A looser
    promise's bound may thus lie above a stricter one's, and it holds for the stricter one as well: fewer offers and
    cheaper functions are in time, and fewer requests may be late. A run on types that only its policy may buy
    (SageMaker's, chosen for each promise) keeps its own bound, because the others do not know those types.
    """
    proven = {
        slo: outcome.bound_usd
        for slo, outcome in outcomes.items()
        if not isinstance(outcome, Infeasible) and outcome.bound_usd is not None and not outcome.bill.sagemaker
    }
    points = []
    for slo, outcome in outcomes.items():
        if isinstance(outcome, Infeasible):
            points.append(FrontierPoint(slo, None, str(outcome)))
        elif slo not in proven:
            points.append(FrontierPoint(slo, outcome, bound_usd=outcome.bound_usd))
        else:
            # A bound knows every request, so the confidence of its promise does not matter.
            highest = max(
                usd for looser, usd in proven.items() if implies(replace(slo, confidence=looser.confidence), looser)
            )
            points.append(FrontierPoint(slo, outcome, bound_usd=highest))
    return tuple(points)


def run_or_why_not(
    request: RunRequest, progress: Callable[[float], None] | None = None, made: MadeForecasts | None = None
) -> SimulationResult | Infeasible:
    """Return one run, or the reason why no offer can keep its promise. Raises BadInput."""
    try:
        return run_one(request, progress, made)
    except Infeasible as error:
        return error


def _cheapest(points: Iterable[FrontierPoint]) -> FrontierPoint | None:
    """Return the cheapest run; of equal bills the one with the strictest promise."""
    return min(points, key=lambda p: (p.usd or 0.0, -p.slo.attainment, p.slo.rt_max_s, -p.slo.confidence), default=None)


def _step(point: FrontierPoint, stricter: FrontierPoint, units: float) -> StricterStep:
    for one in (point, stricter):
        if one.usd is None:
            return StricterStep(stricter.slo, None, "no offer can keep it")
        if one.kept is None:
            return StricterStep(stricter.slo, None, "no requests arrived")
        if not one.kept:
            return StricterStep(
                stricter.slo, None, "the promise was missed" if one is stricter else "it is missed here"
            )
    return StricterStep(stricter.slo, ((stricter.usd or 0.0) - (point.usd or 0.0)) / units)
