"""Read the counters that the controller needs from the metrics page of a bouncer, a gateway or a conductor.

A page has some 200 lines and thousands of pages are read every few seconds, so only the needed lines are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mark.serving.backend.metrics import SECONDS

_BY_FUNCTION, _BY_INSTANCE = b'answered_by="function"', b'answered_by="instance"'
_SERVER_ERROR = b'code="5'
_STAGE = re.compile(rb'[{,]stage="(\w+)"')
_UNSTORED = b"mark_learned_unstored_seconds"
_FROM_CACHE = (b"mark_cache_hits_total", b"mark_cache_coalesced_total")


class BouncerCounters(NamedTuple):
    """The counters of one bouncer, all versions together. The last two fields are present values.

    `within` are the latencies by size: the answers within each bound of `SECONDS`, and then all; () if unknown.
    `wanted` are the calls, by stage name, that a conductor's selection wants at planned prices.
    """

    requests: float = 0.0  # answered or refused
    misses: float = 0.0  # of the requests: later than RT_max, or refused
    by_functions: float = 0.0
    service_s: float = 0.0  # of batches in workers
    function_calls: float = 0.0
    function_billed_s: float = 0.0
    errors: float = 0.0  # of the requests: answered by the model with an error
    answered: float = 0.0  # of the requests: not refused
    latency_s: float = 0.0  # of the answered requests, from arrival to answer
    from_cache: float = 0.0  # of the requests: reached no worker, because the answer was in memory or in progress
    wanted: tuple[tuple[str, float], ...] = ()
    within: tuple[float, ...] = ()
    workers: float = 0.0
    unstored_s: float | None = None  # age of the oldest learned fact that is not stored; None: no store

    @property
    def numbers(self) -> tuple[float, ...]:
        """Return the counters that are one number each."""
        return self[:-4]

    @property
    def load(self) -> float:
        """Return the requests that reached workers or functions, or were refused; capacity is bought for these."""
        return self.requests - self.from_cache

    def since(self, before: BouncerCounters) -> BouncerCounters:
        """Return the counts since `before`. If a counter fell, the bouncer restarted and all counts are new."""
        known = len(self.within) == len(before.within)
        # If there were more requests since the restart than before it, only the counts by size reveal the restart.
        sizes = zip(self.within, before.within, strict=True) if known else ()
        if any(now < then for now, then in (*zip(self.numbers, before.numbers, strict=True), *sizes)):
            return self
        grown = (now - then for now, then in zip(self.numbers, before.numbers, strict=True))
        then_of = dict(before.wanted)
        wanted = tuple((stage, max(0.0, now - then_of.get(stage, 0.0))) for stage, now in self.wanted)
        within = tuple(now - then for now, then in zip(self.within, before.within, strict=True)) if known else ()
        return BouncerCounters._make((*grown, wanted, within, self.workers, self.unstored_s))


class GatewayCounts(NamedTuple):
    """The counters of a gateway: all requests of clients, and the requests for which there was no instance."""

    requests: float = 0.0
    refused: float = 0.0  # by the gateway, because neither instances nor functions could answer
    by_functions: float = 0.0
    late: float = 0.0  # of the requests answered by functions: later than RT_max
    function_calls: float = 0.0
    function_billed_s: float = 0.0

    def since(self, before: GatewayCounts) -> GatewayCounts:
        """Return the counts since `before`, like `BouncerCounters.since`."""
        if any(now < then for now, then in zip(self, before, strict=True)):
            return self
        return GatewayCounts._make(now - then for now, then in zip(self, before, strict=True))


def read_bouncer(page: bytes) -> BouncerCounters:
    """Read a bouncer's page. Raises ValueError for any other page."""
    page = b"\n" + page
    workers = list(_values(page, b"mark_workers_ready"))
    if not workers:
        raise ValueError("no metrics of a bouncer")
    requests = list(_lines(page, b"mark_requests_total"))
    return BouncerCounters(
        requests=sum(map(_value, requests)),
        misses=sum(_values(page, b"mark_deadline_misses_total")),
        by_functions=sum(_value(line) for line in requests if _BY_FUNCTION in line),
        service_s=sum(_values(page, b"mark_service_seconds_sum")),
        function_calls=sum(_values(page, b"mark_function_calls_total")),
        function_billed_s=sum(_values(page, b"mark_function_billed_seconds_total")),
        errors=sum(_value(line) for line in requests if _BY_INSTANCE in line and _SERVER_ERROR in line),
        answered=sum(_values(page, b"mark_latency_seconds_count")),
        latency_s=sum(_values(page, b"mark_latency_seconds_sum")),
        from_cache=sum(sum(_values(page, name)) for name in _FROM_CACHE),
        within=_within(list(_values(page, b"mark_latency_seconds_bucket"))),
        workers=sum(workers),
        unstored_s=max(_values(page, _UNSTORED), default=None),
    )


def read_conductor(page: bytes) -> BouncerCounters:
    """Read a conductor's page: its counts of whole queries, and the calls that it wants of the stages.

    Raises ValueError for any other page.
    """
    own = (line for line in page.splitlines() if b'stage=""' in line or line.startswith(_UNSTORED))
    lines = _lines(b"\n" + page, b"mark_selection_wanted_calls_total")
    stages = [(_STAGE.search(line), _value(line)) for line in lines]
    wanted = tuple((stage[1].decode(), count) for stage, count in stages if stage is not None)
    return read_bouncer(b"\n".join(own))._replace(wanted=wanted)


def read_whole(page: bytes) -> BouncerCounters:
    """Read the page of a whole pipeline's server: its counts of queries, with workers and busy seconds of all stages.

    Raises ValueError for any other page.
    """
    queries, all_lines = read_conductor(page), read_bouncer(page)
    # The page gives the stage with the fewest workers as the workers of the whole, so they are subtracted.
    return queries._replace(service_s=all_lines.service_s, workers=all_lines.workers - queries.workers)


def read_gateway(page: bytes) -> GatewayCounts:
    """Read a gateway's page. Raises ValueError for any other page."""
    page = b"\n" + page
    if not list(_lines(page, b"mark_gateway_in_flight_requests")):
        raise ValueError("no metrics of a gateway")
    names = ("requests", "refused", "by_functions", "late", "function_calls", "function_billed_seconds")
    return GatewayCounts._make(sum(_values(page, b"mark_gateway_%b_total" % name.encode())) for name in names)


def _within(buckets: list[float]) -> tuple[float, ...]:
    """Return the sum of all versions' buckets, each version's in the order of its bounds; () if the bounds differ."""
    bounds = len(SECONDS) + 1
    if len(buckets) % bounds:
        return ()
    return tuple(sum(buckets[place::bounds]) for place in range(bounds)) if buckets else ()


def _values(page: bytes, name: bytes) -> Iterator[float]:
    return map(_value, _lines(page, name))


def _value(line: bytes) -> float:
    return float(line.rpartition(b" ")[2])


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """Return the metric's lines; `page` begins with a newline.

    Searching is four times as fast as a regular expression.
    """
    sought = b"\n" + name
    begin = page.find(sought)
    while begin >= 0:
        end = page.find(b"\n", begin + 1)
        line = page[begin + 1 : end if end >= 0 else len(page)]
        if line[len(name) : len(name) + 1] in (b"{", b" "):
            yield line
        begin = page.find(sought, begin + 1)
