"""A service in compiled code: a stage, functions for the requests that it does not admit, and accounts of departures.

The stage calls neither of the other two. Functions are called request by request and not afterwards in bulk, because a
bouncer's rule needs to know whether they would answer at all (`admission.destination`), and routing by requests in
flight needs the time until which a request that was passed on is in flight.
"""

from __future__ import annotations

import numpy as np

from mark.domain.rules import admission, second_attempts
from mark.kernel import function_environments, loop
from mark.kernel.accounting import Accounts, account
from mark.kernel.arrays import (
    ALB,
    BUDGET,
    CONCURRENCY,
    CROWDED,
    GATEWAY,
    INF,
    REQUEST,
    THROTTLED,
    WARM_S,
    ArrivalTimes,
    FunctionPool,
    Stage,
    StageRules,
)
from mark.kernel.compiled import compiled
from mark.kernel.departures import CHUNK, REFUSED, Departures, depart
from mark.kernel.records import of_kind, of_slot

_destination = compiled(admission.destination)
_in_time = compiled(admission.in_time)
_late_budget = compiled(admission.late_budget)
_queues_late = compiled(admission.queues_late)
_grown = compiled(second_attempts.grown)
_FUNCTION = admission.FUNCTION


@compiled
def passed_on(st: Stage, pool: FunctionPool, slot: int, now_s: float, latency_s: float, horizon_s: float) -> bool:
    """Return whether a function gets a request that the replica expects to answer in time, but may answer late."""
    return bool(
        st.least[0] > 0.0
        and _in_time(latency_s, horizon_s)
        and function_environments.is_in_time(pool, now_s, horizon_s)
        and loop.doubtful(st, slot, now_s, horizon_s)
    )


@compiled
def earn_late(st: Stage, slot: int, late_share: float) -> None:
    """Add one request's `late_share` to the replica's budget of late requests."""
    if late_share > 0.0:
        st.late_left[slot] = _late_budget(st.late_left[slot], late_share)


@compiled
def queued_late(st: Stage, slot: int, latency_s: float, function_s: float, horizon_s: float, late_share: float) -> bool:
    """Return whether a replica queues a request that is late everywhere, and count the request in its budget."""
    if late_share == 0.0 or slot < 0 or _in_time(function_s, horizon_s):
        return False
    if st.kinds.variation[of_slot(st, slot).kind] == 0.0:
        return False
    left = st.late_left[slot]
    st.late_left[slot] = _late_budget(left, -1.0)
    return bool(_queues_late(left, latency_s, function_s, horizon_s))


@compiled
def _through(
    st: Stage,
    pool: FunctionPool,
    out: Departures,
    arrivals: ArrivalTimes,
    first: int,
    until_s: float,
    rules: StageRules,
) -> int:
    """Simulate arrivals [first, ...) before `until_s` until the buffer or a ring of batches is full.

    Returns the position of the next.
    """
    arrivals_s, limit_s, mixed = arrivals
    routing, bouncers, late, late_share = rules
    if mixed:  # a call of a pipeline is refused if it is late
        late_share = 0.0
    i = first
    end = arrivals_s.shape[0]
    while i < end and out.rows[0] < CHUNK and st.counter[CROWDED] == 0:
        now = arrivals_s[np.uint64(i)]
        if now >= until_s:
            break
        limit = limit_s[np.uint64(i if mixed else 0)]
        i += 1
        request = st.counter[REQUEST]
        st.counter[REQUEST] = request + 1
        if routing == GATEWAY:
            st.gateway[BUDGET] = _grown(st.gateway[BUDGET], 1)
            slot = loop.choose_learned(st, out, now)
        else:
            slot = loop.choose(st, out, now, routing)
        attempts = 1
        while True:
            horizon = limit
            if slot >= 0:
                latency = loop.expected_latency_s(st, slot, now)
                horizon = min(horizon, of_kind(st, of_slot(st, slot).kind).horizon_s)
                earn_late(st, slot, late_share)
                if passed_on(st, pool, slot, now, latency, horizon):
                    latency = INF
            else:
                latency = INF
            if slot >= 0 and (not bouncers or _in_time(latency, horizon)):
                loop.place(st, out, slot, now, request, horizon if bouncers else INF, mixed)
                break
            function = function_environments.latency_s(pool, now)
            # A cold start cannot be foreseen, so a bouncer assumes the warm latency.
            warm = min(function, pool.value[WARM_S]) if function < INF else INF
            if _destination(latency, warm, horizon, late) == _FUNCTION:
                if queued_late(st, slot, latency, warm, horizon, late_share):
                    loop.place(st, out, slot, now, request, INF, mixed)
                    break
                function_environments.answer(pool, out, request, now, function)
                if slot >= 0:
                    loop.in_flight_until(st, slot, now, now + function)
                break
            if routing == GATEWAY and slot >= 0:
                other = loop.refused(st, slot, now, attempts == 1)
                if other >= 0:
                    slot = other
                    attempts = 2
                    continue
            if pool.value[CONCURRENCY] > 0.0 and function == INF:
                pool.number[THROTTLED] += 1
            depart(out, request, now, now, INF, INF, REFUSED)
            break
        if routing == ALB and slot >= 0:
            loop.show_in_flight(st, slot)
    return i


@compiled
def advance(
    st: Stage,
    pool: FunctionPool,
    out: Departures,
    accounts: Accounts,
    arrivals: ArrivalTimes,
    first: int,
    until_s: float,
    rules: StageRules,
    keep: bool,
    count: bool,
) -> int:
    """Simulate and account arrivals [first, ...) before `until_s`, and return the position of the next.

    With `keep` it returns once the buffer is full, and leaves the departures in it; else it leaves the buffer empty.
    Without `count` it keeps without accounting.
    """
    i = first
    while True:
        i = _through(st, pool, out, arrivals, i, until_s, rules)
        if count:
            account(accounts, out)
        full = out.rows[0] >= CHUNK
        if keep or not full:
            break
        out.rows[0] = 0
    if not keep:
        out.rows[0] = 0
    return i
