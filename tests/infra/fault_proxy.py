"""A proxy between an AWS client and moto that makes calls fail as AWS and networks do, by a seeded plan or a script.

with fault_proxy(moto.url, seed=1, share=0.1) as proxy:
    client = boto3.client("ec2", **{**moto.options, "endpoint_url": proxy.url})
"""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_LONGEST_SILENCE_S = 60.0
_TEXT = "made by the fault proxy"
SILENCE = "x-mark-silence"


class Fault(StrEnum):
    THROTTLED = "throttled"  # the service's own error; the call was not done
    INTERNAL = "internal"  # 500; the call was not done
    UNAVAILABLE = "unavailable"  # 503 from a proxy before the service; the call was not done
    SILENT = "silent"  # no answer until the client gives up; the call was not done
    LOST = "lost"  # the call was done, and the connection drops instead of an answer


@dataclass(frozen=True)
class Request:
    """One call as it came; a client's own repetition is another one."""

    service: str  # by the signature: "ec2", "elasticloadbalancing", "monitoring", ...
    action: str  # "RunInstances"; the path of a REST service
    fault: Fault | None


class FaultProxy:
    """A log of `requests`; `share` and `script` may be changed at any time. Thread-safe."""

    def __init__(
        self, upstream: str, seed: int, share: float, faults: tuple[Fault, ...], actions: str, hurries: bool
    ) -> None:
        self.hurries = hurries
        self.upstream = urlsplit(upstream).netloc
        self.url = ""
        self.share = share  # share of calls that fail
        self.script: deque[Fault | None] = deque()  # faults of the next calls, before the plan goes on
        self.is_cut = False
        self._last = ""  # cut after the next call of this action
        self.requests: list[Request] = []
        self._faults, self._actions = faults, re.compile(actions)
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def cut(self) -> None:
        """Let no more calls arrive, and no answers of pending ones: the view of a client that died."""
        self.is_cut = True

    def cut_after(self, action: str) -> None:
        """Do the next call of this action and no other; its answer does not arrive."""
        self._last = action

    def counts(self) -> Counter[Fault | None]:
        """Count the faults by kind; None counts the calls that were answered correctly."""
        return Counter(request.fault for request in self.requests)

    def decide(self, service: str, action: str) -> Fault | None:
        """Choose the fault of a call: by the script, else by the seed and the number of calls so far."""
        with self._lock:
            fault = None
            if action == self._last:
                self._last, self.is_cut = "", True
            if self._actions.fullmatch(action):
                drawn, which = self._random.random(), self._random.choice(self._faults)
                fault = self.script.popleft() if self.script else which if drawn < self.share else None
            self.requests.append(Request(service, action, fault))
            return fault


@contextmanager
def fault_proxy(
    upstream: str,
    *,
    seed: int = 0,
    share: float = 0.1,
    faults: tuple[Fault, ...] = tuple(Fault),
    actions: str = ".*",
    hurries: bool = False,
) -> Iterator[FaultProxy]:
    """Listen on loopback until the end of the block; calls of actions that are not among `actions` never fail.

    A proxy that `hurries` says immediately, by the header SILENCE, that it would not answer.
    """
    proxy = FaultProxy(upstream, seed, share, faults, actions, hurries)

    class Handler(_Handler):
        state = proxy

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="fault proxy")
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.hang_up()
        server.server_close()


def throttling(service: str, target: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of a service's throttling error."""
    if target:  # JSON: SQS, DynamoDB, EventBridge, Pricing
        code = {"sqs": "com.amazonaws.sqs#RequestThrottled"}.get(service, "ThrottlingException")
        headers = {"content-type": "application/x-amz-json-1.0"}
        if service == "sqs":
            headers["x-amzn-query-error"] = "RequestThrottled;Sender"
        return 400, headers, json.dumps({"__type": code, "message": _TEXT}).encode()
    if service == "lambda":
        headers = {"content-type": "application/json", "x-amzn-errortype": "TooManyRequestsException"}
        return 429, headers, json.dumps({"Type": "User", "message": _TEXT}).encode()
    headers = {"content-type": "text/xml"}
    if service == "ec2":
        error = f"<Errors><Error><Code>RequestLimitExceeded</Code><Message>{_TEXT}</Message></Error></Errors>"
        return 503, headers, f"<Response>{error}<RequestID>fault</RequestID></Response>".encode()
    if service == "s3":
        return 503, headers, f"<Error><Code>SlowDown</Code><Message>{_TEXT}</Message></Error>".encode()
    error = f"<Error><Type>Sender</Type><Code>Throttling</Code><Message>{_TEXT}</Message></Error>"
    return 400, headers, f"<ErrorResponse>{error}<RequestId>fault</RequestId></ErrorResponse>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End pending waits: a silence, or an idle connection."""
        for connection in list(self._open):
            with suppress(OSError):  # the client hung up first
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: FaultProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.state.is_cut:
            self.close_connection = True
            return
        scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", self.headers.get("authorization", ""))
        service = scope[1] if scope else ""
        target = self.headers.get("x-amz-target", "")
        form = parse_qs(body.decode("latin-1")).get("Action", [""])[0] if not target else ""
        action = target.rpartition(".")[2] or form or self.path.partition("?")[0]
        fault = self.state.decide(service, action)
        if fault is Fault.THROTTLED:
            self._answer(*throttling(service, target))
        elif fault is Fault.INTERNAL:
            self._answer(500, {"content-type": "text/html"}, b"<html>internal error</html>")
        elif fault is Fault.UNAVAILABLE:
            self._answer(503, {"content-type": "text/html"}, b"<html>unavailable</html>")
        elif fault is Fault.SILENT and self.state.hurries:
            self._answer(503, {SILENCE: "1"}, b"")
        elif fault is Fault.SILENT:
            self.connection.settimeout(_LONGEST_SILENCE_S)
            with suppress(OSError):
                self.connection.recv(1)  # returns when the client hangs up
            self.close_connection = True
        else:
            answer = self._forwarded(body)
            if fault is Fault.LOST or self.state.is_cut:
                self.close_connection = True
            else:
                self._answer(*answer)

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        there = HTTPConnection(self.state.upstream, timeout=_LONGEST_SILENCE_S)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "expect")}
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding")}
            return answer.status, kept, answer.read()
        except (OSError, HTTPException) as error:
            return 502, {"content-type": "text/plain"}, str(error).encode()
        finally:
            there.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def handle(self) -> None:
        with suppress(OSError):  # the client hung up, as it may
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass
