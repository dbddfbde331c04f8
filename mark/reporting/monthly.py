"""What a deployed site costs a month: also what stands there without a request, and what is easily forgotten.

Prices are those of `mark.billing.extras`; other regions are up to a third dearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.billing.extras import (
    ADDRESS_USD_PER_HOUR,
    ALARM_USD_PER_MONTH,
    BALANCER_LCU_USD_PER_HOUR,
    BALANCER_USD_PER_HOUR,
    CONTROLLER_DISK_GIB,
    CONTROLLER_USD_PER_HOUR,
    INTERNET_OUT_USD_PER_GB,
    LOG_USD_PER_GB,
    NAT_USD_PER_GB,
    NAT_USD_PER_HOUR,
    STATE_USD_PER_HOUR,
)
from mark.billing.meter import DISK_USD_PER_GIB_MONTH
from mark.reporting.layout import columns, page, small_print, text
from mark.reporting.words import HOURS_PER_MONTH, dollars, usd

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """What one service may come to."""

    name: str
    cheapest: str  # offer
    usd_per_hour: float  # of one instance of it
    max_usd_per_hour: float
    disk_gib: float
    function: str | None
    function_usd_per_million: float


@dataclass(frozen=True, slots=True)
class CostLine:
    """A line of the bill. `usd_per_month` is None where it depends on traffic; `basis` says on what."""

    part: str  # fleet, functions or other
    what: str
    usd_per_month: float | None
    basis: str


def monthly(
    services: Sequence[ServiceCost],
    zones: int,
    alarms: int,
    *,
    balancers: int = 1,
    controller_disk_gib: float = CONTROLLER_DISK_GIB,
) -> list[CostLine]:
    """Every line of the bill, in dollars for a month of 730 hours."""
    charges = []
    for one in services:
        disk = one.disk_gib * DISK_USD_PER_GIB_MONTH
        charges.append(
            CostLine(
                "fleet",
                f"{one.name}, one {one.cheapest}",
                one.usd_per_hour * HOURS_PER_MONTH,
                f"as many as traffic needs, {dollars(one.max_usd_per_hour * HOURS_PER_MONTH)} at most",
            )
        )
        charges.append(CostLine("other", f"{one.name}, its disk", disk, "each; of a stopped standby, too"))
        if one.function is not None:
            per_million = f"{usd(one.function_usd_per_million)} a million requests"
            charges.append(CostLine("functions", f"{one.name}, {one.function}", None, per_million))
    hours = HOURS_PER_MONTH
    other = [
        (
            "load balancer" if balancers == 1 else f"{balancers} load balancers",
            balancers * BALANCER_USD_PER_HOUR * hours,
            f"and {usd(BALANCER_LCU_USD_PER_HOUR)} a GB, or 90,000 connections",
        ),
        (
            "its public addresses" if balancers == 1 else "their public addresses",
            balancers * zones * ADDRESS_USD_PER_HOUR * hours,
            f"one in each of {zones} zones",
        ),
        ("NAT gateway", (NAT_USD_PER_HOUR + ADDRESS_USD_PER_HOUR) * hours, f"and {usd(NAT_USD_PER_GB)} a GB"),
        ("controller", CONTROLLER_USD_PER_HOUR * hours, "t4g.small"),
        ("its disk", controller_disk_gib * DISK_USD_PER_GIB_MONTH, f"{controller_disk_gib:.0f} GiB"),
        ("state (DynamoDB)", STATE_USD_PER_HOUR * hours, "assumed: 2 writes a second"),
        ("alarms", alarms * ALARM_USD_PER_MONTH, f"{alarms} of them"),
        ("answers to the internet", None, f"{usd(INTERNET_OUT_USD_PER_GB)} a GB"),
        ("overflow through NAT", None, f"{usd(NAT_USD_PER_GB)} a GB"),
        ("logs", None, f"{usd(LOG_USD_PER_GB)} a GB"),
    ]
    return charges + [CostLine("other", what, amount, basis) for what, amount, basis in other]


def least_usd_per_month(charges: Sequence[CostLine]) -> float:
    """What the lines that do not depend on traffic add up to."""
    return sum(charge.usd_per_month or 0.0 for charge in charges)


def monthly_table(charges: Sequence[CostLine]) -> RenderableType:
    table = columns("", "a month", "")
    order = {"fleet": 0, "functions": 1, "other": 2}
    for charge in sorted(charges, key=lambda charge: order[charge.part]):  # a stable sort: lines keep their order
        amount = "by traffic" if charge.usd_per_month is None else usd(charge.usd_per_month)
        table.add_row(text(f"{charge.part}: {charge.what}"), amount, text(charge.basis))
    table.add_row(text("at least"), usd(least_usd_per_month(charges)), text("without a request"))
    notes = ["prices of us-east-1, July 2026, on demand; other regions are up to a third dearer"]
    return page(table, *small_print(notes))
