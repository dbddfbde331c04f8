"""The clairvoyant lower bound of the bill (docs/semantics.md, 12). Formula, assumptions and proof: docs/bound.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S, LAUNCH_CREDIT_STARTS_PER_DAY, UNBILLED_PENDING_S
from mark.domain.errors import BadInput
from mark.domain.offer import Market, Offer
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.domain.time import DAY_S
from mark.planning.bounds.linear_program import BoundProgram, Proof, prove, solve_lp

# Bins on which the price of credits is sought. It may be inexact: any price proves a bound, and near the best one its
# error hardly matters.
_CREDIT_BINS = 600
_LATE_BINS = 5_000  # a part with fewer bins keeps them in the search for the price of a late request
_LATE_SEARCH = ((16, 10), (4, 5))  # (bins taken as one, most evaluations)
# A bound is a sum of up to a million products; this is far above its rounding.
_ROUNDING = 1e-9


class StepSeries(Protocol):
    """A spot series of the simulated cloud: `shares[i]` holds from `times_s[i]` on, and again every `period_s`.

    `kind` is "availability" (share of the spot capacity that can be held) or "price" (spot over on-demand price).
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def times_s(self) -> Sequence[float]: ...
    @property
    def shares(self) -> Sequence[float]: ...
    @property
    def period_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class SpotHistory:
    """The past of a spot offer by bin: dollars per hour and whether it could be held; both (bins,), or None.

    None: the catalogue's price, and always available.
    """

    usd_per_hour: FloatArray | None = None
    available: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class BoundProblem:
    """`counts` arrivals per bin of `bin_s`, from the start of the evaluated part, which ends at `end_s`.

    `spot[i]` belongs to offer i of the resolved service; empty: the catalogue's terms. Build it with `build_problem`.
    """

    counts: FloatArray
    bin_s: float
    resolved: ResolvedService
    warm_start: bool
    end_s: float
    spot: tuple[SpotHistory, ...] = ()
    spot_first_hour_free: bool = False

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or not np.all(np.isfinite(self.counts)) or np.any(self.counts < 0.0):
            raise BadInput("counts must be a row of finite numbers, not negative", "bound", self.counts.shape)
        if not (math.isfinite(self.bin_s) and self.bin_s >= self.resolved.slo.rt_max_s - 1e-9):
            raise BadInput("a bin must be as wide as RT_max at least", "bound bin_s", self.bin_s)
        if not (math.isfinite(self.end_s) and self.end_s >= 0.0):
            raise BadInput("the end must be finite and not negative", "bound end_s", self.end_s)
        if self.spot and len(self.spot) != len(self.resolved.offers):
            raise BadInput("spot terms and offers differ in number", "bound", len(self.spot))


@dataclass(frozen=True, slots=True)
class Bound:
    """No policy pays less. `usd` is None if no policy can answer all requests; `status` is "proven" or "infeasible".

    `usd` is the higher of `fluid_usd`, which the linear program proves with divisible instances, and `whole_usd`, which
    counts whole instances (None if that was not requested). `disks_usd` of `usd` are for disks. `instance_usd`,
    `function_usd` and `function_share` (of the requests) describe approximately the fleet that would attain `usd`.
    `feasible_usd` is a plan of whole instances by the bound's own rules; no proof by these rules can exceed it. `gap`
    is the most, relative, that the bound is below the linear program's value; None if that was not measured.
    """

    usd: float | None
    bin_s: float
    late_allowed: float
    function_share: float
    instance_usd: float
    function_usd: float
    status: str
    note: str
    gap: float | None = None
    fluid_usd: float | None = None
    whole_usd: float | None = None
    feasible_usd: float | None = None
    disks_usd: float = 0.0


def bin_width_s(slo: Slo) -> float:
    """Return the width of the bins in which a run counts its arrivals for the bound."""
    return max(slo.rt_max_s, 1.0)


def build_problem(
    resolved: ResolvedService,
    counts: NDArray[np.floating] | NDArray[np.integer] | Sequence[float],
    *,
    end_s: float,
    bin_s: float | None = None,
    warm_start: bool = True,
    spot: Sequence[StepSeries] = (),
    spot_first_hour_free: bool = False,
) -> BoundProblem:
    """Build the problem of a run: arrivals by bin, and the spot series that the simulated cloud also gets.

    Series go to the catalogue's spot zones in order, and are repeated if there are fewer. Raises BadInput, also for a
    price series on a type whose on-demand price the catalogue lacks.
    """
    bin_s = bin_width_s(resolved.slo) if bin_s is None else bin_s
    demand = np.asarray(counts, dtype=np.float64)
    terms: tuple[SpotHistory, ...] = ()
    if spot and demand.ndim == 1 and bin_s > 0.0:
        terms = _spot_terms(resolved, spot, len(demand), bin_s)
    return BoundProblem(demand, bin_s, resolved, warm_start, end_s, terms, spot_first_hour_free)


