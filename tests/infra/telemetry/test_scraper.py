"""Scraping bouncers' metrics, over real sockets."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mark_infra.telemetry.clock import WallClock
from mark_infra.telemetry.counters import BouncerCounters, GatewayCounts, read_conductor
from mark_infra.telemetry.scraper import Scraper
from mark_infra.telemetry.telemetry import ScrapeTarget

from mark.domain.errors import CloudError
from tests.certificates import of_its_own

BOUNCER = b"mark_requests_total{} 5.0\nmark_workers_ready{} 1.0\n"
GATEWAY = b"\nmark_gateway_in_flight_requests 0.0\n"


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, PageServer)
        server.asked_by.append(self.client_address)
        server.told.append(self.headers["mark-prices"])
        allowed = self.headers["authorization"] == "Bearer key" and self.path == "/metrics"
        body = server.page if allowed else b""
        self.send_response(200 if allowed else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: bytes, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.page, self.asked_by, self.told = page, list[tuple[str, int]](), list[str | None]()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., PageServer]]:
    servers: list[PageServer] = []

    def begin(page: bytes, tls: ssl.SSLContext | None = None) -> PageServer:
        servers.append(PageServer(page, tls))
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


@pytest.fixture
def scraper() -> Iterator[Scraper]:
    made = Scraper(lambda: {"authorization": "Bearer key"})
    yield made
    made.close()


class Seen:
    """A sink that keeps its windows; `wait` until it has a number of them."""

    def __init__(self) -> None:
        self.windows: list[tuple[int, int, Mapping[str, BouncerCounters], GatewayCounts | None]] = []
        self._changed = threading.Condition()

    def __call__(
        self,
        window: int,
        asked: Sequence[ScrapeTarget],
        answered: Mapping[str, BouncerCounters],
        gateway: GatewayCounts | None,
    ) -> None:
        with self._changed:
            self.windows.append((window, len(asked), answered, gateway))
            self._changed.notify_all()

    def wait(self, count: int, are: Callable[..., bool] = lambda *_: True) -> None:
        """Wait until `are(asked, answered, gateway)` holds for that many windows."""
        with self._changed:
            assert self._changed.wait_for(lambda: sum(are(*rest) for _, *rest in self.windows) >= count, 60.0)


def fast_clock() -> WallClock:
    """Make a window take a tenth of a second."""
    return WallClock(0.0, 50.0, unix_s=lambda: 0.0)


def test_each_window_scrapes_all_targets_over_kept_connections(
    serve: Callable[[bytes], PageServer], scraper: Scraper
) -> None:
    """A target without an answer, or with another page, is left out."""
    good, strange, gateway = serve(BOUNCER), serve(b"<html>"), serve(GATEWAY)
    gone = serve(b"")
    gone.end()
    targets = [ScrapeTarget(id, server.url, "o", 0.0) for id, server in (("a", good), ("b", strange), ("c", gone))]
    seen = Seen()
    stop = scraper.watch(fast_clock(), lambda: targets, gateway.url, seen)
    everything = (3, {"a": BouncerCounters(requests=5.0, workers=1.0)}, GatewayCounts())
    seen.wait(3, lambda asked, answered, by_gateway: (asked, answered, by_gateway) == everything)
    stop()
    windows = [window for window, *_ in seen.windows]
    assert windows == sorted(set(windows))
    assert all(answered.keys() <= {"a"} for _, _, answered, _ in seen.windows)
    # A busy machine answers some windows too late, which costs a connection.
    assert len(set(good.asked_by)) < len(good.asked_by)


def test_conductors_are_asked_as_bouncers_are_and_read_otherwise(
    serve: Callable[[bytes], PageServer], scraper: Scraper
) -> None:
    page = b'mark_requests_total{stage=""} 5.0\nmark_requests_total{stage="a"} 9.0\nmark_workers_ready{stage=""} 0.0\n'
    conductor, seen = serve(page), Seen()
    targets = [ScrapeTarget("a", conductor.url, "", 0.0)]
    stop = scraper.watch(fast_clock(), lambda: targets, None, seen, read=read_conductor)
    seen.wait(1, lambda _, answered, __: answered == {"a": BouncerCounters(requests=5.0)})
    stop()


def test_bouncers_are_told_something_and_a_gateway_is_not(
    serve: Callable[[bytes], PageServer], scraper: Scraper
) -> None:
    """The header is current at the end of each window, and comes beside the key."""
    bouncer, gateway, seen = serve(BOUNCER), serve(GATEWAY), Seen()
    prices = iter(({"mark-prices": "usd_per_miss=1"}, {}))

    def told() -> Mapping[str, str]:
        return next(prices, {"mark-prices": "usd_per_miss=3"})

    stop = scraper.watch(fast_clock(), lambda: [ScrapeTarget("a", bouncer.url, "o", 0.0)], gateway.url, seen, told)
    seen.wait(3, lambda asked, answered, by_gateway: set(answered) == {"a"} and by_gateway is not None)
    stop()
    assert bouncer.told[:3] == ["usd_per_miss=1", None, "usd_per_miss=3"]
    assert set(gateway.told) == {None}


def test_over_tls_connections_are_kept_too(serve: Callable[..., PageServer], scraper: Scraper) -> None:
    """Bouncers make their own certificates; a gateway's must be trusted."""
    bouncer, gateway = serve(BOUNCER, of_its_own()), serve(GATEWAY, of_its_own())
    seen = Seen()
    stop = scraper.watch(fast_clock(), lambda: [ScrapeTarget("a", bouncer.url, "o", 0.0)], gateway.url, seen)
    seen.wait(4, lambda asked, answered, by_gateway: set(answered) == {"a"})
    stop()
    assert len(set(bouncer.asked_by)) < len(bouncer.asked_by)
    assert all(by_gateway is None for *_, by_gateway in seen.windows)
    assert not gateway.asked_by


def test_a_wrong_key_gets_no_answer(serve: Callable[[bytes], PageServer]) -> None:
    """The scraper goes on."""
    scraper, seen = Scraper(), Seen()
    try:
        target = ScrapeTarget("a", serve(BOUNCER).url, "o", 0.0)
        scraper.watch(fast_clock(), lambda: [target], None, seen)
        seen.wait(2)
    finally:
        scraper.close()
    assert [(asked, answered) for _, asked, answered, _ in seen.windows[:2]] == [(1, {}), (1, {})]


def test_windows_pass_also_when_the_targets_are_unknown(scraper: Scraper) -> None:
    """The cloud cannot list the instances, or the callback fails: the scraper goes on."""
    seen, raised = Seen(), iter([CloudError("no answer"), ZeroDivisionError("a fault")])

    def targets() -> Sequence[ScrapeTarget]:
        error = next(raised, None)
        if error is not None:
            raise error
        return []

    scraper.watch(fast_clock(), targets, None, seen)
    seen.wait(2)
    assert [asked for _, asked, _, _ in seen.windows[:2]] == [0, 0]


def test_windows_go_on_after_the_sink_fails_without_targets(scraper: Scraper) -> None:
    seen, fails = Seen(), iter([True])

    def targets() -> Sequence[ScrapeTarget]:
        raise CloudError("no answer")

    def sink(*given: Any) -> None:
        if next(fails, False):
            raise ZeroDivisionError("a fault")
        seen(*given)

    scraper.watch(fast_clock(), targets, None, sink)
    seen.wait(1)
