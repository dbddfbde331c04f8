"""Send the controller's metrics to CloudWatch, for existing alarms and dashboards.

A thread sends them. If CloudWatch fails, only metrics are lost.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mark.control.ports import RecentAnswers, Result
from mark.control.views import DecisionSchema, ServiceView
from mark.domain.errors import CloudError
from mark.domain.fleet import Phase
from mark_infra.aws.gate import Gate, is_refusal
from mark_infra.background import Background

_LOG = logging.getLogger("mark.aws")

NAMESPACE = "mark"
PERIOD_S = 60.0
HEARTBEAT = "Heartbeat"
ATTAINMENT = "Attainment"
OF_EACH_SERVICE = (
    *(ATTAINMENT, "Load", "Capacity", "BillPerHour", "Bill", "Troubles", "FunctionBillPerHour", "FailedLaunches"),
)  # and Instances, for each offer
OF_EACH_PIPELINE = (ATTAINMENT,)  # of the whole pipeline, because its stages are services
UNSTORED = "UnstoredFactsAge"
OF_EACH_LEARNER = (UNSTORED,)  # a service or a pipeline whose servers keep learned facts in a store
DECISIONS = 100  # the newest decisions, enough for a minute
_LAUNCHES = frozenset(("launch", "resume"))
_MOST_IN_CALL = 100  # CloudWatch allows 1,000, but smaller calls stay far from the read timeout
_MOST_WAITING = 20_000

Datum = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Since:
    """The changes since the metrics of the previous minute."""

    function_usd_per_hour: float | None  # None without an earlier value
    failed_launches: int  # rounds in which launches were requested and none succeeded


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    functions_usd: float
    decision: int


def data_of(view: ServiceView, site: str, since: Since) -> Iterator[Datum]:
    """Return a service's metrics as PutMetricData takes them, without unknown values and values that are not finite."""
    return (one for one in _data(view, site, since) if math.isfinite(one["Value"]))


def _data(view: ServiceView, site: str, since: Since) -> Iterator[Datum]:
    dimensions = [{"Name": "Site", "Value": site}, {"Name": "Service", "Value": view.service}]
    at = datetime.fromtimestamp(view.at_unix_s, UTC)

    def datum(name: str, value: float, unit: str, *more: dict[str, str]) -> Datum:
        return {"MetricName": name, "Dimensions": [*dimensions, *more], "Timestamp": at, "Value": value, "Unit": unit}

    if view.slo.recent is not None:
        yield datum(ATTAINMENT, 100.0 * view.slo.recent, "Percent")
    if view.rps is not None:
        yield datum("Load", view.rps, "Count/Second")
    yield datum("Capacity", view.capacity_rps, "Count/Second")
    yield datum("BillPerHour", view.usd_per_hour, "None")  # dollars, of instances
    yield datum("Bill", view.bill.total, "None")
    yield datum("Troubles", len(view.conditions), "Count")
    if since.function_usd_per_hour is not None:
        yield datum("FunctionBillPerHour", since.function_usd_per_hour, "None")
    yield datum("FailedLaunches", since.failed_launches, "Count")
    fleet = Counter(i.offer for i in view.instances if i.phase is not Phase.STOPPED)
    for offer in sorted(fleet.keys() | view.prices.keys()):  # planned offers without instances are reported as zero
        yield datum("Instances", fleet[offer], "Count", {"Name": "Offer", "Value": offer})


def _failed_rounds(decisions: Sequence[DecisionSchema]) -> int:
    """Count the rounds in which launches failed and no instance was started.

    Launches refused by the service's own limit do not count as failures.
    """
    rounds: defaultdict[float, list[DecisionSchema]] = defaultdict(list)
    for one in decisions:
        if one.verb in _LAUNCHES:
            rounds[one.at_unix_s].append(one)
    return sum(
        any(one.result is Result.FAILED for one in those)
        and not any(one.result in (Result.DONE, Result.PART) for one in those)
        for those in rounds.values()
    )


