"""The cheapest counts over time of a few offers, exactly: a dynamic program over all their counts.

A state is how many of each offer serve. From one step to the next each offer's count falls for nothing or rises for its
launches, one offer after the other, so that a step costs a few operations per state.
"""

from __future__ import annotations

import math

import numpy as np

from mark.domain.load import FloatArray
from mark.planning.program import ROUNDING, IntArray, Program


def fewest(program: Program, states: int) -> IntArray:
    """The largest offers, in their order: as many as have at most so many combined counts."""
    total, found = 1, []
    for j in np.argsort(-program.capacity_rps, kind="stable").tolist():
        total *= int(program.most[j]) + 1
        if total > states:
            break
        found.append(j)
    return np.array(sorted(found), dtype=np.int64)


def cheapest(
    program: Program, offers: IntArray, rent_usd: FloatArray | None = None, limits: bool = False
) -> tuple[float, IntArray, FloatArray]:
    """The cheapest plan with `offers` (L,), where other capacity may be rented at `rent_usd` (T,) per request/s.

    Dollars, counts (L, T), and what is rented (T,). `limits`: what serves keeps the program's limits; what boots beside
    it need not. Of equal plans that with fewer instances of the first offer in the first step, and so on.
    """
    steps, spacing = program.steps, program.spacing_rps
    left_usd = program.overflow_usd
    rented_rps = np.zeros(steps)
    if rent_usd is not None:
        # Overflow or rent, whichever is cheaper, at each level.
        slopes = np.diff(left_usd, axis=1)
        rent = -spacing * rent_usd[:, None]
        saved = np.cumsum(np.maximum(slopes, rent)[:, ::-1], axis=1)[:, ::-1]
        left_usd = left_usd[:, -1:] - np.concatenate([saved, np.zeros((steps, 1))], axis=1)
        rented_rps = (slopes < rent).sum(axis=1) * spacing
    shape = tuple((program.most[offers] + 1).tolist())
    size, launch_usd = program.capacity_rps[offers], program.launch_usd[offers]
    boot = program.boot_steps[offers].tolist()
    capacity_rps, usd = np.zeros(shape), np.zeros(shape)
    axes = range(len(shape))
    counts_along = [np.arange(n).reshape([-1 if i == d else 1 for i in axes]) for d, n in enumerate(shape)]
    backwards = [tuple(slice(None, None, -1 if i == d else 1) for i in axes) for d in axes]
    ramps = [launch_usd[d] * counts_along[d] for d in axes]
    for d in axes:
        capacity_rps += size[d] * counts_along[d]
        usd += program.usd_per_step[offers[d]] * counts_along[d]
    place = np.minimum(capacity_rps / spacing, float(program.levels))
    low = np.minimum(place.astype(np.int64), program.levels - 1)
    place -= low
    value = left_usd.take(low, axis=1)
    value += place * (left_usd.take(low + 1, axis=1) - value)
    value += usd
    if limits:
        instances = sum(counts_along, np.zeros(shape))
        value[:, (instances > program.max_instances) | (usd > program.max_usd_per_step * (1.0 + ROUNDING))] = math.inf
    after = np.zeros(shape)
    for t in range(steps - 1, -1, -1):
        value[t] += after  # of serving with a state in step t, and the best from then on
        after = value[t]
        for d in axes:
            fewer = np.minimum.accumulate(after, axis=d)
            if t >= boot[d]:
                more = np.minimum.accumulate((after + ramps[d])[backwards[d]], axis=d)[backwards[d]]
                more -= ramps[d]
                fewer = np.minimum(fewer, more, out=fewer)
            after = fewer
    at = np.minimum(program.before, program.most)[offers].tolist()
    best_usd = float(after[tuple(at)])
    counts = np.empty((len(offers), steps), dtype=np.int64)
    for t in range(steps):
        total = value[t].copy()
        for d in axes:
            rises = np.maximum(counts_along[d] - at[d], 0)
            total += launch_usd[d] * rises if t >= boot[d] else np.where(rises > 0, math.inf, 0.0)
        at = list(np.unravel_index(int(total.argmin()), shape))
        counts[:, t] = at
    return best_usd, counts, np.maximum(0.0, rented_rps - size @ counts)
