"""Metrics sent to CloudWatch, and the behaviour when CloudWatch refuses them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from mark_infra.aws import cloudwatch
from mark_infra.aws.cloudwatch import (
    HEARTBEAT,
    NAMESPACE,
    OF_EACH_LEARNER,
    OF_EACH_PIPELINE,
    OF_EACH_SERVICE,
    CloudWatchMetrics,
    MetricChanges,
    Since,
    data_of,
)
from mark_infra.aws.gate import Gate, reaction
from mark_infra.aws.site import Site

from mark.control.ports import RecentAnswers, Result
from mark.control.views import DecisionSchema, Limits, ServiceView, SloSchema
from mark.domain.bill import Bill
from mark.domain.errors import CloudError
from mark.domain.fleet import Instance, Phase
from tests.infra.conftest import REGION, MotoServer
from tests.infra.fault_proxy import Fault, fault_proxy

SITE = Site("mark", REGION, "sqlite:state")
NOW = datetime.now(UTC).replace(microsecond=0, second=0)
ON_DEMAND, SPOT = "c5.large/on-demand", "c5.large/spot/us-east-1a"

VIEW = ServiceView(
    service="inception",
    mode="acting",
    at_unix_s=NOW.timestamp(),
    at_s=600.0,
    rps=12.5,
    capacity_rps=40.0,
    usd_per_hour=0.205,
    instances=(
        Instance(1, ON_DEMAND, Phase.READY, 0.0),
        Instance(2, ON_DEMAND, Phase.PENDING, 0.0),
        Instance(3, SPOT, Phase.STOPPED, 0.0),
    ),
    prices={ON_DEMAND: 0.085, SPOT: 0.035, "c5.xlarge/on-demand": 0.17},
    plan=None,
    forecast=None,
    slo=SloSchema(600.0, 0.98, 0.991, 0.987, 0.4, None, None, None),
    bill=Bill(on_demand=3.0, functions=0.25),
    requests=1000,
    limits=Limits(10, 5.0),
    conditions=("one",),
)


def values(data: list[Any]) -> dict[tuple[str, ...], float]:
    return {(d["MetricName"], *(x["Value"] for x in d["Dimensions"] if x["Name"] == "Offer")): d["Value"] for d in data}


def wait_for(condition: Callable[[], bool]) -> None:
    until_s, look = time.monotonic() + 60.0, threading.Event()
    while not condition():
        assert time.monotonic() < until_s, "not in time"
        look.wait(0.01)


def test_a_view_in_numbers() -> None:
    data = list(data_of(VIEW, "mark", Since(0.9, 2)))
    assert values(data) == {
        ("Attainment",): 98.7,
        ("Load",): 12.5,
        ("Capacity",): 40.0,
        ("BillPerHour",): 0.205,
        ("Bill",): 3.25,
        ("Troubles",): 1,
        ("FunctionBillPerHour",): 0.9,
        ("FailedLaunches",): 2,
        ("Instances", ON_DEMAND): 2,
        ("Instances", SPOT): 0,
        ("Instances", "c5.xlarge/on-demand"): 0,
    }
    assert {name for name, *offer in values(data) if not offer} == set(OF_EACH_SERVICE)
    of = [{"Name": "Site", "Value": "mark"}, {"Name": "Service", "Value": "inception"}]
    assert all(d["Dimensions"][:2] == of and d["Timestamp"] == NOW for d in data)
    unknown = replace(VIEW, rps=None, slo=replace(VIEW.slo, recent=None))
    found = set(values(list(data_of(unknown, "mark", Since(None, 0)))))
    assert not {("Attainment",), ("Load",), ("FunctionBillPerHour",)} & found


def test_what_is_no_finite_number_is_left_out() -> None:
    odd = replace(VIEW, rps=float("nan"), capacity_rps=float("inf"))
    found = set(values(list(data_of(odd, "mark", Since(float("inf"), 0)))))
    assert not {("Load",), ("Capacity",), ("SpendPerHour",)} & found
    assert ("Bill",) in found


def decision(
    id: int, verb: str = "launch", result: Result | None = Result.DONE, at_s: float | None = None
) -> DecisionSchema:
    return DecisionSchema(id, float(id) if at_s is None else at_s, verb, "why", "for people", 0.1, result, 0)


class Calls:
    """A gate that accepts metrics and no other call."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def client(self, service: str) -> Any:
        assert service == "cloudwatch"
        return self

    def put_metric_data(self) -> None:
        """Never called: `call` gets its arguments."""

    def call(self, method: Any, *, Namespace: str, MetricData: list[Any]) -> None:
        assert Namespace == NAMESPACE
        self.sent += MetricData


