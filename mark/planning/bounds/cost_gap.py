"""The reasons why a clairvoyant misses the bound: fleets for whole minutes, whole instances, queues, launches.

Each number is the cost of a plan that knows every arrival, with one friction more than the one before. Capacity is the
same throughout a step of about a minute; requests beyond it go to functions, or are late at the price that makes as
many late as in the run (`late_price`). docs/attribution.md has the definitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.offer import Market
from mark.domain.time import STEP_S
from mark.planning.bounds.lower_bound import BoundProblem, SpotHistory, program_of
from mark.planning.demand.served_load import overflow_rps

_LEVELS = 96  # levels of capacity at which the requests left over are computed; linear between
_SLOTS = 160  # slots that a fluid fleet is cut into if launches cost money
_MOST = 4_000  # limit of the whole instances of a kind in a fleet
# Three Gauss-Hermite points of a normal: deviations and weights.
_POINTS, _WEIGHTS = np.array([-1.7320508, 0.0, 1.7320508]), np.array([1.0, 4.0, 1.0]) / 6.0


@dataclass(frozen=True, slots=True)
class CostGap:
    """Dollars of clairvoyant plans, without committed instances and extras.

    `fluid_usd`: fractions of instances, ready immediately, launched for nothing. `whole_usd`: the same with whole
    instances. `queueing_usd`: also with bouncers that turn away requests that do not fit while they wait.
    `launching_usd`: fluid again, but a launch costs as much as in the bound; `launches_usd` of it are launches.
    """

    fluid_usd: float
    whole_usd: float
    queueing_usd: float
    launching_usd: float
    launches_usd: float


def cost_gap(problem: BoundProblem, late: float) -> CostGap | None:
    """Return the plans' dollars; None without requests or offers, or if burstables alone are sold."""
    program = program_of(problem)
    if program is None or not (~program.credits).any():
        return None
    steps = _Steps.of(problem)
    plain = ~program.credits
    usd_per_request = program.price[:, plain] * program.usd / program.requests
    starts_usd = program.start[plain] * program.usd / program.requests * problem.bin_s  # of one request/s
    width = steps.width
    rows = np.minimum(np.arange(len(steps.mean_rps)) * width, program.bins - 1)
    usd_per_rps = np.add.reduceat(usd_per_request, rows, axis=0) * problem.bin_s
    there = np.logical_or.reduceat(program.available[:, plain], rows, axis=0)
    usd_per_rps = np.where(there, usd_per_rps, math.inf)
    left = steps.left()
    price = late_price(steps.levels_rps, usd_per_rps.min(axis=1), left, problem.resolved.in_time_usd, late)
    fluid_usd = float(_fluid(steps.levels_rps, usd_per_rps.min(axis=1), left, price)[0].sum())
    candidates = problem.resolved.candidates
    launching_usd, launches_usd = _launching(steps, usd_per_rps, starts_usd, left, price, program.warm_start)
    paid = price * late
    return CostGap(
        fluid_usd - paid,
        _whole(problem, steps, left, price, [c.ceiling_rps for c in candidates]) - paid,
        _whole(problem, steps, steps.queueing(problem), price, [c.capacity_rps for c in candidates]) - paid,
        launching_usd - paid,
        launches_usd,
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    """Arrivals by step of `width` bins, and the levels of capacity beside the committed one that are compared."""

    counts: FloatArray  # (T, width)
    share: FloatArray  # (T,) share of a step's bins that lie within the part: 1 except for the last
    width: int
    bin_s: float
    mean_rps: FloatArray  # (T,)
    levels_rps: FloatArray  # (T, levels)
    free_rps: float  # committed capacity, at its ceiling
    free_nominal_rps: float  # committed capacity within the SLO

    @classmethod
    def of(cls, problem: BoundProblem) -> _Steps:
        width = max(1, round(STEP_S / problem.bin_s))
        bins = min(len(problem.counts), math.floor(problem.end_s / problem.bin_s + 1e-9))
        steps = max(1, -(-bins // width))
        flat = np.zeros(steps * width)
        flat[: bins - 1] = problem.counts[: bins - 1]
        # A request may use the capacity of its own bin and of the next one.
        pairs = (flat + np.append(flat[1:], 0.0)).reshape(steps, width) / (2.0 * problem.bin_s)
        counts = flat.reshape(steps, width)
        mean = counts.mean(axis=1) / problem.bin_s
        # Queues overflow up to this capacity: more than any policy buys.
        top = np.maximum(pairs.max(axis=1), np.maximum(1.25 * mean, mean + 4.0 / _patience_s(problem)))
        pairs_of = zip(problem.resolved.offers, problem.resolved.candidates, strict=True)
        committed = [(problem.resolved.committed.get(o.name, 0), c) for o, c in pairs_of]
        return cls(
            counts,
            np.minimum(1.0, bins / width - np.arange(steps)),
            width,
            problem.bin_s,
            mean,
            top[:, None] * np.linspace(0.0, 1.0, _LEVELS),
            sum(n * c.ceiling_rps for n, c in committed),
            sum(n * c.capacity_rps for n, c in committed),
        )

    def left(self) -> FloatArray:
        """Return the requests that constant capacity leaves over, (T, levels): each is served in its own bin or the
        next.
        """
        room = (self.levels_rps + self.free_rps) * self.bin_s
        carried = np.zeros_like(room)
        for _ in range(2):  # two rounds, because a step begins with the requests carried over from the one before
            left = np.zeros_like(room)
            carried = np.vstack([np.zeros_like(room[:1]), carried[:-1]])
            carried = np.minimum(carried, room)
            for k in range(self.width):
                arrived = self.counts[:, k, None]
                beyond = np.maximum(0.0, carried + arrived - room)
                carried = np.minimum(beyond, np.minimum(arrived, room))
                left += beyond - carried
        return left

    def queueing(self, problem: BoundProblem) -> FloatArray:
        """Return the requests left over by bouncers, by the planner's formula, at capacity within the SLO."""
        variance = np.maximum(0.0, self.counts.var(axis=1) - self.counts.mean(axis=1)) / self.bin_s**2
        load = np.maximum(1e-9, self.mean_rps[:, None] + _POINTS * np.sqrt(variance)[:, None])[:, None, :]
        capacity = (self.levels_rps + self.free_nominal_rps)[:, :, None]
        turned_away = overflow_rps(load, capacity, _patience_s(problem))
        return np.asarray(turned_away @ _WEIGHTS) * self.bin_s * self.width


def late_price(
    levels_rps: FloatArray, usd_per_rps: FloatArray, left: FloatArray, function_usd: float, late: float
) -> float:
    """Return the price of a request without an instance at which the fluid plan leaves `late` of them over.

    It is at most the price of a function call.
    """

    def leaves(price: float) -> float:
        return float(_fluid(levels_rps, usd_per_rps, left, price)[1].sum())

    if math.isfinite(function_usd) and leaves(function_usd) >= late:
        return function_usd
    low, high = 0.0, function_usd if math.isfinite(function_usd) else 1e3 * float(np.min(usd_per_rps)) + 1e-9
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if leaves(middle) > late else (low, middle)
    return high


def _fluid(
    levels_rps: FloatArray, usd_per_rps: FloatArray, left: FloatArray, price: float
) -> tuple[FloatArray, FloatArray]:
    """Return the dollars and requests left over, by step, of the best capacity in each step."""
    # If no type is available only level 0 is possible.
    capacity_usd = np.where(levels_rps > 0.0, usd_per_rps[:, None] * np.maximum(levels_rps, 1e-300), 0.0)
    usd = capacity_usd + price * left
    best = np.argmin(usd, axis=1)[:, None]
    return np.take_along_axis(usd, best, axis=1)[:, 0], np.take_along_axis(left, best, axis=1)[:, 0]


def _launching(
    steps: _Steps, usd_per_rps: FloatArray, starts_usd: FloatArray, left: FloatArray, price: float, warm: bool
) -> tuple[float, float]:
    """Return (all dollars, dollars for launches) of a fluid fleet whose launches cost money.

    The fleet is cut into slots on top of each other; each is off or of some type in every step, by dynamic programming.
    """
    top = float(steps.levels_rps.max())
    edges = np.linspace(0.0, top, _SLOTS + 1)
    size = edges[1]
    types = usd_per_rps.shape[1]
    cost = np.full((types + 1, _SLOTS), math.inf)  # for each state: off, or a type
    cost[0] = 0.0
    launched = np.zeros((types + 1, _SLOTS))
    start = size * starts_usd[:, None] * np.ones(_SLOTS)
    everywhere = np.arange(_SLOTS)
    total = 0.0
    for t in range(len(left)):
        over = np.interp(edges, steps.levels_rps[t], left[t])
        total += price * over[0]
        gain = price * (over[:-1] - over[1:])
        cheapest = np.argmin(cost, axis=0)
        least, spent = cost[cheapest, everywhere], launched[cheapest, everywhere]
        fee = start if t or not warm else np.zeros_like(start)
        begun = least + fee
        stays = cost[1:] <= begun
        launched = np.vstack([spent[None], np.where(stays, launched[1:], spent + fee)])
        cost = np.vstack([least[None], np.where(stays, cost[1:], begun) + size * usd_per_rps[t][:, None] - gain])
    best = np.argmin(cost, axis=0)
    return float(total + cost[best, everywhere].sum()), float(launched[best, everywhere].sum())


def _whole(problem: BoundProblem, steps: _Steps, left: FloatArray, price: float, capacity_rps: list[float]) -> float:
    """Return the dollars if every step has the whole instances that are best for it alone; `capacity_rps` by offer."""
    resolved = problem.resolved
    terms = problem.spot or (SpotHistory(),) * len(resolved.offers)
    step_h = steps.bin_s * steps.width / 3600.0
    kinds: list[tuple[float, float]] = []
    there: list[BoolArray] = []
    for offer, capacity, term in zip(resolved.offers, capacity_rps, terms, strict=True):
        if offer.market is Market.BURSTABLE:
            continue
        usd_per_hour = offer.usd_per_hour if term.usd_per_hour is None else float(np.mean(term.usd_per_hour))
        kinds.append((usd_per_hour * step_h, capacity))
        held = np.ones(steps.counts.size, dtype=np.bool_)
        if term.available is not None:
            known = term.available[: len(held)]
            held[: len(known)] = known
        there.append(np.asarray(held.reshape(steps.counts.shape).any(axis=1)))
    table, top_rps = np.array(there), float(steps.levels_rps.max())
    fleets: dict[bytes, FloatArray] = {}
    total = 0.0
    for t, held in enumerate(table.T):
        key = held.tobytes()
        if key not in fleets:
            fleets[key] = _fleets([kind for kind, is_there in zip(kinds, held, strict=True) if is_there], top_rps)
        usd, capacity = fleets[key]
        over = np.interp(capacity, steps.levels_rps[t], left[t])
        total += float(np.min(usd * steps.share[t] + price * over))
    return total


def _fleets(kinds: list[tuple[float, float]], top_rps: float) -> FloatArray:
    """Return mixes that no other beats in price and capacity, (2, fleets): dollars and requests/s, ascending in both.

    A mix has any number of the kind with the cheapest request/s, and of each dearer, smaller kind at most as many as
    one instance of the next cheaper kind holds.
    """
    found, reach = np.zeros((2, 1)), top_rps
    for usd, capacity_rps in sorted(kinds, key=lambda kind: (kind[0] / kind[1], -kind[1])):
        if found.shape[1] > 1 and capacity_rps >= reach:
            continue  # neither cheaper nor smaller than the kinds taken before
        numbers = np.arange(min(_MOST, math.ceil(reach / capacity_rps)) + 1)
        mixed = found[:, :, None] + np.array([usd, capacity_rps])[:, None, None] * numbers
        found, reach = _undominated(mixed.reshape(2, -1)), capacity_rps
    return found


def _undominated(fleets: FloatArray) -> FloatArray:
    """Return the fleets, ascending in dollars, that hold more than every cheaper one."""
    fleets = fleets[:, np.lexsort((-fleets[1], fleets[0]))]
    most = np.maximum.accumulate(fleets[1])
    return np.asarray(fleets[:, np.concatenate(([True], fleets[1, 1:] > most[:-1] + 1e-12))])


def _patience_s(problem: BoundProblem) -> float:
    """Return how long a request may wait for its service to begin."""
    rt_max_s = problem.resolved.slo.rt_max_s
    slack_s = min(rt_max_s - c.overhead_s - float(c.service_s[-1]) for c in problem.resolved.candidates)
    return max(slack_s, 0.01 * rt_max_s)
