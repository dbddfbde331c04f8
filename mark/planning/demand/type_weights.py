"""The capacity of an instance of each type beside the others, at the load that comes.

To the program a fleet's capacity is one number, and its late shares are those of the reference type (`Lateness`). But
an instance carries more within the promise the more of its kind there are, and at next to no load one of any type is
enough. So at load L an instance of type i has the capacity

    C_ref n_ref(L) / n_i(L)

n_i(L) being the number of instances of type i alone that carry L within the promise without functions, by its own
table: at least one, and between the rows of the table linear in the logarithms. Were calls in time not counted as late,
one instance of any type would carry every load.

Where one instance of the reference is enough, an instance of another type counts at least as the share of the load that
it serves, if functions in time keep the promise beside it: the other requests only cost a call each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.late_shares import LateShares
from mark.domain.profile import Candidate


class TypeWeights:
    """Capacities of `candidates` beside the reference's, by load; `late_share` is the share that may be late."""

    def __init__(self, reference: Candidate, candidates: Sequence[Candidate], late_share: float) -> None:
        self._unit_rps = reference.capacity_rps
        self._late_share = late_share
        self._usual_rps = np.array([c.capacity_rps for c in candidates])
        self._shares = [c.late_shares for c in candidates if c.late_shares is not None]
        self._known = reference.late_shares is not None and len(self._shares) == len(candidates)
        if self._known:
            self._reference = _carried(reference.late_shares, late_share)
            self._types = [_carried(each, late_share) for each in self._shares]

    def at(self, load_rps: float) -> FloatArray:
        """Return the requests/s of an instance of each candidate, (candidates,); `capacity_rps` without tables."""
        if not self._known or load_rps <= 0.0:
            return self._usual_rps
        needed = np.array([_needed(load_rps, *each) for each in self._types])
        least = _needed(load_rps, *self._reference)
        weights = np.asarray(least / needed)
        if least == 1.0:
            weights = np.maximum(weights, [self._served(each, load_rps) for each in self._shares])
        return self._unit_rps * weights

    def _served(self, shares: LateShares, load_rps: float) -> float:
        """Return the share of a load that one instance serves; 0 if more than `late_share` is late."""
        if float(shares.late_at(load_rps, 1.0)) > self._late_share:
            return 0.0
        return 1.0 - float(shares.unserved.late_at(load_rps, 1.0))


def _carried(shares: LateShares | None, late_share: float) -> tuple[FloatArray, FloatArray]:
    """Return logarithms of the loads that fleets carry, ascending and at least the first column's, and of their
    sizes.
    """
    assert shares is not None
    least_rps = float(shares.load_rps[0])
    shares = shares.unserved
    carried = [max(shares.carries_rps(float(n), late_share), least_rps) for n in shares.instances]
    return np.log(np.maximum.accumulate(carried)), np.log(shares.instances)


def _needed(load_rps: float, carried: FloatArray, sizes: FloatArray) -> float:
    """Return the number of instances that carry a load; beyond the largest fleet in proportion."""
    log_load = float(np.log(load_rps))
    return float(np.exp(np.interp(log_load, carried, sizes) + max(0.0, log_load - carried[-1])))
