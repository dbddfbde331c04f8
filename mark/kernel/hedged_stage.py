"""A stage whose requests get second copies when they take long; replicas are added and removed as in any stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.profile import Candidate
from mark.domain.rules import second_attempts
from mark.kernel import hedging, known
from mark.kernel.arrays import ALB, CROWDED, INF, Floats
from mark.kernel.checks import check_arrivals
from mark.kernel.compiled import Prepared
from mark.kernel.copies import (
    AGAIN,
    AGAIN_AT,
    AGAIN_S,
    DONE,
    FREE,
    GIVEN_UP,
    HEDGES,
    NO_ROOM,
    RETRIED,
    STOPPED,
    WASTED_S,
    WON,
    copies_of,
    with_batches,
    with_replicas,
    with_requests,
)
from mark.kernel.stage import StageSimulation


class HedgedStage(StageSimulation):
    """A `StageSimulation`, with the same options, that sends a second copy of a request `hedge_after_s` after it came.

    Requests depart when they are answered. Raises ValueError for routing by an ALB, which sends no second copies.
    """

    def __init__(self, candidates: Sequence[Candidate], *, hedge_after_s: float, **options: Any) -> None:
        if not hedge_after_s >= 0.0:
            raise BadInput("must not be negative", "hedge_after_s", hedge_after_s)
        super().__init__(candidates, **options)
        if self._routing == ALB:
            raise ValueError("a balancer of this kind sends no second copies")
        self._run_hedged = Prepared(hedging.advance)
        self._lost = None  # requests are kept here until they are answered
        self._lost_requests = 0
        self._copies = copies_of(self._st, self._pool, hedge_after_s, second_attempts.BURST)

    # -- replicas ------------------------------------------------------------------------------------------------------

    def add(self, number: int, offer_index: int, at_s: float) -> None:
        self.reach(at_s)
        self._grow(number + 1)
        copies = self._copies
        if copies.first_waiting[number] >= 0 or (copies.first_running[number] >= 0).any():
            # It was stopped and resumed before it had finished its batches.
            while not hedging.flush(self._st, copies, self._out, number):
                self._departed()
            self._departed()
        super().add(number, offer_index, at_s)
        self._copies.free_s[number, :] = at_s

    def drain(self, number: int, at_s: float) -> None:
        self.reach(at_s)
        super().drain(number, at_s)

    def remove(self, number: int, at_s: float) -> None:
        self.drain(number, at_s)
        if len(self._st.faults.crash_s):
            self._st.faults.crash_s[number] = INF

    def crash(self, number: int, at_s: float) -> None:
        """Crash a replica like a `StageSimulation`.

        A request whose other copy may answer is neither lost nor retried.
        """
        assert self._st.faults.crash_s[number] == at_s
        self.drain(number, at_s)
        self._st.faults.crash_s[number] = INF
        copies = self._copies
        lost = hedging.lose(self._st, copies, number)
        self._st.slots["free_s"][number] = at_s
        self._st.worker_free_s[number, :] = copies.free_s[number, :] = at_s
        self._forget_batches(number)
        self._lost_requests += lost
        copies.again[:lost].sort()
        copies.number[[AGAIN, AGAIN_AT, GIVEN_UP]] = lost, 0, 0
        copies.value[AGAIN_S] = at_s
        self.reach(at_s)
        copies = self._copies
        for request in copies.again[: copies.number[GIVEN_UP]]:
            place = request % len(copies.arrival_s)
            self._give_up(np.array([request]), copies.arrival_s[[place]], at_s)
            copies.answered[place] = 1

    def set_speed(self, number: int, factor: float, at_s: float) -> None:
        self.reach(at_s)
        super().set_speed(number, factor, at_s)

    def warm(self, at_s: float, environments: int) -> int:
        self.reach(at_s)
        return super().warm(at_s, environments)

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, arrivals_s: Floats, first: int, until_s: float, limit_s: Floats | None = None) -> int:
        if limit_s is not None:
            raise ValueError("where requests have second copies they have one limit")
        arrivals_s = np.ascontiguousarray(arrivals_s, dtype=np.float64)
        self._since_s = check_arrivals(arrivals_s, first, float(until_s), self._since_s, self.accounts.end_s, None)
        return self._run(arrivals_s, first, until_s, False)

    def reach(self, until_s: float) -> None:
        self._run(np.zeros(0), 0, until_s, True)

    def settle(self, until_s: float) -> None:
        self.reach(until_s)

    def finish(self) -> None:
        self.reach(INF)

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> tuple[int, int]:
        return self._lost_requests, int(self._copies.number[RETRIED])

    @property
    def hedges(self) -> tuple[int, int, float]:
        number = self._copies.number
        return int(number[HEDGES]), int(number[WON]), float(self._copies.value[WASTED_S])

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _run(self, arrivals_s: Floats, first: int, until_s: float, last: bool) -> int:
        if self._stale:
            self._rebuild()
        while True:
            first = self._run_hedged(
                self._st,
                self._copies,
                self._pool,
                self._out,
                arrivals_s,
                first,
                float(until_s),
                last,
                self.accounts.rt_max_s,
                self._rules,
            )
            if self._out.rows[0]:
                self._departed()
            why = self._copies.number[STOPPED]
            if why == DONE:
                return int(first)
            if self._st.counter[CROWDED]:
                self._st = known.with_longer_rings(self._st)
            elif why == NO_ROOM:
                copies = self._copies
                more = with_batches(copies, len(copies.size)) if copies.number[FREE] < 0 else with_requests(copies)
                self._copies = more

    def _grow(self, slots: int) -> None:
        before = len(self._st.slots)
        super()._grow(slots)
        if (more := len(self._st.slots) - before) > 0:
            self._copies = with_replicas(self._copies, more)

    def _learn(self, until_s: float) -> None:
        """Nothing to do: `reach` lets the gateway learn."""

    def _introduce(self, number: int, at_s: float) -> None:
        if not self._copies.in_flight[number]:
            super()._introduce(number, at_s)

    def _settle(self, number: int) -> None:
        """Send no more requests to the replica, and let its open batch start when it is due."""
        own = self._st.slots[number]
        own["leaf"] = -1
        self._stale = True
        if own["open_size"] > 0:
            # Not at the time when a worker is foreseen to be free: that may come sooner, if a copy leaves the queue.
            window_s = float(self._st.kinds.rows["window_s"][own["kind"]])
            hedging.close(self._st, self._copies, number, float(self._copies.opened_s[number]) + window_s)
