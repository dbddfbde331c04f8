"""A plan of whole instances by the bound's own rules: an upper limit of every proof by these rules.

It knows every arrival, buys whole instances, pays the shortest boot of every start, and serves a request in its own bin
or in the next one. Requests beyond that go to functions, or are late as far as the promise allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.kernel.compiled import compiled
from mark.planning.bounds.path_bound import small_paths
from mark.planning.bounds.whole_problem import WholeProblem, mixes

_STEPS_S = (20.0, 30.0, 60.0)  # lengths of the steps for which a fleet is held
_MOST_STEPS = 6_000
_MOST_FLEETS = 96
_EVALUATIONS = 9


def feasible_usd(problem: WholeProblem, late_allowed: float, late_usd: float) -> float | None:
    """Return the dollars of the cheapest plan found; None if no plan found answers enough in time.

    The search begins at `late_usd`, the price of a late request that a bound was proven at.
    """
    plans = [_by_bins(problem, late_allowed, late_usd)]
    plans += [_by_steps(problem, late_allowed, late_usd, step_s) for step_s in _STEPS_S]
    best = min(plans)
    return best if math.isfinite(best) else None


def _by_bins(problem: WholeProblem, late_allowed: float, late_usd: float) -> float:
    """Plan with a fleet that may change at any bin, for small services."""
    if problem.by_bin is not None or (paths := small_paths(problem)) is None:
        return math.inf

    def plan(price: float) -> tuple[float, float]:
        return paths.plan(price) or (math.inf, math.inf)

    return _cheapest_price(problem, late_allowed, late_usd, plan)


def _by_steps(problem: WholeProblem, late_allowed: float, late_usd: float, step_s: float) -> float:
    """Plan with a fleet held for steps of about `step_s`, from types whose price and availability never change."""
    width = max(1, round(step_s / problem.bin_s))
    steps = -(-len(problem.counts) // width)
    if steps > _MOST_STEPS and step_s < _STEPS_S[-1]:
        return math.inf
    steady = np.ones(len(problem.names), dtype=np.bool_)
    if problem.by_bin is not None:
        steady = np.all(problem.by_bin == problem.by_bin[0], axis=0) & np.isfinite(problem.by_bin[0])
    if not steady.any():
        return math.inf
    usd_per_s, rps = problem.usd_per_s[steady], problem.capacity_rps[steady]
    start_usd = usd_per_s * np.maximum(problem.boot_s[steady], MINIMUM_BILLED_S - width * problem.bin_s)
    padded = np.zeros(steps * width)
    padded[: len(problem.counts)] = problem.counts
    counts = padded.reshape(steps, width)
    fleets = _fleets(usd_per_s, rps, counts, problem)
    free = problem.free_rps * problem.bin_s
    room, run_usd = fleets @ rps * problem.bin_s + free, fleets @ usd_per_s
    change_usd = np.maximum(0.0, fleets[None] - fleets[:, None]) @ start_usd
    length_s = np.minimum(width, len(problem.counts) - width * np.arange(steps)) * problem.bin_s
    scratch = _Scratch(
        back=np.empty((steps, len(fleets)), dtype=np.int64),
        chosen=np.empty(steps, dtype=np.int64),
        before=np.empty(len(fleets)),
        usd=np.empty(len(fleets)),
    )

    def plan(price: float) -> tuple[float, float]:
        usd, left = _held(counts, room, run_usd, change_usd, length_s, price, problem.warm_start, scratch)
        return usd, left

    return _cheapest_price(problem, late_allowed, late_usd, plan)


def _fleets(usd_per_s: FloatArray, rps: FloatArray, counts: FloatArray, problem: WholeProblem) -> FloatArray:
    """Return fleets worth trying, (fleets, types): those that the steps' loads ask for, and one that serves all."""
    pairs = counts + np.concatenate((counts[:, 1:], np.zeros((len(counts), 1))), axis=1)
    front = mixes(usd_per_s, rps, float(pairs.max()) / problem.bin_s)
    needs = np.concatenate([counts.mean(axis=1), np.quantile(counts, 0.9, axis=1), counts.max(axis=1)])
    wanted = np.maximum(0.0, needs / problem.bin_s - problem.free_rps)
    places = np.minimum(np.searchsorted(front.requests, wanted), len(front.usd) - 1)
    often = np.bincount(places, minlength=len(front.usd))
    often[[0, -1]] = often.max() + 1
    kept = np.sort(np.argsort(-often, kind="stable")[:_MOST_FLEETS])
    return np.asarray(front.numbers[kept[often[kept] > 0]], dtype=np.float64)


def _cheapest_price(
    problem: WholeProblem, late_allowed: float, first: float, plan: Callable[[float], tuple[float, float]]
) -> float:
    """Return the least dollars of the plans at several prices of a request without an instance."""
    best, low, high = math.inf, 0.0, math.inf
    price = first
    for _ in range(_EVALUATIONS):
        usd, left = plan(price)
        over = max(0.0, left - late_allowed * (1.0 - 1e-9))
        usd += over * problem.function_usd if over > 0.0 else 0.0
        best = min(best, float(usd) + problem.free_disks_usd_per_s * len(problem.counts) * problem.bin_s)
        if over > 0.0:
            if price >= problem.function_usd:
                break
            low = price
        else:
            high = price
        price = math.sqrt(low * high) if low > 0.0 and high < math.inf else (price * 1.5 if over > 0.0 else price / 1.5)
        price = min(price, problem.function_usd)
        if high < low * 1.002 or price <= 0.0:
            break
    return best


class _Scratch(NamedTuple):
    """Memory of `_held`: for each step the best fleets before it, and the chosen one; dollars by fleet."""

    back: IntArray
    chosen: IntArray
    before: FloatArray
    usd: FloatArray


@compiled
def _held(
    counts: FloatArray,
    room: FloatArray,
    run_usd: FloatArray,
    change_usd: FloatArray,
    length_s: FloatArray,
    late_usd: float,
    warm_start: bool,
    scratch: _Scratch,
) -> tuple[float, float]:
    """Return dollars and requests left over of the best fleets, each held for a step.

    The choice of a step assumes that no request is carried over from the step before; the requests left over count it.
    """
    steps, fleets, bins = len(counts), len(room), counts.shape[1]
    back, chosen, before, usd = scratch
    for k in range(steps):
        for f in range(fleets):
            best, of = before[f], f
            if k == 0:
                best, of = (0.0 if warm_start else change_usd[0, f]), f
            else:
                best, of = np.inf, 0
                for g in range(fleets):
                    at = before[g] + change_usd[g, f]
                    if at < best:
                        best, of = at, g
            back[k, f] = of
            carried, left = 0.0, 0.0
            for b in range(bins):
                beyond = max(0.0, carried + counts[k, b] - room[f])
                carried = min(beyond, counts[k, b])
                left += beyond - carried
            usd[f] = best + run_usd[f] * length_s[k] + late_usd * (left + carried)
        for f in range(fleets):
            before[f] = usd[f]
    last = 0
    for f in range(fleets):
        if before[f] < before[last]:
            last = f
    for k in range(steps - 1, -1, -1):
        chosen[k] = last
        last = back[k, last]
    total, carried, left = 0.0, 0.0, 0.0
    for k in range(steps):
        f = chosen[k]
        total += run_usd[f] * length_s[k]
        if k > 0:
            total += change_usd[chosen[k - 1], f]
        elif not warm_start:
            total += change_usd[0, f]
        for b in range(bins):
            beyond = max(0.0, carried + counts[k, b] - room[f])
            carried = min(beyond, counts[k, b])
            left += beyond - carried
    return total, left + carried
