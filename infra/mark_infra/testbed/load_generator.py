"""Traffic for the testbed: each request is sent when it is due, without waiting for earlier answers.

This is an open loop, and latency counts from the due time. Otherwise a slow server would look better by slowing its
clients down (coordinated omission).
"""

from __future__ import annotations

import asyncio
import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.models.call import Call
from mark.serving.overflow.http_client import Address, CallFailure, ClientConnection, HttpAnswer, Reach, Upstream

# Timers are late by up to a millisecond, so the last of the wait is spent in turns of the loop.
_EARLY_S = 2e-3
_BY, _STAGES = b"mark-answered-by: ", b"mark-stages: "


@dataclass(slots=True)
class Sent:
    """A request and its result, in seconds from the start of the load; `status` 0: no answer.

    `stages` is a pipeline's report about its stages (`mark.serving.conductor.query.QueryProgress.said`).
    """

    number: int
    due_s: float
    sent_s: float = math.nan
    answered_s: float = math.nan
    status: int = 0
    answered_by: str = ""
    stages: str = ""


@dataclass(slots=True)
class LoadReplay:
    """All requests sent, in order of their due times. `began_unix_s` is second 0.

    `unasked` counts surplus answers to a request; it must be zero.
    """

    began_unix_s: float
    sent: list[Sent] = field(default_factory=list)
    unasked: int = 0

    def column(self, name: str) -> FloatArray:
        """Return one field of all requests."""
        return np.array([getattr(one, name) for one in self.sent], dtype=np.float64)

    def write(self, path: Path, prefix: str) -> None:
        """Write a line for each request, with the same names as in the servers' logs."""
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["request_id", "due_s", "sent_s", "answered_s", "status", "answered_by", "stages"])
            rows.writerows(
                (f"{prefix}{s.number}", s.due_s, s.sent_s, s.answered_s, s.status, s.answered_by, s.stages)
                for s in self.sent
            )


class _Client:
    """Receives the result of each request from the upstream."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self.open = 0
        self.all_back = asyncio.Event()

    def answered(self, tag: Sent, answer: HttpAnswer) -> None:
        tag.answered_s, tag.status = time.monotonic() - self._start_s, answer.status
        tag.answered_by = _said(answer.headers, _BY) or "nobody"
        tag.stages = _said(answer.headers, _STAGES)
        self._back()

    def failed(self, tag: Sent, began: bool, why: CallFailure) -> None:
        tag.answered_by = why.text
        self._back()

    def _back(self) -> None:
        self.open -= 1
        if self.open == 0:
            self.all_back.set()


def _said(headers: bytes, name: bytes) -> str:
    return headers.partition(name)[2].partition(b"\r\n")[0].decode()


async def replay(
    url: str,
    model: str,
    call: Call | Sequence[Call],
    due_s: Sequence[float] | FloatArray,
    *,
    prefix: str = "load-",
    patience_s: float = 60.0,
    begin_unix_s: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> LoadReplay:
    """Send a request to the model at `url` at each of the ascending times `due_s`, with ids prefix0, prefix1, ...

    `call` is one request, or one for each time. Second 0 is now, or `begin_unix_s`, so that several loads can begin
    together. At the end, waits at most `patience_s` for open requests.
    """
    loop, address = asyncio.get_running_loop(), Address.of(url)
    now_s, now_unix_s = time.monotonic(), time.time()
    made = LoadReplay(now_unix_s if begin_unix_s is None else begin_unix_s)
    start_s = now_s + made.began_unix_s - now_unix_s
    client = _Client(start_s)
    upstream: Upstream[Sent] = Upstream(address, client, Reach(connect_timeout_s=5.0), loop)
    calls = [call] * len(due_s) if isinstance(call, Call) else call
    requests: dict[int, tuple[bytes, bytes]] = {}  # by the identity of the call, because few calls are sent repeatedly
    for one in calls:
        if id(one) not in requests:
            requests[id(one)] = _request(address, model, one, prefix)
    lines: dict[int, ClientConnection[Sent]] = {}
    end_s = float(due_s[-1]) if len(due_s) else 0.0
    for number, (due, asked) in enumerate(zip(due_s, calls, strict=True)):
        left_s = due - (time.monotonic() - start_s)
        if left_s > _EARLY_S:
            await asyncio.sleep(left_s - _EARLY_S)
            if progress is not None:
                progress(due / end_s)
        while time.monotonic() - start_s < due:
            await asyncio.sleep(0)
        sent = Sent(number, float(due), time.monotonic() - start_s)
        made.sent.append(sent)
        client.open += 1
        head, body = requests[id(asked)]
        lines[number] = upstream.ask(sent, head % number + body)
    if client.open:
        client.all_back.clear()
        try:
            async with asyncio.timeout(patience_s):
                await client.all_back.wait()
        except TimeoutError:
            for sent in made.sent:
                if not sent.status:
                    upstream.cancel(lines[sent.number], sent)
    upstream.close()
    made.unasked = upstream.unasked
    return made


def _request(address: Address, model: str, call: Call, prefix: str) -> tuple[bytes, bytes]:
    """Return the head, with a placeholder for the request's number, and the body."""
    path = f"/v2/models/{model}/infer" if call.protocol == "oip" else "/invocations"
    head = f"POST {path} HTTP/1.1\r\nhost: {address.authority.decode()}\r\ncontent-type: {call.content_type}\r\n"
    if call.json_bytes is not None:
        head += f"inference-header-content-length: {call.json_bytes}\r\n"
    head += f"content-length: {len(call.body)}\r\nx-request-id: {prefix}"
    return head.replace("%", "%%").encode() + b"%d\r\n\r\n", bytes(call.body)
