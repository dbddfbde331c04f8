"""Refusals and failures as a client sees them: the one table from reason to status, of servers and gateways.

An answer with a status of `RETRIED` carries `retry-after`; every body is `{"error": "..."}`.
"""

from __future__ import annotations

import math

from mark.models.call import Reply
from mark.serving.backend import bouncer

JSON = "application/json"
# Reasons of a gateway that makes no attempt: no replica is ready, or it has too many requests.
NOBODY_READY, FULL = "nobody_ready", "full"
# After these statuses the client may send the request again later, or elsewhere immediately.
RETRIED = frozenset((429, 503))

# The status and the text for each reason why a model does not answer a request.
_REASONS: dict[str, tuple[int, str]] = {
    bouncer.OVERLOADED: (429, "overloaded: it would not be answered in time"),
    bouncer.QUEUE_FULL: (429, "overloaded: the queue is full"),
    bouncer.DEADLINE: (504, "the deadline is shorter than an idle server takes"),
    bouncer.TOO_LARGE: (413, "more inputs or bytes than one batch takes"),
    bouncer.NO_WORKER: (503, "no worker is ready"),
    bouncer.DRAINING: (503, "draining: nothing new is taken"),
    "throttled": (429, "overloaded, and functions are throttled"),
    "functions": (503, "overloaded, and the function failed"),
    "expired": (504, "the deadline passed before it was answered"),
    "late": (504, "the function did not answer in time"),
    "lost": (503, "the worker or replica was lost"),
    # Reasons of a gateway
    NOBODY_READY: (503, "no replica is ready"),
    FULL: (503, "too many requests are on their way"),
    "broken_off": (502, "a replica broke off its answer"),
    "hung": (504, "no replica answered in time"),
    "gone": (503, "the client has gone"),  # seen in logs and metrics only
}
REASONS = frozenset(_REASONS)


def refusal(reason: str) -> Reply:
    """Return the reply to a request that ends for this reason. Raises KeyError for an unknown one."""
    status, what = _REASONS[reason]
    return error_reply(status, what)


def error_reply(status: int, what: str) -> Reply:
    """Return an error of this status, in JSON."""
    text = what.replace("\\", "/").replace('"', "'")
    return Reply(status, JSON, b'{"error": "%b"}' % text.encode())


def retry_after(seconds: float) -> bytes:
    """Return the header line `retry-after`."""
    return b"retry-after: %d\r\n" % retry_after_s(seconds)


def retry_after_s(seconds: float) -> int:
    """Return whole seconds, at least one."""
    return max(1, math.ceil(seconds))
