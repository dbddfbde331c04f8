"""Warming a function: it reaches the requested number of environments without blocking, and reports the outcome."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from mark_infra.aws.warming import HOLD_MS, LambdaWarming

from mark.serving.overflow.functions import Spent
from tests.infra.lambda_endpoint import Endpoint, Failure, endpoint
from tests.serving.overflow.test_functions import LambdaWorld

KEEP_ALIVE_S = 300.0


class At:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def now_s(self) -> float:
        return self.time_s


class Environments:
    """A function: an invocation holds an environment until it ends, and gets a new one if all are busy."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.busy = self.count = self.invocations = 0
        self.held = threading.Event()  # if set, no invocation waits
        self.held.set()
        self._lock = threading.Lock()
        self._wanted = 0
        self._all = threading.Condition(self._lock)

    def together(self, count: int) -> None:
        """Let the next invocations end when `count` of them run at once: a hold without a clock."""
        self._wanted = count

    def __call__(self, payload: bytes) -> bytes:
        assert json.loads(payload) == {"warm": True, "hold_ms": HOLD_MS}
        with self._all:
            self.invocations += 1
            self.busy += 1
            cold = self.busy > self.count
            self.count = max(self.count, self.busy)
            self._all.notify_all()
            assert self._all.wait_for(lambda: self.busy >= self._wanted, 10.0)
            self._wanted = 0
        self.held.wait(60.0)
        with self._lock:
            self.busy -= 1
        return json.dumps({"cold": cold, "load_s": 1.0, "billed_ms": 1200 if cold else 201}).encode()


