"""Feedback on the event loop: it notes every answer, joins feedback with it, and reports once a sink has stored both.

The loop never waits for the sink, which has its own thread. Answers are passed to it once a second; if it is too slow,
some are dropped and counted. Feedback is passed to it in batches: feedback that arrives during a write forms the next
batch, so that one fsync serves all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mark.models.answer import Answer
from mark.serving.feedback.joining import FeedbackJoin, size_of
from mark.serving.feedback.port import (
    APPLIED,
    UNKNOWN,
    Feedback,
    FeedbackSink,
    Observation,
    RecordedBody,
    ServedAnswer,
)
from mark.serving.feedback.rewriting import Change
from mark.serving.observe.observed import ObservedRequest

FAILED = "failed"  # the sink could not store it, and its client is asked to repeat it
_FLUSH_S = 1.0
_MOST_UNWRITTEN_BYTES = 16 * 1024 * 1024  # of answers, and also of feedback
_LOG = logging.getLogger(__name__)

# Called with the result of each piece, in order, or None if they could not be stored and may be sent again.
Told = Callable[[Sequence[str] | None], None]


class FeedbackCollector:
    """Collects feedback on the answers of `model`.

    `body_bytes` is the largest input or output that is stored; of a longer one only a digest. `now` is Unix time in
    seconds. Everything but the sink runs on one event loop.
    """

    def __init__(
        self,
        model: str,
        join: FeedbackJoin,
        sink: FeedbackSink,
        body_bytes: int,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.model, self.join = model, join
        self.results: Counter[str] = Counter()  # pieces of feedback since the start
        self.unlogged = 0  # answers that the sink did not get
        self._sink, self._body_bytes = sink, body_bytes
        self._loop, self._now = loop, now
        self._thread = ThreadPoolExecutor(1, "feedback")
        self._answers: list[ServedAnswer] = []
        self._answer_bytes = 0
        self._flush: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._posts: list[tuple[Sequence[Feedback], Told]] = []
        self._post_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    def answered(self, request: ObservedRequest, answer: Answer) -> None:
        """Note an answer of the model; refusals and errors are ignored."""
        reply, call = answer.reply, request.call
        if reply.status != 200:
            return
        served = ServedAnswer(
            request.id,
            self.model,
            answer.version,
            self._now(),
            answer.made_by,
            self._recorded(call.content_type, call.body, call.json_bytes),
            self._recorded(reply.content_type, reply.body, reply.json_bytes),
            answer.provenance,
        )
        self.join.answered(served)
        size = size_of(served)
        if self._answer_bytes + size > _MOST_UNWRITTEN_BYTES:
            self.unlogged += 1
            return
        self._answers.append(served)
        self._answer_bytes += size
        if self._flush is None and self._flushing is None:
            self._flush = self._loop.call_later(_FLUSH_S, self._begin_flush)

    def post(self, feedback: Sequence[Feedback], size: int, told: Told) -> bool:
        """Take feedback of `size` bytes; `told` is called once, later. Return False if too much is waiting."""
        if self._post_bytes + size > _MOST_UNWRITTEN_BYTES:
            self.results[FAILED] += len(feedback)
            return False
        self._posts.append((feedback, told))
        self._post_bytes += size
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())
        return True

    async def rewrite(self, change: Change) -> None:
        """Change the lines that the sink has stored, after passing it all answers so far. Raises OSError."""
        if self._flushing is not None:
            await self._flushing
        answers, self._answers = self._answers, []
        self._answer_bytes = 0

        def rewrite() -> None:
            self._sink.answered(answers)
            self._sink.rewrite(change)

        await self._loop.run_in_executor(self._thread, rewrite)

    async def close(self) -> None:
        """Write all waiting answers and feedback; call nothing afterwards."""
        if self._flushing is not None:
            await self._flushing
        if self._flush is not None:
            self._flush.cancel()
        if self._answers:
            await self._write_answers()
        if self._writing is not None:
            await self._writing
        await self._loop.run_in_executor(self._thread, self._sink.close)
        self._thread.shutdown()

    def _recorded(self, content_type: str, data: bytes | memoryview, json_bytes: int | None) -> RecordedBody:
        size = len(data)
        if size <= self._body_bytes:
            return RecordedBody(content_type, size, bytes(data), "", json_bytes)
        return RecordedBody(content_type, size, None, hashlib.sha256(data).hexdigest(), json_bytes)

    # Answers

    def _begin_flush(self) -> None:
        self._flush = None
        self._flushing = self._loop.create_task(self._write_answers())

    async def _write_answers(self) -> None:
        answers, size = self._answers, self._answer_bytes
        self._answers = []
        try:
            await self._loop.run_in_executor(self._thread, self._sink.answered, answers)
        except Exception as error:  # after any error later answers are tried
            self.unlogged += len(answers)
            _LOG.error("%d answers are not in the feedback log: %r", len(answers), error)
        self._answer_bytes -= size
        self._flushing = None
        if self._answers:
            self._flush = self._loop.call_later(_FLUSH_S, self._begin_flush)

    # Feedback

    async def _write(self) -> None:
        while self._posts:
            posts = self._posts
            self._posts, self._post_bytes = [], 0
            try:
                kept = await self._keep([one for feedback, _ in posts for one in feedback])
            except (TypeError, ValueError) as error:  # one piece cannot be written, and must fail alone
                for feedback, told in posts:
                    told(await self._keep_alone(feedback, error))
                continue
            results = iter(kept or ())
            for feedback, told in posts:
                told(None if kept is None else [next(results) for _ in feedback])
        self._writing = None

    async def _keep_alone(self, feedback: Sequence[Feedback], error: Exception) -> list[str] | None:
        try:
            return await self._keep(feedback)
        except (TypeError, ValueError):
            self.results[FAILED] += len(feedback)
            _LOG.error("feedback cannot be kept: %r", error)
            return None

    async def _keep(self, feedback: Sequence[Feedback]) -> list[str] | None:
        """Return the result of each piece once the sink has stored it, or None if it failed.

        Raises the sink's TypeError or ValueError.
        """
        received_at_s = self._now()
        judged = self.join.judge(feedback, received_at_s)
        observed = [
            Observation(answer, one, received_at_s)
            for one, (_, answer) in zip(feedback, judged, strict=True)
            if answer is not None
        ]
        unknown = [one for one, (result, _) in zip(feedback, judged, strict=True) if result == UNKNOWN]
        results = [result for result, _ in judged]
        if observed or unknown:
            try:
                await self._loop.run_in_executor(self._thread, self._sink.received, observed, unknown, received_at_s)
            except (TypeError, ValueError):
                raise
            except Exception as error:  # after any error the clients are told
                self.results[FAILED] += len(feedback)
                _LOG.error("feedback cannot be kept: %r", error)
                return None
        for one, result in zip(feedback, results, strict=True):
            self.results[result] += 1
            if result == APPLIED:
                self.join.applied(one.id, received_at_s)
        return results
