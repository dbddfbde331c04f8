"""The parts of a site's control that reach AWS: gates, the table, the lease, and the pool that runs rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

from mark.control.lease import TTL_S, FencedLease, MemoryTerms
from mark_infra.aws.gate import Gate, within
from mark_infra.aws.site import Site
from mark_infra.store.dynamo_table import Table
from mark_infra.store.store import open_table

T = TypeVar("T")
STORE_READ_S = 2.0  # short, because DynamoDB answers within milliseconds and a tick asks it often
ROUND_S = 35.0  # a round starts no call after it; the last one takes 24 s at most, a launch 38 s: then a tick is late
_THREADS = 4  # concurrent rounds, which mostly wait for AWS


@dataclass(frozen=True, slots=True)
class SiteParts:
    """The parts of a site's control, which closes them at its end. `site_parts` makes the usual ones.

    `gate` makes a new gate (AWS clients) that waits at most the given seconds for an answer (None: the usual time).
    `pool` runs rounds. `session` is boto3's, for calls that do not go through a gate.
    """

    gate: Callable[[float | None], Gate]
    table: Table
    lease: FencedLease
    pool: Executor
    close: Callable[[], None]
    session: Any = None


def site_parts(
    site: Site,
    *,
    dry_run: bool = False,
    session: Any = None,
    options: Mapping[str, Any] | None = None,
    ttl_s: float = TTL_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> SiteParts:
    """Return parts that reach AWS through boto3's `session`; without one, by the usual settings of AWS's SDKs.

    Time limits of calls use `monotonic`. Raises CloudError or BadInput.
    """

    def gate(read_s: float | None = None) -> Gate:
        return Gate(
            site,
            session=session,
            options=options,
            read_s=read_s,
            monotonic=monotonic,
            recovery_clock=time.monotonic,
        )

    # Separate tables and gates, so that failures in one cannot use up the other's time. The leading process must always
    # be able to renew its lease.
    with ExitStack() as opened:
        table, terms = (opened.enter_context(closing(open_table(site.store, gate(STORE_READ_S)))) for _ in range(2))
        lease = FencedLease(MemoryTerms() if dry_run else terms, f"{site.name}/controller", ttl_s=ttl_s)
        close = opened.pop_all().close
    return SiteParts(gate, table, lease, _Rounds(_THREADS, monotonic), close, session)


class _Rounds(ThreadPoolExecutor):
    """Runs rounds with a time limit, so that none still waits for AWS when the next tick is due."""

    def __init__(self, threads: int, monotonic: Callable[[], float]) -> None:
        super().__init__(threads, "round")
        self._monotonic = monotonic

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        def timed() -> T:
            with within(ROUND_S, self._monotonic):
                return fn(*args, **kwargs)

        return super().submit(timed)
