"""A whole site on moto: planned, applied, unchanged by a second plan, worked on, destroyed.

Two to three minutes, mostly of waiting: the provider gives a load balancer a minute to appear, whoever answers. So it
is run by `make test-slow`, and not by `make test`.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import Inventory
from mark_infra.aws.site import load_site
from mark_infra.deploy.artifacts import constraints, libraries_name

from mark.sdk.deploy import Shipment, Target, destroy, plan, shipment
from tests.infra.conftest import REGION, MotoServer, serving
from tests.terraform.conftest import Terraform

SERVICE = """
[service]
name = "{name}"
model = "{model}"
slo_ms = 600
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
markets = ["on-demand", "spot"]
instances = ["c5.*"]
[overflow]
function = "{function}"
"""
PROFILE = """model,instance,batch,latency_ms
echo:Echo,c5.large,1,20
echo:Echo,lambda:1024,1,40
"""


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    with serving(DomainDispatcherApplication(create_backend_app)) as server:
        server.reset()
        yield server


def shipments(folder: Path) -> list[Shipment]:
    made = []
    for name, function in (("echo", "lambda:1024"), ("echo.slow", "none")):
        there = folder / name
        there.mkdir()
        (there / f"{name}.toml").write_text(SERVICE.format(name=name, model="echo:Echo", function=function))
        (there / "profile.csv").write_text(PROFILE)
        (there / "echo.py").write_text(
            "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
        )
        made.append(shipment(str(there / f"{name}.toml")))
    return made


@pytest.mark.slow
def test_a_site_comes_and_goes(
    moto: MotoServer, terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips where there is no provider
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    target = Target(
        name="mark", region=REGION, clients=("192.0.2.0/24",), alarm_email="a@example.org", state=tmp_path / "s"
    )
    # What the function imports would be fetched from an index.
    built = target.folder / "artifacts"
    (built / "libraries" / libraries_name(b"", constraints(built))).mkdir(parents=True)
    services = shipments(tmp_path)
    said: list[str] = []

    planned = plan(services, target, said.append)
    assert {change.action for change in planned.changes} == {"create"}
    assert not moto.client("ec2").describe_vpcs(Filters=[{"Name": "tag:Name", "Values": ["mark"]}])["Vpcs"]
    shares: list[float] = []
    deployed = planned.apply(lambda share, what: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0

    site = load_site(deployed.site_file)
    assert (site.name, site.region, site.store) == ("mark", REGION, "dynamodb:mark-state")
    assert set(site.services) == {"echo", "echo.slow"}
    assert site.service("echo").function == "mark-echo-overflow"
    assert site.service("echo.slow").function is None
    assert set(site.service("echo").subnets) == {f"{REGION}{letter}" for letter in "abc"}
    assert site.key_file is not None
    keys = deployed.keys_file.read_text().splitlines()
    assert site.key_file.read_text().strip() == keys[0].split(":")[1]
    assert deployed.keys_file.stat().st_mode & 0o077 == 0
    check_no_key_lies_about(target, keys)
    check_user_data(moto, site.service("echo").launch_template)
    check_parameter(moto, keys)

    assert planned.terraform.plan() == [], planned.terraform.text()

    gate = Gate(site)
    launch(gate, site.service("echo"))
    (machine,) = Inventory(gate, site).snapshot().of("echo")
    assert machine.offer == "c5.large/on-demand"

    assert destroy(target, said.append) == []
    states = [
        i["State"]["Name"] for r in moto.client("ec2").describe_instances()["Reservations"] for i in r["Instances"]
    ]
    assert set(states) == {"terminated"}
    check_nothing_is_left(moto)
    assert destroy(target, said.append) == []
    assert not any(key.split(":")[1] in line for key in keys for line in said)


def launch(gate: Gate, service: Any) -> None:
    """As the controller does it."""
    tags = {"mark:site": "mark", "mark:service": "echo", "mark:offer": "c5.large/on-demand", "mark:launch": "t"}
    gate.call(
        gate.client("ec2").create_fleet,
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": service.launch_template, "Version": "$Latest"},
                "Overrides": [{"InstanceType": "c5.large", "SubnetId": next(iter(service.subnets.values()))}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
    )


def check_no_key_lies_about(target: Target, keys: list[str]) -> None:
    """Not in Terraform's state, its variables or its plan."""
    for file in target.folder.rglob("*"):
        if file.is_file() and file.name not in ("keys", "controller.key") and ".terraform" not in file.parts:
            content = file.read_bytes()
            assert not any(line.split(":")[1].encode() in content for line in keys), file


def check_user_data(moto: MotoServer, launch_template: str) -> None:
    ec2 = moto.client("ec2")
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=launch_template)["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    script = base64.b64decode(data["UserData"]).decode()
    assert "mark serve service.toml" in script
    assert "--function mark-echo-overflow" in script
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_parameter(moto: MotoServer, keys: list[str]) -> None:
    found = moto.client("ssm").get_parameter(Name="/mark/keys", WithDecryption=True)["Parameter"]
    assert found["Type"] == "SecureString"
    assert found["Value"].splitlines() == keys


def check_nothing_is_left(moto: MotoServer) -> None:
    assert not moto.client("elbv2").describe_load_balancers()["LoadBalancers"]
    assert not moto.client("dynamodb").list_tables()["TableNames"]
    assert not moto.client("s3").list_buckets()["Buckets"]
    assert not moto.client("sqs").list_queues().get("QueueUrls")
    assert not moto.client("lambda").list_functions()["Functions"]
    assert not moto.client("iam").list_roles()["Roles"]
    assert not moto.client("logs").describe_log_groups()["logGroups"]
    assert not moto.client("ec2").describe_addresses()["Addresses"]
