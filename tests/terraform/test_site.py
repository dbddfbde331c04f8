"""A whole site on the testbed's cloud: planned, applied, controlled, unchanged by a second plan, destroyed.

It takes three to four minutes, mostly of waiting: the provider gives a load balancer a minute to appear, real or not.
So `make test-slow` runs it, and `make test` does not.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.site import Site, load_site
from mark_infra.deploy.artifacts import archive, libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import destroy, plan
from mark_infra.deploy.shipments import Shipment, shipment
from mark_infra.deploy.target import DeployTarget
from mark_infra.deploy.wheelhouse import PackagesWanted, Wheelhouse
from mark_infra.testbed.environment import of_aws
from moto.core.config import default_user_config

from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from tests.infra.conftest import REGION, MotoServer
from tests.infra.testbed.answering import Bouncers
from tests.infra.testbed.conftest import Aws, serving
from tests.infra.testbed.real_processes import get, wait_for
from tests.terraform.conftest import Terraform, running_provider

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
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
function = "{function}"
max_usd_per_hour = 2.0
"""
PATIENCE_S = 120.0
PROFILE = """model,instance,batch,latency_ms
echo:Echo,c5.large,1,20
echo:Echo,lambda:1024,1,40
"""


SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97)  # of a deployment's steps
# A `mark deploy` that prints its progress and fetches no packages from an index.
DEPLOYS = """
import sys
from contextlib import contextmanager
import mark_infra.commands.deploy_command, mark_infra.deploy.deploy
from mark.cli.main import main
from tests.terraform.test_site import no_packages

@contextmanager
def progress(what):
    yield lambda share: print("share", share, flush=True)

mark_infra.commands.deploy_command.progress = progress
mark_infra.deploy.packed_services.wheelhouse = no_packages
sys.exit(main(["deploy", *sys.argv[1:]]))
"""
STATE_BUCKET = "state-of-terraform"
SCALE = 10.0  # of the cloud: a boot of a minute takes six seconds


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setitem(default_user_config["lambda"], "use_docker", False)  # a warm-up answers and runs no code
    machines = Bouncers(8080)  # the port in the site's description
    with serving(catalog=load_catalog("aws-2026"), machines=machines, now=time.time, time_scale=SCALE) as made:
        yield made
    machines.close()


@pytest.fixture
def moto(aws: Aws) -> MotoServer:
    return MotoServer(aws.url)


