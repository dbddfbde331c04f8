"""Processes that a model starts end with its worker and with the bouncer, however those end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.serving.worker.test_workers import HERE, ended, ready_pool, run

BOUNCER = f"""
import asyncio, threading
from pathlib import Path
from mark.models.call import Call
from mark.serving.worker.workers import WorkerEvents, WorkerModel, Workers

async def main():
    seen = asyncio.Queue()
    events = WorkerEvents(lambda *a: seen.put_nowait(a), lambda *a: seen.put_nowait(a), print, print)
    workers = Workers(WorkerModel("good", Path({str(HERE)!r}), loader="faulty_answering:load"), 1, events)
    workers.start()
    await seen.get()
    workers.send(0, [Call("oip", "", b"family")])
    _, (reply,), _ = await seen.get()
    workers.send(0, [Call("oip", "", b"hang")])
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    print(*workers.pids().values(), bytes(reply.body).decode(), flush=True)
    await seen.get()

asyncio.run(main())
"""


def test_nothing_outlives_a_bouncer_that_is_killed() -> None:
    """Forked, forked by a thread that has ended, spawned, exec'ed, and a child's child; while the worker hangs."""

    async def test() -> None:
        with subprocess.Popen([sys.executable, "-c", BOUNCER], stdout=subprocess.PIPE, text=True) as bouncer:
            assert bouncer.stdout is not None
            pids = [int(pid) for pid in (await asyncio.to_thread(bouncer.stdout.readline)).split()]
            assert len(pids) == 7
            bouncer.kill()
            for pid in pids:
                await gone(pid)

    run(test)


@pytest.mark.parametrize("started", ["family", "sessions"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_outlives_a_worker(end: signal.Signals | None, started: str) -> None:
    """Its group ends with a worker that is killed, asked to end or stopped, and so do processes in new sessions."""

    async def test() -> None:
        async with ready_pool() as one:
            pids = [one.workers.pids()[0], *map(int, (await one.text(0, started)).split())]
            if end is None:
                await one.workers.stop(30.0)
            else:
                os.kill(pids[0], end)
                assert (await one.next())[0] == "lost"
            for pid in pids:
                await gone(pid)

    run(test)


def test_a_worker_that_starts_after_its_bouncer_has_ended_ends() -> None:
    """The pipe's other end is closed before the worker listens for that."""
    lifeline, ours = os.pipe()
    os.close(ours)
    command = [
        sys.executable,
        "-m",
        "mark.serving.worker.worker",
        "0",
        str(lifeline),
        "good",
        ".",
        "m",
        "1",
        "none:none",
    ]
    worker = subprocess.run(command, pass_fds=[lifeline], timeout=30, capture_output=True, process_group=0)
    os.close(lifeline)
    assert (worker.returncode, worker.stderr) in ((1, b""), (-signal.SIGKILL, b""))


async def gone(pid: int) -> None:
    """Wait until it has ended; it may be a zombie."""
    with suppress(ProcessLookupError):
        await ended(pid)
