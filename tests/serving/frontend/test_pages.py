"""The pages at `/` and `/docs`: they show all routes and load nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from mark.serving.frontend.auth import INFER, METRICS, Auth, Grant
from mark.serving.frontend.openapi import FEEDBACK_SCHEMAS, feedback_operation, openapi
from mark.serving.frontend.pages import docs_page, index, index_page
from mark.serving.frontend.routes import ModelRoute
from tests.serving.place import Place

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
INPUTS = [{"name": "it's <b>", "datatype": "FP32", "shape": [-1, 2]}]


def in_a_place(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        async with Place() as place:
            await test(place)

    def running() -> None:
        asyncio.run(run())

    running.__name__, running.__doc__ = test.__name__, test.__doc__
    return running


@in_a_place
async def test_the_root_says_what_is_where_to_programs_and_browsers(place: Place) -> None:
    described = (await place.client.get("/openapi.json")).json()["paths"]
    asked = await place.client.get("/")
    assert asked.headers["content-type"] == "application/json"
    assert [path.split()[1] for path in asked.json()["endpoints"]] == list(described)
    assert asked.json()["title"] == "mark: twice"
    page = await place.client.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["vary"] == asked.headers["vary"] == "accept"
    for link in ("/docs", "/openapi.json", "/metrics"):
        assert f"href='{link}'" in page.text
        assert (await place.client.get(link)).status_code == 200
    assert (await place.client.post("/")).headers["allow"] == "GET"
    assert (await place.client.head("/")).content == b""


@in_a_place
async def test_the_docs_page_has_every_operation_and_an_example(place: Place) -> None:
    described = (await place.client.get("/openapi.json")).json()["paths"]
    page = await place.client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, methods in described.items():
        for method in methods.keys() - {"parameters"}:
            assert f"<code>{method.upper()} {path}</code>" in page.text
    assert "curl -s $URL/v2/models/twice/infer -d" in page.text
    # Errors that any request may get are listed once, those of an operation are listed with it.
    assert page.text.count("too large headers") == 1
    assert page.text.count("the deadline passed") == 3


@pytest.mark.parametrize("page", [docs_page, index_page])
def test_a_page_is_self_contained_and_escapes_names(page: Callable[[dict[str, object]], str]) -> None:
    text = page(openapi("<script>x</script>", ["<i>"], INPUTS))
    assert "<script" not in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"https?://|src=|url\(|@import", text)
    anchors = set(re.findall(r" id='([^']*)'", text))
    assert {link[1:] for link in re.findall(r"href='([^']*)'", text) if link[0] == "#"} <= anchors


def test_the_index_names_each_operation_once() -> None:
    endpoints = index(openapi("m", ["1"], []))["endpoints"]
    assert endpoints["POST /v2/models/m/infer"] == "Infer, by the Open Inference Protocol"
    assert endpoints["GET /docs"] == "This description as a page"


def test_feedback_is_described_where_it_is_taken() -> None:
    """The schema has an item's required keys, and the page shows an example."""
    route = ModelRoute(b"POST", b"/feedback", print, True, feedback_operation, FEEDBACK_SCHEMAS)
    without, said = openapi("m", ["1"], []), openapi("m", ["1"], [], [route])
    door = "/v2/models/m/feedback"
    assert set(said["paths"]) - set(without["paths"]) == {door, "/v2/models/m/versions/{version}/feedback"}
    assert {"200", "400", "413", "503"} <= set(said["paths"][door]["post"]["responses"])
    assert set(said["components"]["schemas"]) - set(without["components"]["schemas"]) == {"Feedback", "FeedbackResults"}
    assert "curl -s $URL/v2/models/m/feedback -d" in docs_page(said)


@pytest.mark.parametrize("path", [b"/", b"/docs", b"/openapi.json", b"/v2/repository/index"])
def test_pages_need_the_same_key_as_the_description(path: bytes) -> None:
    auth = Auth({"k" * 16: Grant("client", frozenset((INFER,))), "m" * 16: Grant("prometheus", frozenset((METRICS,)))})
    refused = auth.admit(b"GET", path, {})
    assert refused is not None
    assert refused[0] == 401
    assert auth.admit(b"GET", path, {b"x-api-key": b"k" * 16}) is None
    forbidden = auth.admit(b"GET", path, {b"x-api-key": b"m" * 16})
    assert forbidden is not None
    assert forbidden[0] == 403


@in_a_place
async def test_the_repository_index_lists_versions_and_their_states(place: Place) -> None:
    ready = {"name": "twice", "version": "1", "state": "READY", "reason": ""}
    for body in (b"", b"{}", b'{"ready": false}', b'{"ready": true}'):
        answer = await place.client.post("/v2/repository/index", content=body)
        assert (answer.status_code, answer.json()) == (200, [ready])
    place.server.draining = True
    away = ready | {"state": "UNAVAILABLE", "reason": "draining"}
    assert (await place.client.post("/v2/repository/index")).json() == [away]
    assert (await place.client.post("/v2/repository/index", json={"ready": True})).json() == []
    for body in (b"[]", b"{", b'{"ready": 1}'):
        assert (await place.client.post("/v2/repository/index", content=body)).status_code == 400
    bomb = await place.client.post("/v2/repository/index", content=b"{}", headers={"content-encoding": "br"})
    assert bomb.status_code == 415
    assert (await place.client.get("/v2/repository/index")).headers["allow"] == "POST"


@in_a_place
async def test_a_version_without_workers_is_unavailable_and_says_why(place: Place) -> None:
    place.replica.worker_lost(0, "killed", 60.0)
    (state,) = (await place.client.post("/v2/repository/index")).json()
    assert (state["state"], state["reason"]) == ("UNAVAILABLE", "no worker is ready")
