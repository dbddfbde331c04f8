"""A lower bound in whole instances for small services, bin by bin: docs/bound.md, "Paths".

The state is the whole number of instances of each type and the requests that are carried into the next bin. Dynamic
programming finds the cheapest path; for each fleet it keeps only requests carried and dollars that no other pair beats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.kernel.compiled import compiled
from mark.planning.bounds.late_price import best_late_price
from mark.planning.bounds.whole_problem import SAFE, WholeProblem

_WORK = 8_000_000  # fleets x bins x the cost of pairs in one evaluation: about a second
_PAIRS_AT_ONCE = 16.0  # number of pairs of a fleet that take as long as the other work for it in a bin
_PAIRS = 128  # pairs of requests carried and dollars, by fleet; beyond it they are merged, which lowers the bound
# The price of a late request is sought on pieces of the part, with about this number of bins together.
_SEARCH_BINS = 10_000
_PIECE = 600
_EVALUATIONS = 10
_WITHOUT_FUNCTION = 1e3
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PathProof:
    """`usd` is proven at the price `late_usd` of a late request, with fleets of up to `most` instances by type."""

    usd: float = 0.0
    late_usd: float = 0.0
    left: float = 0.0
    most: tuple[int, ...] = ()


class _Fleets(NamedTuple):
    """The fleets, as rows in the order of np.indices(sizes); a launch costs `launch_usd` by type."""

    room: FloatArray
    run_usd: FloatArray
    launch_usd: FloatArray
    sizes: IntArray


class _Pairs(NamedTuple):
    """Rows of pairs by fleet, of which the first `size` count."""

    usd: FloatArray
    carried: FloatArray
    left: FloatArray
    size: IntArray


class _Merged(NamedTuple):
    """Scratch: the pairs of two fleets together."""

    usd: FloatArray
    carried: FloatArray
    left: FloatArray


class Paths:
    """Fleets of up to `most[i]` instances of type i, as one row each.

    A fleet with the most of a type counts as if it served all requests, if more instances could be of use. So leaving
    out larger fleets only lowers the value.
    """

    def __init__(self, problem: WholeProblem, most: tuple[int, ...]) -> None:
        self.problem, self.most = problem, most
        self._sizes = np.array(most, dtype=np.int64) + 1
        numbers = np.indices(tuple(number + 1 for number in most)).reshape(len(most), -1).T.astype(np.float64)
        bin_s, capacity = problem.bin_s, problem.capacity_rps * (1.0 + SAFE)
        self._run_usd = numbers @ problem.usd_per_s * bin_s / (1.0 + SAFE)
        self._room = (numbers @ capacity + problem.free_rps * (1.0 + SAFE)) * bin_s
        full = _useful(problem, _pairs(problem))
        short = np.array(most) < np.array(full)
        self._relaxed = np.where(((numbers == np.array(most)) & short).any(axis=1), math.inf, self._room)
        self.complete = not short.any()

    def value(self, late_usd: float) -> tuple[float, float]:
        """Return a lower limit of any schedule's dollars with its unserved requests at `late_usd` each; and these
        requests.
        """
        problem = self.problem
        # A path charges up to two bins more than an instance's lifetime; they are taken off its start.
        launch = problem.usd_per_s * (problem.boot_s - 2.0 * problem.bin_s) / (1.0 + SAFE)
        usd, left, _ = self._walk(self._relaxed, launch, late_usd, first_paid=not problem.warm_start)
        return usd * (1.0 - _ROUNDING), left

    def plan(self, late_usd: float) -> tuple[float, float] | None:
        """Return dollars and requests left over of the best plan that changes fleets between bins; None: too many
        pairs.

        Starts pay the shortest boot, and at least a minute with the first bin.
        """
        problem = self.problem
        launch = problem.usd_per_s * np.maximum(problem.boot_s, MINIMUM_BILLED_S - problem.bin_s)
        usd, left, exact = self._walk(self._room, launch, late_usd, first_paid=True)
        return (usd - late_usd * left, left) if exact else None

    def _walk(
        self, room: FloatArray, launch: FloatArray, late_usd: float, *, first_paid: bool
    ) -> tuple[float, float, bool]:
        problem, count = self.problem, len(room)
        fleets = _Fleets(room, self._run_usd, launch, self._sizes)
        usd, carried, left = np.zeros((3, count, _PAIRS))
        pairs = _Pairs(usd, carried, left, np.ones(count, dtype=np.int64))
        merged = _Merged(*np.empty((3, 2 * _PAIRS)))
        found: tuple[float, float, bool] = _walk(
            problem.counts, fleets, late_usd, problem.warm_start, first_paid, pairs, merged
        )
        return found


def path_bound(problem: WholeProblem, late_allowed: float, beaten_usd: float, first: float | None) -> PathProof:
    """Return the best path bound, or an empty proof if it cannot prove more than `beaten_usd`.

    The search for the price of a late request begins at `first`. The proof is empty, too, if a start is billed for less
    than two bins.
    """
    if (problem.boot_s < 2.0 * problem.bin_s).any():
        return PathProof()
    paths = small_paths(problem)
    if paths is None:
        paths, problem = Paths(one := _one_kind(problem), (1,)), one
        # Holding one instance that serves all requests is one of these paths, so no proof exceeds its cost.
        all_usd = float(problem.usd_per_s[0] * (len(problem.counts) * problem.bin_s + problem.boot_s[0]))
        if all_usd <= beaten_usd:
            return PathProof()
    highest = problem.function_usd
    if not math.isfinite(highest):
        highest = _WITHOUT_FUNCTION * float(np.max(problem.usd_per_s * (problem.boot_s + problem.bin_s)))
    if late_allowed > 0.0:
        sample, share = _sample(problem)
        tried = Paths(sample, paths.most)
        highest = best_late_price(tried.value, late_allowed * share, highest, _EVALUATIONS, first).usd
    return prove_paths(paths, late_allowed, highest)


def prove_paths(paths: Paths, late_allowed: float, late_usd: float) -> PathProof:
    """Return the proof by these paths at this price of a late request."""
    value, left = paths.value(late_usd)
    return PathProof(value - (late_usd * late_allowed if late_allowed else 0.0), late_usd, left, paths.most)


def _sample(problem: WholeProblem) -> tuple[WholeProblem, float]:
    """Return pieces of the part, one after the other, and their share of it."""
    every = len(problem.counts) // _SEARCH_BINS
    if every <= 1:
        return problem, 1.0
    taken = (np.arange(len(problem.counts)) // _PIECE) % every == every // 2
    return replace(problem, counts=problem.counts[taken]), float(taken.mean())


def small_paths(problem: WholeProblem) -> Paths | None:
    """Return paths over as many instances as the busiest bins can use; None if these are too many for the work."""
    for need in (_pairs(problem), float(problem.counts.max())):
        most = _useful(problem, need)
        pairs = 1.0 + min(float(_PAIRS), need) / _PAIRS_AT_ONCE
        if math.prod(number + 1 for number in most) * len(problem.counts) * pairs <= _WORK:
            return Paths(problem, most)
    return None


def _pairs(problem: WholeProblem) -> float:
    """Return the most requests that a bin may serve: its own and those of the bin before."""
    return float((problem.counts[1:] + problem.counts[:-1]).max(initial=problem.counts[0]))


def _useful(problem: WholeProblem, requests: float) -> tuple[int, ...]:
    each = problem.capacity_rps * problem.bin_s
    need = max(0.0, requests - problem.free_rps * problem.bin_s)
    return tuple(max(1, math.ceil(need / one)) for one in each)


def _one_kind(problem: WholeProblem) -> WholeProblem:
    """Return a single type as cheap as the cheapest in each respect; `Paths` lets one of them serve all requests."""
    usd, start = float(problem.usd_per_s.min()), float(problem.start_usd.min())
    return WholeProblem(
        problem.counts,
        problem.bin_s,
        ("any",),
        np.array([usd]),
        np.zeros(1),
        np.array([1e-9]),
        np.array([start / usd]),
        problem.function_usd,
        problem.warm_start,
        problem.free_rps,
    )


@compiled
def _merge(pairs: _Pairs, to: int, of: int, extra_usd: float, merged: _Merged) -> bool:
    """Let fleet `to` be reached from fleet `of` for `extra_usd`. Returns False if pairs had to be merged."""
    usd, carried, left, size = pairs
    some_usd, some_carried, some_left = merged
    if carried[of, 0] >= carried[to, 0] and usd[of, size[of] - 1] + extra_usd >= usd[to, 0]:
        return True  # the first pair beats all of them
    i, j, k = 0, 0, 0
    while i < size[to] or j < size[of]:
        mine = i < size[to]
        if mine and j < size[of]:
            if carried[of, j] < carried[to, i]:
                mine = False
            elif carried[of, j] == carried[to, i]:
                mine = usd[to, i] <= usd[of, j] + extra_usd
        if mine:
            at, requests, late = usd[to, i], carried[to, i], left[to, i]
            i += 1
        else:
            at, requests, late = usd[of, j] + extra_usd, carried[of, j], left[of, j]
            j += 1
        if k == 0 or at < some_usd[k - 1]:
            some_usd[k], some_carried[k], some_left[k] = at, requests, late
            k += 1
    fits: bool = k <= usd.shape[1]
    if not fits:
        last = usd.shape[1] - 1
        some_usd[last], some_left[last] = some_usd[k - 1], some_left[k - 1]
        k = usd.shape[1]
    for i in range(k):
        usd[to, i], carried[to, i], left[to, i] = some_usd[i], some_carried[i], some_left[i]
    size[to] = k
    return fits


@compiled
def _walk(
    counts: FloatArray,
    of_fleets: _Fleets,
    late_usd: float,
    warm_start: bool,
    first_paid: bool,
    pairs: _Pairs,
    merged: _Merged,
) -> tuple[float, float, bool]:
    """Return dollars of the cheapest path, its requests left over, and whether all pairs were kept.

    Every fleet has one pair (0 dollars, 0 carried) at the start.
    """
    room, run_usd, launch_usd, sizes = of_fleets
    usd, carried, left, size = pairs
    fleets, types = len(room), len(sizes)
    exact = True
    if not warm_start:
        for n in range(1, fleets):
            usd[n, 0] = np.inf
    for t in range(len(counts)):
        if t > 0 or not warm_start:
            stride = fleets
            for i in range(types):
                span = stride
                stride //= sizes[i]
                for begin in range(0, fleets, span):
                    for n in range(begin + span - stride - 1, begin - 1, -1):  # terminate one
                        exact &= _merge(pairs, n, n + stride, 0.0, merged)
                    for n in range(begin + stride, begin + span):  # start one
                        exact &= _merge(pairs, n, n - stride, launch_usd[i], merged)
        arrived = counts[t]
        for n in range(fleets):
            running = run_usd[n] if t > 0 or first_paid else 0.0
            k = 0
            for j in range(size[n]):
                beyond = max(0.0, carried[n, j] + arrived - room[n])
                next_carried = min(beyond, arrived)
                lost = beyond - next_carried
                at = usd[n, j] + running + late_usd * lost
                late = left[n, j] + lost
                if k > 0 and carried[n, k - 1] == next_carried and at < usd[n, k - 1]:
                    k -= 1
                if k == 0 or at < usd[n, k - 1]:
                    usd[n, k], carried[n, k], left[n, k] = at, next_carried, late
                    k += 1
            size[n] = k
    best, late = np.inf, 0.0
    for n in range(fleets):
        if usd[n, size[n] - 1] < best:
            best, late = usd[n, size[n] - 1], left[n, size[n] - 1]
    return best, late, exact
