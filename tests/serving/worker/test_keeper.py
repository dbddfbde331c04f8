"""Workers of another user: the limits of their rights, and that none of their processes outlives its bouncer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mark.serving.worker.child import KEPT_BYTES, KeptChild
from tests.serving.worker.listening import keepers, python_of
from tests.serving.worker.test_worker_process import BOUNCER, gone
from tests.serving.worker.test_workers import LONG_S, pool, ready_pool, run

NOBODY = 65534


@pytest.fixture
def socket_path(tmp_path: Path) -> Iterator[Path]:
    with keepers(tmp_path / "keepers") as path:
        yield path


def test_a_worker_has_another_user_and_no_right_of_ours(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a keeper as another user")
    if python_of(NOBODY) is None:
        pytest.skip("no Python of this version that another user may run")
    secret = tmp_path / "keys"
    secret.write_text("a key")
    secret.chmod(0o600)

    async def test() -> None:
        with keepers(tmp_path / "keepers", NOBODY) as path:
            async with ready_pool(spawn=KeptChild.through(path)) as one:
                await one.serves()
                worker = psutil.Process(one.workers.pids()[0])
                assert set(worker.uids()) == set(worker.gids()) == {NOBODY}
                status = Path(f"/proc/{worker.pid}/status").read_text()
                said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
                assert said["Groups"].strip() == ""
                assert int(said["CapPrm"], 16) == int(said["CapEff"], 16) == int(said["CapAmb"], 16) == 0
                assert await one.text(0, f"tried {secret}") == "PermissionError"
                assert await one.text(0, f"tried /proc/{os.getpid()}/environ") == "PermissionError"
                assert await one.text(0, f"tried {os.getpid()}") == "PermissionError"
                os.kill(worker.pid, signal.SIGKILL)
                assert await one.next() == ("lost", 0, "Killed (signal 9)", 0)
                assert await one.next() == ("ready", 0)
                await one.serves()
                again = one.workers.pids()[0]
            await gone(again)

    run(test)


def test_nothing_kept_outlives_a_bouncer_that_is_killed(socket_path: Path) -> None:
    kept = f"from mark.serving.worker.child import KeptChild\n{BOUNCER}".replace(
        "on_lost=print", f"on_lost=print, spawn=KeptChild.through(Path({str(socket_path)!r}))"
    )

    async def test() -> None:
        with subprocess.Popen([sys.executable, "-c", kept], stdout=subprocess.PIPE, text=True) as bouncer:
            assert bouncer.stdout is not None
            pids = [int(pid) for pid in bouncer.stdout.readline().split()]
            assert len(pids) == 7
            keeper = psutil.Process(pids[0]).ppid()
            bouncer.kill()
            for pid in (*pids, keeper):
                await gone(pid)

    run(test)


def test_a_keeper_that_is_killed_costs_its_worker_only(socket_path: Path) -> None:
    async def test() -> None:
        async with ready_pool(spawn=KeptChild.through(socket_path)) as one:
            worker = one.workers.pids()[0]
            os.kill(psutil.Process(worker).ppid(), signal.SIGKILL)
            assert (await one.next())[0] == "lost"
            assert await one.next() == ("ready", 0)
            await one.serves()
            await gone(worker)

    run(test)


@pytest.mark.slow
def test_a_stopped_keeper_cannot_keep_a_hung_worker(socket_path: Path) -> None:
    """A model may stop its keeper, which has the same user."""

    async def test() -> None:
        async with ready_pool(spawn=KeptChild.through(socket_path), hang_s=1.0) as one:
            worker = psutil.Process(one.workers.pids()[0])
            keeper = psutil.Process(worker.ppid())
            keeper.suspend()
            one.send(0, "hang")
            assert await one.next() == ("lost", 0, "no answer within 1 s", 1)
            await gone(worker.pid)
            assert await one.next() == ("ready", 0)
            await one.serves()
            keeper.resume()
            await gone(keeper.pid)

    run(test)


@pytest.mark.slow
def test_stopping_does_not_wait_for_a_stopped_keeper(socket_path: Path) -> None:
    async def test() -> None:
        async with ready_pool(spawn=KeptChild.through(socket_path)) as one:
            worker = psutil.Process(one.workers.pids()[0])
            keeper = psutil.Process(worker.ppid())
            keeper.suspend()
            await asyncio.wait_for(one.workers.stop(0.0), LONG_S)
            await gone(worker.pid)
            keeper.resume()
            await gone(keeper.pid)

    run(test)


@pytest.mark.slow
def test_stopping_does_not_wait_for_keepers_that_never_begin(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(tmp_path / "keepers"))
            door.listen()
            async with pool(spawn=KeptChild.through(tmp_path / "keepers")) as one:
                await asyncio.wait_for(one.workers.stop(0.0), LONG_S)

    run(test)


def test_the_keepers_environment_comes_first(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "0")
    monkeypatch.setenv("OURS", "2")

    async def test() -> None:
        async with ready_pool(spawn=KeptChild.through(socket_path)) as one:
            environment = psutil.Process(one.workers.pids()[0]).environ()
            assert (environment["KEPT"], environment["OURS"]) == ("1", "2")

    run(test)


def test_a_path_without_a_listener_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none: No such file or directory"):
        KeptChild.through(tmp_path / "none")([], 0, [], {})
    with pytest.raises(OSError, match="the environment and the arguments of a worker have"):
        KeptChild.through(tmp_path / "none")([], 0, [], {"large": "x" * KEPT_BYTES})
