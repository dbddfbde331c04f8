"""What a replica can do, fitted to what was observed: load per replica against how often answers were late.

No model of the replica is assumed. Steps are sorted by requests/s per replica. The share of late answers is made to
rise with the load (pool adjacent violators), and the capacity is the load at which it reaches what the promise allows.
A replica that could do more was never seen to, so the simulation that rests on it errs on the expensive side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.profile import MOST_WORKERS, Basis, Profile, ProfileRow
from mark.domain.slo import Slo
from mark.profiling.policy import candidate, late_alone

_EDGES = (*np.linspace(0.0, 0.9, 19), 0.95, 0.98, 1.0)  # quantiles of the load; the highest loads tell most
_LEAST_STEPS = 24
_QUIET = 0.5  # of the capacity: below it a request hardly waits
_MOST_TAIL = 10.0  # p99 over mean
_NO_TAIL = 1.01
_OF_RT_MAX = 0.9


@dataclass(frozen=True, slots=True)
class FittedReplica:
    """Requests/s that a replica does within the promise, between the load at which it was kept and that at which not.

    `most_rps` is None where no load was too high: the capacity is at least `rps`.
    """

    rps: float
    least_rps: float
    most_rps: float | None


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """How long a request takes where it does not wait, in seconds; `tail` is p99 over mean."""

    mean_s: float
    tail: float = 1.0


def fit_replica(load_rps: FloatArray, late: FloatArray, total: FloatArray, allowed: float) -> FittedReplica:
    """Fit the capacity to steps with `load_rps` per replica, of whose `total` answers `late` were late.

    `allowed` is the share that may be late. Raises BadInput where there are too few steps, or where the promise was
    broken at every load.
    """
    known = (total > 0.0) & np.isfinite(load_rps)
    load_rps, late, total = load_rps[known], late[known], total[known]
    if len(total) < _LEAST_STEPS:
        raise BadInput(f"too few steps with latencies to fit it ({len(total)}): say it", "--rps-per-replica", "nothing")
    places = np.unique(np.quantile(np.arange(len(load_rps) + 1), _EDGES).astype(int))
    order = np.argsort(load_rps, kind="stable")
    rows = [order[i:j] for i, j in zip(places[:-1].tolist(), places[1:].tolist(), strict=True)]
    loads = np.array([np.average(load_rps[row], weights=total[row]) for row in rows])
    counts = np.array([total[row].sum() for row in rows])
    shares = rising(np.array([late[row].sum() for row in rows]) / counts, counts)
    broken = np.flatnonzero(shares > allowed)
    if not len(broken):
        return FittedReplica(float(loads[-1]), float(loads[-1]), None)
    first = int(broken[0])
    if first == 0:
        what = f"the promise is broken at every load, also at {loads[0]:.3g} requests/s a replica: say what one can do"
        raise BadInput(what, "--rps-per-replica", "nothing")
    low, high = float(loads[first - 1]), float(loads[first])
    part = (allowed - shares[first - 1]) / (shares[first] - shares[first - 1])
    return FittedReplica(low + float(part) * (high - low), low, high)


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest values that never fall, by weighted squares: pool adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, m, i), (b, n, j) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n, i + j)]
    return np.repeat([value for value, _, _ in pools], [times for _, _, times in pools])


def service_time(
    load_rps: FloatArray, within: FloatArray, bounds_s: FloatArray, capacity_rps: float
) -> ServiceTime | None:
    """The service time from the latency buckets of quiet steps; None where there is none.

    Within a bucket latencies are taken as spread evenly, those of the last one at its lower bound.
    """
    quiet = within[np.isfinite(load_rps) & (load_rps <= _QUIET * capacity_rps)]
    counts = (quiet if len(quiet) else within).sum(axis=0)
    if not counts[-1] > 0.0:
        return None
    edges = np.concatenate(([0.0], np.where(np.isinf(bounds_s), np.max(bounds_s[:-1]), bounds_s)))
    inside = np.diff(np.concatenate(([0.0], counts)))
    mean_s = float((inside * (edges[1:] + edges[:-1]) / 2.0).sum() / counts[-1])
    p99_s = float(np.interp(0.99 * counts[-1], np.concatenate(([0.0], counts)), edges))
    return ServiceTime(mean_s, min(_MOST_TAIL, max(1.0, p99_s / mean_s)))


def replica_profile(model: str, instance: str, replicas: int, rps: float, time: ServiceTime, slo: Slo) -> Profile:
    """`replicas` on an instance, each of which takes as many requests at a time as `rps` of such a service time need.

    The tail is cut where it alone would break the promise, which was kept. Raises BadInput for more requests at a time
    than an instance can have.
    """
    mean_s = min(time.mean_s, _OF_RT_MAX * slo.rt_max_s)
    workers = replicas * max(1, math.ceil(rps * mean_s - 1e-9))
    if workers > MOST_WORKERS:
        what = f"an instance works on at most {MOST_WORKERS:,} requests at a time, and this needs {workers:,}"
        raise BadInput(what, "--rps-per-replica", rps)
    tail = time.tail
    while True:
        p99_ms = mean_s * tail * 1e3 if tail > _NO_TAIL else None
        row = ProfileRow(1, mean_s * 1e3, p99_ms=p99_ms, workers=workers, basis=Basis.DERIVED)
        profile = Profile(model, instance, (row,))
        able = candidate(profile, slo)
        if p99_ms is None or isinstance(able, str) or late_alone(able, slo.rt_max_s) <= (1.0 - slo.attainment) / 2.0:
            return profile
        tail = math.sqrt(tail)
