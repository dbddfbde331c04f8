"""`mark selection show`: the candidates of a running server, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count, percent, percent_2, usd

_TOTALS = (("answers", "answers"), ("feedback", "feedbacks"), ("contexts", "contexts"))


_HEADS = (
    *("candidate", ("share", percent), ("error", percent_2), ("labels", lambda n: "-" if n is None else count(n))),
    *(("$ a call", usd), ""),
)


def state_report(said: Mapping[str, Any]) -> Report:
    """Return the server's values; "-" for missing ones."""
    candidates: Mapping[str, Any] = said["candidates"]
    rows = [
        (
            *(str(name), _number(one, "share"), _number(one, "error"), _number(one, "feedback", "answers")),
            _number(one, "usd_per_call"),
            "switched off" if isinstance(one, Mapping) and one.get("off") is True else "",
        )
        for name, one in candidates.items()
    ]
    totals = [f"{count(found)} {words}" for key, words in _TOTALS if (found := _number(said, key)) is not None]
    return Report(said, ", ".join([f"policy {said.get('policy', '-')}", *totals]), [DataTable(_HEADS, rows)])


def _number(said: Any, *keys: str) -> float | None:
    """Return the number under the first of the keys that has one."""
    for key in keys:
        value = said.get(key) if isinstance(said, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
