"""Access control: no route works without a key, and browsers get protective headers."""

from __future__ import annotations

import logging
import re
import time

import httpx
import pytest

from mark.api.app import app
from mark.serving.frontend.auth import READ
from tests.api.conftest import CHANGER, CLIENT, READER, SCRAPER, SIGNER, client, keys, served
from tests.api.fake_manager import FakeManager

OPEN = {"/healthz", "/readyz"}
FILES = {
    "/",
    "/page.css",
    "/page.js",
    "/pipeline.js",
    "/chart.js",
    "/charts.js",
    "/dom.js",
    "/door.js",
    "/format.js",
    "/service.js",
    "/time.js",
}
PUT = {"max_instances": 7, "max_usd_per_hour": 1.5}


def operations() -> list[tuple[str, str]]:
    """Return every method of every described path, for an existing service."""
    paths = app(FakeManager(1), None).openapi()["paths"]
    there = {"service": "inception", "pipeline": "social"}
    found = [(method.upper(), path.format(**there)) for path, all_of in paths.items() for method in all_of]
    return [*found, ("GET", "/openapi.json")]


def status(url: str, method: str, path: str, key: str | None) -> int:
    with client(url, key) as one:
        return one.request(method, path, json=PUT if method == "PUT" else None).status_code


def test_only_health_and_the_pages_files_need_no_key(url: str) -> None:
    assert len(operations()) > 15
    for method, path in operations():
        expected = 200 if path in OPEN else 401
        for key in (None, "unknown-" * 4, READER[:-1], "-"):
            assert status(url, method, path, key) == expected, (method, path, key)
    for path in ("/api/v1/nothing", "/docs", "/redoc", "/page", "/page/", "/api/v1/services/", "//api/v1/services"):
        assert status(url, "GET", path, None) == 401
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert status(url, method, "/", None) == 401
        assert status(url, method, "/healthz", None) == 401
    for path in FILES:
        assert status(url, "GET", path, None) == 200


def test_the_description_has_every_route_that_is_there(manager: FakeManager) -> None:
    """The test above would miss a route that the description lacks."""
    described = set(app(manager, None).openapi()["paths"])
    there: set[str] = set()

    def collect(routes: list[object], prefix: str = "") -> None:
        for route in routes:
            inner = getattr(route, "original_router", None)
            if inner is not None:
                collect(inner.routes, prefix + route.include_context.prefix)  # type: ignore[attr-defined]
            else:
                there.add(prefix + route.path)  # type: ignore[attr-defined]

    collect(list(app(manager, None).routes))
    assert there - described - FILES - {"/mark.svg"} == {"/openapi.json"}


def test_a_key_opens_what_its_scopes_say(url: str) -> None:
    for method, path in operations():
        if path in OPEN:
            continue
        reads = method == "GET" and path != "/metrics"
        assert (status(url, method, path, READER) < 400) == reads, (method, path)
        assert (status(url, method, path, SCRAPER) < 400) == (path == "/metrics"), (method, path)
        assert status(url, method, path, CHANGER) < 400, (method, path)
        assert status(url, method, path, CLIENT) == 403, (method, path)


def test_refusals_say_how_to_come_in(url: str) -> None:
    with client(url, None) as one:
        said = one.get("/api/v1/services")
    assert (said.status_code, list(said.json()), said.headers["www-authenticate"]) == (401, ["error"], "Bearer")
    with client(url, READER) as one:
        said = one.post("/api/v1/services/inception/pause")
    assert (said.status_code, list(said.json())) == (403, ["error"])


def test_tokens_and_x_api_key_work_two_keys_do_not(url: str) -> None:
    now_s = time.time()
    assert status(url, "GET", "/api/v1/me", SIGNER.sign("ann", [READ], now_s + 60)) == 200
    assert status(url, "GET", "/api/v1/me", SIGNER.sign("ann", [READ], now_s - 60)) == 401
    with client(url, SIGNER.sign("ann", [READ], now_s + 60)) as one:
        assert one.get("/api/v1/me").json()["name"] == "ann"
        assert one.get("/api/v1/me").json()["scopes"] == ["read"]
    with client(url, None) as one:
        assert one.get("/api/v1/me", headers={"x-api-key": READER}).status_code == 200
        assert one.get("/api/v1/me", headers=[("x-api-key", READER), ("x-api-key", READER)]).status_code == 401
        # a key in the URL does not count
        assert one.get(f"/api/v1/me?x-api-key={READER}&token={READER}").status_code == 401


def test_no_key_and_no_token_is_ever_logged(manager: FakeManager, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = SIGNER.sign("ann", [READ], time.time() + 60)
    shown = (READER, CHANGER, CLIENT, token, "unknown-" * 4)
    with served(manager, keys()) as url:
        for key in shown:
            for method, path in operations():
                status(url, method, path, key)
        manager.broken = True
        status(url, "GET", "/api/v1/services", CHANGER)
    ours = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    text = "\n".join(logging.Formatter().format(r) + str(vars(r)) for r in ours)
    assert "paused" in text
    assert "uvicorn" in text
    for key in shown:
        assert key not in text
        assert key[-12:] not in text


def test_every_answer_forbids_what_a_browser_need_not_do(url: str) -> None:
    for key, path in ((None, "/"), (None, "/page.js"), (None, "/api/v1/me"), (READER, "/api/v1/me"), (READER, "/no")):
        with client(url, key) as one:
            headers = one.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["cache-control"] == "no-store"
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["referrer-policy"] == "no-referrer"


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline(url: str) -> None:
    for path in FILES:
        text = httpx.get(url + path, trust_env=False).text
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert "innerHTML" not in text, path
    page = httpx.get(url, trust_env=False).text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|<style|\sstyle=", page)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "", "127.0.0.1.evil.example", "[::1"])
def test_an_open_door_answers_only_to_names_of_this_machine(manager: FakeManager, host: str) -> None:
    """DNS rebinding: a foreign name that points here would make a foreign page same-origin."""
    with served(manager, None) as url, client(url, None) as one:
        assert one.get("/api/v1/services", headers={"host": host}).status_code == 403
        for own in ("localhost:80", "[::1]:80", "127.0.0.1"):
            assert one.get("/api/v1/services", headers={"host": own}).status_code == 200
        assert one.get("/api/v1/services").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://localhost"]
)
def test_without_auth_cross_origin_writes_are_still_refused(manager: FakeManager, origin: str) -> None:
    with served(manager, None) as url, client(url, None) as one:
        said = one.post("/api/v1/services/inception/pause", headers={"origin": origin})
        assert (said.status_code, manager.view("inception").mode) == (403, "acting")
        assert one.post("/api/v1/services/inception/pause", headers={"origin": url}).status_code == 204
