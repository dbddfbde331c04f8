"""Refusals of an AWS account: quotas, zones, images, speed and size, as decisions and over the served cloud."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.testbed.account import CloudAccount, account_of, offerings, small_disk, unsupported_image
from mark_infra.testbed.aws_request import AwsRequest
from mark_infra.testbed.sizes import RULES_PER_BALANCER, TARGETS_PER_BALANCER, too_large
from mark_infra.testbed.throttle import Throttle

from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Delay, Market, Offer
from tests.infra.testbed.cloud_fakes import BURSTABLE, CATALOG, ON_DEMAND, SPOT_A
from tests.infra.testbed.conftest import Aws
from tests.infra.testbed.test_launches import LARGE_A, fleet, ids, refused, run, template

NEW, STRICT = account_of("new"), account_of("strict")
# The same accounts without waits.
QUICK_NEW, QUICK = replace(NEW, fleets_take_s=(0.0, 0.0)), replace(STRICT, fleets_take_s=(0.0, 0.0))
GPU = Offer("g5.xlarge", Market.ON_DEMAND, 1.0, Delay(60.0, 60.0), vcpu=4.0, memory_gib=16.0, gpus=1)
RETIRED = Offer("p2.xlarge", Market.ON_DEMAND, 0.9, Delay(60.0, 60.0), vcpu=4.0, memory_gib=61.0, gpus=1)
ARM = Offer("c7g.large", Market.ON_DEMAND, 0.07, Delay(60.0, 60.0), vcpu=2.0, memory_gib=4.0)
WIDER = Catalog("wider", (*CATALOG.offers, GPU, RETIRED, ARM), ())
LARGE_E = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1e"}
AL2023_ARM = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
AL2023 = AL2023_ARM.replace("arm64", "x86_64")


# Quotas


def test_quotas_are_of_a_family_in_a_market() -> None:
    assert NEW.room(ON_DEMAND, 9, []) == 2  # of 5 vCPUs
    assert NEW.room(ON_DEMAND, 9, [ON_DEMAND]) == 1
    assert NEW.room(ON_DEMAND, 9, [SPOT_A, SPOT_A]) == 2  # spot has a quota of its own
    assert NEW.room(ON_DEMAND, 9, [BURSTABLE, BURSTABLE]) == 1  # a burstable one counts as standard, too
    assert NEW.room(GPU, 9, []) == 0
    assert STRICT.room(GPU, 99, []) == 16
    assert CloudAccount().room(GPU, 9_999, []) == 9_999


def test_an_account_is_told_by_its_name() -> None:
    assert not account_of().enforces
    for kind, scps in (("lavish", ()), ("strict", ("no-ec2",)), ("generous", ("no-spot",))):
        with pytest.raises(BadInput):
            account_of(kind, scps)


def test_a_fleet_says_which_quota_it_met(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK_NEW, catalog=WIDER)
    lt = template(aws)
    answer = fleet(aws, lt, 3, LARGE_A, {"InstanceType": "g5.xlarge"}, spot=False)
    assert len(ids(answer)) == 2
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"VcpuLimitExceeded"}
    assert "limit of 5 allows" in answer["Errors"][0]["ErrorMessage"]
    answer = fleet(aws, lt, 3, LARGE_A, token="u")
    assert (len(ids(answer)), answer["Errors"][0]["ErrorCode"]) == (2, "MaxSpotInstanceCountExceeded")
    with pytest.raises(ClientError) as error:
        run(aws)
    assert refused(error) == "VcpuLimitExceeded"


def test_pools_of_one_fleet_share_a_quota(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK_NEW)
    answer = fleet(aws, template(aws), 5, {"InstanceType": "c5.xlarge"}, LARGE_A, spot=False)
    assert [one["InstanceType"] for one in answer["Instances"]] == ["c5.large"]  # the cheaper type first: 4 of 5 vCPUs
    assert len(ids(answer)) == 2


def test_what_is_stopped_uses_no_quota_until_it_starts(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK_NEW)
    first = run(aws, MaxCount=2)
    aws.pass_s(120.0)
    aws.client("ec2").stop_instances(InstanceIds=first)
    aws.pass_s(60.0)
    second = run(aws, MaxCount=2)
    assert len(second) == 2
    with pytest.raises(ClientError) as error:
        aws.client("ec2").start_instances(InstanceIds=first)
    assert refused(error) == "VcpuLimitExceeded"
    aws.client("ec2").terminate_instances(InstanceIds=second)
    aws.client("ec2").start_instances(InstanceIds=first)


def test_quotas_are_told_when_asked(make_aws: Callable[..., Aws]) -> None:
    quotas = make_aws(account=QUICK_NEW).client("service-quotas")
    said = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")["Quota"]
    assert (said["Value"], said["ServiceCode"]) == (5.0, "ec2")
    listed = {one["QuotaCode"]: one["Value"] for one in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert (listed["L-34B43A08"], listed["L-DB2E81BA"]) == (5.0, 0.0)
    assert quotas.get_service_quota(ServiceCode="lambda", QuotaCode="L-B99A9384")["Quota"]["Value"] == 10.0


def test_an_organisation_forbids_spot(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=replace(account_of("strict", ["no-spot"]), fleets_take_s=(0.0, 0.0)))
    lt = template(aws)
    answer = fleet(aws, lt, 1, LARGE_A)
    assert (ids(answer), answer["Errors"][0]["ErrorCode"]) == ([], "UnauthorizedOperation")
    assert len(ids(fleet(aws, lt, 1, LARGE_A, token="u", spot=False))) == 1


# Zones and images


def test_zones_offer_what_aws_lists_there() -> None:
    there = offerings("us-east-1")
    assert {"us-east-1a", "us-east-1d"} <= there["c5.large"]
    assert "us-east-1e" not in there["c5.large"]
    assert "p2.xlarge" not in there
    assert CloudAccount().offered("p2.xlarge", "us-east-1", "us-east-1a")


def test_what_a_zone_does_not_offer_is_not_launched(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK, catalog=WIDER)
    lt = template(aws)
    for pool in (LARGE_E, {"InstanceType": "p2.xlarge"}):
        answer = fleet(aws, lt, 1, pool, token=str(pool), spot=False)
        assert (ids(answer), answer["Errors"][0]["ErrorCode"]) == ([], "InvalidFleetConfiguration")
    with pytest.raises(ClientError) as error:
        run(aws, Placement={"AvailabilityZone": "us-east-1e"})
    assert refused(error) == "Unsupported"
    listed = aws.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "location", "Values": ["us-east-1a", "us-east-1e"]}]
    )["InstanceTypeOfferings"]
    pairs = {(one["InstanceType"], one["Location"]) for one in listed}
    assert ("c5.large", "us-east-1a") in pairs
    assert ("c5.large", "us-east-1e") not in pairs
    assert "p2.xlarge" not in {name for name, _ in pairs}


def test_an_image_is_of_one_processor() -> None:
    al2023 = AL2023_ARM.split("/")
    assert unsupported_image("c7g.large", al2023, ["arm64"]) is None
    assert unsupported_image("c5.large", [], ["x86_64"]) is None  # an unknown image refuses no type
    wrong = unsupported_image("c5.large", al2023, ["x86_64"])
    assert wrong is not None
    assert wrong.code == "InvalidParameterValue"


def test_a_gpu_image_drives_only_gpus_it_knows() -> None:
    dlami = ["", "aws", "service", "deeplearning", "ami", "x86_64", "base-oss-nvidia-driver-gpu", "latest"]
    old = unsupported_image("p3.2xlarge", dlami, ["x86_64"])
    assert old is not None
    assert old.code == "InvalidParameterCombination"
    assert unsupported_image("g5.xlarge", dlami, ["x86_64"]) is None
    assert unsupported_image("c5.large", dlami, ["x86_64"]) is None
    none = unsupported_image("g5.xlarge", AL2023.split("/"), ["x86_64"])
    assert none is not None
    assert (none.code, none.message) == (old.code, "The image has no driver for the GPU of g5.xlarge.")


def test_a_disk_is_no_smaller_than_its_snapshot() -> None:
    dlami = ["", "aws", "service", "deeplearning", "ami", "x86_64", "base-oss-nvidia-driver-gpu", "latest"]
    small = small_disk(dlami, 74)
    assert small is not None
    assert (small.code, small.message.partition("'")[0]) == (
        "InvalidBlockDeviceMapping",
        "Volume of size 74GB is smaller than snapshot ",
    )
    assert small_disk(AL2023.split("/"), 7) is not None
    for image, gib in ((dlami, 75), (dlami, None), (AL2023.split("/"), 8), ([], 1)):
        assert small_disk(image, gib) is None


def test_a_launch_onto_a_small_disk_is_refused(make_aws: Callable[..., Aws]) -> None:
    """The disk is the template's or the override's; the image may be made of an instance."""
    aws = make_aws(account=QUICK, catalog=WIDER)
    image = aws.client("ssm").get_parameter(Name=AL2023)["Parameter"]["Value"]

    def disk(gib: int) -> list[dict[str, Any]]:
        return [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": gib}}]

    lt = template(aws, ImageId=image, BlockDeviceMappings=disk(7))
    answer = fleet(aws, lt, 1, LARGE_A, spot=False)
    assert (ids(answer), answer["Errors"][0]["ErrorCode"]) == ([], "InvalidBlockDeviceMapping")
    own_disk = {**LARGE_A, "BlockDeviceMappings": disk(8)}
    (builder,) = ids(fleet(aws, lt, 1, own_disk, spot=False, token="u"))
    baked = aws.client("ec2").create_image(InstanceId=builder, Name="baked")["ImageId"]
    with pytest.raises(ClientError) as error:
        run(aws, ImageId=baked, BlockDeviceMappings=disk(7))
    assert refused(error) == "InvalidBlockDeviceMapping"
    assert run(aws, ImageId=baked, BlockDeviceMappings=disk(9))


def test_an_image_for_other_processors_is_refused(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK, catalog=WIDER)
    image = aws.client("ssm").get_parameter(Name=AL2023_ARM)["Parameter"]["Value"]
    lt = template(aws, ImageId=image)
    answer = fleet(aws, lt, 1, LARGE_A, spot=False)
    assert (ids(answer), answer["Errors"][0]["ErrorCode"]) == ([], "InvalidParameterValue")
    assert len(ids(fleet(aws, lt, 1, {"InstanceType": "c7g.large"}, token="u", spot=False))) == 1
    own_image = {**LARGE_A, "ImageId": "ami-12c6146b"}  # the override's image beats the template's
    assert len(ids(fleet(aws, lt, 1, own_image, token="v", spot=False))) == 1


def test_types_of_two_platforms_are_launched_by_one_call(make_aws: Callable[..., Aws]) -> None:
    """Each boots from its own template, by priority; with the other's template it is refused."""
    aws = make_aws(account=QUICK, catalog=WIDER, capacity={"c7g.large/on-demand": 1})
    images = {name: aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"] for name in (AL2023, AL2023_ARM)}
    x86, arm = template(aws, ImageId=images[AL2023]), template(aws, "arm", ImageId=images[AL2023_ARM])

    def asked(lt: str, instance: str, priority: float) -> dict[str, Any]:
        pool = {"InstanceType": instance, "AvailabilityZone": "us-east-1a", "Priority": priority}
        return {
            "LaunchTemplateSpecification": {"LaunchTemplateId": lt, "Version": "$Latest"},
            "Overrides": [pool],
        }

    def launched(*configs: dict[str, Any]) -> Any:
        return aws.client("ec2").create_fleet(
            Type="instant",
            LaunchTemplateConfigs=list(configs),
            TargetCapacitySpecification={"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "on-demand"},
            OnDemandOptions={"AllocationStrategy": "prioritized"},
        )

    answer = launched(asked(x86, "c5.large", 1.0), asked(arm, "c7g.large", 0.0))
    there = {one["InstanceId"]: one for one in aws.instances()}
    assert {there[id]["InstanceType"]: there[id]["ImageId"] for id in ids(answer)} == {
        "c7g.large": images[AL2023_ARM],
        "c5.large": images[AL2023],
    }
    mixed_up = launched(asked(arm, "c5.large", 0.0), asked(x86, "c7g.large", 0.0))
    assert (ids(mixed_up), {one["ErrorCode"] for one in mixed_up["Errors"]}) == ([], {"InvalidParameterValue"})


# Speed


def test_a_fleet_takes_its_time() -> None:
    times = [STRICT.latency_s(7, nth) for nth in range(200)]
    assert times == [STRICT.latency_s(7, nth) for nth in range(200)]
    assert 1.0 <= min(times) < 2.0
    assert 14.0 < max(times) <= 15.0
    assert CloudAccount().latency_s(7, 1) == 0.0


def test_a_fleet_is_answered_when_its_time_is_over(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=STRICT, time_scale=100.0, seed=3)
    lt = template(aws)
    began_s = time.monotonic()
    assert len(ids(fleet(aws, lt, 1, LARGE_A, spot=False))) == 1
    assert time.monotonic() - began_s >= STRICT.latency_s(3, 1) / 100.0


def asked(throttle: Throttle, action: str, count: int, service: str = "ec2", at_s: float = 0.0, **how: Any) -> int:
    """Return how many of `count` calls are answered."""
    return sum(throttle.refusal(service, action, at_s, **how) is None for _ in range(count))


@pytest.mark.parametrize(
    ("service", "action", "how", "capacity", "per_s"),
    [
        ("ec2", "DescribeInstances", {}, 100, 20.0),
        ("ec2", "DescribeInstances", {"whole": True}, 50, 10.0),
        ("ec2", "DescribeSpotPriceHistory", {"whole": True}, 100, 20.0),
        ("ec2", "RunInstances", {"instances": 1}, 5, 2.0),
        ("ec2", "RunInstances", {"instances": 500}, 2, 0.0),
        ("ec2", "StartInstances", {"instances": 1}, 5, 2.0),
        ("ec2", "TerminateInstances", {"instances": 1}, 100, 5.0),
        ("ec2", "CreateFleet", {"instances": 1}, 50, 5.0),
        ("ec2", "CreateTags", {}, 100, 10.0),
        ("ec2", "CreateVpcEndpoint", {}, 4, 0.3),
        ("elasticloadbalancing", "DescribeTargetHealth", {}, 40, 10.0),
        ("elasticloadbalancing", "RegisterTargets", {}, 20, 4.0),
        ("elasticloadbalancing", "ModifyListener", {}, 20, 3.0),
        ("elasticloadbalancing", "CreateLoadBalancer", {}, 10, 0.2),
    ],
)
def test_buckets_are_as_deep_as_documented(
    service: str, action: str, how: dict[str, Any], capacity: int, per_s: float
) -> None:
    throttle = Throttle()
    assert asked(throttle, action, 200, service, **how) == capacity
    assert asked(throttle, action, 200, service, at_s=10.0, **how) == min(capacity, int(per_s * 10.0))


def test_buckets_are_apart_and_refused_calls_cost_nothing() -> None:
    throttle = Throttle()
    asked(throttle, "RunInstances", 50, instances=1)
    assert asked(throttle, "StartInstances", 1, instances=1) == 1
    assert asked(throttle, "DescribeInstances", 1) == 1
    assert asked(throttle, "RunInstances", 1, at_s=0.5, instances=1) == 1  # the 45 refused ones took no token
    assert asked(throttle, "PutItem", 1000, "dynamodb") == 1000
    # All actions of a load balancer also share one bucket of 40.
    assert asked(throttle, "DescribeRules", 39, "elasticloadbalancing") == 39
    assert asked(throttle, "RegisterTargets", 5, "elasticloadbalancing") == 1


def test_a_client_that_asks_too_often_is_told_so(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    ec2 = aws.client("ec2")
    for _ in range(5):
        run(aws)
    with pytest.raises(ClientError) as error:
        run(aws)
    assert refused(error) == "RequestLimitExceeded"
    aws.time.s += 1.0  # two more tokens
    run(aws)
    assert len(aws.instances()) == 6
    assert len(ec2.describe_volumes()["Volumes"]) == 6  # other calls have buckets of their own


# Size


class Stock:
    """A cloud with as many resources as its fields say."""

    def __init__(self, unzipped: int | None = None, rules: int = 0, groups: int = 0, targets: int = 0) -> None:
        self._unzipped, self._rules, self._groups, self._targets = unzipped, rules, groups, targets

    def unzipped_bytes(self, bucket: str, key: str) -> int | None:
        return self._unzipped

    def rules(self, listener_arn: str) -> int:
        return self._rules

    def target_groups(self, listener_arn: str) -> frozenset[str]:
        return frozenset(map(str, range(self._groups)))

    def targets(self, group_arn: str) -> int:
        return self._targets


def data(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


FORWARD = {"ListenerArn": "l", "Actions.member.1.TargetGroupArn": "new"}
ONE_TARGET = {"TargetGroupArn": "g", "Targets.member.1.Id": "i-1"}
SIZES: list[tuple[str, str, dict[str, Any], Stock, str | None]] = [
    ("ec2", "RunInstances", {"UserData": data(16_384)}, Stock(), None),
    ("ec2", "RunInstances", {"UserData": data(16_385)}, Stock(), "InvalidParameterValue"),
    ("ec2", "CreateLaunchTemplate", {"LaunchTemplateData.UserData": data(16_385)}, Stock(), "InvalidParameterValue"),
    ("ec2", "CreateLaunchTemplateVersion", {"LaunchTemplateData.UserData": data(9)}, Stock(), None),
    ("ssm", "PutParameter", {"Value": "x" * 4096}, Stock(), None),
    ("ssm", "PutParameter", {"Value": "x" * 4097}, Stock(), "ValidationException"),
    ("ssm", "PutParameter", {"Value": "x" * 4097, "Tier": "Advanced"}, Stock(), None),
    ("ssm", "PutParameter", {"Value": "x" * 8193, "Tier": "Advanced"}, Stock(), "ValidationException"),
    ("lambda", "CreateFunction", {"Code": {"S3Key": "k"}}, Stock(250 * 1024**2), None),
    ("lambda", "CreateFunction", {"Code": {"S3Key": "k"}}, Stock(250 * 1024**2 + 1), "InvalidParameterValueException"),
    ("lambda", "UpdateFunctionCode", {"S3Key": "k"}, Stock(250 * 1024**2 + 1), "InvalidParameterValueException"),
    ("elasticloadbalancing", "CreateRule", FORWARD, Stock(rules=RULES_PER_BALANCER - 1), None),
    ("elasticloadbalancing", "CreateRule", FORWARD, Stock(rules=RULES_PER_BALANCER), "TooManyRules"),
    ("elasticloadbalancing", "CreateRule", FORWARD, Stock(groups=99), None),
    *(
        ("elasticloadbalancing", action, FORWARD, Stock(groups=100), "TooManyUniqueTargetGroupsPerLoadBalancer")
        for action in ("CreateRule", "ModifyRule", "ModifyListener")
    ),
    ("elasticloadbalancing", "RegisterTargets", ONE_TARGET, Stock(targets=TARGETS_PER_BALANCER - 1), None),
    ("elasticloadbalancing", "RegisterTargets", ONE_TARGET, Stock(targets=TARGETS_PER_BALANCER), "TooManyTargets"),
    ("dynamodb", "PutItem", {"Item": "x" * 9_999}, Stock(), None),
]


@pytest.mark.parametrize(("service", "action", "parameters", "stock", "code"), SIZES)
def test_what_is_too_large_is_refused(
    service: str, action: str, parameters: dict[str, Any], stock: Stock, code: str | None
) -> None:
    said = too_large(AwsRequest(service, action, parameters), stock)
    assert (None if said is None else said.code) == code


def test_too_large_a_package_is_refused_by_itself() -> None:
    said = too_large(AwsRequest("lambda", "CreateFunction", {"Code": {"ZipFile": "x" * 70_000_000}}), Stock())
    assert said is not None
    assert (said.code, said.status) == ("RequestEntityTooLargeException", 413)


def test_too_much_user_data_never_reaches_a_template(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    with pytest.raises(ClientError) as error:
        template(aws, UserData=data(16_385))
    assert refused(error) == "InvalidParameterValue"
    template(aws, UserData=data(16_384))


def test_a_balancer_takes_a_hundred_rules(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    ec2, elb = aws.client("ec2"), aws.client("elbv2")
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"][:2]]
    balancer = elb.create_load_balancer(Name="mark", Subnets=subnets)["LoadBalancers"][0]["LoadBalancerArn"]
    group = elb.create_target_group(Name="a", Protocol="HTTP", Port=80, VpcId=vpc)["TargetGroups"][0]["TargetGroupArn"]
    forward = [{"Type": "forward", "TargetGroupArn": group}]
    listener = elb.create_listener(LoadBalancerArn=balancer, Protocol="HTTP", Port=80, DefaultActions=forward)
    arn = listener["Listeners"][0]["ListenerArn"]
    for number in range(1, 102):
        aws.time.s += 1.0
        path = [{"Field": "path-pattern", "Values": [f"/{number}"]}]
        if number <= 100:
            elb.create_rule(ListenerArn=arn, Priority=number, Conditions=path, Actions=forward)
            continue
        with pytest.raises(ClientError) as error:
            elb.create_rule(ListenerArn=arn, Priority=number, Conditions=path, Actions=forward)
        assert refused(error) == "TooManyRules"


# Features that moto lacks


def test_a_balancer_that_is_asked_for_again_is_the_same(aws: Aws) -> None:
    """The first answer was lost; with other settings the name is taken."""
    ec2, elb = aws.client("ec2"), aws.client("elbv2")
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"][:3]]
    first, again = (elb.create_load_balancer(Name="mark", Subnets=subnets[:2])["LoadBalancers"] for _ in range(2))
    assert first[0]["LoadBalancerArn"] == again[0]["LoadBalancerArn"]
    for others in ({"Subnets": subnets[1:]}, {"Subnets": subnets[:2], "Scheme": "internal"}):
        with pytest.raises(ClientError) as error:
            elb.create_load_balancer(Name="mark", **others)
        assert refused(error) == "DuplicateLoadBalancerName"
    elb.create_load_balancer(Name="mark-1", Subnets=subnets[:2])
    assert [one["LoadBalancerName"] for one in elb.describe_load_balancers()["LoadBalancers"]] == ["mark", "mark-1"]


def test_an_experiment_interrupts_the_instances_it_names(aws: Aws) -> None:
    market = {"InstanceMarketOptions": {"MarketType": "spot"}, "Placement": {"AvailabilityZone": "us-east-1a"}}
    victim, other = run(aws, MaxCount=2, **market)
    aws.pass_s(120.0)
    fis, arn = aws.client("fis"), "arn:aws:ec2:us-east-1:123456789012:instance/"
    target = {"resourceType": "aws:ec2:spot-instance", "resourceArns": [arn + victim], "selectionMode": "ALL"}
    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": "PT2M"},
        "targets": {"SpotInstances": "spot"},
    }
    made = fis.create_experiment_template(
        clientToken="t", description="d", roleArn="arn:aws:iam::123456789012:role/fis",
        stopConditions=[{"source": "none"}], targets={"spot": target}, actions={"interrupt": action},
    )  # fmt: skip
    fis.start_experiment(clientToken="u", experimentTemplateId=made["experimentTemplate"]["id"])
    aws.pass_s(119.0)
    assert {aws.state(victim), aws.state(other)} == {"running"}
    aws.pass_s(2.0)
    assert (aws.state(victim), aws.state(other)) == ("shutting-down", "running")


def test_tags_of_a_template_are_those_it_has_now(aws: Aws) -> None:
    lt, ec2 = template(aws), aws.client("ec2")
    ec2.create_tags(Resources=[lt], Tags=[{"Key": "mark:site", "Value": "mark"}])
    described = ec2.describe_launch_templates(LaunchTemplateIds=[lt])["LaunchTemplates"][0]
    assert described["Tags"] == [{"Key": "mark:site", "Value": "mark"}]


def test_a_template_that_is_gone_is_known_by_its_id(aws: Aws) -> None:
    lt, ec2 = template(aws), aws.client("ec2")
    ec2.delete_launch_template(LaunchTemplateId=lt)
    with pytest.raises(ClientError) as error:
        ec2.delete_launch_template(LaunchTemplateId=lt)
    assert refused(error) == "InvalidLaunchTemplateId.NotFound"


def test_a_group_of_instances_may_be_refreshed(aws: Aws) -> None:
    groups = aws.client("autoscaling")
    groups.create_auto_scaling_group(
        AutoScalingGroupName="controller", MinSize=0, MaxSize=0, AvailabilityZones=["us-east-1a"],
        LaunchTemplate={"LaunchTemplateId": template(aws)},
    )  # fmt: skip
    made = groups.start_instance_refresh(AutoScalingGroupName="controller")["InstanceRefreshId"]
    (one,) = groups.describe_instance_refreshes(AutoScalingGroupName="controller")["InstanceRefreshes"]
    assert (one["InstanceRefreshId"], one["Status"]) == (made, "Successful")
    (group,) = groups.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["CapacityReservationSpecification"] == {"CapacityReservationPreference": "default"}


def test_a_token_makes_one_template(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    what = {"LaunchTemplateName": "one", "LaunchTemplateData": {"ImageId": "ami-12c6146b"}}
    first = ec2.create_launch_template(**what, ClientToken="t")["LaunchTemplate"]
    assert ec2.create_launch_template(**what, ClientToken="t")["LaunchTemplate"] == first
    with pytest.raises(ClientError) as error:
        ec2.create_launch_template(**what, ClientToken="u")
    assert refused(error).startswith("InvalidLaunchTemplateName.AlreadyExists")
