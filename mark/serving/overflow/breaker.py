"""When functions fail one call after the other, calls stop for a while: a circuit breaker, pure.

    closed ── a number of failures without a success in between ─► open ── its time is over ─► half open
      ▲                                                         ▲                             │ one call, the probe
      └──────────────── any success ────────────────────────────┴───── the probe fails ───────┘

Without it an overloaded instance whose functions are broken would make each client it can't serve wait for a failure,
and keep asking what is throttled already. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from mark.domain.backoff import FUNCTION, Backoff

MOST_FAILURES = 5


class Breaker:
    """`admits`, then `begin`, then exactly one of `succeeded`, `failed` and `undecided` for each call.

    Open for pauses of `backoff`, longer after each probe that fails; or for as long as the functions themselves asked
    for, `backoff.longest_s` at most. `begin` gives the period a call belongs to: the failure of a call of an earlier
    one is known already, but any success, however old, says that functions answer.
    """

    def __init__(self, most_failures: int = MOST_FAILURES, backoff: Backoff = FUNCTION) -> None:
        self._most_failures, self._backoff = most_failures, backoff
        self._failures = 0  # since the last success
        self._opened = 0  # times, since the last success
        self._until_s = 0.0
        self._period = 0
        self._probing = False

    @property
    def closed(self) -> bool:
        """No doubt about functions."""
        return self._opened == 0

    def admits(self, now_s: float) -> bool:
        """May a call be sent now?"""
        return self._opened == 0 or (now_s >= self._until_s and not self._probing)

    def begin(self, now_s: float) -> int:
        """A call is sent; to be given back with its end."""
        self._probing = self._opened > 0
        return self._period

    def succeeded(self) -> None:
        """A call was answered, whatever by."""
        self._failures = self._opened = 0
        self._probing = False

    def failed(self, period: int, now_s: float, asked_s: float = 0.0) -> float:
        """A call was not answered; functions asked to be left alone for `asked_s`.

        Returns for how long no call is sent from now on; 0 where nothing changed.
        """
        if period != self._period:
            return 0.0
        self._failures += 1
        if self._failures < self._most_failures and not self._probing:
            return 0.0
        self._opened += 1
        back_off_s = min(asked_s or self._backoff.pause_s(self._opened), self._backoff.longest_s)
        self._until_s = now_s + back_off_s
        self._period += 1
        self._probing = False
        return back_off_s

    def undecided(self, period: int) -> None:
        """A call ended in a way that says nothing of functions."""
        if period == self._period:
            self._probing = False