def fluid_bound(problem: BoundProblem, late_allowed: float = 0.0) -> Bound:
    """Return the least that any policy can pay that answers all but `late_allowed` requests in time, knowing the
    future.

    Instances can be divided here; `mark.planning.bounds.whole_bound` counts them whole. Takes about half a second for a
    day of one-second bins. Deterministic. Raises BadInput for a `late_allowed` that is negative or not finite.
    """
    if not (math.isfinite(late_allowed) and late_allowed >= 0.0):
        raise BadInput("the number of late requests must be finite and not negative", "late_allowed", late_allowed)
    late_allowed, total = float(late_allowed), float(problem.counts.sum())
    function_usd = problem.resolved.in_time_usd
    notes = []
    if problem.spot_first_hour_free and any(o.market is Market.SPOT for o in problem.resolved.offers):
        notes.append("spot counted as free: with --spot-first-hour-free it may be")

    committed_usd = problem.resolved.committed_usd_per_hour * problem.end_s / 3600.0
    if committed_usd > 0.0:
        notes.append(f"${committed_usd:.2f} of it for committed instances, paid anyway")

    def bound(usd: float, functions: float, gap: float | None = None) -> Bound:
        usd = max(0.0, usd) * (1.0 - _ROUNDING)
        spent = min(usd, functions * function_usd) if functions > 0.0 else 0.0
        share = min(1.0, functions / total) if total > 0.0 else 0.0
        usd += committed_usd
        return Bound(
            usd, problem.bin_s, late_allowed, share, usd - spent, spent, "proven", "; ".join(notes), gap, fluid_usd=usd
        )

    def infeasible(requests: float, why: str) -> Bound:
        note = f"{why}: {requests:,.0f} requests, {late_allowed:,.0f} may be late"
        return Bound(None, problem.bin_s, late_allowed, 0.0, 0.0, 0.0, "infeasible", note)

    if total <= late_allowed:
        return bound(0.0, 0.0)
    if not problem.resolved.offers:
        # Without instances the last bins' requests go to functions too.
        if function_usd == math.inf:
            return infeasible(total, "neither instances nor a function in time")
        return bound((total - late_allowed) * function_usd, total - late_allowed, 0.0)
    program = program_of(problem)
    if program is None:
        notes.append("nothing to prove: the part is shorter than two bins, or without requests until its end")
        return bound(0.0, 0.0)
    if function_usd == math.inf and program.stranded * program.requests > late_allowed * (1.0 + _ROUNDING):
        return infeasible(program.stranded * program.requests, "no spot capacity to be had and no function in time")

    if late_allowed >= program.requests * float(program.demand.sum()):
        notes.append("nothing to prove: as many requests may be late as the program has")
        return bound(0.0, 0.0)

    proof, worth = best_proof(program, late_allowed)
    late = late_allowed / program.requests
    if proof.factor > 1:
        notes.append(f"found on bins of {problem.bin_s * proof.factor:g} s, proven on bins of {problem.bin_s:g} s")
    served = proof.left_out - late if worth >= program.function else 0.0
    measured = proof.gap if late == 0.0 and not program.credits.any() else None
    usd = (proof.value - late * worth) * program.usd
    return bound(usd, served * program.requests, measured)


