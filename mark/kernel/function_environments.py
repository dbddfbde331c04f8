"""The function's environments in compiled code: warm pool, cold starts, keep-alive, account limit, ramp."""

from __future__ import annotations

import numpy as np

from mark.domain.errors import BadInput
from mark.domain.function_offer import REFRESH_SHARE, FunctionCalls
from mark.domain.rules import admission
from mark.domain.service import FunctionUse
from mark.kernel.arrays import (
    COLD_CALLS,
    COLD_COUNT,
    COLD_FIRST,
    COLD_S,
    CONCURRENCY,
    IDLE_COUNT,
    IDLE_FIRST,
    INF,
    KEEP_ALIVE_S,
    KEPT,
    PINGS,
    REFRESH_S,
    THROTTLED,
    TOKENS,
    TOKENS_AT_S,
    TOKENS_MAX,
    TOKENS_PER_S,
    WARM_CALLS,
    WARM_COUNT,
    WARM_FIRST,
    WARM_S,
    FunctionPool,
    Ints,
)
from mark.kernel.compiled import compiled
from mark.kernel.departures import BY_FUNCTION, Departures, depart

_in_time = compiled(admission.in_time)


def pool_for(function: FunctionUse | None) -> FunctionPool:
    """Return a pool without environments; for None, one that never answers.

    Raises BadInput for a concurrency below 1.
    """
    number = np.zeros(11, dtype=np.int64)
    value = np.zeros(9)
    value[WARM_S] = INF
    size = 2
    if function is not None:
        offer = function.offer
        if offer.concurrency < 1:
            raise BadInput("a function needs a concurrency of at least 1", offer.name, offer.concurrency)
        burst = max(offer.burst, offer.ramp_per_10s, 1.0)
        value[WARM_S], value[COLD_S], value[KEEP_ALIVE_S] = function.warm_s, function.cold_s, offer.keep_alive_s
        value[TOKENS] = value[TOKENS_MAX] = burst
        value[TOKENS_PER_S] = offer.ramp_per_10s / 10.0
        value[CONCURRENCY] = offer.concurrency
        value[REFRESH_S] = REFRESH_SHARE * offer.keep_alive_s
        # Idle and busy environments together: idle ones may outnumber the limit on busy ones, because of the ramp.
        size = 1 << (4 * offer.concurrency).bit_length()
    return FunctionPool(number, value, np.zeros(size), np.zeros(size), np.zeros(size))


def calls_of(use: FunctionUse, number: Ints) -> FunctionCalls:
    """Return the calls of a function, from the numbers of its pool."""
    gb = use.offer.memory_mb / 1024.0
    return FunctionCalls(
        calls=int(number[WARM_CALLS] + number[COLD_CALLS]),
        cold=int(number[COLD_CALLS]),
        pings=int(number[PINGS] + number[KEPT]),
        throttled=int(number[THROTTLED]),
        billed_gb_s=sum(n * use.offer.billed_s(takes_s) * gb for n, takes_s in _invocations(use, number)),
    )


def usd_of(use: FunctionUse, number: Ints) -> float:
    """Return the bill of all invocations: warm, cold (initialisation as the catalogue's year bills it), pings."""
    return sum(n * use.offer.usd_per_request(takes_s) for n, takes_s in _invocations(use, number))


def _invocations(use: FunctionUse, number: Ints) -> tuple[tuple[int, float], ...]:
    """Return (number, seconds of each) for warm calls, cold calls, and pings that start or keep."""
    init_s = use.cold_s if use.offer.bills_init else 0.0
    return (
        (int(number[WARM_CALLS]), use.warm_s),
        (int(number[COLD_CALLS]), use.warm_s + init_s),
        (int(number[PINGS]), init_s + use.offer.billing_step_ms / 1e3),
        (int(number[KEPT]), use.offer.billing_step_ms / 1e3),
    )


@compiled
def settle(pool: FunctionPool, now_s: float) -> None:
    """Make finished environments idle, in the order of their ends, and recycle those that were idle too long."""
    number, value = pool.number, pool.value
    mask = pool.warm_end_s.shape[0] - 1
    while True:
        warm = pool.warm_end_s[number[WARM_FIRST] & mask] if number[WARM_COUNT] > 0 else INF
        cold = pool.cold_end_s[number[COLD_FIRST] & mask] if number[COLD_COUNT] > 0 else INF
        end = min(warm, cold)
        if end > now_s:
            break
        if warm <= cold:
            number[WARM_FIRST] += 1
            number[WARM_COUNT] -= 1
        else:
            number[COLD_FIRST] += 1
            number[COLD_COUNT] -= 1
        pool.idle_since_s[(number[IDLE_FIRST] + number[IDLE_COUNT]) & mask] = end
        number[IDLE_COUNT] += 1
    while number[IDLE_COUNT] > 0 and pool.idle_since_s[number[IDLE_FIRST] & mask] + value[KEEP_ALIVE_S] <= now_s:
        number[IDLE_FIRST] += 1
        number[IDLE_COUNT] -= 1


