"""Read the metrics of all bouncers, gateways and conductors of a site once a window, from one thread."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp

from mark.control.ports import WINDOW_S
from mark.domain.errors import CloudError
from mark_infra.instance_page import instance_session, read_page
from mark_infra.telemetry.clock import WallClock
from mark_infra.telemetry.counters import BouncerCounters, GatewayCounts, read_bouncer, read_gateway
from mark_infra.telemetry.telemetry import ScrapeTarget

TIMEOUT_S = 2.0
_AT_ONCE = 256  # more requests would only wait for each other and be late
_KEEP_S = 30.0  # longer than a window, so that connections are reused
_LOG = logging.getLogger("mark.scraper")
T = TypeVar("T")

Sink = Callable[[int, Sequence[ScrapeTarget], Mapping[str, BouncerCounters], GatewayCounts | None], None]


class Scraper:
    """Reads metrics in its own thread. Thread-safe; `close` ends the thread and everything it has.

    `headers` returns the present headers with the bouncers' key. Bouncers sign their own certificates, so these are not
    verified; a gateway's certificate is.
    """

    def __init__(self, headers: Callable[[], Mapping[str, str]] = dict) -> None:
        self._headers = headers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._thread.start()

    def watch(
        self,
        clock: WallClock,
        targets: Callable[[], Sequence[ScrapeTarget]],
        gateway: str | None,
        sink: Sink,
        told: Callable[[], Mapping[str, str]] = dict,
        read: Callable[[bytes], BouncerCounters] = read_bouncer,
    ) -> Callable[[], None]:
        """Read `targets()` and the gateway at the end of every window of `clock`, and pass their counts to `sink`.

        Returns a function that stops this. `targets` may block, and raise CloudError; then no target is read. `told`
        returns headers that tell bouncers something in turn; it must not block. `read` parses a target's page.
        """
        task = asyncio.run_coroutine_threadsafe(self._watch(clock, targets, gateway, sink, told, read), self._loop)
        return lambda: (task.cancel(), None)[1]

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            if self._session is not None:
                loop.run_until_complete(self._session.close())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _watch(
        self,
        clock: WallClock,
        targets: Callable[[], Sequence[ScrapeTarget]],
        gateway: str | None,
        sink: Sink,
        told: Callable[[], Mapping[str, str]],
        read: Callable[[bytes], BouncerCounters],
    ) -> None:
        timeout_s = min(TIMEOUT_S, 0.6 * WINDOW_S / clock.scale)
        while True:
            edge_s = (math.floor(clock.now_s() / WINDOW_S) + 1) * WINDOW_S
            await asyncio.sleep((edge_s - clock.now_s()) / clock.scale)
            try:
                try:
                    await self._ask(round(edge_s / WINDOW_S) - 1, targets, gateway, sink, told, read, timeout_s)
                except CloudError as error:
                    _LOG.warning("no target can be asked: %s", error)
                    sink(round(edge_s / WINDOW_S) - 1, (), {}, None)
            except Exception:  # without this task the service would be blind
                _LOG.exception("asking for metrics failed")

    async def _ask(
        self,
        window: int,
        targets: Callable[[], Sequence[ScrapeTarget]],
        gateway: str | None,
        sink: Sink,
        told: Callable[[], Mapping[str, str]],
        read: Callable[[bytes], BouncerCounters],
        timeout_s: float,
    ) -> None:
        asked, headers = await asyncio.to_thread(targets), self._headers()
        to_bouncers = {**told(), **headers}
        pages: list[Coroutine[Any, Any, BouncerCounters | GatewayCounts | None]] = [
            self._get(target.url, to_bouncers, read, timeout_s, verified=False) for target in asked
        ]
        if gateway is not None:
            pages.append(self._get(gateway, headers, read_gateway, timeout_s, verified=True))
        said = await asyncio.gather(*pages)
        answered = {t.id: page for t, page in zip(asked, said, strict=False) if isinstance(page, BouncerCounters)}
        by_gateway = said[-1] if said and isinstance(said[-1], GatewayCounts) else None
        sink(window, asked, answered, by_gateway)

    async def _get(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[bytes], T],
        timeout_s: float,
        *,
        verified: bool,
    ) -> T | None:
        """Return the parsed page, or None if no answer comes or it is another page."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S)
            self._session = instance_session(connector=connector)
        try:
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with self._turns:
                status, page = await read_page(self._session, f"{url}/metrics", headers, timeout=timeout, ssl=verified)
            return read(page) if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