@pytest.fixture
def at_running_provider(
    moto: MotoServer, terraform: Terraform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Direct deployments to moto, by one provider that runs for the whole test; their state is in `tmp_path / "s"`."""
    asked_at(moto, monkeypatch)
    monkeypatch.delenv("AWS_DEFAULT_REGION")  # a deployment has a region of its own
    root = tmp_path / "s" / "terraform" / "examples" / "complete"
    root.mkdir(parents=True)
    with running_provider(terraform, root) as address:
        monkeypatch.setenv("TF_REATTACH_PROVIDERS", address)
        yield


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
@pytest.mark.usefixtures("at_running_provider")
def test_a_site_comes_and_goes(moto: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DeployTarget(
        name="mark",
        region=REGION,
        clients=("192.0.2.0/24",),
        alarm_email="a@example.org",
        state=tmp_path / "s",
        state_bucket=STATE_BUCKET,
        emulated=True,
    )
    moto.client("s3").create_bucket(Bucket=STATE_BUCKET)
    # Otherwise the imports of the function and the instances would be fetched from an index.
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    built = target.folder / "artifacts"
    (built / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
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
    assert site.service("echo").function == "mark_echo-overflow:1"
    assert site.service("echo.slow").function is None
    assert set(site.service("echo").subnets) == {f"{REGION}{letter}" for letter in "abc"}
    assert site.key_file is not None
    keys = deployed.keys_file.read_text().splitlines()
    assert site.key_file == deployed.keys_file
    assert deployed.keys_file.stat().st_mode & 0o077 == 0
    check_no_key_lies_about(target, keys)
    check_user_data(moto, site.service("echo").launch_template)
    check_parameter(moto, keys)

    folders = [f"{name}/{name}.toml" for name in site.services]
    with controlled(moto, folders, deployed.site_file, tmp_path) as page:
        for name in site.services:
            (instance,) = wait_for(partial(ready, page, name), f"an instance of {name}", PATIENCE_S)
            check_instance(moto, site, name)
            wait_for(partial(seen_rps, page, name), f"what arrives at {name}, as its bouncers count it", PATIENCE_S)
            wait_for(partial(is_weighed, moto, site, name), f"all requests of {name} for its instance", PATIENCE_S)
            zones = site.service(name).subnets
            assert instance["offer"] in ("c5.large/on-demand", *(f"c5.large/spot/{zone}" for zone in zones))
        # messages that came before may be dropped
        moto.client("sqs").send_message(QueueUrl=site.queue_url, MessageBody="{}")
        wait_for(lambda: is_read(moto, site), "a reader of the queue", PATIENCE_S)
        lease = item(moto, "lease#mark/controller", "lease")
        assert lease["holder"]["S"]
        assert float(lease["until_s"]["N"]) > time.time()
        assert {"S": "service#echo"} in [key["pk"] for key in keys_of(moto)]
    assert item(moto, "lease#mark/controller", "lease")["holder"]["S"] == "", "the controller releases its lease"
    # An apply would change neither what the first one made nor what the controller has set since.
    assert planned.terraform.plan() == [], planned.terraform.text()

    # Destroy it from a machine without its files; the folder that it was deployed from is missing there.
    elsewhere = replace(target, state=tmp_path / "elsewhere")
    abroad = "eu-west-1"
    for machine in (elsewhere, target):
        with pytest.raises(BadInput, match=f"site mark is in {REGION}, account .*: {abroad}$"):
            destroy(replace(machine, region=abroad), said.append)
    with pytest.raises(BadInput, match=f"site mark is in {REGION}"):
        plan(services, replace(target, region=abroad), said.append)
    with pytest.raises(BadInput, match="the account has a site of this name already"):
        plan(services, replace(target, region=abroad, state=tmp_path / "second", state_bucket=None), said.append)
    instances = moto.client("ec2").describe_instances()["Reservations"]
    assert any(i["State"]["Name"] == "running" for r in instances for i in r["Instances"]), "nothing was ended"
    assert destroy(elsewhere, said.append) == []
    assert list((elsewhere.folder / "artifacts").rglob("*.tar*")) == []
    states = [
        i["State"]["Name"] for r in moto.client("ec2").describe_instances()["Reservations"] for i in r["Instances"]
    ]
    assert set(states) == {"terminated"}
    check_nothing_is_left(moto)
    assert destroy(target, said.append) == []
    assert not any(key.split(":")[1] in line for key in keys for line in said)


@pytest.mark.acceptance
@pytest.mark.usefixtures("at_running_provider")
@pytest.mark.parametrize("share", SHARES)
def test_a_deployment_that_broke_off_leaves_nothing_behind(moto: MotoServer, tmp_path: Path, share: float) -> None:
    """Interrupt `mark deploy` at this share of its steps, as from the keyboard, then destroy the site."""
    target = DeployTarget(name="mark", region=REGION, state=tmp_path / "s", emulated=True)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    services = [str(one.service.source) for one in shipments(tmp_path)]
    where = ["--region", REGION, "--state", str(target.folder), "--clients", "192.0.2.0/24", "--emulated", "--yes"]
    command = [sys.executable, "-c", DEPLOYS, *services, *where, "--alarm-email", "a@example.org", "--no-wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        shares = (float(line.split()[1]) for line in process.stdout if line.startswith("share "))
        assert next((done for done in shares if done >= share), None) is not None
        os.killpg(process.pid, signal.SIGINT)
        assert not [line for line in process.stdout if line.startswith("requests to")]
    assert process.returncode == 130
    assert (target.folder / "terraform.tfstate").stat().st_size > 0
    assert not list(target.folder.glob(".terraform.tfstate.lock*"))
    said: list[str] = []
    assert destroy(target, said.append) == []
    # An interrupted apply may make resources that Terraform does not know. Their tag finds them, but moto does not give
    # all of them one.
    check_no_tag_is_left(moto)


def asked_at(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct the deployments of this test to that address."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


def no_packages(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
    file = archive({own.name: own}, to.parent / f"{wanted.service}-wheels.tar")
    return Wheelhouse(file, file.stat().st_size, 0, frozenset({"mark"}))


@contextmanager
def controlled(moto: MotoServer, services: list[str], site_file: Path, folder: Path) -> Iterator[str]:
    """Run `mark controller` as Terraform's unit starts it and yield its page's address; end it as systemd does."""
    log = folder / "controller.log"
    command = [sys.executable, "-m", "mark.cli.main", "controller", *services, "--site", str(site_file), "--port", "0"]
    variables = of_aws(os.environ, REGION) | {"AWS_ENDPOINT_URL": moto.url}
    with log.open("w") as said:
        process = subprocess.Popen(command, cwd=folder, env=variables, stderr=said)
    try:
        yield wait_for(
            lambda: next((line.split()[-1] for line in log.read_text().splitlines() if "is ready on" in line), ""),
            "its page",
            PATIENCE_S,
        )
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def ready(page: str, name: str) -> list[dict[str, Any]]:
    fleet = get(f"{page}/api/v1/services/{name}/fleet")[1]
    return [one for one in fleet["instances"] if one["phase"] == "ready"]


def seen_rps(page: str, name: str) -> bool:
    return get(f"{page}/api/v1/services/{name}")[1]["rps"] is not None


def check_instance(moto: MotoServer, site: Site, name: str) -> None:
    """Check that it was launched from Terraform's template, with all settings, and is a target of the balancer."""
    there = site.service(name)
    ec2 = moto.client("ec2")
    (instance,) = (
        i
        for r in ec2.describe_instances(Filters=[{"Name": "tag:mark:service", "Values": [name]}])["Reservations"]
        for i in r["Instances"]
        if "mark:launch" in {tag["Key"] for tag in i["Tags"]}
    )
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=there.launch_template)["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert tags["aws:ec2launchtemplate:id"] == there.launch_template
    assert (tags["mark:site"], tags["mark:service"]) == ("mark", name)
    assert tags["Name"].startswith("mark-echo")
    assert instance["SubnetId"] in there.subnets.values()
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == data["SecurityGroupIds"]
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"/{data['IamInstanceProfile']['Name']}")
    (group,) = there.target_groups
    health = moto.client("elbv2").describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
    assert [target["Target"]["Id"] for target in health] == [instance["InstanceId"]]


