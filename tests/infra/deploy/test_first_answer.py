"""The first answer of a site comes from a bouncer, not from the balancer itself."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trustme
from mark_infra.deploy.first_answer import LOOK_S, first_answers, status_of

DOMAIN = "models.example.invalid"  # never resolves


class Balancers:
    """Balancers whose addresses give their statuses in turn, and then repeat the last; waiting lets time pass."""

    def __init__(self, **statuses: list[int]) -> None:
        self.statuses, self.now_s, self.asked = statuses, 0.0, list[str]()

    def ask(self, url: str) -> int:
        self.asked.append(url)
        left = self.statuses[url.split("//")[1].split("/")[0]]
        return left.pop(0) if len(left) > 1 else left[0]

    def wait(self, **addresses: str) -> list[tuple[str, float]]:
        return list(first_answers(addresses, self.ask, patience_s=60.0, monotonic=lambda: self.now_s, pause=self._pass))

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds


def test_the_balancers_own_answers_are_none() -> None:
    there = Balancers(one=[0, 503, 502, 404, 401])
    assert there.wait(echo="http://one") == [("echo", 4 * LOOK_S)]
    assert there.asked[0] == "http://one/v2/models/echo/ready"


def test_each_service_is_told_of_when_it_answers() -> None:
    there = Balancers(one=[503, 200], two=[200])
    assert there.wait(a="http://one", b="http://two") == [("b", 0.0), ("a", LOOK_S)]


def test_what_never_answers_is_not_waited_for_for_ever() -> None:
    there = Balancers(one=[503], two=[401])
    assert there.wait(a="http://one", b="http://two") == [("b", 0.0)]
    assert there.now_s > 60.0


class _Refusing(BaseHTTPRequestHandler):
    """A bouncer that refuses the key, or answers 404 for another host name, as the balancer does."""

    def do_GET(self) -> None:
        """Refuse the key; the path names the part that answers."""
        self.send_response(401 if self.headers["host"].startswith(("127.0.0.1", DOMAIN)) else 404)
        if (by := self.path.strip("/")) in ("function", "instance"):
            self.send_header("mark-answered-by", by)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def refusing() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_status_is_read_and_silence_is_none(refusing: str) -> None:
    assert status_of(refusing) == 401
    assert status_of("http://127.0.0.1:1", timeout_s=1.0) == 0


def test_the_function_that_stands_in_is_no_instance(refusing: str) -> None:
    assert status_of(f"{refusing}/function") == 0
    assert status_of(f"{refusing}/instance") == 401


@pytest.fixture
def certified() -> Iterator[tuple[int, list[str]]]:
    """Serve TLS on a port; yield it with the names that clients asked for."""
    names: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(DOMAIN).configure_cert(context)
    context.sni_callback = lambda _, name, __: names.append(name)
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port, names
        server.shutdown()
        thread.join()


def test_a_domain_that_points_nowhere_yet_is_answered(certified: tuple[int, list[str]]) -> None:
    port, names = certified
    url = f"https://{DOMAIN}:{port}/v2/models/echo/ready"
    assert status_of(url, timeout_s=5.0) == 0
    assert status_of(url, "127.0.0.1", 5.0) == 401
    assert names == [DOMAIN]
