"""Decide which instance types to rent, in order to find the cheapest one for a model under its SLO.

The criterion is the price of a million requests at the SLO: usd_per_hour / capacity, with the planner's capacity
(`mark.profiling.policy.candidate`). Renting costs money, so two rules keep it short:

- A type is rented only if it could be the cheapest. Measurements of its family give a bound: a batch takes at best s
  times less, where s is the ratio of vCPUs (of GPUs, for a type with some), and never less than on a larger type. A
  type whose bound costs as much as the best measured one, or misses the SLO, is not rented.
- Each rental begins with a short measurement. It is lengthened on the same machine only for a type in the cheaper half
  at its length so far: successive halving without waiting for the other types (Li et al., A System for Massively
  Parallel Hyperparameter Tuning, MLSys 2020), because another boot costs more than the measurement.

EC2 bills from shortly after the launch, at least a minute. A rental begins only if its latest end fits into the
remaining budget at the on-demand price. A slow type gets fewer rounds in that time (`RoundsInTime`), because a type
that is slow for one item may be the cheapest for a generous SLO.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.domain.errors import BadInput
from mark.domain.offer import Offer
from mark.domain.profile import Profile
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.profiling.measure import LEAST, SIZES, WARM_UPS, Sampling, check_sizes
from mark.profiling.policy import candidate

# Seconds for each batch size, as shares of the full length: a rental's cost is mostly its boot.
RUNGS = (0.25, 1.0)
# Error of a short measurement: a type more than this above the best is not measured longer.
NOISE = 0.1
# Longest boot, as a multiple of the catalogue's 95th percentile, and longest measurement, as a multiple of its seconds:
# it warms up first, and measures each size a few times however long that lasts.
_LONGEST_BOOT, _LONGEST_MEASURING = 1.5, 2.0
# Costs that differ by less are equal: a price per vCPU differs in binary.
_EQUAL = 1.0 - 1e-9
_SHORTEST_MS = 1e-3  # the least time that a profile holds
# Times of a size that a larger one waits for, because fewer give no interval of the mean.
_LEAST_IN_TIME = 2


@dataclass(frozen=True, slots=True)
class SearchGoal:
    """The options of the search: `seconds` is the longest time of measuring each of the batches."""

    slo: Slo
    batching: str = "work-conserving"
    batches: tuple[int, ...] = SIZES
    seconds: float = 10.0

    def __post_init__(self) -> None:
        check_sizes(self.batches, "batches")
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise BadInput("must be above zero", "seconds", self.seconds)


@dataclass(frozen=True, slots=True)
class Rent:
    """Rent the type, or keep the current machine, and measure each batch for `seconds`.

    The machine may live for `longest_s` from its launch, which includes all measurements that may still follow. The
    budget covers that time.
    """

    instance: str
    batches: tuple[int, ...]
    seconds: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class End:
    """End the current machine and report its cost."""

    instance: str


@dataclass(frozen=True, slots=True)
class SearchDone:
    """The search is over. `best` is the cheapest measured type; None if none keeps the SLO.

    `why` has for every type its cost, or the reason why it was not rented.
    """

    best: str | None
    why: Mapping[str, str]


def usd_per_million(offer: Offer, profile: Profile, wanted: SearchGoal) -> float | str:
    """Return the price of a million requests on always busy instances, or why the type cannot keep the SLO."""
    kept = candidate(profile, wanted.slo, wanted.batching)
    return kept if isinstance(kept, str) else offer.usd_per_hour / HOUR_S / kept.capacity_rps * 1e6


def at_best(offer: Offer, measured: Profile, on: Offer) -> Profile:
    """Return the best profile that the offer could have, by a measurement of a type in its family (see the module)."""
    faster = max(1.0, _size(offer) / _size(on))
    rows = (
        replace(
            row,
            latency_ms=max(_SHORTEST_MS, row.latency_ms / faster),
            p99_ms=None if row.p99_ms is None else max(_SHORTEST_MS, row.p99_ms / faster),
            overhead_ms=row.overhead_ms / faster,
        )
        for row in measured.rows
    )
    return Profile(measured.model, offer.instance, tuple(rows))


def longest_s(offer: Offer, wanted: SearchGoal) -> float:
    """Return the longest time from the launch of a rental to its end, with the longest boot and all measurements."""
    measuring_s = _LONGEST_MEASURING * wanted.seconds * len(wanted.batches)
    return max(MINIMUM_BILLED_S, math.ceil(_LONGEST_BOOT * offer.boot.p95_s + measuring_s))


class RoundsInTime(Sampling):
    """Sampling that ends in time for a rental. A slow type gets fewer rounds, and then fewer sizes.

    A size is expected to take its last time, or without one, a time in proportion to the next smaller size. So the
    first round goes up the sizes and the second one down, which gives every begun size two times before any has three.
    A size is asked for only if it fits into the remaining time together with two times of each smaller one. `settle`
    then counts warm-ups if a size would have fewer than two times without them.
    """

    def __init__(self, sizes: Collection[int], *, precision: float, seconds: float, seed: int = 0) -> None:
        super().__init__(sizes, precision=precision, seconds=seconds, seed=seed)
        self._all_s: dict[int, list[float]] = {size: [] for size in sizes}  # with warm-ups
        self._item_s = 0.0
        self._left_out: set[int] = set()
        self._round, self._rounds = sorted(sizes, reverse=True), 1  # popped from the end

    def meet(self, item_s: float) -> None:
        """Note that one item took `item_s` before the first round."""
        self._item_s = item_s
        if 1 in self._all_s:
            self._all_s[1].append(item_s)

    def next_in(self, left_s: float) -> int | None:
        """Return a size that fits into `left_s` seconds; None if all are done or none fits."""
        while True:
            if not self._round and self._rounds == 1:
                self._round, self._rounds = sorted(self._open), 2
            size = self.next()
            if size is None or self._fits(size, left_s):
                return size
            self.leave(size)

    def record(
        self, size: int, times_s: Sequence[float], service_s: Sequence[float] = (), cpu_s: float | None = None
    ) -> None:
        self._all_s[size] += times_s
        super().record(size, times_s, service_s, cpu_s)

    def fail(self, size: int, reason: str) -> None:
        super().fail(size, reason)
        self._all_s[size] = []

    def leave(self, size: int) -> None:
        """Stop measuring a size for lack of time, and keep its times."""
        self._open.remove(size)
        self._left_out.add(size)

    def has(self, size: int) -> bool:
        """Return whether the size has a time, including warm-ups."""
        return bool(self._all_s[size])

    def settle(self) -> None:
        """Complete sizes that have too few times with their warm-ups, the latest first.

        Call this when measuring has ended.
        """
        for size, all_s in self._all_s.items():
            if len(self.times_s[size]) < _LEAST_IN_TIME:
                self.times_s[size] = all_s[min(WARM_UPS, max(0, len(all_s) - _LEAST_IN_TIME)) :]

    def notes(self) -> tuple[str, ...]:
        """Return remarks about sizes for which the rental was too short."""
        few = {size: len(times) for size, times in sorted(self.times_s.items()) if 0 < len(times) < LEAST}
        none = [size for size in sorted(self._left_out) if not self.times_s[size]]
        return (
            *(f"a batch of {size} counts {times} of its rounds only: the type is slow" for size, times in few.items()),
            *(f"no batch of {size}: the rental had no time for it" for size in none),
        )

    def _fits(self, size: int, left_s: float) -> bool:
        if not any(self._all_s.values()):
            return True  # no size has been measured yet that this one could delay
        below = [other for other in self._open if other < size]
        need_s = self._lasts_s(size) * max(1, self._missing(size))
        return need_s + sum(self._lasts_s(other) * self._missing(other) for other in below) <= left_s

    def _missing(self, size: int) -> int:
        return max(0, _LEAST_IN_TIME - len(self._all_s[size]))

    def _lasts_s(self, size: int) -> float:
        known = max((other for other, times in self._all_s.items() if times and other <= size), default=None)
        return self._item_s * size if known is None else self._all_s[known][-1] * size / known


class ProfileSearch:
    """Chooses the next rental. Call `next`, carry it out, and report the result; equal results give equal decisions.

    `offers` are on-demand types, each once. Raises BadInput for an empty list, for a repeated type, and for a budget
    that is not a finite number above zero.
    """

    def __init__(self, offers: Sequence[Offer], wanted: SearchGoal, budget_usd: float) -> None:
        names = [offer.instance for offer in offers]
        if not names or len(set(names)) < len(names):
            raise BadInput("must be instance types, each once", "types", ",".join(names))
        if not (math.isfinite(budget_usd) and budget_usd > 0.0):
            raise BadInput("must be above zero", "budget_usd", budget_usd)
        self._offers = {offer.instance: offer for offer in offers}
        self._wanted, self._budget_usd = wanted, budget_usd
        self.profiles: dict[str, Profile] = {}  # the longest measurement of each type
        self.paid_usd: dict[str, float] = {}
        self._lengths: dict[str, int] = {}  # number of RUNGS that were measured
        self._at_rung: list[dict[str, float]] = [{} for _ in RUNGS]  # USD per million, inf if the SLO is missed
        self._failed: dict[str, str] = {}
        self._held: str | None = None

    # -- results -------------------------------------------------------------------------------------------------------

    def record(self, instance: str, profile: Profile) -> None:
        """Record a measurement of a rented machine, which is still available."""
        rung = self._lengths.get(instance, 0)
        self._held = instance
        self.profiles[instance], self._lengths[instance] = profile, rung + 1
        cost = usd_per_million(self._offers[instance], profile, self._wanted)
        self._at_rung[rung][instance] = math.inf if isinstance(cost, str) else cost

    def fail(self, instance: str, why: str) -> None:
        """Stop asking for a type that cannot be rented, or not be measured (further)."""
        self._failed[instance] = why
        self._held = None

    def paid(self, instance: str, usd: float) -> None:
        """Record the bill of a rental that ended."""
        self.paid_usd[instance] = self.paid_usd.get(instance, 0.0) + usd
        self._held = None

    def costs(self) -> dict[str, float]:
        """Return USD per million requests of each measured type that keeps the SLO."""
        return {name: cost for name in self.profiles if not isinstance(cost := self._cost(name), str)}

    # -- decisions -----------------------------------------------------------------------------------------------------

    @property
    def spent_usd(self) -> float:
        return sum(self.paid_usd.values())

    @property
    def best(self) -> str | None:
        """The cheapest measured type; of equals the one with the lower price, then by name."""
        costs = self.costs()
        return min(costs, key=lambda name: (costs[name], self._offers[name].usd_per_hour, name), default=None)

    def next(self) -> Rent | End | SearchDone:
        """Return the next step, without changing anything. While a machine is held, no other type is rented."""
        if self._held is not None:
            return self._rent(self._held) if self._is_promoted(self._held) else End(self._held)
        for name in self._in_order():
            if self._fits(name):
                return self._rent(name)
        return SearchDone(self.best, {name: self._why(name) for name in self._offers})

    def _rent(self, name: str) -> Rent:
        wanted = self._wanted
        share = RUNGS[self._lengths.get(name, 0)]
        return Rent(name, wanted.batches, share * wanted.seconds, longest_s(self._offers[name], wanted))

    def _in_order(self) -> list[str]:
        """Return the types that could be the cheapest, in order.

        First come types of unknown families, then types that their bounds leave, then types that lost their machine
        before a long measurement. Cheaper rentals come first, because their results may spare an expensive one.
        """
        known = {_family(name) for name in self.profiles}
        smallest: dict[str, str] = {}
        bounded = []
        for name in sorted(self._offers, key=lambda name: (self._worst_usd(name), name)):
            if name in self._failed or name in self.profiles:
                continue
            if _family(name) not in known:
                smallest.setdefault(_family(name), name)
            elif not isinstance(bound := self._bound(name), str) and self._could_win(bound):
                bounded.append(name)
        again = [name for name in self.profiles if name not in self._failed and self._is_promoted(name)]
        return [*smallest.values(), *bounded, *sorted(again)]

    def _is_promoted(self, name: str) -> bool:
        """Return whether the type deserves a longer measurement."""
        lengths = self._lengths[name]
        if lengths == len(RUNGS):
            return False
        if name == self.best:
            return True  # the best type must have the longest measurement
        costs = self._at_rung[lengths - 1]
        own, ahead = costs[name], sum(other < costs[name] for other in costs.values())
        return own <= self._best_cost() * (1.0 + NOISE) and math.isfinite(own) and ahead < math.ceil(len(costs) / 2)

    def _cost(self, name: str) -> float | str:
        return usd_per_million(self._offers[name], self.profiles[name], self._wanted)

    def _best_cost(self) -> float:
        return min(self.costs().values(), default=math.inf)

    def _bound(self, name: str) -> float | str:
        """Return a lower bound on the type's cost of a million requests, or why it cannot keep the SLO.

        It follows from all measured types of its family.
        """
        offer, highest = self._offers[name], 0.0
        for other, profile in self.profiles.items():
            # Skip a type on which a batch could not be run, because it may run on a larger type.
            if _family(other) == _family(name) and {row.batch for row in profile.rows} >= set(self._wanted.batches):
                on = self._offers[other]
                bound = usd_per_million(offer, at_best(offer, profile, on), self._wanted)
                if isinstance(bound, str):
                    return bound
                highest = max(highest, bound)
        return highest

    def _could_win(self, bound: float) -> bool:
        return bound < self._best_cost() * _EQUAL

    def _worst_usd(self, name: str) -> float:
        offer = self._offers[name]
        return offer.usd_per_s * longest_s(offer, self._wanted)

    def _fits(self, name: str) -> bool:
        return self.spent_usd + self._worst_usd(name) <= self._budget_usd

    def _why(self, name: str) -> str:
        if name in self.profiles:
            cost = self._cost(name)
            said = f"cannot keep the SLO: {cost}" if isinstance(cost, str) else f"{_usd(cost)} per million"
            return f"{said}; measured no further: {self._failed[name]}" if name in self._failed else said
        if name in self._failed:
            return f"not measured: {self._failed[name]}"
        bound = self._bound(name)
        if isinstance(bound, str):
            return f"never rented: even at linear scaling {bound}"
        if bound > 0.0 and not self._could_win(bound):
            return (
                f"never rented: even at linear scaling {_usd(bound)} per million, {self.best} costs "
                f"{_usd(self._best_cost())}"
            )
        left_usd = self._budget_usd - self.spent_usd
        return f"never rented: it may cost {_usd(self._worst_usd(name))}, and {_usd(left_usd)} of the budget is left"


def _family(instance: str) -> str:
    return instance.partition(".")[0]


def _size(offer: Offer) -> float:
    """Return the size that speeds up a model at best.

    A GPU type counts its GPUs alone, because a model for GPUs needs them.
    """
    return offer.gpus or offer.vcpu or 1.0


def _usd(value: float) -> str:
    return f"${value:.2f}" if value >= 1.0 else f"${value:.3g}"
