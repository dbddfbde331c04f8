"""A CloudWatch metric as a trace: `cloudwatch:NAMESPACE/METRIC?Dimension=value&stat=Sum&days=14&end=2026-11-01`.

`stat` is the statistic that counts requests (Sum, or SampleCount of a latency), `days` the time to read (default 14),
`end` its end (default now); all other keys are dimensions. CloudWatch keeps minutes for 15 days, 5 minutes for 63 and
hours for 455: the trace has the finest bins that exist for the whole time. A period without a datapoint is a missing
bin; metrics that are not published without requests, such as those of load balancers, need `--gaps zero`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from mark.domain.errors import BadInput, CloudError
from mark.domain.time import DAY_S
from mark.traffic.traces.counts import trace_of_counts
from mark.traffic.traces.trace import Trace
from mark_infra.aws.gate import Gate
from mark_infra.aws.session import open_session
from mark_infra.aws.site import Site

# (retention, finest period) in seconds, from the CloudWatch user guide, "Metrics retention".
_KEPT = ((15.0 * DAY_S, 60.0), (63.0 * DAY_S, 300.0), (455.0 * DAY_S, 3600.0))
_STATISTICS = ("Sum", "SampleCount")
_DAYS = 14.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A request to CloudWatch. Times are Unix seconds of whole periods."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    start_unix_s: float
    end_unix_s: float
    period_s: float


def parse(spec: str, now_unix_s: float) -> Metric:
    """Parse `NAMESPACE/METRIC?key=value&...`. Raises BadInput."""
    what, _, query = spec.partition("?")
    namespace, _, name = what.rpartition("/")
    if not namespace or not name:
        raise BadInput("must be cloudwatch:NAMESPACE/METRIC?dimension=value", spec, what)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadInput("must be key=value&key=value", spec, query) from None
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise BadInput("names a key twice", spec, query)
    statistic = keys.pop("stat", "Sum")
    if statistic not in _STATISTICS:
        raise BadInput(f"must be one of {', '.join(_STATISTICS)}: a trace counts requests", f"{spec} stat", statistic)
    end_unix_s = _time(spec, keys.pop("end")) if "end" in keys else now_unix_s
    days = _days(spec, keys.pop("days")) if "days" in keys else _DAYS
    if end_unix_s > now_unix_s:
        raise BadInput("lies in the future", f"{spec} end", datetime.fromtimestamp(end_unix_s, UTC).isoformat())
    start_unix_s = end_unix_s - days * DAY_S
    for kept_s, period_s in _KEPT:
        # A period that begins before the limit is no longer kept.
        first_s = math.floor(start_unix_s / period_s) * period_s
        if now_unix_s - first_s <= kept_s + period_s:
            break
    else:
        raise BadInput("CloudWatch keeps nothing for longer than 455 days", f"{spec} days", days)
    last_s = math.floor(end_unix_s / period_s) * period_s  # an unfinished period counts too little
    if last_s <= first_s:
        raise BadInput(f"shorter than a period of {period_s:g} s", f"{spec} days", days)
    return Metric(namespace, name, tuple(sorted(keys.items())), statistic, first_s, last_s, period_s)


def read_metric(spec: str, gaps: str = "bridge", *, gate: Gate | None = None, now_unix_s: float | None = None) -> Trace:
    """Read the trace of a metric; `spec` is the text after `cloudwatch:`. `gaps` is one of GAPS.

    Region and credentials are boto3's defaults unless `gate` has others. Raises BadInput, also if AWS does not answer.
    """
    where = f"cloudwatch:{spec}"
    metric = parse(spec, time.time() if now_unix_s is None else now_unix_s)
    counts: dict[float, float] = {}
    try:
        for result in _results(gate or _own_gate(where), metric):
            if result.get("StatusCode") not in (None, "Complete", "PartialData"):
                raise BadInput("CloudWatch cannot answer", where, result["StatusCode"])
            times = (at.timestamp() for at in result["Timestamps"])
            counts.update(zip(times, result["Values"], strict=True))
    except CloudError as error:
        raise BadInput("CloudWatch does not answer", where, str(error)) from error
    starts = np.array(sorted(counts))
    values = np.array([counts[start] for start in starts.tolist()])
    if not values.any():
        first, last = (datetime.fromtimestamp(t, UTC).isoformat() for t in (metric.start_unix_s, metric.end_unix_s))
        raise BadInput(f"no requests from {first} to {last}; do namespace, metric and all dimensions exist?", where)
    if not np.isfinite(values).all() or values.min() < 0.0:
        raise BadInput("counts must be zero or more", where, float(values.min()))
    return trace_of_counts(where, where, starts, values, metric.period_s, gaps)


def _results(gate: Gate, metric: Metric) -> Iterator[Any]:
    cloudwatch = gate.client("cloudwatch")
    query = {
        "Id": "requests",
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in metric.dimensions],
            },
            "Period": int(metric.period_s),
            "Stat": metric.statistic,
        },
    }
    pages = gate.pages(
        cloudwatch.get_metric_data,
        MetricDataQueries=[query],
        StartTime=datetime.fromtimestamp(metric.start_unix_s, UTC),
        EndTime=datetime.fromtimestamp(metric.end_unix_s, UTC),
        ScanBy="TimestampAscending",
    )
    for page in pages:
        yield from page["MetricDataResults"]


def _own_gate(where: str) -> Gate:
    try:
        session = open_session()
    except ImportError as error:
        raise BadInput(f"needs the AWS adapter, which comes with the extra `aws` ({error})", where) from None
    if session.region_name is None:
        raise BadInput("needs a region: set AWS_DEFAULT_REGION", where)
    return Gate(Site(name="", region=session.region_name, store=""), session=session)


def _time(spec: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput("must be a date or a time, as in 2026-11-01T12:00Z", f"{spec} end", text) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _days(spec: str, text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0.0 < days <= 455.0:
        raise BadInput("must lie between 0 and 455", f"{spec} days", text)
    return days
