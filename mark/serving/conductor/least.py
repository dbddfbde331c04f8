"""How quick something can be, by what was seen of it lately. No I/O, no clock."""

from __future__ import annotations

import math


class LeastSeen:
    """The least of the values of this period and the one before; 0 before the first value.

    A period begins with a value that comes `period_s` after the beginning of the last one, or later.
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
