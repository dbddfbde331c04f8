"""A moto server for each test module that asks for one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

REGION, ACCOUNT = "us-east-1", "123456789012"


@dataclass(frozen=True)
class MotoServer:
    """AWS as moto emulates it, at `url`. It starts without the state that other modules made."""

    url: str
    _clients: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for boto3's `client` and `resource`, so that no setting comes from the environment."""
        return {
            "endpoint_url": self.url,
            "region_name": REGION,
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }

    def client(self, service: str) -> Any:
        """Return a plain client, with which a test arranges its state."""
        import boto3
        from botocore.config import Config

        if service not in self._clients:  # creating a client takes as long as ten calls
            config = Config(retries={"total_max_attempts": 1})
            self._clients[service] = boto3.client(service, **self.options, config=config)
        return self._clients[service]

    def backend(self, service: str) -> Any:
        """Return moto's own state of a service, through which a test changes the world."""
        from moto.backends import get_backend

        return get_backend(service)[ACCOUNT][REGION]

    def reset(self) -> None:
        """Forget everything."""
        from moto.moto_api._internal import moto_api_backend

        moto_api_backend.reset()


@contextmanager
def serving(app: Any) -> Iterator[MotoServer]:
    """Serve a WSGI app, moto's or one around it, on a free loopback port."""
    from waitress.server import create_server
    from waitress.wasyncore import close_all

    sockets: dict[int, Any] = {}
    server = create_server(app, map=sockets, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, name="moto")
    thread.start()
    found = MotoServer(f"http://127.0.0.1:{server.effective_port}")
    found.reset()
    try:
        yield found
    finally:
        server.task_dispatcher.shutdown()  # first, because pending answers need the sockets
        # Close the sockets in their own thread, with the connections that clients keep: the thread would wait for them.
        with suppress(OSError):  # a pull by another answer may have closed them just before, the trigger among them
            server.trigger.pull_trigger(lambda: close_all(sockets, ignore_all=True))
        thread.join(60.0)
        found.reset()


def moto_app() -> Any:
    """Return moto as a WSGI app; its state belongs to the process."""
    from mark_infra.testbed.moto_app import OneAtATime
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return OneAtATime(DomainDispatcherApplication(create_backend_app))


@pytest.fixture(scope="session", autouse=True)
def _no_images() -> Iterator[None]:
    """Leave out Amazon's thousand images, which moto would read after every reset."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        yield


@pytest.fixture(scope="package", autouse=True)
def _service_models() -> Iterator[None]:
    """Let botocore parse a service's description once, and not for each session, because EC2's has a megabyte."""
    from botocore.loaders import JSONFileLoader

    read = JSONFileLoader.load_file

    @cache
    def parsed(path: str) -> Any:
        return read(JSONFileLoader(), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: parsed(path))
        yield


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with serving(moto_app()) as found:
        yield found
