"""The other processes that serve a model: their addresses, and requests to them.

Addresses come from `--peer` and from the controller (`mark.serving.backend.peer_header`). A process may be told its own
address, and recognizes it by the writer that answers there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import is_loopback
from mark.serving.learned.facts import Vector
from mark.serving.overflow.http_client import Address, Asker, CallFailure, Failure, HttpAnswer, Reach, Upstream

ANSWER_S = 1.0  # a peer that takes longer counts as not answering
PAGE_BYTES = 1 << 20
# A page ends with the line that exceeds its size, and a vector precedes it.
REACH = Reach(answer_bytes=16 * PAGE_BYTES, connect_timeout_s=0.5)
_LOG = logging.getLogger("mark.serving")


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """The peers from the options, and how to reach peers. `in_clear` allows http to other machines."""

    addresses: tuple[Address, ...] = ()
    key: str | None = field(default=None, repr=False)
    reach: Reach = REACH
    in_clear: bool = False

    def __post_init__(self) -> None:
        for address in self.addresses:
            if not self.reaches(address):
                raise BadInput("would be reached in clear: https, or `stages_in_clear`", "peers", address.url)

    def reaches(self, address: Address) -> bool:
        """Return whether facts and the key may be sent there."""
        return address.tls or self.in_clear or is_loopback(address.host)


class PeerError(Exception):
    """A peer gave no usable answer."""


class NotThere(PeerError):
    """No server listens at the peer's address, so it has received nothing."""


class PeerClosed(PeerError):
    """The peer closed the connection."""


_ERRORS: dict[Failure, type[PeerError]] = {Failure.UNREACHED: NotThere, Failure.CLOSED: PeerClosed}
_Asked = asyncio.Future[HttpAnswer]  # a request in progress


class _Answers(Asker[_Asked]):
    def answered(self, tag: _Asked, answer: HttpAnswer) -> None:
        if not tag.done():
            tag.set_result(answer)

    def failed(self, tag: _Asked, began: bool, why: CallFailure) -> None:
        if not tag.done():
            tag.set_exception(_ERRORS.get(why.kind, PeerError)(why.text))


class Peer:
    """One other process. Until it has answered, `writer` is "" and `vector` is empty.

    `there`: a server listens at its address; `heard`: the last exchange succeeded; `has_disk`: it has read its files.
    If its whole state could not be used, it is not asked for before `adopt_s` (the loop's clock).
    """

    def __init__(self, address: Address, access: PeerAccess, model: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.writer, self.vector = "", Vector()
        self.answering = self.there = self.heard = self.has_disk = False
        self.adopt_s = 0.0
        self._loop = loop
        self._line: Upstream[_Asked] = Upstream(address, _Answers(), access.reach, loop)
        self._path = b"/v2/models/%b/learned" % model.encode()
        self._head = b" HTTP/1.1\r\nhost: %b\r\ncontent-type: application/octet-stream\r\n" % address.authority
        if access.key is not None:
            self._head += b"authorization: Bearer %b\r\n" % access.key.encode()
        self._said = ""

    async def ask(
        self, method: bytes, path: bytes, body: bytes = b"", answer_s: float = ANSWER_S, optional: bool = False
    ) -> bytes:
        """Return the body of its answer with status 200; if it is `optional`, b"" for status 404.

        Raises PeerError. Every request may be repeated.
        """
        head = b"%b %b%b%bcontent-length: %d\r\n\r\n" % (method, self._path, path, self._head, len(body))
        try:
            try:
                answer = await self._once(head + body, answer_s)
            except PeerClosed:
                answer = await self._once(head + body, answer_s)  # a kept connection had ended
            if optional and answer.status == 404:
                return b""
            if answer.status != 200:
                raise PeerError(f"answers with status {answer.status}")
        except PeerError as error:
            self.say(f"cannot be used: {error}")
            self.there = not isinstance(error, NotThere)
            raise
        self.there = True
        self.say("answers")
        return answer.body

    def say(self, state: str) -> None:
        """Note whether it answers, and log a change."""
        self.answering = state == "answers"
        if state != self._said:
            level = logging.INFO if self.answering else logging.WARNING
            _LOG.log(level, "peer %s %s", self.address.url, state)
            self._said = state

    def sweep(self) -> None:
        """Close connections that have been idle for too long."""
        self._line.sweep()

    def close(self) -> None:
        self._line.close()

    async def _once(self, data: bytes, answer_s: float) -> HttpAnswer:
        asked: _Asked = self._loop.create_future()
        connection = self._line.ask(asked, data)
        try:
            return await asyncio.wait_for(asked, answer_s)
        except TimeoutError:
            self._line.cancel(connection, asked)
            raise PeerError(f"no answer within {answer_s:g} s") from None


class Peers:
    """All other known processes. `own` is the writer of this one."""

    def __init__(self, access: PeerAccess, model: str, own: str, loop: asyncio.AbstractEventLoop) -> None:
        self._access, self._model, self._own, self._loop = access, model, own, loop
        self._peers: dict[str, Peer] = {}
        for address in access.addresses:
            self._add(address)

    @property
    def others(self) -> list[Peer]:
        """Return the peers that are other processes."""
        return [peer for peer in self._peers.values() if peer.writer != self._own]

    def of_writer(self, writer: str) -> Peer | None:
        """Return the process of this writer."""
        return next((peer for peer in self.others if peer.writer == writer), None)

    def tell(self, urls: Sequence[str]) -> bool:
        """Replace the peers, except those of the options, with these; return whether one was removed.

        Addresses that cannot be used, or would be reached in clear, are skipped.
        """
        wanted = {address.url: address for address in self._access.addresses}
        for url in urls:
            try:
                address = Address.of(url)
            except BadInput:
                continue
            if self._access.reaches(address):
                wanted[url] = address
        gone = [url for url in self._peers if url not in wanted]
        for url in gone:
            self._peers.pop(url).close()
        for url, address in wanted.items():
            if url not in self._peers:
                self._add(address)
        return bool(gone)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _add(self, address: Address) -> None:
        self._peers[address.url] = Peer(address, self._access, self._model, self._loop)


def whole_number(value: Any) -> int:
    """Return the value if it is a whole number of zero or more. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"no whole number: {value!r:.40}")
    return value
