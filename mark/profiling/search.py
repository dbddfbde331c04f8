"""Which instance types to rent, in order to find the cheapest one for a model under its SLO: decisions only.

What is sought is the least price of a million requests at the SLO: usd_per_hour / capacity, with the capacity that the
planner uses (`mark.profiling.policy.candidate`). Renting is paid for, so two things keep it short:

- A type is rented only where it could be the cheapest. From what was measured of its family follows a bound: it takes
  at best s times less for a batch, where s is how many times it has the vCPUs (the GPUs, where it has some), and never
  less than a larger one. Where even that costs as much as the best one measured, or misses the SLO, it is not rented.
- Each rental begins with a short measurement, which is lengthened on the same machine only for a type among the
  cheaper half at its length so far: successive halving without waiting for the other types (Li et al., A System for
  Massively Parallel Hyperparameter Tuning, MLSys 2020), because another boot costs more than the measurement.

EC2 bills from a little after the launch, at least a minute: a rental is begun only where its longest end fits into what
is left of the budget, at the price on demand. A type that is slow is measured in fewer rounds in that time
(`RoundsInTime`): what is slow at one item may be the cheapest for a generous SLO.
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

# Seconds for each batch size, as shares of the whole: most of the cost of a rental is its boot.
RUNGS = (0.25, 1.0)
# A short measurement is trusted to this: what costs more than that above the best is measured no longer.
NOISE = 0.1
# Most that a boot may take, in multiples of the catalogue's 95th percentile, and measuring, of its seconds: it warms up
# first, and takes each size a few times however long that lasts.
_LONGEST_BOOT, _LONGEST_MEASURING = 1.5, 2.0
# Costs that differ by less are equal: a price per vCPU differs in binary.
_EQUAL = 1.0 - 1e-9
_SHORTEST_MS = 1e-3  # what a profile holds
# Times of a size without which a larger one is not begun: from fewer follows no interval of the mean.
_LEAST_IN_TIME = 2


@dataclass(frozen=True, slots=True)
class SearchGoal:
    """What the types are compared by: `seconds` of measuring, at most, for each of the batches."""

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
    """Rent the type, or keep the one in hand, and measure each batch for `seconds`.

    From its launch on it may live for `longest_s`, with all that may still be asked of it: the budget has room for
    that, and not for more.
    """

    instance: str
    batches: tuple[int, ...]
    seconds: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class End:
    """End the machine in hand, and say what it cost."""

    instance: str


@dataclass(frozen=True, slots=True)
class SearchDone:
    """Nothing more to rent. `best` is the cheapest type that was measured, None: none of them keeps the SLO.

    `why` says of every type what it costs, or why it was not rented.
    """

    best: str | None
    why: Mapping[str, str]


def usd_per_million(offer: Offer, profile: Profile, wanted: SearchGoal) -> float | str:
    """The price of a million requests at the SLO on instances that are always busy, or why the type cannot keep it."""
    kept = candidate(profile, wanted.slo, wanted.batching)
    return kept if isinstance(kept, str) else offer.usd_per_hour / HOUR_S / kept.capacity_rps * 1e6


def at_best(offer: Offer, measured: Profile, on: Offer) -> Profile:
    """What was measured on a type of its family, as the offer could have it at best (see the module)."""
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
    """From the launch of a rental to its end, with the longest boot and all lengths measured."""
    measuring_s = _LONGEST_MEASURING * wanted.seconds * len(wanted.batches)
    return max(MINIMUM_BILLED_S, math.ceil(_LONGEST_BOOT * offer.boot.p95_s + measuring_s))


class RoundsInTime(Sampling):
    """Sampling that ends when a rental does. What is slow gets fewer rounds, and then fewer sizes, and is not given up.

    A size is taken to last as long as its last time, one without any in proportion to the size below; so the first
    round goes up the sizes, and the second one down: what was begun has two times before any has three. A size is
    asked for only where that fits into what is left, together with two times of each smaller one. `settle` then makes
    warm-ups count where two times would not be left without them.
    """

    def __init__(self, sizes: Collection[int], *, precision: float, seconds: float, seed: int = 0) -> None:
        super().__init__(sizes, precision=precision, seconds=seconds, seed=seed)
        self._all_s: dict[int, list[float]] = {size: [] for size in sizes}  # warm-ups too
        self._item_s = 0.0
        self._left_out: set[int] = set()
        self._round, self._rounds = sorted(sizes, reverse=True), 1  # taken from its end

    def meet(self, item_s: float) -> None:
        """One item took so long, before the first round."""
        self._item_s = item_s
        if 1 in self._all_s:
            self._all_s[1].append(item_s)

    def next_in(self, left_s: float) -> int | None:
        """A size that fits into what is left, or None: all are done, or nothing fits any more."""
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
        """No time for more of it: what it has stays."""
        self._open.remove(size)
        self._left_out.add(size)

    def has(self, size: int) -> bool:
        """Is there a time of it, be it a warm-up?"""
        return bool(self._all_s[size])

    def settle(self) -> None:
        """All that could be measured was. The first times of a size are the ones that rather do not count."""
        for size, all_s in self._all_s.items():
            if len(self.times_s[size]) < _LEAST_IN_TIME:
                self.times_s[size] = all_s[min(WARM_UPS, max(0, len(all_s) - _LEAST_IN_TIME)) :]

    def notes(self) -> tuple[str, ...]:
        """What the time of the rental was too short for."""
        few = {size: len(times) for size, times in sorted(self.times_s.items()) if 0 < len(times) < LEAST}
        none = [size for size in sorted(self._left_out) if not self.times_s[size]]
        return (
            *(f"a batch of {size} counts {times} of its rounds only: the type is slow" for size, times in few.items()),
            *(f"no batch of {size}: the rental had no time for it" for size in none),
        )

    def _fits(self, size: int, left_s: float) -> bool:
        if not any(self._all_s.values()):
            return True  # nothing is known yet, and nothing to lose
        below = [other for other in self._open if other < size]
        need_s = self._lasts_s(size) * max(1, self._missing(size))
        return need_s + sum(self._lasts_s(other) * self._missing(other) for other in below) <= left_s

    def _missing(self, size: int) -> int:
        return max(0, _LEAST_IN_TIME - len(self._all_s[size]))

    def _lasts_s(self, size: int) -> float:
        known = max((other for other, times in self._all_s.items() if times and other <= size), default=None)
        return self._item_s * size if known is None else self._all_s[known][-1] * size / known


class ProfileSearch:
    """What to rent next. Ask `next`, do so, and tell what came of it; the same answers give the same decisions.

    `offers` are types on demand, each once. Raises BadInput for none, one given twice, and a budget that is no number
    above zero.
    """

    def __init__(self, offers: Sequence[Offer], wanted: SearchGoal, budget_usd: float) -> None:
        names = [offer.instance for offer in offers]
        if not names or len(set(names)) < len(names):
            raise BadInput("must be instance types, each once", "types", ",".join(names))
        if not (math.isfinite(budget_usd) and budget_usd > 0.0):
            raise BadInput("must be above zero", "budget_usd", budget_usd)
        self._offers = {offer.instance: offer for offer in offers}
        self._wanted, self._budget_usd = wanted, budget_usd
        self.profiles: dict[str, Profile] = {}  # the longest measurement of each
        self.paid_usd: dict[str, float] = {}
        self._lengths: dict[str, int] = {}  # how many of RUNGS were measured
        self._at_rung: list[dict[str, float]] = [{} for _ in RUNGS]  # $/million, inf where the SLO is missed
        self._failed: dict[str, str] = {}
        self._held: str | None = None

    # -- what came of it -----------------------------------------------------------------------------------------------

    def record(self, instance: str, profile: Profile) -> None:
        """The machine that was to be rented is in hand, and measured so."""
        rung = self._lengths.get(instance, 0)
        self._held = instance
        self.profiles[instance], self._lengths[instance] = profile, rung + 1
        cost = usd_per_million(self._offers[instance], profile, self._wanted)
        self._at_rung[rung][instance] = math.inf if isinstance(cost, str) else cost

    def fail(self, instance: str, why: str) -> None:
        """It cannot be had, or not be measured (any further): it is asked for no more."""
        self._failed[instance] = why
        self._held = None

    def paid(self, instance: str, usd: float) -> None:
        """A rental ended, and was billed so much."""
        self.paid_usd[instance] = self.paid_usd.get(instance, 0.0) + usd
        self._held = None

    def costs(self) -> dict[str, float]:
        """Dollars per million requests of each type that was measured and keeps the SLO."""
        return {name: cost for name in self.profiles if not isinstance(cost := self._cost(name), str)}

    # -- what to do ----------------------------------------------------------------------------------------------------

    @property
    def spent_usd(self) -> float:
        return sum(self.paid_usd.values())

    @property
    def best(self) -> str | None:
        """The cheapest of what was measured; of equals the one with the lower price, then by name."""
        costs = self.costs()
        return min(costs, key=lambda name: (costs[name], self._offers[name].usd_per_hour, name), default=None)

    def next(self) -> Rent | End | SearchDone:
        """Changes nothing. No type is rented while another one is in hand."""
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
        """What could be the cheapest: a type of each family of which nothing is known, then what a bound leaves, then
        what lost its machine before it was measured for long. The cheapest rental comes first: what it shows may spare
        a dear one."""
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
        """Is it worth a longer measurement?"""
        lengths = self._lengths[name]
        if lengths == len(RUNGS):
            return False
        if name == self.best:
            return True  # what is said of the best rests on its longest measurement
        costs = self._at_rung[lengths - 1]
        own, ahead = costs[name], sum(other < costs[name] for other in costs.values())
        return own <= self._best_cost() * (1.0 + NOISE) and math.isfinite(own) and ahead < math.ceil(len(costs) / 2)

    def _cost(self, name: str) -> float | str:
        return usd_per_million(self._offers[name], self.profiles[name], self._wanted)

    def _best_cost(self) -> float:
        return min(self.costs().values(), default=math.inf)

    def _bound(self, name: str) -> float | str:
        """The least that a million requests can cost on it, by all types of its family that were measured, or why it
        cannot keep the SLO."""
        offer, highest = self._offers[name], 0.0
        for other, profile in self.profiles.items():
            # Where a batch could not be run, its absence says nothing of a larger type.
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
    """What a model scales with at best. A GPU type without its GPUs does not run it, whatever its vCPUs."""
    return offer.gpus or offer.vcpu or 1.0


def _usd(value: float) -> str:
    return f"${value:.2f}" if value >= 1.0 else f"${value:.3g}"
