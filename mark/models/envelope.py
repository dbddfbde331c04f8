"""Calls and replies as JSON with bodies in base64, because an AWS Lambda invocation carries only JSON."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from mark.models.call import Call, Reply


def calls_to_event(calls: Sequence[Call]) -> bytes:
    """Return `{"calls": [...]}`; the handler answers with one reply for each."""
    return json.dumps(
        {
            "calls": [
                {
                    "protocol": call.protocol,
                    "content_type": call.content_type,
                    "accept": call.accept,
                    "json_bytes": call.json_bytes,
                    "body": b64encode(call.body).decode("ascii"),
                }
                for call in calls
            ]
        }
    ).encode()


def calls_from_event(event: Mapping[str, Any]) -> list[Call]:
    """Return the calls of an event. Raises ValueError for any other event."""
    try:
        return [
            Call(
                protocol=str(call["protocol"]),
                content_type=str(call["content_type"]),
                body=b64decode(call["body"], validate=True),
                json_bytes=None if call.get("json_bytes") is None else int(call["json_bytes"]),
                accept=str(call.get("accept", "")),
            )
            for call in event["calls"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an event of calls: {type(error).__name__} {error}") from None


def replies_to_result(replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """Return the value of "replies" in a handler's result."""
    return [
        {
            "status": reply.status,
            "content_type": reply.content_type,
            "json_bytes": reply.json_bytes,
            "body": b64encode(reply.body).decode("ascii"),
        }
        for reply in replies
    ]


def replies_from_result(result: Any, expected: int) -> list[Reply]:
    """Return the replies in a handler's result. Raises ValueError unless there are exactly `expected`."""
    try:
        replies = [
            Reply(
                status=int(reply["status"]),
                content_type=str(reply["content_type"]),
                body=b64decode(reply["body"], validate=True),
                json_bytes=None if reply.get("json_bytes") is None else int(reply["json_bytes"]),
            )
            for reply in result["replies"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a result with replies: {type(error).__name__} {error}") from None
    if len(replies) != expected:
        raise ValueError(f"{len(replies)} replies to {expected} calls")
    return replies


def billed_s_from_result(result: Any) -> float | None:
    """Return the billed time of the invocation, as its handler measured it; None if the result lacks it."""
    billed_ms = result.get("billed_ms") if isinstance(result, Mapping) else None
    if isinstance(billed_ms, bool) or not isinstance(billed_ms, int | float) or not 0.0 <= billed_ms < math.inf:
        return None
    return billed_ms / 1e3
