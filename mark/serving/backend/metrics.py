"""The counts of a bouncer, and their page in Prometheus' format.

Serving a request only changes integers; the page is made when it is requested. Times are seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from mark.domain.pace import Pace
from mark.domain.price_list import PriceList
from mark.domain.rules.admission import in_time
from mark.models.answer import NOBODY
from mark.serving.backend.sieve import Owner

if TYPE_CHECKING:
    from mark.serving.feedback.collector import FeedbackCollector
    from mark.serving.overflow.functions import Spent

CONTENT_TYPE = CONTENT_TYPE_LATEST
# From half a millisecond to a minute, so that any RT_max lies within a factor of 1.6 of a bound.
SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3,
    10.0, 60.0,
)  # fmt: skip
RATIOS = (0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 100.0)
ITEMS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Histogram:
    """Counts by upper bound, and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts, as Prometheus expects them."""
        found, so_far = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


class CacheCounts:
    """Counts of the cache before one version of a model, or before one stage (`mark.serving.backend.cache`).

    Each of its requests is counted in one of `hits`, `misses` and `coalesced`. Only misses reach the backend behind it.
    """

    __slots__ = ("coalesced", "hits", "kept", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = self.coalesced = 0
        self.kept = Owner()


class ModelMetrics:
    """Counts of one version of a model on this machine. The replica writes them, `Metrics` reads them.

    `stage` is the name of a pipeline's stage, or "" for the whole pipeline; None: no pipeline.
    """

    def __init__(self, model: str, version: str, stage: str | None = None) -> None:
        self.labels: tuple[str, ...] = (model, version) if stage is None else (model, version, stage)
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)  # (answered by, status)
        self.overflow: defaultdict[str, int] = defaultdict(int)  # by reason: overloaded, crash, failed, drain, ...
        self.refused: defaultdict[str, int] = defaultdict(int)  # by reason: overload, throttled, draining, large, ...
        self.deadline_misses = 0  # answered later than RT_max, or not answered
        self.expired = 0  # dropped unserved, because the client no longer waits
        self.retries = self.hedges = 0
        self.worker_losses = 0
        self.worker_replacements = 0
        self.latency_s = Histogram(SECONDS)
        self.wait_s = Histogram(SECONDS)
        self.service_s = Histogram(SECONDS)
        self.service_ratio = Histogram(RATIOS)  # empty without a profile
        self.pace = Pace()  # from the same ratios
        self.batch_items = Histogram(ITEMS)
        # The current values; `refresh` is called before they are read.
        self.queued = self.running = self.workers_ready = 0
        self.n_batch = 0
        self.refresh: Callable[[], None] = _as_it_is
        self.cache: CacheCounts | None = None  # None: no cache

    def answered(self, made_by: str, status: int, latency_s: float, allowed_s: float) -> None:
        """Count an answer or refusal, and whether its latency was within the allowed one."""
        self.requests[made_by, status] += 1
        if made_by != NOBODY:
            self.latency_s.observe(latency_s)
        if made_by == NOBODY or not in_time(latency_s, allowed_s):
            self.deadline_misses += 1


def _as_it_is() -> None:
    """Update nothing: for metrics without a replica."""


class ListenerCounts(Protocol):
    """A listener's counts of its connections since the start."""

    @property
    def dropped_answers(self) -> int: ...
    @property
    def refused(self) -> Mapping[int, int]: ...
    @property
    def cut(self) -> int: ...


class ListenerStats(Protocol):
    """The values read from a listener (`mark.serving.frontend.http.HttpServer`)."""

    @property
    def counts(self) -> ListenerCounts: ...
    @property
    def connections(self) -> Sized: ...


_PRICES = {
    "usd_per_request": "Price of one more request now, as the controller last said.",
    "usd_per_miss": "Value of not missing one more request, as the controller last said.",
}


