"""The times at which a process reads the object store. It has no I/O and no clock."""

from __future__ import annotations

import math

# Interval of reads; longer after reads without a result, because each list is billed.
READ_S, _MOST_READ_S = 30.0, 600.0
_GONE_S = 600.0  # a process that others took for gone may still store facts for this time
_UNASKED_S = 3600.0  # interval of reads without a reason, because this process may not know of another one


class ReadSchedule:
    """Decides when the next read may begin. All times are seconds of one monotonic clock.

    A read is needed while this process doubts that it has all facts. The doubt ends with a complete read that began
    after it. `next_s` is the earliest begin of the next read, and `pause_s` the interval between the begins of reads.
    """

    def __init__(self, now_s: float) -> None:
        self.next_s, self.pause_s = now_s, READ_S
        self._doubt_s = now_s  # a complete read that begins then or later ends the doubt
        self._soon_s = -math.inf  # when a peer that had gone last brought a read forward
        self._complete_s = -math.inf  # begin of the last complete read

    def is_due(self, now_s: float, in_doubt: bool) -> bool:
        """Return whether a read should begin; `in_doubt`: a peer does not answer, or has facts that are missing."""
        if in_doubt or now_s - self._complete_s >= _UNASKED_S:
            self._doubt_s = max(self._doubt_s, now_s)
        return self._complete_s < self._doubt_s and now_s >= self.next_s

    def peer_gone(self, now_s: float) -> None:
        """Bring the next read forward, because a process that has gone may have left facts only in the store."""
        if now_s - self._soon_s >= _GONE_S:
            self.pause_s = READ_S
        if now_s - self._soon_s >= READ_S:  # two processes may answer at one address in turns
            self.next_s, self._soon_s = now_s, now_s
        self.next_s = min(self.next_s, self._soon_s + READ_S)
        self._doubt_s = now_s + _GONE_S

    def begun(self, now_s: float) -> None:
        """Note that a read begins."""
        self.next_s = now_s + self.pause_s

    def complete(self, began_s: float) -> None:
        """Note that the read from `began_s` on found all facts, including the facts of ended processes."""
        self._complete_s = began_s

    def ended(self, found: bool) -> None:
        """Note the end of a read that the store billed; without new facts later reads become rarer."""
        self.pause_s = READ_S if found else min(_MOST_READ_S, 2.0 * self.pause_s)
