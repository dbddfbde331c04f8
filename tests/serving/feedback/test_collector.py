"""Feedback on the loop: acknowledged feedback is stored, however the sink fails and posts overlap."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from mark.models.answer import INSTANCE, Answer
from mark.models.call import Call, Reply
from mark.serving.backend.request import Request
from mark.serving.feedback.collector import FAILED, FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.port import Feedback, FeedbackSink, Observation, ServedAnswer
from mark.serving.feedback.rewriting import Change
from tests.serving.feedback.made import feedback


class FakeSink:
    """Keeps feedback; waits while `open` is not set; fails while there is an `error`."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.observed: list[str] = []
        self.unknown: list[str] = []
        self.writes = 0
        self.closed = False
        self.error: Exception | None = None
        self.cannot_write = ""  # an id whose feedback can never be kept
        self.open = threading.Event()
        self.open.set()

    def answered(self, answers: Sequence[ServedAnswer]) -> None:
        self._fail()
        self.answers += [one.id for one in answers]

    def received(self, observed: Sequence[Observation], unknown: Sequence[Feedback], received_at_s: float) -> None:
        self.writes += 1
        self.open.wait(60)
        self._fail()
        if self.cannot_write in {*(one.answer.id for one in observed), *(one.id for one in unknown)}:
            raise TypeError("cannot be written")
        self.observed += [one.answer.id for one in observed]
        self.unknown += [one.id for one in unknown]

    def rewrite(self, change: Change) -> None:
        self.answers = [one for one in self.answers if change(one.encode())]

    def close(self) -> None:
        self.closed = True

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


_: type[FeedbackSink] = FakeSink


class Collected:
    """A collector over a fake sink, with answers of `echo`."""

    def __init__(self, body_bytes: int = 100) -> None:
        self.sink = FakeSink()
        join = FeedbackJoin(100.0, 10**6)
        self.collector = FeedbackCollector("echo", join, self.sink, body_bytes, asyncio.get_running_loop())

    def answer(self, identity: str, body: bytes = b"{}", status: int = 200) -> None:
        request = Request(Call("oip", "application/json", body), 1, 0.0, 1.0, lambda *_: None, identity)
        reply = Reply(status, "application/json", memoryview(b"out"))
        self.collector.answered(request, Answer(reply, INSTANCE, "3"))

    def post(self, *identities: str) -> asyncio.Future[Sequence[str] | None]:
        told: asyncio.Future[Sequence[str] | None] = asyncio.get_running_loop().create_future()
        assert self.collector.post([feedback(one) for one in identities], 10, told.set_result)
        return told


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


def test_each_piece_is_told_its_outcome_once_it_is_kept() -> None:
    async def main() -> None:
        place = Collected()
        place.answer("a")
        place.answer("refused", status=429)
        assert await place.post("a", "x", "a") == ["applied", "unknown", "duplicate"]
        assert await place.post("a", "refused") == ["duplicate", "unknown"]
        assert (place.sink.observed, place.sink.unknown) == (["a"], ["x", "refused"])
        assert place.collector.results == {"applied": 1, "unknown": 2, "duplicate": 2}
        await place.collector.close()

    run(main)


def test_feedback_the_sink_lost_is_applied_when_it_comes_again() -> None:
    """A post is not called `duplicate` while the first one may still be lost: it waits for the write."""

    async def main() -> None:
        place = Collected()
        place.answer("a")
        place.sink.open.clear()
        place.sink.error = OSError("no space left")
        first = place.post("a")
        while not place.sink.writes:
            await asyncio.sleep(0)
        second, third = place.post("a"), place.post("a")
        place.sink.open.set()
        assert await first is None
        assert (await second, await third) == (None, None)
        assert place.sink.writes == 2  # one for both that came during the write
        place.sink.error = None
        assert await place.post("a") == ["applied"]
        assert await place.post("a") == ["duplicate"]
        assert place.sink.observed == ["a"]
        assert place.collector.results[FAILED] == 3
        await place.collector.close()

    run(main)


def test_feedback_that_cannot_be_written_fails_alone() -> None:
    """Other feedback in the same batch is stored, once."""

    async def main() -> None:
        place = Collected()
        for identity in "abc":
            place.answer(identity)
        place.sink.cannot_write = "b"
        told = [place.post("x"), place.post("a"), place.post("b", "c"), place.post("c")]
        assert [await one for one in told] == [["unknown"], ["applied"], None, ["applied"]]
        assert (place.sink.observed, place.sink.unknown) == (["a", "c"], ["x"])
        assert place.collector.results == {"unknown": 1, "applied": 2, FAILED: 2}
        assert await place.post("d") == ["unknown"]
        await place.collector.close()

    run(main)


def test_answers_reach_the_sink_at_the_latest_when_it_closes() -> None:
    """They come in order, with their version; long bodies have a digest."""

    async def main() -> None:
        place = Collected(body_bytes=3)
        for number in range(5):
            place.answer(str(number), b"[1, 2]")
        (one,) = [found for _, found in place.collector.join.judge([feedback("4")], 0.0) if found is not None]
        assert (one.version, one.input.data, one.output.data) == ("3", None, b"out")
        assert (one.input.size_bytes, one.input.sha256) == (6, hashlib.sha256(b"[1, 2]").hexdigest())
        await place.collector.close()
        assert place.sink.answers == list("01234")
        assert place.sink.closed

    run(main)


def test_answers_the_sink_cannot_take_are_counted_and_block_nothing() -> None:
    async def main() -> None:
        place = Collected(body_bytes=1 << 20)
        for number in range(20):  # 20 MiB: more than may wait
            place.answer(str(number), bytes(1 << 20))
        assert 3 <= place.collector.unlogged <= 6
        place.sink.error = OSError("no space left")
        await place.collector.close()
        assert place.collector.unlogged == 20

    run(main)


def test_too_much_feedback_at_once_is_not_taken() -> None:
    async def main() -> None:
        place = Collected()
        place.sink.open.clear()
        first = place.post("a")
        while not place.sink.writes:
            await asyncio.sleep(0)
        assert place.collector.post([feedback("b")], 16 << 20, lambda results: None)
        assert not place.collector.post([feedback("c")], 1, lambda results: None)
        assert place.collector.results == {FAILED: 1}
        place.sink.open.set()
        assert await first == ["unknown"]
        await place.collector.close()
        assert place.sink.unknown == ["a", "b"]

    run(main)
