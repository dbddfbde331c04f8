"""The state of the bouncers on the instances: ready, silent, or finished after a drain.

A separate thread asks them; callers read the last answers and never wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

import aiohttp

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import METRICS, key_with, read_keys
from mark_infra.aws.inventory import DescribedInstance
from mark_infra.aws.site import Site
from mark_infra.instance_page import instance_session, read_page

TIMEOUT_S = 1.0
_AT_ONCE = 256
# A balancer may still send requests for this long after a target was deregistered.
_LINGER_S = 5.0
_UNREACHED, _REFUSED = 0, -1  # used as status; refused means that the machine answers but no program listens
_QUEUE = ("mark_queued_requests", "mark_running_requests")


class Bouncers(Protocol):
    """The last answers of the bouncers."""

    def ready(self, machine: DescribedInstance) -> bool:
        """Return whether the instance's bouncer is ready to serve."""

    def idle(self, machine: DescribedInstance) -> bool:
        """Return whether a drained instance has no queued or running request, or no bouncer any more.

        A bouncer that cannot be reached may still have requests, so it is not idle.
        """

    def silent_since_s(self, machine: DescribedInstance) -> float | None:
        """Return the monotonic time since which a bouncer that was ready has not answered; None if it answers."""


class AskedBouncers:
    """Asks booting instances for `/v2/health/ready` and drained ones for `/metrics`.

    It also asks instances that could not be scraped (`scraped`) for `/v2/health/live`, because an instance that answers
    at all is not silent. `poll` blocks for little more than a second for every 256 instances that hang. Raises BadInput
    as `headers` does.
    """

    def __init__(
        self,
        site: Site,
        *,
        unix_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site, self._unix_s, self._monotonic = site, unix_s, monotonic
        self._headers = headers(site, unix_s)
        self._ready: frozenset[str] = frozenset()
        self._quiet_unix_s: dict[str, float] = {}  # by drained instance without requests: when that was found
        self._missed: frozenset[str] = frozenset()  # instances that could not be scraped the last time
        self._silent_s: dict[str, float] = {}  # by missed instance: monotonic time since which it has been silent
        self._lock = Lock()

    def ready(self, machine: DescribedInstance) -> bool:
        return machine.id in self._ready

    def idle(self, machine: DescribedInstance) -> bool:
        since_s, quiet_s = machine.draining_unix_s, self._quiet_unix_s.get(machine.id)
        return since_s is not None and quiet_s is not None and quiet_s > since_s + _LINGER_S

    def silent_since_s(self, machine: DescribedInstance) -> float | None:
        return self._silent_s.get(machine.id)

    def scraped(self, asked: Collection[str], answered: Collection[str]) -> None:
        """Note which instances were `asked` for metrics and which of them `answered`. Thread-safe."""
        with self._lock:
            self._missed = (self._missed - frozenset(asked)) | (frozenset(asked) - frozenset(answered))
            # Removed here, because the next poll may hang.
            self._silent_s = {id: since_s for id, since_s in self._silent_s.items() if id in self._missed}

    def poll(self, machines: Iterable[DescribedInstance]) -> None:
        """Ask the instances whose answers matter now."""
        running = [m for m in machines if m.state == "running"]
        booting = [m for m in running if m.ready_unix_s is None and m.draining_unix_s is None]
        drained = [m for m in running if m.draining_unix_s is not None]
        with self._lock:
            self._missed &= {m.id for m in running}
            missed = [m for m in running if m.id in self._missed and m not in booting and m not in drained]
        if booting or drained or missed:
            asyncio.run(self._ask(booting, drained, missed))
        else:
            self._ready, self._quiet_unix_s, self._silent_s = frozenset(), {}, {}

    async def _ask(
        self, booting: list[DescribedInstance], drained: list[DescribedInstance], missed: list[DescribedInstance]
    ) -> None:
        now_s = self._unix_s()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        # A semaphore limits the requests, because time spent on the connector's limit would count as waiting for an
        # answer. A bouncer's certificate is self-signed and cannot be verified.
        connector, turns = aiohttp.TCPConnector(limit=0, ssl=False), asyncio.Semaphore(_AT_ONCE)
        async with instance_session(connector=connector, timeout=timeout, headers=self._headers()) as session:

            async def ask(machines: list[DescribedInstance], path: str) -> list[tuple[DescribedInstance, int, str]]:
                answers = await asyncio.gather(*(self._get(session, turns, m, path) for m in machines))
                return [(m, *answer) for m, answer in zip(machines, answers, strict=True)]

            # Booting instances come last, because many of them hang.
            live, finished, ready = await asyncio.gather(
                ask(missed, "/v2/health/live"), ask(drained, "/metrics"), ask(booting, "/v2/health/ready")
            )
        self._ready = frozenset(m.id for m, status, _ in ready if status == 200)
        self._quiet_unix_s = {
            m.id: now_s for m, status, page in finished if status == _REFUSED or (status == 200 and _left(page) == 0.0)
        }
        noted_s = self._monotonic()
        with self._lock:  # an instance that was scraped since is not silent
            silent = [m.id for m, status, _ in live if status in (_UNREACHED, _REFUSED) and m.id in self._missed]
            self._silent_s = {id: self._silent_s.get(id, noted_s) for id in silent}

    async def _get(
        self, session: aiohttp.ClientSession, turns: asyncio.Semaphore, machine: DescribedInstance, path: str
    ) -> tuple[int, str]:
        """Return status and body; the status is `_UNREACHED` or `_REFUSED` without an answer."""
        try:
            url = self._site.bouncer_url(machine.service, machine.address)
            async with turns:
                status, page = await read_page(session, f"{url}{path}")
            return status, page.decode()
        except aiohttp.ClientConnectorError as error:
            return _REFUSED if isinstance(error.os_error, ConnectionRefusedError) else _UNREACHED, ""
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return _UNREACHED, ""


def headers(site: Site, unix_s: Callable[[], float] = time.time) -> Callable[[], dict[str, str]]:
    """Return a function that gives the current headers for reading a bouncer's metrics, because keys rotate.

    Raises BadInput if the key file has no key for metrics. If that happens later, the last such key is used.
    """
    file, shown = site.key_file, dict[str, str]()

    def look(file: Path) -> None:
        key = key_with(METRICS, read_keys(file), unix_s())
        if key is None:
            raise BadInput("no key in it may read metrics", str(file))
        shown["authorization"] = f"Bearer {key}"

    def now() -> dict[str, str]:
        if file is not None:
            with suppress(BadInput):
                look(file)
        return dict(shown)

    if file is not None:
        look(file)
    return now


def _left(page: str) -> float:
    """Return the queued and running requests of a page in Prometheus' text format; infinity if it has neither."""
    try:
        found = [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(_QUEUE)]
    except ValueError:
        return math.inf
    return sum(found) if found else math.inf
