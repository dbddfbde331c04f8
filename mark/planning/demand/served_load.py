"""What capacity serves of the load that is believed: by level of capacity and number of steps, in expectation.

In step t capacity x serves E[S(D_t, x)]: D_t is drawn from the forecast's quantiles and the unrest within a step, and
S is what bouncers serve in time, a queueing formula (`overflow_rps`, `late_share`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.load import Forecast
from mark.kernel.compiled import compiled

HORIZON = 40  # steps: what lies beyond hardly changes whether to launch, keep or swap, at launch costs of minutes
# The load within a step, as three equally good points of a normal (Gauss-Hermite): deviations and weights.
_WITHIN = np.array([-1.7320508, 0.0, 1.7320508])
_SHARES = np.array([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0])
_ALL = np.ones(1)
_LEVELS = np.arange(1, 20, 2) / 20.0  # ten equally likely rates: 0.05, 0.15, ..., 0.95
_EQUAL = np.full(10, 0.1)
# Where a minute that is too small is lost, its tail decides: 19 rates for a twentieth each, and for the last one rates
# as many standard deviations of a normal above the middle as real load was above forecasts of three minutes ahead. The
# weights were set by hand; on which traces and forecasts is not recorded, and no command refits them.
_TAIL = [NormalDist().cdf(deviations) for deviations in (1.9, 2.5, 3.2, 4.0, 6.0)]
_WITH_TAIL = np.concatenate([np.arange(1, 39, 2) / 40.0, _TAIL])
_TAIL_WEIGHTS = np.concatenate([np.full(19, 0.05), [0.015, 0.012, 0.011, 0.008, 0.004]])
_EXPECTED_MAX_OF_12 = 1.63  # standard deviations: the highest of the twelve 5 s windows of a minute
_GRID, _GRID_WITH_TAIL = 48, 72  # levels of load at which savings are worked out; linear between
_FAR = 40.0  # an exponent beyond which exp() is lost in rounding


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """Requests/s-steps that capacity x would serve in the first e steps: `served[k, e]` at x = k x `spacing_rps`."""

    served: FloatArray  # (levels + 1, steps + 1)
    spacing_rps: float

    @property
    def steps(self) -> int:
        return int(self.served.shape[1]) - 1

    def between(self, low_rps: FloatArray, high_rps: FloatArray) -> FloatArray:
        """Served by the capacity from `low_rps` to `high_rps`, by number of steps: (K, steps + 1)."""
        return self.at(high_rps) - self.at(low_rps)

    def at(self, rate_rps: FloatArray) -> FloatArray:
        """Served by the capacity from zero up to `rate_rps`: (..., steps + 1)."""
        place = np.minimum(rate_rps / self.spacing_rps, len(self.served) - 1.000001)
        low = place.astype(np.int64)
        weight = (place - low)[..., None]
        return np.asarray(self.served[low] * (1.0 - weight) + self.served[low + 1] * weight, dtype=np.float64)


def _normal_at(levels: FloatArray) -> FloatArray:
    return np.array([NormalDist().inv_cdf(float(level)) for level in levels])


def overflow_rps(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float) -> FloatArray:
    """Requests/s that bouncers turn away: reflected Brownian motion between an empty fleet and a full one.

    Work comes as Poisson requests of known size (variance = load) and leaves at the capacity; a request is admitted
    while the work before it takes at most `patience_s` (RT_max less its own service). The motion is turned back at
    the upper end b = capacity x patience at rate (C - L) / (exp(2 (C - L) b / L) - 1) (Harrison 1985, section 5.6).
    The kernel confirms it: docs/policies.md. Arguments broadcast; at most all of the load overflows.
    """
    return _each(load_rps, capacity_rps, patience_s, True)


def late_share(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float) -> FloatArray:
    """Share of requests that wait longer than `patience_s` where none is turned away, so that all of them queue.

    The same motion with no upper end: its stationary distribution is exponential (Harrison 1985, section 1.9), so
    P(wait > w) = exp(-2 (C - L) C w / L), and all are late where the load exceeds the capacity. The kernel confirms
    it: docs/policies.md. Arguments broadcast.
    """
    return _each(load_rps, capacity_rps, patience_s, False)


def _each(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float, sheds: bool) -> FloatArray:
    load, capacity = np.broadcast_arrays(np.asarray(load_rps, np.float64), np.asarray(capacity_rps, np.float64))
    found = np.empty(load.shape)
    _all_of(
        np.ascontiguousarray(load).ravel(), np.ascontiguousarray(capacity).ravel(), patience_s, sheds, found.ravel()
    )
    return found


@compiled
def _all_of(load: FloatArray, capacity: FloatArray, patience_s: float, sheds: bool, found: FloatArray) -> None:
    for i in range(len(load)):
        if sheds:
            found[i] = _overflow_rps(load[i], capacity[i], patience_s)
        else:
            found[i] = _late_share(load[i], capacity[i], patience_s)


@compiled
def _overflow_rps(load: float, capacity: float, patience_s: float) -> float:
    if capacity <= 0.0:
        return load
    spare = capacity - load
    if abs(spare) < 1e-9:
        spare = 1e-9
    times_load = 2.0 * spare * capacity * patience_s
    if times_load > _FAR * load:
        return 0.0
    turned_away = spare / math.expm1(times_load / load) if times_load > -_FAR * load else -spare
    # For a capacity that holds few requests the motion is too coarse: a server without any queue serves C L / (C + L).
    too_much = turned_away * (capacity + load) > load * load
    return load * load / (capacity + load) if too_much else turned_away


@compiled
def _late_share(load: float, capacity: float, patience_s: float) -> float:
    if capacity <= load:
        return 1.0
    times_load = 2.0 * (capacity - load) * capacity * patience_s
    return math.exp(-times_load / load) if times_load < _FAR * load else 0.0


@compiled
def _serve(
    demand: FloatArray, weights: FloatArray, spacing_rps: float, patience_s: float, sheds: bool, served: FloatArray
) -> None:
    """Fill `served` (levels + 1, steps + 1) of `ServedLoad`; `demand` (steps, points) in requests/s, with `weights`."""
    steps, points = demand.shape
    for k in range(len(served)):
        capacity = k * spacing_rps
        total = 0.0
        served[k, 0] = 0.0
        for t in range(steps):
            for i in range(points):
                load = demand[t, i]
                if sheds:
                    lost = _overflow_rps(load, capacity, patience_s)
                else:
                    lost = load * _late_share(load, capacity, patience_s)
                total += weights[i] * (load - lost)
            served[k, t + 1] = total


def served_load(
    forecast: Forecast, patience_s: float, backlog_s: float | None = None, steps: int = HORIZON
) -> ServedLoad:
    """What capacity would serve, expected over the forecast's quantiles and the unrest within a step.

    `patience_s`: how long a request may wait for its service to begin. `backlog_s` is given where what exceeds the
    capacity is not shed but queues and makes others late too: then every excess of Poisson arrivals over that long
    counts as not served.
    """
    steps = min(steps, forecast.steps)
    points, weights, grid = _LEVELS, _EQUAL, _GRID
    if backlog_s is not None:
        points, weights, grid = _WITH_TAIL, _TAIL_WEIGHTS, _GRID_WITH_TAIL
    place = np.interp(points, forecast.levels, np.arange(len(forecast.levels), dtype=np.float64))
    low = np.minimum(place.astype(np.int64), max(0, len(forecast.levels) - 2))
    high = np.minimum(low + 1, len(forecast.levels) - 1)
    weight = (place - low)[:, None]
    mean = forecast.mean_rps[low, :steps] * (1.0 - weight) + forecast.mean_rps[high, :steps] * weight
    middle = np.maximum(forecast.mean_at(0.5)[:steps], 1e-12)
    # Beyond the highest level as far as a normal distribution goes on.
    beyond = np.maximum(_normal_at(points) / _normal_at(forecast.levels[-1:]), 1.0) - 1.0
    mean += (mean - middle) * beyond[:, None]
    # What 5 s peaks show beyond Poisson arrivals, which the formulas know of.
    unrest = (np.maximum(0.0, forecast.peak_at(0.5)[:steps] - middle) / _EXPECTED_MAX_OF_12) ** 2
    deviation = np.sqrt(np.maximum(0.0, unrest - middle / 5.0)) / middle * mean
    # (steps, points, 3), or (steps, points, 1) where nothing is known of the unrest within a step
    within_step, shares = (_WITHIN, _SHARES) if deviation.any() else (_WITHIN[1:2], _ALL)
    demand = np.maximum(1e-9, mean.T[:, :, None] + deviation.T[:, :, None] * within_step)
    highest = float(demand.max())
    # Capacity beyond the load still helps as long as queues overflow: up to an exponent of 8, or a quarter more.
    top_rps = max(1.25 * highest, highest + 4.0 / patience_s)
    spacing_rps = max(top_rps, 1e-9) / grid
    served = np.empty((grid + 1, steps + 1))
    each = np.outer(weights, shares).ravel()
    _serve(demand.reshape(steps, -1), each, spacing_rps, patience_s, backlog_s is None, served)
    return ServedLoad(served, spacing_rps)
