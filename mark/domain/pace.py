"""Measure how long an instance is slow, from the times of its batches."""

from __future__ import annotations

# An instance is slow when a batch begins that takes more than this multiple of its profiled time.
SLOW_RATIO = 1.5
# After a longer time without a batch, the pace in between is unknown.
LONGEST_GAP_S = 10.0


class Pace:
    """Seconds in which an instance was calm and slow, and the number of slow periods that ended.

    The time between two batches counts as calm or slow like both of them, or half each if they differ.
    """

    __slots__ = ("_last_s", "_slow", "calm_s", "periods", "slow_s")

    def __init__(self) -> None:
        self.calm_s = self.slow_s = 0.0
        self.periods = 0
        self._slow, self._last_s = False, float("-inf")

    def observe(self, started_s: float, ratio: float) -> None:
        """Note a batch that began at `started_s` and took `ratio` times its profiled time."""
        gap_s, slow = started_s - self._last_s, ratio > SLOW_RATIO
        if gap_s < 0.0:  # another worker's batch, which began before the last one
            return
        if gap_s <= LONGEST_GAP_S:
            slow_s = gap_s * (slow + self._slow) / 2.0
            self.slow_s += slow_s
            self.calm_s += gap_s - slow_s
            self.periods += self._slow and not slow
        self._slow, self._last_s = slow, started_s
