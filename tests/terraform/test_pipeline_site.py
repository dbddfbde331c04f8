"""A site of one service that gets a pipeline, whose stages have functions: planned, applied, unchanged by a second
plan, controlled, destroyed. A selection as well, all of which each of its instances serves.

Real Terraform runs on the testbed's cloud; two applies take some five minutes.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import httpx
import pytest
from mark_infra.aws.conductors import Conductors
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site, TemplateVersion, load_site
from mark_infra.deploy.artifacts import libraries_name
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.conductor_releases import ConductorReleases
from mark_infra.deploy.deploy import destroy, plan
from mark_infra.deploy.shipments import Shipment, shipment, shipments
from mark_infra.deploy.target import DeployTarget
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.iam import IamCall, IamDecision, IamPolicy

from mark.models.call import RESULTS, Reply
from mark.models.results import call_with, results_of
from tests.infra.conftest import REGION, MotoServer
from tests.infra.testbed.real_processes import wait_for
from tests.serving.test_server_process import served
from tests.terraform.conftest import Terraform
from tests.terraform.test_site import (  # noqa: F401
    PATIENCE_S,
    PROFILE,
    SERVICE,
    asked_at,
    aws,
    check_no_key_lies_about,
    check_nothing_is_left,
    controlled,
    moto,
    no_packages,
    ready,
)

PIPELINE = """
[service]
name = "two"
slo_ms = 600
slo_attainment = 0.98
pipeline = "driver:run"
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
instances = ["c5.*"]
max_instances = 20
max_usd_per_hour = 10.0
[overflow]
function = "lambda:1024"
max_usd_per_hour = 2.0
[stage.first]
model = "echo:Echo"
slo_ms = 200
[stage.second]
model = "echo:Echo"
slo_ms = 400
"""
ECHO = "import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n"
DRIVER = "import mark\n\n\n@mark.pipeline\nasync def run(query, models): return await models.first(query)\n"
USER_DATA = 16_384  # bytes, before base64


def sent(folder: Path) -> tuple[list[Shipment], list[Shipment]]:
    """Return the shipments: the service alone, or with the pipeline."""
    texts = {"echo": SERVICE.format(name="echo", model="echo:Echo", function="none"), "two": PIPELINE}
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / f"{name}.toml").write_text(text)
        (folder / name / "profile.csv").write_text(PROFILE)
        (folder / name / "echo.py").write_text(ECHO)
    (folder / "two" / "driver.py").write_text(DRIVER)
    one = shipment(str(folder / "echo" / "echo.toml"))
    return [one], [one, *shipments(str(folder / "two" / "two.toml"))]


@pytest.mark.acceptance
def test_a_pipeline_joins_a_site_and_goes_with_it(
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    asked_at(moto, monkeypatch)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    for place in ("packed_services", "conductors"):
        monkeypatch.setattr(f"mark_infra.deploy.{place}.wheelhouse", no_packages)
    (target.folder / "artifacts" / "libraries" / libraries_name(b"", constraints())).mkdir(parents=True)
    alone, both = sent(tmp_path)
    said: list[str] = []
    plan(alone, target, said.append).apply()

    planned = plan(both, target, said.append)
    check_only_adds([(one.address, one.action) for one in planned.changes])
    costs = {one.what: one.usd_per_month or 0.0 for one in planned.charges}
    assert costs["two, 2 conductors"] == pytest.approx(2 * 12.264)
    assert costs["load balancer of stages"] == pytest.approx(16.425)
    assert {line.what: line.basis.partition(", ")[2] for line in planned.charges if line.part == "functions"} == {
        f"two-{stage}, lambda:1024": "$730 at most" for stage in ("first", "second")
    }
    deployed = planned.apply()
    site = load_site(deployed.site_file)
    assert set(site.services) == set(deployed.services) == {"echo", "two-first", "two-second"}
    assert set(deployed.addresses) == {"echo", "two"}
    assert all(target.name in name for name in deployed.balancers.values())
    check_conductors(moto)
    there = site.pipelines["two"]
    assert (there.conductors, there.scheme) == ("mark-two-conductors", "http")
    assert len(Conductors(Gate(site, options=moto.options), there.conductors).addresses()) == 2
    stage = TemplateVersion(site.service("two-first").launch_template, "1")
    conductors = ConductorReleases(site, Gate(site, options=moto.options))
    assert conductors.take_back("two", stage) == "its conductors stay: they have that release's folder"
    check_functions_rights(moto)
    keys = deployed.keys_file.read_text().splitlines()
    assert [key.split(":")[0] for key in keys] == ["controller", "operator", "client", "conductor"]
    check_no_key_lies_about(target, keys)
    parameters = {name: value(moto, name) for name in ("bouncers", "conductors")}
    assert parameters["conductors"] == f"{keys[-1]}\n"
    assert keys[-1].split(":")[1] not in parameters["bouncers"]
    assert "\nconductor:sha256-" in parameters["bouncers"]
    key = keys[-1].split(":")[1]
    assert asked_of_function(moto, target.folder / "artifacts" / "two-second.zip", "second", key) == [7.0]
    again = plan(both, target, said.append)
    assert again.changes == [], again.terraform.text()

    folders = ["echo/echo.toml", "two/two.toml"]
    with controlled(moto, folders, deployed.site_file, tmp_path) as page:
        for name in site.services:
            wait_for(partial(ready, page, name), f"an instance of {name}", PATIENCE_S)
            wait_for(partial(is_asked, moto, site, name), f"requests of {name} for its instance", PATIENCE_S)
    assert plan(both, target, said.append).changes == [], "an apply would reset what the controller has set"

    assert destroy(target, said.append) == []
    groups = moto.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    reservations = moto.client("ec2").describe_instances()["Reservations"]
    assert (groups, {i["State"]["Name"] for r in reservations for i in r["Instances"]}) == ([], {"terminated"})
    check_nothing_is_left(moto)
    assert not any(key.split(":")[1] in line for key in keys for line in said)


SELECTS = """
[service]
name = "parity"
slo_ms = 600
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
instances = ["c5.*"]
max_instances = 20
max_usd_per_hour = 10.0
[stage.small]
model = "echo:Echo"
[stage.large]
model = "echo:Echo"
[feedback]
log = "/var/lib/mark/feedback"
[selection]
policy = "thompson"
"""
BOTH_FIT = "model,instance,batch,latency_ms,workers\necho:Echo,c5.large,1,20,2\n"


@pytest.mark.acceptance
def test_selection_is_deployed_as_one_fleet_without_conductors(
    moto: MotoServer,  # noqa: F811
    terraform: Terraform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terraform.init(terraform.home / "examples" / "complete")  # skips the test if the provider cannot be had
    asked_at(moto, monkeypatch)
    target = DeployTarget(name="mark", region=REGION, clients=("192.0.2.0/24",), state=tmp_path / "s", emulated=True)
    monkeypatch.setattr("mark_infra.deploy.packed_services.wheelhouse", no_packages)
    (tmp_path / "parity.toml").write_text(SELECTS)
    (tmp_path / "profile.csv").write_text(BOTH_FIT)
    (tmp_path / "echo.py").write_text(ECHO)
    said: list[str] = []
    whole = shipments(str(tmp_path / "parity.toml"))
    planned = plan(whole, target, said.append)
    assert not [one for one in planned.charges if "conductors" in one.what or "balancer of stages" in one.what]
    addresses = {one.address for one in planned.changes}
    inner_key = 'module.state.aws_ssm_parameter.keys["conductors"]'  # which instances that learn show each other
    assert {one for one in addresses if "conductor" in one or "stages" in one} == {inner_key}
    assert {
        'module.network.aws_vpc_security_group_ingress_rule.peers["bouncers"]',
        'module.network.aws_vpc_security_group_egress_rule.peers["bouncers"]',
        'module.observability.aws_cloudwatch_metric_alarm.facts_unstored["parity"]',
    } <= addresses
    deployed = planned.apply()
    site = load_site(deployed.site_file)
    assert (set(site.services), site.pipelines, set(deployed.addresses)) == ({"parity"}, {}, {"parity"})
    (version,) = moto.client("ec2").describe_launch_template_versions(LaunchTemplateName="mark-parity-bouncer")[
        "LaunchTemplateVersions"
    ]
    booted = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()
    assert "mark serve service.toml " in booted
    assert "--stage " not in booted
    assert plan(whole, target, said.append).changes == []
    store = check_learning(moto)
    assert f"--feedback-store {store}'" in booted
    check_feedback_is_kept(moto, store, tmp_path)
    with controlled(moto, ["parity.toml"], deployed.site_file, tmp_path) as page:
        wait_for(partial(ready, page, "parity"), "an instance of parity", PATIENCE_S)
        wait_for(partial(is_asked, moto, site, "parity"), "requests for its instance", PATIENCE_S)
    assert destroy(target, said.append) == []
    check_nothing_is_left(moto)


def check_learning(moto: MotoServer) -> str:  # noqa: F811
    """Check rights, alarm and rules of instances that learn, and return their store.

    The emulated account has no lifecycle of buckets; `state.tftest.hcl` checks the planned one.
    """
    document = moto.client("iam").get_role_policy(RoleName="mark-parity-bouncer", PolicyName="bouncer")
    policy = IamPolicy(document["PolicyDocument"])
    (statement,) = [one for one in document["PolicyDocument"]["Statement"] if one["Sid"] == "Learned"]
    bucket = statement["Resource"].split(":")[-1].split("/")[0]
    mine, others = (f"arn:aws:s3:::{bucket}/learned/{name}/1" for name in ("parity", "other"))
    allowed = {
        (action, key)
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
        for key in (mine, others)
        if policy.decide(IamCall(action, key)) is IamDecision.ALLOWED
    }
    assert allowed == {("s3:GetObject", mine), ("s3:PutObject", mine)}
    for prefix, decision in (("learned/parity/aside/", True), ("learned/other/", False), ("", False)):
        listing = IamCall("s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": prefix})
        assert (policy.decide(listing) is IamDecision.ALLOWED) is decision, prefix
    alarms = moto.client("cloudwatch").describe_alarms(AlarmNames=["mark-parity-facts-unstored"])["MetricAlarms"]
    assert [(one["MetricName"], one["Threshold"]) for one in alarms] == [("UnstoredFactsAge", 60.0)]
    groups = moto.client("ec2").describe_security_groups()["SecurityGroups"]
    (group,) = [one for one in groups if one["GroupName"] == "mark-bouncer"]
    for permissions in (group["IpPermissions"], group["IpPermissionsEgress"]):
        own = [one for one in permissions for pair in one["UserIdGroupPairs"] if pair["GroupId"] == group["GroupId"]]
        assert [(one["FromPort"], one["ToPort"]) for one in own] == [(8080, 8080)]
    return f"s3://{bucket}"


def check_feedback_is_kept(moto: MotoServer, store: str, folder: Path) -> None:  # noqa: F811
    """Check that a server's feedback is in the account's bucket, and that a server on another disk has learned it."""
    variables = {name: value for name, value in of_aws(os.environ, REGION).items() if name.startswith("AWS_")}
    variables["AWS_ENDPOINT_URL"] = moto.url
    for name in ("first", "second"):
        (folder / name).mkdir()
        for file in ("profile.csv", "echo.py"):
            shutil.copy(folder / file, folder / name)
        (folder / name / "parity.toml").write_text(SELECTS.replace("/var/lib/mark/feedback", "feedback"))
    with served(folder / "first", "--feedback-store", store, service="parity.toml", **variables) as (process, url):
        asked = httpx.post(f"{url}/invocations", json=7, headers={"x-request-id": "a-1"}, trust_env=False)
        assert asked.status_code == 200, asked.text
        told = httpx.post(f"{url}/v2/models/parity/feedback", json={"id": "a-1", "label": 7}, trust_env=False)
        assert told.json()["results"][0]["result"] == "applied", told.text
        process.terminate()
        assert process.wait(60) == 0
    objects = moto.client("s3").list_objects_v2(Bucket=store.removeprefix("s3://"), Prefix="learned/parity/")
    assert objects["KeyCount"] == 1
    with served(folder / "second", "--feedback-store", store, service="parity.toml", **variables) as (_, url):
        page = httpx.get(f"{url}/metrics", trust_env=False).text
    assert 'mark_learned_facts_total{model="parity",result="applied"} 1.0' in page


def is_asked(moto: MotoServer, site: Site, name: str) -> bool:  # noqa: F811
    """Does every rule of the service forward to a group of a class that has instances?"""
    there = site.service(name)
    weights = [
        {group["Weight"] for group in rule["Actions"][0]["ForwardConfig"]["TargetGroups"]}
        for rule in moto.client("elbv2").describe_rules(RuleArns=list(there.listener_rules))["Rules"]
    ]
    return bool(weights) and all(max(one) > 0 for one in weights)


def check_only_adds(changes: list[tuple[str, str]]) -> None:
    """Check that the first service's resources stay as they are; only the controller hears of the stages."""
    others = {address for address, action in changes if action != "create"}
    assert others <= {
        "module.controller.aws_launch_template.this",
        "module.controller.aws_autoscaling_group.this",
        "module.controller.aws_iam_role_policy.this",  # changed by the site's first functions
        'module.controller.aws_s3_object.boot["archives"]',
        'module.controller.aws_s3_object.boot["site.toml"]',
    }
    assert not [address for address, _ in changes if '"echo"' in address]
    made = {address for address, action in changes if action == "create"}
    assert {
        'module.conductors["two"].aws_autoscaling_group.this',
        'module.fleet["two-first"].aws_launch_template.this',
        'module.overflow["two-first"].aws_lambda_function.this',
        'module.observability.aws_cloudwatch_metric_alarm.promise["two"]',
        'module.observability.aws_cloudwatch_metric_alarm.function_spend["two-first"]',
        'module.network.aws_lb.this["stages"]',
        'module.observability.aws_cloudwatch_metric_alarm.nobody_ready["two"]',
        'module.state.aws_ssm_parameter.keys["conductors"]',
    } <= made


