"""The cheapest schedule of whole instances in small cases, by dynamic programming, and random cases for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.kernel.compiled import compiled
from mark.planning.bounds.whole_problem import WholeProblem


@dataclass(frozen=True)
class SmallCase:
    """Two types with whole capacities; a request costs `function_usd` without an instance, and `late` may be late.

    `halves`: events and deadlines in half seconds, while the bounds see bins of a second.
    """

    counts: IntArray  # by second, or by half second
    usd_per_s: tuple[float, float]
    rps: tuple[int, int]
    boot_s: tuple[float, float]
    function_usd: float
    late: int = 0
    warm_start: bool = True
    halves: bool = False

    def problem(self) -> WholeProblem:
        counts = self.counts.reshape(-1, 2).sum(axis=1) if self.halves else self.counts
        seconds = counts.astype(np.float64)
        seconds[-1] = 0.0
        scale = 2.0 if self.halves else 1.0
        return WholeProblem(
            counts=seconds,
            bin_s=1.0,
            names=("a", "b"),
            usd_per_s=np.array(self.usd_per_s),
            disk_usd_per_s=np.zeros(2),
            capacity_rps=np.array(self.rps) * scale,
            boot_s=np.array(self.boot_s),
            function_usd=self.function_usd,
            warm_start=self.warm_start,
        )

    def cheapest_usd(self) -> float:
        """Return the dollars of the cheapest schedule with events at the borders of its steps."""
        step_s, waits = (0.5, 2) if self.halves else (1.0, 1)
        top = int(self.counts.max())
        most = [min(14, math.ceil((waits + 1) * top / rps)) for rps in self.rps]
        shape = (most[0] + 1, most[1] + 1, top + 1, top + 1 if waits == 2 else 1, self.late + 1)
        usd, after = np.full(shape, np.inf), np.empty(shape)
        per_s = np.array(self.usd_per_s)
        _fill(
            self.counts.astype(np.int64), per_s * step_s, np.array(self.rps, dtype=np.int64),
            per_s * np.array(self.boot_s), self.function_usd, self.warm_start, waits == 2, usd, after,
        )  # fmt: skip
        return float(usd.min())


def random_case(
    rng: np.random.Generator, steps: int, *, halves: bool = False, late: int = 0, shortest_boot_s: float = 0.0
) -> SmallCase:
    """Draw demand that swings, surges, jumps or comes in bursts, on a small and a large type."""
    small, large = int(rng.integers(2, 6)), int(rng.integers(8, 20))
    usd = float(rng.uniform(0.8, 1.2))
    dear = usd * large / small * float(rng.uniform(0.25, 1.1))
    boots = np.maximum(shortest_boot_s, rng.choice([2.0, 5.0, 10.0, 20.0, 40.0, 100.0], 2))
    mean = float(rng.uniform(0.1, 2.0 if halves or late else 8.0))
    at = np.arange(steps)
    kind = int(rng.integers(4))
    rate = mean * (1.0 + 0.6 * np.sin(2.0 * np.pi * at / steps * rng.integers(1, 4) + rng.uniform(0.0, 6.0)))
    if kind == 1:
        begin = int(rng.integers(0, steps // 2))
        rate[begin : begin + int(rng.integers(5, 120))] *= 2.5
    elif kind == 2:
        rate = np.repeat(rng.gamma(2.0, mean / 2.0, steps // 30 + 1), 30)[:steps]
    elif kind == 3:
        rate = np.where(rng.random(steps) < 0.05, mean * 6.0, mean * 0.2)
    counts = np.minimum(rng.poisson(rate), 6 if halves else 12 if late else 30)
    counts[0] = max(1, counts[0])
    price = max(usd / small, dear / large) * float(rng.choice([1.2, 2.0, 5.0, 20.0])) * (2.0 if halves else 1.0)
    return SmallCase(
        counts, (usd, dear), (small, large), (float(boots[0]), float(boots[1])), price, late,
        warm_start=bool(rng.random() < 0.6), halves=halves,
    )  # fmt: skip


@compiled
def _fill(
    counts: IntArray, run_usd: FloatArray, served: IntArray, start_usd: FloatArray, function_usd: float,
    warm_start: bool, waits_two: bool, usd: FloatArray, after: FloatArray,
) -> None:  # fmt: skip
    """Fill the least dollars by instances of both types, waiting requests (older, newer) and late requests so far."""
    firsts, seconds, olds, news, lates = usd.shape
    for i in range(firsts if warm_start else 1):
        for j in range(seconds if warm_start else 1):
            usd[i, j, 0, 0, 0] = 0.0
    for t in range(len(counts)):
        if t > 0 or not warm_start:
            for u in range(olds):
                for v in range(news):
                    for z in range(lates):
                        for j in range(seconds):
                            for i in range(firsts - 2, -1, -1):
                                usd[i, j, u, v, z] = min(usd[i, j, u, v, z], usd[i + 1, j, u, v, z])
                            for i in range(1, firsts):
                                usd[i, j, u, v, z] = min(usd[i, j, u, v, z], usd[i - 1, j, u, v, z] + start_usd[0])
                        for i in range(firsts):
                            for j in range(seconds - 2, -1, -1):
                                usd[i, j, u, v, z] = min(usd[i, j, u, v, z], usd[i, j + 1, u, v, z])
                            for j in range(1, seconds):
                                usd[i, j, u, v, z] = min(usd[i, j, u, v, z], usd[i, j - 1, u, v, z] + start_usd[1])
        for i in range(firsts):
            for j in range(seconds):
                for u in range(olds):
                    for v in range(news):
                        for z in range(lates):
                            after[i, j, u, v, z] = np.inf
        for i in range(firsts):
            for j in range(seconds):
                running = i * run_usd[0] + j * run_usd[1]
                for u in range(olds):
                    for v in range(news):
                        for z in range(lates):
                            if usd[i, j, u, v, z] == np.inf:
                                continue
                            room = i * served[0] + j * served[1]
                            left = max(0, u - room)
                            room = max(0, room - u)
                            older = max(0, v - room)
                            room = max(0, room - v)
                            waiting = max(0, counts[t] - room)
                            if not waits_two:
                                older, waiting = waiting, 0
                            for d in range(min(left, lates - 1 - z) + 1):
                                at = usd[i, j, u, v, z] + running + (left - d) * function_usd
                                if at < after[i, j, older, waiting, z + d]:
                                    after[i, j, older, waiting, z + d] = at
        for i in range(firsts):
            for j in range(seconds):
                for u in range(olds):
                    for v in range(news):
                        for z in range(lates):
                            usd[i, j, u, v, z] = after[i, j, u, v, z]
