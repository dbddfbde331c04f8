"""When functions fail one call after the other, calls stop for a while: a circuit breaker, pure.

    closed ── a number of failures without a success in between ─► open ── its time is over ─► half open
      ▲                                                         ▲                             │ one call, the probe
      └──────────────── any success ────────────────────────────┴───── the probe fails ───────┘

Without it an overloaded instance whose functions are broken would make each client it can't serve wait for a failure,
and keep asking what is throttled already. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

MOST_FAILURES = 5
FIRST_S, LONGEST_S = 1.0, 30.0


class Breaker:
    """`admits`, then `begin`, then exactly one of `succeeded`, `failed` and `undecided` for each call.

    Open for `first_s` at first, for twice as long after each probe that fails, `longest_s` at most; or for as long as
    the functions themselves asked for. `begin` gives the period a call belongs to: what a call of an earlier one
    failed by is known already, but any success, however old, says that functions answer.
    """

    def __init__(
        self, most_failures: int = MOST_FAILURES, first_s: float = FIRST_S, longest_s: float = LONGEST_S
    ) -> None:
        self._most_failures, self._first_s, self._longest_s = most_failures, first_s, longest_s
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
        back_off_s = min(asked_s or self._first_s * 2.0 ** min(self._opened, 30), self._longest_s)
        self._opened += 1
        self._until_s = now_s + back_off_s
        self._period += 1
        self._probing = False
        return back_off_s

    def undecided(self, period: int) -> None:
        """A call ended in a way that says nothing of functions."""
        if period == self._period:
            self._probing = False
