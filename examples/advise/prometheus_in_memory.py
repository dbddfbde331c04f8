"""A Prometheus on loopback that answers from arrays in memory, and fails on request.

It has the part of the HTTP API that `mark advise` uses: `query`, `query_range`, `series` and `labels`.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from promql import NAME, PromqlError, Stored, evaluate

from mark.domain.arrays import FloatArray

MOST_POINTS = 11_000
FAULTS = (
    "500", "503", "503 plain", "429", "404", "422", "slow", "cut", "garbage", "error", "nan", "inf", "warning",
    "partial", "redirect", "elsewhere", "empty", "large",
)  # fmt: skip
_LARGE_BYTES = 4096


class EmulatedPrometheus:
    """`with EmulatedPrometheus() as prometheus:` serves at `prometheus.url` until the block ends.

    Series may be added while it serves. `fault` is one of FAULTS and affects every answer, or with `faulty_words` the
    answers to queries with one of these words. It demands the `token` or `password` (of the user `mark`), if given.
    `asked` records the queries.
    """

    def __init__(
        self, *, token: str | None = None, password: str | None = None, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.series: list[Stored] = []
        self.asked: list[dict[str, str]] = []
        self.fault: str | None = None
        self.faulty_words: Sequence[str] = ()
        self.resume = threading.Event()  # ends the fault `slow`
        self.clock: Callable[[], float] = time.time  # Unix time, returned by the query `time()`
        self._wanted = None
        if token is not None:
            self._wanted = f"Bearer {token}"
        elif password is not None:
            self._wanted = f"Basic {base64.b64encode(f'mark:{password}'.encode()).decode()}"
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def add(self, name: str, labels: Mapping[str, str], times_s: FloatArray, values: FloatArray) -> None:
        """Add one series; NaN values are scrapes without its target."""
        self.series.append(Stored({NAME: name, **labels}, np.asarray(times_s, float), np.asarray(values, float)))

    def __enter__(self) -> EmulatedPrometheus:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.resume.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Serve until the process is interrupted."""
        self._thread.join()

    def answer(self, path: str, asked: Mapping[str, str], authorization: str | None) -> tuple[int, bytes]:
        """Return status and body."""
        self.asked.append(dict(asked))
        if self._wanted is not None and authorization != self._wanted:
            return 401, b"Unauthorized\n"
        hit = not self.faulty_words or any(word in asked.get("query", "") for word in self.faulty_words)
        fault = self.fault if hit else None
        if fault in _STATUS:
            return _STATUS[fault]
        if fault == "slow":
            self.resume.wait()
        try:
            data = self._data(path, asked, fault)
        except PromqlError as error:
            return 400, _error("bad_data", f'invalid parameter "query": {error}')
        except (KeyError, ValueError) as error:
            return 400, _error("bad_data", f"invalid parameter: {error}")
        if data is None:
            return 404, b"404 page not found\n"
        whole: dict[str, Any] = {"status": "success", "data": data}
        if fault == "warning":
            whole["warnings"] = ["PromQL info: metric might not be a counter"]
        if fault == "partial":
            whole["warnings"] = ["partial response: store 10.0.0.7:10901 timed out"]
        if fault == "large":
            whole["filled"] = "x" * _LARGE_BYTES
        return 200, b"<html>not here</html>" if fault == "garbage" else json.dumps(whole).encode()

    def _data(self, path: str, asked: Mapping[str, str], fault: str | None) -> Any:
        series = [] if fault == "empty" else self.series
        if path == "/api/v1/query" and asked["query"] == "time()":
            now_s = self.clock()
            return {"resultType": "scalar", "result": [now_s, _text(now_s, fault)]}
        if path == "/api/v1/query":
            at = np.array([float(asked["time"])])
            found = evaluate(asked["query"], series, at)
            rows = [{"metric": dict(key), "value": [at[0], _text(values[0], fault)]} for key, values in found.items()]
            return {"resultType": "vector", "result": rows}
        if path == "/api/v1/query_range":
            start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
            points = math.floor((end - start) / step + 1e-9) + 1
            if points > MOST_POINTS:
                raise PromqlError("exceeded maximum resolution of 11,000 points per timeseries")
            at = np.array([start + place * step for place in range(points)])
            found = evaluate(asked["query"], series, at)
            rows = [
                {
                    "metric": dict(key),
                    "values": [
                        [t, _text(v, fault)] for t, v in zip(at.tolist(), values, strict=True) if not np.isnan(v)
                    ],
                }
                for key, values in found.items()
            ]
            return {"resultType": "matrix", "result": rows}
        if path == "/api/v1/series":
            chosen = evaluate(asked["match[]"], series, np.array([float(asked.get("end", "0"))]))
            return [dict(key) for key in chosen]
        if path == "/api/v1/labels":
            return sorted({name for one in series for name in one.labels})
        return None


def _error(kind: str, text: str) -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


_STATUS: Mapping[str | None, tuple[int, bytes]] = {
    "500": (500, _error("internal", "query processing failed")),
    "503": (503, _error("unavailable", "the TSDB is not ready")),
    "503 plain": (503, b"upstream connect error or disconnect/reset before headers"),
    "429": (429, b"too many outstanding requests"),
    "404": (404, b"default backend - 404"),
    "422": (422, _error("execution", "query processing would load too many samples into memory")),
    "error": (200, _error("timeout", "query timed out in expression evaluation")),
}


def _text(value: float, fault: str | None) -> str:
    return {"nan": "NaN", "inf": "+Inf"}.get(fault or "", repr(float(value)))


def _handler(prometheus: EmulatedPrometheus) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            if prometheus.fault in ("redirect", "elsewhere") and not parts.path.startswith("/moved"):
                host = prometheus.url if prometheus.fault == "redirect" else "http://127.0.0.2:9"
                self.send_response(302)
                self.send_header("location", f"{host}/moved{self.path}")
                self.end_headers()
                return
            status, body = prometheus.answer(
                parts.path.removeprefix("/moved"), asked, self.headers.get("authorization")
            )
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if prometheus.fault == "cut" else body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing, because queries are recorded."""

    return Handler
