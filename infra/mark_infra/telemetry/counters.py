"""What the metrics page of a bouncer, a gateway or a conductor counts, as far as the controller needs it.

A page has some 200 lines and thousands are read every few seconds: only the lines needed are taken apart.
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
    """Of one bouncer, all versions together. Counters but the last two, which are what there is now.

    `within` are the latencies by their size: how many were at most each of `SECONDS`, and then all; () is not known.
    `wanted` are the calls of stages, by name, that a conductor's selection asks for at planned prices.
    """

    requests: float = 0.0  # answered or refused
    misses: float = 0.0  # of them later than RT_max, or refused
    by_functions: float = 0.0
    service_s: float = 0.0  # of batches in workers
    function_calls: float = 0.0
    function_billed_s: float = 0.0
    errors: float = 0.0  # of the requests: answered by the model with an error
    answered: float = 0.0  # of the requests: not refused
    latency_s: float = 0.0  # of all of these, from arrival to answer
    from_cache: float = 0.0  # of the requests: came to no worker, because the answer was in memory or under way
    wanted: tuple[tuple[str, float], ...] = ()
    within: tuple[float, ...] = ()
    workers: float = 0.0
    unstored_s: float | None = None  # age of the oldest learned fact that is not in the store; None: it has no store

    @property
    def numbers(self) -> tuple[float, ...]:
        """The counters that are one number each."""
        return self[:-4]

    @property
    def load(self) -> float:
        """Requests that came to workers or functions, or were refused: capacity is bought for these."""
        return self.requests - self.from_cache

    def since(self, before: BouncerCounters) -> BouncerCounters:
        """What was counted since `before`. Counters that fell began anew."""
        known = len(self.within) == len(before.within)
        # More requests since it began anew than before it did: that only the counts by size show.
        sizes = zip(self.within, before.within, strict=True) if known else ()
        if any(now < then for now, then in (*zip(self.numbers, before.numbers, strict=True), *sizes)):
            return self
        grown = (now - then for now, then in zip(self.numbers, before.numbers, strict=True))
        then_of = dict(before.wanted)
        wanted = tuple((stage, max(0.0, now - then_of.get(stage, 0.0))) for stage, now in self.wanted)
        within = tuple(now - then for now, then in zip(self.within, before.within, strict=True)) if known else ()
        return BouncerCounters._make((*grown, wanted, within, self.workers, self.unstored_s))


class GatewayCounts(NamedTuple):
    """Of a gateway: all requests of clients, and those for which there was no instance."""

    requests: float = 0.0
    refused: float = 0.0  # by itself, because nothing else could answer
    by_functions: float = 0.0
    late: float = 0.0  # of those by functions: later than RT_max
    function_calls: float = 0.0
    function_billed_s: float = 0.0

    def since(self, before: GatewayCounts) -> GatewayCounts:
        """As `BouncerCounters.since`."""
        if any(now < then for now, then in zip(self, before, strict=True)):
            return self
        return GatewayCounts._make(now - then for now, then in zip(self, before, strict=True))


def read_bouncer(page: bytes) -> BouncerCounters:
    """Raises ValueError for a page that is none of a bouncer."""
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
    """Of a pipeline's conductor what it counts of whole queries, and of stages the calls that it wants of them.

    Raises ValueError for a page that is none of a conductor.
    """
    own = (line for line in page.splitlines() if b'stage=""' in line or line.startswith(_UNSTORED))
    lines = _lines(b"\n" + page, b"mark_selection_wanted_calls_total")
    stages = [(_STAGE.search(line), _value(line)) for line in lines]
    wanted = tuple((stage[1].decode(), count) for stage, count in stages if stage is not None)
    return read_bouncer(b"\n".join(own))._replace(wanted=wanted)


def read_whole(page: bytes) -> BouncerCounters:
    """Of a server of a whole pipeline: what it counts of queries, with the workers of all stages and their seconds.

    Raises ValueError for a page that is none of a pipeline's server.
    """
    queries, all_lines = read_conductor(page), read_bouncer(page)
    # What the page has as the workers of the whole are those of the stage with the fewest.
    return queries._replace(service_s=all_lines.service_s, workers=all_lines.workers - queries.workers)


def read_gateway(page: bytes) -> GatewayCounts:
    """Raises ValueError for a page that is none of a gateway."""
    page = b"\n" + page
    if not list(_lines(page, b"mark_gateway_in_flight_requests")):
        raise ValueError("no metrics of a gateway")
    names = ("requests", "refused", "by_functions", "late", "function_calls", "function_billed_seconds")
    return GatewayCounts._make(sum(_values(page, b"mark_gateway_%b_total" % name.encode())) for name in names)


def _within(buckets: list[float]) -> tuple[float, ...]:
    """The buckets of all versions, each in the order of its bounds, as those of one; () where they are others."""
    bounds = len(SECONDS) + 1
    if len(buckets) % bounds:
        return ()
    return tuple(sum(buckets[place::bounds]) for place in range(bounds)) if buckets else ()


def _values(page: bytes, name: bytes) -> Iterator[float]:
    return map(_value, _lines(page, name))


def _value(line: bytes) -> float:
    return float(line.rpartition(b" ")[2])


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """The metric's lines; `page` begins with a line's end. Searching is four times as fast as a regular expression."""
    sought = b"\n" + name
    begin = page.find(sought)
    while begin >= 0:
        end = page.find(b"\n", begin + 1)
        line = page[begin + 1 : end if end >= 0 else len(page)]
        if line[len(name) : len(name) + 1] in (b"{", b" "):
            yield line
        begin = page.find(sought, begin + 1)
