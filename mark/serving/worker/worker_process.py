"""One run of a worker process as the bouncer holds it: its channel, its arenas, its end.

Processes that a worker starts are in its process group and end with it: the bouncer ends the group, and if the bouncer
itself is killed, the kernel does (`mark.serving.worker.worker`). The bouncer also finds processes that left the group
(setsid) by their environment (`mark.serving.worker.descendants`); the kernel does not.
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
    """The memory of a batch and its replies."""

    def __init__(self, calls: Arena, replies: Arena) -> None:
        self.calls, self.replies = calls, replies
        self.large = False


class WorkerProcess:
    """One run of a worker. `now_s` is the loop's time. Raises OSError if the process cannot be started.

    Until its `child` is waited for, no other process can have its id.
    """

    timer: asyncio.TimerHandle
    killing: asyncio.TimerHandle | None = None  # set when it is killed: at its end the process counts as ended

    def __init__(
        self, arguments: list[str], environment: dict[str, str], now_s: float, spawn: Spawn = OwnChild
    ) -> None:
        self.ready = False
        self.silent = False  # its messages are ignored
        self.batches: deque[tuple[int, Slot]] = deque()  # its batches in order: number of calls, and slot
        self.sent = 0  # batches so far; slots are used in turns
        self.load_s = 0.0
        self.said = b""  # metadata of the model, in JSON
        self.bounded = True  # whether its memory is limited; not if the model alone exceeds the limit
        self.since_s = now_s  # when its current work began
        self.reason = ""
        self.lied = False  # it sent something else than an answer to its first batch
        self.at_next = False  # at its end it had the results of its batch, and was at the next one
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
        """Hand over a batch; at most SLOTS at a time. Raises OSError or MemoryError if memory is short."""
        if not self.batches:
            self.since_s = now_s
        slot = self.slots[self.sent % SLOTS]
        self.sent += 1
        self.batches.append((len(calls), slot))
        slot.replies.begin()
        size = slot.calls.write_calls(calls)
        slot.large = size > KEEP_BYTES
        with suppress(ConnectionError):  # the process has just ended
            self.channel.send(BATCH.pack(size))

    def memory_bytes(self) -> int:
        """Return its private memory, without shared memory and pages that files could restore; 0 after its end."""
        try:
            pages = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        except OSError:
            return 0
        return (int(pages[1]) - int(pages[2])) * _PAGE_BYTES

    def ask_to_end(self) -> None:
        """Ask it to end after its current batches."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        if not self.ready:  # it does not read the channel yet
            self.child.terminate()

    def kill(self, reason: str) -> None:
        """Kill it with all processes that it started."""
        self.reason = self.reason or reason
        self.child.kill()

    def reap(self) -> str:
        """Release an ended process and end the processes that it started; return why it ended."""
        self.at_next = not self.lied and len(self.batches) > 1 and self.batches[0][1].replies.promised
        self._held.close()
        code = self._code
        if self.reason:
            return self.reason
        return f"{signal.strsignal(-code)} (signal {-code})" if code < 0 else f"exit code {code}"

    def _wait(self) -> None:
        self._code = self.child.wait()
