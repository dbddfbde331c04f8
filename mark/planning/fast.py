"""A good plan in milliseconds: instances are stacked, and each gets its own schedule. No solver, unless limits bind.

With one offer only this is exact: as overflow is convex in capacity, the k-th instance may be decided alone, and its
best schedule is a dynamic program over two states, on and off (`switch`). With several offers an instance's worth
depends on what stands below it: `_stack` chooses by level of capacity as if what is below always ran, and `improve`
lets one offer after the other answer exactly to all the others until none can do better. Where the offers have few
combined counts, all of them are gone through instead. How far it is from the best plan, benchmarks/planner.py measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.load import FloatArray
from mark.planning.dynamic import cheapest, fewest
from mark.planning.ilp import relax
from mark.planning.program import BoolArray, IntArray, Program, held, price, violation

_BUNDLES = 32  # at most so many instances, or bundles of them, are decided in one answer
_ANSWERS = 12  # at most so many answers; nearly always two or three are enough
_STATES = 30_000  # combined counts x steps that the dynamic program goes through as fast as the search
_SPARSE = 50_000  # combined counts that may turn out to be so few when those that never pay are left out
_NEVER = -1e30
_TINY = 1e-12


def fast(program: Program) -> tuple[IntArray, bool]:
    """A plan (J, T), without regard to the limits, and whether no plan is cheaper.

    The best of a fleet that is stacked anew, of the same with all that runs until it has booted, and of what runs
    going on; they differ in what offers begin to answer to.
    """
    if (best := _of_all(program, limits=False)) is not None:
        return best, True
    everything = np.arange(program.offers)
    stacked = _stack(program)
    plans = [_settle(program, stacked, everything)]
    if not program.first and program.running.any():
        going_on = np.repeat(np.minimum(program.running, program.most)[:, None], program.steps, axis=1)
        until = np.arange(program.steps) < program.boot_steps.min()
        # Offers that do not run and were of no use there are not asked again.
        some = np.flatnonzero(plans[0].any(axis=1) | (program.running > 0))
        plans += [_settle(program, counts, some) for counts in (np.where(until, going_on, stacked), going_on)]
    best = min(plans, key=lambda counts: price(program, counts))
    return _settle(program, best, everything, around=True), False


def within_limits(program: Program) -> tuple[IntArray, bool]:
    """A plan (J, T) within the limits, and whether no other is cheaper.

    The linear program shares out what is scarce; its plan is rounded in a few ways, and what is left is filled up.
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
    # Without launches, since rounded ones may stand in each other's way.
    counts = np.minimum.accumulate(np.minimum(counts, program.before[:, None]), axis=1)
    plans.append(improve(program, counts, limits=True))
    return min(plans, key=lambda counts: price(program, counts)), False


def tight(program: Program, counts: IntArray) -> Program:
    """The same program without instances that never pay, whatever else there is, but for those of the plan `counts`."""
    return replace(program, most=np.minimum(program.most, np.maximum(_worth_having(program), counts.max(axis=1))))


def improve(program: Program, counts: IntArray, limits: bool = False) -> IntArray:
    """The plan (J, T) after offers answered to each other. It never costs more."""
    everything = np.arange(program.offers)
    counts = _settle(program, counts, everything, limits=limits)
    return _settle(program, counts, everything, around=True, limits=limits)


def _settle(
    program: Program, counts: IntArray, asked: IntArray, around: bool = False, limits: bool = False
) -> IntArray:
    """Let those of the offers `asked` answer, the one that saves most first, until none saves anything."""
    for _ in range(_ANSWERS):
        answer, could = _best_answer(program, counts, asked, around, limits)
        if answer is None:
            break
        counts = answer
        if asked.size == 1:
            break
        # The others have nothing to say, as a rule.
        asked = np.union1d(could, np.flatnonzero(counts.any(axis=1) | (program.running > 0)))
    return counts


@dataclass(frozen=True, slots=True)
class Switch:
    """When instances are best on and off, each for itself. Shapes are (T, ...), or (...) without the steps.

    `worth`: what being on in a step gains from then on. `launch`: what going on costs. `closed` (early steps, ...): it
    cannot be launched yet.
    """

    worth: FloatArray
    launch: FloatArray
    closed: BoolArray

    def schedule(self, runs: BoolArray) -> BoolArray:
        """On or off in each step; `runs` (...): was it on before? (...) broadcast."""
        clock = np.arange(1, len(self.worth) + 1, dtype=np.int16).reshape((-1,) + (1,) * (self.worth.ndim - 1))
        goes_on = self.worth > self.launch
        goes_on[: len(self.closed)] &= ~self.closed
        begun = np.maximum.accumulate(clock * goes_on, axis=0)
        ended = np.maximum.accumulate(clock * (self.worth <= 0.0), axis=0)
        return np.asarray((begun > ended) | ((ended == 0) & runs))

    def gains(self, runs: BoolArray) -> FloatArray:
        """What the schedule gains altogether: (...)."""
        beyond = np.maximum(self.worth - self.launch, 0.0)
        beyond[: len(self.closed)][self.closed] = 0.0
        dearest = np.where(self.closed[0], np.inf, self.launch) if len(self.closed) else self.launch
        kept = np.minimum(np.maximum(self.worth[0], 0.0), dearest)
        return np.asarray(beyond.sum(axis=0) + np.where(runs, kept, 0.0))

    def at(self, row: IntArray, column: IntArray) -> Switch:
        """Of some of instances that stand in a table."""
        return Switch(self.worth[:, row, column], self.launch[row, column], self.closed[:, row, column])