def check_conductors(moto: MotoServer) -> None:  # noqa: F811
    """Check the conductors: two, in two zones, behind the clients' balancer. Only they reach the private balancer of
    stages."""
    (group,) = [
        one
        for one in moto.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        if one["AutoScalingGroupName"] == "mark-two-conductors"
    ]
    assert (len(group["Instances"]), len(group["VPCZoneIdentifier"].split(","))) == (2, 3)  # an emulator fills one zone
    assert group["HealthCheckType"] == "ELB"
    assert "mark:site" not in {tag["Key"] for tag in group["Tags"]}, "the controller could end them"
    elbv2, ec2 = moto.client("elbv2"), moto.client("ec2")
    balancers = {one["LoadBalancerName"]: one for one in elbv2.describe_load_balancers()["LoadBalancers"]}
    assert {name: one.get("Scheme", "internet-facing") for name, one in balancers.items()} == {
        "mark": "internet-facing",
        "mark-stages": "internal",
    }
    groups = elbv2.describe_target_groups()["TargetGroups"]
    (described,) = (one for one in groups if one["TargetGroupName"].startswith("mark-two-c-"))
    assert set(described["LoadBalancerArns"]) == {balancers["mark"]["LoadBalancerArn"]}  # each has its own rule
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateName="mark-two-conductors")[
        "LaunchTemplateVersions"
    ]
    script = base64.b64decode(version["LaunchTemplateData"]["UserData"])
    assert len(script) < USER_DATA
    url = f"http://{balancers['mark-stages']['DNSName']}:80"
    assert f"--stage-at first={url} --stage-at second={url} " in script.decode()
    (stage,) = ec2.describe_launch_template_versions(LaunchTemplateName="mark-two-second-bouncer")[
        "LaunchTemplateVersions"
    ]
    booted = base64.b64decode(stage["LaunchTemplateData"]["UserData"])
    assert len(booted) < USER_DATA
    assert " --stage-function second=mark_two-second-overflow:1 --stage second\n" in booted.decode()


