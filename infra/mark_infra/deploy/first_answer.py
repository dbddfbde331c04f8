"""Waiting until a bouncer of each service answers at the address that clients are given."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.message import Message

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


def status_of(url: str, timeout_s: float = 10.0) -> int:
    """The status of its answer; 0 where nothing answers, or only the function that stands in for instances.

    Nothing secret is sent, and what comes back is not trusted: the balancer's own name is in no certificate.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=timeout_s, context=context) as answer:
            return _of_instance(int(answer.status), answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return _of_instance(error.code, error.headers)
    except (OSError, ValueError):
        return 0


def _of_instance(status: int, headers: Message) -> int:
    return 0 if headers.get("mark-answered-by") == "function" else status
