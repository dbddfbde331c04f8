"""A gateway over real sockets, before replicas that fail when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import uvloop

from mark.serving.frontend.auth import Auth
from mark.serving.frontend.http import HttpLimits, HttpServer
from mark.serving.gateway.forwarding import Forwarder, Forwarding
from mark.serving.gateway.gateway import GatewayPolicy
from mark.serving.gateway.listener import GatewayPages
from tests.serving.fake_replicas import Asked, FakeReplica

INFER = "/v2/models/m/infer"
ADMIN = "/admin/replicas"
# It probes the replicas so frequently that tests need not wait.
POLICY: dict[str, Any] = {"probe_s": 0.05, "backoff_s": 0.05}


class Front:
    """A gateway before `replicas`, and a client."""

    def __init__(self, *replicas: FakeReplica, auth: Auth | None = None, policy: Any = None, **forwarding: Any) -> None:
        self.replicas = replicas
        policy = GatewayPolicy(**(POLICY | (policy or {})))
        self.forwarder = Forwarder(Forwarding(policy=policy, **forwarding), asyncio.get_running_loop())
        admit = auth.admit if auth is not None else None
        self.http = HttpServer(
            GatewayPages(self.forwarder).handle, HttpLimits(drain_idle_s=0.1, sweep_s=0.05), admit=admit
        )
        self.url = ""

    async def __aenter__(self) -> Front:
        for replica in self.replicas:
            await replica.start()
        self.forwarder.put({replica.url: 1.0 for replica in self.replicas})
        self.url = f"http://127.0.0.1:{await self.http.start('127.0.0.1', 0)}"
        self.forwarder.start()
        await self.forwarder.probing.probed.wait()
        self.client = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=60.0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self.http.close(1.0)
        self.forwarder.close()
        for replica in self.replicas:
            await replica.stop()
        if error[0] is None:
            gateway = self.forwarder.gateway
            states = [*gateway.replicas.values(), *gateway.leaving.values()]
            assert gateway.in_flight == gateway.bytes == sum(one.in_flight for one in states) == 0

    async def post(self, content: bytes = b"hi", path: str = INFER, **headers: str) -> httpx.Response:
        return await self.client.post(
            path, content=content, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    async def state(self, **headers: str) -> dict[str, Any]:
        said: dict[str, Any] = (await self.client.get(ADMIN, headers=headers)).json()
        return said

    async def until(self, so: Callable[[dict[str, Any]], object]) -> None:
        """Ask for the state until it is so; a test ends by its time limit otherwise."""
        while not so(await self.state()):
            pass


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main, 60))


def always(answer: bytes) -> Callable[[Asked], bytes]:
    return lambda asked: answer
