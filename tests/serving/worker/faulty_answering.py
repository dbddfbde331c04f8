"""Answers that go wrong in every way, for worker processes: the body of a batch's first call names the fault."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.models.call import Call, Reply
from mark.serving.worker.shared_memory import DONE, Arena
from mark.serving.worker.worker_loop import Loaded, Stages

AHEAD = "FAULTY_AHEAD"  # from the environment: a second thread, from the first batch on


def load(reference: str, search: Path, name: str, version: str) -> Loaded:
    what, _, where = reference.partition(" ")
    if what == "raises":
        raise ValueError("no\nweights")
    if what == "ends":
        raise EOFError  # with the F before it as long as the news that it has loaded
    if what == "refuses":
        raise BadInput("no such class", "model", "Nowhere")
    if what == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hangs":
        tell(where)
        signal.pause()
    if what == "needs":  # a file; says each time that it has looked
        found = Path(where).exists()
        tell(where + ".looked")
        if not found:
            raise FileNotFoundError(where)
    if what == "says":
        return Loaded(answer, b'"' + b"x" * int(where) + b'"')
    if what == "large":
        KEPT.append(b"x" * (int(where) << 20))
    if what == "once":  # the first of these processes loads, others fail
        Path(where).rename(where + ".loaded")
    if what == "then-hangs":  # all but the first
        try:
            Path(where).rename(where + ".loaded")
        except FileNotFoundError:
            signal.pause()
    if AHEAD in os.environ:
        return Loaded(Stages(opened, predict, hold, encode), ahead_after=0)
    return Loaded(answer)


def opened(calls: Sequence[Call]) -> list[Any]:
    """Return the calls, and a place for their replies."""
    if calls[0].body == b"undecodable":
        raise ArithmeticError("undecodable")
    what, _, where = bytes(calls[0].body[:200]).decode("latin-1").partition(" ")
    if what == "decoded":
        tell(where)
    return [calls, None]


def predict(opened: list[Any]) -> None:
    assert threading.current_thread() is threading.main_thread()
    opened[1] = answer(opened[0])


def hold(opened: list[Any]) -> bool:
    return True


def encode(opened: list[Any]) -> list[Reply]:
    if b"stuck" in bytes(opened[0][0].body[:200]) and threading.current_thread() is not threading.main_thread():
        signal.pause()
    return list(opened[1])


def tell(path: str) -> None:
    with open(path, "wb", buffering=0) as fifo:
        fifo.write(b"x")


def answer(calls: Sequence[Call]) -> list[Reply]:
    what, _, where = bytes(calls[0].body[:200]).decode("latin-1").partition(" ")
    done = ACTIONS.get(what, echo)(calls, where)
    return done if isinstance(done, list) else [Reply(200, "text/plain", str(done).encode())] * len(calls)


def echo(calls: Sequence[Call], _: str) -> list[Reply]:
    return [Reply(200, call.content_type, call.body, call.json_bytes) for call in calls]


def until_told(calls: Sequence[Call], where: str) -> list[Reply]:
    tell(where)
    with open(where + ".go", "rb") as fifo:
        fifo.read(1)
    if "stuck" in where:
        time.sleep(0.2)  # the other thread tells a moment before it is where it should be
    return echo(calls, where)


def tried(calls: Sequence[Call], where: str) -> str:
    """Open a file, or send a signal to a process, and return the exception's name or that it was done."""
    try:
        if where.isdecimal():
            os.kill(int(where), 0)
        else:
            open(where).close()
    except OSError as error:
        return type(error).__name__
    return "done"


def hang(calls: Sequence[Call], where: str) -> None:
    if where:
        tell(where)
    while True:
        signal.pause()


def family(calls: Sequence[Call], _: str) -> str:
    """Return the process ids of children in every form, one made by a thread that has ended, and of a child's child."""
    found, theirs = os.pipe()

    def fork(then: Callable[[], object] = lambda: None) -> None:
        if not os.fork():
            then()
            os.write(theirs, b"%d " % os.getpid())
            while True:
                signal.pause()

    fork(fork)
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    pids = b""
    while pids.count(b" ") < 3:
        pids += os.read(found, 100)
    KEPT.append(subprocess.Popen(["sleep", "1000"]))
    for method in ("fork", "spawn"):
        context: Any = multiprocessing.get_context(method)
        one = context.Process(target=time.sleep, args=(1000,), daemon=True)
        one.start()
        KEPT.append(one)
    return pids.decode() + " ".join(str(one.pid) for one in KEPT)


def sessions(calls: Sequence[Call], _: str) -> str:
    """Return process ids of a child in a new session, and of a daemon, whose parent has ended."""
    own = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    KEPT.append(own)
    shell = subprocess.run(
        ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    return f"{own.pid} {shell.stdout.strip()}"


def grow(calls: Sequence[Call], mib: str) -> int:
    """Take this much memory and keep it."""
    KEPT.append(b"x" * (int(mib) << 20))
    return os.getpid()


def fail(calls: Sequence[Call], where: str) -> None:
    raise ArithmeticError(where)


def send(message: bytes) -> None:
    os.write(int(sys.argv[1].split(",")[0]), message)


def wrong_count(calls: Sequence[Call], _: str) -> None:
    size = Arena(int(sys.argv[1].split(",")[2])).write_replies([Reply(200, "text/plain", b"?")] * (len(calls) + 1))
    send(DONE.pack(b"D", size, 0.0))
    hang(calls, "")


KEPT: list[Any] = []
ACTIONS: dict[str, Callable[[Sequence[Call], str], object]] = {
    "tried": tried,
    "pid": lambda *_: os.getpid(),
    "environment": lambda _, name: os.environ[name],
    "modules": lambda *_: " ".join(sys.modules),
    "spawn": lambda *_: subprocess.Popen(["sleep", "1000"]).pid,
    "family": family,
    "sessions": sessions,
    "grow": grow,
    "close": lambda *_: os.closerange(3, 100),
    "away": lambda *_: os.chdir("/"),
    "mute": lambda *_: os.closerange(1, 3),
    "print": lambda _, text: print(text),
    "told": until_told,
    "hang": hang,
    "exit": lambda *_: os._exit(3),
    "decoded": lambda *_: os._exit(3),
    "leave": lambda *_: sys.exit(4),
    "segfault": lambda *_: ctypes.string_at(0),
    "raise": fail,
    "few": lambda calls, _: echo(calls, _)[1:],
    "none": lambda calls, _: [None] * len(calls),
    "text": lambda calls, _: [Reply(200, "text/plain", "no bytes")] * len(calls),  # type: ignore[arg-type]
    "babble": lambda *_: send(b"no message"),
    "boast": lambda *_: send(DONE.pack(b"D", 1 << 50, 0.0)),
    "wrong-count": wrong_count,
}
