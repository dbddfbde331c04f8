"""Types that the site's region does not sell, or that its image cannot drive, are left out and named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.offerings import here, offers_there, site_zones, sold, undriven

from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.planning.resolve import resolve
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from tests.infra.conftest import REGION, MotoServer
from tests.infra.deploy.stubbed import StubbedSession


def opened(name: str = "inception-v3") -> ResolvedService:
    return open_service(RunRequest(trace="", service=name))


def types(of: ResolvedService) -> set[str]:
    return {offer.instance for offer in of.offers}


def offerings(*names: str) -> dict[str, Any]:
    return {"InstanceTypeOfferings": [{"InstanceType": name, "Location": "eu-west-1a"} for name in names]}


def test_what_cannot_be_had_is_left_out_and_named() -> None:
    aws, said, of = StubbedSession(), list[str](), opened()
    asked = {
        "LocationType": "availability-zone",
        "Filters": [
            {"Name": "location", "Values": ["eu-west-1a", "eu-west-1b"]},
            {"Name": "instance-type", "Values": sorted(types(of))},
        ],
    }
    there = types(of) - {"c5.4xlarge"}
    aws.answers("ec2", "describe_instance_type_offerings", offerings(*there), asked)
    (found,) = here([of], aws.gate(), ("eu-west-1a", "eu-west-1b"), said.append)
    assert types(found) == {"c5.large", "c5.xlarge", "c5.2xlarge"}
    assert found.service.instances == ("c5.2xlarge", "c5.large", "c5.xlarge")
    assert found.function == of.function
    assert said == [
        "inception-v3: types and prices are those of aws-2019, us-east-1, 2019-12-10; aws-2026 has today's",
        "inception-v3: left out c5.4xlarge (not sold in eu-west-1a, eu-west-1b); "
        "p2.xlarge (its GPU is none that the machine image drives)",
    ]


def test_nothing_left_is_bad_input() -> None:
    aws = StubbedSession()
    aws.answers("ec2", "describe_instance_type_offerings", offerings())
    with pytest.raises(BadInput, match=r"inception-v3\.toml \[fleet\] instances: none of its types can be had there"):
        here([opened()], aws.gate(), ("eu-west-1a",), lambda _: None)


def test_where_offerings_are_unknown_nothing_is_checked() -> None:
    """Types that the image cannot drive are known without a call."""
    aws, said = StubbedSession(), list[str]()
    aws.refuses("ec2", "describe_availability_zones", "UnauthorizedOperation")
    today, of_2019 = here([opened("inception-v3-2026"), opened()], aws.gate(), (), said.append)
    assert types(today) == types(opened("inception-v3-2026"))
    assert "p2.xlarge" not in types(of_2019)
    assert said[0] == "it is not known which types are sold there: UnauthorizedOperation: no"


def test_gpus_of_today_are_driven() -> None:
    of = opened("inception-v3-2026")
    assert undriven(of.offers) == {}
    old = [
        replace(of.offers[0], instance=name) for name in ("p3.2xlarge", "g4ad.xlarge", "g4dn.xlarge", "p4d.24xlarge")
    ]
    assert set(undriven(old)) == {"p3.2xlarge", "g4ad.xlarge"}


def test_zones_are_those_that_terraform_takes(moto: MotoServer) -> None:
    gate = Gate(Site("mark", REGION, "sqlite:none"), options=moto.options)
    assert site_zones(gate, ()) == tuple(f"{REGION}{letter}" for letter in "abc")
    assert site_zones(gate, ("us-east-1f",)) == ("us-east-1f",)
    assert sold(gate, {"c5.large", "c9.large"}, (f"{REGION}a",)) == {"c5.large"}


def of_c7i(*markets: Market) -> ResolvedService:
    """Return a service that buys c7i.large in these markets."""
    of = opened("inception-v3-2026")
    service = replace(of.service, instances=("c7i.large",), markets=markets)
    return resolve(service, of.catalog, {service.model: of.profiles})


def history(*zones: str) -> dict[str, Any]:
    """Return EC2's spot prices of c7i.large."""
    made = [
        {"AvailabilityZone": zone, "InstanceType": "c7i.large", "SpotPrice": "0.05", "Timestamp": datetime.now(UTC)}
        for zone in zones
    ]
    return {"SpotPriceHistory": made}


def test_spot_is_offered_in_the_sites_zones_at_its_prices() -> None:
    """The catalogue has zones of one region only. A zone that does not sell the type is left out."""
    aws, said, of = StubbedSession(), list[str](), of_c7i(Market.ON_DEMAND, Market.SPOT)
    aws.answers("ec2", "describe_spot_price_history", history("eu-west-1a", "eu-west-1b"))
    aws.answers("ec2", "describe_spot_price_history", history())  # for the catalogue's other types
    zones = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
    found = offers_there([of], aws.gate(), "eu-west-1", zones, said.append)[of.service.name]
    spot = {offer.zone: offer.usd_per_hour for offer in found if offer.market is Market.SPOT}
    assert spot == {"eu-west-1a": 0.05, "eu-west-1b": 0.05}
    assert said == [
        f"{of.service.name}: 75 types of spot are offered in eu-west-1a, eu-west-1b, eu-west-1c, "
        "which aws-2026 does not name"
    ]


def test_without_spot_prices_those_of_the_catalogue_are_said() -> None:
    aws, said, of = StubbedSession(), list[str](), of_c7i(Market.ON_DEMAND, Market.SPOT)
    aws.refuses("ec2", "describe_spot_price_history", "UnauthorizedOperation")
    found = offers_there([of], aws.gate(), "us-east-1", ("us-east-1a",), said.append)
    assert {offer.zone for offer in found[of.service.name]} == {"", "us-east-1a"}
    assert said == [
        f"{of.service.name}: spot prices cannot be refreshed: UnauthorizedOperation: no; they are the catalogue's"
    ]
    aws.refuses("ec2", "describe_availability_zones", "UnauthorizedOperation")
    assert offers_there([of], aws.gate(), "us-east-1", (), said.append) == {of.service.name: of.offers}


def test_a_service_without_listed_offers_keeps_all() -> None:
    aws, of = StubbedSession(), of_c7i(Market.SPOT)
    other = {**history("us-east-1a")["SpotPriceHistory"][0], "InstanceType": "c5.large"}
    aws.answers("ec2", "describe_spot_price_history", {"SpotPriceHistory": [other]})
    aws.answers("ec2", "describe_spot_price_history", history())
    assert offers_there([of], aws.gate(), "us-east-1", ("us-east-1a",), lambda _: None)[of.service.name] == of.offers
