"""The monthly table has a line for each resource of Terraform that costs money, and no other line."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.cloudwatch import ATTAINMENT, OF_EACH_LEARNER, OF_EACH_PIPELINE, OF_EACH_SERVICE
from mark_infra.aws.notices import WAIT_S

from mark.cloud.billing.extras import QUEUE_POLL_S
from mark.studies.report.monthly import (
    METRICS_OF_LEARNER,
    METRICS_OF_PIPELINE,
    METRICS_OF_SERVICE,
    ServiceCost,
    alarms,
    monthly,
)
from tests.terraform.conftest import MODULES, Terraform
from tests.terraform.mocked_site import MockedSite, Step, resources

# Terraform's types that a site has and that cost nothing themselves.
FREE = frozenset((
    *("aws_autoscaling_group", "aws_launch_template"),  # their instances have separate lines
    *("aws_budgets_budget", "aws_sns_topic", "aws_sns_topic_subscription"),  # two budgets, 1,000 mails a month
    *("aws_cloudwatch_event_rule", "aws_cloudwatch_event_target"),  # events of AWS's own services
    *("aws_default_security_group", "aws_security_group"),
    *("aws_vpc_security_group_egress_rule", "aws_vpc_security_group_ingress_rule"),
    *("aws_iam_instance_profile", "aws_iam_role", "aws_iam_role_policy"),
    "terraform_data",  # of Terraform alone
    "aws_route53_record",  # an alias: its queries are free, and its zone exists already
    *("aws_internet_gateway", "aws_route", "aws_route_table", "aws_route_table_association"),
    *("aws_subnet", "aws_vpc", "aws_vpc_endpoint"),  # gateway endpoints, for S3 and DynamoDB
    *("aws_lambda_alias", "aws_lambda_permission"),
    *("aws_lb_listener", "aws_lb_listener_rule", "aws_lb_target_group", "aws_lb_target_group_attachment"),
    *("aws_s3_bucket_lifecycle_configuration", "aws_s3_bucket_policy", "aws_s3_bucket_public_access_block"),
    *("aws_s3_bucket_server_side_encryption_configuration", "aws_s3_bucket_versioning"),
    *("aws_sqs_queue_policy", "aws_ssm_parameter"),  # a standard parameter
))  # fmt: skip
COSTS = [
    ServiceCost("with", "c5.large/on-demand", 0.085, 5.0, 8.0, "lambda:1024", 19.0, 2.0),
    ServiceCost("without", "c5.large/on-demand", 0.085, 5.0, 8.0, None, 0.0),
]


def billed() -> set[str]:
    return {kind for line in monthly(COSTS, 3) for kind in line.resources}


def kinds() -> set[str]:
    """Return the types of resources in any module."""
    found: set[str] = set()
    for file in MODULES.rglob("*.tf"):
        lines = file.read_text(encoding="utf-8").splitlines()
        found |= {line.split('"')[1] for line in lines if line.startswith('resource "')}
    return found


def test_every_kind_of_resource_has_a_line_or_is_free() -> None:
    assert kinds() - billed() - FREE == set()


@pytest.mark.slow
def test_conductors_know_where_stages_are_that_share_a_fleet(mocked: Terraform, tmp_path: Path) -> None:
    site = MockedSite(mocked, tmp_path)
    services = site.services(["two-a-b", "two-c"])
    for one in services.values():
        del one["function"]
        one["pipeline"] = "two"
    services["two-a-b"]["together"], services["two-c"]["stage"] = ["a", "b"], "c"
    (state,) = site.run(Step(services, default="two", pipelines=site.pipelines(["two"])))
    templates = resources(state, "aws_launch_template")
    said = {at.split('"')[1]: one["user_data"] for at, one in templates.items() if '"' in at}
    said = {name: base64.b64decode(text).decode() for name, text in said.items()}
    assert re.findall(r"--stage-at (\w+)=", said["two"]) == ["a", "b", "c"]
    assert " --stage a --stage b\n" in said["two-a-b"]
    assert " --stage c\n" in said["two-c"]


def test_every_line_is_of_something_that_is_made() -> None:
    assert billed() <= kinds()
    assert not billed() & FREE


def test_metrics_and_polls_are_counted_as_they_are_sent() -> None:
    assert (len(OF_EACH_SERVICE), len(OF_EACH_PIPELINE)) == (METRICS_OF_SERVICE, METRICS_OF_PIPELINE)
    assert len(OF_EACH_LEARNER) == METRICS_OF_LEARNER
    assert WAIT_S == QUEUE_POLL_S


@pytest.mark.slow
def test_alarms_and_balancers_are_counted_as_they_are_made(mocked: Terraform, tmp_path: Path) -> None:
    """First for services, then for a pipeline. A pipeline's stages are services, its conductors have their own alarms,
    the pipeline has one alarm for its promise, and the balancer of stages has the usual two."""
    site = MockedSite(mocked, tmp_path)
    services = site.services(["with", "without"], {"without": {"balancer": 1}})
    stages = site.services(["without", "two-first"], {"two-first": {"pipeline": "two", "stage": "first"}})
    pipelines = site.pipelines(["two"])
    for one in (services["with"], services["without"]):
        one |= {"slo_attainment": 0.98, "max_usd_per_hour": 5.0}
    for one in stages.values():
        one |= {"slo_attainment": 0.99, "max_usd_per_hour": 5.0}
    del services["without"]["function"], stages["without"]["function"]
    services["with"]["function"]["max_usd_per_hour"] = stages["two-first"]["function"]["max_usd_per_hour"] = 2.0
    pipelines["two"]["slo_attainment"] = 0.98
    stages["without"]["learns"] = pipelines["two"]["learns"] = True
    plain, piped = site.run(Step(services), Step(stages, default="two", pipelines=pipelines))

    watched = by_name(plain)
    assert len(watched) == alarms(COSTS, balancers=2)
    assert len(resources(plain, "aws_lb")) == 2
    assert watched["mark-with-spend"]["threshold"] == pytest.approx(4.75)
    assert watched["mark-without-spend"]["threshold"] == pytest.approx(4.75)
    assert watched["mark-with-function-spend"]["threshold"] == pytest.approx(1.9)

    watched = by_name(piped)
    assert len(watched) == alarms(COSTS, balancers=2, pipelines=1, learners=2)
    for name, percent in (("two-first", 99.0), ("two", 98.0)):
        promise = watched[f"mark-{name}-promise"]
        assert promise["threshold"] == pytest.approx(percent)
        assert (promise["metric_name"], promise["dimensions"]) == (ATTAINMENT, {"Site": "mark", "Service": name})
    assert {one["name"]: one["internal"] for one in resources(piped, "aws_lb").values()} == {
        "mark": False,
        "mark-stages": True,
    }
    listeners = {at.split('"')[1]: one for at, one in resources(piped, "aws_lb_listener").items()}
    assert {number: one["protocol"] for number, one in listeners.items()} == {"0": "HTTPS", "stages": "HTTP"}
    (told,) = (one for at, one in resources(piped, "aws_s3_object").items() if '"archives"' in at)
    assert [line.split()[0] for line in told["content"].splitlines()] == ["two", "without"]


def by_name(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the alarms of a site."""
    found = resources(state, "aws_cloudwatch_metric_alarm").values()
    watched = {one["alarm_name"]: one for one in found}
    assert len(watched) == len(found)
    return watched