def best_proof(program: BoundProgram, late_allowed: float) -> tuple[Proof, float]:
    """Return the best proof found if `late_allowed` requests, not all, may be late, and the price of one."""
    credit_price = np.zeros(program.types)
    if program.credits.any():
        small = program.coarse(-(-program.bins // _CREDIT_BINS))
        solution = solve_lp(small, max(late_allowed / program.requests, small.stranded))
        if solution is not None:
            credit_price = solution.credit_price
    late = late_allowed / program.requests
    worth = program.highest + float(credit_price.max(initial=0.0)) if program.function == math.inf else program.function
    if late > 0.0:
        worth = _late_price(program, late, worth, credit_price)
    return prove(program, worth, credit_price), worth


def _late_price(program: BoundProgram, late: float, highest: float, credit_price: FloatArray) -> float:
    """Return the approximate price of one more late request.

    The bound is concave in this price: between two tangents the maximum lies below where they cross. It is sought on
    larger bins, roughly and then more finely, which is good enough, because every price proves a bound.
    """
    price = highest
    for factor, evaluations in _LATE_SEARCH:
        small = program.coarse(min(factor, 1 + program.bins // _LATE_BINS))
        # (price, value, slope) below and above the maximum; at price 0 all requests are late.
        low = (0.0, 0.0, float(small.demand.sum()) - late)
        high: tuple[float, float, float] | None = None
        best = low
        for _ in range(evaluations):
            proof = prove(small, price, credit_price, tolerance=1e-3)
            point = (price, proof.value - late * price, proof.left_out - late)
            best = max(best, point, key=lambda known: known[1])
            if point[2] >= 0.0:
                low = point
            else:
                high = point
            if high is None:
                if price >= highest:
                    break
                price = min(highest, 1.5 * price)
                continue
            crossing = (high[1] - high[2] * high[0] - low[1] + low[2] * low[0]) / (low[2] - high[2])
            if low[1] + low[2] * (crossing - low[0]) - best[1] <= 1e-3 * abs(best[1]):
                break
            # Values and slopes are a little inexact, so the crossing may miss the bracket.
            price = crossing if low[0] < crossing < high[0] else 0.5 * (low[0] + high[0])
        if best[0] > 0.0:
            price = best[0]
    return price


@dataclass(frozen=True, slots=True)
class _Type:
    """An offer in the program; money in dollars, credits in requests at full speed."""

    name: str
    price: float | FloatArray  # price of running capacity for one request
    start: float  # price of starting capacity for one request per second
    available: BoolArray | None
    credits: bool = False
    earned: float = 0.0
    launch: float = 0.0
    surplus: float = math.inf

    def dominates(self, other: _Type) -> bool:
        """Return whether its instances can always replace the other's for no more money."""
        if not (np.all(self.price <= other.price) and self.start <= other.start):
            return False
        if self.available is not None and (other.available is None or bool(np.any(other.available & ~self.available))):
            return False
        if not self.credits:
            return True
        return (
            other.credits
            and self.earned >= other.earned
            and self.launch >= other.launch
            and self.surplus <= other.surplus
        )


def bins_within(problem: BoundProblem) -> int:
    """Return how many bins lie within the part."""
    return min(len(problem.counts), math.floor(problem.end_s / problem.bin_s + 1e-9))


def program_of(problem: BoundProblem) -> BoundProgram | None:
    """Return the linear program over the bins that lie within the part, without the types that are not needed.

    None without requests to serve.
    """
    function_usd = problem.resolved.in_time_usd
    bins = bins_within(problem)
    demand = problem.counts[: max(bins - 1, 0)]
    if not demand.any():
        return None
    kept: list[_Type] = []
    for kind in sorted(_types(problem, bins), key=lambda t: (float(np.mean(t.price)), t.start, t.credits, t.name)):
        # A type that costs more for a request than the function is not needed.
        if not np.all(kind.price >= function_usd) and not any(better.dominates(kind) for better in kept):
            kept.append(kind)
    shape = (bins, len(kept))
    price, available = np.empty(shape), np.ones(shape, dtype=np.bool_)
    for i, kind in enumerate(kept):
        price[:, i] = kind.price
        if kind.available is not None:
            available[:, i] = kind.available
    positive = price[price > 0.0]
    usd = float(positive.min()) if positive.size else min(function_usd, 1.0)
    requests = float(demand.mean())
    return BoundProgram(
        usd=usd * requests,
        requests=requests,
        demand=demand / requests,
        price=price / usd,
        available=available,
        start=np.array([kind.start for kind in kept]) / problem.bin_s / usd,
        function=function_usd / usd,
        warm_start=problem.warm_start,
        credits=np.array([kind.credits for kind in kept], dtype=np.bool_),
        earned=np.array([kind.earned for kind in kept]),
        launch=np.array([kind.launch for kind in kept]) / requests,
        surplus=np.array([kind.surplus for kind in kept]) / usd,
        launches=float(LAUNCH_CREDIT_STARTS_PER_DAY * math.ceil(problem.end_s / DAY_S)),
        free=committed_rps(problem.resolved) * problem.bin_s / requests,
    )


def committed_rps(resolved: ResolvedService) -> float:
    """Return the requests/s that committed instances serve at most."""
    pairs = zip(resolved.offers, resolved.candidates, strict=True)
    return sum(resolved.committed.get(offer.name, 0) * candidate.ceiling_rps for offer, candidate in pairs)


def _types(problem: BoundProblem, bins: int) -> list[_Type]:
    resolved = problem.resolved
    terms = problem.spot or (SpotHistory(),) * len(resolved.offers)
    return [
        _type(
            offer,
            candidate,
            term,
            bins,
            free=problem.spot_first_hour_free and offer.market is Market.SPOT,
            billed_s=billed_boot_s(offer, resolved),
        )
        for offer, candidate, term in zip(resolved.offers, resolved.candidates, terms, strict=True)
    ]


def billed_boot_s(offer: Offer, resolved: ResolvedService) -> float:
    """Return the least billed seconds before an instance of the offer is ready."""
    # Standbys are stopped burstables; the warm pool holds instances on demand.
    resumes = offer.market is Market.BURSTABLE or (resolved.service.warm_pool > 0 and offer.market is Market.ON_DEMAND)
    boot_s = offer.boot.shortest_s
    if resumes and offer.resume is not None:
        boot_s = min(boot_s, offer.resume.shortest_s)
    return max(0.0, boot_s - UNBILLED_PENDING_S)


def _type(offer: Offer, candidate: Candidate, terms: SpotHistory, bins: int, *, free: bool, billed_s: float) -> _Type:
    capacity_rps = candidate.ceiling_rps
    usd_per_s: float | FloatArray = offer.usd_per_s
    if free:
        usd_per_s = 0.0
    elif terms.usd_per_hour is not None:
        usd_per_s = terms.usd_per_hour[:bins] / 3600.0
    name, price = offer.name, usd_per_s / capacity_rps
    start = float(np.min(price)) * billed_s
    credits = offer.credits
    if offer.market is not Market.BURSTABLE or credits is None or offer.vcpu <= 0.0:
        return _Type(name, price, start, terms.available[:bins] if terms.available is not None else None)
    # One credit is one vCPU-minute; a request takes all vCPUs for 1 / capacity seconds.
    requests_per_credit = 60.0 * capacity_rps / offer.vcpu
    surplus = credits.surplus_usd_per_vcpu_hour
    return _Type(
        name,
        price,
        start,
        None,
        credits=True,
        earned=credits.credits_per_hour / (60.0 * offer.vcpu),
        launch=credits.launch_credits * requests_per_credit,
        surplus=math.inf if surplus is None else surplus / 60.0 / requests_per_credit,
    )


def _spot_terms(
    resolved: ResolvedService, series: Sequence[StepSeries], bins: int, bin_s: float
) -> tuple[SpotHistory, ...]:
    """Assign the series to the zones, as the simulated cloud does."""
    zones = resolved.catalog.spot_zones
    held = [_available(s, bins, bin_s) for s in series if s.kind == "availability"]
    priced = [(s, _lowest(s, bins, bin_s)) for s in series if s.kind == "price"]
    on_demand = {o.instance: o.usd_per_hour for o in resolved.catalog.offers if o.market is Market.ON_DEMAND}
    terms = []
    for offer in resolved.offers:
        if offer.market is not Market.SPOT:
            terms.append(SpotHistory())
            continue
        zone = zones.index(offer.zone)
        usd_per_hour = None
        if priced:
            source, share = priced[zone % len(priced)]
            if offer.instance not in on_demand:
                raise BadInput("a price series needs the on-demand price of the type", source.name, offer.instance)
            usd_per_hour = share * on_demand[offer.instance]
        terms.append(SpotHistory(usd_per_hour, held[zone % len(held)] if held else None))
    return tuple(terms)


def _unrolled(series: StepSeries, end_s: float) -> tuple[FloatArray, FloatArray]:
    """Return times and shares of the steps that begin before `end_s`, with all repetitions."""
    rounds = np.arange(max(1, math.ceil(end_s / series.period_s)))
    times = np.add.outer(rounds * series.period_s, np.asarray(series.times_s, dtype=np.float64)).ravel()
    shares = np.tile(np.asarray(series.shares, dtype=np.float64), len(rounds))
    within = times < end_s
    return times[within], shares[within]


def _lowest(series: StepSeries, bins: int, bin_s: float) -> FloatArray:
    """Return the lowest share within each bin."""
    times, shares = _unrolled(series, bins * bin_s)
    begins = np.arange(bins) * bin_s
    lowest = shares[np.searchsorted(times, begins, side="right") - 1]
    np.minimum.at(lowest, np.minimum((times / bin_s).astype(np.int64), bins - 1), shares)
    return lowest


def _available(series: StepSeries, bins: int, bin_s: float) -> BoolArray:
    """Return whether an instance could run at some time of each bin, including the notice after capacity ends."""
    times, shares = _unrolled(series, bins * bin_s)
    ends = np.append(times[1:], bins * bin_s)
    change = np.zeros(bins + 1, dtype=np.int64)
    up = shares > 0.0
    np.add.at(change, np.floor(times[up] / bin_s).astype(np.int64), 1)
    np.add.at(change, np.minimum(bins, np.floor((ends[up] + INTERRUPTION_NOTICE_S) / bin_s).astype(np.int64) + 1), -1)
    return np.cumsum(change[:-1]) > 0
