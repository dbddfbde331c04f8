"""The least of recently seen values, such as the shortest time of a call. No I/O, no clock."""

from __future__ import annotations

import math


class LeastSeen:
    """The least value of this period and the previous one; 0 before the first value.

    A period begins with the first value that comes at least `period_s` after the last period began.
    """

    __slots__ = ("_before", "_period_s", "_since_s", "_this", "value")

    def __init__(self, period_s: float = 10.0) -> None:
        self._period_s, self._since_s = period_s, -math.inf
        self._before = self._this = math.inf
        self.value = 0.0

    def observe(self, value: float, now_s: float) -> None:
        if now_s >= self._since_s + self._period_s:
            self._before, self._this, self._since_s = self._this, math.inf, now_s
        self._this = min(self._this, value)
        self.value = min(self._before, self._this)
