"""Prices in the Pricing API and in EC2's spot price history."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mark.domain.catalog.tables import load_catalog
from tests.infra.testbed.cloud_fakes import BEGAN_S, ON_DEMAND, SPOT_A, SPOT_B
from tests.infra.testbed.conftest import Aws

BEGAN = datetime.fromtimestamp(int(BEGAN_S), UTC)


def products(aws: Aws, **filters: str) -> list[dict[str, Any]]:
    pages = (
        aws.client("pricing")
        .get_paginator("get_products")
        .paginate(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in filters.items()],
        )
    )
    return [json.loads(product) for page in pages for product in page["PriceList"]]


def history(aws: Aws, **what: Any) -> list[tuple[str, float, datetime]]:
    pages = aws.client("ec2").get_paginator("describe_spot_price_history").paginate(**what)
    return [
        (row["AvailabilityZone"], float(row["SpotPrice"]), row["Timestamp"])
        for page in pages
        for row in page["SpotPriceHistory"]
    ]


def test_the_price_list_is_the_catalogues(aws: Aws) -> None:
    """It has on-demand and burstable types, with the attributes by which AWS's list is filtered."""
    (found,) = products(
        aws, instanceType="c5.large", regionCode="us-east-1", operatingSystem="Linux", tenancy="Shared",
        preInstalledSw="NA", capacitystatus="Used",
    )  # fmt: skip
    (term,) = found["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) == ON_DEMAND.usd_per_hour
    assert dimension["unit"] == "Hrs"
    assert found["product"]["attributes"]["location"] == "US East (N. Virginia)"
    types = {product["product"]["attributes"]["instanceType"] for product in products(aws)}
    assert types == {"c5.large", "c5.xlarge", "t2.small", "t3.small"}
    assert products(aws, instanceType="c5.large", regionCode="eu-west-1") == []
    assert products(aws, operatingSystem="Windows") == []
    assert aws.client("pricing").get_products(ServiceCode="AWSLambda")["PriceList"] == []


def test_the_price_list_comes_in_pages(make_aws: Callable[..., Aws]) -> None:
    """Every type of a shipped catalogue comes once."""
    catalog = load_catalog("aws-2026")
    aws = make_aws(catalog=catalog)
    assert "NextToken" in aws.client("pricing").get_products(ServiceCode="AmazonEC2", MaxResults=10)
    types = [product["product"]["attributes"]["instanceType"] for product in products(aws)]
    sold = [offer.instance for offer in catalog.offers if offer.market in ("on-demand", "burstable")]
    assert sorted(types) == sorted(sold)


def test_spot_prices_are_the_catalogues(aws: Aws) -> None:
    """The current price comes with the time since when it holds."""
    assert history(aws, InstanceTypes=["c5.large"], ProductDescriptions=["Linux/UNIX"]) == [
        ("us-east-1a", SPOT_A.usd_per_hour, BEGAN),
        ("us-east-1b", SPOT_B.usd_per_hour, BEGAN),
    ]
    assert len(history(aws, AvailabilityZone="us-east-1b")) == 1
    assert len(history(aws, Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])) == 1
    assert history(aws, InstanceTypes=["c5.xlarge"]) == []
    assert history(aws, ProductDescriptions=["Windows"]) == []


def test_spot_prices_change_with_their_series(make_aws: Callable[..., Aws]) -> None:
    """The newest comes first. Prices outside the requested time are left out, except the one that held at its start."""
    aws = make_aws(spot_prices={"us-east-1a": [(0.0, 0.5), (600.0, 0.4), (1200.0, 0.3)]})
    aws.pass_s(900.0)
    at = [BEGAN, BEGAN + timedelta(seconds=600)]
    in_a = {"AvailabilityZone": "us-east-1a"}
    assert history(aws, **in_a, StartTime=BEGAN, EndTime=BEGAN + timedelta(days=1)) == [
        ("us-east-1a", 0.036, at[1]),
        ("us-east-1a", 0.045, at[0]),
    ]
    assert history(aws, **in_a) == [("us-east-1a", 0.036, at[1])]
    assert history(aws, **in_a, StartTime=at[1]) == [("us-east-1a", 0.036, at[1])]
    assert history(aws, **in_a, StartTime=BEGAN, EndTime=at[0] + timedelta(seconds=60)) == [
        ("us-east-1a", 0.045, at[0])
    ]
    page = aws.client("ec2").describe_spot_price_history(MaxResults=1, StartTime=BEGAN, **in_a)
    assert len(page["SpotPriceHistory"]) == 1
    assert page["NextToken"]


def test_the_bill_follows_the_series(make_aws: Callable[..., Aws]) -> None:
    """An instance that runs through a change of price pays both."""
    from tests.infra.testbed.test_emulated_cloud import SPOT, launched

    aws = make_aws(spot_prices={"us-east-1a": [(0.0, 0.5), (120.0, 0.25)]})
    launched(aws, **SPOT)
    aws.pass_s(220.0)
    usd_per_s = ON_DEMAND.usd_per_s
    # 0.25 s: the clock began so much after the second from which the cloud counts.
    assert aws.cloud.bill().spot == pytest.approx(usd_per_s * (0.5 * 100.0 + 0.25 * 100.25))
