"""What the controller sees, into CloudWatch: for alarms and dashboards that people have there already.

A thread sends it; a CloudWatch that fails costs nothing but its numbers.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from mark.control.views import ServiceView
from mark.domain.errors import CloudError
from mark.domain.fleet import Phase
from mark_infra.aws.gate import Gate

_LOG = logging.getLogger("mark.aws")

NAMESPACE = "mark"
PERIOD_S = 60.0
_MOST_IN_CALL = 100  # 1,000 are allowed; smaller calls never come near the read timeout
_MOST_WAITING = 20_000

Datum = Mapping[str, Any]


def data_of(view: ServiceView, site: str) -> Iterator[Datum]:
    """A service's numbers as PutMetricData takes them; what is unknown is left out."""
    dimensions = [{"Name": "Site", "Value": site}, {"Name": "Service", "Value": view.service}]
    at = datetime.fromtimestamp(view.at_unix_s, UTC)

    def datum(name: str, value: float, unit: str, *more: dict[str, str]) -> Datum:
        return {"MetricName": name, "Dimensions": [*dimensions, *more], "Timestamp": at, "Value": value, "Unit": unit}

    if view.slo.recent is not None:
        yield datum("Attainment", 100.0 * view.slo.recent, "Percent")
    if view.rps is not None:
        yield datum("Load", view.rps, "Count/Second")
    yield datum("Capacity", view.capacity_rps, "Count/Second")
    yield datum("BillPerHour", view.usd_per_hour, "None")  # dollars
    yield datum("Bill", view.bill.total, "None")
    yield datum("Troubles", len(view.conditions), "Count")
    fleet = Counter(i.offer for i in view.instances if i.phase is not Phase.STOPPED)
    for offer in sorted(fleet.keys() | view.prices.keys()):  # zero of what is planned is a number, too
        yield datum("Instances", fleet[offer], "Count", {"Name": "Offer", "Value": offer})


class CloudWatchMetrics:
    """Sends what it is given once a minute. Thread-safe; `put` never waits. `gate` must be one of its own.

    `counts`: data "sent" and "dropped" (too many were waiting), and calls that "failed".
    """

    def __init__(self, gate: Gate, site: str, *, period_s: float = PERIOD_S) -> None:
        self._gate, self._site, self._period_s = gate, site, period_s
        self._lock = threading.Lock()
        self._waiting: deque[Datum] = deque()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send_on, name="cloudwatch", daemon=True)
        self.counts: Counter[str] = Counter()

    def put(self, view: ServiceView) -> None:
        """Have it sent with the next batch; where too much waits, the oldest is dropped."""
        data = list(data_of(view, self._site))
        with self._lock:
            self._waiting.extend(data)
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popleft()
                self.counts["dropped"] += 1

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Sends what is left, once."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def flush(self) -> None:
        """Send all there is. Raises CloudError; what was not sent waits for the next time."""
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(_MOST_IN_CALL, len(self._waiting)))]
            if not batch:
                return
            try:
                self._gate.call(self._gate.client("cloudwatch").put_metric_data, Namespace=NAMESPACE, MetricData=batch)
            except CloudError:
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                self.counts["failed"] += 1
                raise
            self.counts["sent"] += len(batch)

    def _send_on(self) -> None:
        while True:
            ended = self._ends.wait(self._period_s)
            try:
                self.flush()
            except CloudError as error:
                _LOG.warning("metrics cannot be sent: %s", error)
            except Exception:
                _LOG.exception("metrics cannot be sent")
            if ended:
                return
