"""Prices of the testbed's catalogue as AWS shows them: the Pricing API's products, and the history of spot prices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from mark.domain.offer import Market
from mark_infra.testbed.supply import Supply

_PAGE = 100
_TERM, _RATE = "JRTCKXETXF", "6YS6EN2CT7"  # AWS's codes of on-demand terms and of hourly rates
LINUX = "Linux/UNIX"
_PRODUCTS = (LINUX, "Linux/UNIX (Amazon VPC)")


def get_products(supply: Supply, region: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to GetProducts: the region's on-demand prices, filtered and paged. Raises ValueError."""
    wanted = {str(f["Field"]).lower(): str(f["Value"]) for f in asked.get("Filters", ())}
    products = []
    if asked.get("ServiceCode") == "AmazonEC2":
        for offer in supply.offers:
            if offer.market is Market.SPOT:
                continue
            product = _product(offer.instance, offer.usd_per_hour, offer.vcpu, offer.memory_gib, region)
            attributes = {key.lower(): value for key, value in product["product"]["attributes"].items()}
            if all(attributes.get(field) == value for field, value in wanted.items()):
                products.append(json.dumps(product))
    first = int(asked.get("NextToken") or 0)
    size = min(_PAGE, int(asked.get("MaxResults") or _PAGE))
    answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": products[first : first + size]}
    if first + size < len(products):
        answer["NextToken"] = str(first + size)
    return answer


def _product(instance: str, usd_per_hour: float, vcpu: float, memory_gib: float, region: str) -> dict[str, Any]:
    sku = instance.upper().replace(".", "")
    rate = f"{sku}.{_TERM}.{_RATE}"
    attributes = {
        "instanceType": instance, "regionCode": region, "location": _LOCATIONS.get(region, region),
        "locationType": "AWS Region", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA",
        "capacitystatus": "Used", "marketoption": "OnDemand", "licenseModel": "No License required",
        "operation": "RunInstances", "usagetype": f"BoxUsage:{instance}", "servicecode": "AmazonEC2",
        "vcpu": f"{vcpu:g}", "memory": f"{memory_gib:g} GiB",
    }  # fmt: skip
    dimension = {
        "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "appliesTo": [], "rateCode": rate,
        "description": f"${usd_per_hour:g} per On Demand Linux {instance} Instance Hour",
        "pricePerUnit": {"USD": f"{usd_per_hour:.10f}"},
    }  # fmt: skip
    term = {"priceDimensions": {rate: dimension}, "sku": sku, "offerTermCode": _TERM, "termAttributes": {}}
    return {
        "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.{_TERM}": term}},
    }


def spot_history(
    supply: Supply, began_s: float, scale: float, now_s: float, *, instances: Iterable[str] = (),
    zones: Iterable[str] = (), products: Iterable[str] = (), start_s: float | None = None, end_s: float | None = None,
) -> list[dict[str, str]]:  # fmt: skip
    """Return the spot prices that held in [start, end], newest first; Unix seconds. Empty filters match everything.

    As on AWS, the price at the start has the time of its own beginning.
    """
    asked = [product for product in _PRODUCTS if product in products] if products else [LINUX]
    start_s, end_s = now_s if start_s is None else start_s, min(now_s, now_s if end_s is None else end_s)
    of_types, of_zones = set(instances), set(zones)
    rows: list[tuple[float, dict[str, str]]] = []
    for index, offer in enumerate(supply.offers):
        if offer.market is not Market.SPOT or (of_types and offer.instance not in of_types):
            continue
        if of_zones and offer.zone not in of_zones:
            continue
        times = supply.price_changes(offer.zone)
        for t_s, next_s in pairwise((*times, float("inf"))):
            at_s = began_s + t_s / scale
            if at_s > end_s or began_s + next_s / scale <= start_s:
                continue
            for product in asked:
                row = {
                    "InstanceType": offer.instance, "ProductDescription": product, "AvailabilityZone": offer.zone,
                    "SpotPrice": f"{supply.usd_per_hour(index, t_s):.6f}",
                    "Timestamp": datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }  # fmt: skip
                rows.append((at_s, row))
    rows.sort(key=lambda pair: -pair[0])
    return [row for _, row in rows]


def page_of(rows: Sequence[Any], token: str | None, size: int) -> tuple[Sequence[Any], str]:
    """Return a page, and the token of the next one ("" after the last)."""
    first = int(token or 0)
    return rows[first : first + size], str(first + size) if first + size < len(rows) else ""


# The Pricing API names regions in words; these regions have its endpoints and most users.
_LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-2": "US West (Oregon)",
    "eu-west-1": "EU (Ireland)",
    "eu-central-1": "EU (Frankfurt)",
    "ap-south-1": "Asia Pacific (Mumbai)",
}
