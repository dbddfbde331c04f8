"""What the bouncers on the instances say: is one ready, and has a drained one finished?

Asked from a thread of its own; who wants to know reads the last answers and never waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import aiohttp

from mark.domain.errors import BadInput
from mark.serving.auth import METRICS, read_keys
from mark_infra.aws.inventory import Machine
from mark_infra.aws.site import Site

TIMEOUT_S = 1.0
_AT_ONCE = 100
# A balancer may send a little more after it was told to stop.
_LINGER_S = 5.0
_QUEUE = ("mark_queued_requests", "mark_running_requests")


class Bouncers(Protocol):
    """The last answers."""

    def ready(self, machine: Machine) -> bool:
        """Does its bouncer serve?"""

    def idle(self, machine: Machine) -> bool:
        """Has a drained instance nothing queued or running, or no bouncer any more?"""


class AskedBouncers:
    """Asks `/v2/health/ready` of instances that boot and `/metrics` of those that are drained.

    `poll` blocks for little more than a second however many there are. A key that may read metrics is taken from the
    site's key file. Raises BadInput for a key file without one.
    """

    def __init__(self, site: Site, *, unix_s: Callable[[], float] = time.time) -> None:
        self._port, self._unix_s = site.bouncer_port, unix_s
        self._headers: dict[str, str] = {}
        if site.key_file is not None:
            allowed = [key for key, grant in read_keys(site.key_file).items() if METRICS in grant.scopes]
            if not allowed:
                raise BadInput("no key in it may read metrics", str(site.key_file))
            self._headers = {"authorization": f"Bearer {allowed[0]}"}
        self._ready: frozenset[str] = frozenset()
        self._quiet_unix_s: dict[str, float] = {}  # drained instances that had nothing left when last asked: when

    def ready(self, machine: Machine) -> bool:
        return machine.id in self._ready

    def idle(self, machine: Machine) -> bool:
        since_s, quiet_s = machine.draining_unix_s, self._quiet_unix_s.get(machine.id)
        return since_s is not None and quiet_s is not None and quiet_s > since_s + _LINGER_S

    def poll(self, machines: Iterable[Machine]) -> None:
        """Ask those of the instances whose answer matters now."""
        running = [m for m in machines if m.state == "running"]
        booting = [m for m in running if m.ready_unix_s is None and m.draining_unix_s is None]
        drained = [m for m in running if m.draining_unix_s is not None]
        self._ready, quiet = asyncio.run(self._ask(booting, drained)) if booting or drained else (frozenset(), {})
        self._quiet_unix_s = quiet

    async def _ask(self, booting: list[Machine], drained: list[Machine]) -> tuple[frozenset[str], dict[str, float]]:
        now_s = self._unix_s()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=_AT_ONCE)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as session:
            answers = await asyncio.gather(
                *(self._get(session, m, "/v2/health/ready") for m in booting),
                *(self._get(session, m, "/metrics") for m in drained),
            )
        ready = frozenset(m.id for m, (status, _) in zip(booting, answers, strict=False) if status == 200)
        finished = {
            m.id: now_s
            for m, (status, page) in zip(drained, answers[len(booting) :], strict=True)
            if status == 0 or (status == 200 and _left(page) == 0.0)
        }
        return ready, finished

    async def _get(self, session: aiohttp.ClientSession, machine: Machine, path: str) -> tuple[int, str]:
        """(status, body); status 0 where nobody answers."""
        try:
            async with session.get(f"http://{machine.address}:{self._port}{path}") as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return 0, ""


def _left(page: str) -> float:
    """Requests queued or running, by a page of Prometheus' text format; infinity when it does not say."""
    try:
        found = [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(_QUEUE)]
    except ValueError:
        return math.inf
    return sum(found) if found else math.inf
