"""The bound's problem in whole instances, as plain arrays (docs/bound.md, "Whole instances")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.cloud.billing.meter import disk_usd_per_s
from mark.domain.arrays import FloatArray, IntArray
from mark.domain.offer import Market
from mark.planning.bounds.lower_bound import (
    BoundProblem,
    SpotHistory,
    billed_boot_s,
    bins_within,
    committed_rps,
)

# Relative: capacities are raised and prices lowered by it, so that rounding never lifts a bound.
SAFE = 1e-11
# Beyond these numbers mixes and multiples of one type are merged in groups, each at its lowest price and highest
# capacity: still a valid relaxation, and among that many instances, one more or less hardly counts.
_MOST_MIXES = 1000
_MOST_MULTIPLES = 500


@dataclass(frozen=True, slots=True)
class WholeProblem:
    """Requests by bin, and the types of instances that no other type can replace.

    `usd_per_s` is the lowest price of the part, including `disk_usd_per_s` if disks are billed; `by_bin` (bins, types)
    has the price in each bin, infinite where the type is not available; None: the same in every bin. `boot_s` is the
    least billed time of a start. `free_rps` is the capacity of committed instances.
    """

    counts: FloatArray  # (bins,) the last one is zero, because its requests may be served after the end
    bin_s: float
    names: tuple[str, ...]
    usd_per_s: FloatArray
    disk_usd_per_s: FloatArray
    capacity_rps: FloatArray
    boot_s: FloatArray
    function_usd: float  # infinite: no function is in time
    warm_start: bool
    free_rps: float = 0.0
    free_disks_usd_per_s: float = 0.0  # of the committed instances while they run
    by_bin: FloatArray | None = None

    @property
    def start_usd(self) -> FloatArray:
        """The least cost of a start, by type."""
        return np.asarray(self.usd_per_s * self.boot_s)

    def without_disks(self) -> WholeProblem:
        by_bin = None if self.by_bin is None else self.by_bin - self.disk_usd_per_s
        return replace(self, usd_per_s=self.usd_per_s - self.disk_usd_per_s, by_bin=by_bin)


def whole_problem(problem: BoundProblem) -> WholeProblem | None:
    """Return the same problem in whole instances; None without requests, or if an instance may cost nothing.

    Burstables run at full speed without credits here: a valid relaxation, because credits only add to a bill.
    """
    resolved, bins = problem.resolved, bins_within(problem)
    counts = problem.counts[:bins].copy()
    counts[-1:] = 0.0
    if not counts.any() or not resolved.offers:
        return None
    if problem.spot_first_hour_free and any(offer.market is Market.SPOT for offer in resolved.offers):
        return None
    terms = problem.spot or (SpotHistory(),) * len(resolved.offers)
    disks = resolved.catalog.bills_extras
    kinds: list[_Kind] = []
    for offer, candidate, term in zip(resolved.offers, resolved.candidates, terms, strict=True):
        disk = disk_usd_per_s(offer) if disks else 0.0
        by_bin = None
        if term.usd_per_hour is not None or term.available is not None:
            usd = np.full(bins, offer.usd_per_s) if term.usd_per_hour is None else term.usd_per_hour[:bins] / 3600.0
            by_bin = usd + disk
            if term.available is not None:
                by_bin = np.where(term.available[:bins], by_bin, math.inf)
        lowest = offer.usd_per_s + disk if by_bin is None else float(by_bin.min())
        if lowest == math.inf:
            continue
        kinds.append(_Kind(offer.name, lowest, disk, candidate.ceiling_rps, billed_boot_s(offer, resolved), by_bin))
    kept: list[_Kind] = []
    for kind in sorted(kinds, key=lambda k: (k.usd_per_s / k.capacity_rps, k.usd_per_s, k.boot_s, k.name)):
        if not any(other.replaces(kind) for other in kept):
            kept = [other for other in kept if not kind.replaces(other)] + [kind]
    if not kept or min(kind.usd_per_s for kind in kept) <= 0.0:
        return None
    varying = any(kind.by_bin is not None for kind in kept)
    committed = [(resolved.committed.get(offer.name, 0), offer) for offer in resolved.offers]
    return WholeProblem(
        counts=counts,
        bin_s=problem.bin_s,
        names=tuple(kind.name for kind in kept),
        usd_per_s=np.array([kind.usd_per_s for kind in kept]),
        disk_usd_per_s=np.array([kind.disk_usd_per_s for kind in kept]),
        capacity_rps=np.array([kind.capacity_rps for kind in kept]),
        boot_s=np.array([kind.boot_s for kind in kept]),
        function_usd=resolved.in_time_usd,
        warm_start=problem.warm_start,
        free_rps=committed_rps(resolved),
        free_disks_usd_per_s=sum(n * disk_usd_per_s(offer) for n, offer in committed) if disks else 0.0,
        by_bin=np.stack([kind.prices(bins) for kind in kept], axis=1) if varying else None,
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    usd_per_s: float
    disk_usd_per_s: float
    capacity_rps: float
    boot_s: float
    by_bin: FloatArray | None

    def prices(self, bins: int) -> FloatArray:
        return np.full(bins, self.usd_per_s) if self.by_bin is None else self.by_bin

    def replaces(self, other: _Kind) -> bool:
        """Return whether a whole number of these can replace an instance of the other type for no more money."""
        number = math.ceil(other.capacity_rps / self.capacity_rps - 1e-12)
        if number * self.usd_per_s * self.boot_s > other.usd_per_s * other.boot_s:
            return False
        if self.by_bin is None and other.by_bin is None:
            return number * self.usd_per_s <= other.usd_per_s
        mine = self.usd_per_s if self.by_bin is None else self.by_bin
        theirs = other.usd_per_s if other.by_bin is None else other.by_bin
        return bool(np.all(number * np.asarray(mine) <= theirs))


@dataclass(frozen=True, slots=True)
class Mixes:
    """Mixes of whole instances that no cheaper mix matches in requests; ascending in dollars and in requests."""

    usd: FloatArray
    requests: FloatArray
    numbers: IntArray  # (mixes, types)


def mixes(usd: FloatArray, requests: FloatArray, top: float) -> Mixes:
    """Return the cheapest mixes of types that cost `usd` and serve `requests` each, up to the first that serves
    `top`.
    """
    types = len(usd)
    front = Mixes(np.zeros(1), np.zeros(1), np.zeros((1, types), dtype=np.int64))
    for i in np.argsort(usd / requests, kind="stable"):
        count = np.arange(int(np.ceil(top / requests[i])) + 1)
        several = np.zeros((len(count), types), dtype=np.int64)
        several[:, i] = count
        one = _thinned(Mixes(usd[i] * count, requests[i] * count, several), _MOST_MULTIPLES)
        all_usd = (front.usd[:, None] + one.usd).ravel()
        all_requests = (front.requests[:, None] + one.requests).ravel()
        order = np.lexsort((-all_requests, all_usd))
        most = np.maximum.accumulate(all_requests[order])
        order = order[np.concatenate(([True], all_requests[order][1:] > most[:-1]))]
        reach = np.nonzero(all_requests[order] >= top)[0]
        if len(reach):
            order = order[: reach[0] + 1]
        numbers = front.numbers[order // len(one.usd)] + one.numbers[order % len(one.usd)]
        front = _thinned(Mixes(all_usd[order], all_requests[order], numbers), _MOST_MIXES)
    return front


def _thinned(of: Mixes, most: int) -> Mixes:
    """Return about `most` points: each group of neighbours at its lowest price and highest capacity."""
    size = -(-len(of.usd) // most)
    if size == 1:
        return of
    first = np.concatenate(([0], np.arange(1, len(of.usd), size)))  # keeps the mix without instances
    last = np.append(first[1:], len(of.usd)) - 1
    return Mixes(of.usd[first], of.requests[last], of.numbers[last])
