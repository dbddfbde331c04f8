"""The capacity of an instance of each type beside the others, at the load that comes.

To the program a fleet's capacity is one number, and its late shares are those of the reference type (`Lateness`). But
an instance carries more within the promise the more of its kind there are, and at next to no load one of any type is
enough. So at load L an instance of type i has the capacity

    C_ref n_ref(L) / n_i(L)

n_i(L) being the number of instances of type i alone that carry L within the promise without functions, by its own
table: at least one, and between the rows of the table linear in the logarithms. Were calls in time not counted as late,
one instance of any type would carry every load.

Where one instance of the reference is enough, an instance of another type counts at least as the share of the load that
it serves, if it is nearly enough too, or if functions in time keep the promise beside it: the other requests only cost
a call each. As a fraction of the reference it would leave the missing fraction late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.late_shares import LateShares
from mark.domain.profile import Candidate
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import cheapest_lasting, lateness_of

_NEARLY_ONE = 1.5  # instances
_HALVINGS = 30  # of the interval in which a mixed fleet's load lies


class TypeWeights:
    """Capacities of `candidates` beside the reference's, by load; `late_share` is the share that may be late.

    Without a reference, or if a candidate has no table, they are `capacity_rps` at every load.
    """

    def __init__(self, reference: Candidate | None, candidates: Sequence[Candidate], late_share: float) -> None:
        self._late_share = late_share
        self._usual_rps = np.array([c.capacity_rps for c in candidates])
        self._shares = [c.late_shares for c in candidates if c.late_shares is not None]
        self._known = False
        if reference is not None and reference.late_shares is not None and len(self._shares) == len(candidates):
            self._known, self._unit_rps = True, reference.capacity_rps
            self._reference = _carried(reference.late_shares, late_share)
            self._types = [_carried(each, late_share) for each in self._shares]

    @classmethod
    def of(cls, resolved: ResolvedService, offers: Sequence[int], candidates: Sequence[Candidate]) -> TypeWeights:
        """Return the capacities beside the reference of `lateness_of`, if that has a table."""
        counted = lateness_of(resolved, offers).shares is not None
        reference = resolved.candidates[cheapest_lasting(resolved, offers)] if counted else None
        return cls(reference, candidates, 1.0 - resolved.slo.attainment)

    def at(self, load_rps: float) -> FloatArray:
        """Return the requests/s of an instance of each candidate beside the others at a load: (candidates,)."""
        if not self._known or load_rps <= 0.0:
            return self._usual_rps
        needed = self.needed(load_rps)
        least = _needed(load_rps, *self._reference)
        weights = np.asarray(least / needed)
        if least == 1.0:
            served = [self._served(each, n, load_rps) for each, n in zip(self._shares, needed, strict=True)]
            weights = np.maximum(weights, served)
        return self._unit_rps * weights

    def needed(self, load_rps: float) -> FloatArray:
        """Return how many instances of each candidate alone carry a load, at least one: (candidates,)."""
        if not self._known or load_rps <= 0.0:
            return np.maximum(1.0, load_rps / self._usual_rps)
        return np.array([_needed(load_rps, *each) for each in self._types])

    def holds_rps(self, counts: Sequence[int] | IntArray) -> float:
        """Return the load up to which a fleet, counted by candidate, answers at most `late_share` late; calls in time
        are not late. The sum of `capacity_rps` without tables.
        """
        if not self._known:
            return float(np.dot(counts, self._usual_rps))
        fleet = tuple((each, int(n)) for each, n in zip(self._shares, counts, strict=True) if n > 0)
        return _holds_rps(fleet, self._late_share)

    def _served(self, shares: LateShares, needed: float, load_rps: float) -> float:
        """Return the share of a load that one instance serves; 0 if too many are late, or `needed` are far more."""
        if shares.late_without == 0.0:
            counts = float(shares.late_at(load_rps, 1.0)) <= self._late_share
        else:
            counts = needed < _NEARLY_ONE  # else as many as are needed would count as far more than enough
        return 1.0 - float(shares.unserved.late_at(load_rps, 1.0)) if counts else 0.0


@lru_cache(maxsize=4096)  # because plans ask for the same few fleets, minute by minute
def _holds_rps(fleet: tuple[tuple[LateShares, int], ...], late_share: float) -> float:
    """Return the load L at which the sum of n / n_i(L) over a mixed fleet is 1; by the table itself for one type."""
    alone = [shares.carries_rps(float(n), late_share) for shares, n in fleet]
    if len(alone) < 2:
        return sum(alone)
    types = [(_carried(shares, late_share, unserved=False), n) for shares, n in fleet]
    low = high = max(alone)
    while high > 0.0 and sum(n / _needed(high, *each) for each, n in types) >= 1.0:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if sum(n / _needed(middle, *each) for each, n in types) >= 1.0:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=256)  # because price lists ask for them each minute
def _carried(shares: LateShares, late_share: float, *, unserved: bool = True) -> tuple[FloatArray, FloatArray]:
    """Return logarithms of the loads that fleets carry, ascending and at least the first column's, and of their
    sizes. `unserved` counts calls in time as late.
    """
    least_rps = float(shares.load_rps[0])
    shares = shares.unserved if unserved else shares
    carried = [max(shares.carries_rps(float(n), late_share), least_rps) for n in shares.instances]
    return np.log(np.maximum.accumulate(carried)), np.log(shares.instances)


def _needed(load_rps: float, carried: FloatArray, sizes: FloatArray) -> float:
    """Return the number of instances that carry a load; beyond the largest fleet in proportion."""
    log_load = math.log(load_rps)
    return float(np.exp(np.interp(log_load, carried, sizes) + max(0.0, log_load - carried[-1])))
