"""Answers and feedback for tests."""

from __future__ import annotations

from typing import Any

from mark.models.answer import Provenance
from mark.serving.feedback.port import Feedback, RecordedBody, ServedAnswer


def body(data: bytes | None = b"{}") -> RecordedBody:
    return RecordedBody("application/json", 2 if data is None else len(data), data, "" if data else "ab" * 32)


def answer(
    identity: str,
    served_at_s: float = 0.0,
    version: str = "1",
    data: bytes = b"{}",
    provenance: Provenance | None = None,
) -> ServedAnswer:
    return ServedAnswer(identity, "echo", version, served_at_s, "instance", body(data), body(data), provenance)


def feedback(identity: str, version: str | None = None, **said: Any) -> Feedback:
    return Feedback(identity, said or {"label": 7}, version)
