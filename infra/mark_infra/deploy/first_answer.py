"""Waiting until a bouncer of each service answers at the address that clients are given."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

LOOK_S = 5.0
PATIENCE_S = 1200.0
_NOT_FOUND = 404


def first_answers(
    addresses: Mapping[str, str],
    ask: Callable[[str], int],
    *,
    patience_s: float = PATIENCE_S,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[str, float]]:
    """(service, seconds waited) of each, as it answers; ends without those that do not within `patience_s`.

    `ask` returns the status of a URL's answer, 0 where there is none that is an instance's. A load balancer without a
    ready instance says 503 itself, and without a rule 404; whatever else comes, is a bouncer's: without a key it says
    401.
    """
    began_s = monotonic()
    waiting = dict(addresses)
    while waiting:
        for service, address in list(waiting.items()):
            status = ask(f"{address}/v2/models/{service}/ready")
            if 0 < status < 500 and status != _NOT_FOUND:
                del waiting[service]
                yield service, monotonic() - began_s
        if monotonic() - began_s > patience_s:
            return
        if waiting:
            pause(LOOK_S)


def status_of(url: str, at: str | None = None, timeout_s: float = 10.0) -> int:
    """The status of its answer; 0 where nothing answers, or only the function that stands in for instances.

    `at` is the host that is asked, by the name in `url` (SNI, Host): a domain that does not point there yet is
    already answered there. Nothing secret is sent, and what comes back is not trusted: the balancer's own name is in no
    certificate.
    """
    try:
        connection = _connection(urllib.parse.urlsplit(url), at, timeout_s)
        with closing(connection):
            connection.request("GET", urllib.parse.urlsplit(url).path)
            answer = connection.getresponse()
    except (OSError, ValueError, http.client.HTTPException):
        return 0
    return 0 if answer.headers.get("mark-answered-by") == "function" else answer.status


def _connection(url: urllib.parse.SplitResult, at: str | None, timeout_s: float) -> http.client.HTTPConnection:
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    made = http.client.HTTPConnection(host, port, timeout=timeout_s)
    there: socket.socket = socket.create_connection((at or host, port), timeout_s)
    if url.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            there = context.wrap_socket(there, server_hostname=host)
        except BaseException:
            there.close()
            raise
    made.sock = there
    return made
