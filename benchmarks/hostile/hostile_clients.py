"""Honest clients of a hostile data plane.

Each request has a separate id and answer, so that an answer that is lost, given twice or given to another client shows.
An answer must come to every request that was sent, once, with the request's id and the numbers that follow from it. A
refusal (429, 502, 503, 504) is an answer, and so is the model's 500; their number is reported, not judged.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

RIGHT, REFUSED, FAILED, TURNED_AWAY = "right", "refused", "failed", "turned away"
LOST, DOUBLED, SWAPPED, ODD = "lost", "doubled", "swapped", "odd"
BROKEN = (LOST, DOUBLED, SWAPPED, ODD)
CALM = "calm"  # while the data plane is left alone
_REFUSALS = frozenset((429, 502, 503, 504))
_RENEWED = 50  # requests on one connection
_MODULUS = 1_000_003


@dataclass(frozen=True, slots=True)
class HeardReply:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def answer_to(identity: str, numbers: Sequence[int]) -> dict[str, object]:
    """Return the answer of an honest model or function to a request."""
    return {"id": identity, "y": sum(place * number for place, number in enumerate(numbers, 1)) % _MODULUS}


def request(identity: str, numbers: Sequence[int], **more: object) -> bytes:
    """Return the bytes of a request. `more` is in the body: the wish of a poisoned request."""
    body = json.dumps({"id": identity, "x": list(numbers), **more}).encode()
    lines = ("host: 127.0.0.1", f"x-request-id: {identity}", "content-type: application/json")
    head = "\r\n".join(("POST /invocations HTTP/1.1", *lines, f"content-length: {len(body)}"))
    return head.encode() + b"\r\n\r\n" + body


def verdict(identity: str, numbers: Sequence[int], reply: HeardReply) -> str:
    """Judge an answer to the request with that id and these numbers."""
    if reply.headers.get("x-request-id", identity) != identity:
        return SWAPPED
    if reply.status == 200:
        try:
            return RIGHT if json.loads(reply.body) == answer_to(identity, numbers) else SWAPPED
        except ValueError:
            return SWAPPED
    if reply.status == 500:
        return FAILED
    return REFUSED if reply.status in _REFUSALS else ODD


class ClientLine(asyncio.Protocol):
    """A connection with at most one request on it. `unasked` counts bytes that came without a request."""

    def __init__(self) -> None:
        self.unasked = self.answers = 0
        self.closed = False
        self._data = bytearray()
        self._waiting: asyncio.Future[HeardReply] | None = None
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, address: tuple[str, int], source: str = "127.0.0.1") -> ClientLine:
        """Connect to an address. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(cls, *address, local_addr=(source, 0))
        return line

    async def ask(self, wire: bytes, patience_s: float) -> HeardReply:
        """Send a request and return the answer."""
        if self.closed or self.transport is None:
            raise ConnectionError("closed before it was asked")
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(wire)
        try:
            async with asyncio.timeout(patience_s):
                return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.unasked += len(data)
            return
        self._data += data
        head, end, _ = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = len(head) + 4 + int(headers.get("content-length", "0"))
        if len(self._data) < size:
            return
        reply = HeardReply(int(first.split(" ")[1]), headers, bytes(self._data[len(head) + 4 : size]))
        self.unasked += len(self._data) - size
        self._data.clear()
        self.answers += 1
        self._waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(str(error or "closed")))


@dataclass
class HonestTally:
    """The outcomes of requests, by the faults of the data plane while they were on their way."""

    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    statuses: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    slowest_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    every: Counter[str] = field(default_factory=Counter)  # each request once
    stories: list[str] = field(default_factory=list)  # of events that must not happen

    def note(self, during: Collection[str], what: str, status: int, took_s: float, story: str) -> None:
        """Count the outcome of one request. `during` is empty if no fault was active."""
        self.every[what] += 1
        for kind in during or (CALM,):
            self.counts[kind][what] += 1
            self.statuses[kind][status] += 1
            self.slowest_s[kind] = max(self.slowest_s[kind], took_s)
        if what in BROKEN:
            self.stories.append(f"{what} during {', '.join(sorted(during)) or CALM}: {story}")


class HonestClient:
    """Asks every `pause_s` over a kept connection, and checks the answers.

    `active` names the faults in progress. A connection that is closed before its first answer was not admitted, so its
    request never reached the model; `shut` says whether that is allowed now.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        tally: HonestTally,
        active: Callable[[], frozenset[str]] = frozenset,
        *,
        pause_s: float = 0.4,
        patience_s: float = 20.0,
        shut: Callable[[], bool] = lambda: False,
        source: str = "127.0.0.1",
        seed: int = 0,
    ) -> None:
        self._name, self._address, self._tally, self._active = name, address, tally, active
        self._pause_s, self._patience_s, self._shut, self._source = pause_s, patience_s, shut, source
        self._draw = random.Random(f"{seed} {name}")
        self._line: ClientLine | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until `stop` is set; a request under way is waited for."""
        number = 0
        while not stop.is_set():
            number += 1
            await self.ask(f"{self._name}-{number}")
            if self._line is not None and self._line.answers >= _RENEWED:
                self.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._pause_s * self._draw.uniform(0.5, 1.5))
        self.close()

    async def ask(self, identity: str) -> None:
        """Make one request, and count its outcome in the tally."""
        numbers = [self._draw.randrange(_MODULUS) for _ in range(4)]
        began_s, during, shut, status = time.monotonic(), set(self._active()), self._shut(), 0
        story, line = identity, self._line
        if line is not None and line.unasked:
            self._tally.note(during, DOUBLED, 0, 0.0, f"{line.unasked} bytes came unasked before {identity}")
            self.close()
            line = None
        if line is None or line.closed:
            try:
                async with asyncio.timeout(self._patience_s):
                    self._line = line = await ClientLine.to(self._address, self._source)
            except OSError as error:  # TimeoutError is one
                during |= self._active()
                what = TURNED_AWAY if shut or self._shut() else LOST
                self._tally.note(during, what, 0, time.monotonic() - began_s, f"{identity}: not connected, {error!r}")
                return
        first = line.answers == 0
        try:
            reply = await line.ask(request(identity, numbers), self._patience_s)
        except OSError as error:
            what = TURNED_AWAY if first and isinstance(error, ConnectionError) and (shut or self._shut()) else LOST
            story += f": no answer after {time.monotonic() - began_s:.2f} s, {error!r}"
            self.close()
        else:
            what, status = verdict(identity, numbers, reply), reply.status
            story += f": {numbers} got {reply.status} {reply.headers.get('x-request-id')} {reply.body[:120]!r}"
            if line.unasked:
                what = DOUBLED
        self._tally.note(during | self._active(), what, status, time.monotonic() - began_s, story)

    def close(self) -> None:
        """Let go of the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None