def test_spend_and_failures_are_those_since_the_last_time() -> None:
    """Functions count by the growth of their bill. A new leader counts from its first view on."""
    gate = Calls()
    metrics, term = CloudWatchMetrics(gate, "mark"), MetricChanges()  # type: ignore[arg-type]
    refused = decision(3, result=Result.FAILED)
    later = replace(VIEW, at_s=660.0, bill=replace(VIEW.bill, functions=0.30))
    found = []
    for view, decisions in (
        (VIEW, [refused, decision(2)]),
        (
            later,
            [
                decision(6, "resume", Result.FAILED),
                decision(5, "drain", Result.FAILED),
                decision(4, result=Result.FAILED),
                refused,
            ],
        ),
        (replace(later, at_s=720.0), [decision(6, "resume", Result.FAILED)]),
    ):
        gate.sent.clear()
        metrics.put(view, decisions, term)
        metrics.flush()
        named = values(gate.sent)
        found.append((named.get(("FunctionBillPerHour",)), named[("FailedLaunches",)]))
    assert found == [(None, 0), (pytest.approx(0.05 * 60.0), 2), (0.0, 0)]


def test_new_leader_sends_only_troubles_before_its_first_round() -> None:
    """Its view is empty until then, and another process has sent the numbers up to then."""
    gate = Calls()
    metrics, term = CloudWatchMetrics(gate, "mark"), MetricChanges()  # type: ignore[arg-type]
    empty = replace(VIEW, at_s=0.0, rps=None, capacity_rps=0.0, usd_per_hour=0.0, bill=Bill(), prices={})
    metrics.put(replace(empty, instances=(), conditions=()), (), term)
    metrics.put(replace(empty, instances=()), (), term)
    metrics.flush()
    assert values(gate.sent) == {("Troubles",): 1}
    metrics.put(replace(VIEW, at_s=1200.0), [decision(3, result=Result.FAILED)], term)
    metrics.flush()
    named = values(gate.sent)
    assert (named[("Capacity",)], named[("FailedLaunches",)]) == (40.0, 0)
    assert ("FunctionBillPerHour",) not in named


@pytest.mark.parametrize(
    ("results", "failed"),
    [
        ([Result.FAILED], 1),
        ([Result.FAILED, Result.FAILED], 1),
        ([Result.FAILED, Result.DONE], 0),
        ([Result.FAILED, Result.PART], 0),
        ([Result.PART], 0),
        ([Result.LIMIT], 0),
        ([Result.LIMIT, Result.FAILED], 1),
        ([Result.DROPPED], 0),
        ([Result.DRY_RUN], 0),
        ([None], 0),
    ],
)
def test_a_round_without_any_launch_counts_as_failed(results: list[Result | None], failed: int) -> None:
    gate = Calls()
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    term = MetricChanges()
    metrics.put(VIEW, (), term)
    failures = [decision(n, result=one, at_s=1.0) for n, one in enumerate(results, 1)]
    metrics.put(replace(VIEW, at_s=660.0), failures, term)
    metrics.flush()
    assert values(gate.sent)[("FailedLaunches",)] == failed


def test_a_heartbeat_is_the_sites() -> None:
    gate = Calls()
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    metrics.beat(NOW.timestamp())
    metrics.flush()
    (one,) = gate.sent
    assert (one["MetricName"], one["Value"], one["Timestamp"]) == (HEARTBEAT, 1.0, NOW)
    assert one["Dimensions"] == [{"Name": "Site", "Value": "mark"}]


def test_a_pipelines_queries_in_time_go_by_its_name() -> None:
    """A minute without queries has no value."""
    gate = Calls()
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    metrics.put_pipeline("two", RecentAnswers(0, 0), NOW.timestamp())
    metrics.put_pipeline("two", RecentAnswers(200, 195), NOW.timestamp())
    metrics.flush()
    (one,) = gate.sent
    assert (one["MetricName"],) == OF_EACH_PIPELINE
    assert (one["Value"], one["Unit"], one["Timestamp"]) == (97.5, "Percent", NOW)
    assert {of["Name"]: of["Value"] for of in one["Dimensions"]} == {"Site": "mark", "Service": "two"}


