"""The counts of a gateway, in Prometheus' format. Times are seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from mark.serving.backend.metrics import SECONDS, Histogram
from mark.serving.gateway.gateway import Gateway
from mark.serving.overflow.functions import Spent

CONTENT_TYPE = CONTENT_TYPE_LATEST


class GatewayMetrics(Collector):
    """The metrics of a gateway: the forwarder's counts, and the gateway's state."""

    def __init__(self, gateway: Gateway[Any]) -> None:
        self._gateway = gateway
        self.requests: defaultdict[int, int] = defaultdict(int)  # by status
        self.refused: defaultdict[str, int] = defaultdict(int)  # by reason why the gateway answered itself
        self.latency_s = Histogram(SECONDS)
        self.clients_gone = 0
        self.by_functions = self.late = 0  # answered by functions; late answers among them
        self.spent: Spent | None = None  # on functions, if there are any
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return the page in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        gateway = self._gateway
        by_status = CounterMetricFamily("mark_gateway_requests", "Requests by status.", labels=("code",))
        for status, count in sorted(self.requests.items()):
            by_status.add_metric((str(status),), count)
        refused = CounterMetricFamily(
            "mark_gateway_refused", "Requests that the gateway answered itself, by reason.", labels=("reason",)
        )
        for reason, count in sorted(self.refused.items()):
            refused.add_metric((reason,), count)
        latency = HistogramMetricFamily("mark_gateway_latency_seconds", "From arrival to answer.", labels=())
        latency.add_metric((), self.latency_s.buckets(), self.latency_s.total)
        yield from (by_status, refused, latency)
        for name, what, total in (
            ("retries", "Second attempts after a failure or a refusal.", gateway.retries),
            ("hedges", "Second attempts of requests that took long.", gateway.hedges),
            ("ejections", "Replicas put out after failures.", gateway.ejections),
            ("clients_gone", "Answers that no client was there to take.", self.clients_gone),
            ("by_functions", "Requests that functions answered, since no replica could.", self.by_functions),
            ("late", "Of those by functions: later than RT_max.", self.late),
        ):
            yield CounterMetricFamily(f"mark_gateway_{name}", what, value=total)
        if self.spent is not None:
            for name, what, used in (
                ("calls", "Invocations of functions that ran, or may have.", self.spent.calls),
                ("billed_seconds", "Billed seconds of these invocations.", self.spent.billed_s),
            ):
                yield CounterMetricFamily(f"mark_gateway_function_{name}", what, value=used)
        yield GaugeMetricFamily("mark_gateway_in_flight_requests", "Requests under way.", value=gateway.in_flight)
        for name, kind, what in (
            ("weight", GaugeMetricFamily, "As the controller set it."),
            ("ready", GaugeMetricFamily, "1: may be chosen, 0: not ready, or put out."),
            ("in_flight", GaugeMetricFamily, "Copies of requests that it has."),
            ("response_s", GaugeMetricFamily, "Response time, as learned."),
            ("answers", CounterMetricFamily, "Answers of any status."),
            ("refused", CounterMetricFamily, "Answers 429 and 503."),
            ("failed", CounterMetricFamily, "Copies without an answer, and probes."),
        ):
            family = kind(f"mark_gateway_replica_{name.replace('_s', '_seconds')}", what, labels=("replica",))
            for one in (*gateway.replicas.values(), *gateway.leaving.values()):
                family.add_metric((one.url,), float(getattr(one, name)))
            yield family
