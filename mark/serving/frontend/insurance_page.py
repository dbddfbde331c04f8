"""`GET /v2/models/M/insurance`: the cost of parity models and the answers they saved, as JSON or as a page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from typing import Any

from mark.serving.frontend import pages
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.live_page import answer_live
from mark.serving.frontend.openapi import insurance_operation
from mark.serving.frontend.routes import ModelRoute


def insurance_route(name: str, said: Callable[[], dict[str, Any]]) -> ModelRoute:
    """Return the route of the model `name`; `said` returns the current values."""

    def answer(version: str | None, exchange: Exchange) -> None:
        answer_live(exchange, name, said(), insurance_page)

    return ModelRoute(b"GET", b"/insurance", answer, described=insurance_operation)


def insurance_page(name: str, said: dict[str, Any]) -> str:
    """Return the HTML page. It is complete in itself, without scripts, and the browser reloads it every two seconds."""
    fill = "no limit" if said["fill_ms"] is None else f"{said['fill_ms']:.0f} ms"
    premium = said["premium_usd_per_hour"]
    rows = [
        ("state", escape(_state(said))),
        ("code", f"{escape(said['code'])}, k = {said['k']}, parity models: {said['r']}"),
        ("answers by reconstruction", f"{said['reconstructed']:,}"),
        ("of these saved: in time, where the model's answer came late or never", f"{said['saved']:,}"),
        ("agreement of reconstructions with the model's later answers", _agreement(said)),
        ("refusals held for a reconstruction", f"{said['held']:,}, of which {said['held_passed_on']:,} passed on"),
        ("queries in groups, and beside them", f"{said['members']:,}, {said['passed_by']:,}"),
        ("groups, and of them without a parity call", f"{said['groups']:,}, {said['given_up']:,}"),
        ("parity calls, and of them without an answer", f"{said['parity_calls']:,}, {said['parity_missed']:,}"),
        ("malformed answers of parity models, and reconstructions", f"{said['malformed']:,}"),
        ("answers of the model that cannot reconstruct others", f"{said['unusable']:,}"),
        ("a group is filled after", fill),
        ("premium: cost of the parity instances", "unknown" if premium is None else f"${premium:,.2f} an hour"),
    ]
    table = ["<table>", *(f"<tr><td>{title}<td>{value}" for title, value in rows), "</table>"]
    return pages.page(f"{name}: insurance", table)


def _state(said: dict[str, Any]) -> str:
    if said["uninsured_since_unix_s"] is not None:
        since = datetime.fromtimestamp(said["uninsured_since_unix_s"], UTC)
        return f"uninsured since {since:%Y-%m-%d %H:%M:%S} UTC: {said['uninsured_because']}"
    return "insured" if said["parity_ready"] else "uninsured: no parity model is ready"


def _agreement(said: dict[str, Any]) -> str:
    if said["compared"] == 0:
        expected = said["expected_agreement"]
        return "none was compared" + ("" if expected is None else f"; {100 * expected:.1f} % were right when trained")
    return f"{said['agreed']:,} of {said['compared']:,} ({100 * said['agreed'] / said['compared']:.1f} %)"
