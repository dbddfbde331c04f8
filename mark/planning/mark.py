"""`mark`: every instance must pay for itself, in expected dollars over the forecast.

Stack instances on top of each other: the one that brings the capacity from x to x + C serves, in step h, on average

    E[S(D_h, x + C)] - E[S(D_h, x)]   requests/s,

D_h being the load that is believed and S(D, x) what bouncers serve of it (`overflow_rps`: a queueing formula). Each of
them would cost a function's price otherwise; the instance costs P a second, and O to launch. Let s(e) be what it saves
less what it costs over the next e steps. Then

    it runs       keep it just when max_e s(e) > max(0, the best that stopping now and launching again later could gain)
    it does not   launch it when serving pays in the first step it could be ready in, b, and max_e s(e) - s(b) > O

and this is a newsvendor's choice with the launch as its set-up cost: load that comes with probability q is covered
when q x (functions saved) exceeds the price. O is also what keeps it from flapping: what was launched stays until
idling costs more than launching it again. How many of which offer: what runs at the bottom, then the cheapest
request/s, then dearer but smaller instances, so many of each that the whole stack gains most.

Where functions cannot answer within RT_max (or there are none), nothing is shed: what exceeds the capacity queues and
makes those behind it late too. Then S(D, x) = min(D, x) with D as unsteady as Poisson arrivals over RT_max, and a miss
is priced so that nearly all of the load is covered, see `MISS_PRICE`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.load import FloatArray, Forecast
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.service import Deployment
from mark.planning.mark_paper import buyable, standbys
from mark.planning.port import Situation

IntArray = NDArray[np.int64]

STEP_S = 60.0
HORIZON = 20  # steps: what lies beyond hardly changes whether to launch or to keep, at launch costs of minutes
PENDING_S = 20.0  # of a boot that are not billed
# Where overflow cannot be shed to functions: of nominal capacity, as arrivals don't come just when a worker is free.
USABLE = 0.95
# A request that overflows to a function slower than RT_max, or to none, is priced so many times what the same request
# costs on the cheapest full instance, times 1 / (1 - SL_min).
MISS_PRICE = 0.5
# The load within a step, as three equally good points of a normal (Gauss-Hermite): deviations and weights.
_WITHIN = np.array([-1.7320508, 0.0, 1.7320508])
_LEVELS = np.arange(1, 20, 2) / 20.0  # ten equally likely rates: 0.05, 0.15, ..., 0.95
_WEIGHTS = np.repeat([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0], len(_LEVELS)) / len(_LEVELS)
_EXPECTED_MAX_OF_12 = 1.63  # standard deviations: the highest of the twelve 5 s windows of a minute
_GRID = 48  # levels of load at which savings are worked out; linear between
_BUNDLES = 16  # at most so many places for one kind when the kinds above it are weighed


@dataclass(frozen=True, slots=True)
class Savings:
    """Requests/s-steps that capacity x would serve in the first e steps: `served[k, e]` at x = k x `spacing_rps`."""

    served: FloatArray  # (levels + 1, steps + 1)
    spacing_rps: float

    def between(self, low_rps: FloatArray, high_rps: FloatArray) -> FloatArray:
        """Served by the capacity from `low_rps` to `high_rps`, by number of steps: (K, steps + 1)."""
        return self.at(high_rps) - self.at(low_rps)

    def at(self, rate_rps: FloatArray) -> FloatArray:
        """Served by the capacity from zero up to `rate_rps`: (..., steps + 1)."""
        place = np.minimum(rate_rps / self.spacing_rps, len(self.served) - 1.000001)
        low = place.astype(np.int64)
        weight = (place - low)[..., None]
        return np.asarray(self.served[low] * (1.0 - weight) + self.served[low + 1] * weight, dtype=np.float64)


def overflow_rps(load_rps: FloatArray, capacity_rps: FloatArray, patience_s: float) -> FloatArray:
    """Requests/s that bouncers turn away: reflected Brownian motion between an empty fleet and a full one.

    Work comes as Poisson requests of known size (variance = load) and leaves at the capacity; a request is admitted
    while the work before it takes at most `patience_s` (RT_max less its own service). The motion is turned back at
    the upper end b = capacity x patience at rate (C - L) / (exp(2 (C - L) b / L) - 1) (Harrison 1985, section 5.6).
    The kernel confirms it: docs/policies.md. Arguments broadcast; at most all of the load overflows.
    """
    spare = capacity_rps - load_rps
    spare = np.where(np.abs(spare) < 1e-9, 1e-9, spare)
    exponent = np.minimum(2.0 * spare * capacity_rps * patience_s / load_rps, 700.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        turned_away = spare / np.expm1(exponent)
    # For a capacity that holds few requests the motion is too coarse: a server without any queue serves C L / (C + L).
    most = load_rps * load_rps / (capacity_rps + load_rps)
    return np.asarray(np.where(capacity_rps > 0.0, np.minimum(turned_away, most), load_rps))


def savings(forecast: Forecast, patience_s: float, backlog_s: float | None = None, steps: int = HORIZON) -> Savings:
    """What capacity would serve, expected over the forecast's quantiles and the unrest within a step.

    `patience_s`: how long a request may wait for its service to begin. `backlog_s` is given where what exceeds the
    capacity is not shed but queues and makes others late too: then every excess of Poisson arrivals over that long
    counts as not served.
    """
    steps = min(steps, forecast.steps)
    place = np.interp(_LEVELS, forecast.levels, np.arange(len(forecast.levels), dtype=np.float64))
    low = np.minimum(place.astype(np.int64), max(0, len(forecast.levels) - 2))
    high = np.minimum(low + 1, len(forecast.levels) - 1)
    weight = (place - low)[:, None]
    mean = forecast.mean_rps[low, :steps] * (1.0 - weight) + forecast.mean_rps[high, :steps] * weight
    middle = np.maximum(forecast.mean_at(0.5)[:steps], 1e-12)
    # What 5 s peaks show beyond Poisson arrivals, which `overflow_rps` knows of.
    unrest = (np.maximum(0.0, forecast.peak_at(0.5)[:steps] - middle) / _EXPECTED_MAX_OF_12) ** 2
    beyond = np.maximum(0.0, unrest - middle / 5.0) / middle**2
    poisson = 0.0 if backlog_s is None else mean / backlog_s
    deviation = np.sqrt(poisson + beyond * mean**2)
    # (3, 10, steps)
    demand = np.asarray(np.maximum(1e-9, mean + _WITHIN[:, None, None] * deviation), dtype=np.float64)
    highest = float(demand.max())
    # Capacity beyond the load still helps as long as queues overflow: up to an exponent of 8, or a quarter more.
    top_rps = highest if backlog_s is not None else max(1.25 * highest, highest + 4.0 / patience_s)
    spacing_rps = max(top_rps, 1e-9) / _GRID
    levels = spacing_rps * np.arange(_GRID + 1)
    # For all levels at once, and the expectation as one product: (30) x (30, levels x steps)
    load = demand.reshape(-1, 1, steps)
    if backlog_s is None:
        served_rps = load - overflow_rps(load, np.asarray(levels[:, None], dtype=np.float64), patience_s)
    else:
        served_rps = np.minimum(load, levels[:, None])
    covered = served_rps.reshape(-1, (_GRID + 1) * steps)
    served = np.zeros((_GRID + 1, steps + 1))
    np.cumsum((_WEIGHTS @ covered).reshape(_GRID + 1, steps), axis=1, out=served[:, 1:])
    return Savings(served, spacing_rps)


class Mark:
    """Expected dollars, step by step of capacity, behind the port `Planner`. It needs no memory."""

    needs_forecast = True
    monitors_slo = True
    replans = True

    def __init__(self, name: str, deployment: Deployment) -> None:
        self.name = name
        self._deployment = deployment
        chosen = buyable(deployment)
        self._offers = tuple(deployment.offers[i] for i in chosen)
        self._names = tuple(offer.name for offer in self._offers)
        self._usd_per_step = np.array([offer.usd_per_s * STEP_S for offer in self._offers])
        self._launch_usd = np.array([o.usd_per_s * max(0.0, o.boot.mean_s - PENDING_S) for o in self._offers])
        self._boot_steps = np.array([math.ceil(o.boot.mean_s / STEP_S) for o in self._offers], dtype=np.int64)
        rt_max_s = deployment.slo.rt_max_s
        candidates = [deployment.candidates[i] for i in chosen]
        slack_s = min((rt_max_s - c.overhead_s - float(c.service_s[-1]) for c in candidates), default=0.0)
        self._patience_s = max(slack_s, 0.01 * rt_max_s)
        sheds = deployment.function is not None and deployment.function.warm_s <= rt_max_s
        self._backlog_s = None if sheds else rt_max_s
        self._usable = 1.0 if sheds else USABLE
        self._usable_rps = np.array([self._usable * c.capacity_rps for c in candidates])
        self._worth_buying = _undominated(self._usable_rps, self._usd_per_step / self._usable_rps)
        self._usd_per_overflow, self._overflow = self._price_of_overflow()

    def begin(self) -> None:
        return None

    def plan(self, situation: Situation, memory: Any) -> tuple[Plan, Any]:
        live = situation.fleet.live()
        running = np.array([live.get(name, 0) for name in self._names], dtype=np.int64)
        forecast = situation.forecast
        if forecast is None:
            held = (Target(n, live[n], "kept: there is no forecast") for n in self._names if live[n] > 0)
            return Plan(situation.now_s, tuple(held), notes=("no forecast: the fleet stays as it is",)), memory
        if not self._offers:
            warm = self._warm(float(forecast.mean_at(0.5)[0]))
            return Plan(situation.now_s, (), forecast.predictor, notes=("functions alone serve",), warm=warm), memory
        saved = savings(forecast, self._patience_s, self._backlog_s)
        counts, limited = self._stack(saved, running, situation.first)
        served_rps = float(saved.at(counts @ self._usable_rps)[1])
        plan = Plan(
            at_s=situation.now_s,
            targets=self._targets(counts, running, forecast, situation.first),
            predictor=forecast.predictor,
            standbys=standbys(
                self._deployment,
                sum(int(n) for n, offer in zip(counts, self._offers, strict=True) if offer.market is Market.SPOT),
            ),
            warm=self._warm(float(saved.served[-1, 1]) - served_rps),
            notes=("stopped at the service's limit of instances or $/h",) if limited else (),
            capacity_rps=float(counts @ self._usable_rps) / self._usable,
        )
        return plan, memory

    def _warm(self, overflow_rps: float) -> int:
        """Environments for what is planned to overflow, since a cold start would be a miss.

        Busy environments are Poisson with mean a = rate x time, where calls come as Poisson; a + 3 sqrt(a) + 1 are
        nearly always enough (square-root staffing), and an idle one costs nothing but a ping when it is recycled.
        """
        function = self._deployment.function
        if function is None or self._backlog_s is not None:
            return 0
        busy = max(0.0, overflow_rps) * function.warm_s
        return min(function.offer.concurrency, 1 + math.ceil(busy + 3.0 * math.sqrt(busy)))

    def _stack(self, saved: Savings, running: IntArray, first: bool) -> tuple[IntArray, bool]:
        """How many of each offer, and whether a limit stopped the stacking.

        What runs is at the bottom, for it serves while new instances boot; each in the order of price per request/s.
        `above[k]` is what the kinds after k gain at most when they are stacked from a level on, by level.
        """
        order = [int(i) for i in np.argsort(self._usd_per_step / self._usable_rps, kind="stable")]
        kinds = [(i, True) for i in order if running[i] > 0] + [(i, False) for i in order if self._worth_buying[i]]
        top_rps = saved.spacing_rps * _GRID
        # One more than the service allows, so that the limit is noticed.
        allowed = self._deployment.service.max_instances + 1
        fills = [min(allowed, math.ceil(top_rps / float(self._usable_rps[i]))) for i, _ in kinds]
        most = [min(int(running[i]), n) if runs else n for (i, runs), n in zip(kinds, fills, strict=True)]
        gains = self._gains(saved, np.array([i for i, _ in kinds], dtype=np.int64), [r for _, r in kinds], first)
        levels = np.arange(_GRID + 1.0)[:, None]
        above = [np.zeros(_GRID + 1)]
        for (i, _), count, gain in zip(kinds[:0:-1], most[:0:-1], gains[:0:-1], strict=True):
            # In bundles where there are many: this only estimates what is worth leaving to the kinds above.
            bundle = math.ceil(count / _BUNDLES)
            size = bundle * float(self._usable_rps[i]) / saved.spacing_rps
            _, value = _best_count(levels, size, count // bundle, _bundled(gain, bundle, size), above[0])
            above.insert(0, value)
        counts = np.zeros(len(self._offers), dtype=np.int64)
        service = self._deployment.service
        room, usd_per_hour, level = service.max_instances, service.max_usd_per_hour, 0.0
        for k, (i, _) in enumerate(kinds):
            size = float(self._usable_rps[i]) / saved.spacing_rps
            best, _ = _best_count(np.array([[level]]), size, most[k], gains[k], above[k])
            limit = min(room, math.floor(min(1e9, usd_per_hour / self._offers[i].usd_per_hour) + 1e-9))
            count = min(int(best[0]), limit)
            counts[i] += count
            if count < best[0]:
                return counts, True
            room -= count
            usd_per_hour -= count * self._offers[i].usd_per_hour
            level = min(level + count * size, float(_GRID))
        return counts, False

    def _gains(self, saved: Savings, kinds: IntArray, running: list[bool], first: bool) -> FloatArray:
        """What one instance of a kind gains, in dollars, when it is stacked from a level on: (kinds, levels)."""
        levels = saved.spacing_rps * np.arange(_GRID + 1)
        usable = self._usable_rps[kinds][:, None]
        steps = saved.served.shape[1] - 1
        low = np.broadcast_to(levels, (len(kinds), _GRID + 1))
        worth = STEP_S * self._usd_per_overflow * saved.between(low, low + usable)
        worth -= self._usd_per_step[kinds][:, None, None] * np.arange(steps + 1)  # s(e), (kinds, levels, steps + 1)
        best = worth.max(axis=2)  # s(0) = 0: stopped at once
        if first:
            return np.asarray(best, dtype=np.float64)
        launch_usd = self._launch_usd[kinds][:, None]
        # Stopping now and launching again later, at the step that is worst behind it.
        again = (worth - np.minimum.accumulate(worth, axis=2)).max(axis=2) - launch_usd
        ready = np.minimum(self._boot_steps[kinds], steps - 1)[:, None, None]
        at_ready = np.take_along_axis(worth, ready, axis=2)[:, :, 0]
        after = np.take_along_axis(worth, ready + 1, axis=2)[:, :, 0]
        later = np.where(np.arange(steps + 1) > ready, worth, -np.inf).max(axis=2)
        launch = np.where(after > at_ready, later - at_ready - launch_usd, -launch_usd)
        keep = np.where(best > again, best, best - again)
        return np.where(np.array(running)[:, None], keep, launch)

    def _price_of_overflow(self) -> tuple[float, str]:
        """What a request costs that no instance takes, and what it becomes."""
        function = self._deployment.function
        slo = self._deployment.slo
        if function is not None and function.warm_s <= slo.rt_max_s:
            return function.usd_per_request, "function calls"
        cheapest = float((self._usd_per_step / self._usable_rps).min(initial=np.inf)) / STEP_S
        miss = MISS_PRICE * cheapest / (1.0 - slo.attainment)
        return miss if math.isfinite(miss) else 0.0, "misses of the SLO"

    def _targets(self, counts: IntArray, running: IntArray, forecast: Forecast, first: bool) -> tuple[Target, ...]:
        live_rps = float(running @ self._usable_rps) / self._usable
        targets = []
        for i in np.flatnonzero(counts):
            step = 0 if first else min(int(self._boot_steps[i]), forecast.steps - 1)
            full = 3600.0 * self._usd_per_overflow * float(self._usable_rps[i])
            targets.append(
                Target(
                    self._names[i],
                    int(counts[i]),
                    f"forecast p50 {forecast.mean_at(0.5)[step]:.0f}, p90 {forecast.mean_at(0.9)[step]:.0f} requests/s "
                    f"at +{step * STEP_S:.0f} s against capacity {live_rps:.0f}; one costs "
                    f"{self._offers[i].usd_per_hour:.3f} $/h and saves up to {full:.2f} $/h of {self._overflow}",
                )
            )
        return tuple(targets)


def _best_count(
    start: FloatArray, size: float, most: int, gain: FloatArray, above: FloatArray
) -> tuple[IntArray, FloatArray]:
    """How many of a kind to stack from `start` (K, 1) on, at most `most`, and what that gains with what comes above.

    `size` is the kind's capacity, `start` a level, both in spacings of the grid; `gain` and `above` are by level.
    """
    place = np.minimum(start + size * np.arange(most + 1), _GRID - 1e-6)
    low = place.astype(np.int64)
    weight = place - low
    gains = gain[low] * (1.0 - weight) + gain[low + 1] * weight
    total = above[low] * (1.0 - weight) + above[low + 1] * weight
    total[:, 1:] += np.cumsum(gains[:, :-1], axis=1)
    # The fewest of those that gain as much: an instance that gains nothing is not bought.
    count = np.argmax(total >= total.max(axis=1, keepdims=True) - 1e-12, axis=1)
    return count, total.max(axis=1)


def _bundled(gain: FloatArray, bundle: int, size: float) -> FloatArray:
    """What `bundle` instances on top of each other gain together (trapezium rule); `size` is that of all of them."""
    if bundle == 1:
        return gain
    levels = np.arange(_GRID + 1.0)
    return np.asarray(0.5 * bundle * (gain + np.interp(levels + size, levels, gain)), dtype=np.float64)


def _undominated(usable_rps: FloatArray, usd_per_capacity: FloatArray) -> NDArray[np.bool_]:
    """Offers that no other beats in price per request/s without being larger; equal ones: the first by name.

    The load between x and x + C is the less certain the further up, so a smaller instance that is no dearer per
    request/s gains at least as much per request/s at every level.
    """
    order = np.lexsort((np.arange(len(usable_rps)), usd_per_capacity, usable_rps))
    keep = np.zeros(len(usable_rps), dtype=np.bool_)
    cheapest = np.inf
    for i in order:
        if usd_per_capacity[i] < cheapest * (1.0 - 1e-9):
            keep[i] = True
            cheapest = float(usd_per_capacity[i])
    return keep
