"""One execution environment of a local function: AWS's own runtime in a process, driven over Lambda's Runtime API.

 starting ─► idle ─► busy ─► idle ...        any of them ─► gone

The runtime requests its next invocation, and the request stays open until there is one, so nothing polls. An invocation
takes two requests with their answers. Each environment has its own listener, because `AWS_LAMBDA_RUNTIME_API` is only
host:port.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mark.serving.frontend.http import Exchange, HttpLimits, HttpServer
from mark_infra.testbed.launch import command

_NEXT = b"/2018-06-01/runtime/invocation/next"
_OF_INVOCATION = b"/2018-06-01/runtime/invocation/"
_INIT_ERROR = b"/2018-06-01/runtime/init/error"
_LIMITS = HttpLimits(body_bytes=16 * 1024 * 1024)
_NICER = 10


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """The result of an invocation. `failed`: the body is an error, of the function or of its environment."""

    body: bytes
    duration_s: float
    failed: bool = False


class Environment:
    """A process that runs a function's handler, one invocation at a time.

    `on_idle` is called when it waits for an invocation, the first time after its init. `on_gone` is called when it has
    ended, after its last invocation has got its outcome. `init_s` is the duration of its init, None before its end.
    """

    def __init__(
        self,
        handler: str,
        folder: Path,
        variables: Mapping[str, str],
        output: Path,
        *,
        on_idle: Callable[[Environment], None],
        on_gone: Callable[[Environment], None],
    ) -> None:
        self._handler, self._folder, self._variables, self._output = handler, folder, variables, output
        self._on_idle, self._on_gone = on_idle, on_gone
        self._loop = asyncio.get_running_loop()
        self._api = HttpServer(self._handle, _LIMITS)
        self._process: asyncio.subprocess.Process | None = None
        self._next: Exchange | None = None
        self._request_id = b""
        self._done: Callable[[InvocationOutcome], None] | None = None
        self._outcome: InvocationOutcome | None = None
        self._began_s = time.perf_counter()
        self._late: asyncio.TimerHandle | None = None
        self._fault = b""  # why it ends, if known before its end
        self.init_s: float | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Run the process from its start to its end. Raises BadInput or OSError if it cannot be started."""
        try:
            port = await self._api.start("127.0.0.1", 0)
            self._began_s = time.perf_counter()
            with self._output.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *command(sys.executable, "-m", "awslambdaric", self._handler),
                    cwd=self._folder,
                    env={**self._variables, "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            # On AWS they have other processors. Here a cold start must not slow the bouncers down, so its priority is
            # lower, even if the testbed runs with a real-time priority.
            os.sched_setscheduler(self._process.pid, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)
            status = await self._process.wait()
            if self.init_s is None:
                self.init_s = time.perf_counter() - self._began_s
            if not self._fault:
                self._fault = _error("Runtime.ExitError", f"Runtime exited with error: exit status {status}")
            self._ended(self._fault, failed=True)
            self._tell()
        finally:
            self.kill()
            await self._api.close(0.1)
            self._on_gone(self)

    def invoke(
        self, request_id: str, arn: str, body: bytes, limit_s: float, done: Callable[[InvocationOutcome], None]
    ) -> None:
        """Pass an invocation to the idle environment; `done` is called once. Raises RuntimeError if it is not idle."""
        waiting, self._next = self._next, None
        if waiting is None:
            raise RuntimeError("this environment waits for no invocation")
        self._request_id, self._done = request_id.encode(), done
        self._began_s = time.perf_counter()
        self._late = self._loop.call_later(limit_s, self._timed_out, limit_s)
        headers = (
            f"lambda-runtime-aws-request-id: {request_id}\r\n"
            f"lambda-runtime-deadline-ms: {(time.time() + limit_s) * 1e3:.0f}\r\n"
            f"lambda-runtime-invoked-function-arn: {arn}\r\n"
        )
        waiting.answer(200, body, headers=headers.encode())

    def kill(self) -> None:
        """Kill its process immediately."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def _handle(self, exchange: Exchange) -> None:
        path = exchange.path
        if path == _NEXT and exchange.method == b"GET":
            self._next = exchange
            if self.init_s is None:
                self.init_s = time.perf_counter() - self._began_s
            self._on_idle(self)
            self._tell()
        elif path == _INIT_ERROR:
            self.init_s = time.perf_counter() - self._began_s
            self._fault = exchange.body
            exchange.answer(202, b"{}")
        elif path.startswith(_OF_INVOCATION):
            request_id, _, kind = path[len(_OF_INVOCATION) :].partition(b"/")
            if request_id != self._request_id or self._done is None or kind not in (b"response", b"error"):
                exchange.answer(400, _error("InvalidRequestID", "no such invocation"))
                return
            exchange.answer(202, b"{}")
            self._ended(exchange.body, failed=kind == b"error")
        else:
            exchange.answer(404, b"{}")

    def _timed_out(self, limit_s: float) -> None:
        if self._outcome is None:
            self._fault = _error("Sandbox.Timedout", f"Task timed out after {limit_s:.2f} seconds")
            self._ended(self._fault, failed=True)
            self._tell()
        self.kill()

    def _ended(self, body: bytes, *, failed: bool) -> None:
        """Set the outcome of the present invocation, if there is one without an outcome."""
        if self._done is not None and self._outcome is None:
            self._outcome = InvocationOutcome(body, time.perf_counter() - self._began_s, failed)

    def _tell(self) -> None:
        """Report the outcome once the environment is idle again or gone, so that the caller's next call finds it so."""
        if self._done is not None and self._outcome is not None:
            done, outcome = self._done, self._outcome
            self._done = self._outcome = None
            if self._late is not None:
                self._late.cancel()
            done(outcome)

    @property
    def fault(self) -> bytes:
        """Return why it has ended, as its function's caller sees it."""
        return self._fault or _error("Runtime.ExitError", "Runtime exited without providing a reason")


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()
