"""A small Lambda: the invocation API on loopback before the test's functions; it fails as the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Function = Callable[[bytes], bytes]


@dataclass
class Failure:
    """A failed answer of an invocation: an error of the service by its code, or a worse failure by `how`.

    `how`: "" an error, "drop" hangs up, "hang" never answers, "garbage" is no JSON, "other" a foreign result, "handled"
    the function's own error, "large" an answer that is too large.
    """

    status: int = 500
    code: str = "ServiceException"
    how: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Endpoint:
    """An endpoint that invokes `functions` by name; `failure` is in force until it is taken away."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = dict(functions)
        self.failure: Failure | None = None
        self.payloads: list[bytes] = []
        self.ended = threading.Event()
        self.url = ""


class _Many(ThreadingHTTPServer):
    # fifty calls come at a time; the kernel resends a call without room after a second or more
    request_queue_size = 128


@contextmanager
def endpoint(**functions: Function) -> Iterator[Endpoint]:
    """Listen until the end of the block."""
    state = Endpoint(functions)

    class Handler(_Handler):
        def do_POST(self) -> None:
            payload = self.body()
            state.payloads.append(payload)
            *_, name, last = unquote(self.path).split("/")
            assert (unquote(self.path), last) == (f"/2015-03-31/functions/{name}/invocations", "invocations")
            failure = state.failure
            if failure is not None and failure.how == "drop":
                self.close_connection = True
            elif failure is not None and failure.how == "hang":
                state.ended.wait(30.0)
                self.close_connection = True
            elif failure is not None and failure.how == "garbage":
                self.answer(200, b"<html>")
            elif failure is not None and failure.how == "other":
                self.answer(200, b'{"replies": [{"status": 200}]}')
            elif failure is not None and failure.how == "handled":
                self.function_error(b'{"errorMessage": "broken"}')
            elif failure is not None and failure.how == "large":
                said = "Response payload size exceeded maximum allowed payload size (6291556 bytes)."
                kind = "Function.ResponseSizeTooLarge"
                self.function_error(json.dumps({"errorMessage": said, "errorType": kind}).encode())
            elif failure is not None:
                body = json.dumps({"Type": "User", "message": "as told"}).encode()
                self.answer(failure.status, body, {"x-amzn-ErrorType": failure.code, **failure.headers})
            elif name not in state.functions:
                self.answer(404, b'{"Type": "User"}', {"x-amzn-ErrorType": "ResourceNotFoundException"})
            else:
                self.answer(200, state.functions[name](payload), {"X-Amz-Executed-Version": "$LATEST"})

        def function_error(self, body: bytes) -> None:
            self.answer(200, body, {"X-Amz-Function-Error": "Unhandled"})

    with _listening(Handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state
        state.ended.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        try:
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the caller had given up
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def _listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = _Many(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
