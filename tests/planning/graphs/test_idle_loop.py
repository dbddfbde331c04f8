"""A loop whose time stops until it is advanced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mark.planning.graphs.idle_loop import IdleLoop


@pytest.fixture
def loop() -> Iterator[IdleLoop]:
    made = IdleLoop()
    yield made
    made.close()


def test_timers_run_out_only_when_time_is_advanced(loop: IdleLoop) -> None:
    log: list[float] = []

    async def sleeper() -> None:
        for delay_s in (1.5, 1e6):
            await asyncio.sleep(delay_s)
            log.append(loop.time())

    task = loop.create_task(sleeper())
    loop.run_until_idle()
    assert (log, task.done()) == ([], False)
    while not task.done():  # a day at a time at most, which is how long a loop sleeps
        assert loop.advance()
        loop.run_until_idle()
    assert log == [1.5, 1_000_001.5]
    assert not loop.advance()


def test_what_is_given_to_a_thread_is_done_at_once(loop: IdleLoop) -> None:
    def fails() -> None:
        raise ValueError("no")

    async def threads() -> int:
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(fails)
        return await asyncio.to_thread(int, "7")

    task = loop.create_task(threads())
    loop.run_until_idle()
    assert task.result() == 7


def test_a_loop_that_only_looks_again_is_idle(loop: IdleLoop) -> None:
    answer = loop.create_future()

    async def polls() -> int:
        while not answer.done():
            await asyncio.sleep(0)
        return int(answer.result())

    task = loop.create_task(polls())
    loop.run_until_idle()
    assert not task.done()
    answer.set_result(3)
    loop.run_until_idle()
    assert task.result() == 3
