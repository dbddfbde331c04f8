"""Fit a replica's capacity to observations: load per replica against the share of late answers.

The fit assumes no model of the replica. Steps are sorted by requests/s per replica, the share of late answers is made
monotone in the load (pool adjacent violators), and the capacity is the load at which that share reaches the limit of
the promise. A capacity above the highest observed load cannot be seen, so a simulation based on the fit errs on the
expensive side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load_unit import REQUESTS
from mark.domain.profile import MOST_WORKERS, Basis, Profile, ProfileRow
from mark.domain.slo import Slo
from mark.profiling.policy import candidate, late_alone

# quantiles of the load, denser at high loads, which tell most about the capacity
_EDGES = (*np.linspace(0.0, 0.9, 19), 0.95, 0.98, 1.0)
_LEAST_STEPS = 24
_QUIET = 0.5  # share of the capacity; below it requests hardly wait
_MOST_TAIL = 10.0  # p99 over mean
_NO_TAIL = 1.01
_OF_RT_MAX = 0.9


@dataclass(frozen=True, slots=True)
class FittedReplica:
    """A replica's capacity in requests/s, between loads that kept and broke the promise.

    `most_rps` is None if no load broke the promise; then the capacity is at least `rps`.
    """

    rps: float
    least_rps: float
    most_rps: float | None


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """The time of a request that does not wait, in seconds; `tail` is p99 over mean."""

    mean_s: float
    tail: float = 1.0


def fit_replica(
    load_rps: FloatArray, late: FloatArray, total: FloatArray, allowed: float, unit: str = REQUESTS.name
) -> FittedReplica:
    """Fit the capacity to steps with a `load_rps` per replica, `late` of whose `total` answers were late.

    `allowed` is the share that may be late. The load may be in another `unit`; then the capacity is, too. Raises
    BadInput if there are too few steps, or if the promise was broken at every load.
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
        what = f"the promise is broken at every load, also at {loads[0]:.3g} {unit}/s a replica: say what one can do"
        raise BadInput(what, "--rps-per-replica", "nothing")
    low, high = float(loads[first - 1]), float(loads[first])
    part = (allowed - shares[first - 1]) / (shares[first] - shares[first - 1])
    return FittedReplica(low + float(part) * (high - low), low, high)


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the closest values that never decrease, by weighted least squares (pool adjacent violators)."""
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
    """Return the service time from the latency buckets of quiet steps; None if no answers were counted.

    Latencies are assumed uniform within a bucket, and at the lower bound in the last one.
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
    """Return the profile of an instance with `replicas`, each with enough workers for `rps` requests/s.

    The tail is cut if it alone would break the promise, because the observed service kept it. Raises BadInput if the
    replicas need more workers than an instance can have.
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
