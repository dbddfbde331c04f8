"""Questions to bouncers: real HTTP servers on loopback addresses with one port for all, as on a testbed."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mark_infra.aws import readiness
from mark_infra.aws.inventory import DescribedInstance
from mark_infra.aws.readiness import AskedBouncers, headers
from mark_infra.aws.site import Site, SiteService

from mark.domain.errors import BadInput
from tests.certificates import of_its_own
from tests.infra.aws.bench import Time

KEY = "0123456789abcdef"
BUSY = 'mark_queued_requests{model="m",version="1"} 0.0\nmark_running_requests{model="m",version="1"} 2.0\n'
QUIET = "# HELP mark_queued_requests that wait\nmark_queued_requests 0.0\nmark_running_requests 0.0\n"


class Bouncer:
    def __init__(self) -> None:
        self.ready, self.metrics, self.silent = True, QUIET, threading.Event()
        self.silent.set()
        self.asked: list[tuple[str, str | None]] = []


@contextmanager
def listening(address: str, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[tuple[Bouncer, int]]:
    bouncer = Bouncer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bouncer.asked.append((self.path, self.headers.get("authorization")))
            bouncer.silent.wait(60.0)
            ready = self.path == "/v2/health/ready"
            body = b"" if ready else bouncer.metrics.encode()
            self.send_response(200 if bouncer.ready or not ready else 503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield bouncer, server.server_address[1]
    finally:
        bouncer.silent.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def two() -> Iterator[tuple[Bouncer, Bouncer, int]]:
    """Run two bouncers, on 127.0.0.2 and 127.0.0.3."""
    with ExitStack() as stack:
        first, port = stack.enter_context(listening("127.0.0.2"))
        second, _ = stack.enter_context(listening("127.0.0.3", port))
        yield first, second, port


def asking(port: int, time: Time, key_file: Path | None = None, scheme: str = "http") -> AskedBouncers:
    service = SiteService("lt-1", {"us-east-1a": "subnet-1"}, scheme=scheme)
    site = Site(
        "mark", "us-east-1", "sqlite:none", bouncer_port=port, key_file=key_file, services={"inception": service}
    )
    return AskedBouncers(site, unix_s=time.unix_s, monotonic=time.monotonic)


def machine(
    n: int, *, state: str = "running", ready_s: float | None = None, drained_s: float | None = None
) -> DescribedInstance:
    return DescribedInstance(
        f"i-{n}", "inception", "c5.large/on-demand", "t", state, 0.0, f"127.0.0.{n}",
        ready_unix_s=ready_s, draining_unix_s=drained_s,
    )  # fmt: skip


def test_a_booting_instance_is_asked_whether_it_is_ready(two: tuple[Bouncer, Bouncer, int]) -> None:
    first, second, port = two
    second.ready = False
    bouncers = asking(port, Time())
    absent = machine(4)
    bouncers.poll([machine(2), machine(3), absent, machine(5, state="pending"), machine(6, state="stopped")])
    assert [bouncers.ready(machine(n)) for n in range(2, 7)] == [True, False, False, False, False]
    assert first.asked == [("/v2/health/ready", None)]
    second.ready = True
    bouncers.poll([machine(2, ready_s=1.0), machine(3)])
    assert bouncers.ready(machine(3))
    assert len(first.asked) == 1, "a ready instance is not asked again"


def test_bouncers_are_asked_over_tls_with_any_certificate() -> None:
    """A bouncer without TLS is not ready, and not known to have finished."""
    with ExitStack() as stack:
        first, port = stack.enter_context(listening("127.0.0.2", tls=of_its_own()))
        stack.enter_context(listening("127.0.0.3", port))
        time = Time()
        bouncers = asking(port, time, scheme="https")
        drained = [machine(n, ready_s=1.0, drained_s=time.t_s) for n in (2, 3, 9)]
        bouncers.poll([machine(2), machine(3)])
        assert [bouncers.ready(machine(n)) for n in (2, 3)] == [True, False]
        time.t_s += 6.0
        bouncers.poll(drained)
        assert [bouncers.idle(one) for one in drained] == [True, False, True]
        assert [path for path, _ in first.asked] == ["/v2/health/ready", "/metrics"]


def test_a_drained_bouncer_is_idle_after_finishing_and_a_grace(two: tuple[Bouncer, Bouncer, int]) -> None:
    """The balancer may still send it a request a little later."""
    first, _, port = two
    time = Time()
    drained = machine(2, ready_s=1.0, drained_s=time.t_s)
    bouncers = asking(port, time)

    def idle_after(seconds: float) -> bool:
        time.t_s += seconds
        bouncers.poll([drained])
        return bouncers.idle(drained)

    first.metrics = BUSY
    assert not idle_after(1.0)
    first.metrics = QUIET
    assert not idle_after(3.0)
    assert idle_after(2.0)
    first.metrics = BUSY
    assert not idle_after(1.0)


def test_a_drained_bouncer_that_is_gone_is_idle(two: tuple[Bouncer, Bouncer, int]) -> None:
    """The machine refuses the connection because the port is closed."""
    time = Time()
    bouncers = asking(two[2], time)
    drained = machine(9, ready_s=1.0, drained_s=time.t_s)
    time.t_s += 6.0
    bouncers.poll([drained])
    assert bouncers.idle(drained)


def test_an_unreachable_bouncer_is_not_idle(two: tuple[Bouncer, Bouncer, int]) -> None:
    """It may still answer queued requests; only the controller does not hear it."""
    first, _, port = two
    first.silent.clear()
    time = Time()
    bouncers = asking(port, time)
    drained = machine(2, ready_s=1.0, drained_s=time.t_s)
    time.t_s += 6.0
    bouncers.poll([drained])
    assert not bouncers.idle(drained)


@pytest.mark.parametrize("page", ["", "mark_queued_requests many", "<html>"])
def test_a_page_that_does_not_say_is_no_proof(two: tuple[Bouncer, Bouncer, int], page: str) -> None:
    """Such a page does not hide the others."""
    first, _, port = two
    first.metrics = page
    time = Time()
    bouncers = asking(port, time)
    drained = [machine(n, ready_s=1.0, drained_s=time.t_s) for n in (2, 3)]
    time.t_s += 6.0
    bouncers.poll(drained)
    assert [bouncers.idle(one) for one in drained] == [False, True]


def test_a_silent_bouncer_does_not_delay_the_others(two: tuple[Bouncer, Bouncer, int]) -> None:
    first, _, port = two
    first.silent.clear()
    bouncers = asking(port, Time())
    bouncers.poll([machine(2), machine(3)])
    assert not bouncers.ready(machine(2))
    assert bouncers.ready(machine(3))


def test_a_bouncer_without_metrics_or_health_is_silent_until_answering(two: tuple[Bouncer, Bouncer, int]) -> None:
    """Any answer at all prevents silence, and an answered scrape ends it, too."""
    first, _, port = two
    time = Time()
    bouncers = asking(port, time)
    live, gone = machine(2, ready_s=1.0), machine(9, ready_s=1.0)

    def poll() -> list[float | None]:
        time.t_s += 1.0
        bouncers.poll([live, gone])
        return [bouncers.silent_since_s(one) for one in (live, gone)]

    assert poll() == [None, None]
    bouncers.scraped(["i-2", "i-9"], [])
    since_s = time.monotonic() + 1.0
    assert poll() == [None, since_s]
    assert poll() == [None, since_s]
    assert {path for path, _ in first.asked} == {"/v2/health/live"}
    bouncers.scraped(["i-2", "i-9"], ["i-9"])
    assert poll() == [None, None]
    bouncers.scraped(["i-9"], [])
    bouncers.poll([live])
    assert poll() == [None, None], "an instance that no longer runs is forgotten"


def test_an_answered_scrape_ends_a_silence_without_a_poll(two: tuple[Bouncer, Bouncer, int]) -> None:
    """The polling thread may hang; a later silence starts a new count."""
    time = Time()
    bouncers = asking(two[2], time)
    gone = machine(9, ready_s=1.0)
    bouncers.scraped(["i-9"], [])
    bouncers.poll([gone])
    assert bouncers.silent_since_s(gone) == time.monotonic()
    bouncers.scraped(["i-9"], ["i-9"])
    assert bouncers.silent_since_s(gone) is None
    bouncers.scraped(["i-9"], [])
    assert bouncers.silent_since_s(gone) is None
    time.t_s += 40.0
    bouncers.poll([gone])
    assert bouncers.silent_since_s(gone) == time.monotonic()


def test_many_hanging_bouncers_do_not_block_the_others(
    two: tuple[Bouncer, Bouncer, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them hang than are asked at a time, and all come first."""
    monkeypatch.setattr(readiness, "_AT_ONCE", 1)
    monkeypatch.setattr(readiness, "TIMEOUT_S", 0.5)
    first, _, port = two
    first.silent.clear()
    time = Time()
    bouncers = asking(port, time)
    hang = [replace(machine(2, ready_s=1.0), id=f"i-hangs-{n}") for n in range(2)]
    missed, drained = machine(3, ready_s=1.0), replace(machine(3, ready_s=1.0, drained_s=time.t_s), id="i-drained")
    bouncers.scraped([one.id for one in (*hang, missed)], [])
    time.t_s += 6.0
    bouncers.poll([*hang, missed, drained])
    assert all(bouncers.silent_since_s(one) is not None for one in hang)
    assert bouncers.silent_since_s(missed) is None
    assert bouncers.idle(drained), "it was heard"


