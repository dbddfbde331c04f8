"""The control server: it needs its token, and names each mistake in a request."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mark_infra.testbed.control_server import ControlServer, Remote

from mark.domain.errors import BadInput, MarkError


class FakeTestbed:
    def __init__(self) -> None:
        self.ends = threading.Event()
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def status(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {"launched": 3}

    def interrupt(self, share: float, seed: int) -> list[str]:
        if share > 1.0:
            raise BadInput("must lie between 0 and 1", "share", share)
        self.asked.append((share, seed))
        return ["i-1"]

    def set_capacity(self, offer: str, count: int) -> None:
        self.asked.append((offer, count))


@pytest.fixture
def testbed() -> FakeTestbed:
    return FakeTestbed()


@pytest.fixture
def server(testbed: FakeTestbed) -> Iterator[ControlServer]:
    with ControlServer(testbed, "s3cret") as server:
        yield server


def remote(server: ControlServer, folder: Path, token: str = "s3cret") -> Remote:
    file = folder / "daemon.json"
    file.write_text(json.dumps({"pid": 1, "url": server.url, "token": token, "endpoint": "http://here"}))
    return Remote(file)


def test_it_does_what_it_is_asked(testbed: FakeTestbed, server: ControlServer, tmp_path: Path) -> None:
    there = remote(server, tmp_path)
    assert there.ask("/status") == {"launched": 3}
    assert there.ask("/interrupt", {"share": 0.4, "seed": 2}) == ["i-1"]
    there.ask("/capacity", {"offer": "c7i.large/on-demand", "count": 2})
    assert testbed.asked == [(0.4, 2), ("c7i.large/on-demand", 2)]
    assert not testbed.ends.is_set()
    there.ask("/down", {})
    assert testbed.ends.is_set()


def test_a_wrong_token_is_refused(testbed: FakeTestbed, server: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(MarkError, match="needs the testbed's token"):
        remote(server, tmp_path, "guess").ask("/down", {})
    with pytest.raises(urllib.error.HTTPError, match="401") as caught:
        urllib.request.urlopen(f"{server.url}/status", timeout=60.0)
    caught.value.close()
    assert not testbed.ends.is_set()


@pytest.mark.parametrize(
    ("body", "said"),
    [({"share": 2.0, "seed": 0}, "share: must lie"), ({"share": "x", "seed": 0}, "ValueError"), ({}, "KeyError")],
)
def test_a_bad_question_is_bad_input(server: ControlServer, tmp_path: Path, body: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        remote(server, tmp_path).ask("/interrupt", body)


@pytest.mark.parametrize("length", ["x", "-1", "9" * 5000])
def test_a_length_that_is_none_is_refused(server: ControlServer, length: str) -> None:
    """A request without the token is unauthorized first."""
    for token, status in (("s3cret", 400), ("guess", 401)):
        there = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60.0)
        there.putrequest("POST", "/down")
        there.putheader("authorization", f"Bearer {token}")
        there.putheader("content-length", length)
        there.endheaders()
        assert there.getresponse().status == status
        there.close()


def test_what_fails_is_said_and_not_for_ever(testbed: FakeTestbed, server: ControlServer, tmp_path: Path) -> None:
    there = remote(server, tmp_path)
    testbed.error = RuntimeError("the cloud fell down")
    with pytest.raises(MarkError, match="the cloud fell down"):
        there.ask("/status")
    testbed.error = None
    assert there.ask("/status") == {"launched": 3}
    with pytest.raises(MarkError, match="no such path"):
        there.ask("/nowhere")


def test_no_testbed_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no testbed runs here"):
        Remote(tmp_path / "daemon.json")
    with ControlServer(FakeTestbed(), "s3cret") as server:
        gone = remote(server, tmp_path)
    with pytest.raises(BadInput, match="does not answer"):
        gone.ask("/status")
