"""The way to the server of a stage without a socket: requests are read as they were written, and answered here."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from mark.models.answer import NOBODY, Answer
from mark.models.call import BY_VALUE, RESULTS, Call
from mark.serving.backend.request import Request
from mark.serving.frontend.server import Server
from mark.serving.overflow.http_client import Asker, HttpAnswer


class DirectLine:
    """Hands a request to the server in the next turn of the loop, and its answer to `asker` without delay."""

    def __init__(self, server: Server, asker: Asker[Any]) -> None:
        self._server, self._asker = server, asker
        self._cancelled: list[Any] = []

    def ask(self, tag: Any, data: bytes, identity: bytes = b"") -> None:
        asyncio.get_running_loop().call_soon(self._arrive, tag, data)

    def cancel(self, connection: None, tag: Any) -> None:
        self._cancelled.append(tag)

    def sweep(self) -> None:
        """Keep no connection."""

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _arrive(self, tag: Any, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        if first.startswith(b"GET "):
            assert first == b"GET /v2/models/%b/ready HTTP/1.1" % self._server.name.encode()
            self._asker.answered(tag, HttpAnswer(200 if self._server.ready else 503, b"application/json", b"", b"{}"))
            return
        assert first == b"POST /v2/models/%b/infer HTTP/1.1" % self._server.name.encode()
        assert (headers[b"content-type"], int(headers[b"content-length"])) == (RESULTS.encode(), len(body))
        call = Call(BY_VALUE, RESULTS, body, int(headers[b"inference-header-content-length"]), RESULTS)
        self._server.infer(call, headers, time.monotonic(), None, partial(self._answered, tag))

    def _answered(self, tag: Any, request: Request, answer: Answer) -> None:
        if tag in self._cancelled:
            return
        lines = b"mark-answered-by: %b\r\n" % answer.made_by.encode() if answer.made_by != NOBODY else b""
        reply = answer.reply
        if reply.json_bytes is not None:
            lines += b"inference-header-content-length: %d\r\n" % reply.json_bytes
        self._asker.answered(tag, HttpAnswer(reply.status, reply.content_type.encode(), lines, bytes(reply.body)))