def test_warming_that_warms_nothing_opens_nothing() -> None:
    """A controller whose start fails makes one at each try and cannot close it."""
    before = len(os.listdir("/proc/self/fd"))
    made = [LambdaWarming("overflow", KEEP_ALIVE_S, At()) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before
    for one in made:
        one.close()


@pytest.fixture
def environments() -> Environments:
    return Environments()


@pytest.fixture
def there(environments: Environments, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with endpoint(overflow=environments) as made:
        LambdaWorld(made.url, monkeypatch)
        yield made


@pytest.fixture
def clock() -> At:
    return At()


@pytest.fixture
def warming(there: Endpoint, clock: At) -> Iterator[LambdaWarming]:
    made = LambdaWarming("overflow", KEEP_ALIVE_S, clock)
    yield made
    made.close()


def wait_for(condition: Callable[[], bool]) -> None:
    until_s, look = time.monotonic() + 60.0, threading.Event()
    while not condition():
        assert time.monotonic() < until_s, "not in time"
        look.wait(0.005)


def ended(warming: LambdaWarming, pings: int) -> None:
    """Wait until that number of pings have ended."""
    wait_for(lambda: warming.counts.total() == pings)


def test_as_many_environments_as_asked_for_at_once(
    warming: LambdaWarming, environments: Environments, clock: At
) -> None:
    environments.together(12)
    assert warming.warm(12) == 12
    ended(warming, 12)
    assert warming.counts == {"started": 12}
    assert environments.count == 12
    assert warming.spent.calls == 12
    assert warming.spent.billed_s == pytest.approx(12 * 1.2)
    clock.time_s += 60.0
    assert warming.warm(12) == warming.warm(3) == 0, "they are warm"
    assert environments.invocations == 12


@pytest.mark.parametrize(
    ("session", "told"),
    [(None, "failed"), (boto3.Session("AKIAMINE", "s3cret", region_name="us-east-1"), "started")],
    ids=["without a session", "with one"],
)
def test_it_pings_with_the_sessions_credentials(
    there: Endpoint, clock: At, monkeypatch: pytest.MonkeyPatch, session: Any, told: str
) -> None:
    """The environment has no credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    warming = LambdaWarming("overflow", KEEP_ALIVE_S, clock, session=session)
    warming.warm(1)
    ended(warming, 1)
    warming.close()
    assert warming.counts == {told: 1}


def test_more_are_reached_together_with_those_that_are_there(
    warming: LambdaWarming, environments: Environments, clock: At
) -> None:
    """Pings for the missing number only would reach the warm environments again."""
    environments.together(4)
    assert warming.warm(4) == 4
    ended(warming, 4)
    clock.time_s += 60.0
    environments.together(6)
    assert warming.warm(6) == 2
    ended(warming, 10)
    assert warming.counts == {"started": 6, "warm": 4}


def test_environments_are_pinged_before_expiry_and_restarted_after(
    warming: LambdaWarming, environments: Environments, clock: At
) -> None:
    environments.together(2)
    warming.warm(2)
    ended(warming, 2)
    clock.time_s += 0.6 * KEEP_ALIVE_S
    environments.together(2)
    assert warming.warm(2) == 0, "nothing is started"
    ended(warming, 4)
    clock.time_s += 1.1 * KEEP_ALIVE_S
    assert warming.warm(2) == 2


def test_warming_never_blocks_and_rounds_do_not_pile_up(
    warming: LambdaWarming, environments: Environments, clock: At
) -> None:
    """A function that starts slowly is asked once."""
    environments.held.clear()
    began_s = time.monotonic()
    warming.warm(3)
    for _ in range(20):
        clock.time_s += 60.0
        assert warming.warm(5) == 0
    assert time.monotonic() - began_s < 10.0  # a request holds for a minute
    environments.held.set()
    ended(warming, 3)
    assert environments.invocations == 3


@pytest.mark.parametrize(
    ("failure", "what"), [(Failure(429, "TooManyRequestsException"), "throttled"), (Failure(how="drop"), "failed")]
)
def test_what_was_not_reached_is_counted_and_tried_again(
    warming: LambdaWarming, environments: Environments, there: Endpoint, failure: Failure, what: str
) -> None:
    there.failure = failure
    assert warming.warm(3) == 3
    ended(warming, 3)
    assert warming.counts == {what: 3}
    there.failure = None
    environments.together(3)
    assert warming.warm(3) == 3
    ended(warming, 6)
    assert warming.counts["started"] == 3


def test_a_function_that_cannot_be_asked_ends_nothing(
    there: Endpoint, clock: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    warming = LambdaWarming("overflow", KEEP_ALIVE_S, clock)
    warming.warm(2)
    ended(warming, 2)
    assert warming.counts == {"failed": 2}
    warming.close()


def test_the_sites_region_is_enough(
    there: Endpoint, environments: Environments, clock: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    warming = LambdaWarming("overflow", KEEP_ALIVE_S, clock, region="us-east-1")
    warming.warm(1)
    ended(warming, 1)
    assert warming.counts == {"started": 1}
    warming.close()


def test_a_close_gives_up_what_is_under_way(there: Endpoint, environments: Environments, clock: At) -> None:
    environments.held.clear()
    warming = LambdaWarming("overflow", KEEP_ALIVE_S, clock)
    warming.warm(3)
    wait_for(lambda: environments.invocations == 3)
    began_s = time.monotonic()
    warming.close()
    assert time.monotonic() - began_s < 30.0
    environments.held.set()


class Hanging:
    """Functions whose pings never end by themselves."""

    def __init__(self) -> None:
        self.spent = Spent()
        self.pings = threading.Semaphore(0)
        self.under_way = 0
        self.left_at_close: int | None = None

    async def open(self) -> None:
        pass

    async def warm(self, hold_ms: float, timeout_s: float) -> bool:
        self.under_way += 1
        self.pings.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1
        return True

    async def close(self) -> None:
        self.left_at_close = self.under_way


@pytest.mark.parametrize("begun", [0, 3])
def test_pings_end_before_the_client_they_use(clock: At, begun: int) -> None:
    """A client that closes while it connects would leave that connection open."""
    functions = Hanging()
    warming = LambdaWarming("overflow", KEEP_ALIVE_S, clock, functions=lambda name: functions)
    warming.warm(3)
    for _ in range(begun):
        assert functions.pings.acquire(timeout=30.0)
    warming.close()
    assert functions.left_at_close in ((0, None) if begun == 0 else (0,))


def test_another_version_has_environments_of_its_own(
    there: Endpoint, environments: Environments, warming: LambdaWarming, clock: At
) -> None:
    other = Environments()
    there.functions["overflow:2"] = other
    environments.together(3)
    warming.warm(3)
    ended(warming, 3)
    warming.use("overflow:2")
    warming.use("overflow:2")
    other.together(2)
    assert warming.warm(2) == 2, "none of them is warm, though the round before was a moment ago"
    ended(warming, 5)
    assert (environments.invocations, other.invocations) == (3, 2)
    assert warming.spent.calls == 5, "what the first one cost is not forgotten"
    assert warming.spent.billed_s == pytest.approx(5 * 1.2)
    assert warming.warm(2) == 0


def test_a_former_versions_round_says_nothing_of_the_new_one(
    there: Endpoint, environments: Environments, warming: LambdaWarming
) -> None:
    there.functions["overflow:2"] = other = Environments()
    environments.held.clear()
    warming.warm(2)
    warming.use("overflow:2")
    environments.held.set()
    ended(warming, 2)
    wait_for(lambda: warming.warm(2) == 2)
    ended(warming, 4)
    assert other.invocations == 2


def test_one_that_never_warmed_closes() -> None:
    LambdaWarming("overflow", KEEP_ALIVE_S, At()).close()
