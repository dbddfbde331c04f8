"""What an instance costs over time where its price moves: every second at the price in effect."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mark.domain.service import ResolvedService

_KEPT = 200  # changes of a price; older ones are no longer told apart


@dataclass(frozen=True, slots=True)
class Repriced:
    """`resolved` with the prices of now, and by offer when that price began, in control seconds."""

    resolved: ResolvedService
    since_s: dict[str, float]


class LivePrices(Protocol):
    """Prices that are asked for again and again, elsewhere: neither call waits."""

    def repriced(self) -> Repriced | None:
        """What is known last: the same object until there is something new; None before."""

    def trouble(self) -> str:
        """How old prices are that should be newer, and why; "" while all is well."""


class Tariff:
    """Dollars that one instance costs from second 0 to t; never falls. Prices change forwards only."""

    def __init__(self, usd_per_s: float) -> None:
        self._steps = [(0.0, usd_per_s, 0.0)]  # from second, dollars per second, dollars until then

    def __call__(self, t_s: float) -> float:
        i = max(0, bisect_right(self._steps, t_s, key=lambda step: step[0]) - 1)
        from_s, usd_per_s, usd = self._steps[i]
        return usd + usd_per_s * (t_s - from_s)

    def change(self, usd_per_s: float, from_s: float) -> bool:
        """The price from then on; not before the last change. Is it another one?"""
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
        """Plain numbers, for `restore`: enough for dollars from that second on."""
        return self._steps[max(0, bisect_right(self._steps, from_s, key=lambda step: step[0]) - 1) :]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        self._steps = [(step[0], step[1], step[2]) for step in state]
