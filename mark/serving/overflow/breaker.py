"""A circuit breaker: calls pause for a while when functions fail one call after the other. It does no I/O.

    closed ── a number of failures without a success in between ─► open ── its time is over ─► half open
      ▲                                                         ▲                             │ one call, the probe
      └──────────────── any success ────────────────────────────┴───── the probe fails ───────┘

Without it, clients of an overloaded instance with broken functions would each wait for a failure, and throttled
functions would get further calls. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from mark.domain.backoff import FUNCTION, Backoff

MOST_FAILURES = 5


class Breaker:
    """The state of the breaker, open or closed.

    Call `admits`, then `begin`, then exactly one of `succeeded`, `failed` and `undecided` for each call. The breaker
    opens for pauses of `backoff`, longer after each failed probe, or for the time that the functions themselves asked
    for, at most `backoff.longest_s`. `begin` returns the call's period. The failure of a call from an earlier period is
    ignored, because the breaker has opened since, but any success, however old, shows that functions answer.
    """

    def __init__(self, most_failures: int = MOST_FAILURES, backoff: Backoff = FUNCTION) -> None:
        self._most_failures, self._backoff = most_failures, backoff
        self._failures = 0  # since the last success
        self._opened = 0  # number of openings since the last success
        self._until_s = 0.0
        self._period = 0
        self._probing = False

    @property
    def closed(self) -> bool:
        """Return whether functions are believed to answer."""
        return self._opened == 0

    def admits(self, now_s: float) -> bool:
        """Return whether a call may be sent now."""
        return self._opened == 0 or (now_s >= self._until_s and not self._probing)

    def begin(self, now_s: float) -> int:
        """Note that a call is sent; return its period, to be passed on at its end."""
        self._probing = self._opened > 0
        return self._period

    def succeeded(self) -> None:
        """Note that a call was answered, even with an error of the model."""
        self._failures = self._opened = 0
        self._probing = False

    def failed(self, period: int, now_s: float, asked_s: float = 0.0) -> float:
        """Note that a call was not answered; functions asked for a pause of `asked_s`.

        Returns the seconds of a pause that begins now; 0 if none begins.
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
        """Note that a call ended in a way that does not show whether functions answer."""
        if period == self._period:
            self._probing = False
