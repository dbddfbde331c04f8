"""How long an instance is slow, as the batches tell that it serves."""

from __future__ import annotations

# A batch that takes longer than so many times its profiled time began while its instance was slow.
SLOW_RATIO = 1.5
# Without a batch for longer, nobody knows how the instance was meanwhile.
LONGEST_GAP_S = 10.0


class Pace:
    """Seconds that an instance was calm and slow, and slow periods that ended.

    The time between two batches counts for the pace of both, or by half for each where they differ.
    """

    __slots__ = ("_last_s", "_slow", "calm_s", "periods", "slow_s")

    def __init__(self) -> None:
        self.calm_s = self.slow_s = 0.0
        self.periods = 0
        self._slow, self._last_s = False, float("-inf")

    def observe(self, started_s: float, ratio: float) -> None:
        """A batch that began then took `ratio` times its profiled time."""
        gap_s, slow = started_s - self._last_s, ratio > SLOW_RATIO
        if gap_s < 0.0:  # another worker's, which began before the last one
            return
        if gap_s <= LONGEST_GAP_S:
            slow_s = gap_s * (slow + self._slow) / 2.0
            self.slow_s += slow_s
            self.calm_s += gap_s - slow_s
            self.periods += self._slow and not slow
        self._slow, self._last_s = slow, started_s
