"""A good plan in a millisecond or two: instances are stacked, and each gets its own schedule. A solver runs for limits
only.

With one offer this is exact: as overflow is convex in capacity, the k-th instance may be decided alone, and its best
schedule is a dynamic program over two states, on and off (`switch`). With several offers an instance's worth depends on
the capacity below it: `_stack` chooses by level as if the capacity below always ran, and `improve` lets one offer after
the other answer exactly to all the others until none can do better. If the offers have few combined counts, all of them
are tried instead. benchmarks/planner/planner.py measures the distance from the best plan.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.copying import unchecked
from mark.kernel.compiled import compiled
from mark.planning.solver.dynamic_program import cheapest, fewest
from mark.planning.solver.integer_program import relax
from mark.planning.solver.program import Program, held, price, rises, violation

_BUNDLES = 32  # the most instances, or bundles of them, that one answer decides
_ANSWERS = 12  # the most answers; nearly always two or three are enough
_STATES = 300_000  # combined counts x steps that the dynamic program goes through as fast as the search
_SPARSE = 50_000  # combined counts that may become few enough when instances that never pay are left out
_NEVER = -1e30
_TINY = 1e-12


def fast(program: Program) -> tuple[IntArray, bool]:
    """Return a plan (J, T), regardless of the limits, and whether no plan is cheaper.

    The best of three plans, after the offers have answered each other: a new stack; all running instances until a new
    one can serve, then the stack; and all running instances going on.
    """
    if (best := _of_all(program, limits=False)) is not None:
        return best, True
    everything = np.arange(program.offers)
    stacked = _stack(program)
    plans = [_settle(program, stacked, everything)]
    if not program.first and program.running.any():
        going_on = np.repeat(np.minimum(program.running, program.most)[:, None], program.steps, axis=1)
        until = ~program.can_launch.any(axis=0)
        # Do not ask offers again that neither run nor are in the first plan.
        some = np.flatnonzero(plans[0].any(axis=1) | (program.running > 0))
        plans += [_settle(program, counts, some) for counts in (np.where(until, going_on, stacked), going_on)]
    best = min(plans, key=lambda counts: price(program, counts))
    return _settle(program, best, everything, around=True), False


def within_limits(program: Program) -> tuple[IntArray, bool]:
    """Return a plan (J, T) within the limits, and whether no other is cheaper.

    The linear program shares out scarce room; its plan is rounded in a few ways, and free room is filled up.
    """
    best = _of_all(program, limits=True)
    if best is not None and not violation(program, best):
        return best, True
    fractions = relax(program, limits=True).counts
    plans = [np.zeros(fractions.shape, dtype=np.int64)]
    for share in (0.5, 0.25, 1e-6):
        counts = np.floor(fractions + share).astype(np.int64)
        if not violation(program, counts):
            plans.append(improve(program, counts, limits=True))
    # Also try a plan without launches, because rounded launches may block each other within the limits.
    counts = np.minimum.accumulate(np.minimum(counts, program.before[:, None]), axis=1)
    plans.append(improve(program, counts, limits=True))
    return min(plans, key=lambda counts: price(program, counts)), False


def tight(program: Program, counts: IntArray) -> Program:
    """Return the program without instances that never pay beside any others, but with those of the plan `counts`."""
    return unchecked(program, most=np.minimum(program.most, np.maximum(_worth_having(program), counts.max(axis=1))))


def improve(program: Program, counts: IntArray, limits: bool = False) -> IntArray:
    """Return the plan (J, T) after offers have answered each other. It never costs more."""
    everything = np.arange(program.offers)
    counts = _settle(program, counts, everything, limits=limits)
    return _settle(program, counts, everything, around=True, limits=limits)


def _settle(
    program: Program, counts: IntArray, asked: IntArray, around: bool = False, limits: bool = False
) -> IntArray:
    """Let the offers `asked` answer, the one that saves most first, until none saves anything."""
    for _ in range(_ANSWERS):
        answer, could = _best_answer(program, counts, asked, around, limits)
        if answer is None:
            break
        counts = answer
        if asked.size == 1:
            break
        # As a rule, only these can answer better.
        asked = np.union1d(could, np.flatnonzero(counts.any(axis=1) | (program.running > 0)))
    return counts


class _Offers(NamedTuple):
    """A program as compiled functions take it: overflow by [step, level]; sizes in levels, by offer."""

    overflow_usd: FloatArray
    size: FloatArray
    usd: FloatArray
    launch_usd: FloatArray  # [offer, step]
    missing_usd: float


class _Switched(NamedTuple):
    """Scratch, by step: the worth of being on, and whether it is on."""

    worth: FloatArray
    on: BoolArray


class _Range(NamedTuple):
    """By offer: the count before, the lowest count, and bundles beyond it; by [offer, step] the most allowed, and how
    many instances the others lack to the least number.
    """

    before: IntArray
    floor: IntArray
    bundle: IntArray
    bundles: IntArray
    allowed: IntArray
    missing: IntArray


@compiled
def switch(on_usd: FloatArray, launch_usd: FloatArray, count: int, runs: bool, on: BoolArray) -> float:
    """Return the gain of the best switching of `count` instances that gain `on_usd` (T,) in each step while on.

    Switching on costs `launch_usd` (T,) each, infinite where it is impossible; stopping is free; `runs`: were they on
    before? With D the worth of having been on at the end of a step,

        worth_t = on_t + D_t+1,    D_t = min(max(worth_t, 0), launch_t)

    so that they stay on while worth_t > 0, and are switched on when worth_t > launch_t. `on_usd` becomes the worth, and
    `on` (T,) is filled.
    """
    gain = later = 0.0
    for t in range(len(on_usd) - 1, -1, -1):
        on_usd[t] += later
        later = max(on_usd[t], 0.0)
        launch = launch_usd[t] * count
        gain += max(on_usd[t] - launch, 0.0)
        later = min(later, launch)
    now = runs
    for t in range(len(on_usd)):
        now = on_usd[t] > (0.0 if now else launch_usd[t] * count)
        on[t] = now
    return gain + later if runs else gain


@compiled
def _at(line: FloatArray, place: float) -> float:
    """Return a line through points at 0, 1, 2, ... at a place; it is constant beyond the last point."""
    low = min(int(place), len(line) - 2)
    return float(line[low] + min(place - low, 1.0) * (line[low + 1] - line[low]))


@compiled
def _on_level(offers: _Offers, j: int, level: int, runs: bool, switched: _Switched) -> float:
    """Return the gain of one instance of offer `j` on top of `level` levels, and fill when it is on."""
    overflow_usd, size, usd = offers.overflow_usd, offers.size[j], offers.usd[j]
    worth, on = switched
    for t in range(len(worth)):
        worth[t] = overflow_usd[t, level] - _at(overflow_usd[t], level + size) - usd
    return switch(worth, offers.launch_usd[j], 1, runs, on)


@compiled
def _on_each_level(offers: _Offers, runs: bool, switched: _Switched, gain: FloatArray) -> None:
    for j in range(len(offers.size)):
        for k in range(gain.shape[1]):
            gain[j, k] = _on_level(offers, j, k, runs, switched)


@compiled
def _answer(offers: _Offers, j: int, others: FloatArray, asked: _Range, switched: _Switched, counts: IntArray) -> float:
    """Fill `counts` (T,) with the best counts of offer `j`, in bundles; return dollars of these and of overflow.

    `others` (T,) are capacities in levels.
    """
    overflow_usd, size, usd, launch_usd = offers.overflow_usd, offers.size[j], offers.usd[j], offers.launch_usd[j]
    before, floor, bundle, bundles = asked.before[j], asked.floor[j], asked.bundle[j], asked.bundles[j]
    allowed, missing, missing_usd = asked.allowed[j], asked.missing[j], offers.missing_usd
    worth, on = switched
    total_usd = launch_usd[0] * (floor - before) if floor > before else 0.0
    for t in range(len(others)):
        counts[t] = floor
        total_usd += _at(overflow_usd[t], others[t] + size * floor) + usd * floor
        total_usd += missing_usd * max(missing[t] - floor, 0)
    # Running instances need no launch, so a bundle ends with them.
    ends = max(1, int(np.rint((before - floor) / bundle))) if floor < before < floor + bundles * bundle else 0
    low = floor
    for k in range(1, bundles + 1):
        high = before if k == ends else floor + k * bundle
        for t in range(len(others)):
            below, above = _at(overflow_usd[t], others[t] + size * low), _at(overflow_usd[t], others[t] + size * high)
            worth[t] = below - above - usd * (high - low) if high <= allowed[t] else _NEVER
            worth[t] += missing_usd * (max(missing[t] - low, 0) - max(missing[t] - high, 0))
        total_usd -= switch(worth, launch_usd, high - low, high <= before, on)
        for t in range(len(others)):
            if on[t]:
                counts[t] += high - low
        low = high
    return total_usd


@compiled
def _answers(
    offers: _Offers, others: FloatArray, asked: _Range, switched: _Switched, counts: IntArray, total_usd: FloatArray
) -> None:
    """Do `_answer` for many offers: fill `counts` (J, T) and `total_usd` (J,)."""
    for j in range(len(total_usd)):
        total_usd[j] = _answer(offers, j, others[j], asked, switched, counts[j])


def _best_answer(
    program: Program, counts: IntArray, asked: IntArray, around: bool, limits: bool
) -> tuple[IntArray | None, IntArray]:
    """Return the plan after that answer of the offers `asked` that saves most, or None; and all offers that save.

    The counts go from nothing upwards, in bundles if there are many; with `around`, one by one near the present counts,
    if those were in bundles.
    """
    before, size = program.before, program.capacity_rps
    capacity_rps = size @ counts
    others = capacity_rps - size[:, None] * counts
    room = program.levels * program.spacing_rps - others.min(axis=1, initial=np.inf)
    instances = counts.sum(axis=0)
    missing = program.missing(instances - counts)
    needed = np.maximum(np.ceil(np.maximum(0.0, room) / size - _TINY).astype(np.int64), missing.max(axis=1, initial=0))
    allowed = _allowed(program, counts) if limits else np.full_like(counts, 2**40)
    # A bundle of more than are allowed would be refused as a whole.
    most = np.minimum(np.minimum(program.most, needed), np.maximum(0, allowed.max(axis=1)))
    bundle = np.maximum(1, -(-most // _BUNDLES))
    floor = np.zeros_like(most)
    if around:
        in_use = counts.any(axis=1) | ((program.running > 0) & (not program.first))
        asked = asked[in_use[asked] & (bundle[asked] > 1)]
        if not asked.size:
            return None, asked
        low, high = counts.min(axis=1) - bundle, counts.max(axis=1) + bundle
        floor = np.maximum(0, low)
        most = np.minimum(most, high) - floor
        bundle = np.maximum(1, -(-most // (4 * _BUNDLES)))
    part, now = program.only(asked), counts[asked]
    answers, answer_usd = np.empty_like(now), np.empty(len(asked))
    bundled = _Range(
        before[asked], floor[asked], bundle[asked], (most // bundle)[asked], allowed[asked], missing[asked]
    )
    offers = _Offers(
        overflow_usd=np.ascontiguousarray(program.overflow_usd),
        size=size[asked] / program.spacing_rps,
        usd=part.usd_per_step,
        launch_usd=part.launches_usd(),
        missing_usd=program.missing_usd,
    )
    _answers(offers, others[asked] / program.spacing_rps, bundled, _scratch(program), answers, answer_usd)
    up = rises(now, before[asked])
    launched_usd = part.launch_usd * up.sum(axis=1)
    if part.late_usd is not None:
        launched_usd += (part.late_usd * up).sum(axis=1)
    now_usd = part.usd_per_step * now.sum(axis=1) + launched_usd + float(program.overflow_at(capacity_rps).sum())
    now_usd += program.missing_usd * float(program.missing(instances).sum())
    saved = now_usd - answer_usd
    enough = _TINY + 1e-9 * float(program.overflow_usd[:, 0].sum())
    could = saved > enough
    for i in np.argsort(-saved, kind="stable")[: could.sum()]:
        found = counts.copy()
        found[asked[i]] = answers[i]
        if not (limits and violation(program, found)):
            return found, asked[could]
    return None, asked[could]


def _of_all(program: Program, limits: bool) -> IntArray | None:
    """Return the cheapest plan (J, T); None if the offers have too many combined counts to try all."""
    if not program.offers:
        return np.zeros((0, program.steps), dtype=np.int64)
    if len(fewest(program, _SPARSE)) < program.offers:
        return None
    program = unchecked(program, most=_worth_having(program))
    every = fewest(program, _STATES // program.steps)
    return cheapest(program, every, limits=limits)[1] if len(every) == program.offers else None


def _stack(program: Program) -> IntArray:
    """Return counts (J, T): at every level of capacity the offer that gains most together with the stack above it.

    The stack is made as if no instance ran: `improve` finds that running ones may serve before or instead of new ones.
    """
    counts = np.zeros((program.offers, program.steps), dtype=np.int64)
    gain = _by_level(program, program.first)
    best_gain = np.zeros(program.levels + 2)
    _pile(_numbers(program), program.first, gain, best_gain, program.most.copy(), _scratch(program), counts)
    return counts


@compiled
def _pile(
    of_offers: _Offers,
    runs: bool,
    gain: FloatArray,
    best_gain: FloatArray,
    left: IntArray,
    switched: _Switched,
    counts: IntArray,
) -> None:
    """Fill `counts` (J, T), zeros first. `gain` (J, K + 1) of one instance by level becomes that of the whole stack.

    `best_gain` (K + 2,), zeros first, is scratch; used instances are taken off `left` (J,).
    """
    size, on = of_offers.size, switched.on
    offers, levels = gain.shape
    # The gain of a stack that begins with an offer on a level. Instances smaller than a level fill it.
    for level in range(levels - 1, -1, -1):
        for j in range(offers):
            if gain[j, level] > 0.0:
                above = level + max(size[j], 1.0)
                low = int(above)
                gain[j, level] /= min(size[j], 1.0)
                if low < levels:
                    gain[j, level] += best_gain[low] + (above - low) * (best_gain[low + 1] - best_gain[low])
                best_gain[level] = max(best_gain[level], gain[j, level])
    at = 0.0
    while at < levels - 1:
        level = int(at)
        best = -1
        for j in range(offers):
            if left[j] > 0 and gain[j, level] > (0.0 if best < 0 else gain[best, level]):
                best = j
        if best < 0:
            break
        # Small instances fill the level, because the next one would be the same.
        count = min(left[best], max(1, math.ceil((level + 1 - at) / size[best] - _TINY)))
        _on_level(of_offers, best, level, runs, switched)
        for t in range(len(on)):
            counts[best, t] += count * on[t]
        left[best] -= count
        at += count * size[best]


def _worth_having(program: Program) -> IntArray:
    """Return the count of each offer above which more never pays, whatever the others: (J,)."""
    pays = _by_level(program, runs=True) > 0.0
    # The gain falls with the level. So many instances fit below the first level without a gain.
    levels = np.where(pays.all(axis=1), program.levels, np.argmin(pays, axis=1))
    fit = np.ceil(levels * program.spacing_rps / program.capacity_rps - _TINY).astype(np.int64)
    return np.minimum(program.most, fit if program.least is None else np.maximum(fit, program.least.max()))


def _by_level(program: Program, runs: bool) -> FloatArray:
    """Return the gain of one instance on each level of capacity: (J, K + 1)."""
    gain = np.empty((program.offers, program.levels + 1))
    _on_each_level(_numbers(program), runs, _scratch(program), gain)
    return gain


def _numbers(program: Program) -> _Offers:
    size = program.capacity_rps / program.spacing_rps
    overflow_usd = np.ascontiguousarray(program.overflow_usd)
    return _Offers(overflow_usd, size, program.usd_per_step, program.launches_usd(), program.missing_usd)


def _scratch(program: Program) -> _Switched:
    return _Switched(np.empty(program.steps), np.empty(program.steps, dtype=np.bool_))


def _allowed(program: Program, counts: IntArray) -> IntArray:
    """Return the most of each offer that keep the limits beside the others, booting included: (J, T)."""
    within = held(program, counts)
    instances = program.max_instances - within.sum(axis=0)
    usd = program.max_usd_per_step - program.usd_per_step @ within
    with np.errstate(divide="ignore", invalid="ignore"):
        affordable = np.floor(usd / program.usd_per_step[:, None] + _TINY)
    room = np.minimum(instances, np.where(program.usd_per_step[:, None] > 0.0, affordable, np.inf))
    room = np.minimum(room, 1e9).astype(np.int64)
    least, leads = room.copy(), program.leads
    for ahead in range(1, program.steps):
        boots = leads[:, ahead:] >= ahead
        if not boots.any():
            break
        least[:, ahead:] = np.where(boots, np.minimum(least[:, ahead:], room[:, :-ahead]), least[:, ahead:])
    return np.asarray(counts + least)