class Picky(Calls):
    """A gate that refuses any call with a metric of the name."""

    def __init__(self, name: str, status: int = 400, code: str = "InvalidParameterValue") -> None:
        super().__init__()
        self._name, self._status, self._code, self.calls = name, status, code, 0

    def call(self, method: Any, *, Namespace: str, MetricData: list[Any]) -> None:
        self.calls += 1
        if any(one["MetricName"] == self._name for one in MetricData):
            error = {"Code": self._code, "Message": "The value is not valid."}
            said = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": self._status}}
            raise reaction(self._code, "no") from ClientError(said, "PutMetricData")
        super().call(method, Namespace=Namespace, MetricData=MetricData)


def test_a_number_that_is_refused_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    gate = Picky("Load")
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    metrics.put(VIEW, (), MetricChanges())
    metrics.beat(NOW.timestamp())
    metrics.flush()
    assert metrics.counts == {"sent": 10, "refused": 1}
    assert HEARTBEAT in {one["MetricName"] for one in gate.sent}
    assert "CloudWatch does not take Load" in caplog.text


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "Throttling"), (500, "InternalServiceFault"), (403, "ExpiredToken"), (408, "RequestTimeout")],
)
def test_what_passes_drops_no_number(status: int, code: str) -> None:
    gate = Picky("Load", status, code)
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    metrics.put(VIEW, (), MetricChanges())
    with pytest.raises(CloudError):
        metrics.flush()
    assert (metrics.counts, gate.calls) == ({"failed": 1}, 1)


def test_they_arrive_in_batches(moto: MotoServer) -> None:
    """There may be more of them than one call takes; each arrives once."""
    moto.reset()
    metrics = CloudWatchMetrics(Gate(SITE, options=moto.options), "mark")
    for number in range(25):
        metrics.put(replace(VIEW, service=f"service-{number}"), (), MetricChanges())
    metrics.flush()
    metrics.flush()
    assert metrics.counts == {"sent": 25 * 10}
    found = moto.client("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName="Instances",
        Dimensions=[
            {"Name": "Site", "Value": "mark"},
            {"Name": "Service", "Value": "service-24"},
            {"Name": "Offer", "Value": ON_DEMAND},
        ],
        StartTime=NOW - timedelta(minutes=5),
        EndTime=NOW + timedelta(minutes=5),
        Period=60,
        Statistics=["Sum", "SampleCount"],
    )
    assert [(point["Sum"], point["SampleCount"]) for point in found["Datapoints"]] == [(2.0, 1.0)]


def test_what_fails_waits_and_what_is_too_much_is_dropped(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudwatch, "_MOST_WAITING", 20)
    with fault_proxy(moto.url, share=1.0, faults=(Fault.UNAVAILABLE,)) as proxy:
        metrics = CloudWatchMetrics(Gate(SITE, options=moto.options | {"endpoint_url": proxy.url}), "mark")
        for _ in range(3):
            metrics.put(VIEW, (), MetricChanges())
        with pytest.raises(CloudError):
            metrics.flush()
        proxy.share = 0.0
        metrics.flush()
    assert metrics.counts == {"dropped": 10, "failed": 1, "sent": 20}


def test_the_thread_survives_failures_and_flushes_at_its_end(moto: MotoServer) -> None:
    """`put` never blocks."""
    with fault_proxy(moto.url, share=0.0) as proxy:
        proxy.script.extend([Fault.LOST, Fault.INTERNAL, Fault.UNAVAILABLE])
        gate = Gate(SITE, options=moto.options | {"endpoint_url": proxy.url})
        metrics = CloudWatchMetrics(gate, "mark", period_s=0.05)
        metrics.start()
        began_s = time.monotonic()
        metrics.put(VIEW, (), MetricChanges())
        assert time.monotonic() - began_s < 2.0
        wait_for(lambda: metrics.counts["failed"] == 1)
        wait_for(lambda: metrics.counts["sent"] == 10)
        metrics.close()
        last = CloudWatchMetrics(gate, "mark", period_s=3600.0)
        last.start()
        last.put(VIEW, (), MetricChanges())
        last.close()
        assert last.counts == {"sent": 10}


def test_age_of_facts_that_are_not_stored_goes_by_the_service() -> None:
    gate = Calls()
    metrics = CloudWatchMetrics(gate, "mark")  # type: ignore[arg-type]
    metrics.put_unstored("chosen", 61.5, NOW.timestamp())
    metrics.flush()
    (one,) = gate.sent
    assert (one["MetricName"],) == OF_EACH_LEARNER
    assert (one["Value"], one["Unit"], one["Timestamp"]) == (61.5, "Seconds", NOW)
    assert {of["Name"]: of["Value"] for of in one["Dimensions"]} == {"Site": "mark", "Service": "chosen"}
