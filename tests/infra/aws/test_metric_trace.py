"""A CloudWatch metric as a trace: as moto emulates it; paging and errors, which moto lacks, by botocore's stubs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import ANY, Stubber
from mark_infra.aws.gate import Gate
from mark_infra.aws.metric_trace import Metric, parse, read_metric
from mark_infra.aws.site import Site

from mark.cli.main import main
from mark.domain.errors import BadInput
from mark.domain.time import DAY_S
from tests.infra.conftest import REGION, MotoServer

NOW_UNIX_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z
SITE = Site("mark", REGION, "sqlite:state")


@pytest.mark.parametrize(
    ("query", "days", "period_s", "end_unix_s"),
    [
        ("", 14.0, 60.0, NOW_UNIX_S),
        ("&days=15", 15.0, 60.0, NOW_UNIX_S),
        ("&days=15.1", 15.1, 300.0, NOW_UNIX_S),
        ("&days=63", 63.0, 300.0, NOW_UNIX_S),
        ("&days=64", 64.0, 3600.0, NOW_UNIX_S),
        ("&days=1&end=2027-01-02", 1.0, 60.0, NOW_UNIX_S - 13.0 * DAY_S - 8.0 * 3600.0),
        ("&days=1&end=2026-12-15T08:00:59", 1.0, 300.0, NOW_UNIX_S - 31.0 * DAY_S),
        ("&days=0.5&end=2027-01-15T08:00:00%2B01:00", 0.5, 60.0, NOW_UNIX_S - 3600.0),
    ],
)
def test_the_finest_period_that_is_kept_for_the_whole_time(
    query: str, days: float, period_s: float, end_unix_s: float
) -> None:
    metric = parse("AWS/ApplicationELB/RequestCount?LoadBalancer=app/one/50dc6c" + query, NOW_UNIX_S)
    assert (metric.period_s, metric.end_unix_s) == (period_s, end_unix_s)
    assert abs(metric.start_unix_s - (end_unix_s - days * DAY_S)) < period_s
    assert metric.start_unix_s % period_s == metric.end_unix_s % period_s == 0.0


def test_all_other_keys_are_dimensions() -> None:
    spec = "mark/Requests?Site=a&Service=b%20c&stat=SampleCount&days=1"
    assert parse(spec, NOW_UNIX_S) == Metric(
        "mark",
        "Requests",
        (("Service", "b c"), ("Site", "a")),
        "SampleCount",
        NOW_UNIX_S - DAY_S,
        NOW_UNIX_S,
        60.0,
    )
    assert parse("a/b/c", NOW_UNIX_S).dimensions == ()


@pytest.mark.parametrize(
    "spec",
    [
        *("", "RequestCount", "/RequestCount", "AWS/", "a/b?x", "a/b?x=1&x=2", "a/b?stat=Average"),
        *(f"a/b?days={bad}" for bad in ("", "0", "-1", "456", "nan", "inf", "two")),
        *(f"a/b?end={bad}" for bad in ("", "yesterday", "2030-01-01", "2025-01-01", "NaN")),
        "a/b?days=400&end=2026-10-01",
    ],
)
def test_a_bad_name_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        parse(spec, NOW_UNIX_S)


def test_what_was_put_is_read_with_its_gaps(moto: MotoServer) -> None:
    """Two hours of minutes with one missing minute; the data of another metric are left out."""
    moto.reset()
    cloudwatch = moto.client("cloudwatch")
    began_s = NOW_UNIX_S - 7200.0
    minutes = [*range(30), *range(40, 120)]
    for name, value in (("one", 1.0), ("other", 1000.0)):
        data = [
            {
                "MetricName": "Requests",
                "Dimensions": [{"Name": "Balancer", "Value": name}],
                "Timestamp": datetime.fromtimestamp(began_s + 60.0 * minute + second, UTC),
                "Value": value * (minute + 1.0),
            }
            for minute in minutes
            for second in (5, 35)
        ]
        for first in range(0, len(data), 100):
            cloudwatch.put_metric_data(Namespace="shop", MetricData=data[first : first + 100])
    spec = "shop/Requests?Balancer=one&days=0.5"
    gate = Gate(SITE, options=moto.options)
    trace = read_metric(spec, gate=gate, now_unix_s=NOW_UNIX_S + 30.0)
    assert trace.name == "cloudwatch:" + spec
    assert (trace.bin_s, trace.duration_s, trace.rows) == (60.0, 7200.0, 110)
    assert trace.gaps == ((1800.0, 2400.0),)
    assert trace.series.counts.tolist() == [2.0 * (minute + 1.0) for minute in minutes]
    assert read_metric(spec, "zero", gate=gate, now_unix_s=NOW_UNIX_S).gaps == ()
    with pytest.raises(BadInput, match="`gaps` is fail"):
        read_metric(spec, "fail", gate=gate, now_unix_s=NOW_UNIX_S)
    with pytest.raises(BadInput, match="do namespace, metric and all dimensions exist"):
        read_metric("shop/Requests?Balancer=none", gate=gate, now_unix_s=NOW_UNIX_S)


def stubbed(*answers: dict[str, Any] | str) -> tuple[Gate, Stubber]:
    """Return a gate whose CloudWatch gives these answers in order; a text is an error's code."""
    gate = Gate(SITE, options={"aws_access_key_id": "test", "aws_secret_access_key": "test"})
    stubber = Stubber(gate.client("cloudwatch"))
    for number, answer in enumerate(answers):
        asked = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY, "ScanBy": "TimestampAscending"}
        if number:
            asked["NextToken"] = f"page {number}"
        if isinstance(answer, str):
            stubber.add_client_error("get_metric_data", answer)
        else:
            stubber.add_response("get_metric_data", answer, asked)
    stubber.activate()
    return gate, stubber


