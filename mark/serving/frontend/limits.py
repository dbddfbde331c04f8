"""The limits for clients of the HTTP listener, and the listener's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from mark.domain.errors import BadInput

JSON, HTML = b"application/json", b"text/html; charset=utf-8"

# A refusal before the body is read: status, body, header lines (each ends with CRLF).
Refusal = tuple[int, bytes, bytes]
Admit = Callable[[bytes, bytes, Mapping[bytes, bytes]], Refusal | None]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits for clients of the listener. Times are checked every `sweep_s`, and exact to that.

    The idle time-out should exceed that of a load balancer in front (60 s at AWS). Otherwise the balancer would use
    closed connections.
    """

    connections: int = 1000  # more get 503
    target_bytes: int = 4096  # path and query; more: 414
    header_bytes: int = 16 * 1024  # names and values of one request; more: 431
    body_bytes: int = 16 * 1024 * 1024  # more: 413, without reading all of it
    gathered_bytes: int = 512 * 1024 * 1024  # of all incomplete bodies; beyond it they get 503
    # Requests of one connection with the handler, or answered in one turn of the loop; beyond it reading pauses.
    pipelined: int = 32
    unread_bytes: int = 256 * 1024  # of answers that a client has not read; beyond it reading pauses
    header_timeout_s: float = 10.0  # from the first byte of a request, or a connection, to the end of its head: 408
    body_timeout_s: float = 10.0  # for a body, plus the time of its bytes so far at bytes_per_s_min: 408
    answer_timeout_s: float = 10.0  # for reading answers, plus the time of their bytes at bytes_per_s_min: cut
    bytes_per_s_min: float = 8 * 1024
    idle_timeout_s: float = 75.0  # between requests; then closed
    # Of gRPC: the least interval of an idle client's pings; the third faster one ends the connection.
    ping_s: float = 5.0
    handshake_s: float = 0.2  # wait for half-open connections when the server closes: a round trip, and a busy machine
    drain_idle_s: float = 1.0  # between requests, after the server has stopped listening
    sweep_s: float = 1.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise BadInput("must be positive", f"limits.{limit.name}", value)


@dataclass(slots=True)
class ConnectionCounts:
    """Counts of the listener since its start."""

    dropped_answers: int = 0  # the client had gone
    refused: dict[int, int] = field(default_factory=dict)  # by status; refused here and not by the handler
    cut: int = 0  # connections aborted because the client did not read its answers

    def refuse(self, status: int) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1
