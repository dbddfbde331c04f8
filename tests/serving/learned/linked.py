"""Processes that learn together inside one: everything is real but the sockets between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs

import orjson

from mark.models.answer import INSTANCE, Answer
from mark.models.call import Call, Reply
from mark.serving.backend.request import Request
from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.log import FeedbackLog
from mark.serving.feedback.port import Feedback
from mark.serving.learned.forwarding import FeedbackForwarding
from mark.serving.learned.learning import Learning
from mark.serving.learned.peers import NotThere, Peer, PeerAccess, PeerError, Peers
from mark.serving.learned.sink import LearningSink
from mark.serving.learned.stored import LearnedStore
from mark.serving.overflow.http_client import Address
from tests.serving.learned.made import Tally

NOW_S = 1_790_000_000.0


class Linked(Peer):
    """Another process of this test. It cannot be reached while `cut`, and answers are lost while `deaf`.

    The next `busy` requests for a snapshot get no answer in time.
    """

    def __init__(self, process: Process, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(Address.of(f"http://{process.writer}:80"), PeerAccess(in_clear=True), "m", loop)
        self.process = process
        self.cut = self.deaf = False
        self.busy = 0
        self.asked: list[bytes] = []

    async def ask(
        self, method: bytes, path: bytes, body: bytes = b"", answer_s: float = 1.0, optional: bool = False
    ) -> bytes:
        self.asked.append(path.partition(b"?")[0])
        await asyncio.sleep(0)
        if self.cut:
            self.say("is cut off")
            self.there = False
            raise NotThere("cut off")
        answer = await self._answer(path, body)
        if self.busy and path.startswith(b"/snapshot"):
            self.busy -= 1
            self.there = True
            raise PeerError("no answer within 10 s")
        if self.deaf:
            self.say("is not heard")
            self.there = True
            raise PeerError("not heard")
        self.say("answers")
        self.there = True
        return answer

    async def _answer(self, path: bytes, body: bytes) -> bytes:
        there = self.process
        if path == b"/facts":
            return there.learning.have(body)
        if path == b"/lacking":
            return there.learning.lacking(body)
        if path.startswith(b"/aside"):
            return there.learning.aside.own() or b""
        if path == b"/feedback":
            said = orjson.loads(body)
            pieces = [Feedback(*one) for one in said["feedback"]]
            return orjson.dumps({"results": await there.forwarding.judged(pieces, len(body), said["known_only"])})
        asked = parse_qs(path.partition(b"?")[2].decode())
        page = await there.learning.snapshots.page(int(asked["number"][0]), int(asked["begin"][0]))
        if page is None:
            raise PeerError("answers with status 404")
        return page


class Links(Peers):
    """The other processes of a test."""

    def __init__(self, own: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(PeerAccess(), "m", own, loop)
        self.linked: list[Linked] = []

    @property
    def others(self) -> list[Peer]:
        return list(self.linked)

    def tell(self, urls: Sequence[str]) -> bool:
        before = len(self.linked)
        self.linked = [one for one in self.linked if one.address.url in urls]
        return len(self.linked) < before


class Process:
    """One process: `answer` and `post` are its clients' part."""

    def __init__(
        self, writer: str, folder: Path, *, store: LearnedStore | None = None, store_first: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        self.writer, self.folder, self.now_s = writer, folder, NOW_S
        self.learner = Tally()
        self.join = FeedbackJoin(1e6, 10**7)
        self.log = FeedbackLog(folder, 16 * 10**6)
        self.links = Links(writer, loop)
        self.learning = Learning(
            "m", writer, self.learner, self.join, self.log.folder, self.links, loop,
            store=store, store_first=store_first, now=lambda: self.now_s,
        )  # fmt: skip
        self.learning._has_disk = True  # as after `catch_up`
        sink = LearningSink(self.log, self.learning)
        self.collector = FeedbackCollector("m", self.join, sink, 100, loop, lambda: self.now_s)
        self.forwarding = FeedbackForwarding(self.collector, self.links, writer, loop)

    def answer(self, *identities: str) -> None:
        for identity in identities:
            request = Request(Call("oip", "application/json", b"{}"), 1, 0.0, 1.0, lambda *_: None, identity)
            self.collector.answered(request, Answer(Reply(200, "application/json", b"{}"), INSTANCE, "1"))

    async def post(self, **labels: object) -> list[str] | None:
        """Return the results of feedback, by request id; `_` stands for a dash in ids."""
        told: asyncio.Future[Sequence[str] | None] = asyncio.get_running_loop().create_future()
        pieces = [Feedback(identity.replace("_", "-"), {"label": label}) for identity, label in labels.items()]
        assert self.forwarding.post(pieces, 10, told.set_result)
        results = await told
        return None if results is None else list(results)

    async def close(self) -> None:
        await self.forwarding.close()
        await self.collector.close()
        await self.learning.close()

    def die(self) -> None:
        """End without a flush and release the lock on the folder: only the disk is left."""
        self.log.close()

    def observations(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.log.folder.glob("observations-*.jsonl"))


def link(*processes: Process) -> None:
    """Make all of them peers of each other, and let them talk once."""
    for one in processes:
        one.links.linked = [Linked(other, asyncio.get_running_loop()) for other in processes if other is not one]
        for linked in one.links.linked:
            linked.writer = linked.process.writer
            linked.say("answers")