def switch(on_usd: FloatArray, launch_usd: FloatArray, boot_steps: IntArray) -> Switch:
    """The best switching of instances that gain `on_usd` (T, ...) in a step by being on; (...) broadcast.

    Going on costs `launch_usd` and is impossible before `boot_steps`; stopping is free. With D what having been on is
    worth at the end of a step,

        worth_t = on_t + D_t+1,    D_t = min(max(worth_t, 0), launch)

    so that on stays on while worth_t > 0, and off goes on when worth_t > launch.
    """
    steps, shape = len(on_usd), on_usd.shape[1:]
    launch = np.broadcast_to(launch_usd, shape)
    early = min(steps, int(boot_steps.max(initial=0)))
    closed = np.broadcast_to(np.arange(early).reshape((-1,) + (1,) * len(shape)) < boot_steps, (early, *shape))
    opening = {steps, *boot_steps.ravel().tolist()}
    worth, later, dearest = np.empty_like(on_usd), np.zeros(shape), launch
    for t, on, row in zip(range(steps - 1, -1, -1), on_usd[::-1], worth[::-1], strict=True):
        if t + 1 in opening:
            dearest = np.where(t < boot_steps, np.inf, launch)
        np.add(on, later, out=row)
        np.maximum(row, 0.0, out=later)
        np.minimum(later, dearest, out=later)
    return Switch(worth, launch, closed)


def _best_answer(
    program: Program, counts: IntArray, asked: IntArray, around: bool, limits: bool
) -> tuple[IntArray | None, IntArray]:
    """The plan in which that one of the offers `asked` has its best counts that saves most by it; None: none does.

    And all that would save something. First counts are from nothing upwards, in bundles where they are many; `around`:
    one by one near those that are, where they were in bundles.
    """
    before, size = program.before, program.capacity_rps
    capacity_rps = size @ counts
    others = capacity_rps - size[:, None] * counts
    room = program.levels * program.spacing_rps - others.min(axis=1, initial=np.inf)
    most = np.minimum(program.most, np.ceil(np.maximum(0.0, room) / size - _TINY).astype(np.int64))
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
    others, most, bundle, floor = others[asked], most[asked], bundle[asked], floor[asked]
    size, before, now = size[asked], before[asked], counts[asked]
    usd, launch_usd, boot = program.usd_per_step[asked], program.launch_usd[asked], program.boot_steps[asked]
    places = most // bundle
    place = np.arange(int(places.max(initial=0)) + 1)
    count = floor[:, None] + place * bundle[:, None]  # (asked, places + 1)
    # What runs needs no launch, so that a bundle ends with it.
    running = np.flatnonzero((before > floor) & (before < floor + places * bundle))
    nearest = np.maximum(1, np.rint((before - floor) / bundle).astype(np.int64))[running]
    count[running, nearest] = before[running]
    step = np.diff(count, axis=1)
    overflow = program.overflow_at(others[:, None, :] + (size[:, None] * count)[:, :, None])
    on_usd = overflow[:, :-1] - overflow[:, 1:] - (usd[:, None] * step)[:, :, None]
    on_usd[place[:-1] >= places[:, None]] = _NEVER
    if limits:
        on_usd[count[:, 1:, None] > _allowed(program, counts)[asked, None, :]] = _NEVER
    runs = count[:, 1:] <= before[:, None]
    on_usd = np.ascontiguousarray(np.moveaxis(on_usd, 2, 0))
    best = switch(on_usd, launch_usd[:, None] * step, boot[:, None])
    answers = (best.schedule(runs) * step).sum(axis=2).T + floor[:, None]
    # What is below the floor costs the same before and after.
    rises = np.maximum(np.diff(now, axis=1, prepend=before[:, None]), 0).sum(axis=1)
    paid_usd = usd * (now - floor[:, None]).sum(axis=1) + launch_usd * rises
    without_usd = overflow[:, 0].sum(axis=1) - best.gains(runs).sum(axis=1)
    saved = paid_usd + float(program.overflow_at(capacity_rps).sum()) - without_usd
    enough = _TINY + 1e-9 * float(program.overflow_usd[:, 0].sum())
    could = saved > enough
    for i in np.argsort(-saved, kind="stable")[: could.sum()]:
        found = counts.copy()
        found[asked[i]] = answers[i]
        if not (limits and violation(program, found)):
            return found, asked[could]
    return None, asked[could]


