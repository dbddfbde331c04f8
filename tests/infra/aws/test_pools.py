"""The pools of a launch: each type boots by its platform's template, in one call for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mark_infra.aws.platforms import PLATFORMS, platform_of
from mark_infra.aws.pools import launch_configs, templates_of
from mark_infra.aws.site import SiteService, TemplateVersion

from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import CapacityError, NotFoundError, RefusalScope
from mark.domain.offer import Market, Offer
from tests.control.control_fakes import ON_DEMAND, offer
from tests.infra.aws.bench import Bench, Place

ARM, GPU = offer("c7g.large", usd_per_hour=0.07), replace(offer("g5.xlarge", usd_per_hour=1.0), gpus=1)
X86, X86_GPU, ARM64 = (TemplateVersion(f"lt-{name}", "3") for name in ("x86", "gpu", "arm"))
THERE = SiteService("lt-x86", {"a": "subnet-a", "b": "subnet-b"})


def booted(configs: list[dict[str, Any]]) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
    """Return type, subnet and priority of each pool, by template and version."""
    return {
        (said["LaunchTemplateId"], said["Version"]): [
            (one["InstanceType"], one["SubnetId"], one["Priority"]) for one in config["Overrides"]
        ]
        for config in configs
        for said in [config["LaunchTemplateSpecification"]]
    }


@pytest.mark.parametrize(
    ("instance", "gpus", "name"),
    [
        ("c5.large", 0, "x86_64"),
        ("c7g.large", 0, "arm64"),
        ("m6gd.medium", 0, "arm64"),
        ("t4g.small", 0, "arm64"),
        ("g5.xlarge", 1, "x86_64-gpu"),
        ("g4dn.xlarge", 1, "x86_64-gpu"),
        ("g5g.xlarge", 1, "arm64-gpu"),
    ],
)
def test_a_platform_follows_from_the_type(instance: str, gpus: int, name: str) -> None:
    assert platform_of(instance, gpus) == PLATFORMS[name]
    assert PLATFORMS[name].machine == ("aarch64" if name.startswith("arm64") else "x86_64")


def test_each_type_boots_by_the_template_of_its_platform() -> None:
    templates = {"x86_64": X86, "arm64": ARM64, "x86_64-gpu": X86_GPU}
    spot = offer("m5.large", Market.SPOT, 0.03, zone="b")
    assert booted(launch_configs(THERE, [ARM, ON_DEMAND, GPU, spot], templates, "mark")) == {
        ("lt-arm", "3"): [("c7g.large", "subnet-a", 0.0), ("c7g.large", "subnet-b", 1.0)],
        ("lt-x86", "3"): [
            ("c5.large", "subnet-a", 2.0),
            ("c5.large", "subnet-b", 3.0),
            ("m5.large", "subnet-b", 6.0),
        ],
        ("lt-gpu", "3"): [("g5.xlarge", "subnet-a", 4.0), ("g5.xlarge", "subnet-b", 5.0)],
    }


def test_without_platforms_one_template_is_for_all() -> None:
    """A testbed has no platforms, nor has a site that was deployed before platforms existed."""
    (config,) = launch_configs(THERE, [ON_DEMAND, GPU], {"": X86}, "mark")
    assert len(config["Overrides"]) == 4


def test_zones_are_asked_in_the_order_that_is_given() -> None:
    (config,) = launch_configs(THERE, [ON_DEMAND], {"": X86}, "mark", ["b", "a"])
    assert [(one["SubnetId"], one["Priority"]) for one in config["Overrides"]] == [("subnet-b", 0.0), ("subnet-a", 1.0)]


def test_what_nothing_boots_is_left_out() -> None:
    """A release that was made without some types launches on the others; a type without any pool is refused."""
    (config,) = launch_configs(THERE, [ARM, ON_DEMAND], {"x86_64": X86}, "mark")
    assert {one["InstanceType"] for one in config["Overrides"]} == {"c5.large"}
    with pytest.raises(CapacityError, match=r"nothing that c7g\.large boots from.*arm64") as refused:
        launch_configs(THERE, [ARM, replace(ON_DEMAND, zone="z")], {"x86_64": X86}, "mark")
    assert refused.value.scope is RefusalScope.TYPE
    with pytest.raises(CapacityError, match="no subnet in z") as refused:
        launch_configs(THERE, [replace(ON_DEMAND, zone="z"), ARM], {"x86_64": X86}, "mark")
    assert refused.value.scope is RefusalScope.OFFER


def test_a_release_is_launched_as_it_was_made() -> None:
    there = replace(THERE, platforms={"x86_64": X86, "arm64": ARM64})
    kept = {"new": {"arm64": {"launch_template": "lt-arm", "version": "2"}}}
    assert templates_of(there, "new", {"new": "7", "old": "5"}, kept) == {"arm64": TemplateVersion("lt-arm", "2")}
    assert templates_of(there, "old", {"new": "7", "old": "5"}, kept) == {"": TemplateVersion("lt-x86", "5")}
    with pytest.raises(NotFoundError, match="release other"):
        templates_of(there, "other", {"old": "5"}, kept)
    newest = templates_of(there, "", {}, {})
    assert newest == {name: replace(one, version="$Latest") for name, one in there.platforms.items()}
    assert templates_of(THERE, "", {}, {}) == {"": TemplateVersion("lt-x86", "$Latest")}


@pytest.mark.parametrize(
    "region", ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1"]
)
def test_no_spot_offer_is_refused_before_aws_is_asked(region: str) -> None:
    """The catalogue is the controller's, which crosses its types with the site's zones."""
    zones = {f"{region}{letter}": f"subnet-{letter}" for letter in "abc"}
    offers = [o for o in load_catalog("aws-2026").in_zones(zones).offers if o.market is Market.SPOT]
    there, templates = replace(THERE, subnets=zones), dict.fromkeys(PLATFORMS, X86)
    for one in offers:
        (config,) = launch_configs(there, [one], templates, "mark")
        assert [p["SubnetId"] for p in config["Overrides"]] == [zones[one.zone]]
    assert len(offers) == 225


def test_types_of_two_platforms_are_asked_for_in_one_call(place: Place) -> None:
    """Each boots from its own image. If the first is sold out, the other one boots by its own template."""
    ec2 = place.server.client("ec2")
    image = ec2.register_image(Name="arm", Architecture="arm64")["ImageId"]
    made = ec2.create_launch_template(LaunchTemplateName="arm", LaunchTemplateData={"ImageId": image})
    arm = {"launch_template": made["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}
    x86 = {"launch_template": place.template, "version": "1"}
    bench = Bench(place)
    place.market.fleets.clear()
    sold: dict[str, Offer] = {**bench.cloud.offers, ARM.name: ARM}
    bench.cloud.offers, bench.cloud.platforms = sold, {"r": {"x86_64": x86, "arm64": arm}}
    for left, instance in ((1, ON_DEMAND.instance), (0, ARM.instance)):
        place.market.left = {(ON_DEMAND.instance, "on-demand"): left}
        before = set(bench.ids())
        bench.cloud.launch(ON_DEMAND.name, 1, f"t{left}", release="r", alternatives=(ARM.name,))
        (new,) = set(bench.ids()) - before
        launched = place.instances(bench.site)[new]
        assert launched["InstanceType"] == instance
        assert (launched["ImageId"] == image) == (instance == ARM.instance)
    asked = place.market.fleets[0]
    assert len(place.market.fleets) == 2
    specification = "LaunchTemplateConfigs.{}.LaunchTemplateSpecification.LaunchTemplateId"
    assert [asked[specification.format(n)] for n in (1, 2)] == [place.template, arm["launch_template"]]
    place.market.left.clear()
