"""The end of a site, against moto."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.aws.teardown import caller, end_instances, end_strays, leftovers

from mark.domain.errors import CloudError
from tests.infra.conftest import ACCOUNT, REGION, MotoServer
from tests.infra.deploy.stubbed import StubbedSession


@pytest.fixture
def gate(moto: MotoServer) -> Gate:
    moto.reset()
    return Gate(Site("mark", REGION, "dynamodb:mark-state"), options=moto.options)


def launch(moto: MotoServer, **tags: str) -> str:
    ec2 = moto.client("ec2")
    described = [{"Key": key.replace("_", ":"), "Value": value} for key, value in tags.items()]
    answer = ec2.run_instances(
        ImageId="ami-1",
        MinCount=1,
        MaxCount=1,
        InstanceType="c5.large",
        TagSpecifications=[{"ResourceType": "instance", "Tags": described}],
    )
    return str(answer["Instances"][0]["InstanceId"])


def states(moto: MotoServer) -> dict[str, str]:
    found: Any = moto.client("ec2").describe_instances()["Reservations"]
    return {i["InstanceId"]: i["State"]["Name"] for r in found for i in r["Instances"]}


def test_a_site_ends_with_its_controller_first(gate: Gate, moto: MotoServer) -> None:
    fleet = [launch(moto, mark_site="mark", mark_service="a") for _ in range(3)]
    moto.client("ec2").stop_instances(InstanceIds=fleet[:1])  # a standby
    controller = launch(moto, mark_controller="mark")
    other = launch(moto, mark_site="other")
    seen: list[dict[str, str]] = []
    assert end_instances(gate, "mark", "no-such-group", pause=lambda _: seen.append(states(moto))) == 4
    assert seen[0][controller] == "terminated"
    assert seen[0][fleet[1]] == "running"  # the controller ended first: it would launch another
    assert {states(moto)[id] for id in (*fleet, controller)} == {"terminated"}
    assert states(moto)[other] == "running"
    assert end_instances(gate, "mark", None, pause=lambda _: None) == 0


def test_conductors_end_with_their_groups(gate: Gate, moto: MotoServer) -> None:
    """Their tag differs from the fleet's, because the controller may end no conductor. Another site's stay."""
    autoscaling = moto.client("autoscaling")
    template = {
        "LaunchTemplateName": "conductors",
        "LaunchTemplateData": {"ImageId": "ami-1", "InstanceType": "t3.small"},
    }
    moto.client("ec2").create_launch_template(**template)
    for site in ("mark", "mark-2"):
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=f"{site}-two-conductors",
            LaunchTemplate={"LaunchTemplateName": "conductors", "Version": "$Latest"},
            MinSize=2,
            MaxSize=4,
            DesiredCapacity=2,
            AvailabilityZones=[f"{REGION}a", f"{REGION}b"],
            Tags=[{"Key": "mark:conductor", "Value": site, "PropagateAtLaunch": True}],
        )
    end_instances(gate, "mark", None, pause=lambda _: None)
    groups = {g["AutoScalingGroupName"]: g for g in autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]}
    assert [groups[f"{site}-two-conductors"]["DesiredCapacity"] for site in ("mark", "mark-2")] == [0, 2]
    assert sorted(states(moto).values()) == ["running", "running", "terminated", "terminated"]


def test_the_controllers_group_launches_no_other(gate: Gate, moto: MotoServer) -> None:
    ec2, autoscaling = moto.client("ec2"), moto.client("autoscaling")
    ec2.create_launch_template(
        LaunchTemplateName="controller", LaunchTemplateData={"ImageId": "ami-1", "InstanceType": "t3.small"}
    )
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="mark-controller",
        MinSize=1,
        MaxSize=1,
        AvailabilityZones=[f"{REGION}a"],
        LaunchTemplate={"LaunchTemplateName": "controller"},
        Tags=[{"Key": "mark:controller", "Value": "mark", "PropagateAtLaunch": True}],
    )
    end_instances(gate, "mark", "mark-controller", pause=lambda _: None)
    (group,) = autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (0, 0, 0)
    assert "running" not in states(moto).values()


def test_instance_that_ec2_does_not_know_keeps_no_other_from_ending(gate: Gate, moto: MotoServer) -> None:
    """EC2 ends none of several instances if it does not know one of them, as it may after a launch."""
    ghost, *others = (launch(moto, mark_site="mark") for _ in range(3))

    def forget(**_: Any) -> None:
        for reservation in moto.backend("ec2").reservations.values():
            reservation.instances = [i for i in reservation.instances if i.id != ghost]

    gate.client("ec2").meta.events.register("before-call.ec2.TerminateInstances", forget)
    end_instances(gate, "mark", None, pause=lambda _: None)
    assert states(moto) == dict.fromkeys(others, "terminated")


def test_what_does_not_end_is_named(gate: Gate, moto: MotoServer) -> None:
    id = launch(moto, mark_site="mark")
    times = iter((0.0, 700.0))
    moto.client("ec2").modify_instance_attribute(InstanceId=id, DisableApiTermination={"Value": True})
    with pytest.raises(CloudError, match=r"terminat|still there"):
        end_instances(gate, "mark", None, pause=lambda _: None, monotonic=lambda: next(times))


def test_instance_that_may_not_end_keeps_no_other_from_ending(gate: Gate, moto: MotoServer) -> None:
    protected, *others = (launch(moto, mark_site="mark") for _ in range(3))
    moto.client("ec2").modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    with pytest.raises(CloudError, match="disableApiTermination"):
        end_instances(gate, "mark", None, pause=lambda _: None)
    assert states(moto) == {protected: "running", **dict.fromkeys(others, "terminated")}


def test_what_is_left_is_listed(gate: Gate, moto: MotoServer) -> None:
    assert leftovers(gate, "mark") == []
    id = launch(moto, mark_site="mark")
    tags = [{"Key": "mark:site", "Value": "mark"}]
    specification = [{"ResourceType": "volume", "Tags": tags}]
    ec2 = moto.client("ec2")
    volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=specification)["VolumeId"]
    queue = moto.client("sqs").create_queue(QueueName="mark-notices", tags={"mark:site": "mark"})
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:mark-notices"
    times = iter(range(0, 1000, 50))
    pauses: list[float] = []
    assert leftovers(gate, "mark", pause=pauses.append, monotonic=lambda: next(times)) == sorted((id, volume, arn))
    assert pauses == [5.0]
    moto.client("sqs").delete_queue(QueueUrl=queue["QueueUrl"])
    assert leftovers(gate, "other") == []


def test_caller_returns_the_account_number(gate: Gate) -> None:
    assert caller(gate) == ACCOUNT


def test_strays_of_a_broken_deployment_are_deleted(gate: Gate, moto: MotoServer) -> None:
    """Strays of other sites stay."""
    vpc = moto.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    for site in ("mark", "mark-2"):
        tags = [{"Key": "mark:site", "Value": site}]
        moto.client("elbv2").create_target_group(Name=f"{site}-a", Protocol="HTTP", Port=80, VpcId=vpc, Tags=tags)
        moto.client("logs").create_log_group(logGroupName=f"/mark/{site}/a", tags={"mark:site": site})
        moto.client("sqs").create_queue(QueueName=f"{site}-notices", tags={"mark:site": site})
    end_strays(gate, "mark")
    assert [g["TargetGroupName"] for g in moto.client("elbv2").describe_target_groups()["TargetGroups"]] == ["mark-2-a"]
    assert [g["logGroupName"] for g in moto.client("logs").describe_log_groups()["logGroups"]] == ["/mark/mark-2/a"]
    (left,) = moto.client("sqs").list_queues()["QueueUrls"]
    assert left.endswith("mark-2-notices")


def test_a_target_group_ends_after_its_balancer(gate: Gate, moto: MotoServer) -> None:
    """The order of the list does not matter; here the group comes first."""
    ec2, elb = moto.client("ec2"), moto.client("elbv2")
    vpc, tags = ec2.describe_vpcs()["Vpcs"][0]["VpcId"], [{"Key": "mark:site", "Value": "mark"}]
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"][:2]]
    made = elb.create_target_group(Name="mark-a", Protocol="HTTP", Port=80, VpcId=vpc, Tags=tags)
    group = made["TargetGroups"][0]["TargetGroupArn"]
    balancer = elb.create_load_balancer(Name="mark", Subnets=subnets, Tags=tags)["LoadBalancers"][0]["LoadBalancerArn"]
    forward = [{"Type": "forward", "TargetGroupArn": group}]
    elb.create_listener(LoadBalancerArn=balancer, Protocol="HTTP", Port=80, DefaultActions=forward)
    end_strays(gate, "mark", pause=lambda _: pytest.fail("the balancer went first"))
    assert elb.describe_target_groups()["TargetGroups"] == []
    assert elb.describe_load_balancers()["LoadBalancers"] == []


GROUP = f"arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:targetgroup/mark-a/1"


def test_a_stray_that_is_in_use_is_tried_again() -> None:
    aws, pauses = StubbedSession(), list[float]()
    listed = {"ResourceTagMappingList": [{"ResourceARN": GROUP}]}
    aws.answers("resourcegroupstaggingapi", "get_resources", listed)
    aws.refuses("elbv2", "delete_target_group", "ResourceInUse")
    aws.answers("elbv2", "delete_target_group", {})
    end_strays(aws.gate(), "mark", pause=pauses.append)
    assert (pauses, aws.all_asked()) == ([2.0], True)


def test_a_stray_that_stays_in_use_is_left() -> None:
    aws, times = StubbedSession(), iter((0.0, 20.0, 40.0))
    aws.answers("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": [{"ResourceARN": GROUP}]})
    for _ in range(2):
        aws.refuses("elbv2", "delete_target_group", "ResourceInUse")
    end_strays(aws.gate(), "mark", pause=lambda _: None, monotonic=lambda: next(times))
    assert aws.all_asked()


def described(*statuses: str) -> dict[str, Any]:
    group = {
        "AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0, "DefaultCooldown": 0,
        "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return {"AutoScalingGroups": [group | ({"Status": status} if status else {}) for status in statuses]}


def test_a_group_that_is_being_deleted_stops_nothing() -> None:
    """An earlier command, which was interrupted, deleted it."""
    for answer in (described("Delete in progress"), described()):
        aws = StubbedSession()
        aws.refuses("autoscaling", "update_auto_scaling_group", "ScalingActivityInProgress")
        aws.answers("autoscaling", "describe_auto_scaling_groups", answer)
        aws.answers("autoscaling", "describe_auto_scaling_groups", described())  # the conductors' groups
        for _ in range(3):
            aws.answers("ec2", "describe_instances", {"Reservations": []})
        assert end_instances(aws.gate(), "mark", "g") == 0


def test_a_group_that_takes_no_change_is_an_error() -> None:
    aws = StubbedSession()
    aws.refuses("autoscaling", "update_auto_scaling_group", "ResourceContention")
    aws.answers("autoscaling", "describe_auto_scaling_groups", described(""))
    with pytest.raises(CloudError, match="ResourceContention"):
        end_instances(aws.gate(), "mark", "g")
