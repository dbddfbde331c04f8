"""The counters behind the CPU credits of the testbed's burstables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from mark_infra.testbed.credits import busy_s

from mark.serving.backend.metrics import Metrics, ModelMetrics


class Page(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_busy_seconds_are_those_of_a_worker(port: int) -> None:
    """Two workers that computed 3 s in all kept the CPU busy for half as long."""
    metrics, one = Metrics(), ModelMetrics("inception", "1")
    one.service_s.observe(1.0)
    one.service_s.observe(2.0)
    one.workers_ready = 2
    metrics.models.append(one)
    Page.body = metrics.page()
    assert busy_s("127.0.0.1", port) == pytest.approx(1.5)


def test_a_foreign_or_missing_server_is_an_os_error(port: int) -> None:
    """The cloud then goes on with its last count."""
    Page.body = b"<html>"
    with pytest.raises(OSError, match="is no bouncer"):
        busy_s("127.0.0.1", port)
    with pytest.raises(OSError, match="refused"):
        busy_s("127.0.0.1", 1)
