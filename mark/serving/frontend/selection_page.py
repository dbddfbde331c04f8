"""`GET /v2/models/M/selection`: shares, errors and prices of a selection's candidates, as JSON or as a page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from mark.serving.frontend import pages
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.live_page import answer_live
from mark.serving.frontend.openapi import selection_operation
from mark.serving.frontend.routes import ModelRoute


def selection_route(name: str, said: Callable[[], dict[str, Any]]) -> ModelRoute:
    """Return the route of the model `name`; `said` returns the current values."""

    def answer(version: str | None, exchange: Exchange) -> None:
        answer_live(exchange, name, said(), selection_page)

    return ModelRoute(b"GET", b"/selection", answer, described=selection_operation)


def selection_page(name: str, said: dict[str, Any]) -> str:
    """Return the HTML page. It is complete in itself, without scripts, and the browser reloads it every two seconds."""
    head = ("candidate", "weight now", "recent error", "answers given", "asked", "missed", "$ per call", "feedback")
    rows = [f"<tr>{''.join(f'<th>{one}' for one in head)}"]
    for candidate, one in said["candidates"].items():
        mark = " (switched off by the guard)" if one["off"] else ""
        mark += " (champion)" if said["champion"] == candidate else ""
        cells = (
            f"{escape(candidate)}{mark}",
            _bar(one["weight"]),
            _percent(one["error"]),
            _percent(one["share"]),
            f"{one['asked']:,}",
            f"{one['missed']:,}",
            "0" if not one["usd_per_call"] else f"{one['usd_per_call']:.3g}",
            f"{one['feedback']:,.0f}",
        )
        rows.append(f"<tr>{''.join(f'<td>{cell}' for cell in cells)}")
    totals = [
        ("policy", escape(said["policy"])),
        ("answers since the start", f"{said['answers']:,}, {said['by_default']:,} of them the default"),
        ("errors among those with feedback", _percent(said["error"])),
        ("$ per million answers", _usd(said["usd_per_million_answers"])),
        ("$ per million correct answers", _usd(said["usd_per_million_correct"])),
        ("feedback learned, by all servers", f"{said['feedback']:,}"),
        ("contexts", f"{said['contexts']:,}"),
    ]
    parts = ["<table>", *(f"<tr><td>{title}<td>{value}" for title, value in totals), "</table>"]
    return pages.page(f"{name}: which model answers", ["<table>", *rows, "</table>", "<h2>In all</h2>", *parts])


def _bar(weight: float | None) -> str:
    return "by worth" if weight is None else f"<meter value='{weight:.4f}'></meter> {100 * weight:.1f} %"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.2f} %"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:,.4g}"
