"""Sums by the minute in as few calls as CloudWatch allows, page after page; by botocore's stubs."""

from __future__ import annotations

from datetime import UTC, datetime

from botocore.stub import ANY, Stubber
from mark_infra.aws.gate import Gate
from mark_infra.aws.minute_sums import MinuteMetric, minute_sums
from mark_infra.aws.site import Site

from tests.infra.conftest import REGION

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


def test_501_metrics_take_two_calls_and_all_their_pages() -> None:
    metrics: list[MinuteMetric] = [("a", "b", (("n", str(n)),)) for n in range(501)]
    gate = Gate(
        Site("mark", REGION, "sqlite:state"), options={"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    )
    asked = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY, "ScanBy": "TimestampAscending"}
    with Stubber(gate.client("cloudwatch")) as stubber:
        for id, value, token in (("m0", 1.0, "more"), ("m499", 2.0, ""), ("m0", 3.0, "")):
            page = {"MetricDataResults": [{"Id": id, "Timestamps": [NOON], "Values": [value]}]}
            stubber.add_response("get_metric_data", {**page, **({"NextToken": token} if token else {})}, dict(asked))
            asked = {**asked, "NextToken": token} if token else {k: v for k, v in asked.items() if k != "NextToken"}
        found = list(minute_sums(gate, metrics, NOON.timestamp(), NOON.timestamp() + 60.0))
        stubber.assert_no_pending_responses()
    assert found == [
        (metrics[0], NOON.timestamp(), 1.0),
        (metrics[499], NOON.timestamp(), 2.0),
        (metrics[500], NOON.timestamp(), 3.0),
    ]
