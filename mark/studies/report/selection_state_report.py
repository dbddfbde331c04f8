"""`mark selection show`: the candidates of a running server, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, text
from mark.studies.report.words import count, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType

_TOTALS = (("answers", "answers"), ("feedback", "feedbacks"), ("contexts", "contexts"))


def state_table(said: Mapping[str, Any]) -> RenderableType:
    """Return the server's values; "-" for missing ones."""
    candidates: Mapping[str, Any] = said["candidates"]
    table = columns("candidate", "share", "error", "labels", "$ a call", "")
    for name, one in candidates.items():
        labels = _number(one, "feedback", "answers")
        table.add_row(
            str(name),
            percent(_number(one, "share")),
            percent(_number(one, "error"), 2),
            "-" if labels is None else count(labels),
            usd(_number(one, "usd_per_call")),
            "switched off" if isinstance(one, Mapping) and one.get("off") is True else "",
        )
    totals = [f"{count(found)} {words}" for key, words in _TOTALS if (found := _number(said, key)) is not None]
    return page(text(", ".join([f"policy {said.get('policy', '-')}", *totals]), "bold"), table)


def _number(said: Any, *keys: str) -> float | None:
    """Return the number under the first of the keys that has one."""
    for key in keys:
        value = said.get(key) if isinstance(said, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