@compiled
def _may_start(pool: FunctionPool, now_s: float) -> bool:
    """Return whether account limit and ramp allow a start; the ramp is a token bucket."""
    number, value = pool.number, pool.value
    tokens = min(value[TOKENS_MAX], value[TOKENS] + (now_s - value[TOKENS_AT_S]) * value[TOKENS_PER_S])
    value[TOKENS], value[TOKENS_AT_S] = tokens, now_s
    return tokens >= 1.0 and number[WARM_COUNT] + number[COLD_COUNT] < value[CONCURRENCY]


@compiled
def latency_s(pool: FunctionPool, now_s: float) -> float:
    """Return the seconds that a call would take now; infinite if throttled or switched off."""
    number, value = pool.number, pool.value
    if value[CONCURRENCY] <= 0.0:
        return INF
    settle(pool, now_s)
    if number[WARM_COUNT] + number[COLD_COUNT] >= value[CONCURRENCY]:
        return INF
    if number[IDLE_COUNT] > 0:
        return value[WARM_S]
    return value[WARM_S] + value[COLD_S] if _may_start(pool, now_s) else INF


@compiled
def is_in_time(pool: FunctionPool, now_s: float, horizon_s: float) -> bool:
    """Return whether a call would be answered within the horizon, by the warm latency that a bouncer assumes."""
    return bool(latency_s(pool, now_s) < INF and _in_time(pool.value[WARM_S], horizon_s))


@compiled
def begin(pool: FunctionPool, now_s: float) -> None:
    """Take the most recently used idle environment (as AWS does), or start one. Only after a finite `latency_s`."""
    number, value = pool.number, pool.value
    mask = pool.warm_end_s.shape[0] - 1
    if number[IDLE_COUNT] > 0:
        number[IDLE_COUNT] -= 1
        pool.warm_end_s[(number[WARM_FIRST] + number[WARM_COUNT]) & mask] = now_s + value[WARM_S]
        number[WARM_COUNT] += 1
        number[WARM_CALLS] += 1
    else:
        value[TOKENS] -= 1.0
        pool.cold_end_s[(number[COLD_FIRST] + number[COLD_COUNT]) & mask] = now_s + value[WARM_S] + value[COLD_S]
        number[COLD_COUNT] += 1
        number[COLD_CALLS] += 1


@compiled
def answer(pool: FunctionPool, out: Departures, request: int, now_s: float, takes_s: float) -> None:
    """Let a request depart by a call that begins now. Only after a finite `latency_s`."""
    depart(out, request, now_s, now_s, now_s + takes_s, takes_s, BY_FUNCTION)
    begin(pool, now_s)


@compiled
def _refresh(pool: FunctionPool, now_s: float, environments: int) -> None:
    """Ping those of the wanted environments, used last, that were idle for long. A ping occupies one for a call."""
    number, value = pool.number, pool.value
    mask = pool.warm_end_s.shape[0] - 1
    unwanted = max(0, number[IDLE_COUNT] + number[WARM_COUNT] + number[COLD_COUNT] - environments)
    first, due = number[IDLE_FIRST], 0
    while unwanted + due < number[IDLE_COUNT]:
        if pool.idle_since_s[(first + unwanted + due) & mask] + value[REFRESH_S] > now_s:
            break
        pool.warm_end_s[(number[WARM_FIRST] + number[WARM_COUNT]) & mask] = now_s + value[WARM_S]
        number[WARM_COUNT] += 1
        due += 1
    if due > 0:
        for i in range(unwanted - 1, -1, -1):  # the unwanted ones stay, beside the others
            pool.idle_since_s[(first + due + i) & mask] = pool.idle_since_s[(first + i) & mask]
        number[IDLE_FIRST] += due
        number[IDLE_COUNT] -= due
        number[KEPT] += due


@compiled
def warm(pool: FunctionPool, now_s: float, environments: int) -> int:
    """Keep that many environments, start the missing ones as far as limits allow, and return how many were started."""
    number, value = pool.number, pool.value
    settle(pool, now_s)
    mask = pool.warm_end_s.shape[0] - 1
    started = 0
    environments = min(environments, int(value[CONCURRENCY]))  # the rings hold no more
    _refresh(pool, now_s, environments)
    while number[IDLE_COUNT] + number[WARM_COUNT] + number[COLD_COUNT] < environments:
        if not _may_start(pool, now_s):
            number[THROTTLED] += 1
            break
        value[TOKENS] -= 1.0
        # A ping runs no inference, but it is held as long as a cold call, because its ring must stay ordered by end.
        pool.cold_end_s[(number[COLD_FIRST] + number[COLD_COUNT]) & mask] = now_s + value[WARM_S] + value[COLD_S]
        number[COLD_COUNT] += 1
        number[PINGS] += 1
        started += 1
    return started
