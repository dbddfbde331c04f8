"""A builder of cost and usage reports, of FOCUS exports, and of the invoice of a simulated run."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from mark.domain.offer import Catalog
from mark.simulation.result import SimulationResult

HOUR = 3600.0
FUNCTION = "lambda:3008"
MAY = datetime(2026, 5, 1, tzinfo=UTC).timestamp()  # a Friday, midnight


@dataclass(frozen=True)
class Item:
    """A line item, by default an hour of a c5.large on demand in the first hour of May 2026."""

    usage_type: str = "BoxUsage:c5.large"
    amount: float | str = 1.0
    cost: float | str = 0.085
    item_type: str = "Usage"
    product: str = "AmazonEC2"
    start_s: float = MAY
    end_s: float | None = None  # an hour later
    operation: str = "RunInstances"
    currency: str = "USD"
    region: str = "us-east-1"
    list_cost: float | str = ""
    tags: dict[str, str] = field(default_factory=dict)
    account: str = ""
    identity: str = ""


def stamp(at_s: float, millis: bool = False) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S") + (".000Z" if millis else "Z")


def _values(item: Item, millis: bool) -> list[object]:
    end_s = item.start_s + HOUR if item.end_s is None else item.end_s
    return [
        "2026-05-01T00:00:00Z", stamp(item.start_s, millis), stamp(end_s, millis), item.product, item.usage_type,
        item.operation, item.item_type, item.amount, item.currency, item.cost, item.list_cost, item.region,
        item.account, item.identity,
    ]  # fmt: skip


_LEGACY = (
    "bill/BillingPeriodStartDate,lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/ProductCode,lineItem/UsageType,"
    "lineItem/Operation,lineItem/LineItemType,lineItem/UsageAmount,lineItem/CurrencyCode,lineItem/UnblendedCost,"
    "pricing/publicOnDemandCost,product/region,lineItem/UsageAccountId,identity/LineItemId"
)
_CUR2 = (
    "bill_billing_period_start_date,line_item_usage_start_date,line_item_usage_end_date,line_item_product_code,"
    "line_item_usage_type,line_item_operation,line_item_line_item_type,line_item_usage_amount,"
    "line_item_currency_code,line_item_unblended_cost,pricing_public_on_demand_cost,product_region_code,"
    "line_item_usage_account_id,identity_line_item_id"
)


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    data = text.getvalue().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return str(path)


def legacy(path: Path, items: Sequence[Item]) -> str:
    """Write a report with a column for each tag."""
    keys = sorted({key for item in items for key in item.tags})
    header = [*_LEGACY.split(","), *(f"resourceTags/user:{key}" for key in keys)]
    return _write(path, header, [[*_values(i, False), *(i.tags.get(key, "") for key in keys)] for i in items])


def cur2(path: Path, items: Sequence[Item]) -> str:
    """Write a report with the tags as a map, their keys in AWS's spelling."""
    rows = []
    for item in items:
        tags = {"user_" + key.replace(":", "_"): value for key, value in item.tags.items()}
        rows.append([*_values(item, True), json.dumps(tags)])
    return _write(path, [*_CUR2.split(","), "resource_tags"], rows)


_FOCUS = (
    "BilledCost,BillingCurrency,ChargeCategory,ChargeClass,ChargeFrequency,ChargePeriodEnd,ChargePeriodStart,"
    "CommitmentDiscountId,CommitmentDiscountStatus,CommitmentDiscountType,ConsumedQuantity,EffectiveCost,ListCost,"
    "ProviderName,RegionId,ResourceId,ServiceName,SubAccountId,Tags,x_Operation,x_ServiceCode,x_UsageType"
)
_PLAN, _RESERVED = ("plan", "Used", "Compute Savings Plans"), ("ri", "Used", "Reserved Instances")
# Of a line item type: category, class, frequency, and the commitment with its status and type.
_CHARGES: dict[str, tuple[str, str, str, tuple[str, str, str]]] = {
    "Refund": ("Usage", "Correction", "Usage-Based", ("", "", "")),
    "DiscountedUsage": ("Usage", "", "Usage-Based", _RESERVED),
    "SavingsPlanCoveredUsage": ("Usage", "", "Usage-Based", _PLAN),
    "RIFee": ("Purchase", "", "Recurring", _RESERVED),
    "SavingsPlanRecurringFee": ("Purchase", "", "Recurring", _PLAN),
    "Unused": ("Usage", "", "Usage-Based", ("ri", "Unused", "Reserved Instances")),
    "Fee": ("Purchase", "", "One-Time", _RESERVED),
}


