"""The worker's loop: read a batch from the channel, write its replies, until the channel ends.

A batch is decoded, predicted and encoded, one after the other. If the model takes long enough for a second thread, that
thread decodes the next batch and encodes the last one while the model works on the current one. The bouncer has sent
the next batch by then (`SLOTS`), so the model need not idle between batches. Only the main thread calls the model's
code. docs/serving-benchmark.md has measurements.
"""

from __future__ import annotations

import itertools
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from mark.models.call import Call, Reply
from mark.serving.worker.shared_memory import BATCH, DONE, MESSAGE_BYTES, Arena

# A second thread pays off above this time: a hand-over to it costs some 0.05 ms.
LONG_S = 2e-3

Slot = tuple[Arena, Arena]  # of calls, and of replies


class Stages(NamedTuple):
    """The three steps that answer a batch of calls; the second one is the model's own.

    After the second one `hold` returns whether the third may run while the model works on the next batch. It makes
    copies if needed, because a model may return arrays that its next batch overwrites.
    """

    decode: Callable[[Sequence[Call]], Any]
    predict: Callable[[Any], None]
    hold: Callable[[Any], bool]
    encode: Callable[[Any], list[Reply]]


class Loaded(NamedTuple):
    """The result of a LOADER: the function or the stages that answer a batch, and the model's metadata in JSON.

    With stages, the second thread starts after `ahead_after` batches in a row whose model step took longer than
    `LONG_S`. It takes several, because on a shared core any single one can be long.
    """

    answer: Callable[[Sequence[Call]], list[Reply]] | Stages
    said: bytes = b"{}"
    ahead_after: int = 10


def serve(channel: socket.socket, slots: Sequence[Slot], loaded: Loaded) -> None:
    """Answer until the channel ends; batches use the slots in turns. Raises the errors of the channel and the slots."""
    turns = itertools.cycle(slots)
    answer = _InTurn(loaded.answer) if isinstance(loaded.answer, Stages) else loaded.answer
    staged = answer if isinstance(answer, _InTurn) else None
    long = 0
    while staged is None or long < loaded.ahead_after:
        message = channel.recv(MESSAGE_BYTES)
        if not message:
            return
        began_s = perf_counter()
        calls_arena, replies_arena = next(turns)
        calls = calls_arena.read_calls(*BATCH.unpack(message))
        size = _written(replies_arena, len(calls), partial(answer, calls))
        channel.send(DONE.pack(b"D", size, perf_counter() - began_s))
        long = long + 1 if staged is not None and staged.predict_s > LONG_S else 0
    _Ahead(channel, turns, staged.stages).serve()


class _InTurn:
    """The stages, one after the other; `predict_s` is the last time of the model's step."""

    def __init__(self, stages: Stages) -> None:
        self.stages, self.predict_s = stages, 0.0

    def __call__(self, calls: Sequence[Call]) -> list[Reply]:
        opened = self.stages.decode(calls)
        began_s = perf_counter()
        self.stages.predict(opened)
        self.predict_s = perf_counter() - began_s
        return self.stages.encode(opened)


def _written(arena: Arena, count: int, replies_of: Callable[[], list[Reply]]) -> int:
    """Write the replies, or the same error for all calls; return the bytes in use."""
    try:
        replies = replies_of()
        if len(replies) != count:
            raise TypeError(f"{len(replies)} replies to {count} calls")
        return arena.write_replies(replies)
    except Exception as error:
        traceback.print_exc()
        text = f'{{"error": "the model failed: {type(error).__name__}"}}'
        return arena.write_replies([Reply(500, "application/json", text.encode())] * count)


class _Batch:
    """One batch in progress; `took_s` excludes its waits."""

    __slots__ = ("arena", "count", "failed", "opened", "took_s")

    def __init__(self, arena: Arena, count: int) -> None:
        self.arena, self.count = arena, count
        self.opened: Any = None
        self.failed: Exception | None = None
        self.took_s = 0.0

    def step(self, what: Callable[[], Any]) -> Any:
        """Do the next step, unless an earlier one has failed."""
        began_s = perf_counter()
        try:
            if self.failed is None:
                return what()
        except Exception as error:
            self.failed = error
        finally:
            self.took_s += perf_counter() - began_s


class _Ahead:
    """The loop with two threads. Batches are answered in order, each by one of the two threads.

    The main thread predicts; the other one receives and decodes, and encodes if the main one can begin the next batch.
    """

    def __init__(self, channel: socket.socket, turns: Iterator[Slot], stages: Stages) -> None:
        self._channel, self._turns, self._stages = channel, turns, stages
        # Decoded batches in order; at the end None, or the other thread's error.
        self._decoded: SimpleQueue[_Batch | BaseException | None] = SimpleQueue()
        # For each of them: the batch to encode, or None if it has been answered.
        self._predicted: SimpleQueue[_Batch | None] = SimpleQueue()
        self._encoding = threading.Lock()  # held while the other thread has an answer to send

    def serve(self) -> None:
        threading.Thread(target=self._receive, name="ahead", daemon=True).start()
        batch = self._next(wait=True)
        while batch is not None:
            this = batch
            this.step(partial(self._stages.predict, this.opened))
            batch = self._next(wait=False)
            if batch is not None and this.step(partial(self._stages.hold, this.opened)):
                self._encoding.acquire()
                this.arena.promise()  # if the model crashes from now on, the next batch is the reason
                self._predicted.put(this)
            else:
                with self._encoding:
                    self._answer(this)
                self._predicted.put(None)
                if batch is None:
                    batch = self._next(wait=True)

    def _next(self, *, wait: bool) -> _Batch | None:
        try:
            found = self._decoded.get(wait)
        except Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        if found is None:
            self._decoded.put(None)  # later calls find the end too
        return found

    def _receive(self) -> None:
        try:
            before = False
            while message := self._channel.recv(MESSAGE_BYTES):
                calls_arena, replies_arena = next(self._turns)
                calls = calls_arena.read_calls(*BATCH.unpack(message))
                batch = _Batch(replies_arena, len(calls))
                batch.opened = batch.step(partial(self._stages.decode, calls))
                self._decoded.put(batch)
                del batch, calls  # they refer to the memory of a slot
                if before:
                    self._encode(self._predicted.get())
                before = True
            self._decoded.put(None)
        except BaseException as error:
            self._decoded.put(error)

    def _encode(self, batch: _Batch | None) -> None:
        if batch is not None:
            try:
                self._answer(batch)
            finally:
                self._encoding.release()

    def _answer(self, batch: _Batch) -> None:
        began_s = perf_counter()

        def replies() -> list[Reply]:
            if batch.failed is not None:
                raise batch.failed
            return self._stages.encode(batch.opened)

        size = _written(batch.arena, batch.count, replies)
        batch.opened = batch.failed = None  # an error refers to its frames, and they to the batch
        self._channel.send(DONE.pack(b"D", size, batch.took_s + perf_counter() - began_s))
