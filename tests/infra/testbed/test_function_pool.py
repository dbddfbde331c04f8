"""Which environment gets an invocation, which invocations are throttled, and how much is billed."""

from __future__ import annotations

import pytest
from mark_infra.testbed.function_pool import TOO_FAST, TOO_MANY, Account, EnvironmentPool

from mark.domain.function_offer import FunctionOffer


def offer(**changes: float) -> FunctionOffer:
    numbers = {"billing_step_ms": 1.0, "concurrency": 3, "ramp_per_10s": 10.0, "keep_alive_s": 300.0} | changes
    return FunctionOffer(1024, 0.00001, 0.2, **numbers)  # type: ignore[arg-type]


def started(pool: EnvironmentPool[str], *names: str, now_s: float = 0.0) -> None:
    for name in names:
        assert pool.take(now_s) is None
        pool.begin(name)


def test_the_environment_used_last_is_taken_first() -> None:
    pool: EnvironmentPool[str] = EnvironmentPool(offer())
    started(pool, "a", "b", "c")
    for environment, now_s in (("b", 1.0), ("c", 2.0), ("a", 3.0)):
        pool.rest(environment, now_s)
    assert [pool.take(4.0) for _ in range(3)] == ["a", "c", "b"]


def test_starting_environments_count_towards_the_accounts_concurrency() -> None:
    pool: EnvironmentPool[str] = EnvironmentPool(offer(concurrency=2))
    started(pool, "a", "b")
    assert pool.take(0.0) == TOO_MANY
    pool.rest("a", 1.0)
    assert pool.take(1.0) == "a"
    pool.lose("b")
    assert pool.take(1.0) is None
    pool.lose("b")  # to lose a lost one changes nothing
    assert len(pool.at_work) == 1


def test_the_ramp_bounds_starts_in_ten_seconds() -> None:
    pool: EnvironmentPool[str] = EnvironmentPool(offer(concurrency=100, ramp_per_10s=5.0, burst=2.0))
    started(pool, "a", "b")
    assert pool.take(0.0) == pool.take(1.99) == TOO_FAST
    started(pool, "c", now_s=2.01)
    assert pool.take(2.02) == TOO_FAST
    pool.rest("a", 2.0)
    assert pool.take(2.0) == "a"  # the ramp limits new environments only
    started(pool, "d", "e", now_s=1000.0)  # at most the burst is saved up
    assert pool.take(1000.0) == TOO_FAST


def test_without_a_burst_one_ramp_step_may_start_at_once() -> None:
    pool: EnvironmentPool[str] = EnvironmentPool(offer(concurrency=100, ramp_per_10s=4.0))
    started(pool, "a", "b", "c", "d")
    assert pool.take(0.0) == TOO_FAST


def test_an_environment_idle_past_keep_alive_ends() -> None:
    pool: EnvironmentPool[str] = EnvironmentPool(offer(keep_alive_s=10.0))
    started(pool, "a", "b")
    pool.rest("a", 1.0)
    pool.rest("b", 2.0)
    assert pool.expired(10.9) == []
    assert pool.expired(11.0) == ["a"]
    assert pool.take(11.0) == "b"
    assert pool.take(11.0) is None
    assert pool.expired(1e9) == []  # it is at work


@pytest.mark.parametrize(
    ("step_ms", "duration_s", "billed_ms"),
    [(1.0, 0.0100, 10), (1.0, 0.0101, 11), (100.0, 0.3, 300), (100.0, 0.301, 400), (1.0, 0.0, 0)],
)
def test_a_duration_is_rounded_up_to_the_step(step_ms: float, duration_s: float, billed_ms: int) -> None:
    account = Account(offer(billing_step_ms=step_ms))
    assert account.add(duration_s, 1.0, failed=False) == account.billed_ms == billed_ms
    assert account.usd == pytest.approx(0.00001 * billed_ms / 1e3 + 0.2e-6)


def test_the_init_is_billed_where_the_catalogue_says_so() -> None:
    account = Account(offer(bills_init=True))
    assert account.add(0.0104, 0.2003, failed=False) == 211
    assert account.add(0.0104, 0.0, failed=True) == 11
    assert (account.invocations, account.failed, account.billed_ms) == (2, 1, 222)
    assert account.usd == pytest.approx(0.00001 * 0.222 + 0.4e-6)
