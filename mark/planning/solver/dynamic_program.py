"""The cheapest counts over time of a few offers, exactly: a dynamic program over all their counts.

A state is the number of serving instances of each offer. From one step to the next each offer's count falls for nothing
or rises for its launches, one offer after the other, so that a step costs a few operations per state.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.kernel.compiled import compiled
from mark.planning.solver.program import ROUNDING, Program


def fewest(program: Program, states: int) -> IntArray:
    """Return the largest offers, in their order: the longest list with at most `states` combined counts."""
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
    """Return the cheapest plan with `offers` (L,), where other capacity may be rented at `rent_usd` (T,) per request/s.

    Returns dollars, counts (L, T), and the rented capacity (T,). `limits`: serving instances keep the program's limits;
    booting ones need not. Beside rented capacity the least number of instances does not count. Among equal plans, the
    one with fewer instances of the first offer in the first step is returned, and so on.
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
    shape = program.most[offers] + 1
    launch_usd = np.ascontiguousarray(program.launches_usd()[offers])
    states, stride = states_of(tuple(program.most[offers].tolist()))
    total = len(states)
    capacity_rps = states @ program.capacity_rps[offers]
    usd = states @ program.usd_per_step[offers]
    if limits:
        over = usd > program.max_usd_per_step * (1.0 + ROUNDING)
        usd[over | (states.sum(axis=1) > program.max_instances)] = math.inf
    value, after = np.repeat(usd[None], steps, axis=0), np.zeros(total)
    if program.least is not None and rent_usd is None:
        value += program.missing_usd * np.maximum(program.least[:, None] - states.sum(axis=1), 0)
    go_back(np.ascontiguousarray(left_usd), capacity_rps / spacing, shape, stride, launch_usd, value, after)
    before = np.minimum(program.before, program.most)[offers]
    chosen = np.empty(steps, dtype=np.int64)
    go_on(value, states, before, launch_usd, chosen)
    return float(after[before @ stride]), states[chosen].T, np.maximum(0.0, rented_rps - capacity_rps[chosen])


@lru_cache(maxsize=64)  # because a planner's programs differ little from minute to minute
def states_of(most: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Return all counts from none to `most` (L,), in one row: (S, L); and the distance of counts that differ by one:
    (L,).

    The last offer's count moves fastest.
    """
    shape = np.array(most, dtype=np.int64) + 1
    stride = np.append(np.cumprod(shape[:0:-1])[::-1], 1)
    states = np.arange(int(shape.prod()))[:, None] // stride % shape
    states.flags.writeable = stride.flags.writeable = False
    return states, stride


@compiled
def go_back(
    left_usd: FloatArray,
    place: FloatArray,
    shape: IntArray,
    stride: IntArray,
    launch_usd: FloatArray,
    value: FloatArray,
    after: FloatArray,
) -> None:
    """Replace the dollars of each state in each step, `value` (T, states), by the least dollars from that step on.

    Also fill `after` (states,), zeros first: the same for having a state before the first step. `place` (states,) is
    capacity in levels of `left_usd`. `launch_usd` (L, T).
    """
    steps, total = value.shape
    levels = left_usd.shape[1] - 1
    for t in range(steps - 1, -1, -1):
        for i in range(total):
            low = min(int(place[i]), levels - 1)
            share = min(place[i] - low, 1.0)
            below = left_usd[t, low]
            after[i] += below + share * (left_usd[t, low + 1] - below) + value[t, i]
            value[t, i] = after[i]
        for d in range(len(shape)):
            one, launch = np.uint64(stride[d]), launch_usd[d, t]  # unsigned, because a place may not count from the end
            for begin in range(0, total, shape[d] * stride[d]):
                for none in range(begin, begin + stride[d]):
                    # Reducing is free: take the best of as many or fewer. Then of more, at the price of their launches.
                    at = np.uint64(none)
                    best = after[at]
                    for _ in range(1, shape[d]):
                        at += one
                        best = min(best, after[at])
                        after[at] = best
                    if launch < np.inf:
                        for _ in range(1, shape[d]):
                            at -= one
                            best = min(best + launch, after[at])
                            after[at] = best


@compiled
def go_on(
    value: FloatArray,
    states: IntArray,
    before: IntArray,
    launch_usd: FloatArray,
    chosen: IntArray,
) -> None:
    """Fill `chosen` (T,): the best state of each step, from the counts `before`; among equals the first."""
    steps, total = value.shape
    at = before
    for t in range(steps):
        best_usd = np.inf
        best = 0
        for i in range(total):
            usd = value[t, i]
            if usd >= best_usd:
                continue
            for d in range(len(before)):
                rises = states[i, d] - at[d]
                if rises > 0:
                    usd += launch_usd[d, t] * rises
            if usd < best_usd:
                best_usd, best = usd, i
        chosen[t] = best
        at = states[best]
