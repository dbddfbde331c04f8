"""The part of RT_max that each stage of a pipeline is planned with, so that all together cost least.

A stage with more time buys cheaper: larger batches, slower types, functions. Time is split in units of RT_max / 40:
each stage begins with its least time; then each unit goes where it saves most; finally units move between stages as
long as that saves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Infeasible
from mark.domain.pipeline import Pipeline
from mark.planning.graphs.critical_paths import pattern_path_s

UNITS = 40
StageCost = Callable[[float], float]
"""$/h of a stage by the seconds that it has; infinite where they are too few."""


def split_latency(
    pipeline: Pipeline,
    patterns: NDArray[np.int64],
    costs: Sequence[StageCost | float],
    rt_max_s: float,
    units: int = UNITS,
) -> list[float]:
    """Return the seconds of each stage; no path that a query takes (`patterns`, calls by stage) exceeds RT_max.

    A number in place of a cost fixes the stage's seconds. Time that saves no stage anything is handed out in
    proportion, because it absorbs bursts. Raises Infeasible without a split, and says how much each stage needs.
    """
    return _Split(pipeline, patterns, costs, rt_max_s, units).found()


class _Split:
    def __init__(
        self,
        pipeline: Pipeline,
        patterns: NDArray[np.int64],
        costs: Sequence[StageCost | float],
        rt_max_s: float,
        units: int,
    ) -> None:
        self._fixed_s = [None if callable(cost) else cost for cost in costs]
        self._pipeline, self._units, self._unit_s = pipeline, units, rt_max_s / units
        self._visited = (patterns > 0).astype(np.int64)
        self._least_s = [_least_s(cost, rt_max_s) if callable(cost) else cost for cost in costs]
        # Whole units where there is room for them: the very least time leaves calls no time to wait.
        whole_s = [s if s == math.inf else math.ceil(s / self._unit_s - 1e-6) * self._unit_s for s in self._least_s]
        rounded_s = [s if callable(cost) else cost for s, cost in zip(whole_s, costs, strict=True)]
        if self._in_time(rounded_s):
            self._least_s = rounded_s
        # Unused time costs nothing, so more time never costs more than less.
        by_time = (
            [cost(min(least_s + n * self._unit_s, rt_max_s)) for n in range(units + 1)]
            if callable(cost)
            else [0.0] * (units + 1)
            for cost, least_s in zip(costs, self._least_s, strict=True)
        )
        self._usd = [list(itertools.accumulate(usd, min)) for usd in by_time]

    def found(self) -> list[float]:
        names = self._pipeline.names
        if slow := [name for name, least_s in zip(names, self._least_s, strict=True) if least_s == math.inf]:
            raise Infeasible(f"no part of RT_max is enough for {', '.join(slow)}")
        units = [0] * len(names)
        if not self._fits(units):
            least = ", ".join(f"{name} {round(1e3 * s, 2):g} ms" for name, s in zip(names, self._least_s, strict=True))
            raise Infeasible(f"the stages of one path need more than RT_max: {least}")
        units = self._raised(units)
        while (better := self._moved(units)) is not None:
            units = self._raised(better)
        times_s = self._times_s(units)
        grown_s = [
            time_s * self._spare(stage, units) if self._fixed_s[stage] is None else time_s
            for stage, time_s in enumerate(times_s)
        ]
        # A join that goes on without some of its stages may wait for them once they take longer.
        return grown_s if self._in_time(grown_s) else times_s

    def _times_s(self, units: Sequence[int]) -> list[float]:
        times = zip(units, self._least_s, self._fixed_s, strict=True)
        return [least_s + n * self._unit_s if fixed_s is None else fixed_s for n, least_s, fixed_s in times]

    def _fits(self, units: Sequence[int]) -> bool:
        return self._in_time(self._times_s(units))

    def _in_time(self, times_s: Sequence[float]) -> bool:
        longest_s = pattern_path_s(self._pipeline, self._visited, times_s).max()
        return bool(longest_s <= (self._units + 1e-6) * self._unit_s)

    def _raised(self, units: list[int]) -> list[int]:
        """Give each stage more units where they save most, as long as any saves."""
        while True:
            best, saved = None, 0.0
            for stage, n in enumerate(units):
                for more in range(n + 1, self._units + 1):
                    per_unit = (self._usd[stage][n] - self._usd[stage][more]) / (more - n)
                    if per_unit > saved + 1e-12:
                        raised = [*units[:stage], more, *units[stage + 1 :]]
                        if not self._fits(raised):
                            break
                        best, saved = raised, per_unit
            if best is None:
                return units
            units = best

    def _moved(self, units: list[int]) -> list[int] | None:
        """Move time between the pair of stages where it saves most; None if no move saves."""
        best, saved = None, 1e-9
        for giver, has in enumerate(units):
            for less in range(has):
                lost = self._usd[giver][less] - self._usd[giver][has]
                if lost == math.inf:
                    continue
                for taker, n in enumerate(units):
                    if taker == giver:
                        continue
                    for more in range(n + 1, self._units + 1):
                        won = self._usd[taker][n] - self._usd[taker][more] - lost
                        if won <= saved:
                            continue
                        moved = list(units)
                        moved[giver], moved[taker] = less, more
                        if not self._fits(moved):
                            break
                        best, saved = moved, won
        return best

    def _spare(self, stage: int, units: Sequence[int]) -> float:
        """Return the factor by which a stage's part may grow if all on the longest path through it grow by as much."""
        through = self._visited[self._visited[:, stage] > 0]
        if not len(through):
            return 1.0
        times_s = self._times_s(units)
        # With a time that no other path reaches, the longest path leads through the stage, unless no join waits for it.
        far_s = sum(times_s) + self._units * self._unit_s
        times_s[stage] += far_s
        longest_s = float(pattern_path_s(self._pipeline, through, times_s).max()) - far_s
        return max(1.0, self._units * self._unit_s / longest_s) if longest_s > 0.0 else 1.0


def _least_s(cost: StageCost, rt_max_s: float) -> float:
    """Return the least time that is enough; infinite if all of RT_max is not."""
    if cost(rt_max_s) == math.inf:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cost(middle * rt_max_s) == math.inf else (low, middle)
    return high * rt_max_s