def _of_all(program: Program, limits: bool) -> IntArray | None:
    """The cheapest plan (J, T), None where the offers have too many combined counts to go through."""
    if not program.offers:
        return np.zeros((0, program.steps), dtype=np.int64)
    if len(fewest(program, _SPARSE)) < program.offers:
        return None
    program = replace(program, most=_worth_having(program))
    every = fewest(program, _STATES // program.steps)
    return cheapest(program, every, limits=limits)[1] if len(every) == program.offers else None


def _stack(program: Program) -> IntArray:
    """Counts (J, T): at every level of capacity the offer that gains most together with what comes above it.

    As if nothing ran yet: what runs may serve until the new ones do, or in their stead, as `improve` finds.
    """
    levels, size = program.levels, program.capacity_rps / program.spacing_rps
    each = _by_level(program)
    runs = np.full((program.offers, 1), program.first)
    value = _values(each.gains(runs), size)
    left = program.most.copy()
    placed: list[tuple[int, int, int]] = []  # offer, level, how many
    at = 0.0
    while at < levels:
        level = int(at)
        options = np.where(left > 0, value[level], 0.0)
        j = int(np.argmax(options))
        if options[j] <= 0.0:
            break
        # Small ones fill the level: the next would be the same.
        count = min(int(left[j]), max(1, math.ceil((level + 1 - at) / size[j] - _TINY)))
        placed.append((j, level, count))
        left[j] -= count
        at += count * float(size[j])
    counts = np.zeros((program.offers, program.steps), dtype=np.int64)
    if placed:
        offer, level_of, count_of = np.array(placed).T
        on = each.at(offer, level_of).schedule(runs[offer, 0])
        np.add.at(counts, offer, (on * count_of).T)
    return counts


def _values(gain: FloatArray, size: FloatArray) -> FloatArray:
    """What a stack gains from a level on that begins with an offer: (K + 1, J).

    `gain` (J, K + 1) is that of one instance by level, `size` (J,) in levels. Instances smaller than a level fill it.
    """
    levels = gain.shape[1]
    fills = size < 1.0
    step = np.where(fills, 1.0, size)
    low = np.floor(step)
    share = np.stack([1.0 - (step - low), step - low])
    above = np.minimum(np.arange(levels)[:, None, None] + low.astype(np.int64) + np.array([[0], [1]]), levels)
    own = (np.maximum(gain, 0.0) / np.where(fills, size, 1.0)[:, None]).T
    pays = own > 0.0
    value, best = np.zeros((levels, len(size))), np.zeros(levels + 1)
    for level in range(levels - 1, -1, -1):
        rest = (best.take(above[level]) * share).sum(axis=0)
        np.multiply(own[level] + rest, pays[level], out=value[level])
        best[level] = value[level].max()
    return value


def _worth_having(program: Program) -> IntArray:
    """More than that of an offer never pays, whatever else there is: (J,)."""
    pays = _by_level(program).gains(np.ones((program.offers, 1), dtype=np.bool_)) > 0.0
    # Less gains where more is below; so many fit below the first level at which one gains nothing.
    levels = np.where(pays.all(axis=1), program.levels, np.argmin(pays, axis=1))
    fit = np.ceil(levels * program.spacing_rps / program.capacity_rps - _TINY).astype(np.int64)
    return np.minimum(program.most, fit)


def _by_level(program: Program) -> Switch:
    """Of one instance on each level of capacity: (T, J, K + 1)."""
    above_rps = program.spacing_rps * np.arange(program.levels + 1) + program.capacity_rps[:, None]
    overflow = program.overflow_at(np.broadcast_to(above_rps[:, :, None], (*above_rps.shape, program.steps)))
    on_usd = program.overflow_usd.T - overflow - program.usd_per_step[:, None, None]
    on_usd = np.ascontiguousarray(np.moveaxis(on_usd, 2, 0))
    return switch(on_usd, program.launch_usd[:, None], program.boot_steps[:, None])


def _allowed(program: Program, counts: IntArray) -> IntArray:
    """So many of each offer leave the limits to the others as they are, while they boot too: (J, T)."""
    within = held(program, counts)
    instances = program.max_instances - within.sum(axis=0)
    usd = program.max_usd_per_step - program.usd_per_step @ within
    with np.errstate(divide="ignore", invalid="ignore"):
        affordable = np.floor(usd / program.usd_per_step[:, None] + _TINY)
    room = np.minimum(instances, np.where(program.usd_per_step[:, None] > 0.0, affordable, np.inf))
    room = np.minimum(room, 1e9).astype(np.int64)
    least = room.copy()
    for ahead in range(1, program.steps):
        boots = program.boot_steps >= ahead
        if not boots.any():
            break
        least[boots, ahead:] = np.minimum(least[boots, ahead:], room[boots, :-ahead])
    return np.asarray(counts + least)
