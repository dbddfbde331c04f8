"""The wall clock as a controller counts it: control seconds since the service's origin."""

from __future__ import annotations

import time
from collections.abc import Callable

from mark.control.ports import Clock


class WallClock:
    """Seconds since `origin_unix_s`, `scale` of them a second; scale 1 but on a testbed in a hurry.

    Never goes back, also when the wall clock is set: within a process the monotonic clock counts. A restarted process
    goes on where the wall clock says.
    """

    def __init__(
        self,
        origin_unix_s: float,
        scale: float = 1.0,
        *,
        unix_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin_unix_s, self.scale, self._monotonic = origin_unix_s, scale, monotonic
        self._began_s, self._since_s = max(0.0, unix_s() - origin_unix_s), monotonic()

    def now_s(self) -> float:
        return self.at_monotonic_s(self._monotonic())

    def at_s(self, unix_s: float) -> float:
        """Control seconds at a Unix time; below zero before the origin."""
        return (unix_s - self.origin_unix_s) * self.scale

    def at_monotonic_s(self, t_s: float) -> float:
        """Control seconds at a time of this process's monotonic clock: whatever the wall clock was set to meanwhile."""
        return (self._began_s + t_s - self._since_s) * self.scale

    def unix_s(self, at_s: float) -> float:
        """The Unix time of a control second."""
        return self.origin_unix_s + at_s / self.scale


_: type[Clock] = WallClock