def check_functions_rights(moto: MotoServer) -> None:  # noqa: F811
    """Check that a stage's instances may invoke versions of its own function only, and conductors none at all."""
    iam, functions = moto.client("iam"), moto.client("lambda")
    arns = {one["FunctionName"]: one["FunctionArn"] for one in functions.list_functions()["Functions"]}
    assert set(arns) == {"mark_two-first-overflow", "mark_two-second-overflow"}
    roles = {"mark-two-first-bouncer": "bouncer", "mark-two-second-bouncer": "bouncer", "mark-echo-bouncer": "bouncer"}
    for role, name in {**roles, "mark-two-conductors": "conductor"}.items():
        policy = IamPolicy(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
        allowed = {
            function
            for function, arn in arns.items()
            if policy.decide(IamCall("lambda:InvokeFunction", f"{arn}:1")) is IamDecision.ALLOWED
        }
        own = role.replace("mark-", "mark_", 1).replace("-bouncer", "-overflow")
        assert allowed == {own} & set(arns), role


ASKED = """
import json, sys
from mark_lambda.overflow import handler
print(json.dumps(handler(json.load(sys.stdin))))
"""


def asked_of_function(moto: MotoServer, file: Path, stage: str, key: str) -> list[object]:  # noqa: F811
    """Return the answer of the stage's function to a conductor's call while the balancer has no instance for it.

    The package runs in Lambda's environment for it and looks up in Systems Manager whether the key may ask.
    """
    code = file.with_suffix("")
    with zipfile.ZipFile(file) as package:
        package.extractall(code)
    described = moto.client("lambda").get_function_configuration(FunctionName=f"mark_two-{stage}-overflow")
    variables = of_aws(os.environ, REGION) | described["Environment"]["Variables"]
    variables |= {
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_LAMBDA_FUNCTION_NAME": described["FunctionName"],
        "PYTHONPATH": str(code),
    }
    call = call_with(7.0)
    event = {
        "requestContext": {"elb": {}},
        "httpMethod": "POST",
        "path": f"/v2/models/{stage}/infer",
        "headers": {
            "authorization": f"Bearer {key}",
            "content-type": RESULTS,
            "inference-header-content-length": str(call.json_bytes),
            "mark-service": f"two-{stage}",
        },
        "body": base64.b64encode(call.body).decode(),
        "isBase64Encoded": True,
    }
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=code,
        env=variables,
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["statusCode"] == 200, answer
    length = int(answer["headers"]["inference-header-content-length"])
    return results_of(Reply(200, RESULTS, base64.b64decode(answer["body"]), length))


def value(moto: MotoServer, reader: str) -> str:  # noqa: F811
    name = f"/mark/mark/keys/{reader}"
    return str(moto.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
