"""The gateway's listener for clients: its own pages, and forwarding of other requests; built, run, drained.

/v2, /v2/models/..., /invocations     passed on (`mark.serving.gateway.forwarding`)
/v2/health/live, /ready, /ping        the gateway's own: ready when a replica is, or if there are functions
/metrics                              the gateway's own
/admin/replicas                       GET: the state of the replicas; PUT: {"http://host:port": weight, ...}, or
                                      [weight, "group"] instead of the weight
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import Auth, admit_own_machine
from mark.serving.frontend.http import Exchange, HttpLimits, HttpServer
from mark.serving.frontend.key_poll import KeyPoll
from mark.serving.frontend.tls import TlsFiles
from mark.serving.gateway.forwarding import Forwarder, Forwarding, say
from mark.serving.gateway.gateway import ReplicaState
from mark.serving.gateway.metrics import CONTENT_TYPE

log = logging.getLogger("mark.serving")
_CONNECTIONS_S = 0.05  # between checks whether all connections have ended
_MOST_REPLICAS = 1000  # each needs connections and readiness polls


class GatewayPages:
    """Answers requests for the gateway itself, and hands others to `forwarder`."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._own: dict[bytes, Callable[[Exchange], None]] = {
            b"/v2/health/live": self._live,
            b"/v2/health/ready": self._is_ready,
            b"/ping": self._ping,
            b"/metrics": self._metrics_page,
            b"/admin/replicas": self._admin,
        }

    def handle(self, exchange: Exchange) -> None:
        """Answer the exchange, now or later."""
        self._own.get(exchange.path, self._forwarder.handle)(exchange)

    def _live(self, exchange: Exchange) -> None:
        exchange.answer(200, b'{"live": true}')

    def _is_ready(self, exchange: Exchange) -> None:
        ready = self._forwarder.ready
        exchange.answer(200 if ready else 503, b'{"ready": true}' if ready else b'{"ready": false}')

    def _ping(self, exchange: Exchange) -> None:
        exchange.answer(200 if self._forwarder.ready else 503, b"")

    def _metrics_page(self, exchange: Exchange) -> None:
        exchange.answer(200, self._forwarder.metrics.page(), CONTENT_TYPE.encode())

    def _admin(self, exchange: Exchange) -> None:
        if exchange.method == b"PUT":
            try:
                weights, groups = _weights(exchange.body)
                self._forwarder.put(weights, groups)
            except BadInput as error:
                say(exchange, 400, str(error))
                return
            log.info("weights are %s", weights)
        elif exchange.method != b"GET":
            say(exchange, 405, "only GET and PUT here", b"allow: GET, PUT\r\n")
            return
        exchange.answer(200, orjson.dumps(self.state()))

    def state(self) -> dict[str, Any]:
        """Return the body of `/admin/replicas`; times in seconds and milliseconds, as named."""
        gateway, now_s = self._forwarder.gateway, time.monotonic()

        def shown(one: ReplicaState) -> dict[str, Any]:
            return {
                "weight": one.weight,
                "group": one.group,
                "ready": one.ready,
                "in_flight": one.in_flight,
                "response_ms": round(one.response_s * 1e3, 3) if one.answers else None,
                "answers": one.answers,
                "refused": one.refused,
                "failed": one.failed,
                "ejections": one.ejections,
                "asked_again_in_s": round(max(0.0, one.probe_at_s - now_s), 3),
            }

        return {
            "ready": self._forwarder.ready,
            "in_flight": gateway.in_flight,
            "retries": gateway.retries,
            "hedges": gateway.hedges,
            "ejections": gateway.ejections,
            "replicas": {url: shown(one) for url, one in gateway.replicas.items()},
            "leaving": {url: shown(one) for url, one in gateway.leaving.items()},
        }


def _weights(body: bytes) -> tuple[dict[str, float], dict[str, str]]:
    """Return the weights and groups in a body. Raises BadInput."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"no JSON ({error})", "body") from None
    if not isinstance(said, dict):
        raise BadInput('must be {"http://host:port": weight, ...}', "body")
    if len(said) > _MOST_REPLICAS:
        raise BadInput(f"{_MOST_REPLICAS} replicas at most", "body", len(said))
    groups = {}
    for url, value in said.items():
        weight, group = value if isinstance(value, list) and len(value) == 2 else (value, "")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise BadInput("a weight is a number of zero or more", url, weight)
        if not isinstance(group, str):
            raise BadInput("a group is a text", url, group)
        said[url], groups[url] = weight, group
    return said, groups


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """The address of the listener, and who may send requests."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls: TlsFiles | None = None
    auth: Auth | None = None
    keys: KeyPoll | None = None  # renews the keys of `auth`
    limits: HttpLimits = field(default_factory=HttpLimits)


async def serve_gateway(
    forwarding: Forwarding,
    listener: GatewayListener,
    weights: Mapping[str, float],
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Forward until SIGTERM or SIGINT, then drain: accept no new connection, and answer all accepted requests.

    `started` is called with the port once the readiness of each of the first replicas has been polled. Raises BadInput
    for a URL that no replica can have, and if the port is taken.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if listener.keys is not None:
        listener.keys.start()
        loop.add_signal_handler(signal.SIGHUP, listener.keys.wake)
    forwarder = Forwarder(forwarding, loop)
    forwarder.put(weights)
    http = HttpServer(
        GatewayPages(forwarder).handle,
        listener.limits,
        admit=listener.auth.admit if listener.auth is not None else admit_own_machine,
    )
    by = forwarding.by_functions
    try:
        if by is not None:
            await by.functions.open()
        bound = await http.start(
            listener.host, listener.port, listener.tls.context() if listener.tls is not None else None
        )
        forwarder.start()
        await forwarder.probing.probed.wait()
        gc.collect()
        gc.freeze()
        started(bound)
        await stop.wait()
        forwarder.draining = True
        if forwarding.linger_s > 0.0:
            await asyncio.sleep(forwarding.linger_s)
        await http.let_in()
        http.stop_listening()
        until_s = time.monotonic() + forwarding.drain_s
        # Kept connections end after their next answer, or once idle, because a client may be about to use one.
        while http.connections and time.monotonic() < until_s:
            await asyncio.sleep(_CONNECTIONS_S)
        await forwarder.drain(max(0.0, until_s - time.monotonic()))
        await http.close(5.0)
    finally:
        forwarder.close()
        if by is not None:
            await by.functions.close()
