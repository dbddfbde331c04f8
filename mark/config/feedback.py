"""`[feedback]`: a section that services and pipelines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mark.config import plugins
from mark.config.section import Section
from mark.domain.errors import BadInput
from mark.domain.service import FeedbackSettings

FEEDBACK_KEYS = frozenset(("log", "horizon_s", "body_bytes", "memory_mb", "log_mb", "store", "durability"))
STORE = "store"
_DURABILITY = ("peers", STORE)
_LEAST_LOG_MB = 16  # an eighth of it is a file, which must hold the longest line


def feedback_of(path: Path, tables: dict[str, dict[str, Any]]) -> FeedbackSettings | None:
    """Return the settings of the section, or None without one. Raises BadInput."""
    if "feedback" not in tables:
        return None
    feedback, own = Section(path, "feedback", tables["feedback"]), FeedbackSettings("")
    return FeedbackSettings(
        log=str(path.parent / feedback.text("log")),
        horizon_s=feedback.number("horizon_s", own.horizon_s, above_zero=True),
        body_bytes=feedback.whole("body_bytes", own.body_bytes, least=0),
        memory_mb=feedback.whole("memory_mb", own.memory_mb),
        log_mb=feedback.whole("log_mb", own.log_mb, least=_LEAST_LOG_MB),
        store=_store(feedback, path.parent),
        durability=feedback.one_of("durability", _DURABILITY),
    )


def _store(feedback: Section, beside: Path) -> str:
    """Return a folder, or a place of a registered scheme; "" without a store."""
    if "store" not in feedback.table:
        if feedback.one_of("durability", _DURABILITY) == STORE:
            raise BadInput("needs a `store`", feedback.where("durability"), STORE)
        return ""
    store = feedback.text("store")
    scheme, colon, rest = store.partition(":")
    if not colon or not rest.startswith("//"):
        return str(beside / store)
    if scheme not in (known := plugins.names(plugins.OBJECT_STORES)):
        raise BadInput(f"must be a folder, or one of {', '.join(known)}", feedback.where("store"), store)
    return store
