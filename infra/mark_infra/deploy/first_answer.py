"""Wait until a bouncer of each service answers at the clients' address."""

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
    """Yield (service, seconds waited) for each service as it answers; services slower than `patience_s` are left out.

    `ask` returns the status of a URL's answer, or 0 without an answer from an instance. A load balancer itself answers
    503 without a ready instance and 404 without a rule. Any other status is a bouncer's, for example 401 without a key.
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
    """Return the status of the URL's answer; 0 if nothing answers, or only the function in place of instances.

    `at` is the host to connect to, while SNI and Host have the name in `url`. So a domain can be asked before it points
    there. The certificate is not verified, because certificates do not contain the balancer's own name; no secret is
    sent and the answer is not trusted.
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
