"""Answers that go wrong in every way, for worker processes: what a batch does stands in the body of its first call."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mark.domain.errors import BadInput
from mark.models.call import Call, Reply
from mark.serving.arena import DONE, Arena
from mark.serving.worker import Loaded


def load(reference: str, search: Path, name: str, version: str) -> Loaded:
    what, _, where = reference.partition(" ")
    if what == "raises":
        raise ValueError("no\nweights")
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
    return Loaded(answer)


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
    return echo(calls, where)


def hang(calls: Sequence[Call], where: str) -> None:
    if where:
        tell(where)
    while True:
        signal.pause()


def fail(calls: Sequence[Call], where: str) -> None:
    raise ArithmeticError(where)


def send(message: bytes) -> None:
    os.write(int(sys.argv[1].split(",")[0]), message)


def wrong_count(calls: Sequence[Call], _: str) -> None:
    size = Arena(int(sys.argv[1].split(",")[2])).write_replies([Reply(200, "text/plain", b"?")] * (len(calls) + 1))
    send(DONE.pack(b"D", size, 0.0))
    hang(calls, "")


ACTIONS: dict[str, Callable[[Sequence[Call], str], object]] = {
    "pid": lambda *_: os.getpid(),
    "environment": lambda _, name: os.environ[name],
    "modules": lambda *_: " ".join(sys.modules),
    "spawn": lambda *_: subprocess.Popen(["sleep", "1000"]).pid,
    "print": lambda _, text: print(text),
    "told": until_told,
    "hang": hang,
    "exit": lambda *_: os._exit(3),
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
