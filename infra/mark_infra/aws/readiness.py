"""What the bouncers on the instances say: is one ready, does it answer still, and has a drained one finished?

Asked from a thread of its own; callers read the last answers and never wait.
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
# A balancer may send a little more after it was told to stop.
_LINGER_S = 5.0
_UNREACHED, _REFUSED = 0, -1  # instead of a status; refused: the machine answers, and nothing listens there
_QUEUE = ("mark_queued_requests", "mark_running_requests")


class Bouncers(Protocol):
    """The last answers."""

    def ready(self, machine: DescribedInstance) -> bool:
        """Does its bouncer serve?"""

    def idle(self, machine: DescribedInstance) -> bool:
        """Has a drained instance nothing queued or running, or no bouncer any more?

        A bouncer that cannot be reached may still have something: that is no proof.
        """

    def silent_since_s(self, machine: DescribedInstance) -> float | None:
        """Since when, by the process's monotonic clock, a bouncer that was ready does not answer; None when it does."""


class AskedBouncers:
    """Asks `/v2/health/ready` of instances that boot, `/metrics` of those that are drained, and `/v2/health/live` of
    those that gave no metrics when they were scraped (`scraped`): what answers at all is not silent.

    `poll` blocks for little more than a second for every 256 that hang. Raises BadInput as `headers`.
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
        self._quiet_unix_s: dict[str, float] = {}  # drained instances that had nothing left when last asked: when
        self._missed: frozenset[str] = frozenset()  # when last scraped
        self._silent_s: dict[str, float] = {}  # of those missed: since when, monotonic
        self._lock = Lock()

    def ready(self, machine: DescribedInstance) -> bool:
        return machine.id in self._ready

    def idle(self, machine: DescribedInstance) -> bool:
        since_s, quiet_s = machine.draining_unix_s, self._quiet_unix_s.get(machine.id)
        return since_s is not None and quiet_s is not None and quiet_s > since_s + _LINGER_S

    def silent_since_s(self, machine: DescribedInstance) -> float | None:
        return self._silent_s.get(machine.id)

    def scraped(self, asked: Collection[str], answered: Collection[str]) -> None:
        """These instances were asked for their metrics, and these gave them. Any thread may say so."""
        with self._lock:
            self._missed = (self._missed - frozenset(asked)) | (frozenset(asked) - frozenset(answered))
            # At once: a poll may hang.
            self._silent_s = {id: since_s for id, since_s in self._silent_s.items() if id in self._missed}

    def poll(self, machines: Iterable[DescribedInstance]) -> None:
        """Ask those of the instances whose answer matters now."""
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
        # Not the connector's limit: to wait for one's turn would count as to wait for an answer.
        # A bouncer's certificate is of its own making: there is nothing to verify it by.
        connector, turns = aiohttp.TCPConnector(limit=0, ssl=False), asyncio.Semaphore(_AT_ONCE)
        async with instance_session(connector=connector, timeout=timeout, headers=self._headers()) as session:

            async def ask(machines: list[DescribedInstance], path: str) -> list[tuple[DescribedInstance, int, str]]:
                answers = await asyncio.gather(*(self._get(session, turns, m, path) for m in machines))
                return [(m, *answer) for m, answer in zip(machines, answers, strict=True)]

            # Those that boot last: many of them hang.
            live, finished, ready = await asyncio.gather(
                ask(missed, "/v2/health/live"), ask(drained, "/metrics"), ask(booting, "/v2/health/ready")
            )
        self._ready = frozenset(m.id for m, status, _ in ready if status == 200)
        self._quiet_unix_s = {
            m.id: now_s for m, status, page in finished if status == _REFUSED or (status == 200 and _left(page) == 0.0)
        }
        noted_s = self._monotonic()
        with self._lock:  # what was scraped meanwhile, and answered, is not silent
            silent = [m.id for m, status, _ in live if status in (_UNREACHED, _REFUSED) and m.id in self._missed]
            self._silent_s = {id: self._silent_s.get(id, noted_s) for id in silent}

    async def _get(
        self, session: aiohttp.ClientSession, turns: asyncio.Semaphore, machine: DescribedInstance, path: str
    ) -> tuple[int, str]:
        """(status, body); `_UNREACHED` or `_REFUSED` where nothing answers."""
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
    """What a bouncer wants to see of a reader of its metrics, whenever it is called: keys change.

    Raises BadInput for a key file without a key that may; of one that becomes so later the last key is shown.
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
    """Requests queued or running, by a page of Prometheus' text format; infinity when it does not say."""
    try:
        found = [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(_QUEUE)]
    except ValueError:
        return math.inf
    return sum(found) if found else math.inf
