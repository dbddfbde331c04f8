"""A running server's selection: which model is asked, with which key, and each refusal in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mark.domain.errors import BadInput
from mark.launch.running_server import running_selection

SAID = {"policy": "exp4", "candidates": {"small": {"share": 0.25, "error": 0.1, "off": False}}, "feedback": 3}
KEY = "0123456789abcdef"


def serving(
    seen: list[httpx.Request], models: tuple[str, ...] = ("digits",), said: object = SAID, status: int = 200
) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path == "/v2/repository/index":
            return httpx.Response(200, json=[{"name": name, "version": "1"} for name in models])
        return httpx.Response(status, text=said if isinstance(said, str) else json.dumps(said))

    return httpx.MockTransport(answer)


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (
            "localhost:8080",
            ["http://localhost:8080/v2/repository/index", "http://localhost:8080/v2/models/digits/selection"],
        ),
        ("http://[::1]:1/v2/models/other", ["http://[::1]:1/v2/models/other/selection"]),
        ("https://here/a%20b/v2/models/m%2Fn/selection", ["https://here/a%20b/v2/models/m%2Fn/selection"]),
    ],
)
def test_model_is_that_of_the_url_or_the_only_one(address: str, asked: list[str]) -> None:
    seen: list[httpx.Request] = []
    assert running_selection(address, transport=serving(seen)) == SAID
    assert [str(request.url) for request in seen] == asked
    assert all("authorization" not in request.headers for request in seen)


def test_key_of_the_file_is_shown(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"scraper:fedcba9876543210:metrics\nme:{KEY}:infer\n")
    keys.chmod(0o600)
    seen: list[httpx.Request] = []
    running_selection("localhost:1", keys, transport=serving(seen))
    assert {request.headers["authorization"] for request in seen} == {f"Bearer {KEY}"}


def test_key_file_without_a_key_that_may_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"scraper:{KEY}:metrics\n")
    keys.chmod(0o600)
    with pytest.raises(BadInput, match="no key in it has the scope infer"):
        running_selection("localhost:1", keys, transport=serving([]))


@pytest.mark.parametrize(
    ("transport", "message"),
    [
        (lambda: serving([], models=("a", "b")), "serves a, b: name one, as in http://localhost:1/v2/models/a"),
        (lambda: serving([], models=()), "serves no model: name one"),
        (lambda: serving([], status=404), "has nothing at /v2/models/digits/selection: its model has no [selection]"),
        (lambda: serving([], status=401), "needs another key (status 401): give --key-file"),
        (lambda: serving([], status=500, said="broken"), "answered 500 at /v2/models/digits/selection: broken"),
        (lambda: serving([], said="<html>"), "answered no JSON at /v2/models/digits/selection"),
        (lambda: serving([], said=[1]), "answered JSON that is no object"),
        (lambda: serving([], said=" " * (5 << 20)), "answered more than 4 MB"),
    ],
)
def test_answer_of_another_kind_is_one_line(transport: Callable[[], httpx.MockTransport], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        running_selection("http://localhost:1", transport=transport())
    assert str(refused.value).startswith(f"http://localhost:1: {message}")


def test_server_that_is_not_there_is_one_line() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(BadInput, match=r"^localhost:1: cannot be asked \(ConnectError: refused\)$"):
        running_selection("localhost:1", transport=httpx.MockTransport(refuse))


@pytest.mark.parametrize("address", ["ftp://here", "http://", "http://here:port", "http://[::1"])
def test_address_that_is_none_is_one_line(address: str) -> None:
    with pytest.raises(BadInput, match=r"^ADDRESS: "):
        running_selection(address)


def test_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput) as refused:
        running_selection("http://me:secret@here")
    assert "secret" not in str(refused.value)
