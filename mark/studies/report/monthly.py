"""The monthly cost of a deployed site, including resources that cost without requests and those easily forgotten.

Prices are from `mark.cloud.billing.extras`; other regions are up to a third dearer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mark.cloud.billing.extras import (
    ADDRESS_USD_PER_HOUR,
    ALARM_USD_PER_MONTH,
    BALANCER_LCU_USD_PER_HOUR,
    BALANCER_USD_PER_HOUR,
    BUCKET_USD_PER_GB_MONTH,
    CONTROLLER_DISK_GIB,
    CONTROLLER_USD_PER_HOUR,
    IMAGE_USD_PER_GB_MONTH,
    INTERNET_OUT_USD_PER_GB,
    LOG_USD_PER_GB,
    METRIC_CALL_USD,
    METRIC_USD_PER_MONTH,
    NAT_USD_PER_GB,
    NAT_USD_PER_HOUR,
    QUEUE_CALL_USD,
    QUEUE_POLL_S,
    SNAPSHOT_USD_PER_GB_MONTH,
    STATE_USD_PER_HOUR,
    ZONE_USD_PER_GB,
)
from mark.cloud.billing.meter import DISK_USD_PER_GIB_MONTH
from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import HOURS_PER_MONTH, dollars, usd

# In terraform/modules/observability: two of the site, two of each balancer, five of each service, one of its function,
# and one of the limit on that function's cost.
ALARMS, ALARMS_OF_BALANCER, ALARMS_OF_SERVICE, ALARMS_OF_FUNCTION, ALARMS_OF_LIMITED_FUNCTION = 2, 2, 5, 1, 1
ALARMS_OF_PIPELINE = 4  # three of its conductors, one of its promise
ALARMS_OF_LEARNER = 1
# In mark_infra.aws.cloudwatch: one of the site, eight of each service, one of each offer that it bought, one of each
# pipeline, and one of each service or pipeline whose servers learn.
METRICS, METRICS_OF_SERVICE, METRICS_OF_PIPELINE, METRICS_OF_LEARNER = 1, 8, 1, 1


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """The prices and limits of one service."""

    name: str
    cheapest: str  # offer
    usd_per_hour: float  # of one instance of it
    max_usd_per_hour: float
    disk_gib: float
    function: str | None
    function_usd_per_million: float
    max_function_usd_per_hour: float | None = None
    image: bool = False  # instances boot from their own image
    image_gb: float = 0.0  # of the function, unpacked; 0: it is a zip, or the service lacks a function
    other_disks_gib: Mapping[str, float] = field(default_factory=dict)  # of other types, by their platform


@dataclass(frozen=True, slots=True)
class ConductorsCost:
    """The conductors of one pipeline."""

    pipeline: str
    count: int
    disk_gib: float  # of each


@dataclass(frozen=True, slots=True)
class CostLine:
    """A line of the bill. If it depends on traffic, `usd_per_month` stays None and `basis` says how.

    `resources` are Terraform's types that the line pays for.
    """

    part: str  # fleet, functions or other
    what: str
    usd_per_month: float | None
    basis: str
    resources: tuple[str, ...] = ()


def alarms(services: Sequence[ServiceCost], balancers: int, pipelines: int = 0, learners: int = 0) -> int:
    """Return the number of alarms of a site; `services` include stages, and `balancers` the ones before stages.

    `learners` of its services and pipelines learn from feedback.
    """
    functions = [one for one in services if one.function is not None]
    limited = sum(one.max_function_usd_per_hour is not None for one in functions)
    of_functions = ALARMS_OF_FUNCTION * len(functions) + ALARMS_OF_LIMITED_FUNCTION * limited
    of_services = ALARMS_OF_SERVICE * len(services) + of_functions
    of_pipelines = ALARMS_OF_PIPELINE * pipelines
    return ALARMS + ALARMS_OF_BALANCER * balancers + of_services + of_pipelines + ALARMS_OF_LEARNER * learners


def monthly(
    services: Sequence[ServiceCost],
    zones: int,
    *,
    balancers: int = 1,
    controller_disk_gib: float = CONTROLLER_DISK_GIB,
    stage_balancers: int = 0,
    conductors: Sequence[ConductorsCost] = (),
    learners: int = 0,
) -> list[CostLine]:
    """Return every line of the bill, in dollars for a month of 730 hours.

    `services` include stages of pipelines. These are behind `stage_balancers`, without public addresses. `learners` of
    the services and pipelines learn from feedback.
    """
    charges = []
    for one in services:
        images = {"": one.disk_gib, **{f" on {name}": gib for name, gib in one.other_disks_gib.items()}}
        charges.append(
            CostLine(
                "fleet",
                f"{one.name}, one {one.cheapest}",
                one.usd_per_hour * HOURS_PER_MONTH,
                f"as many as traffic needs, {dollars(one.max_usd_per_hour * HOURS_PER_MONTH)} at most",
            )
        )
        disk = one.disk_gib * DISK_USD_PER_GIB_MONTH
        charges.append(CostLine("other", f"{one.name}, its disk", disk, "each; of a stopped standby, too"))
        for name, gib in one.other_disks_gib.items():  # if such types are bought at all
            basis = f"{dollars(gib * DISK_USD_PER_GIB_MONTH)} each, {gib:.0f} GiB"
            charges.append(CostLine("other", f"{one.name}, a disk on {name}", None, basis))
        for where, gib in images.items() if one.image else ():
            basis = f"{usd(SNAPSHOT_USD_PER_GB_MONTH)} a GB, at most; another while the release before has its own"
            what = f"{one.name}, its image{where} (snapshot)"
            charges.append(CostLine("other", what, gib * SNAPSHOT_USD_PER_GB_MONTH, basis))
        if one.function is not None:
            basis = f"{usd(one.function_usd_per_million)} a million requests"
            if one.max_function_usd_per_hour is not None:
                basis += f", {dollars(one.max_function_usd_per_hour * HOURS_PER_MONTH)} at most"
            charges.append(CostLine("functions", f"{one.name}, {one.function}", None, basis, ("aws_lambda_function",)))
        if one.image_gb > 0.0:
            charges.append(
                CostLine(
                    "other",
                    f"{one.name}, its function's image (ECR)",
                    one.image_gb * IMAGE_USD_PER_GB_MONTH,
                    f"{one.image_gb:.1f} GB unpacked, less as stored; each, the last ten are kept",
                )
            )
    for of in conductors:
        amount = of.count * CONTROLLER_USD_PER_HOUR * HOURS_PER_MONTH
        charges.append(CostLine("other", f"{of.pipeline}, {of.count} conductors", amount, "t4g.small"))
        amount = of.count * of.disk_gib * DISK_USD_PER_GIB_MONTH
        charges.append(CostLine("other", f"{of.pipeline}, their disks", amount, f"{of.disk_gib:.0f} GiB each"))
    if stage_balancers:
        amount = stage_balancers * BALANCER_USD_PER_HOUR * HOURS_PER_MONTH
        what = "load balancer of stages" if stage_balancers == 1 else f"{stage_balancers} load balancers of stages"
        basis = f"and {usd(BALANCER_LCU_USD_PER_HOUR)} a GB; private, without public addresses"
        charges.append(CostLine("other", what, amount, basis, ("aws_lb",)))
    watched = alarms(services, balancers + stage_balancers, len(conductors), learners)
    # Errors and refused connections of each balancer, requests to each function's target group.
    read = 2 * (balancers + stage_balancers) + sum(service.function is not None for service in services)
    sent = METRICS + (METRICS_OF_SERVICE + 1) * len(services) + METRICS_OF_PIPELINE * len(conductors)
    sent += METRICS_OF_LEARNER * learners
    return charges + [
        CostLine("other", what, amount, basis, resources)
        for what, amount, basis, resources in _of_site(zones, balancers, controller_disk_gib, watched, sent, read)
    ]


def _of_site(
    zones: int, balancers: int, controller_disk_gib: float, watched: int, sent: int, read: int
) -> list[tuple[str, float | None, str, tuple[str, ...]]]:
    """Return the site's lines: `watched` alarms, metrics `sent`, and balancers' metrics `read`, each once a minute."""
    hours, seconds = HOURS_PER_MONTH, HOURS_PER_MONTH * 3600.0
    return [
        (
            "load balancer" if balancers == 1 else f"{balancers} load balancers",
            balancers * BALANCER_USD_PER_HOUR * hours,
            f"and {usd(BALANCER_LCU_USD_PER_HOUR)} a GB, or 90,000 connections",
            ("aws_lb",),
        ),
        (
            "its public addresses" if balancers == 1 else "their public addresses",
            balancers * zones * ADDRESS_USD_PER_HOUR * hours,
            f"one in each of {zones} zones",
            ("aws_lb",),
        ),
        (
            "NAT gateway",
            (NAT_USD_PER_HOUR + ADDRESS_USD_PER_HOUR) * hours,
            f"and {usd(NAT_USD_PER_GB)} a GB",
            ("aws_nat_gateway", "aws_eip"),
        ),
        ("controller", CONTROLLER_USD_PER_HOUR * hours, "t4g.small", ()),
        ("its disk", controller_disk_gib * DISK_USD_PER_GIB_MONTH, f"{controller_disk_gib:.0f} GiB", ()),
        ("state (DynamoDB)", STATE_USD_PER_HOUR * hours, "assumed: 2 writes a second", ("aws_dynamodb_table",)),
        (
            "notices (SQS)",
            seconds / QUEUE_POLL_S * QUEUE_CALL_USD,
            "polled every 3 s; the first million is free",
            ("aws_sqs_queue",),
        ),
        ("alarms", watched * ALARM_USD_PER_MONTH, f"{watched} of them", ("aws_cloudwatch_metric_alarm",)),
        (
            "metrics",
            sent * METRIC_USD_PER_MONTH,
            f"{sent} of them, and one for each offer more",
            (),
        ),
        ("sending them", seconds / 60.0 * METRIC_CALL_USD, "once a minute, 100 in a call", ()),
        ("the balancers' own", read * seconds / 60.0 * METRIC_CALL_USD, f"{read} read once a minute", ()),
        ("answers to the internet", None, f"{usd(INTERNET_OUT_USD_PER_GB)} a GB", ()),
        ("overflow through NAT", None, f"{usd(NAT_USD_PER_GB)} a GB", ("aws_nat_gateway",)),
        ("between zones", None, f"{usd(ZONE_USD_PER_GB)} a GB and direction", ()),
        ("logs", None, f"{usd(LOG_USD_PER_GB)} a GB", ("aws_cloudwatch_log_group",)),
        (
            "artifacts and access logs (S3)",
            None,
            f"{usd(BUCKET_USD_PER_GB_MONTH)} a GB",
            ("aws_s3_bucket", "aws_s3_object"),
        ),
    ]


def least_usd_per_month(charges: Sequence[CostLine]) -> float:
    """Return the sum of the lines that do not depend on traffic."""
    return sum(charge.usd_per_month or 0.0 for charge in charges)


def monthly_report(charges: Sequence[CostLine]) -> Report:
    order = {"fleet": 0, "functions": 1, "other": 2}
    rows = [
        (f"{one.part}: {one.what}", "by traffic" if one.usd_per_month is None else one.usd_per_month, one.basis)
        for one in sorted(charges, key=lambda charge: order[charge.part])  # a stable sort: lines keep their order
    ]
    rows.append(("at least", least_usd_per_month(charges), "without a request"))
    notes = ["prices of us-east-1, July 2026, on demand; other regions are up to a third dearer"]
    return Report({}, parts=[DataTable(("", ("a month", usd), ""), rows)], notes=notes)