def is_weighed(moto: MotoServer, site: Site, name: str) -> bool:
    """Does every rule give it weight, and none to the function, which had all requests before?"""
    there = site.service(name)
    rules = moto.client("elbv2").describe_rules(RuleArns=list(there.listener_rules))["Rules"]
    shares = [
        {one["TargetGroupArn"]: one["Weight"] for one in rule["Actions"][0]["ForwardConfig"]["TargetGroups"]}
        for rule in rules
    ]
    wanted = dict.fromkeys(there.target_groups, 999)
    if there.function_group is not None:
        wanted[there.function_group] = 0
        (health,) = moto.client("elbv2").describe_target_health(TargetGroupArn=there.function_group)[
            "TargetHealthDescriptions"
        ]
        assert health["Target"]["Id"].endswith(f"function:mark_{name}-overflow:balancer")
    return len(shares) == 2 and all(share == wanted for share in shares)


def is_read(moto: MotoServer, site: Site) -> bool:
    """Is the queue empty, and was a message taken a moment ago?"""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = moto.client("sqs").get_queue_attributes(QueueUrl=site.queue_url, AttributeNames=names)["Attributes"]
    return bool(found[names[0]] == "0" and found[names[1]] != "0")


def item(moto: MotoServer, pk: str, sk: str) -> dict[str, Any]:
    key = {"pk": {"S": pk}, "sk": {"S": sk}}
    found: dict[str, Any] = moto.client("dynamodb").get_item(TableName="mark-state", Key=key)["Item"]
    return found


def keys_of(moto: MotoServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = moto.client("dynamodb").scan(TableName="mark-state")["Items"]
    return found


def check_no_key_lies_about(target: DeployTarget, keys: list[str]) -> None:
    """Check that no key is in Terraform's state, its variables or its plan."""
    for file in target.folder.rglob("*"):
        if file.is_file() and file.name != "keys" and ".terraform" not in file.parts:
            content = file.read_bytes()
            assert not any(line.split(":")[1].encode() in content for line in keys), file


def check_user_data(moto: MotoServer, launch_template: str) -> None:
    ec2 = moto.client("ec2")
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=launch_template)["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    script = base64.b64decode(data["UserData"]).decode()
    assert "mark serve service.toml" in script
    assert "--function mark_echo-overflow:1" in script
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_parameter(moto: MotoServer, keys: list[str]) -> None:
    found = moto.client("ssm").get_parameter(Name="/mark/mark/keys/plain", WithDecryption=True)["Parameter"]
    assert found["Type"] == "SecureString"
    assert found["Value"].splitlines() == keys


def check_nothing_is_left(moto: MotoServer) -> None:
    balancers = moto.client("elbv2").describe_load_balancers()["LoadBalancers"]
    tagged = moto.client("resourcegroupstaggingapi").get_resources()["ResourceTagMappingList"]
    assert not balancers, (balancers, tagged)
    assert not moto.client("dynamodb").list_tables()["TableNames"]
    assert {bucket["Name"] for bucket in moto.client("s3").list_buckets()["Buckets"]} <= {STATE_BUCKET}
    assert not moto.client("sqs").list_queues().get("QueueUrls")
    assert not moto.client("lambda").list_functions()["Functions"]
    assert not moto.client("iam").list_roles()["Roles"]
    assert not moto.client("logs").describe_log_groups()["logGroups"]
    assert not moto.client("ec2").describe_addresses()["Addresses"]
    own = [{"Key": "Name", "Option": "BeginsWith", "Values": ["/mark"]}]  # without Amazon's own, which are there, too
    assert not moto.client("ssm").describe_parameters(ParameterFilters=own)["Parameters"]
    check_no_tag_is_left(moto)


def check_no_tag_is_left(moto: MotoServer) -> None:
    tagged = moto.client("resourcegroupstaggingapi").get_resources(TagFilters=[{"Key": "mark:site"}])
    assert [one for one in tagged["ResourceTagMappingList"] if ":instance/" not in one["ResourceARN"]] == []
