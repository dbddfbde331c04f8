"""The load that capacity serves: by level of capacity and number of steps, in expectation over the believed load.

In step t capacity x serves E[S(D_t, x)]: D_t is drawn from the forecast's quantiles and the unrest within a step, and S
is the load that bouncers serve in time (`Lateness`): by the counted shares of a type whose service times scatter, else
by a queueing formula (`overflow_rps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.copying import replace
from mark.domain.late_shares import LateShares
from mark.domain.load import Forecast
from mark.domain.service import ResolvedService
from mark.kernel.compiled import compiled
from mark.planning.demand.slo_budget import lasting

HORIZON = 40  # steps: later ones hardly change whether to launch, keep or swap, at launch costs of minutes
# The load within a step, as three Gauss-Hermite points of a normal: deviations and weights.
_WITHIN = np.array([-1.7320508, 0.0, 1.7320508])
_SHARES = np.array([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0])
_ALL = np.ones(1)
# Parts of a step in which a burst comes, the lowest point of the load first. The last sixth is cut into the two 5 s
# windows that peaks are counted in, because a burst may be no longer.
_PART = np.array([0, 1, 1, 1, 1, 2, 2])
_PARTS = np.array([2, 2, 2, 2, 2, 1, 1]) / 12.0
_BEHIND = np.append(np.cumsum(_PARTS[::-1])[-2::-1], 0.0)  # of the step, in the parts that a burst fills before it
# Quantiles of the believed load: the middles of ten tenths, the highest of which is cut into four, because budgets of
# misses lie there.
_EDGES = np.append(np.arange(10) / 10.0, (0.95, 0.98, 0.995, 1.0))
_LEVELS, _LIKELY = (_EDGES[1:] + _EDGES[:-1]) / 2.0, np.diff(_EDGES)
_LIKELY_LEVEL = 0.9
_EXPECTED_MAX_OF_12 = 1.63  # standard deviations of the highest of the twelve 5 s windows of a minute above their mean
_WINDOW_S = 5.0
_GRID = 48  # levels of load at which savings are computed; linear between
_SLOWER = 2.0  # a tail falls at most so many times more slowly than the forecast's highest quantiles
_NEARLY_NONE = 1e-4  # share of late requests that justifies no instance
_NEARLY_CHEAPEST = 1.15  # 1.1 leaves two drawn services 8 % dearer, 1.25 makes a third 9 % dearer
_UNCERTAIN = 3.0  # standard errors of a counted share
_FAR = 40.0  # exponents beyond this are lost in rounding
_FACTORIALS = tuple(float(math.factorial(n)) for n in range(11, 0, -1))


@dataclass(frozen=True, slots=True)
class BelievedLoad:
    """The believed load by level and step, (levels, steps): its rate, the standard deviation of the unrest within a
    step, and the rate of a burst that is shorter than the step, all in requests/s. Without such a burst, the last one
    is the rate.
    """

    mean_rps: FloatArray
    deviation_rps: FloatArray
    burst_rps: FloatArray

    @classmethod
    def of(cls, forecast: Forecast, steps: int) -> BelievedLoad:
        levels = np.asarray(forecast.levels, dtype=np.float64).tobytes()
        low, high, weight, beyond = _between(levels)
        told = forecast.mean_rps[low, :steps] * (1.0 - weight) + forecast.mean_rps[high, :steps] * weight
        middle = np.maximum(forecast.mean_at(0.5)[:steps], 1e-12)
        # Add the unrest that 5 s peaks show beyond Poisson arrivals, which the formulas cover. Each rate has its own
        # peak, because bursts of seconds occur in some minutes only. Below one request in 5 s peaks show nothing,
        # because a single request is a peak of many times the mean.
        peak = forecast.peak_rps[low, :steps] * (1.0 - weight) + forecast.peak_rps[high, :steps] * weight
        unrest = (np.maximum(0.0, peak - told) / _EXPECTED_MAX_OF_12) ** 2
        usual = np.maximum(told, 1.0 / 5.0)
        deviation = np.sqrt(np.maximum(0.0, unrest - told / 5.0))
        highest = usual + _EXPECTED_MAX_OF_12 * deviation
        shorter = highest > 2.0 * usual
        # Beyond the highest level such a burst becomes longer, not higher. Other loads grow with their unrest, but not
        # beyond the tail of the peaks, because the median of a load with rare bursts does not show how high they are.
        near, times = _near(levels)
        top = forecast.peak_rps[-1, :steps]
        most = np.where(shorter, highest, top + times * (top - forecast.peak_rps[near, :steps]) * beyond)
        mean = np.where(beyond > 0.0, np.minimum(told + (told - middle) * beyond, np.maximum(told, most)), told)
        grown = np.minimum(deviation / usual * mean, np.maximum(0.0, most - mean) / _EXPECTED_MAX_OF_12)
        # The highest of the burst's own windows exceeds its rate by chance.
        windows = np.maximum(1.0, 12.0 * mean / highest)
        by_chance = _EXPECTED_MAX_OF_12 / math.log(12.0) * np.log(windows) * np.sqrt(highest / 5.0)
        return cls(
            mean,
            np.where(beyond > 0.0, grown, deviation / usual * mean),
            np.where(shorter, np.maximum(mean, highest - by_chance), mean),
        )

    def likely_rps(self) -> float:
        """Return the highest likely rate of 5 s in all steps, without the chance of Poisson arrivals.

        Tables of late shares hold that chance.
        """
        at = int(np.searchsorted(_LEVELS, _LIKELY_LEVEL))
        highest = self.mean_rps[at] + _EXPECTED_MAX_OF_12 * self.deviation_rps[at]
        return float(np.maximum(highest, self.burst_rps[at])[:HORIZON].max())

    def demand(self, steps: int) -> tuple[FloatArray, FloatArray]:
        """Return rates that stand for the first steps: (steps, points) in requests/s, and the weights of the points.

        The points are the levels, with the unrest within a step around each. From twice the mean on, a burst's rate
        gradually replaces the normal distribution, whose low points would be negative: three times the mean comes in a
        third of the step, and nothing in the rest.
        """
        mean, deviation = self.mean_rps[:, :steps], self.deviation_rps[:, :steps]
        times = self.burst_rps[:, :steps] / np.maximum(mean, 1e-9)
        if (times > 2.0).any():
            within = mean[:, :, None] + deviation[:, :, None] * _WITHIN[_PART]
            full = np.clip((1.0 / np.maximum(times, 1.0)[:, :, None] - _BEHIND) / _PARTS, 0.0, 1.0)
            weight = np.clip(times - 2.0, 0.0, 1.0)[:, :, None]
            points = within + weight * (self.burst_rps[:, :steps, None] * full - within)
            return _of_mean(mean, points.transpose(1, 0, 2), _PARTS)
        # (steps, points, 3), or (steps, points, 1) if the unrest within a step is not known
        within_step, shares = (_WITHIN, _SHARES) if deviation.any() else (_WITHIN[1:2], _ALL)
        return _of_mean(mean, mean.T[:, :, None] + deviation.T[:, :, None] * within_step, shares)


def _of_mean(mean_rps: FloatArray, points_rps: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `demand` of points (steps, levels, points): negative ones become zero, and the others keep the mean."""
    demand = np.maximum(1e-9, points_rps)
    if points_rps.min() < 0.0:
        demand *= (np.maximum(1e-9, mean_rps.T) / (demand @ shares))[:, :, None]
    return demand.reshape(len(demand), -1), np.outer(_LIKELY, shares).ravel()


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """Requests/s-steps that capacity x would serve in the first e steps: `served[k, e]` at x = k x `spacing_rps`.

    `called[k, e]` is the part that goes to functions, if that was counted; else None.
    """

    served: FloatArray  # (levels + 1, steps + 1)
    spacing_rps: float
    load: FloatArray  # (steps + 1,) requests/s-steps that come in the first e steps
    believed: BelievedLoad
    called: FloatArray | None = None

    @property
    def steps(self) -> int:
        return int(self.served.shape[1]) - 1

    def between(self, low_rps: FloatArray, high_rps: FloatArray) -> FloatArray:
        """Return the load served by the capacity from `low_rps` to `high_rps`, by number of steps: (K, steps + 1)."""
        return self.at(high_rps) - self.at(low_rps)

    def less_calls(self, calls_per_miss: float) -> ServedLoad:
        """Return the served load with each call counted as a part of a miss.

        It does not fall with capacity, because surplus capacity can be released.
        """
        if self.called is None:
            return self
        served = np.maximum.accumulate(self.served - calls_per_miss * self.called, axis=0)
        return replace(self, served=served)

    def passed_on_rps(self, capacity_rps: float) -> float:
        """Return the requests/s that a capacity leaves to functions in the first step."""
        if self.called is None:
            return float(self.served[-1, 1] - self.at(np.array(capacity_rps))[1])
        levels = np.arange(len(self.called)) * self.spacing_rps
        return float(np.interp(capacity_rps, levels, self.called[:, 1]))

    def at(self, rate_rps: FloatArray) -> FloatArray:
        """Return the load served by the capacity from zero up to `rate_rps`: (..., steps + 1)."""
        place = np.minimum(rate_rps / self.spacing_rps, len(self.served) - 1.000001)
        low = place.astype(np.int64)
        weight = (place - low)[..., None]
        return np.asarray(self.served[low] * (1.0 - weight) + self.served[low + 1] * weight, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Lateness:
    """The requests of a load that a capacity leaves late, or to functions.

    If the service times of the reference type scatter, capacity x is x / `unit_rps` of its instances, and `shares` were
    counted for these; else `shares` is None, and a request is late if it waits longer than `patience_s`.
    """

    patience_s: float
    shares: LateShares | None = None
    unit_rps: float = 1.0

    def late_rps(self, load_rps: FloatArray | float, capacity_rps: FloatArray | float) -> FloatArray:
        """Return the requests/s of a load that are late, or passed on if nothing was counted. Arguments broadcast."""
        if self.shares is None:
            return overflow_rps(np.asarray(load_rps, np.float64), np.asarray(capacity_rps, np.float64), self.patience_s)
        return load_rps * _late_at(self.shares, load_rps, np.asarray(capacity_rps, np.float64) / self.unit_rps)


def lateness_of(resolved: ResolvedService, offers: Sequence[int]) -> Lateness:
    """Return the lateness of fleets of `offers`, by index; the reference type is `cheapest_lasting`."""
    patience_s = longest_wait_s(resolved, offers)
    if not offers:
        return Lateness(patience_s)
    reference = resolved.candidates[cheapest_lasting(resolved, offers)]
    shares = reference.late_shares
    if shares is not None and shares.rt_max_s != resolved.slo.rt_max_s:
        shares = None  # counted for another promise
    return Lateness(patience_s, shares, reference.capacity_rps)


def cheapest_lasting(resolved: ResolvedService, offers: Sequence[int]) -> int:
    """Return the index of the cheapest offer per request/s that can run for hours (`lasting`).

    If late shares were counted for all offers, return the smallest one that is nearly as cheap. Late shares are
    interpolated between whole instances of it, so a large one would overstate those of a fleet of small instances.
    """
    found = lasting(resolved, offers)
    usd_per_request = {i: resolved.offers[i].usd_per_hour_at(1.0) / resolved.candidates[i].capacity_rps for i in found}
    least = min(usd_per_request.values())
    if all(resolved.candidates[i].late_shares is not None for i in offers):
        near = [i for i in found if usd_per_request[i] <= _NEARLY_CHEAPEST * least]
        return min(near, key=lambda i: (resolved.candidates[i].capacity_rps, usd_per_request[i], i))
    return min(found, key=lambda i: (usd_per_request[i], i))


def longest_wait_s(resolved: ResolvedService, offers: Sequence[int]) -> float:
    """Return how long a request may wait for its service to begin on any of the `offers`, by index: in seconds.

    That is RT_max less the overhead and the largest batch of the slowest; at least a hundredth of RT_max.
    """
    rt_max_s = resolved.slo.rt_max_s
    candidates = [resolved.candidates[i] for i in offers]
    slack_s = min((rt_max_s - c.overhead_s - float(c.service_s[-1]) for c in candidates), default=0.0)
    return max(slack_s, 0.01 * rt_max_s)


def overflow_rps(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float) -> FloatArray:
    """Return the requests/s that bouncers turn away: reflected Brownian motion between an empty fleet and a full one.

    Work comes as Poisson requests of known size (variance = load) and leaves at the capacity; a request is admitted
    while the work before it takes at most `patience_s` (RT_max less its own service). The motion is turned back at the
    upper end b = capacity x patience at rate (C - L) / (exp(2 (C - L) b / L) - 1) (Harrison 1985, section 5.6). The
    kernel confirms it: docs/designs/2026-11-28-how-mark-plans.md. Arguments broadcast; at most all of the load
    overflows.
    """
    load, capacity, found = _alike(load_rps, capacity_rps)
    _overflow_of_all(load.ravel(), capacity.ravel(), patience_s, found.ravel())
    return found


def _alike(load_rps: FloatArray | float, capacity_rps: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return copies of both that have their common shape, and an array of that shape for a result.

    `np.broadcast_arrays` takes five times as long on small arrays.
    """
    found = np.empty((3, *np.broadcast(load_rps, capacity_rps).shape))
    found[0], found[1] = load_rps, capacity_rps
    return found[0, ...], found[1, ...], found[2, ...]


def overflow_slope(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float) -> FloatArray:
    """Return how much of one more request/s overflows: d/d load of `overflow_rps`, made convex in the load. From 0 to
    1.

    With l = load / capacity, b = capacity x patience_s and y = 2 b (1 / l - 1), the motion's formula is capacity x l /
    (2 b) x y / (exp(y) - 1). It rises more steeply than the smaller formula of a server without any queue, l^2 / (1 +
    l), which takes over from it where b is small; there the largest convex function below both leads from one to the
    other on their common tangent. So the slope never falls as the load grows. Arguments broadcast.
    """
    load, capacity, found = _alike(load_rps, capacity_rps)
    _slope_of_all(load.ravel(), capacity.ravel(), patience_s, found.ravel())
    return found


def capacity_for(load_rps: float, share: float, patience_s: float) -> float:
    """Return the capacity in requests/s at which bouncers turn away that share of a load above zero, by
    `overflow_rps`.
    """
    return float(_capacity_for(load_rps, share, patience_s))


@compiled
def _capacity_for(load: float, share: float, patience_s: float) -> float:
    low, high = 0.0, load
    while _overflow_rps(load, high, patience_s) > share * load:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _overflow_rps(load, middle, patience_s) > share * load:
            low = middle
        else:
            high = middle
    return high


def load_for(capacity_rps: float, share: float, patience_s: float) -> float:
    """Return the load in requests/s of which a capacity above zero turns away that share, above zero, by
    `overflow_rps`.
    """
    return float(_load_for(capacity_rps, share, patience_s))


@compiled
def _load_for(capacity: float, share: float, patience_s: float) -> float:
    low, high = 0.0, capacity
    while _overflow_rps(high, capacity, patience_s) < share * high:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _overflow_rps(middle, capacity, patience_s) < share * middle:
            low = middle
        else:
            high = middle
    return low


@compiled
def _overflow_of_all(load: FloatArray, capacity: FloatArray, patience_s: float, found: FloatArray) -> None:
    for i in range(len(load)):
        found[i] = _overflow_rps(load[i], capacity[i], patience_s)


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
    turned_away = spare / _expm1(times_load / load) if times_load > -_FAR * load else -spare
    # If a capacity holds few requests the motion is too coarse: a server without any queue serves C L / (C + L).
    too_much = turned_away * (capacity + load) > load * load
    return load * load / (capacity + load) if too_much else turned_away


@compiled
def _expm1(x: float) -> float:
    """Return exp(x) - 1 for |x| <= 40 within 1e-14 of it: unlike `math.expm1`, loops over it become vectors."""
    y = x / 64.0
    grown = 1.0 / 479001600.0
    for over in _FACTORIALS:
        grown = 1.0 / over + y * grown
    grown *= y
    for _ in range(6):
        grown *= grown + 2.0  # exp(2 y) - 1
    return grown


@compiled
def _slope_of_all(load: FloatArray, capacity: FloatArray, patience_s: float, found: FloatArray) -> None:
    holds, tangent = -1.0, 1.0
    for i in range(len(load)):
        if capacity[i] <= 0.0:
            found[i] = 1.0
            continue
        if capacity[i] * patience_s != holds:  # nearly always all capacities are equal
            holds = capacity[i] * patience_s
            tangent = _tangent_slope(holds)
        if load[i] <= 0.0:
            found[i] = 0.0
            continue
        per_capacity = load[i] / capacity[i]
        without_queue = 1.0 - 1.0 / (1.0 + per_capacity) ** 2
        found[i] = without_queue if without_queue > tangent else min(_motion_slope(per_capacity, holds), tangent)


@compiled
def _motion_slope(load: float, holds: float) -> float:
    """Return the slope of the reflected motion's formula, for a capacity of 1 with room for `holds` requests; at most
    1.
    """
    y = 2.0 * holds * (1.0 / load - 1.0)
    if y > _FAR:
        return 0.0
    if y < -_FAR:
        return 1.0
    if abs(y) < 1e-4:
        ratio, derivative = 1.0 - 0.5 * y, -0.5 + y / 6.0
    else:
        grown = math.expm1(y)
        ratio = y / grown
        derivative = (1.0 - y / -math.expm1(-y)) / grown
    return min(max(ratio / (2.0 * holds) - derivative / load, 0.0), 1.0)


@compiled
def _tangent_slope(holds: float) -> float:
    """Return the slope of the line that touches both formulas from below, for a capacity of 1 with room for `holds`.

    A tangent of slope m lies m x - f(x) below the origin, x being where f has that slope: for the server without a
    queue that is (1 - sqrt(1 - m))^2. At the slope where the motion's tangent is as deep, both share it.
    """
    if holds > _FAR / 4.0:
        return 1.0  # because they meet beyond 22,000 times the capacity
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        # Bracket the load at which the motion's slope reaches `middle`.
        below, above = 0.0, 2.0
        while _motion_slope(above, holds) < middle:
            below, above = above, 2.0 * above
        for _ in range(50):
            place = 0.5 * (below + above)
            if _motion_slope(place, holds) < middle:
                below = place
            else:
                above = place
        depth = middle * above - _overflow_rps(above, 1.0, holds)
        if depth > (1.0 - math.sqrt(1.0 - middle)) ** 2:
            low = middle
        else:
            high = middle
    return low


@compiled
def _serve(demand: FloatArray, weights: FloatArray, spacing_rps: float, patience_s: float, served: FloatArray) -> None:
    """Fill `served` (steps + 1, levels + 1), transposed as in `ServedLoad`; `demand` (steps, points) in requests/s."""
    steps, points = demand.shape
    levels = served.shape[1] - 1
    for k in range(levels + 1):
        served[0, k] = 0.0
    for t in range(steps):
        served[t + 1, 0] = 0.0
        above = served[t + 1, 1:]  # without level 0, which serves nothing, because 48 levels fill vectors
        for k in range(levels):
            above[k] = served[t, k + 1]
        for i in range(points):
            load, weight = demand[t, i], weights[i]
            # From this capacity on nothing overflows. Whole vectors of levels are faster than single ones.
            enough_rps = 0.5 * load + math.sqrt(0.25 * load * load + 0.5 * _FAR * load / patience_s)
            end = min((int(enough_rps / spacing_rps) // 8 + 1) * 8, levels)
            for k in range(end):
                above[k] += weight * (load - _overflow_rps(load, (k + 1) * spacing_rps, patience_s))
            for k in range(end, levels):
                above[k] += weight * load


def believed_demand(forecast: Forecast, steps: int) -> tuple[FloatArray, FloatArray]:
    """Return the `demand` of the `BelievedLoad` of a forecast."""
    return BelievedLoad.of(forecast, steps).demand(steps)


@lru_cache(maxsize=64)
def _between(levels: bytes) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return where `_LEVELS` lie between a forecast's levels (below, above, and the weight of the latter, (L, 1)), and
    the part of their distance from the median that is added (L, 1).
    """
    ascending = np.frombuffer(levels)
    place = np.interp(_LEVELS, ascending, np.arange(len(ascending), dtype=np.float64))
    low = np.minimum(place.astype(np.int64), max(0, len(ascending) - 2))
    # Beyond the highest level the load goes on as an exponential from the median, because bursts go further than a
    # normal distribution. On days of three traces, minutes above the p95 lie 0.3 to 2.5 of its distance from the median
    # beyond it on average (benchmarks/planner/miss_price.py beyond); for an exponential 0.43, for a normal distribution
    # 0.24.
    # Without a level above the median no scale is known, and the load ends at the highest level.
    highest = np.log(2.0 - 2.0 * ascending[-1]) if ascending[-1] > 0.5 else -np.inf
    beyond = np.maximum(np.log(2.0 - 2.0 * _LEVELS) / highest, 1.0) - 1.0
    return low, np.minimum(low + 1, len(ascending) - 1), (place - low)[:, None], beyond[:, None]


@lru_cache(maxsize=64)
def _near(levels: bytes) -> tuple[int, float]:
    """Return a lower level, by index, and a factor: the highest level lies at most the factor times its distance from
    the lower one above the median.

    The lower level is exceeded at least four times as often as the highest one. An exponential has its highest level
    log(0.5 / exceeded) scales above its median. Without a lower level above the median the factor is so large that it
    bounds nothing.
    """
    exceeded = 1.0 - np.frombuffer(levels)
    often = np.flatnonzero((exceeded >= 4.0 * exceeded[-1] - 1e-9) & (exceeded < 0.5))
    if not len(often):
        return 0, 1e12
    near = int(often[-1])
    return near, _SLOWER * math.log(0.5 / exceeded[-1]) / math.log(exceeded[near] / exceeded[-1])


def unrest_rps(mean_rps: float, windows_rps: FloatArray) -> FloatArray:
    """Return rates around the mean with the spread of the windows beyond Poisson arrivals, which the formulas cover.

    The mean alone if the windows show no unrest.
    """
    known = windows_rps[np.isfinite(windows_rps)]
    variance = float(known.var(ddof=1)) if len(known) > 1 else 0.0
    middle = float(known.mean()) if len(known) else 0.0
    beyond = variance - middle / _WINDOW_S
    if beyond <= 0.0 or middle <= 0.0:
        return np.array([mean_rps])
    return np.asarray(mean_rps * (1.0 + math.sqrt(beyond / variance) * (known / middle - 1.0)))


def served_load(forecast: Forecast, lateness: Lateness, steps: int = HORIZON) -> ServedLoad:
    """Return the load that capacity would serve, expected over the believed load (`BelievedLoad`)."""
    steps = min(steps, forecast.steps)
    believed = BelievedLoad.of(forecast, steps)
    if lateness.shares is not None:
        return _served_by_count(believed, lateness.shares, lateness.unit_rps)
    demand, weights = believed.demand(steps)
    highest = float(demand.max())
    # Capacity beyond the load still helps while queues overflow: up to an exponent of 8, or a quarter more.
    top_rps = max(1.25 * highest, highest + 4.0 / lateness.patience_s)
    spacing_rps = max(top_rps, 1e-9) / _GRID
    served = np.empty((steps + 1, _GRID + 1))
    _serve(np.ascontiguousarray(demand), weights, spacing_rps, lateness.patience_s, served)
    return ServedLoad(np.ascontiguousarray(served.T), spacing_rps, _sums(demand, weights), believed)


def _served_by_count(believed: BelievedLoad, shares: LateShares, unit_rps: float) -> ServedLoad:
    """Tabulate whole instances of the reference type, while more help; a level is several if there are many."""
    demand, weights = believed.demand(believed.mean_rps.shape[1])
    # Count up to the fleet where only long service times make requests late. Calls count as not served, because a
    # function in time would make the smallest fleet look sufficient. Allow for the error of counted shares, because the
    # least of many is too low by chance.
    unserved = shares.unserved
    more = max(_NEARLY_NONE, _UNCERTAIN * shares.error(unserved.least_late))
    most = unserved.least_instances(float(demand.max()), unserved.least_late + more) or 1
    each = max(1, math.ceil((most + 1) / _GRID))
    instances = np.arange(0, most + each + 1, each, dtype=np.float64)
    total = _sums(demand, weights)
    late, called = np.empty((2, len(instances), len(total)))
    late[0], called[0] = shares.late_without * total, shares.calls_without * total
    log_demand = np.log(demand)
    first, last = float(np.log(shares.load_rps[0])), float(np.log(shares.load_rps[-1]))
    counts = instances[1:]
    log_counts = np.log(counts).tolist()
    for table, without, sums in (
        (shares.late, shares.late_without, late),
        (shares.calls, shares.calls_without, called),
    ):
        rows = _rows_of(shares, table, counts)
        for k, log_count in enumerate(log_counts):
            _sum_shares(demand, log_demand, weights, rows[k], first, last, log_count, without, sums[k + 1])
    return ServedLoad(total - late, each * unit_rps, total, believed, called)


def _sums(demand: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the requests/s-steps that are expected in the first e steps: (steps + 1,)."""
    return np.concatenate([[0.0], np.cumsum(demand @ weights)])


def _rows_of(shares: LateShares, table: FloatArray, instances: FloatArray) -> FloatArray:
    """Return the table's row of each number of instances, interpolated between two rows: (N, U)."""
    there = np.minimum(instances, float(shares.instances[-1]))
    row = np.minimum(np.searchsorted(shares.instances, there, side="right") - 1, len(shares.instances) - 2)
    logs = np.log(shares.instances)
    weight = ((np.log(there) - logs[row]) / (logs[row + 1] - logs[row]))[:, None]
    return np.ascontiguousarray(table[row] * (1.0 - weight) + table[row + 1] * weight)


def _late_at(shares: LateShares, load_rps: FloatArray | float, instances: FloatArray) -> FloatArray:
    """Return `shares.late_at`, at a third of its time for small arrays."""
    load, count, found = _alike(load_rps, instances)
    at_least = np.maximum(count, 1.0)
    each = np.log(np.maximum(load / at_least, 1e-300)).ravel()
    there = np.log(np.minimum(at_least, float(shares.instances[-1]))).ravel()
    logs, first, span = shares.logs
    loads = load.ravel(), each, float(shares.load_rps[-1])
    _interpolate(shares.late, logs, first, span, loads, (count.ravel(), there), shares.late_without, found.ravel())
    return found


@compiled
def _interpolate(
    table: FloatArray,
    logs: FloatArray,
    first: float,
    span: float,
    loads: tuple[FloatArray, FloatArray, float],
    counts: tuple[FloatArray, FloatArray],
    without: float,
    found: FloatArray,
) -> None:
    """Fill `found` with the shares of loads (their logarithms by instance, the table's highest) and counts."""
    load, each, highest = loads
    count, there = counts
    end = table.shape[1] - 1
    row = 0
    for i in range(len(found)):
        while row > 0 and there[i] < logs[row]:
            row -= 1
        while row < len(logs) - 2 and there[i] >= logs[row + 1]:
            row += 1
        up = (there[i] - logs[row]) / (logs[row + 1] - logs[row])
        place = min(max((each[i] - first) / span, 0.0), 1.0) * end
        column = min(int(place), end - 1)
        right = place - column
        low = table[row, column] * (1.0 - right) + table[row, column + 1] * right
        high = table[row + 1, column] * (1.0 - right) + table[row + 1, column + 1] * right
        share = low * (1.0 - up) + high * up
        beyond = max(1.0 - max(count[i], 1.0) * highest / max(load[i], 1e-300), 0.0)
        share = share * (1.0 - beyond) + without * beyond
        found[i] = without - count[i] * (without - share) if count[i] < 1.0 else share


@compiled
def _sum_shares(
    demand: FloatArray,
    log_demand: FloatArray,
    weights: FloatArray,
    row: FloatArray,
    first: float,
    last: float,
    log_count: float,
    without: float,
    sums: FloatArray,
) -> None:
    """Fill `sums` (steps + 1,): requests/s-steps of `demand` (steps, points) times the shares of a row (U,)."""
    steps, points = demand.shape
    end = len(row) - 1
    per_column = (last - first) / end
    total = 0.0
    sums[0] = 0.0
    for t in range(steps):
        for i in range(points):
            place = (log_demand[t, i] - log_count - first) / per_column
            if place <= 0.0:
                share = row[0]
            elif place >= end:
                beyond = 1.0 - math.exp((end - place) * per_column)
                share = row[end] * (1.0 - beyond) + without * beyond
            else:
                low = int(place)
                share = row[low] + (place - low) * (row[low + 1] - row[low])
            total += weights[i] * demand[t, i] * share
        sums[t + 1] = total
