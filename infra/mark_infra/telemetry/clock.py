"""The wall clock of a controller: control seconds since the service's origin."""

from __future__ import annotations

import time
from collections.abc import Callable

from mark.control.ports import Clock


class WallClock:
    """Control seconds since `origin_unix_s`, `scale` per second; the scale is 1 except on an accelerated testbed.

    The clock does not go back when the wall clock is set: it follows the monotonic clock, from the wall clock's time
    when it was made. A process makes a new clock in each term.
    """

    def __init__(
        self,
        origin_unix_s: float,
        scale: float = 1.0,
        *,
        unix_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin_unix_s, self.scale, self._unix_s, self._monotonic = origin_unix_s, scale, unix_s, monotonic
        self._began = self._now()

    def now_s(self) -> float:
        return self.at_monotonic_s(self._monotonic())

    def at_s(self, unix_s: float) -> float:
        """Return the control seconds at a Unix time; negative before the origin."""
        return (unix_s - self.origin_unix_s) * self.scale

    def at_monotonic_s(self, t_s: float) -> float:
        """Return the control seconds at a time of this process's monotonic clock, even if the wall clock was set."""
        began_s, since_s = self._began
        return (began_s + t_s - since_s) * self.scale

    def unix_s(self, at_s: float) -> float:
        """Return the Unix time of a control second."""
        return self.origin_unix_s + at_s / self.scale

    def _now(self) -> tuple[float, float]:
        """Return the time by the wall clock, in its seconds since the origin, and by the monotonic clock."""
        return max(0.0, self._unix_s() - self.origin_unix_s), self._monotonic()


_: type[Clock] = WallClock
