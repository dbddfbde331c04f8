"""Fixtures of a real server over a manager, on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from mark.api.app import app
from mark.api.manager_port import Conducted, Manager
from mark.api.wanted import Floors
from mark.config.pipeline_config import PipelineConfig
from mark.serving.frontend.auth import ADMIN, INFER, METRICS, READ, Auth, Grant, TokenSigner
from tests.api.fake_manager import FakeManager, digits, social

READER, CHANGER, SCRAPER, CLIENT = "reader-" * 4, "changer-" * 4, "scraper-" * 4, "client-" * 4
SIGNER = TokenSigner([b"s" * 32])


def keys() -> Auth:
    grants = {READER: (READ,), CHANGER: (ADMIN,), SCRAPER: (METRICS,), CLIENT: (INFER,)}
    return Auth({key: Grant(key[:6], frozenset(scopes)) for key, scopes in grants.items()}, SIGNER)


def client(url: str, key: str | None) -> httpx.Client:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=20.0, verify=False)


@contextmanager
def served(
    manager: Manager,
    auth: Auth | None,
    alive: Callable[[], bool] = lambda: True,
    pipelines: Sequence[PipelineConfig] = (),
    conducted: Mapping[str, Conducted] | None = None,
    floors: Floors | None = None,
) -> Iterator[str]:
    """Serve the manager and yield the address."""
    made = app(manager, auth, alive, pipelines, conducted or {}, floors)
    config = uvicorn.Config(made, log_config=None, ws="none", loop="asyncio", timeout_keep_alive=1)
    server = uvicorn.Server(config)
    # The socket names TCP: otherwise asyncio leaves Nagle's algorithm on, which costs 40 ms for every answer.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until_s = time.monotonic() + 20.0
            while not server.started and time.monotonic() < until_s:
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20.0)


@pytest.fixture(scope="session")
def _day() -> FakeManager:
    return FakeManager(pipelines=(social(), digits()))


@pytest.fixture
def manager(_day: FakeManager) -> Iterator[FakeManager]:
    """Make a manager once, because a day takes its time; restore its state after each test."""
    views = dict(_day.views)
    yield _day
    _day.views, _day.leading, _day.broken = views, True, False


@pytest.fixture(scope="session")
def _address(_day: FakeManager) -> Iterator[str]:
    with served(_day, keys(), pipelines=(social(), digits())) as address:
        yield address


@pytest.fixture
def url(_address: str, manager: FakeManager) -> str:
    """Yield the URL of a server over the manager, with keys."""
    return _address


@pytest.fixture
def changer(url: str) -> Iterator[httpx.Client]:
    with client(url, CHANGER) as one:
        yield one
