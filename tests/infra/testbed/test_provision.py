"""A site made through the APIs: its file, and mark's adapters on its resources."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mark_infra.aws.site import Site, dump_site, load_site
from mark_infra.testbed.instances import STATE_CHANGE, WARNING
from mark_infra.testbed.provision import Wish, provision

from tests.infra.testbed.cloud_fakes import FakeGateways
from tests.infra.testbed.conftest import Aws

ZONES = ("us-east-1a", "us-east-1b")


@pytest.fixture
def aws(make_aws: Callable[..., Aws]) -> Aws:
    return make_aws(gateways=FakeGateways())


@pytest.fixture
def site(aws: Aws) -> Site:
    wishes = [Wish("echo", "mark-echo-overflow"), Wish("a.name_with-50-letters-" + "x" * 28)]
    return provision(aws.client, wishes, region="us-east-1", zones=ZONES, store="dynamodb:mark-state", time_scale=12.0)


def test_the_site_file_says_what_there_is(site: Site, tmp_path: Path) -> None:
    """It reads back the same."""
    path = tmp_path / "mark-site.toml"
    path.write_text(dump_site(site), "utf-8")
    assert load_site(path) == site
    assert site.time_scale == 12.0
    assert list(site.service("echo").subnets) == list(ZONES)
    assert site.service("echo").function == "mark-echo-overflow"
    assert len({service.target_groups for service in site.services.values()}) == 2


def test_instances_come_from_its_template_into_its_subnets(aws: Aws, site: Site) -> None:
    """CreateFleet launches them, as the adapters do: tagged, with IMDSv2 only, and a machine behind each."""
    service = site.service("echo")
    made = aws.client("ec2").create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": service.launch_template, "Version": "$Latest"},
                "Overrides": [{"InstanceType": "c5.large", "SubnetId": subnet} for subnet in service.subnets.values()],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
    )
    ((i,),) = [part["InstanceIds"] for part in made["Instances"]]
    instance = aws.instance(i)
    assert instance["SubnetId"] == service.subnets["us-east-1b"]  # the cheaper zone
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert (tags["mark:site"], tags["mark:service"]) == ("mark", "echo")
    assert aws.machines.there[i].service == "echo"
    assert aws.machines.there[i].zone == "us-east-1b"


def test_what_ec2_says_reaches_the_queue(aws: Aws, site: Site) -> None:
    """State changes and warnings arrive."""
    aws.client("ec2").run_instances(
        LaunchTemplate={"LaunchTemplateId": site.service("echo").launch_template}, InstanceType="c5.large",
        InstanceMarketOptions={"MarketType": "spot"}, MinCount=1, MaxCount=1,
    )  # fmt: skip
    aws.pass_s(2.0)
    aws.cloud.interrupt(1.0, 0)
    aws.pass_s(20.0)
    aws.cloud.interrupt(1.0, 0)
    got = aws.client("sqs").receive_message(QueueUrl=site.queue_url, MaxNumberOfMessages=10)["Messages"]
    said = [json.loads(message["Body"])["detail-type"] for message in got]
    assert said.count(STATE_CHANGE) == 2
    assert said.count(WARNING) == 1


def test_each_service_has_its_gateway(aws: Aws, site: Site) -> None:
    """The gateway is there before any instance."""
    assert aws.cloud.balancer is not None
    aws.cloud.balancer.sync()
    assert all(aws.cloud.balancer.url(s.target_groups[0]) for s in site.services.values())


def test_several_target_groups_have_a_rule_and_one_gateway(aws: Aws) -> None:
    """The gateway hears the rule's weights."""
    site = provision(aws.client, [Wish("echo", None, 4)], region="us-east-1", zones=ZONES, store="sqlite:mark.db")
    there, balancer = site.service("echo"), aws.cloud.balancer
    assert len(set(there.target_groups)) == 4
    assert balancer is not None
    elbv2, gateways = aws.client("elbv2"), aws.cloud.balancer._gateways
    assert isinstance(gateways, FakeGateways)
    small, large, *_ = there.target_groups
    for group, address in ((small, "127.9.9.1"), (large, "127.9.9.2")):
        elbv2.register_targets(TargetGroupArn=group, Targets=[{"Id": address, "Port": 81}])
    balancer.sync()
    (gateway,) = gateways.started[small]
    assert gateway.replicas == {"http://127.9.9.1:81": 1.0, "http://127.9.9.2:81": 0.0}
    assert {balancer.url(group) for group in there.target_groups} == {gateway.url}
    (rule,) = elbv2.describe_rules(RuleArns=list(there.listener_rules))["Rules"]
    weights = [{"TargetGroupArn": group, "Weight": n} for n, group in enumerate(there.target_groups)]
    elbv2.modify_rule(
        RuleArn=rule["RuleArn"], Actions=[{"Type": "forward", "ForwardConfig": {"TargetGroups": weights}}]
    )
    balancer.sync()
    assert gateway.replicas == {"http://127.9.9.1:81": 0.0, "http://127.9.9.2:81": 1.0}
    assert gateway.groups == {"http://127.9.9.1:81": small, "http://127.9.9.2:81": large}


def test_its_state_is_kept_in_its_table(aws: Aws, site: Site) -> None:
    """The table exists, with the store's keys."""
    table = aws.client("dynamodb").describe_table(TableName="mark-state")["Table"]
    assert [key["AttributeName"] for key in table["KeySchema"]] == ["pk", "sk"]


def test_an_sqlite_store_needs_no_table(make_aws: Callable[..., Aws]) -> None:
    """It is a file, made when it is first opened."""
    aws = make_aws()
    site = provision(aws.client, [], region="us-east-1", zones=ZONES, store="sqlite:mark.db")
    assert site.store == "sqlite:mark.db"
    assert aws.client("dynamodb").list_tables()["TableNames"] == []