class MetricChanges:
    """The changes since the metrics of the previous minute, in one term of the process."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}  # by service

    def since(self, view: ServiceView, decisions: Sequence[DecisionSchema]) -> Since:
        """Return the changes since the last call. The first call reports none, because another process led before."""
        before = self._seen.get(view.service)
        newest = max((one.id for one in decisions), default=0 if before is None else before.decision)
        self._seen[view.service] = _Seen(view.at_s, view.bill.functions, newest)
        if before is None:
            return Since(None, 0)
        failed = _failed_rounds([one for one in decisions if one.id > before.decision])
        if view.at_s <= before.at_s:
            return Since(None, failed)
        functions_usd = max(0.0, view.bill.functions - before.functions_usd)
        return Since(functions_usd * 3600.0 / (view.at_s - before.at_s), failed)


class CloudWatchMetrics(Background):
    """Sends the queued metrics once a minute, and once more when it is closed. Thread-safe; `put` never blocks.

    Needs a `gate` that no other object uses. `counts`: data points "sent", "dropped" (the queue was full) and "refused"
    (by CloudWatch), and calls that "failed".
    """

    def __init__(self, gate: Gate, site: str, *, period_s: float = PERIOD_S) -> None:
        super().__init__(self._send_on, "cloudwatch")
        self._gate, self._site, self._period_s = gate, site, period_s
        self._lock = threading.Lock()
        self._waiting: deque[Datum] = deque()
        self.counts: Counter[str] = Counter()

    def put(self, view: ServiceView, decisions: Sequence[DecisionSchema], changes: MetricChanges) -> None:
        """Queue a service's metrics for the next batch; a full queue drops the oldest.

        `decisions` are the newest `DECISIONS`; `changes` are of the present term.
        """
        if view.at_s == 0.0:  # no round has ended since this process leads, so the numbers are unknown
            data = [one for one in data_of(view, self._site, Since(None, 0)) if one["MetricName"] == "Troubles"]
            self._put(data if view.conditions else [])
            return
        self._put(list(data_of(view, self._site, changes.since(view, decisions))))

    def put_pipeline(self, pipeline: str, recent: RecentAnswers, at_unix_s: float) -> None:
        """Queue the share of a pipeline's last queries that were in time; without queries, nothing."""
        if not recent.count:
            return
        at, of = datetime.fromtimestamp(at_unix_s, UTC), {"Site": self._site, "Service": pipeline}
        dimensions = [{"Name": name, "Value": value} for name, value in of.items()]
        percent = 100.0 * recent.in_time / recent.count
        one = {"MetricName": ATTAINMENT, "Dimensions": dimensions, "Timestamp": at, "Value": percent, "Unit": "Percent"}
        self._put([one])

    def put_unstored(self, name: str, unstored_s: float, at_unix_s: float) -> None:
        """Queue the age of the oldest fact that the servers of a service or pipeline have not stored yet."""
        at, of = datetime.fromtimestamp(at_unix_s, UTC), {"Site": self._site, "Service": name}
        dimensions = [{"Name": name, "Value": value} for name, value in of.items()]
        one = {"MetricName": UNSTORED, "Dimensions": dimensions, "Timestamp": at, "Value": unstored_s}
        self._put([one | {"Unit": "Seconds"}])

    def beat(self, at_unix_s: float) -> None:
        """Queue a heartbeat of the leading controller. Called once a minute, so that an alarm notices its absence."""
        at, of = datetime.fromtimestamp(at_unix_s, UTC), [{"Name": "Site", "Value": self._site}]
        self._put([{"MetricName": HEARTBEAT, "Dimensions": of, "Timestamp": at, "Value": 1.0, "Unit": "Count"}])

    def _put(self, data: Sequence[Datum]) -> None:
        with self._lock:
            self._waiting.extend(data)
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popleft()
                self.counts["dropped"] += 1

    def flush(self) -> None:
        """Send all queued data. Raises CloudError; unsent data stay queued for the next call.

        Data that CloudWatch refuses are dropped, because they would block all data behind them.
        """
        singly = 0  # the number of data at the head of the queue to send one by one
        while batch := self._next(1 if singly else _MOST_IN_CALL):
            try:
                self._gate.call(self._gate.client("cloudwatch").put_metric_data, Namespace=NAMESPACE, MetricData=batch)
            except CloudError as error:
                if is_refusal(error) and len(batch) == 1:
                    self.counts["refused"] += 1
                    _LOG.warning("CloudWatch does not take %s: %s", batch[0]["MetricName"], error)
                    singly = max(0, singly - 1)
                    continue
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                if is_refusal(error):
                    singly = len(batch)
                    continue
                self.counts["failed"] += 1
                raise
            self.counts["sent"] += len(batch)
            singly = max(0, singly - 1)

    def _next(self, most: int) -> list[Datum]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

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
