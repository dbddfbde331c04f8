"""Instances that several stages of a pipeline share, as one data plane: each has a replica of every stage.

Stages are simulated one after the other, window by window (`mark.simulation.controlled_pipeline`). So changes of
instances within a window are collected first, and each stage applies them at their times while it advances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mark.kernel.stage import StageSimulation

_Change = Callable[[StageSimulation], None]


class PooledAccounts:
    """Answers of all stages to the calls of the lead: a call counts as missed if any stage misses its call.

    Implements `CountedAnswers`.
    """

    def __init__(self, stages: Sequence[StageSimulation], lead: int) -> None:
        self._lead = stages[lead].accounts
        self._all = [stage.accounts for stage in stages]

    @property
    def departed(self) -> int:
        return self._lead.departed

    @property
    def late(self) -> int:
        return min(sum(one.late for one in self._all), self.departed - self.rejected)

    @property
    def rejected(self) -> int:
        return min(sum(one.rejected for one in self._all), self.departed)

    @property
    def in_time(self) -> int:
        return self.departed - self.rejected - self.late

    @property
    def by_functions(self) -> int:
        return 0

    @property
    def window(self) -> int:
        return self._lead.window

    def recent(self) -> tuple[int, int]:
        counts = [one.recent() for one in self._all]
        count = self._lead.recent()[0]
        missed = sum(there - in_time for there, in_time in counts)
        return count, max(0, count - missed)


class SharedInstances:
    """Implements `DataPlane` and `CountedPlane`. A window is open until all stages have passed it."""

    def __init__(self, stages: Sequence[StageSimulation], lead: int) -> None:
        self._stages, self._lead = tuple(stages), stages[lead]
        self.accounts = PooledAccounts(stages, lead)
        self._passed_s = 0.0  # by all stages
        self._changes: list[tuple[float, _Change]] = []  # since then
        self._leaving: set[int] = set()  # instances drained since then

    # -- changes of instances ------------------------------------------------------------------------------------------

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        self._change(at_s, lambda stage: stage.add(number, offer_index, at_s))

    def drain(self, number: int, at_s: float) -> None:
        if at_s > self._passed_s:
            self._leaving.add(number)
        self._change(at_s, lambda stage: stage.drain(number, at_s))

    def remove(self, number: int, at_s: float) -> None:
        self._change(at_s, lambda stage: stage.remove(number, at_s))

    def set_speed(self, number: int, factor: float, at_s: float) -> None:
        self._change(at_s, lambda stage: stage.set_speed(number, factor, at_s))

    def idle_at(self, number: int) -> float:
        """Return when all stages have finished their work on the instance; infinite while that is unknown."""
        return math.inf if number in self._leaving else max(stage.idle_at(number) for stage in self._stages)

    def busy_s(self, number: int) -> float:
        """Return the busy seconds of all stages' workers, as far as the stages have advanced."""
        return sum(stage.busy_s(number) for stage in self._stages)

    def _change(self, at_s: float, change: _Change) -> None:
        if at_s > self._passed_s:
            self._changes.append((at_s, change))
            return
        for stage in self._stages:
            change(stage)

    # -- through a window ----------------------------------------------------------------------------------------------

    def take(self, stage: StageSimulation, advance: Callable[[StageSimulation, float], None]) -> None:
        """Simulate a stage through the changes of the open window; `advance` simulates it up to a time."""
        for at_s, change in self._changes:
            advance(stage, at_s)
            change(stage)

    def passed(self, until_s: float) -> None:
        """Close the window, after all stages have reached its end."""
        self._passed_s = until_s
        self._changes.clear()
        self._leaving.clear()

    # -- observations --------------------------------------------------------------------------------------------------

    @property
    def arrived(self) -> int:
        """The calls of the lead."""
        return self._lead.arrived

    def function_usd(self) -> float:
        return 0.0

    def warm(self, at_s: float, environments: int) -> int:
        """Return 0, because stages that share instances use no functions."""
        return 0
