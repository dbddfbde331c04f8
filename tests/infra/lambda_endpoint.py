"""A small Lambda: the invocation API on loopback, and for real handlers a Runtime API with an environment behind it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Function = Callable[[bytes], bytes]


@dataclass
class Failure:
    """What an invocation is answered instead: an error of the service by its code, or worse things by `how`.

    `how`: "" an error, "drop" hangs up, "hang" never answers, "garbage" is no JSON, "other" a result that is not ours,
    "handled" the function's own error.
    """

    status: int = 500
    code: str = "ServiceException"
    how: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class FunctionError(Exception):
    """A function's handler failed; the message is its payload."""


class Endpoint:
    """Invokes `functions` by name; `failure` is in force until it is taken away."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = dict(functions)
        self.failure: Failure | None = None
        self.payloads: list[bytes] = []
        self.ended = threading.Event()
        self.url = ""


@contextmanager
def endpoint(**functions: Function) -> Iterator[Endpoint]:
    """Listens until the end of the block."""
    state = Endpoint(functions)

    class Handler(_Handler):
        def do_POST(self) -> None:
            payload = self.body()
            state.payloads.append(payload)
            *_, name, last = self.path.split("/")
            assert (self.path, last) == (f"/2015-03-31/functions/{name}/invocations", "invocations")
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
            elif failure is not None:
                body = json.dumps({"Type": "User", "message": "as told"}).encode()
                self.answer(failure.status, body, {"x-amzn-ErrorType": failure.code, **failure.headers})
            elif name not in state.functions:
                self.answer(404, b'{"Type": "User"}', {"x-amzn-ErrorType": "ResourceNotFoundException"})
            else:
                try:
                    self.answer(200, state.functions[name](payload), {"X-Amz-Executed-Version": "$LATEST"})
                except FunctionError as error:
                    self.function_error(str(error).encode())

        def function_error(self, body: bytes) -> None:
            self.answer(200, body, {"X-Amz-Function-Error": "Unhandled"})

    with _listening(Handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state
        state.ended.set()


class Environment:
    """One execution environment: a process that runs a handler behind a Runtime API of its own, one call at a time."""

    def __init__(self, handler: str, folder: Path, variables: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "awslambdaric", handler]
        self._folder, self._variables = folder, variables
        self._calls: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._results: queue.Queue[tuple[str, str, bytes]] = queue.Queue()
        self._number = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self, payload: bytes) -> bytes:
        """Invoke it. Raises FunctionError with what the runtime reports."""
        self._number += 1
        self._calls.put((str(self._number), payload))
        identity, kind, body = self.result()
        if kind != "response":
            raise FunctionError(body.decode())
        assert identity == str(self._number)
        return body

    def result(self) -> tuple[str, str, bytes]:
        """What the runtime tells next: of which invocation ("init": of the start), "response" or "error", and that."""
        return self._results.get(timeout=60.0)

    @contextmanager
    def running(self) -> Iterator[Environment]:
        """The process lives as long as the block."""
        environment = self

        class Handler(_Handler):
            def do_GET(self) -> None:
                assert self.path == "/2018-06-01/runtime/invocation/next"
                identity, payload = environment._calls.get()
                if not identity:
                    self.close_connection = True
                    return
                headers = {
                    "Lambda-Runtime-Aws-Request-Id": identity,
                    "Lambda-Runtime-Deadline-Ms": str(int(1e3 * time.time()) + 60_000),
                    "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:123456789012:function:overflow",
                }
                self.answer(200, payload, headers)

            def do_POST(self) -> None:
                *_, identity, kind = self.path.split("/")  # .../invocation/ID/response|error, or init/error
                environment._results.put((identity, kind, self.body()))
                self.answer(202, b"{}")

        with _listening(Handler) as port:
            variables = {
                "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}",
                "AWS_LAMBDA_FUNCTION_NAME": "overflow",
                "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "3008",
                "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
                "AWS_REGION": "us-east-1",
                **self._variables,
            }
            with subprocess.Popen(self._command, cwd=self._folder, env=os.environ | variables) as self.process:
                try:
                    yield self
                finally:
                    self.process.kill()
                    self._calls.put(("", b""))


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
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def _listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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
