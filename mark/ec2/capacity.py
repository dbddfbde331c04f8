"""Spot capacity of a zone: how many instances it sells, and which it interrupts when its share falls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol, TypeVar


class Running(Protocol):
    """An instance that holds spot capacity."""

    launched_s: float

    @property
    def number(self) -> int: ...


_Running = TypeVar("_Running", bound=Running)


class SpotZone:
    """One zone. Of the instances held and asked for there, only the `share` (0 to 1) can be held."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self._most_wanted = 0  # held and asked for at a time, since the share was last 1

    def room(self, count: int, held: int) -> int:
        """How many of `count` more instances are sold besides those held; not above zero for none."""
        if self.share >= 1.0:
            return count
        self._most_wanted = max(self._most_wanted, held + count)
        # Rounded as a fall is: half an instance is lost. 1e-9: binary rounding must not make it one more.
        return min(count, math.ceil(self.share * self._most_wanted - 0.5 - 1e-9) - held)

    def change(self, share: float, held: Iterable[_Running]) -> list[_Running]:
        """The share becomes `share`; returns those of the held that are interrupted: 1 - after / before of them.

        The longest running are the first to go.
        """
        before, self.share = self.share, share
        if share >= before:
            return []
        running = sorted(held, key=lambda instance: (instance.launched_s, instance.number))
        if before >= 1.0:
            self._most_wanted = len(running)
        # Half an instance counts as one, so that a fleet of one can be hit.
        return running[: math.floor(len(running) * (1.0 - share / before) + 0.5)]
