"""One life of a worker process, as the bouncer holds it: its channel, its arenas, its end.

Whatever a worker has started is in its process group, and ends with it: the bouncer ends the group, and where the
bouncer is killed itself the kernel does (`mark.serving.worker.worker`). What leaves the group (setsid) the bouncer
finds by its environment (`mark.serving.worker.descendants`), but the kernel does not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from mark.models.call import Call
from mark.serving.worker.child import OwnChild, Spawn
from mark.serving.worker.shared_memory import BATCH, KEEP_BYTES, SLOTS, Arena

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Slot:
    """Where a batch and its replies lie."""

    def __init__(self, calls: Arena, replies: Arena) -> None:
        self.calls, self.replies = calls, replies
        self.large = False


class WorkerProcess:
    """One life of a worker. `now_s` is the loop's time; raises OSError where there is no process to be had.

    Until its `child` is waited for, no other process can have its id.
    """

    timer: asyncio.TimerHandle
    killing: asyncio.TimerHandle | None = None  # since it was killed: when it counts as gone without a word

    def __init__(
        self, arguments: list[str], environment: dict[str, str], now_s: float, spawn: Spawn = OwnChild
    ) -> None:
        self.ready = False
        self.silent = False  # no more messages are wanted, or will come
        self.batches: deque[tuple[int, Slot]] = deque()  # what it has, in order: calls, and where
        self.sent = 0  # batches so far; slots take turns
        self.load_s = 0.0
        self.said = b""  # of the model, in JSON
        self.bounded = True  # its memory: not where the model alone takes more than it may
        self.since_s = now_s  # when it began what it does now
        self.reason = ""
        self.lied = False  # what it said of its first batch is no answer
        self.at_next = False  # when it ended: it had the results of its batch, and was at the one behind it
        with ExitStack() as held:
            self.slots = [
                Slot(*(held.enter_context(closing(Arena.create(name))) for name in ("mark-calls", "mark-replies")))
                for _ in range(SLOTS)
            ]
            self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            held.enter_context(self.channel)
            self.channel.setblocking(False)
            lifeline, ours = os.pipe()
            held.callback(os.close, ours)
            try:
                arenas = [arena.fd for slot in self.slots for arena in (slot.calls, slot.replies)]
                self.child = spawn([theirs.fileno(), *arenas], lifeline, arguments, environment)
            finally:
                theirs.close()
                os.close(lifeline)
            held.callback(self._wait)
            held.callback(self.kill, "")
            self._held = held.pop_all()

    def hand(self, calls: Sequence[Call], now_s: float) -> None:
        """A batch, of at most SLOTS. Raises OSError or MemoryError where there is no memory for it."""
        if not self.batches:
            self.since_s = now_s
        slot = self.slots[self.sent % SLOTS]
        self.sent += 1
        self.batches.append((len(calls), slot))
        slot.replies.begin()
        size = slot.calls.write_calls(calls)
        slot.large = size > KEEP_BYTES
        with suppress(ConnectionError):  # it has just died
            self.channel.send(BATCH.pack(size))

    def memory_bytes(self) -> int:
        """What it has for itself, without what it shares with others or could read anew from files; 0: it is gone."""
        try:
            pages = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        except OSError:
            return 0
        return (int(pages[1]) - int(pages[2])) * _PAGE_BYTES

    def ask_to_end(self) -> None:
        """After the batches that it has."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        if not self.ready:  # does not listen yet
            self.child.terminate()

    def kill(self, reason: str) -> None:
        """With all processes that it has started."""
        self.reason = self.reason or reason
        self.child.kill()

    def reap(self) -> str:
        """Of a process that has ended: end what it has started, let go of everything; why it ended."""
        self.at_next = not self.lied and len(self.batches) > 1 and self.batches[0][1].replies.promised
        self._held.close()
        code = self._code
        if self.reason:
            return self.reason
        return f"{signal.strsignal(-code)} (signal {-code})" if code < 0 else f"exit code {code}"

    def _wait(self) -> None:
        self._code = self.child.wait()
