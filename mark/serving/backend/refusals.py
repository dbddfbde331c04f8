"""Refusals and failures as a client sees them: one table from reason to status, in one place.

A status of 429 or 503 carries `retry-after`; every body is `{"error": "..."}`.
"""

from __future__ import annotations

import math

from mark.models.call import Reply
from mark.serving.backend import bouncer

JSON = "application/json"

# Why a request has no answer of the model: status, and what is said.
_REASONS: dict[str, tuple[int, str]] = {
    bouncer.OVERLOADED: (429, "overloaded: it would not be answered in time"),
    bouncer.QUEUE_FULL: (429, "overloaded: the queue is full"),
    bouncer.DEADLINE: (504, "the deadline is shorter than an idle server takes"),
    bouncer.TOO_LARGE: (413, "more inputs or bytes than one batch takes"),
    bouncer.NO_WORKER: (503, "no worker is ready"),
    bouncer.DRAINING: (503, "this server is draining"),
    "throttled": (429, "overloaded, and functions are throttled"),
    "functions": (503, "overloaded, and the function failed"),
    "expired": (504, "the deadline passed before it was served"),
    "late": (504, "the function did not answer in time"),
    "lost": (503, "the worker was lost"),
}
REASONS = frozenset(_REASONS)


def refusal(reason: str) -> Reply:
    """The reply to a request that ends for this reason; a KeyError for an unknown one."""
    status, what = _REASONS[reason]
    return error_reply(status, what)


def error_reply(status: int, what: str) -> Reply:
    """An error of this status, in JSON."""
    text = what.replace("\\", "/").replace('"', "'")
    return Reply(status, JSON, b'{"error": "%b"}' % text.encode())


def retry_after(seconds: float) -> bytes:
    """The header line; whole seconds, at least one."""
    return b"retry-after: %d\r\n" % max(1, math.ceil(seconds))
