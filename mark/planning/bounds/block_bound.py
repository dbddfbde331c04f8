"""A lower bound in whole instances, block by block: docs/bound.md, "Blocks".

An instance that is there for a whole block serves at a constant rate. Every other instance starts or ends within the
block, and half of the shortest boot is charged for each of these events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.kernel.compiled import compiled
from mark.planning.bounds.late_price import LatePrice, best_late_price
from mark.planning.bounds.whole_problem import SAFE, WholeProblem, mixes

GRID = 20_000  # numbers of requests at which the cost of events is tabulated
_SEARCH_GRID = 3_000
_SEARCH_BINS = 100_000  # bins that the search looks at, approximately
_WIDTHS = (2, 3, 5, 8, 12, 16, 20, 25, 30, 35, 40, 45, 50, 60, 75, 90, 120, 150, 240, 360, 600)  # bins of a block
_FINALISTS = 3
_MOST_PATTERNS = 64
# Varying prices are rounded down in steps of these sizes, the finest that leaves few different ones.
_PRICE_STEPS = (1.02, 1.1, 1.5)
# Without a function, no late request is priced above this multiple of an instance's cost for one block with its start.
_WITHOUT_FUNCTION = 1e3
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class BlockProof:
    """`usd` is proven by blocks of `block_bins` bins at the price `late_usd` of a late request; 0 without blocks."""

    usd: float = 0.0
    block_bins: int = 0
    late_usd: float = 0.0
    left: float = 0.0  # requests without an instance in the cheapest schedule


class _Mixes(NamedTuple):
    """Whole mixes of instances that use all of a block; those of pattern p are begins[p] to begins[p + 1]."""

    usd: FloatArray
    rps: FloatArray
    begins: IntArray


class _EventTable(NamedTuple):
    """Dollars and requests left over by [pattern, requests / step], of instances that change within a block."""

    usd: FloatArray
    left: FloatArray
    step: float


class Blocks:
    """A part cut into blocks: all data that do not depend on the price of a late request."""

    def __init__(self, problem: WholeProblem, block_bins: int, *, grid: int = GRID, every: int = 1) -> None:
        """Cut the part into blocks. With `every` above 1 only each `every`-th block is used: quick, but no proof."""
        bins, count = block_bins, len(problem.counts) // block_bins
        self.width_s = bins * problem.bin_s
        self.skipped = _skipped(problem, bins)
        rows = np.arange(self.skipped, count, every)
        self.share = len(rows) / max(1, count - self.skipped)
        self.counts = problem.counts[: count * bins].reshape(count, bins)[rows]
        self.prices, of_block = block_patterns(problem, bins)
        self.pattern = of_block[rows]
        self.room_s = problem.bin_s
        self.capacity_rps = problem.capacity_rps * (1.0 + SAFE)
        self.free_rps = problem.free_rps * (1.0 + SAFE)
        self.start_usd = problem.start_usd / (1.0 + SAFE)
        self._tabulate(grid)

    def _tabulate(self, grid: int) -> None:
        top = float(self.counts.max(initial=0.0)) / self.room_s
        usd, rps, begins = [], [], [0]
        for prices in self.prices:
            there = np.isfinite(prices)
            front = mixes(prices[there], self.capacity_rps[there], top)
            usd.append(front.usd)
            rps.append(front.requests)
            begins.append(begins[-1] + len(front.usd))
        self._mixes = _Mixes(np.concatenate(usd), np.concatenate(rps), np.array(begins, dtype=np.int64))
        most = float(_most_left(self.counts, self.free_rps * self.room_s))
        self._requests = np.linspace(0.0, most * (1.0 + SAFE) + 1e-9, grid)
        self._events = [_Events.of(prices, self, self._requests) for prices in self.prices]

    def value(self, late_usd: float) -> tuple[float, float]:
        """Return the dollars of the cheapest schedule, and its requests without an instance, each at `late_usd`."""
        tables = [events.at(late_usd, self._requests) for events in self._events]
        events = _EventTable(
            np.stack([usd for usd, _ in tables]), np.stack([left for _, left in tables]), float(self._requests[1])
        )
        usd, left = _cheapest(self.counts, self.pattern, self._mixes, events, self.width_s, self.room_s, self.free_rps)
        return usd * (1.0 - _ROUNDING), left


def block_bound(problem: WholeProblem, late_allowed: float) -> BlockProof:
    """Return the best proof of several widths of blocks, each at its best price of a late request."""
    bins = len(problem.counts)
    widths = [w for w in _WIDTHS if bins // w > _skipped(problem, w)]
    if not widths:
        return BlockProof()
    found: list[tuple[float, int, float]] = []
    price: LatePrice | None = None
    for width in widths:
        blocks = _sample(problem, width)
        allowed = late_allowed * blocks.share
        if price is None or late_allowed <= 0.0:
            price = best_late_price(blocks.value, allowed, _highest(problem, width), 25)
            found.append((price.value / blocks.share, width, price.usd))
        else:
            value, _ = blocks.value(price.usd)
            found.append(((value - price.usd * allowed) / blocks.share, width, price.usd))
    best = BlockProof()
    for _, width, usd in sorted(found, reverse=True)[:_FINALISTS]:
        if late_allowed > 0.0:
            blocks = _sample(problem, width)
            usd = best_late_price(blocks.value, late_allowed * blocks.share, _highest(problem, width), 12, usd).usd
        proof = prove_blocks(problem, late_allowed, width, usd)
        best = max(best, proof, key=lambda proof: proof.usd)
    return best


def prove_blocks(problem: WholeProblem, late_allowed: float, block_bins: int, late_usd: float) -> BlockProof:
    """Return the proof by this width and this price of a late request."""
    late_usd = min(late_usd, problem.function_usd)
    value, left = Blocks(problem, block_bins).value(late_usd)
    return BlockProof(value - (late_usd * late_allowed if late_allowed else 0.0), block_bins, late_usd, left)


def _skipped(problem: WholeProblem, bins: int) -> int:
    """Return the number of blocks that cost nothing.

    The first fleet of a warm start pays for no boot, so the blocks within half of the longest boot are not charged.
    """
    if not problem.warm_start:
        return 0
    return max(1, math.ceil(0.5 * float(problem.boot_s.max()) / (bins * problem.bin_s)))


def _highest(problem: WholeProblem, width: int) -> float:
    if math.isfinite(problem.function_usd):
        return problem.function_usd
    return _WITHOUT_FUNCTION * float(np.min(problem.usd_per_s * (width * problem.bin_s + problem.boot_s)))


def _sample(problem: WholeProblem, width: int) -> Blocks:
    return Blocks(problem, width, grid=_SEARCH_GRID, every=max(1, len(problem.counts) // _SEARCH_BINS))


def block_patterns(problem: WholeProblem, bins: int) -> tuple[FloatArray, IntArray]:
    """Return the different rows of prices of blocks (patterns, types), and each block's row.

    A price is infinite if the type is not available.
    """
    count = len(problem.counts) // bins
    if problem.by_bin is None:
        return problem.usd_per_s[None] / (1.0 + SAFE), np.zeros(count, dtype=np.int64)
    lowest = problem.by_bin[: count * bins].reshape(count, bins, -1).min(axis=1)
    for step in _PRICE_STEPS:
        # Never above the price itself, nor below the lowest price of the part.
        steps = np.floor(np.log(lowest / problem.usd_per_s) / math.log(step) * (1.0 - SAFE))
        lowered = np.minimum(lowest, problem.usd_per_s * step ** np.maximum(0.0, steps))
        prices, of_block = np.unique(lowered, axis=0, return_inverse=True)
        if len(prices) <= _MOST_PATTERNS:
            return prices / (1.0 + SAFE), of_block.ravel()
    return problem.usd_per_s[None] / (1.0 + SAFE), np.zeros(count, dtype=np.int64)


@compiled
def _use_in_part(
    mix_usd: FloatArray,
    served: FloatArray,
    usd_per_request: FloatArray,
    most: FloatArray,
    event_usd: FloatArray,
    requests: FloatArray,
    alone: FloatArray,
) -> None:
    """Lower `alone` (requests,) to the dollars of each mix with one more instance, used in part.

    At most one event is used in part, because a linear program has such an optimum. `most` requests fit each type.
    """
    begin = 0
    for m in range(len(served)):
        while begin < len(requests) and requests[begin] <= served[m]:
            begin += 1
        for i in range(len(most)):
            for r in range(begin, len(requests)):
                if requests[r] > served[m] + most[i]:
                    break
                part = mix_usd[m] + event_usd[i] + usd_per_request[i] * (requests[r] - served[m])
                alone[r] = min(alone[r], part)


@dataclass(frozen=True, slots=True)
class _Events:
    """The cost of serving requests by instances that start or end within the block.

    `alone_usd` leaves no request over; `mix_*` are whole mixes of instances that use all of the block.
    """

    alone_usd: FloatArray
    mix_usd: FloatArray
    mix_requests: FloatArray

    @classmethod
    def of(cls, prices: FloatArray, blocks: Blocks, requests: FloatArray) -> _Events:
        there = np.isfinite(prices)
        usd_per_s, rps = prices[there], blocks.capacity_rps[there]
        event_usd = 0.5 * blocks.start_usd[there]
        front = mixes(usd_per_s * blocks.width_s + event_usd, rps * blocks.width_s, float(requests[-1]))
        enough = np.searchsorted(front.requests, requests, side="left")
        alone = np.append(front.usd, math.inf)[enough]
        usd, served = np.ascontiguousarray(front.usd), np.ascontiguousarray(front.requests)
        _use_in_part(usd, served, usd_per_s / rps, rps * blocks.width_s * (1.0 + 1e-9), event_usd, requests, alone)
        return cls(alone, front.usd, front.requests)

    def at(self, late_usd: float, requests: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the dollars by number of requests, never falling, and how many of these are left over at `late_usd`
        each.
        """
        saved = self.mix_usd - late_usd * self.mix_requests
        lowest = np.minimum.accumulate(saved)
        first = np.maximum.accumulate(np.where(saved == lowest, np.arange(len(saved)), 0))
        mix = first[np.searchsorted(self.mix_requests, requests, side="right") - 1]
        rest = requests - self.mix_requests[mix]
        late = self.mix_usd[mix] + late_usd * rest
        left = np.where(late < self.alone_usd, rest, 0.0)
        usd = np.minimum(late, self.alone_usd)
        return np.minimum.accumulate(usd[::-1])[::-1], left


