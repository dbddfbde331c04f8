"""Spot capacity of a zone: how many instances it sells, and which ones it interrupts when its share falls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol, TypeVar

from mark.cloud.ec2.spot_series import SpotSeries


class Running(Protocol):
    """An instance that holds spot capacity."""

    launched_s: float

    @property
    def number(self) -> int: ...


_Running = TypeVar("_Running", bound=Running)


class SpotZone:
    """One zone. Of the instances held and requested there, only the `share` (0 to 1) of the series can be held.

    Without a series it sells any number.
    """

    def __init__(self, series: SpotSeries | None = None) -> None:
        self.share = 1.0 if series is None else series.share_at(0.0)
        self._changes = iter(()) if series is None else series.changes()
        self._most_wanted = 0  # most held and requested at a time, since the share was last 1
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.next_change_s, self._next_share = next(self._changes, (math.inf, self.share))

    def room(self, count: int, held: int) -> int:
        """Return how many of `count` more instances are sold besides the `held` ones; zero or below: none."""
        if self.share >= 1.0:
            return count
        self._most_wanted = max(self._most_wanted, held + count)
        # Half an instance is lost, as in `change`. 1e-9: binary rounding must not add an instance.
        return min(count, math.ceil(self.share * self._most_wanted - 0.5 - 1e-9) - held)

    def change(self, held: Iterable[_Running]) -> list[_Running]:
        """Apply the change of the share at `next_change_s`; return the held instances that are interrupted.

        Their share of the held instances is 1 - after / before; the longest running are interrupted first.
        """
        before, self.share = self.share, self._next_share
        self._look_ahead()
        if self.share >= before:
            return []
        running = sorted(held, key=lambda instance: (instance.launched_s, instance.number))
        if before >= 1.0:
            self._most_wanted = len(running)
        # Half an instance counts as one, so that a fleet of one can be hit.
        return running[: math.floor(len(running) * (1.0 - self.share / before) + 0.5)]
