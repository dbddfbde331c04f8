"""The replicas' readiness: each is polled periodically, over separate connections.

A replica is polled by the protocol (`/v2/health/ready`), or if it does not know that, like a SageMaker container
(`/ping`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from mark.serving.gateway.gateway import Gateway, ReplicaState
from mark.serving.overflow.http_client import Address, Asker, CallFailure, ClientConnection, HttpAnswer, Reach, Upstream

log = logging.getLogger("mark.serving")
_READY, _PING = b"/v2/health/ready", b"/ping"


class _Probe:
    """A readiness poll."""

    __slots__ = ("line", "path", "replica", "timer")

    def __init__(self, replica: ReplicaState) -> None:
        self.replica, self.path = replica, _READY
        self.line: ClientConnection[_Probe] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Probing:
    """Polls replicas when `gateway` requests it, and reports the results to it.

    `header` is a header line with the gateway's key. `told` is called after each result.
    """

    def __init__(
        self,
        gateway: Gateway[Any],
        reach: Reach,
        header: bytes,
        timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self._told = told
        self._gateway, self._reach, self._header, self._timeout_s = gateway, reach, header, timeout_s
        self._loop, self._now = loop, now
        self._upstreams: dict[str, Upstream[_Probe]] = {}
        self._under_way = 0
        self._said_ready: dict[str, bool] = {}
        self.probed = asyncio.Event()  # set while every poll has its answer

    def look(self, now_s: float) -> None:
        """Poll the replicas that are due, and log readiness changes."""
        gateway = self._gateway
        for replica in gateway.tick(now_s):
            probe = _Probe(replica)
            self._under_way += 1
            probe.timer = self._loop.call_later(self._timeout_s, self._late, probe)
            self._ask(probe)
        for url in [url for url in self._upstreams if url not in gateway.replicas]:
            self._upstreams.pop(url).close()
        for upstream in self._upstreams.values():
            upstream.sweep()
        said = {url: one.ready for url, one in gateway.replicas.items()}
        for url, ready in said.items():
            if self._said_ready.get(url, False) != ready:
                log.info("%s is %s", url, "ready" if ready else "out")
        self._said_ready = said
        self._all_probed()

    def close(self) -> None:
        """Close all connections."""
        for upstream in self._upstreams.values():
            upstream.close()

    def _ask(self, probe: _Probe) -> None:
        url = probe.replica.url
        upstream = self._upstreams.get(url)
        if upstream is None:
            upstream = Upstream(Address.of(url), self, self._reach, self._loop, self._now)
            self._upstreams[url] = upstream
        data = b"GET %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (probe.path, upstream.authority, self._header)
        probe.line = upstream.ask(probe, data)

    def answered(self, tag: _Probe, answer: HttpAnswer) -> None:
        """Take a replica's answer."""
        if answer.status == 404 and tag.path is _READY and tag.replica.url in self._upstreams:
            tag.path = _PING
            self._ask(tag)
        else:
            self._ended(tag, answer.status == 200)

    def failed(self, tag: _Probe, began: bool, why: CallFailure) -> None:
        """Take a replica's failure."""
        self._ended(tag, None)

    def _late(self, probe: _Probe) -> None:
        assert probe.line is not None, "a probe is late only after it was sent"
        probe.line.upstream.cancel(probe.line, probe)
        self._ended(probe, None)

    def _ended(self, probe: _Probe, ready: bool | None) -> None:
        assert probe.timer is not None, "the timer is set before a probe is sent"
        probe.timer.cancel()
        self._under_way -= 1
        self._gateway.probed(probe.replica, ready, self._now())
        self._told()
        self._all_probed()

    def _all_probed(self) -> None:
        if self._under_way:
            self.probed.clear()
        else:
            self.probed.set()


_: type[Asker[_Probe]] = Probing