@compiled
def _most_left(counts: FloatArray, room: float) -> float:
    """Return the most requests that constant room leaves over in any block, if its last bin may carry requests on."""
    most = 0.0
    for k in range(len(counts)):
        carried, total = 0.0, 0.0
        for b in range(counts.shape[1]):
            beyond = max(0.0, carried + counts[k, b] - room)
            carried = min(beyond, counts[k, b])
            total += beyond - carried
        most = max(most, total)
    return most


@compiled
def _cheapest(
    counts: FloatArray,
    pattern: IntArray,
    of_mixes: _Mixes,
    of_events: _EventTable,
    width_s: float,
    bin_s: float,
    free_rps: float,
) -> tuple[float, float]:
    """Return the dollars of the cheapest mix of every block with its events, and the requests left over.

    A request is served in its own bin or in the next one. Mixes that cannot beat the best so far are skipped.
    """
    mix_usd, mix_rps, begins = of_mixes
    event_usd, event_left, step = of_events
    usd, left_out = 0.0, 0.0
    bins = counts.shape[1]
    guess = 0
    for k in range(len(counts)):
        p = pattern[k]
        arrived = 0.0
        for b in range(bins):
            arrived += counts[k, b]
        best, best_left = np.inf, 0.0
        begin, end = begins[p], begins[p + 1]
        if not begin <= guess < end:
            guess = begin
        chosen = guess
        for turn in range(-1, end - begin):
            i = guess if turn < 0 else begin + turn
            running = mix_usd[i] * width_s
            if running >= best:
                if turn < 0:
                    continue
                break
            room = (mix_rps[i] + free_rps) * bin_s
            fewest = (arrived - counts[k, bins - 1] - bins * room) * (1.0 - 1e-9) - 1e-6
            if fewest > 0.0 and running + event_usd[p, int(fewest / step * (1.0 - 1e-11))] >= best:
                continue
            carried, left = 0.0, 0.0
            for b in range(bins):
                beyond = max(0.0, carried + counts[k, b] - room)
                carried = min(beyond, counts[k, b])
                left += beyond - carried
            place = int(left / step * (1.0 - 1e-11))
            cost = running + event_usd[p, place]
            if cost < best:
                best, best_left, chosen = cost, event_left[p, place], i
        usd += best
        left_out += best_left
        guess = chosen
    return usd, left_out
