"""The bouncer's side of its worker processes: start, feed, watch, restart, stop.

A worker does one batch at a time, and may have the next one already. Everything happens in callbacks on the loop. What
a model prints goes to the bouncer's standard error as it is, and so does the traceback of a model that fails.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from mark.models.call import Call, Reply
from mark.serving.arena import BATCH, DONE, FAILED, KEEP_BYTES, LOADED, MESSAGE_BYTES, SLOTS, Arena, Malformed

# A process that closed its channel has ended, or is about to.
ENDING_S = 0.5

_log = logging.getLogger(__name__)


def backoff_s(losses: int) -> float:
    """How long a worker waits for its start after so many losses without one finished batch in between."""
    return 0.0 if losses <= 1 else min(30.0, 0.1 * 2.0 ** min(losses - 2, 10))


class Workers:
    """`count` processes that have the model `reference`, found from the folder `search`.

    Callbacks, with workers numbered from 0; each worker's come in the order (ready, done*, lost)*:
    on_ready(worker, load_s, said): from the start of the process until it had loaded the model and warmed up; what it
    says of the model, in JSON.
    on_done(worker, replies, service_s): one reply for each call, in order; time within the worker. May send at once.
    on_lost(worker, reason, back_in_s): the process is gone, and with it its batch if it had one. It is started again by
    itself: at once, then after growing waits while it finishes no batch. Ready in `back_in_s` if it loads as before.
    on_failed(reason): once at most: the very first load failed, or `tries` in a row while no worker was ready.

    A batch sent ends in exactly one on_done or, with all that the worker has, on_lost. `threads` is what numerical
    libraries of one worker may use; a batch that takes longer than `hang_s`, or a load longer than `load_limit_s`,
    costs the process its life.
    Call from one thread, which must outlive the processes: they die with it.
    """

    def __init__(
        self,
        reference: str,
        search: Path,
        count: int,
        *,
        on_ready: Callable[[int, float, bytes], None],
        on_done: Callable[[int, list[Reply], float], None],
        on_lost: Callable[[int, str, float], None],
        on_failed: Callable[[str], None],
        threads: int | None = None,
        hang_s: float = 60.0,
        load_limit_s: float = 900.0,
        tries: int = 5,
        name: str = "model",
        version: str = "",
        loader: str = "mark.serving.worker:load",
    ) -> None:
        self.reference, self.count = reference, count
        self._arguments = [reference, str(search.resolve()), name, version, loader]
        self._on_ready, self._on_done, self._on_lost, self._on_failed = on_ready, on_done, on_lost, on_failed
        self._environment = dict(os.environ)
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                self._environment[name] = str(threads)
        self._hang_s, self._load_limit_s, self._tries = hang_s, load_limit_s, tries
        self._processes: dict[int, _Process] = {}
        self._losses = [0] * count  # of each worker, since it last finished a batch
        self._failed_loads = 0  # of all workers, since one was last ready
        self._was_ready = self._has_failed = self._stopping = False
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Start all. What becomes of them is told by callbacks."""
        self._loop = asyncio.get_running_loop()
        for worker in range(self.count):
            self._start(worker)

    def send(self, worker: int, calls: Sequence[Call]) -> None:
        """Hand a batch to a worker that is ready and has at most one. The calls' bodies are copied."""
        process = self._processes.get(worker)
        if process is None or not process.ready or len(process.batches) == SLOTS or not calls:
            raise RuntimeError(f"worker {worker} can take no batch now, or the batch is empty")
        if not process.batches:
            process.since_s = self._loop.time()
        slot = process.slots[process.sent % SLOTS]
        process.sent += 1
        process.batches.append((len(calls), slot))
        try:
            size = slot.calls.write_calls(calls)
        except (OSError, MemoryError) as error:
            self._condemn(process, f"there is no memory for its batch: {error}")
            return
        slot.large = size > KEEP_BYTES
        with suppress(ConnectionError):  # it has just died: on_lost follows
            process.channel.send(BATCH.pack(size))

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that live."""
        return {worker: process.popen.pid for worker, process in self._processes.items()}

    async def stop(self, timeout_s: float) -> None:
        """End all and wait for it; nothing is left behind. What takes longer than `timeout_s` is killed.

        A batch under way is finished. Workers without one end without an on_lost.
        """
        self._stopping = True
        if not self._processes:
            return
        for process in self._processes.values():
            process.ask_to_end()
        late = self._loop.call_later(timeout_s, self._kill_all)
        try:
            await self._ended.wait()
        finally:
            late.cancel()
            self._kill_all()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill("did not end in time")

    def _start(self, worker: int) -> None:
        if self._stopping:
            return
        try:
            process = _Process(self._arguments, self._environment, self._loop.time())
        except OSError as error:
            self._not_loaded(worker, f"no process to be had: {error}")
            return
        self._processes[worker] = process
        self._loop.add_reader(process.channel, self._heard, worker, process)
        self._loop.add_reader(process.pidfd, self._gone, worker, process)
        self._watch(process)

    def _heard(self, worker: int, process: _Process) -> bool:
        """Take one message; False where there was none."""
        try:
            message = process.channel.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return False
        except ConnectionError:
            message = b""
        if len(message) == DONE.size and process.batches:
            self._done(worker, process, message)
        elif len(message) == LOADED.size and not process.ready:
            self._ready(worker, process, message)
        elif message.startswith(FAILED):
            process.reason = message[1:].decode(errors="replace")
        elif message:
            self._condemn(process, "sent what is no answer")
        else:
            self._hear_no_more(process)
            process.timer.cancel()
            process.timer = self._loop.call_later(ENDING_S, process.kill, "closed its channel and did not end")
        return bool(message)

    def _done(self, worker: int, process: _Process, message: bytes) -> None:
        _, size, service_s = DONE.unpack(message)
        calls, slot = process.batches[0]
        try:
            replies = slot.replies.read_replies(size)
        except Malformed as error:
            self._condemn(process, f"sent what is no answer: {error}")
            return
        if len(replies) != calls:
            self._condemn(process, f"sent {len(replies)} replies to {calls} calls")
            return
        if slot.large or size > KEEP_BYTES:
            slot.calls.trim()
            slot.replies.trim()
        process.batches.popleft()
        process.since_s = self._loop.time()
        self._losses[worker] = 0
        self._on_done(worker, replies, service_s)

    def _ready(self, worker: int, process: _Process, message: bytes) -> None:
        try:
            (said,) = process.slots[0].replies.read_replies(LOADED.unpack(message)[1])
        except (Malformed, ValueError) as error:
            self._condemn(process, f"sent what is no answer: {error}")
            return
        now_s = self._loop.time()
        process.load_s = now_s - process.since_s
        process.ready, process.since_s = True, now_s
        self._was_ready, self._failed_loads = True, 0
        process.timer.cancel()
        self._watch(process)
        self._on_ready(worker, process.load_s, bytes(said.body))

    def _watch(self, process: _Process) -> None:
        """One timer for a process, not for a batch: it looks when the present work would be overdue."""
        limit_s = self._hang_s if process.ready else self._load_limit_s
        left_s = limit_s
        if process.batches or not process.ready:
            left_s -= self._loop.time() - process.since_s
        if left_s <= 0:
            self._condemn(process, f"{'no answer' if process.ready else 'not loaded'} within {limit_s:g} s")
        else:
            process.timer = self._loop.call_later(left_s, self._watch, process)

    def _condemn(self, process: _Process, reason: str) -> None:
        """Kill, and hear no more from it."""
        self._hear_no_more(process)
        process.kill(reason)

    def _hear_no_more(self, process: _Process) -> None:
        process.silent = True
        self._loop.remove_reader(process.channel)

    def _gone(self, worker: int, process: _Process) -> None:
        """The process has ended; it may have said something before."""
        while not process.silent and self._heard(worker, process):
            pass
        self._hear_no_more(process)
        self._loop.remove_reader(process.pidfd)
        process.timer.cancel()
        reason = process.reap()
        del self._processes[worker]
        if self._stopping and not self._processes:
            self._ended.set()
        if not process.ready:
            self._not_loaded(worker, reason)
        elif process.batches or not self._stopping:
            wait_s = self._start_later(worker, reason)
            self._on_lost(worker, reason, wait_s + process.load_s)

    def _not_loaded(self, worker: int, reason: str) -> None:
        if self._stopping or self._has_failed:
            return
        self._failed_loads += 1
        allowed = self._tries if self._was_ready else 1
        if self._failed_loads >= allowed and not any(process.ready for process in self._processes.values()):
            self._has_failed = True
            self._on_failed(f"{self.reference}: {reason}")
        else:
            self._start_later(worker, reason)

    def _start_later(self, worker: int, reason: str) -> float:
        """In how many seconds."""
        if self._stopping:
            return math.inf
        self._losses[worker] += 1
        wait_s = backoff_s(self._losses[worker])
        _log.warning("worker %d is lost (%s) and starts again in %g s", worker, reason, wait_s)
        self._loop.call_later(wait_s, self._start, worker)
        return wait_s


class _Slot:
    """Where a batch and its replies lie."""

    def __init__(self, calls: Arena, replies: Arena) -> None:
        self.calls, self.replies = calls, replies
        self.large = False


class _Process:
    """One life of a worker."""

    timer: asyncio.TimerHandle

    def __init__(self, arguments: list[str], environment: dict[str, str], now_s: float) -> None:
        self.ready = False
        self.silent = False  # no more messages are wanted, or will come
        self.batches: deque[tuple[int, _Slot]] = deque()  # what it has, in order: calls, and where
        self.sent = 0  # batches so far; slots take turns
        self.load_s = 0.0
        self.since_s = now_s  # when it began what it does now
        self.reason = ""
        with ExitStack() as held:
            self.slots = [
                _Slot(*(held.enter_context(closing(Arena.create(name))) for name in ("mark-calls", "mark-replies")))
                for _ in range(SLOTS)
            ]
            self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            held.enter_context(self.channel)
            self.channel.setblocking(False)
            with theirs:
                arenas = [arena.fd for slot in self.slots for arena in (slot.calls, slot.replies)]
                self.popen = _popen([theirs.fileno(), *arenas], arguments, environment)
            held.callback(self.popen.wait)
            held.callback(self.kill, "")
            self.pidfd = os.pidfd_open(self.popen.pid)
            held.callback(os.close, self.pidfd)
            self._held = held.pop_all()

    def ask_to_end(self) -> None:
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        if not self.ready:  # does not listen yet
            self.popen.terminate()

    def kill(self, reason: str) -> None:
        """With all processes that it has started. Until somebody has waited for it, nobody else can have its id."""
        self.reason = self.reason or reason
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Of a process that has ended: end what it has started, let go of everything; why it ended."""
        self._held.close()
        code = self.popen.returncode
        if self.reason:
            return self.reason
        return f"{signal.strsignal(-code)} (signal {-code})" if code < 0 else f"exit code {code}"


def _popen(fds: list[int], arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # -P: a mark.py where the user stands must not hide ours. A group of its own: what a terminal or a shell sends to
    # the bouncer's group would end the worker before the bouncer has drained.
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", "mark.serving.worker"]
    return subprocess.Popen(
        [*command, ",".join(map(str, fds)), str(os.getpid()), *arguments],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=2,
        env=environment,
        process_group=0,
    )