class Metrics(Collector):
    """The metrics of a whole process; `listener` is its HTTP listener."""

    def __init__(self) -> None:
        self.models: list[ModelMetrics] = []
        self.listener: ListenerStats | None = None
        self.spent: list[tuple[tuple[str, ...], Spent]] = []  # on functions, by model, or by model and stage
        self.prices = PriceList()  # as the controller reported them
        self.feedback: FeedbackCollector | None = None
        self.more: list[Callable[[], Iterator[Metric]]] = []  # of parts of the server with their own metrics
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return the page in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        # All models of a process have the same labels, because it serves either a pipeline or one model.
        of = ("model", "version", "stage")[: len(self.models[0].labels) if self.models else 2]
        by_answer = CounterMetricFamily(
            "mark_requests",
            "Requests by answerer and status.",
            labels=(*of, "answered_by", "code"),
        )
        overflow = CounterMetricFamily(
            "mark_overflow", "Requests sent to functions, by reason.", labels=(*of, "reason")
        )
        refused = CounterMetricFamily("mark_refused", "Requests refused, by reason.", labels=(*of, "reason"))
        counters = {
            "deadline_misses": CounterMetricFamily(
                "mark_deadline_misses", "Answered later than RT_max, or not at all.", labels=of
            ),
            "expired": CounterMetricFamily("mark_expired", "Dropped unserved: past the client's deadline.", labels=of),
            "retries": CounterMetricFamily(
                "mark_retries",
                "Requests served again: a worker was lost, the model failed on their batch, a stage did not answer.",
                labels=of,
            ),
            "hedges": CounterMetricFamily(
                "mark_hedges", "Calls of a stage made twice, because they took long.", labels=of
            ),
            "worker_losses": CounterMetricFamily("mark_worker_losses", "Workers that crashed or hung.", labels=of),
            "worker_replacements": CounterMetricFamily(
                "mark_worker_replacements", "Workers that had grown too large, and were replaced.", labels=of
            ),
        }
        gauges = {
            "queued": GaugeMetricFamily("mark_queued_requests", "Requests that wait for a worker.", labels=of),
            "running": GaugeMetricFamily("mark_running_requests", "Requests that a worker has.", labels=of),
            "workers_ready": GaugeMetricFamily("mark_workers_ready", "Workers that have the model loaded.", labels=of),
            "n_batch": GaugeMetricFamily("mark_batch_limit_items", "The largest batch, as tuned now.", labels=of),
        }
        pace = CounterMetricFamily(
            "mark_pace_seconds", "Time that batches were calm or slow, over 1.5 times profiled.", labels=(*of, "pace")
        )
        periods = CounterMetricFamily("mark_slow_periods", "Times that batches became calm again.", labels=of)
        histograms = {
            "latency_s": HistogramMetricFamily("mark_latency_seconds", "From arrival to answer.", labels=of),
            "wait_s": HistogramMetricFamily("mark_wait_seconds", "From arrival to the start of the batch.", labels=of),
            "service_s": HistogramMetricFamily("mark_service_seconds", "Of a batch in its worker.", labels=of),
            "service_ratio": HistogramMetricFamily(
                "mark_service_ratio", "Time of a batch in its worker over its profiled time.", labels=of
            ),
            "batch_items": HistogramMetricFamily("mark_batch_items", "Items in a batch.", labels=of),
        }
        for one in self.models:
            one.refresh()
            for (made_by, status), count in sorted(one.requests.items()):
                by_answer.add_metric((*one.labels, made_by, str(status)), count)
            for reason, count in sorted(one.overflow.items()):
                overflow.add_metric((*one.labels, reason), count)
            for reason, count in sorted(one.refused.items()):
                refused.add_metric((*one.labels, reason), count)
            for name, counter in counters.items():
                counter.add_metric(one.labels, getattr(one, name))
            for word, seconds in (("calm", one.pace.calm_s), ("slow", one.pace.slow_s)):
                pace.add_metric((*one.labels, word), seconds)
            periods.add_metric(one.labels, one.pace.periods)
            for name, gauge in gauges.items():
                gauge.add_metric(one.labels, getattr(one, name))
            for name, histogram in histograms.items():
                values: Histogram = getattr(one, name)
                histogram.add_metric(one.labels, values.buckets(), values.total)
        yield from (by_answer, overflow, refused, pace, periods)
        yield from counters.values()
        yield from gauges.values()
        yield from histograms.values()
        if cached := [(one.labels, one.cache) for one in self.models if one.cache is not None]:
            yield from _of_caches(of, cached)
        if self.spent:
            yield from _of_functions(self.spent)
        if self.feedback is not None:
            yield from _of_feedback(self.feedback)
        for metrics in self.more:
            yield from metrics()
        for name, what in _PRICES.items():
            if (usd := getattr(self.prices, name)) is not None:
                yield GaugeMetricFamily(f"mark_{name}", what, usd)
        if self.listener is not None:
            yield from _of_listener(self.listener)


