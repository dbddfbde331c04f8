"""A worker that has grown too large is replaced, and no client that waits for an answer notices."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mark.serving.worker.worker_process import WorkerProcess
from tests.serving.worker.test_workers import LONG_S, Pool, Told, ended, fifo, ready_pool, run

LIMIT_BYTES = 100 << 20  # a worker without a model has some 20 MiB, under a coverage tracer more
__all__ = ["fifo"]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(LONG_S):
        while not true():
            await asyncio.sleep(0.005)


def heir(one: Pool) -> WorkerProcess:
    found = one.workers._heir
    assert found is not None
    return found


@asynccontextmanager
async def grown(here: Told, reference: str = "good") -> AsyncIterator[Pool]:
    """Yield a worker that is too large and has a batch, and its successor, which is ready."""
    async with ready_pool(memory_bytes=LIMIT_BYTES, reference=reference) as one:
        await one.text(0, "grow 100")
        one.send(0, f"told {here.path}")
        await here.told()
        one.workers._look()
        await until(lambda: heir(one).ready)
        one.workers._look()  # one successor is enough
        yield one


def test_a_growing_worker_is_replaced_between_batches() -> None:
    """It always has two batches: all are answered in order, none is lost, and a new process takes over."""

    async def test() -> None:
        async with ready_pool(memory_bytes=LIMIT_BYTES) as one:
            first = one.workers.pids()[0]
            one.send(0, "grow 100", b"beside it")
            sent = answered = 0
            while one.workers.pids()[0] == first or answered < sent:
                if one.workers.pids()[0] == first:
                    one.send(0, f"{sent}")
                    sent += 1
                kind, _, replies = await one.next()
                assert kind == "done"
                if len(replies) == 1:
                    assert replies[0].body == f"{answered}".encode()
                    answered += 1
            await ended(first)
            await one.serves()
            assert one.replaced == 1
            looking = one.workers._looking
            assert looking is not None
            # Otherwise a model that needs this memory for each batch would be started again and again.
            assert looking.when() - asyncio.get_running_loop().time() > 20.0
            assert one.said.empty()

    run(test)


def test_requests_during_a_replacement_go_to_the_successor(fifo: Callable[[str], Told]) -> None:
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with grown(here) as one:
            old, new = one.workers.pids()[0], heir(one).child.pid
            one.send(0, "pid")
            with pytest.raises(RuntimeError, match="worker 0"):
                one.workers.send(0, [])
            go.tell()
            assert (await one.next())[0] == "done"
            assert (await one.next())[2][0].body == b"%d" % new
            await ended(old)
            await one.serves()

    run(test)


def test_two_batches_are_the_most_also_then(fifo: Callable[[str], Told]) -> None:
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with grown(here) as one:
            one.send(0, "pid")
            with pytest.raises(RuntimeError, match="worker 0"):
                one.send(0, "a third")
            go.tell()
            assert [(await one.next())[0] for _ in range(2)] == ["done", "done"]

    run(test)


def test_a_successor_takes_over_at_once_when_the_old_dies(fifo: Callable[[str], Told]) -> None:
    here, _ = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with grown(here) as one:
            new = heir(one).child.pid
            one.send(0, b"second", b"batch")
            os.kill(one.workers.pids()[0], signal.SIGKILL)
            assert await one.next() == ("lost", 0, "Killed (signal 9)", 3)
            assert one.back_in_s == [0.0]
            assert await one.next() == ("ready", 0)
            assert one.workers.pids() == {0: new}
            await one.serves()
            await one.serves()

    run(test)


def test_the_successor_dies_and_the_old_one_goes_on(fifo: Callable[[str], Told]) -> None:
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with grown(here) as one:
            old = one.workers.pids()[0]
            one.send(0, "pid")
            os.kill(heir(one).child.pid, signal.SIGKILL)
            await until(lambda: one.workers._heir is None)
            go.tell()
            assert (await one.next())[0] == "done"
            assert (await one.next())[2][0].body == b"%d" % old
            assert one.replaced == 0

    run(test)


def test_a_stop_finishes_what_was_held_for_the_successor(fifo: Callable[[str], Told]) -> None:
    here, go = fifo("here"), fifo("here.go")

    async def test() -> None:
        async with grown(here) as one:
            one.send(0, "second")
            stopping = asyncio.create_task(one.workers.stop(LONG_S))
            await asyncio.sleep(0)
            go.tell()
            assert [(await one.next())[0] for _ in range(2)] == ["done", "done"]
            await stopping
            assert one.said.empty()

    run(test)


def test_a_stop_ends_a_successor_that_loads(tmp_path: Path) -> None:
    """Neither process is left."""

    async def test() -> None:
        async with ready_pool(memory_bytes=LIMIT_BYTES) as one:
            await one.text(0, "grow 100")
            one.workers._look()
            assert not heir(one).ready

    run(test)


def test_a_successor_that_does_not_load_is_tried_again_later(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.touch()

    async def test() -> None:
        async with ready_pool(memory_bytes=LIMIT_BYTES, reference=f"once {weights}") as one:
            pid = int(await one.text(0, "grow 100"))
            one.workers._look()
            await until(lambda: one.workers._heir is None)
            await one.serves()
            assert one.workers.pids() == {0: pid}
            assert one.said.empty()

    run(test)


def test_a_model_larger_than_the_limit_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with ready_pool(memory_bytes=LIMIT_BYTES, reference="large 120") as one:
            one.workers._look()
            assert one.workers._heir is None
            await one.serves()

    run(test)
    assert "takes more memory than its worker may" in caplog.text


def test_memory_is_checked_periodically_without_shared_memory() -> None:
    """Bodies lie in memory that the bouncer has given; a small worker stays, a large one goes without being asked."""

    async def test() -> None:
        async with ready_pool(memory_bytes=LIMIT_BYTES) as one:
            pid = one.workers.pids()[0]
            process = one.workers._processes[0]
            before = process.memory_bytes()
            await one.ask(0, "none", b"x" * (64 << 20))
            assert process.memory_bytes() < before + (32 << 20)
            await one.text(0, "grow 100")
            await until(lambda: one.workers.pids()[0] != pid)
            await ended(pid)

    run(test)
