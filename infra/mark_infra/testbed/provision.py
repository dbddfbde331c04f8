"""Create a site's resources in the testbed through AWS's APIs, like Terraform, and the site that describes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mark_infra.aws.site import Site, SiteService
from mark_infra.store.dynamodb import create_table
from mark_infra.testbed.instances import REBALANCE, STATE_CHANGE, WARNING

_VPC = "10.90.0.0/16"
# any 64-bit Linux image of Amazon in moto, because no machine of the testbed boots it
_IMAGE = "ami-12c6146b"

ClientOf = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """A service of the new site. `function` is the name of its Lambda function, made elsewhere.

    With several `target_groups` it has a load balancer, whose rule forwards to all of them.
    """

    service: str
    function: str | None = None
    target_groups: int = 1


def provision(
    client: ClientOf, wishes: Sequence[Wish], *, region: str, zones: Sequence[str], store: str,
    bouncer_port: int = 8080, time_scale: float = 1.0,
) -> Site:  # fmt: skip
    """Create a site with all resources of its services. `client` returns the boto3 client of an AWS service.

    `store` is `dynamodb:TABLE`, which is created, or `sqlite:PATH`. For one empty account; not repeatable.
    """
    name = "mark"
    subnets, group = _network(client("ec2"), name, zones)
    queue_url = _events(client, name)
    kind, _, table = store.partition(":")
    if kind == "dynamodb":
        create_table(client("dynamodb"), table)
    vpc = client("ec2").describe_subnets(SubnetIds=list(subnets.values()))["Subnets"][0]["VpcId"]
    services = {}
    for wish in wishes:
        numbers = range(wish.target_groups)
        groups = [_target_group(client("elbv2"), name, wish.service, vpc, bouncer_port, number) for number in numbers]
        rules: tuple[str, ...] = ()
        if len(groups) > 1:
            rules = (_rule(client("elbv2"), name, wish.service, list(subnets.values()), groups),)
        services[wish.service] = SiteService(
            launch_template=_launch_template(client("ec2"), name, wish.service, group),
            subnets=subnets,
            target_groups=tuple(groups),
            listener_rules=rules,
            function=wish.function,
        )
    return Site(
        name=name, region=region, store=store, queue_url=queue_url, bouncer_port=bouncer_port, key_file=None,
        time_scale=time_scale, services=services,
    )  # fmt: skip


def _network(ec2: Any, name: str, zones: Sequence[str]) -> tuple[dict[str, str], str]:
    """Create a subnet for each zone, and a security group."""
    vpc = ec2.create_vpc(CidrBlock=_VPC, TagSpecifications=_tagged("vpc", name))["Vpc"]["VpcId"]
    subnets = {}
    for i, zone in enumerate(zones):
        made = ec2.create_subnet(
            VpcId=vpc, AvailabilityZone=zone, CidrBlock=f"10.90.{16 * i}.0/20",
            TagSpecifications=_tagged("subnet", name),
        )  # fmt: skip
        subnets[zone] = made["Subnet"]["SubnetId"]
    group = ec2.create_security_group(
        GroupName=f"{name}-instances", Description="bouncers", VpcId=vpc,
        TagSpecifications=_tagged("security-group", name),
    )  # fmt: skip
    return subnets, group["GroupId"]


def _events(client: ClientOf, name: str) -> str:
    """Create a queue with EC2's events about instances; return its URL."""
    sqs, events = client("sqs"), client("events")
    tags = {"mark:site": name}
    url: str = sqs.create_queue(QueueName=f"{name}-events", tags=tags, Attributes={"MessageRetentionPeriod": "3600"})[
        "QueueUrl"
    ]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["aws.ec2"], "detail-type": [WARNING, REBALANCE, STATE_CHANGE]}
    rule = events.put_rule(
        Name=f"{name}-instances", EventPattern=json.dumps(pattern), Tags=[{"Key": "mark:site", "Value": name}]
    )["RuleArn"]
    events.put_targets(Rule=f"{name}-instances", Targets=[{"Id": "queue", "Arn": arn}])
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
                "Resource": arn, "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
            }
        ],
    }  # fmt: skip
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    return url


def _launch_template(ec2: Any, name: str, service: str, group: str) -> str:
    data: Mapping[str, Any] = {
        "ImageId": _IMAGE,
        "SecurityGroupIds": [group],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "UserData": base64.b64encode(f"#!/bin/sh\n# the testbed runs `mark serve` of {service}\n".encode()).decode(),
        "TagSpecifications": _tagged("instance", name, service),
    }
    made = ec2.create_launch_template(
        LaunchTemplateName=f"{name}-{service}", LaunchTemplateData=data,
        TagSpecifications=_tagged("launch-template", name, service),
    )  # fmt: skip
    template: str = made["LaunchTemplate"]["LaunchTemplateId"]
    return template


def target_group_name(service: str, site: str = "mark", number: int = 0) -> str:
    """Return a name of at most 32 letters, digits and hyphens."""
    end = f"-{number}" if number else ""
    return "".join(c if c.isalnum() else "-" for c in f"{site}-{service}")[: 32 - len(end)].strip("-") + end


def _target_group(elbv2: Any, name: str, service: str, vpc: str, port: int, number: int) -> str:
    made = elbv2.create_target_group(
        Name=target_group_name(service, name, number),
        Protocol="HTTP", Port=port, VpcId=vpc, TargetType="instance",
        HealthCheckPath="/v2/health/ready",
        Tags=[{"Key": "mark:site", "Value": name}, {"Key": "mark:service", "Value": service}],
    )  # fmt: skip
    arn: str = made["TargetGroups"][0]["TargetGroupArn"]
    return arn


def _rule(elbv2: Any, name: str, service: str, subnets: Sequence[str], groups: Sequence[str]) -> str:
    """Create a listener's rule that forwards everything, at first to the first group only; return its ARN."""
    tags = [{"Key": "mark:site", "Value": name}, {"Key": "mark:service", "Value": service}]
    made = elbv2.create_load_balancer(Name=target_group_name(service, name), Subnets=list(subnets), Tags=tags)
    nothing = {"Type": "fixed-response", "FixedResponseConfig": {"StatusCode": "404"}}
    listener = elbv2.create_listener(
        LoadBalancerArn=made["LoadBalancers"][0]["LoadBalancerArn"], Protocol="HTTP", Port=80, DefaultActions=[nothing]
    )["Listeners"][0]
    weights = [{"TargetGroupArn": group, "Weight": int(group == groups[0])} for group in groups]
    rule = elbv2.create_rule(
        ListenerArn=listener["ListenerArn"], Priority=1, Tags=tags,
        Conditions=[{"Field": "path-pattern", "PathPatternConfig": {"Values": ["/*"]}}],
        Actions=[{"Type": "forward", "ForwardConfig": {"TargetGroups": weights}}],
    )  # fmt: skip
    arn: str = rule["Rules"][0]["RuleArn"]
    return arn


def _tagged(kind: str, name: str, service: str | None = None) -> list[dict[str, Any]]:
    tags = {"mark:site": name} if service is None else {"mark:site": name, "mark:service": service}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
