"""Current values, as JSON for programs and as an HTML page that the browser reloads every two seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from mark.serving.frontend import pages
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.limits import HTML, JSON

_RELOAD = b"refresh: 2\r\n"


def answer_live(
    exchange: Exchange, name: str, said: dict[str, Any], page: Callable[[str, dict[str, Any]], str]
) -> None:
    """Answer with the values `said` of the model `name`; `page` makes HTML of them if the client accepts it."""
    if b"text/html" in exchange.headers.get(b"accept", b""):
        exchange.answer(200, page(name, said).encode(), HTML, pages.VARY + pages.HEADERS + _RELOAD)
    else:
        exchange.answer(200, orjson.dumps(said), JSON, pages.VARY)
