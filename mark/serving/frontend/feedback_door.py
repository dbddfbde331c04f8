"""`POST /v2/models/M/feedback`: clients' feedback on answers that they got."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from mark.models.compression import Refused
from mark.serving.backend.refusals import error_reply, retry_after
from mark.serving.feedback.port import Feedback
from mark.serving.frontend.calls import body_of
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import JSON
from mark.serving.frontend.openapi import FEEDBACK_SCHEMAS, feedback_operation
from mark.serving.frontend.routes import ModelRoute

MOST_BYTES = 1024 * 1024  # of one request
MOST_ITEMS = 1000
MOST_DEPTH = 64  # of lists and objects in one piece, because other tools must be able to read the log
_LONGEST_ID = 128  # as for a request
_LINES = (b"application/x-ndjson", b"application/jsonl", b"application/x-jsonlines")


class TellsReasons(Protocol):
    """Is called with the result of each piece (`mark.serving.feedback.collector.Told`), and reasons by position."""

    def __call__(self, results: Sequence[str] | None, reasons: Mapping[int, str] = ..., /) -> None: ...


class TakesFeedback(Protocol):
    """Takes the feedback of a request: the collector, or the component that passes some on (`mark.serving.learned`)."""

    def post(self, feedback: Sequence[Feedback], size: int, told: TellsReasons) -> bool: ...


class FeedbackDoor:
    """Takes feedback for a collector, and answers with the result of each piece once it is stored.

    `check` raises Refused for feedback that the model cannot use.
    """

    def __init__(
        self, collector: TakesFeedback, check: Callable[[Sequence[Feedback]], None] = lambda feedback: None
    ) -> None:
        self.collector, self._check = collector, check

    def route(self) -> ModelRoute:
        """Return the model's route for feedback."""
        return ModelRoute(b"POST", b"/feedback", self.post, True, feedback_operation, FEEDBACK_SCHEMAS)

    def post(self, version: str | None, exchange: Exchange) -> None:
        """Answer the exchange, later. The feedback is on answers of `version`; None: of any version."""
        try:
            body = body_of(exchange, MOST_BYTES)
            feedback = feedback_in(body, exchange.headers.get(b"content-type", b""), version)
            self._check(feedback)
        except Refused as error:
            reply = error_reply(error.status, str(error))
            exchange.answer(reply.status, reply.body, JSON, error.headers)
            return

        def told(results: Sequence[str] | None, reasons: Mapping[int, str] = {}) -> None:
            if results is None:
                _again_later(exchange, "the feedback could not be kept")
                return
            said = [{"id": one.id, "result": result} for one, result in zip(feedback, results, strict=True)]
            for at, reason in reasons.items():
                said[at]["reason"] = reason
            exchange.answer(200, orjson.dumps({"results": said}), JSON)

        if not self.collector.post(feedback, len(body), told):
            _again_later(exchange, "too much feedback is on its way")


def feedback_in(body: bytes, content_type: bytes, version: str | None) -> list[Feedback]:
    """Return the feedback in a body: an object, a list of them, or JSON Lines according to the type.

    Raises Refused for the whole body.
    """
    if len(body) > MOST_BYTES:
        raise Refused(413, f"feedback of more than {MOST_BYTES} bytes")
    if content_type.partition(b";")[0].strip().lower() in _LINES:
        said: Any = [_loaded(line, f"line {n}") for n, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    else:
        said = _loaded(body, "the body")
    items = said if isinstance(said, list) else [said]
    if not 1 <= len(items) <= MOST_ITEMS:
        raise Refused(413 if items else 400, f"1 to {MOST_ITEMS} pieces of feedback at a time, not {len(items)}")
    return [_feedback(item, f"feedback {number}", version) for number, item in enumerate(items, 1)]


def check_shares(feedback: Sequence[Feedback]) -> None:
    """Raise Refused for a reward outside of 0 to 1."""
    for number, one in enumerate(feedback, 1):
        if not 0.0 <= one.said.get("reward", 0.0) <= 1.0:
            raise Refused(400, f"feedback {number}: reward must be 0 to 1, not {one.said['reward']}")


def check_spelling(said: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Raise Refused for a field that is one slip away from a missing one of `names`, and would be kept as an extra.

    A plural that holds several values, such as `labels`, is a field of its own; `inputs` is a slip.
    """
    for name in names:
        for other, value in said.items() if name not in said else ():
            has_several = name != "input" and other == f"{name}s" and isinstance(value, list | dict)
            if not has_several and _one_slip(other.lower(), name):
                raise Refused(400, f"{where}: {other!r} is no field, did you mean {name}?")


def _one_slip(written: str, name: str) -> bool:
    """Return whether a letter is added, left out or replaced at most, or two neighbours are swapped."""
    same = 0
    while written[same:] and written[same:][0] == name[same:][:1]:
        same += 1
    written, name = written[same:], name[same:]
    swapped = written[:2][::-1] + written[2:]
    return name in (written[1:], swapped) or name[1:] in (written, written[1:])


def _feedback(item: Any, where: str, version: str | None) -> Feedback:
    if not isinstance(item, dict):
        raise Refused(400, f"{where}: must be an object")
    identity = item.pop("id", None)
    if not isinstance(identity, str) or not 1 <= len(identity) <= _LONGEST_ID:
        raise Refused(400, f"{where}: id must be the x-request-id of an answer, 1 to {_LONGEST_ID} characters")
    for name in ("key", "item"):
        if name in item and not isinstance(item[name], str):
            raise Refused(400, f"{where}: {name} must be a text")
    check_spelling(item, ("label", "reward"), where)
    reward = item.get("reward")
    if "reward" not in item and "label" not in item:
        raise Refused(400, f"{where}: must have a label or a reward")
    if "reward" in item and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise Refused(400, f"{where}: reward must be a number")
    if isinstance(reward, float) and not math.isfinite(reward):
        raise Refused(400, f"{where}: reward must be finite")
    if _deeper(item, MOST_DEPTH):
        raise Refused(400, f"{where}: is nested more than {MOST_DEPTH} deep")
    return Feedback(identity, item, version)


def _deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(_deeper(each, levels - 1) for each in inner))


def _loaded(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        raise Refused(400, f"{where} is not JSON") from None


def _again_later(exchange: Exchange, what: str) -> None:
    reply = error_reply(503, what)
    exchange.answer(reply.status, reply.body, JSON, retry_after(1.0))
