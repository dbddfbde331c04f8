"""A whole site on the strict account: all calls that it needs are granted, and all others of its roles denied.

It takes some minutes, mostly of Terraform's wait for a load balancer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from mark_infra.aws.site import Site, load_site
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import destroy, plan
from mark_infra.deploy.target import DeployTarget
from mark_infra.testbed.account import account_of
from mark_infra.testbed.environment import of_aws
from moto.core.config import default_user_config

from mark.domain.catalog.tables import load_catalog
from tests.infra.conftest import REGION, MotoServer
from tests.infra.testbed.answering import Bouncers
from tests.infra.testbed.conftest import Aws, serving
from tests.infra.testbed.real_processes import wait_for
from tests.terraform.conftest import Terraform, provider, terraform  # noqa: F401  # fixtures
from tests.terraform.test_site import no_packages, ready, shipments

SCALE = 10.0
PATIENCE_S = 120.0
Call = tuple[str, Callable[[Any, Site], object]]
LAMBDA = f"arn:aws:lambda:{REGION}:123456789012:function"
FUNCTION, OTHER_SITES_FUNCTION = f"{LAMBDA}:mark_echo-overflow", f"{LAMBDA}:mark-2_echo-overflow"
# Calls on resources of others, or calls on its own that it does not need.
CONTROLLER_MAY_NOT: list[Call] = [
    ("ec2", lambda c, site: c.run_instances(ImageId="ami-12c6146b", InstanceType="c5.large", MinCount=1, MaxCount=1)),
    ("ec2", lambda c, site: c.terminate_instances(InstanceIds=["i-0123456789abcdef0"])),
    (
        "ec2",
        lambda c, site: c.create_tags(Resources=["i-0123456789abcdef0"], Tags=[{"Key": "mark:site", "Value": "mark"}]),
    ),
    (
        "ec2",
        lambda c, site: c.create_launch_template_version(LaunchTemplateId="lt-1", LaunchTemplateData={"ImageId": "x"}),
    ),
    ("ec2", lambda c, site: c.authorize_security_group_ingress(GroupId="sg-1", IpProtocol="-1", CidrIp="0.0.0.0/0")),
    ("ec2", lambda c, site: c.delete_subnet(SubnetId=next(iter(site.service("echo").subnets.values())))),
    ("elbv2", lambda c, site: c.delete_target_group(TargetGroupArn=site.service("echo").target_groups[0])),
    (
        "elbv2",
        lambda c, site: c.register_targets(TargetGroupArn=f"arn:aws:elasticloadbalancing:{REGION}:1:x/y/z", Targets=[]),
    ),
    ("iam", lambda c, site: c.put_role_policy(RoleName="mark-controller", PolicyName="x", PolicyDocument="{}")),
    ("iam", lambda c, site: c.create_access_key(UserName="x")),
    ("iam", lambda c, site: c.list_roles()),
    ("sts", lambda c, site: c.assume_role(RoleArn="arn:aws:iam::123456789012:role/admin", RoleSessionName="test")),
    ("sqs", lambda c, site: c.purge_queue(QueueUrl=site.queue_url)),
    ("sqs", lambda c, site: c.receive_message(QueueUrl=site.queue_url + "-other")),
    ("dynamodb", lambda c, site: c.delete_table(TableName="mark-state")),
    ("dynamodb", lambda c, site: c.get_item(TableName="other", Key={"pk": {"S": "x"}})),
    ("dynamodb", lambda c, site: c.scan(TableName="mark-state")),
    ("ssm", lambda c, site: c.put_parameter(Name="/mark/mark/keys/plain", Value="x", Type="String", Overwrite=True)),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark-2/keys/controller")),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark/keys/plain")),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark/keys/bouncers")),
    ("cloudwatch", lambda c, site: c.put_metric_data(Namespace="AWS/EC2", MetricData=[])),
    ("s3", lambda c, site: c.list_buckets()),
    ("lambda", lambda c, site: c.update_function_configuration(FunctionName=FUNCTION, MemorySize=10240)),
    ("lambda", lambda c, site: c.invoke(FunctionName=f"{OTHER_SITES_FUNCTION}:1")),
    ("lambda", lambda c, site: c.invoke(FunctionName=f"{LAMBDA}:other:1")),
]  # fmt: skip
BOUNCER_MAY_NOT: list[Call] = [
    ("ec2", lambda c, site: c.describe_instances()),
    ("ec2", lambda c, site: c.terminate_instances(InstanceIds=["i-0123456789abcdef0"])),
    ("lambda", lambda c, site: c.invoke(FunctionName=f"{LAMBDA}:mark_other-overflow:1")),
    ("lambda", lambda c, site: c.invoke(FunctionName=f"{OTHER_SITES_FUNCTION}:1")),
    ("lambda", lambda c, site: c.get_function(FunctionName=FUNCTION)),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark-2/keys/bouncers")),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark/keys/plain")),
    ("ssm", lambda c, site: c.get_parameter(Name="/mark/mark/keys/controller")),
    ("ssm", lambda c, site: c.put_parameter(Name="/mark/mark/keys/plain", Value="x", Type="String", Overwrite=True)),
    ("dynamodb", lambda c, site: c.get_item(TableName="mark-state", Key={"pk": {"S": "x"}, "sk": {"S": "x"}})),
    ("sqs", lambda c, site: c.receive_message(QueueUrl=site.queue_url)),
    ("cloudwatch", lambda c, site: c.put_metric_data(Namespace="mark", MetricData=[])),
    ("elbv2", lambda c, site: c.deregister_targets(TargetGroupArn=site.service("echo").target_groups[0], Targets=[])),
    ("iam", lambda c, site: c.list_roles()),
    ("s3", lambda c, site: c.list_buckets()),
]  # fmt: skip


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setitem(default_user_config["lambda"], "use_docker", False)  # a warm-up answers and runs no code
    machines = Bouncers(8080)
    options = {"catalog": load_catalog("aws-2026"), "machines": machines, "now": time.time, "time_scale": SCALE}
    with serving(**options, account=account_of("strict")) as made:
        yield made
    machines.close()


@pytest.mark.acceptance
def test_a_site_needs_what_it_has_and_no_more(
    aws: Aws,
    terraform: Terraform,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    services, said = shipments(tmp_path), list[str]()
    deployed = plan(services, target, said.append).apply()
    site = load_site(deployed.site_file)
    # Terraform tags no launch template if it knows of an emulation.
    templates = sorted(id for one in site.services.values() for id in one.launch_templates)
    aws.client("ec2").create_tags(Resources=templates, Tags=[{"Key": "mark:site", "Value": "mark"}])
    assert aws.cloud.rules.denied == []  # to the deployer
    names = {one["FunctionArn"] for one in aws.client("lambda").list_functions()["Functions"]}
    assert FUNCTION in names  # the function that is denied below exists
    keys = aws.client("ssm").describe_parameters(
        ParameterFilters=[{"Key": "Name", "Option": "BeginsWith", "Values": ["/mark/mark/keys/"]}]
    )["Parameters"]
    assert {one["Name"].rpartition("/")[2] for one in keys} == {"plain", "controller", "bouncers"}

    controller, bouncer = keys_of(aws, "mark-controller"), keys_of(aws, "mark-echo-bouncer")
    moto = MotoServer(aws.url)
    with controlled(
        moto, [f"{name}/{name}.toml" for name in site.services], deployed.site_file, tmp_path, controller
    ) as page:
        for name in site.services:
            wait_for(lambda name=name: ready(page, name), f"an instance of {name}", PATIENCE_S)
        healthy = aws.client("elbv2").describe_target_health
        for one in site.services.values():
            wait_for(
                lambda one=one: healthy(TargetGroupArn=one.target_groups[0])["TargetHealthDescriptions"], "a target"
            )
        assert aws.cloud.rules.denied == []

    for keys, tries in ((controller, CONTROLLER_MAY_NOT), (bouncer, BOUNCER_MAY_NOT)):
        for number, (service, call) in enumerate(tries):
            denied = len(aws.cloud.rules.denied)
            with client(aws, service, keys) as made, pytest.raises(ClientError) as error:
                call(made, site)
            code = error.value.response["Error"]["Code"]
            assert code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"), (number, service, code)
            assert len(aws.cloud.rules.denied) == denied + 1
    assert destroy(target, said.append) == []


def keys_of(aws: Aws, role: str) -> dict[str, str]:
    """Return the keys of a caller that has assumed one of Terraform's roles."""
    arn = aws.client("iam").get_role(RoleName=role)["Role"]["Arn"]
    said = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": said["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": said["SecretAccessKey"],
        "AWS_SESSION_TOKEN": said["SessionToken"],
    }


@contextmanager
def client(aws: Aws, service: str, keys: dict[str, str]) -> Iterator[Any]:
    made = boto3.client(
        service, endpoint_url=aws.url, region_name=REGION, config=Config(retries={"total_max_attempts": 1}),
        **{name.lower(): value for name, value in keys.items()},
    )  # fmt: skip
    try:
        yield made
    finally:
        made.close()


@contextmanager
def controlled(
    moto: MotoServer, services: list[str], site_file: Path, folder: Path, keys: dict[str, str]
) -> Iterator[str]:
    """Run `mark controller` with its role's keys and yield its page's address."""
    log = folder / "controller.log"
    command = [sys.executable, "-m", "mark.cli.main", "controller", *services, "--site", str(site_file), "--port", "0"]
    variables = of_aws(os.environ, REGION) | {"AWS_ENDPOINT_URL": moto.url} | keys
    with log.open("w") as said, subprocess.Popen(command, cwd=folder, env=variables, stderr=said) as process:
        try:
            yield wait_for(
                lambda: next((line.split()[-1] for line in log.read_text().splitlines() if "is ready on" in line), ""),
                "its page",
                PATIENCE_S,
            )
        finally:
            process.terminate()
