"""What a client may ask of the HTTP listener, and what is counted there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from mark.domain.errors import BadInput

JSON, HTML = b"application/json", b"text/html; charset=utf-8"

# Why a request is turned away before its body is read: status, body, header lines (each ends with CRLF).
Refusal = tuple[int, bytes, bytes]
Admit = Callable[[bytes, bytes, Mapping[bytes, bytes]], Refusal | None]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may ask of the listener. Times are checked every `sweep_s`, so they are exact to that.

    The idle time-out should exceed that of a load balancer in front (60 s at AWS), or it meets closed connections.
    """

    connections: int = 1000  # more get 503
    target_bytes: int = 4096  # path and query; more: 414
    header_bytes: int = 16 * 1024  # names and values of one request; more: 431
    body_bytes: int = 16 * 1024 * 1024  # more: 413, without reading it all
    gathered_bytes: int = 512 * 1024 * 1024  # of all bodies that are still coming; beyond it they get 503
    # Requests of one connection with the handler at a time, or answered at once in one turn of the loop; beyond it
    # nothing is read.
    pipelined: int = 32
    unread_bytes: int = 256 * 1024  # of answers that a client has not taken; beyond it nothing is read
    header_timeout_s: float = 10.0  # from the first byte of a request, or a connection, to the end of its head: 408
    body_timeout_s: float = 10.0  # for a body, plus its bytes so far / bytes_per_s_min: 408
    answer_timeout_s: float = 10.0  # for taking unread answers, plus their bytes / bytes_per_s_min: cut
    bytes_per_s_min: float = 8 * 1024
    idle_timeout_s: float = 75.0  # between requests; then closed
    ping_s: float = 5.0  # of gRPC: the least between two pings of an idle client; a third that is sooner ends it
    handshake_s: float = 0.2  # for connections half made when the server closes: a round trip, and a busy machine
    drain_idle_s: float = 1.0  # between requests, from when the server has stopped listening
    sweep_s: float = 1.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise BadInput("must be positive", f"limits.{limit.name}", value)


@dataclass(slots=True)
class ConnectionCounts:
    """What happened at the listener, since the start."""

    dropped_answers: int = 0  # the client had gone
    refused: dict[int, int] = field(default_factory=dict)  # by status: answered here, not by the handler
    cut: int = 0  # connections aborted because the client did not take its answers

    def refuse(self, status: int) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1
