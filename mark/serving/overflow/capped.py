"""A limit of the functions' cost per hour, enforced before each call: a token bucket of dollars.

Each bouncer has the whole limit of the service. A share would have to follow the number of bouncers, and would be wrong
just when functions are needed most: while instances come and go. On AWS the sum over all bouncers is bounded by the
function's reserved concurrency, which Lambda itself enforces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mark.domain.service import FunctionUse
from mark.models.call import Call, Reply
from mark.serving.overflow.functions import FunctionClient, Spent, Throttled

BURST_S = 60.0  # of spending in one burst
_LEAST_WAIT_S = 1.0


class Purse:
    """Dollars that arrive evenly, at most those of `BURST_S`, and are removed when spent. It does no I/O."""

    def __init__(self, usd_per_hour: float, now_s: float) -> None:
        self._usd_per_s = usd_per_hour / 3600.0
        self._most_usd = self._left_usd = self._usd_per_s * BURST_S
        self._spent_usd, self._at_s = 0.0, now_s

    def wait_s(self, usd: float, spent_usd: float, held_usd: float, now_s: float) -> float:
        """Return the seconds until `usd` may be spent; 0: now.

        `spent_usd` is the total so far, `held_usd` the cost of calls in progress. A cost above a whole burst waits for
        a full one.
        """
        came = (now_s - self._at_s) * self._usd_per_s
        # Subtract before the cap: dollars spent since the last call may have made room for those that came.
        self._left_usd = min(self._most_usd, self._left_usd - (spent_usd - self._spent_usd) + came)
        self._spent_usd, self._at_s = spent_usd, now_s
        short_usd = min(usd, self._most_usd) - (self._left_usd - held_usd)
        return max(0.0, short_usd / self._usd_per_s)


class CappedFunctions:
    """`functions` for at most `usd_per_hour`; a call beyond that is throttled here, and counted in `spent.capped`.

    A call in progress counts with the cost of a warm one (`use`), an ended one with its billed cost.
    """

    def __init__(
        self,
        functions: FunctionClient,
        use: FunctionUse,
        usd_per_hour: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._functions, self._use, self._now = functions, use, now
        self.usd_per_hour = usd_per_hour
        self._purse = Purse(usd_per_hour, now())
        self._under_way = 0

    @property
    def spent(self) -> Spent:
        return self._functions.spent

    async def open(self) -> None:
        await self._functions.open()

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        spent, offer, one_usd = self._functions.spent, self._use.offer, self._use.usd_per_request
        usd = spent.billed_s * offer.usd_per_s + spent.calls * offer.usd_per_million_requests / 1e6
        wait_s = self._purse.wait_s(one_usd, usd, self._under_way * one_usd, self._now())
        if wait_s > 0.0:
            spent.capped += 1
            raise Throttled(max(_LEAST_WAIT_S, wait_s))
        self._under_way += 1
        try:
            return await self._functions.call(calls, timeout_s)
        finally:
            self._under_way -= 1

    async def close(self) -> None:
        await self._functions.close()
