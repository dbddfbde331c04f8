"""Measure the latency of single requests, one after the other, from a separate process.

    python -m mark.profiling.serial_client PORT COUNT SECONDS < REQUEST > LATENCIES

REQUEST is the complete bytes of an HTTP request. LATENCIES is a JSON list of seconds, of COUNT answers or those that
came in SECONDS. Exits with the first line of an answer that is not 200.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from time import perf_counter

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def latencies_s(port: int, request: bytes, count: int, seconds: float) -> list[float]:
    """Return the latencies over one connection. Raises OSError, and ValueError for an answer other than 200."""
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_s = perf_counter() + seconds
        while len(found) < count and (not found or perf_counter() < end_s):
            began_s = perf_counter()
            connection.sendall(request)
            _read_answer(connection)
            found.append(perf_counter() - began_s)
    return found


def _read_answer(connection: socket.socket) -> None:
    answer = b""
    while (head := answer.find(b"\r\n\r\n")) < 0:
        if not (more := connection.recv(65536)):
            raise ValueError("the connection was closed")
        answer += more
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ValueError(answer.partition(b"\r\n")[0].decode("latin-1"))
    length = _LENGTH.search(answer, 0, head + 2)
    left = head + 4 + int(length[1] if length else 0) - len(answer)
    while left > 0:
        if not (more := connection.recv(min(left, 1 << 20))):
            raise ValueError("the connection was closed")
        left -= len(more)


if __name__ == "__main__":
    try:
        json.dump(
            latencies_s(int(sys.argv[1]), sys.stdin.buffer.read(), int(sys.argv[2]), float(sys.argv[3])), sys.stdout
        )
    except (OSError, ValueError) as error:
        sys.exit(str(error))
