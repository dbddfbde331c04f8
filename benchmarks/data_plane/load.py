"""Load on an HTTP server from one core, closed or open loop: raw sockets, one thread, the request built beforehand.

    python benchmarks/data_plane/load.py http://127.0.0.1:8080/invocations --body FILE [--rate RPS] \
            [--connections N] [--seconds S]

`closed_loop` keeps a fixed number of requests in flight and measures throughput. `open_loop` sends each request when it
is due, even if the server is late, and measures latency. Its latency counts from the due time, so that a server which
stops for a second is charged for every request that came in that second. The time from due to sent is the client's lag,
or the wait for a free connection. `Answers` contains it, and every report of a latency should state it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
# One row for each request, in the order of due times. Times are in seconds from the start. `answered_s` is NaN and
# `status` 0 if no answer came; `sent_s` is NaN if no connection was ever free. `answered_by` is the header
# mark-answered-by. `right` means a 2xx answer with the expected body.
ANSWER = [("scheduled_s", "f8"), ("sent_s", "f8"), ("answered_s", "f8"), ("status", "i2"), ("answered_by", "U16")]
ANSWERS = np.dtype([*ANSWER, ("right", "?")])
Answers = npt.NDArray[np.void]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWERED_BY = re.compile(rb"\r\nmark-answered-by: *([\w-]+)", re.IGNORECASE)
_AWAKE_S = 150e-6  # the kernel may wake us this late, so we spin for the rest of a wait
_SENT_AT_ONCE = 16  # of requests due at the same time; then the client looks for answers


@dataclass(frozen=True)
class Target:
    """A request, and where it goes. `expected` is the body of the right answer; None takes any.

    With `bodies` each request has the next one of these, in turn, instead of `body`.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    expected: bytes | None = None
    bodies: Sequence[bytes] = ()

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    @property
    def path(self) -> str:
        return urlsplit(self.url).path or "/"

    @property
    def wires(self) -> list[bytes]:
        """Return the requests as they are sent."""
        found = []
        for body in self.bodies or (self.body,):
            headers = {"host": "{}:{}".format(*self.address), "content-length": str(len(body)), **self.headers}
            lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            found.append("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return found


@contextmanager
def serving(arguments: Sequence[str], folder: Path, core: str) -> Iterator[str]:
    """Yield the address of `mark serve` with these arguments, in the folder and on these cores (as in taskset)."""
    command = ["taskset", "-c", core, sys.executable, "-m", "mark.cli.main", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if " is ready on " in line:
                yield line.split()[-1]
                break
        else:
            raise RuntimeError("".join(said))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def poisson(rate_rps: float, duration_s: float, seed: int) -> FloatArray:
    """Return the times of a Poisson stream within [0, duration_s), in seconds."""
    draw = np.random.default_rng(seed)
    return np.sort(draw.uniform(0.0, duration_s, draw.poisson(rate_rps * duration_s)))


def open_loop(target: Target, arrivals_s: FloatArray, connections: int = 256, patience_s: float = 10.0) -> Answers:
    """Send a request at each of `arrivals_s` (sorted); answers later than `patience_s` after the last one do not count.

    A request that finds all connections busy waits for one, so `connections` should exceed the requests under way.
    """
    due: list[float] = arrivals_s.tolist()
    sent, end_s = 0, due[-1] + patience_s
    with _client(target, connections) as client:
        free = list(client.connections)
        while len(client.rows) < len(due) and client.now() < end_s:
            for _ in range(_SENT_AT_ONCE):
                if sent == len(due) or not free or due[sent] > client.now():
                    break
                if client.send(free[-1], due[sent]):
                    free.pop()
                sent += 1
            until_s = due[sent] if sent < len(due) and free else end_s
            free += client.receive(until_s - client.now())
        client.rows += [(due_s, np.nan, np.nan, 0, "", False) for due_s in due[sent:]]
        return client.answers()


def closed_loop(target: Target, duration_s: float, connections: int = 64, patience_s: float = 10.0) -> Answers:
    """Send again on each connection when it is answered, for `duration_s`; a request is due when it is sent.

    At the end it waits for requests under way, for `patience_s` at most.
    """
    with _client(target, connections) as client:
        free = list(client.connections)
        while (now := client.now()) < duration_s:
            for connection in free:
                client.send(connection)
            free = client.receive(duration_s - now)
        while any(connection.busy for connection in client.connections) and client.now() < duration_s + patience_s:
            client.receive(duration_s + patience_s - client.now())
        return client.answers()


@dataclass(frozen=True)
class Summary:
    """The summary of a run. Latency covers the right answers, from when they were due."""

    requests: int
    refused: int  # 429 or 503
    wrong: int  # any other answer that isn't right, or none
    rate_rps: float  # right answers, from the first due to the last answered
    p50_ms: float
    p95_ms: float
    p99_ms: float
    lag_p99_ms: float
    lag_max_ms: float


def summary(answers: Answers) -> Summary:
    right = answers[answers["right"]]
    latency_s = right["answered_s"] - right["scheduled_s"]
    refused = int(np.isin(answers["status"], (429, 503)).sum())
    lag_s = answers["sent_s"] - answers["scheduled_s"]
    took_s = right["answered_s"].max() - answers["scheduled_s"].min() if len(right) else np.inf
    p50, p95, p99 = 1e3 * np.quantile(latency_s, [0.5, 0.95, 0.99]) if len(right) else [np.nan] * 3
    return Summary(
        requests=len(answers),
        refused=refused,
        wrong=len(answers) - len(right) - refused,
        rate_rps=float(len(right) / took_s),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        lag_p99_ms=1e3 * float(np.nanquantile(lag_s, 0.99)),
        lag_max_ms=1e3 * float(np.nanmax(lag_s)),
    )


class _Connection:
    """A kept-alive connection with at most one request on its way."""

    __slots__ = ("buffer", "busy", "due_s", "sent_s", "sock")

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self.buffer = b""
        self.busy = False
        self.due_s = self.sent_s = 0.0


class _Client:
    """`connections` connections behind one epoll, and the answers so far."""

    def __init__(self, target: Target, connections: int) -> None:
        self.target, self._wires = target, itertools.cycle(target.wires)
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        self.rows: list[tuple[float, float, float, int, str, bool]] = []
        self.connections = [_Connection() for _ in range(connections)]
        for connection in self.connections:
            self._open(connection)
        self.start_s = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self.start_s

    def send(self, connection: _Connection, due_s: float | None = None) -> bool:
        """Send the request, due now by default. Return False if no server listens: then the request is lost."""
        connection.sent_s = self.now()
        connection.due_s = connection.sent_s if due_s is None else due_s
        try:
            if connection.sock is None:
                self._open(connection)
            assert connection.sock is not None
            wire = next(self._wires)
            sent = connection.sock.send(wire)
            if sent < len(wire):  # the server doesn't read, which is rare enough to wait for it
                connection.sock.settimeout(5.0)
                connection.sock.sendall(wire[sent:])
                connection.sock.setblocking(False)
        except OSError:
            self._lose(connection)
            return False
        connection.busy = True
        return True

    def receive(self, wait_s: float) -> list[_Connection]:
        """Return the connections that are free again, once there are any or nearly `wait_s` is over."""
        if wait_s > _AWAKE_S:
            select.select([self._epoll], [], [], wait_s - _AWAKE_S)  # in microseconds, where epoll waits milliseconds
        free = []
        for fd, _ in self._epoll.poll(0):
            connection = self._by_fd[fd]
            was_busy = connection.busy
            self._read(connection)
            if was_busy and not connection.busy:
                free.append(connection)
        return free

    def answers(self) -> Answers:
        """Return a row for each sent request, also for those still on their way."""
        for connection in self.connections:
            if connection.busy:
                self._lose(connection)
        answers = np.array(self.rows, dtype=ANSWERS)
        return answers[np.lexsort((answers["sent_s"], answers["scheduled_s"]))]

    def close(self) -> None:
        for connection in self.connections:
            if connection.sock is not None:
                connection.sock.close()
        self._epoll.close()

    def _open(self, connection: _Connection) -> None:
        sock = socket.create_connection(self.target.address, timeout=5.0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._epoll.register(sock, select.EPOLLIN)
        self._by_fd[sock.fileno()] = connection
        connection.sock, connection.buffer = sock, b""

    def _lose(self, connection: _Connection) -> None:
        """Count the request on a lost connection as lost."""
        if connection.sock is not None:
            del self._by_fd[connection.sock.fileno()]
            connection.sock.close()  # also removes the socket from the epoll
            connection.sock = None
        connection.busy = False
        self.rows.append((connection.due_s, connection.sent_s, np.nan, 0, "", False))

    def _read(self, connection: _Connection) -> None:
        sock = connection.sock
        assert sock is not None
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if connection.busy:
                self._lose(connection)
            else:  # the server closed an idle connection
                del self._by_fd[sock.fileno()]
                sock.close()
                connection.sock = None
            return
        buffer = connection.buffer + data if connection.buffer else data
        head = buffer.find(b"\r\n\r\n")
        length = _LENGTH.search(buffer, 0, head) if head >= 0 else None
        if head >= 0 and length is None:
            raise ValueError(f"an answer without content-length: {buffer[:head]!r}")
        if length is None or len(buffer) < head + 4 + int(length[1]):
            connection.buffer = buffer
            return
        status = int(buffer[9:12])
        by = _ANSWERED_BY.search(buffer, 0, head)
        right = 200 <= status < 300 and self.target.expected in (None, buffer[head + 4 :])
        name = by[1].decode() if by else ""
        self.rows.append((connection.due_s, connection.sent_s, self.now(), status, name, right))
        connection.buffer, connection.busy = b"", False


@contextmanager
def _client(target: Target, connections: int) -> Iterator[_Client]:
    """Yield a client without garbage collection, whose pauses would be the client's lag."""
    client = _Client(target, connections)
    gc.collect()
    gc.freeze()
    gc.disable()
    client.start_s = time.perf_counter()
    try:
        yield client
    finally:
        gc.enable()
        gc.unfreeze()
        client.close()


def main(argv: Sequence[str] = sys.argv[1:]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument(
        "--body", type=Path, required=True, metavar="FILE", help="body of the requests, sent as application/json"
    )
    parser.add_argument(
        "--rate", type=float, metavar="RPS", help="rate of a Poisson open loop (default: a closed loop)"
    )
    parser.add_argument(
        "--connections", type=int, metavar="N", help="connections (default: 64 in a closed loop, 256 in an open loop)"
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    target = Target(args.url, args.body.read_bytes())
    if args.rate:
        answers = open_loop(target, poisson(args.rate, args.seconds, args.seed), args.connections or 256)
    else:
        answers = closed_loop(target, args.seconds, args.connections or 64)
    print(json.dumps(vars(summary(answers)), indent=2))


if __name__ == "__main__":
    main()