def test_a_key_that_may_read_metrics_is_shown(two: tuple[Bouncer, Bouncer, int], tmp_path: Path) -> None:
    first, _, port = two
    keys = tmp_path / "keys"
    keys.write_text(f"ada:fedcba9876543210\ncontroller:{KEY}:metrics\n")
    bouncers = asking(port, Time(), keys)
    bouncers.poll([machine(2, drained_s=1.0)])
    assert first.asked == [("/metrics", f"Bearer {KEY}")]
    keys.write_text(f"controller:{KEY}:admin\n")
    shown = headers(Site("mark", "us-east-1", "sqlite:none", key_file=keys))
    assert shown() == {"authorization": f"Bearer {KEY}"}
    keys.write_text(f"controller:{KEY[::-1]}:metrics\n")
    assert shown() == {"authorization": f"Bearer {KEY[::-1]}"}, "keys change while it runs"
    keys.write_text("half a fi")
    assert shown() == {"authorization": f"Bearer {KEY[::-1]}"}
    keys.write_text("ada:fedcba9876543210\n")
    with pytest.raises(BadInput, match="no key in it may read metrics"):
        asking(port, Time(), keys)


def test_a_bouncer_that_was_never_polled_is_not_ready() -> None:
    bouncers = asking(9, Time())
    bouncers.poll([])
    assert not bouncers.ready(machine(2))
    assert not bouncers.idle(machine(2))
