"""The cost of an instance whose price changes: every second is billed at the price in effect."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mark.domain.service import ResolvedService

_KEPT = 200  # changes of a price; older ones are merged


@dataclass(frozen=True, slots=True)
class Repriced:
    """The service at current prices, and by offer the time since which its price holds, in control seconds."""

    resolved: ResolvedService
    since_s: dict[str, float]


class LivePrices(Protocol):
    """Prices that are refreshed elsewhere, so that no call waits."""

    def repriced(self) -> Repriced | None:
        """Return the last known prices: the same object until they change; None before the first."""

    def trouble(self) -> str:
        """Return the age of outdated prices and the reason; "" if all are current."""


class Tariff:
    """Dollars of one instance from second 0 to t; never falls. Prices change only forwards in time."""

    def __init__(self, usd_per_s: float) -> None:
        self._steps = [(0.0, usd_per_s, 0.0)]  # from second, dollars per second, dollars until then

    def __call__(self, t_s: float) -> float:
        i = max(0, bisect_right(self._steps, t_s, key=lambda step: step[0]) - 1)
        from_s, usd_per_s, usd = self._steps[i]
        return usd + usd_per_s * (t_s - from_s)

    def change(self, usd_per_s: float, from_s: float) -> bool:
        """Set the price from that time, but not before the last change; return whether it differs."""
        last_s, before, _ = self._steps[-1]
        if usd_per_s == before:
            return False
        from_s = max(from_s, last_s)
        usd = self(from_s)
        if from_s == last_s:
            self._steps.pop()
        self._steps.append((from_s, usd_per_s, usd))
        del self._steps[:-_KEPT]
        return True

    def state(self, from_s: float = 0.0) -> list[tuple[float, float, float]]:
        """Return plain numbers for `restore`, enough for dollars from that second on."""
        return self._steps[max(0, bisect_right(self._steps, from_s, key=lambda step: step[0]) - 1) :]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        self._steps = [(step[0], step[1], step[2]) for step in state]
