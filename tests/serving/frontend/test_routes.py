"""Routes are registered by path and method, and a server answers its parts' routes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.routes import ModelRoute, Routes
from tests.serving.place import Place


def nothing(exchange: Exchange) -> None:
    """Handle nothing: it is never called."""


def other(exchange: Exchange) -> None:
    """Handle nothing: it is never called."""


def test_a_path_has_a_handler_for_each_method() -> None:
    routes = Routes()
    routes.add(b"GET", b"/a", nothing)
    routes.add(b"DELETE", b"/a", other)
    assert routes.exact[b"/a"] == {b"GET": nothing, b"HEAD": nothing, b"DELETE": other}
    assert routes.find(b"/b") is None
    with pytest.raises(ValueError, match=r"^GET /a is registered twice$"):
        routes.add(b"GET", b"/a", other)


def test_a_star_stands_for_one_part_more() -> None:
    routes = Routes()
    routes.add(b"GET", b"/keys/*", nothing)
    routes.add(b"GET", b"/keys/all", other)
    assert routes.find(b"/keys/u42") == {b"GET": nothing, b"HEAD": nothing}
    assert routes.find(b"/keys/all") == {b"GET": other, b"HEAD": other}
    assert b"/keys/u42" not in routes.exact
    assert routes.find(b"/keys") is routes.find(b"/keys/u/42") is None


def test_a_server_answers_and_describes_registered_routes() -> None:
    asked: list[tuple[str | None, bytes, bytes]] = []

    def key(version: str | None, exchange: Exchange) -> None:
        asked.append((version, exchange.method, exchange.path))
        exchange.answer(200, b"{}")

    def described(suffix: str) -> dict[str, Any]:
        return {"operationId": f"key{suffix}", "summary": "A key", "responses": {}}

    routes = [
        ModelRoute(b"GET", b"/keys/*", key, described=described, schemas={"Key": {"type": "object"}}),
        ModelRoute(b"DELETE", b"/keys/*", key),
        ModelRoute(b"POST", b"/top", key, by_version=True, described=described),
    ]

    async def main() -> None:
        async with Place(routes=routes) as place:
            model = "/v2/models/twice"
            for method, path in (
                ("GET", "/keys/u42"), ("DELETE", "/keys/u%2042"), ("POST", "/top"), ("POST", "/versions/1/top"),
            ):  # fmt: skip
                assert (await place.client.request(method, model + path)).status_code == 200
            refused = await place.client.post(f"{model}/keys/u42")
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, DELETE")
            assert refused.json() == {"error": "only GET, DELETE here"}
            for path in ("/keys", "/keys/a/b", "/versions/1/keys/u42"):
                assert (await place.client.get(model + path)).status_code == 404
            said = (await place.client.get("/openapi.json")).json()
            assert said["paths"][f"{model}/keys/{{id}}"]["get"]["operationId"] == "key"
            assert "delete" not in said["paths"][f"{model}/keys/{{id}}"]
            assert said["paths"][f"{model}/versions/{{version}}/top"]["post"]["operationId"] == "keyOfVersion"
            assert said["components"]["schemas"]["Key"] == {"type": "object"}

    asyncio.run(main())
    model = b"/v2/models/twice"
    assert asked == [
        (None, b"GET", model + b"/keys/u42"),
        (None, b"DELETE", model + b"/keys/u%2042"),
        (None, b"POST", model + b"/top"),
        ("1", b"POST", model + b"/versions/1/top"),
    ]