def _of_caches(of: Sequence[str], cached: Sequence[tuple[tuple[str, ...], CacheCounts]]) -> Iterator[Metric]:
    hits = CounterMetricFamily("mark_cache_hits", "Requests answered from memory.", labels=of)
    misses = CounterMetricFamily("mark_cache_misses", "Requests that came to the model.", labels=of)
    coalesced = CounterMetricFamily(
        "mark_cache_coalesced", "Requests that did not come to the model because an equal one was there.", labels=of
    )
    evictions = CounterMetricFamily("mark_cache_evictions", "Answers dropped to make room for others.", labels=of)
    size = GaugeMetricFamily("mark_cache_bytes", "Memory of the answers that are kept.", labels=of)
    for labels, counts in cached:
        hits.add_metric(labels, counts.hits)
        misses.add_metric(labels, counts.misses)
        coalesced.add_metric(labels, counts.coalesced)
        evictions.add_metric(labels, counts.kept.evictions)
        size.add_metric(labels, counts.kept.bytes)
    yield from (hits, misses, coalesced, evictions, size)


def _of_functions(all_spent: Sequence[tuple[tuple[str, ...], Spent]]) -> Iterator[Metric]:
    of = ("model", "stage")[: len(all_spent[0][0])]
    calls = CounterMetricFamily("mark_function_calls", "Invocations of functions that ran, or may have.", labels=of)
    billed = CounterMetricFamily("mark_function_billed_seconds", "Billed seconds of these invocations.", labels=of)
    capped = CounterMetricFamily(
        "mark_function_capped", "Calls of functions not sent, because they would exceed the cost limit.", labels=of
    )
    for labels, spent in all_spent:
        calls.add_metric(labels, spent.calls)
        billed.add_metric(labels, spent.billed_s)
        capped.add_metric(labels, spent.capped)
    yield from (calls, billed, capped)


def _of_feedback(feedback: FeedbackCollector) -> Iterator[Metric]:
    results = CounterMetricFamily("mark_feedback", "Pieces of feedback, by outcome.", labels=("model", "result"))
    for result, count in sorted(feedback.results.items()):
        results.add_metric((feedback.model, result), count)
    waiting = GaugeMetricFamily(
        "mark_feedback_waiting_answers", "Answers in memory that may take feedback.", labels=("model",)
    )
    waiting.add_metric((feedback.model,), feedback.join.waiting)
    unlogged = CounterMetricFamily(
        "mark_feedback_unlogged_answers", "Answers that are not in the feedback log.", labels=("model",)
    )
    unlogged.add_metric((feedback.model,), feedback.unlogged)
    yield from (results, waiting, unlogged)


def _of_listener(listener: ListenerStats) -> Iterator[Metric]:
    counts = listener.counts
    yield CounterMetricFamily("mark_clients_gone", "Answers that no client was there to take.", counts.dropped_answers)
    yield CounterMetricFamily("mark_cut", "Connections cut because a client did not take its answers.", counts.cut)
    yield GaugeMetricFamily("mark_connections", "Open connections.", len(listener.connections))
    refused = CounterMetricFamily(
        "mark_listener_refused",
        "Refused by the HTTP listener itself: malformed, too large, too slow, no key.",
        labels=("code",),
    )
    for status, count in sorted(counts.refused.items()):
        refused.add_metric((str(status),), count)
    yield refused
