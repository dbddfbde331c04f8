"""The bouncer's side of its worker processes: start, feed, watch, restart, stop.

A worker serves one batch at a time, and may already have the next one. Everything happens in callbacks on the loop. The
output of a model and the traceback of a failing one go to the descriptor that `spawn` sets, standard error by default.

A worker that exceeds `memory_bytes` is replaced between two batches by a successor that has already loaded the model:
no request waits for it, and the callbacks of workers do not report it. There is one successor at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mark.models.call import Call, Reply
from mark.serving.worker.child import OwnChild, Spawn
from mark.serving.worker.shared_memory import DONE, FAILED, KEEP_BYTES, LOADED, MESSAGE_BYTES, SLOTS, Malformed
from mark.serving.worker.worker_process import WorkerProcess

# Seconds in which a process ends after it closed its channel, or, without work, after it was asked to end.
ENDING_S, LEAVING_S = 0.5, 10.0
# Seconds in which a keeper reports the end of a killed worker. A keeper that a model stopped, or that never started,
# does not report it.
KILLING_S = 2.0
_SLOWER = 10.0  # times the longest load so far; a later load may take this long
# Between checks of the workers' memory, and after a failed successor.
_LOOK_S, _NO_SUCCESSOR_S = 1.0, 30.0

_log = logging.getLogger(__name__)


def backoff_s(losses: int) -> float:
    """Return how long a worker's start waits after `losses` losses without a finished batch in between."""
    return 0.0 if losses <= 1 else min(30.0, 0.1 * 2.0 ** min(losses - 2, 10))


@dataclass(frozen=True, slots=True)
class WorkerModel:
    """The model that workers load: `reference`, found from the folder `search`, by the function `loader`."""

    reference: str
    search: Path
    name: str = "model"
    version: str = ""
    loader: str = "mark.serving.worker.loaders:load"


def _ignore() -> None:
    """Take no notice of a replaced worker."""


@dataclass(frozen=True, slots=True)
class WorkerEvents:
    """Callbacks, with workers numbered from 0; each worker's come in the order (ready, done*, lost)*.

    ready(worker, load_s, said): seconds from the start of the process until it had loaded the model and warmed up; the
    model's metadata in JSON.

    done(worker, replies, service_s): one reply for each call, in order; time within the worker. May send immediately.

    lost(worker, reason, back_in_s, at_next): the process has ended, and its batches are lost; `at_next`: it was at the
    second one, and had the results of the first, which are lost too. It is restarted automatically: immediately, then
    after growing waits while it finishes no batch. It is ready in `back_in_s` if it loads as before.

    failed(reason): called at most once: the very first load failed, or a later one when no worker was ready for
    `give_up_s`.

    replaced(): a worker that had grown too large has been replaced.
    """

    ready: Callable[[int, float, bytes], None]
    done: Callable[[int, list[Reply], float], None]
    lost: Callable[[int, str, float, bool], None]
    failed: Callable[[str], None]
    replaced: Callable[[], None] = _ignore


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """A process is killed if it exceeds a limit of time, and replaced if it exceeds `memory_bytes`.

    A batch may take `hang_s`, and a load `load_limit_s`, but no longer than both `hang_s` and ten times the longest
    load so far. `give_up_s` defaults to `hang_s`: a burst of kills (an OOM killer) must not end a server that can
    recover. `memory_bytes` is of one worker's process, without the processes it started.
    """

    hang_s: float = 60.0
    load_limit_s: float = 900.0
    memory_bytes: float = math.inf
    give_up_s: float | None = None


