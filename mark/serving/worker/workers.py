"""The bouncer's side of its worker processes: start, feed, watch, restart, stop.

A worker does one batch at a time, and may have the next one already. Everything happens in callbacks on the loop. What
a model prints goes where `spawn` says, by default to standard error, and so does the traceback of a model that fails.

A worker that has grown beyond `memory_bytes` is replaced between two batches by a successor, which has loaded the model
by then: no request waits for that, and no callback reports it. There is one successor at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from mark.models.call import Call, Reply
from mark.serving.worker.child import OwnChild, Spawn
from mark.serving.worker.shared_memory import DONE, FAILED, KEEP_BYTES, LOADED, MESSAGE_BYTES, SLOTS, Malformed
from mark.serving.worker.worker_process import WorkerProcess

# A process that closed its channel has ended, or is about to; one without work that was asked to end does so.
ENDING_S, LEAVING_S = 0.5, 10.0
# For a keeper to say that a worker that was killed has ended: one that a model has stopped, or that never began, does
# not.
KILLING_S = 2.0
_SLOWER = 10.0  # times the longest load so far: what a later one may take
# Between looks at the workers' memory, and after a successor that could not be.
_LOOK_S, _NO_SUCCESSOR_S = 1.0, 30.0

_log = logging.getLogger(__name__)


def backoff_s(losses: int) -> float:
    """How long a worker waits for its start after `losses` losses without one finished batch in between."""
    return 0.0 if losses <= 1 else min(30.0, 0.1 * 2.0 ** min(losses - 2, 10))


class Workers:
    """`count` processes that have the model `reference`, found from the folder `search`.

    Callbacks, with workers numbered from 0; each worker's come in the order (ready, done*, lost)*:
    on_ready(worker, load_s, said): from the start of the process until it had loaded the model and warmed up; what it
    says of the model, in JSON.
    on_done(worker, replies, service_s): one reply for each call, in order; time within the worker. May send at once.
    on_lost(worker, reason, back_in_s, at_next): the process is gone, and with it its batches if it had any; `at_next`:
    it was at the second one, and had the results of the first, which are lost, too. It is started again by
    itself: at once, then after growing waits while it finishes no batch. Ready in `back_in_s` if it loads as before.
    on_failed(reason): once at most: the very first load failed, or a later one when none was ready for `give_up_s`.
    on_replaced(): a worker that had grown too large has been succeeded.

    A batch sent ends in exactly one on_done or, with all that the worker has, on_lost. `threads` is what numerical
    libraries of one worker may use; a batch that takes longer than `hang_s`, or a load longer than `load_limit_s`,
    costs the process its life, as does one that takes ten times as long as any so far, and longer than `hang_s`.
    `give_up_s` is `hang_s` unless said: a burst of kills (an OOM killer) must not end a server that can come back.
    `memory_bytes` is of one worker's process, not of what it has started. `spawn` makes the processes.
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
        on_lost: Callable[[int, str, float, bool], None],
        on_failed: Callable[[str], None],
        on_replaced: Callable[[], None] = lambda: None,
        threads: int | None = None,
        hang_s: float = 60.0,
        load_limit_s: float = 900.0,
        memory_bytes: float = math.inf,
        give_up_s: float | None = None,
        name: str = "model",
        version: str = "",
        loader: str = "mark.serving.worker.loaders:load",
        spawn: Spawn = OwnChild,
    ) -> None:
        self.reference, self.count = reference, count
        self._arguments = [reference, str(search.resolve()), name, version, loader]
        self._on_ready, self._on_done, self._on_lost, self._on_failed = on_ready, on_done, on_lost, on_failed
        self._environment = dict(os.environ)
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                self._environment[name] = str(threads)
        self._hang_s, self._load_limit_s = hang_s, load_limit_s
        self._give_up_s = hang_s if give_up_s is None else give_up_s
        self._memory_bytes, self._spawn = memory_bytes, spawn
        self._on_replaced = on_replaced
        self._processes: dict[int, WorkerProcess] = {}
        self._heir: WorkerProcess | None = None  # the successor, while it loads or waits
        self._heir_of = -1  # of which worker
        self._held: list[Sequence[Call]] = []  # batches for it, while the other one finishes its own
        self._leaving: set[WorkerProcess] = set()  # replaced
        self._looking: asyncio.TimerHandle | None = None
        self._losses = [0] * count  # of each worker, since it last finished a batch
        self._none_since_s: float | None = None  # since when no worker is ready, though one was
        self._longest_load_s = 0.0
        self._was_ready = self._has_failed = self._stopping = False
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Start all. Callbacks report what becomes of them."""
        self._loop = asyncio.get_running_loop()
        for worker in range(self.count):
            self._start(worker)
        if self._memory_bytes < math.inf:
            self._look_in(_LOOK_S)

    def send(self, worker: int, calls: Sequence[Call]) -> None:
        """Hand a batch to a worker that is ready and has at most one. The calls' bodies are copied."""
        process = self._processes.get(worker)
        held = self._held if worker == self._heir_of else ()
        if process is None or not process.ready or len(process.batches) + len(held) == SLOTS or not calls:
            raise RuntimeError(f"worker {worker} can take no batch now, or the batch is empty")
        if process.batches and self._heir is not None and self._heir.ready and worker == self._heir_of:
            self._held.append(calls)
        else:
            self._hand(process, calls)

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that live."""
        return {worker: process.child.pid for worker, process in self._processes.items()}

    async def stop(self, timeout_s: float) -> None:
        """End all and wait for it; nothing is left behind. What takes longer than `timeout_s` is killed.

        That takes `KILLING_S` more at most.

        A batch under way is finished. Workers without one end without an on_lost.
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
        """Take one message; False where there was none."""
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
        self._on_done(worker, replies, service_s)

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
            self._on_ready(worker, process.load_s, process.said)

    def _watch(self, process: WorkerProcess) -> None:
        """One timer for a process, not for a batch: it looks when the present work would be overdue."""
        limit_s = self._hang_s if process.ready else self._load_limit_s
        if not process.ready and self._was_ready:  # a load that takes far longer than any before has failed
            limit_s = min(limit_s, max(self._hang_s, _SLOWER * self._longest_load_s))
        left_s = limit_s
        if process.batches or not process.ready:
            left_s -= self._loop.time() - process.since_s
        if left_s <= 0:
            self._condemn(process, f"{'no answer' if process.ready else 'not loaded'} within {limit_s:g} s")
        else:
            process.timer = self._loop.call_later(left_s, self._watch, process)

    def _condemn(self, process: WorkerProcess, reason: str) -> None:
        """Kill, and read no more of its messages."""
        self._hear_no_more(process)
        self._kill(process, reason)

    def _hear_no_more(self, process: WorkerProcess) -> None:
        process.silent = True
        self._loop.remove_reader(process.channel)

    def _gone(self, worker: int, process: WorkerProcess) -> None:
        """The process may have ended; it may have said something before."""
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
            # It is there already, or nearly; what was held for it is lost with the rest.
            self._processes[worker], self._heir, self._heir_of = heir, None, -1
            self._held.clear()
            _log.warning("worker %d is lost (%s); its successor takes over", worker, reason)
            waits_s = 0.0 if heir.ready else max(0.0, process.load_s - (self._loop.time() - heir.since_s))
            self._on_lost(worker, reason, waits_s, process.at_next)
            if heir.ready:
                self._on_ready(worker, heir.load_s, heir.said)
        elif not process.ready:
            self._not_loaded(worker, reason)
        elif process.batches or not self._stopping:
            wait_s = self._start_later(worker, reason)
            self._on_lost(worker, reason, wait_s + process.load_s, process.at_next)

    # Replacing what has grown too large

    def _look_in(self, seconds: float) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Check the memory of each worker; begin with a successor of the first that has too much."""
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
        """The successor takes over, if it is ready and the other one has no batch."""
        worker, heir, process = self._heir_of, self._heir, self._processes.get(self._heir_of)
        if heir is None or not heir.ready or heir.silent or process is None or process.batches:
            return
        self._processes[worker], self._heir, self._heir_of = heir, None, -1
        self._on_replaced()
        # A model that needs so much for its batches has it again at once: one start after another would not help.
        self._look_in(_NO_SUCCESSOR_S)
        self._leaving.add(process)
        process.timer.cancel()
        process.timer = self._loop.call_later(LEAVING_S, self._kill, process, "did not end in time")
        process.ask_to_end()
        held, self._held = self._held, []
        for calls in held:
            self._hand(heir, calls)

    def _no_successor(self, reason: str) -> None:
        """There will be none for a while: the present worker goes on."""
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
