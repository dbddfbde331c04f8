"""Sums of CloudWatch's metrics by the minute, many metrics in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from mark_infra.aws.gate import Gate

PERIOD_S = 60
_MOST_IN_CALL = 500  # GetMetricData's limit

MinuteMetric = tuple[str, str, tuple[tuple[str, str], ...]]  # namespace, name, dimensions


def minute_sums(
    gate: Gate, metrics: Sequence[MinuteMetric], start_unix_s: float, end_unix_s: float
) -> Iterator[tuple[MinuteMetric, float, float]]:
    """(metric, Unix second at which the minute begins, sum) of the minutes between; those without a datapoint lack.

    Raises CloudError.
    """
    for first in range(0, len(metrics), _MOST_IN_CALL):
        by_id = {f"m{n}": one for n, one in enumerate(metrics[first : first + _MOST_IN_CALL])}
        pages = gate.pages(
            gate.client("cloudwatch").get_metric_data,
            MetricDataQueries=[_query(id, metric) for id, metric in by_id.items()],
            StartTime=datetime.fromtimestamp(start_unix_s, UTC),
            EndTime=datetime.fromtimestamp(end_unix_s, UTC),
            ScanBy="TimestampAscending",
        )
        for page in pages:
            for one in page["MetricDataResults"]:
                for at, value in zip(one["Timestamps"], one["Values"], strict=True):
                    yield by_id[one["Id"]], at.timestamp(), value


def _query(id: str, metric: MinuteMetric) -> dict[str, Any]:
    namespace, name, dimensions = metric
    described = [{"Name": key, "Value": value} for key, value in dimensions]
    counted = {"Namespace": namespace, "MetricName": name, "Dimensions": described}
    return {"Id": id, "MetricStat": {"Metric": counted, "Period": PERIOD_S, "Stat": "Sum"}}