class Workers:
    """`count` processes that have the model.

    A batch sent ends in exactly one `done` or, together with the worker's other batches, one `lost`. `threads` is the
    number of threads of numerical libraries in one worker. `spawn` makes the processes.

    Call it from one thread, which must outlive the processes, because they end with it.
    """

    def __init__(
        self,
        model: WorkerModel,
        count: int,
        events: WorkerEvents,
        *,
        limits: WorkerLimits | None = None,
        threads: int | None = None,
        spawn: Spawn = OwnChild,
    ) -> None:
        self.reference, self.count = model.reference, count
        self._arguments = [model.reference, str(model.search.resolve()), model.name, model.version, model.loader]
        self._events = events
        self._environment = dict(os.environ)
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                self._environment[name] = str(threads)
        limits = limits or WorkerLimits()
        self._hang_s = limits.hang_s
        self._load_limit_s = limits.load_limit_s
        self._give_up_s = limits.hang_s if limits.give_up_s is None else limits.give_up_s
        self._memory_bytes = limits.memory_bytes
        self._spawn = spawn
        self._processes: dict[int, WorkerProcess] = {}
        self._heir: WorkerProcess | None = None  # the successor, while it loads or waits
        self._heir_of = -1  # the worker that it will replace
        self._held: list[Sequence[Call]] = []  # batches for the successor, while the worker finishes its own
        self._leaving: set[WorkerProcess] = set()  # replaced workers
        self._looking: asyncio.TimerHandle | None = None
        self._losses = [0] * count  # by worker, since it last finished a batch
        self._none_since_s: float | None = None  # since when no worker is ready, after one was
        self._longest_load_s = 0.0
        self._was_ready = self._has_failed = self._stopping = False
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Start all workers. Callbacks report their events."""
        self._loop = asyncio.get_running_loop()
        for worker in range(self.count):
            self._start(worker)
        if self._memory_bytes < math.inf:
            self._look_in(_LOOK_S)

    def send(self, worker: int, calls: Sequence[Call]) -> None:
        """Hand a batch to a ready worker that has at most one. The calls' bodies are copied."""
        process = self._processes.get(worker)
        held = self._held if worker == self._heir_of else ()
        if process is None or not process.ready or len(process.batches) + len(held) == SLOTS or not calls:
            raise RuntimeError(f"worker {worker} can take no batch now, or the batch is empty")
        if process.batches and self._heir is not None and self._heir.ready and worker == self._heir_of:
            self._held.append(calls)
        else:
            self._hand(process, calls)

    def pids(self) -> dict[int, int]:
        """Return the process ids of the living workers."""
        return {worker: process.child.pid for worker, process in self._processes.items()}

    async def stop(self, timeout_s: float) -> None:
        """End all workers and wait; no process is left.

        Batches in progress are finished. Workers are killed after `timeout_s`, which takes `KILLING_S` more at most.
        `lost` does not report workers that end without a batch.
        """
        self._stopping = True
        if self._looking is not None:
            self._looking.cancel()
        if self._heir is not None:
            self._no_successor("is not needed any more")
        if not any(self._all()):
            return
        for process in self._processes.values():
            process.ask_to_end()
        late = self._loop.call_later(timeout_s, self._kill_all)
        try:
            await self._ended.wait()
        finally:
            late.cancel()
            self._kill_all()

    def _all(self) -> Iterator[WorkerProcess]:
        return chain(self._processes.values(), self._leaving, () if self._heir is None else (self._heir,))

    def _kill_all(self) -> None:
        for process in self._all():
            self._kill(process, "did not end in time")

    def _kill(self, process: WorkerProcess, reason: str) -> None:
        process.kill(reason)
        if process.killing is None:
            process.killing = self._loop.call_later(KILLING_S, process.child.give_up)

    def _start(self, worker: int) -> None:
        if self._stopping:
            return
        try:
            self._processes[worker] = self._process(worker)
        except OSError as error:
            self._not_loaded(worker, f"no process to be had: {error}")

    def _process(self, worker: int) -> WorkerProcess:
        process = WorkerProcess(self._arguments, self._environment, self._loop.time(), self._spawn)
        self._loop.add_reader(process.channel, self._heard, worker, process)
        self._loop.add_reader(process.child.ended_fd, self._gone, worker, process)
        self._watch(process)
        return process

    def _hand(self, process: WorkerProcess, calls: Sequence[Call]) -> None:
        try:
            process.hand(calls, self._loop.time())
        except (OSError, MemoryError) as error:
            self._condemn(process, f"there is no memory for its batch: {error}")

    def _heard(self, worker: int, process: WorkerProcess) -> bool:
        """Take one message; return whether there was one."""
        try:
            message = process.channel.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return False
        except ConnectionError:
            message = b""
        kind = message[:1]
        if kind == b"D" and len(message) == DONE.size and process.batches:
            self._done(worker, process, message)
        elif kind == b"R" and len(message) == LOADED.size and not process.ready:
            self._ready(worker, process, message)
        elif kind == FAILED:
            process.reason = message[1:].decode(errors="replace")
        elif message:
            process.lied = True
            self._condemn(process, "sent something other than an answer")
        else:
            self._hear_no_more(process)
            process.timer.cancel()
            process.timer = self._loop.call_later(ENDING_S, self._kill, process, "closed its channel and did not end")
        return bool(message)

    def _done(self, worker: int, process: WorkerProcess, message: bytes) -> None:
        _, size, service_s = DONE.unpack(message)
        calls, slot = process.batches[0]
        try:
            replies = slot.replies.read_replies(size)
        except Malformed as error:
            process.lied = True
            self._condemn(process, f"sent something other than an answer: {error}")
            return
        if len(replies) != calls:
            process.lied = True
            self._condemn(process, f"sent {len(replies)} replies to {calls} calls")
            return
        if slot.large or size > KEEP_BYTES:
            slot.calls.trim()
            slot.replies.trim()
        process.batches.popleft()
        process.since_s = self._loop.time()
        self._losses[worker] = 0
        if worker == self._heir_of:
            self._succeed()
        self._events.done(worker, replies, service_s)

    def _ready(self, worker: int, process: WorkerProcess, message: bytes) -> None:
        try:
            (said,) = process.slots[0].replies.read_replies(LOADED.unpack(message)[1])
        except (Malformed, ValueError) as error:
            self._condemn(process, f"sent something other than an answer: {error}")
            return
        now_s = self._loop.time()
        process.load_s, process.said = now_s - process.since_s, bytes(said.body)
        process.ready, process.since_s = True, now_s
        self._was_ready, self._none_since_s = True, None
        self._longest_load_s = max(self._longest_load_s, process.load_s)
        process.timer.cancel()
        self._watch(process)
        if process.memory_bytes() > self._memory_bytes:
            process.bounded = False
            _log.warning("the model takes more memory than its worker may: that is not bounded")
        if process is self._heir:
            self._succeed()
        else:
            self._events.ready(worker, process.load_s, process.said)

    def _watch(self, process: WorkerProcess) -> None:
        """Check whether the current work is overdue, and set the timer to when it would be.

        There is one timer per process and not per batch.
        """
        limit_s = self._hang_s if process.ready else self._load_limit_s
        if not process.ready and self._was_ready:  # a load that takes far longer than all earlier ones has failed
            limit_s = min(limit_s, max(self._hang_s, _SLOWER * self._longest_load_s))
        left_s = limit_s
        if process.batches or not process.ready:
            left_s -= self._loop.time() - process.since_s
        if left_s <= 0:
            self._condemn(process, f"{'no answer' if process.ready else 'not loaded'} within {limit_s:g} s")
        else:
            process.timer = self._loop.call_later(left_s, self._watch, process)

    def _condemn(self, process: WorkerProcess, reason: str) -> None:
        """Kill the process, and read no more of its messages."""
        self._hear_no_more(process)
        self._kill(process, reason)

    def _hear_no_more(self, process: WorkerProcess) -> None:
        process.silent = True
        self._loop.remove_reader(process.channel)

    def _gone(self, worker: int, process: WorkerProcess) -> None:
        """Handle the end of a process, after reading its last messages."""
        if not process.child.ended():
            return
        while not process.silent and self._heard(worker, process):
            pass
        self._hear_no_more(process)
        self._loop.remove_reader(process.child.ended_fd)
        process.timer.cancel()
        if process.killing is not None:
            process.killing.cancel()
        reason = process.reap()
        if process is self._heir:
            self._no_successor(reason)
        elif process in self._leaving:
            self._leaving.remove(process)
        else:
            del self._processes[worker]
            self._lost(worker, process, reason)
        if self._stopping and not any(self._all()):
            self._ended.set()

    def _lost(self, worker: int, process: WorkerProcess, reason: str) -> None:
        if self._none_since_s is None and not any(one.ready for one in self._all()):
            self._none_since_s = self._loop.time()
        heir = self._heir if worker == self._heir_of else None
        if heir is not None:
            # The successor has loaded, or nearly; the batches held for it are lost with the others.
            self._processes[worker], self._heir, self._heir_of = heir, None, -1
            self._held.clear()
            _log.warning("worker %d is lost (%s); its successor takes over", worker, reason)
            waits_s = 0.0 if heir.ready else max(0.0, process.load_s - (self._loop.time() - heir.since_s))
            self._events.lost(worker, reason, waits_s, process.at_next)
            if heir.ready:
                self._events.ready(worker, heir.load_s, heir.said)
        elif not process.ready:
            self._not_loaded(worker, reason)
        elif process.batches or not self._stopping:
            wait_s = self._start_later(worker, reason)
            self._events.lost(worker, reason, wait_s + process.load_s, process.at_next)

    # Replacing workers that have grown too large

    def _look_in(self, seconds: float) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Check the memory of each worker; start a successor of the first that has too much."""
        self._look_in(_LOOK_S)
        if self._heir is not None:
            return
        for worker, process in self._processes.items():
            if process.ready and process.bounded and (has := process.memory_bytes()) > self._memory_bytes:
                _log.warning("worker %d has grown to %d MiB and is replaced", worker, has >> 20)
                self._heir_of = worker
                try:
                    self._heir = self._process(worker)
                except OSError as error:
                    self._no_successor(f"no process to be had: {error}")
                return

    def _succeed(self) -> None:
        """Let the successor take over if it is ready and the worker is idle."""
        worker, heir, process = self._heir_of, self._heir, self._processes.get(self._heir_of)
        if heir is None or not heir.ready or heir.silent or process is None or process.batches:
            return
        self._processes[worker], self._heir, self._heir_of = heir, None, -1
        self._events.replaced()
        # If the model's batches need this memory, the successor has it again soon, and replacing it would not help.
        self._look_in(_NO_SUCCESSOR_S)
        self._leaving.add(process)
        process.timer.cancel()
        process.timer = self._loop.call_later(LEAVING_S, self._kill, process, "did not end in time")
        process.ask_to_end()
        held, self._held = self._held, []
        for calls in held:
            self._hand(heir, calls)

    def _no_successor(self, reason: str) -> None:
        """Give up the successor for a while; the current worker continues."""
        heir, worker, held = self._heir, self._heir_of, self._held
        self._heir, self._heir_of, self._held = None, -1, []
        if not self._stopping:
            _log.warning("worker %d has no successor yet (%s)", worker, reason)
            self._look_in(_NO_SUCCESSOR_S)
        elif heir is not None:
            self._leaving.add(heir)
            self._kill(heir, reason)
        for calls in held:
            self._hand(self._processes[worker], calls)

    def _not_loaded(self, worker: int, reason: str) -> None:
        if self._stopping or self._has_failed:
            return
        since_s = self._none_since_s
        if not self._was_ready or (since_s is not None and self._loop.time() - since_s >= self._give_up_s):
            self._has_failed = True
            self._events.failed(f"{self.reference}: {reason}")
        else:
            self._start_later(worker, reason)

    def _start_later(self, worker: int, reason: str) -> float:
        """Schedule a restart of the worker; return the seconds until then."""
        if self._stopping:
            return math.inf
        self._losses[worker] += 1
        wait_s = backoff_s(self._losses[worker])
        _log.warning("worker %d is lost (%s) and starts again in %g s", worker, reason, wait_s)
        self._loop.call_later(wait_s, self._start, worker)
        return wait_s
