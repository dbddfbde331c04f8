"""Spot is bought in any region: a controller's offers, priced by the region's EC2, are launched there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from mark_infra.aws.balancer import Balancer
from mark_infra.aws.ec2_cloud import Ec2Cloud, InstancePorts
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import Inventory
from mark_infra.aws.site import Site, SiteService, dump_site
from mark_infra.controller.site_control import ServiceSpec
from mark_infra.launch.launch_controller import ControllerOptions, run_controller

from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Market
from tests.infra.aws.bench import FakeBouncers, FakeNotices, FakeNumbers, Time
from tests.infra.testbed.conftest import Aws
from tests.samples import first

SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
markets = ["on-demand", "spot"]
instances = ["c5.large"]
"""
PROFILE = "model,instance,batch,latency_ms\necho:Echo,c5.large,1,20\n"
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1")


@pytest.mark.parametrize("region", first(2, REGIONS))
def test_spot_is_bought_in_each_zone_of_the_region(
    region: str, make_aws: Callable[..., Aws], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = make_aws(catalog=load_catalog("aws-2026"), region=region, now=time.time)
    options = {
        "endpoint_url": aws.url, "region_name": region, "aws_access_key_id": "test", "aws_secret_access_key": "test",
    }  # fmt: skip
    ec2 = boto3.client("ec2", **options)
    subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
    zones = sorted(subnets)[:3]
    image = ec2.register_image(Name="plain")["ImageId"]
    made = ec2.create_launch_template(LaunchTemplateName="mark-echo", LaunchTemplateData={"ImageId": image})
    there = SiteService(made["LaunchTemplate"]["LaunchTemplateId"], {zone: subnets[zone] for zone in zones})
    site = Site("mark", region, "sqlite:none", services={"echo": there})
    (spec,) = specs_of(site, tmp_path, aws.url, monkeypatch)

    offered = {o.zone: o for o in spec.resolved.offers if o.market is Market.SPOT}
    assert sorted(offered) == zones
    clock, gate = Time(), Gate(site, options=options)
    cloud = Ec2Cloud(
        "echo",
        spec.resolved.offers,
        site,
        gate,
        Inventory(gate, site, monotonic=clock.unix_s),
        FakeNumbers(),
        clock,
        InstancePorts(FakeBouncers(), Balancer(gate, there, {}), FakeNotices()),
        unix_s=clock.unix_s,
    )
    for zone, offer in offered.items():
        cloud.launch(offer.name, 1, zone)
    running = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    assert sorted(i["Placement"]["AvailabilityZone"] for i in running) == zones
    assert {i.get("InstanceLifecycle") for i in running} == {"spot"}
    ec2.close()


def specs_of(site: Site, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> list[ServiceSpec]:
    """Return the specs that `mark controller --live-prices` would run."""
    (folder / "echo.toml").write_text(SERVICE)
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "site.toml").write_text(dump_site(replace(site, store="sqlite:state.db")))
    for name, value in {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    begun: list[ServiceSpec] = []

    def serve(site: object, specs: list[ServiceSpec], *_: Any, **__: Any) -> int:
        begun.extend(specs)
        return 0

    monkeypatch.setattr("mark_infra.controller.process.serve", serve)
    run_controller(ControllerOptions(services=[str(folder / "echo.toml")], site=folder / "site.toml", live_prices=True))
    return begun
