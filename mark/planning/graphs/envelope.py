"""The most queries in any window of each length: traffic envelopes (InferLine, SoCC '20, section 5).

Short windows show bursts, long ones the rate. So comparing two envelopes shows a change of either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import BadInput

LONGEST_S = 60.0


def envelope_windows_s(shortest_s: float) -> FloatArray:
    """Return lengths of windows (s): the shortest, twice that, and so on up to the longest.

    InferLine's shortest is the sum of service times on the critical path. Raises BadInput unless the shortest is above
    zero and at most the longest.
    """
    if not 0.0 < shortest_s <= LONGEST_S:
        raise BadInput(f"must be above zero and {LONGEST_S:g} at most", "shortest_s", shortest_s)
    doublings = int(np.floor(np.log2(LONGEST_S / shortest_s) + 1e-9))
    return np.asarray(shortest_s * 2.0 ** np.arange(doublings + 1), dtype=np.float64)


def most_within(arrivals_s: FloatArray, windows_s: FloatArray, first: int = 0) -> IntArray:
    """Return the most arrivals within a window of each length, shape (windows,); `arrivals_s` ascend.

    Windows are half open, and the busiest window of a length ends with an arrival. Only windows that end with arrival
    number `first` or a later one are compared; earlier arrivals count if they lie within them. 0 without such windows.
    """
    ends_s = arrivals_s[first:]
    if not len(ends_s):
        return np.zeros(len(windows_s), dtype=np.int64)
    until = np.arange(first + 1, len(arrivals_s) + 1)
    return np.array(
        [(until - np.searchsorted(arrivals_s, ends_s - window_s, side="right")).max() for window_s in windows_s],
        dtype=np.int64,
    )


@dataclass(frozen=True, eq=False, slots=True)
class RecentEnvelope:
    """The envelope of windows that ended within the last `recent_s`, step by step along a stream of arrivals.

    InferLine compares "the current workload" without saying since when; without a limit one burst would count forever.
    The counts of a step count until `recent_s` after it, so steps should be short against that.
    """

    windows_s: FloatArray
    recent_s: float = LONGEST_S
    seen: int = 0  # arrivals
    steps: tuple[tuple[float, IntArray], ...] = ()  # time of each step, and the envelope since the one before

    def advanced(self, arrivals_s: FloatArray, now_s: float) -> RecentEnvelope:
        """Return the envelope at `now_s`. `arrivals_s` are all arrivals until now, ascending, with those of earlier
        steps.
        """
        first = max(self.seen, int(np.searchsorted(arrivals_s, now_s - self.recent_s, side="right")))
        newest = most_within(arrivals_s, self.windows_s, first)
        kept = tuple(step for step in self.steps if step[0] > now_s - self.recent_s)
        return replace(self, seen=len(arrivals_s), steps=(*kept, (now_s, newest)))

    @property
    def counts(self) -> IntArray:
        """The most queries within a window of each length, shape (windows,)."""
        if not self.steps:
            return np.zeros(len(self.windows_s), dtype=np.int64)
        return np.asarray(np.max([counts for _, counts in self.steps], axis=0), dtype=np.int64)
