"""The share of requests that a fleet answers late, by its size and load: a table counted by the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from mark.domain.arrays import FloatArray, IntArray

_ALIKE = 1.6  # ratio below which two sizes of fleets count as alike
_FEW = 32  # instances, which nearly always suffice
_NEAR = (0.3, 1.5)  # range of shares for measuring the clustering of misses, as multiples of the given share


@dataclass(frozen=True, eq=False)
class LateShares:
    """Shares of late requests and of function calls, for fleets of one instance type.

    `instances` (N,) ascend from 1; `load_rps` (U,) are requests/s *per instance*, in geometric steps. `late` (N, U) is
    the share of the requests that are late or refused, `calls` (N, U) the share that goes to a function, and
    `dispersion` (N, U) the variance of the number of late requests in 500 over its mean (1 for independent misses). A
    cell near the promise is as exact as if `requests` had been counted. `late_without` and `calls_without` are the
    shares without an instance. `rt_max_s` is the promise that the requests were counted for.

    More load does not always mean more late requests, because full batches have a higher throughput.
    """

    instances: IntArray
    load_rps: FloatArray
    late: FloatArray
    calls: FloatArray
    dispersion: FloatArray
    rt_max_s: float
    requests: int
    late_without: float = 1.0
    calls_without: float = 0.0

    def late_at(self, load_rps: FloatArray | float, instances: FloatArray | float) -> FloatArray:
        """Return the share of a load (requests/s of the whole fleet) that is late on a number of instances.

        Arguments broadcast. The table is interpolated linearly in the logarithms. Load beyond the last column counts as
        served without instances, and so does the missing fraction below one instance.
        """
        return self._at(self.late, load_rps, instances, self.late_without)

    def calls_at(self, load_rps: FloatArray | float, instances: FloatArray | float) -> FloatArray:
        """Return the share of a load that goes to a function. Arguments broadcast."""
        return self._at(self.calls, load_rps, instances, self.calls_without)

    def carries_rps(self, instances: float, share: float) -> float:
        """Return the load (requests/s) up to which a number of instances answers at most `share` late.

        Return 0 if even the lowest load is too high.
        """
        loads_rps = self.load_rps * max(instances, 1.0)
        late = self.late_at(loads_rps, instances)
        missed = np.flatnonzero(late > share)
        if not len(missed):
            return float(loads_rps[-1])
        first = int(missed[0])
        if first == 0:
            return 0.0
        # Between two columns the share is linear in the logarithm of the load; rounding must not carry it over.
        way = (share - late[first - 1]) / (late[first] - late[first - 1]) * (1.0 - 1e-9)
        return float(loads_rps[first - 1] * (loads_rps[first] / loads_rps[first - 1]) ** way)

    def least_instances(self, load_rps: float, share: float) -> int | None:
        """Return the fewest instances that answer at most `share` of the load late; None if no fleet does."""
        most = max(int(self.instances[-1]), math.ceil(load_rps / self.load_rps[0]))
        counts = _counts_to(most)
        for some in (counts[:_FEW], counts[_FEW:]):
            kept = np.flatnonzero(self.late_at(load_rps, some) <= share)
            if len(kept):
                return int(some[kept[0]])
        return None

    def clustering(self, share: float) -> float:
        """Return how strongly misses cluster in fleets that miss about `share`: 1 if independent, never less."""
        return _clustering(self, share, None)

    def clustering_of(self, instances: int, share: float) -> float:
        """Return the clustering in fleets of about `instances`, or over all sizes if that is stronger.

        A full queue makes all requests of its time late, and a larger fleet gets more of them in that time.
        """
        return max(self.clustering(share), _clustering(self, share, min(instances, int(self.instances[-1]))))

    def error(self, share: float) -> float:
        """Return the standard error of a counted share near `share`."""
        return math.sqrt(self.clustering(share) * share / self.requests)

    @cached_property
    def least_late(self) -> float:
        """The share that is late even if no request waits."""
        return float(self.late[-1, 0])

    @cached_property
    def unserved(self) -> LateShares:
        """The shares with calls counted as late too: the requests that instances do not serve in time."""
        # Without a function in time, the requests that are passed on are late already.
        return self if self.late_without > 0.0 else replace(self, late=self.late + self.calls, late_without=1.0)

    def _at(
        self, table: FloatArray, load_rps: FloatArray | float, instances: FloatArray | float, without: float
    ) -> FloatArray:
        load, count = np.asarray(load_rps, np.float64), np.asarray(instances, np.float64)
        logs, first, span = self.logs
        at_least = np.maximum(count, 1.0)
        there = np.minimum(at_least, float(self.instances[-1]))
        row = np.minimum(self.instances.searchsorted(there, side="right") - 1, len(logs) - 2)
        up = (np.log(there) - logs[row]) / (logs[row + 1] - logs[row])
        end = len(self.load_rps) - 1
        place = np.log(np.maximum(load / at_least, 1e-300))
        place -= first
        place /= span
        place = np.minimum(np.maximum(place, 0.0), 1.0) * end
        column = np.minimum(place.astype(np.int64), end - 1)
        right = place - column
        left = 1.0 - right
        cell = row * (end + 1) + column
        flat = table.ravel()
        low = flat.take(cell) * left + flat.take(cell + 1) * right
        cell += end + 1
        high = flat.take(cell) * left + flat.take(cell + 1) * right
        share = low * (1.0 - up) + high * up
        beyond = np.maximum(1.0 - at_least * self.load_rps[-1] / np.maximum(load, 1e-300), 0.0)
        share = share * (1.0 - beyond) + without * beyond
        return np.asarray(np.where(count < 1.0, without - count * (without - share), share))

    @cached_property
    def logs(self) -> tuple[FloatArray, float, float]:
        """The logarithms of the numbers of instances and of the lowest load, and of the highest load over that."""
        first, last = np.log(self.load_rps[[0, -1]])
        return np.log(self.instances), first, last - first


@lru_cache(maxsize=256)
def _clustering(shares: LateShares, share: float, size: int | None) -> float:
    """Return the `clustering` of fleets of about `size` instances, or of all."""
    crossed = np.maximum.accumulate(shares.late > _NEAR[1] * share, axis=1)
    near = (shares.late > _NEAR[0] * share) & ~crossed
    if size is not None:
        near &= ((shares.instances * _ALIKE > size) & (shares.instances < size * _ALIKE))[:, None]
    return max(1.0, float(np.median(shares.dispersion[near]))) if near.any() else 1.0


@lru_cache(maxsize=64)
def _counts_to(most: int) -> FloatArray:
    """Return numbers of instances from 1 on, in growing steps."""
    counts: FloatArray = np.unique(np.round(np.geomspace(1.0, float(most), 4096)).astype(np.float64))
    counts.flags.writeable = False
    return counts
