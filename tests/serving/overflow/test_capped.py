"""The cap on the cost of functions: a burst, then a steady rate; each refused call is counted and never sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.function_offer import FunctionOffer
from mark.domain.service import FunctionUse
from mark.models.call import Call, Reply
from mark.serving.overflow.capped import CappedFunctions, Purse
from mark.serving.overflow.functions import FunctionsFailed, Throttled
from tests.serving.fakes import FakeFunctions

# 1 $ for a second, which is the duration of a call.
USE = FunctionUse(FunctionOffer(1024, 1.0, 0.0, 1.0, 1000, 1000.0, 300.0), 1.0, 0.0, "measured")
USD_PER_HOUR = 180.0  # 0.05 $/s: three calls immediately, then a call in 20 s


class Clock:
    def __init__(self) -> None:
        self.t_s = 100.0

    def __call__(self) -> float:
        return self.t_s


class Billing(FakeFunctions):
    """Each call that is answered is billed for a second."""

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        replies = await super().call(calls, timeout_s)
        self.spent.calls += 1
        self.spent.billed_s += 1.0
        return replies


def capped(usd_per_hour: float = USD_PER_HOUR) -> tuple[CappedFunctions, Billing, Clock]:
    functions, clock = Billing(), Clock()
    return CappedFunctions(functions, USE, usd_per_hour, clock), functions, clock


def sent(functions: CappedFunctions, count: int) -> int:
    """Return how many of `count` calls were sent, one after the other."""

    async def all_of_them() -> int:
        answered = 0
        for _ in range(count):
            try:
                await functions.call([Call("oip", "application/json", b"x")], 1.0)
                answered += 1
            except Throttled:
                pass
        return answered

    return asyncio.run(all_of_them())


def test_a_burst_then_what_comes_evenly() -> None:
    functions, behind, clock = capped()
    assert sent(functions, 10) == 3
    assert (functions.spent.capped, len(behind.calls)) == (7, 3)
    clock.t_s += 19.0
    assert sent(functions, 1) == 0
    clock.t_s += 1.0
    assert sent(functions, 2) == 1
    clock.t_s += 3600.0
    assert sent(functions, 10) == 3, "no more than a burst is saved"


def test_a_throttled_call_says_when_to_come_again() -> None:
    functions, _, _ = capped()
    sent(functions, 3)
    with pytest.raises(Throttled) as refused:
        asyncio.run(functions.call([Call("oip", "application/json", b"x")], 1.0))
    assert refused.value.retry_after_s == pytest.approx(20.0)


def test_calls_under_way_hold_their_price() -> None:
    """Concurrent calls may not cost more than consecutive ones; a call that is not billed returns its price."""
    functions, behind, _ = capped()
    behind.held = asyncio.Event()

    async def at_once() -> int:
        tasks = [asyncio.create_task(functions.call([Call("oip", "", b"x")], 0.01)) for _ in range(10)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(one, Throttled) for one in done)

    assert asyncio.run(at_once()) == 7
    behind.held = None
    assert sent(functions, 10) == 3


def test_a_dear_call_waits_for_a_full_purse() -> None:
    functions, _, clock = capped(usd_per_hour=6.0)  # a burst of 10 cents
    assert sent(functions, 2) == 1
    clock.t_s += 500.0  # a dollar less a burst has to come first
    assert sent(functions, 1) == 0
    clock.t_s += 101.0
    assert sent(functions, 1) == 1


def test_what_came_before_a_late_look_is_kept() -> None:
    """Calls that cost less than the steady rate are all sent, however rarely the cap is checked."""
    functions, _, clock = capped(usd_per_hour=60.0)  # a call costs the budget of a minute, which is a burst
    for _ in range(20):
        assert sent(functions, 1) == 1
        clock.t_s += 61.0


def test_opening_and_closing_are_passed_on() -> None:
    functions, behind, _ = capped()
    asyncio.run(functions.open())
    asyncio.run(functions.close())
    assert behind.closed
    with pytest.raises(FunctionsFailed, match="closed"):
        asyncio.run(functions.call([Call("oip", "", b"x")], 1.0))


@given(st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(0.001, 2.0)), max_size=60), st.floats(1.0, 1000.0))
def test_no_more_is_spent_than_a_burst_and_what_came(calls: list[tuple[float, float]], usd_per_hour: float) -> None:
    """The excess is at most the last call's own price, which may be above a burst."""
    purse, now_s, spent_usd, dearest_usd = Purse(usd_per_hour, 0.0), 0.0, 0.0, 0.0
    for pause_s, usd in calls:
        now_s += pause_s
        if purse.wait_s(usd, spent_usd, 0.0, now_s) == 0.0:
            spent_usd += usd
            dearest_usd = max(dearest_usd, usd)
    assert spent_usd <= (now_s + 60.0) * usd_per_hour / 3600.0 + dearest_usd + 1e-9