def page(first: int, count: int, value: float = 1.0, token: str = "", status: str = "Complete") -> dict[str, Any]:
    times = [datetime.fromtimestamp(NOW_UNIX_S - DAY_S + 60.0 * k, UTC) for k in range(first, first + count)]
    result = {"Id": "requests", "Timestamps": times, "Values": [value] * count, "StatusCode": status}
    return {"MetricDataResults": [result], **({"NextToken": token} if token else {})}


def test_all_pages_are_read() -> None:
    """The order of bins does not matter, and a page may repeat the last bin of the page before."""
    gate, stubber = stubbed(
        page(100, 50, token="page 1", status="PartialData"), page(0, 100, 2.0, token="page 2"), page(149, 51)
    )
    trace = read_metric("a/b?days=1", gate=gate, now_unix_s=NOW_UNIX_S)
    stubber.assert_no_pending_responses()
    assert (trace.rows, trace.gaps) == (200, ())
    assert trace.series.counts.tolist() == [2.0] * 100 + [1.0] * 100


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("AccessDenied", "does not answer: AccessDenied"),
        ("InvalidParameterValue", "does not answer: InvalidParameterValue"),
        (page(0, 5, status="InternalError"), "cannot answer: InternalError"),
        (page(0, 5, -1.0), "counts must be zero or more"),
        (page(0, 5, 0.0), "no requests from"),
        (page(0, 0), "no requests from"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(answer: dict[str, Any] | str, said: str) -> None:
    gate, _ = stubbed(answer)
    with pytest.raises(BadInput, match=said):
        read_metric("a/b?days=1", gate=gate, now_unix_s=NOW_UNIX_S)


def test_a_command_line_reads_it(
    moto: MotoServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a user's environment, and no setting there causes a fault of ours."""
    moto.reset()
    cloudwatch = moto.client("cloudwatch")
    now_unix_s = datetime.now(UTC).timestamp()
    data = [
        {"MetricName": "Requests", "Timestamp": datetime.fromtimestamp(now_unix_s - 60.0 * k, UTC), "Value": 60.0}
        for k in range(2, 122)
    ]
    cloudwatch.put_metric_data(Namespace="shop", MetricData=data)
    for name, value in {
        "AWS_ENDPOINT_URL": moto.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    command = ["trace", "info", "cloudwatch:shop/Requests"]
    assert main(command) == 0
    assert "7,200" in capsys.readouterr().out
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert main(command) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "needs a region" in said