def focus(path: Path, items: Sequence[Item], provider: str = "AWS") -> str:
    """Write a FOCUS export. `cost` is the billed cost; every item has an effective cost of $7, which is not billed."""
    rows = []
    for item in items:
        end_s = item.start_s + HOUR if item.end_s is None else item.end_s
        category, kind, frequency, commitment = _CHARGES.get(
            item.item_type, (item.item_type, "", "Usage-Based", ("",) * 3)
        )
        row = [item.cost, item.currency, category, kind, frequency, stamp(end_s), stamp(item.start_s), *commitment]
        row += [
            item.amount,
            7,
            item.list_cost,
            provider,
            item.region,
            item.identity,
            "Amazon Web Service",
            item.account,
        ]
        rows.append([*row, json.dumps(item.tags), item.operation, item.product, item.usage_type])
    return _write(path, _FOCUS.split(","), rows)


def parquet(path: Path, items: Sequence[Item]) -> str:
    """Write a CUR 2.0 report in Parquet, with AWS's types: times, numbers, and a map of tags."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    for name, cells in zip(_CUR2.split(","), zip(*(_values(item, True) for item in items), strict=True), strict=True):
        if name.endswith("_date"):
            times = [datetime.fromisoformat(str(cell).replace("Z", "")) for cell in cells]
            columns[name] = pa.array(times, pa.timestamp("ms"))
        elif name.endswith(("_amount", "_cost")):
            columns[name] = pa.array([float(str(cell)) if cell != "" else None for cell in cells])
        else:
            columns[name] = pa.array(list(map(str, cells)))
    tags = [[("user_" + key.replace(":", "_"), value) for key, value in item.tags.items()] for item in items]
    columns["resource_tags"] = pa.array(tags, pa.map_(pa.string(), pa.string()))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def invoice_of(result: SimulationResult, catalog: Catalog, began_s: float = MAY) -> list[Item]:
    """Return the invoice that AWS would send for a run: hours of every offer by clock hour, at list price.

    Functions are one line of calls and one of time; `other` is balancer hours; extras of markets have separate line
    items. It adds up to the run's bill.
    """
    usage = {
        "on-demand": "BoxUsage:{}",
        "burstable": "BoxUsage:{}",
        "spot": "USE2-SpotUsage:{}",
        "sagemaker": "USE1-Host:{}",
    }
    price = {offer.name: offer.usd_per_hour for offer in catalog.offers}
    end_s = began_s + result.trace.duration_s
    hours = [(s, min(s + HOUR, end_s)) for s in _range(began_s, end_s)]
    items = []
    listed = dict.fromkeys(usage, 0.0)
    for name, ran_h in result.fleet.instance_hours.items():
        instance, market = name.split("/")[:2]
        listed[market] += ran_h * price[name]
        for from_s, to_s in hours:
            part = ran_h * (to_s - from_s) / (end_s - began_s)
            product = "AmazonSageMaker" if market == "sagemaker" else "AmazonEC2"
            items.append(
                Item(usage[market].format(instance), part, part * price[name], product=product, start_s=from_s)
            )
    whole: dict[str, Any] = {"start_s": began_s, "end_s": end_s}
    bill = result.bill
    if abs(fees := bill.on_demand - listed["on-demand"]) > 1e-9:
        items.append(Item("HeavyUsage:c5.large", 1.0, fees, "RIFee", **whole))
    if abs(surplus := bill.burstable - listed["burstable"]) > 1e-9:
        items.append(Item("CPUCredits:t3", surplus / 0.05, surplus, **whole))
    if bill.functions:
        offer = catalog.function(FUNCTION)
        calls = result.requests.functions * offer.usd_per_million_requests / 1e6
        time = (bill.functions - calls) / offer.usd_per_gb_second
        items.append(Item("Request", result.requests.functions, calls, product="AWSLambda", **whole))
        items.append(Item("Lambda-GB-Second", time, bill.functions - calls, product="AWSLambda", **whole))
    if bill.other:
        items.append(Item("LoadBalancerUsage", (end_s - began_s) / HOUR, bill.other, product="AWSELB", **whole))
    return items


def _range(began_s: float, end_s: float) -> list[float]:
    return [began_s + k * HOUR for k in range(int((end_s - began_s - 1e-6) // HOUR) + 1)]
