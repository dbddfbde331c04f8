"""`[feedback]`: a section that services and pipelines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mark.config.section import Section
from mark.domain.service import FeedbackSettings

FEEDBACK_KEYS = frozenset(("log", "horizon_s", "body_bytes", "memory_mb", "log_mb"))
_LEAST_LOG_MB = 16  # an eighth of it is a file, which has room for the longest line


def feedback_of(path: Path, tables: dict[str, dict[str, Any]]) -> FeedbackSettings | None:
    """What the section says; None where there is none. Raises BadInput."""
    if "feedback" not in tables:
        return None
    feedback, own = Section(path, "feedback", tables["feedback"]), FeedbackSettings("")
    return FeedbackSettings(
        log=str(path.parent / feedback.text("log")),
        horizon_s=feedback.number("horizon_s", own.horizon_s, above_zero=True),
        body_bytes=feedback.whole("body_bytes", own.body_bytes, least=0),
        memory_mb=feedback.whole("memory_mb", own.memory_mb),
        log_mb=feedback.whole("log_mb", own.log_mb, least=_LEAST_LOG_MB),
    )
