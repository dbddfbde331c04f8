"""Launching over EC2's API, where moto lacks features or is wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.domain.offer import Catalog
from tests.infra.testbed.cloud_fakes import ON_DEMAND, SPOT_A, SPOT_B
from tests.infra.testbed.conftest import Aws

LARGE_A = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1a"}
LARGE_B = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1b"}


def template(aws: Aws, name: str = "test", **data: Any) -> str:
    made = aws.client("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "c5.large", **data}
    )
    return str(made["LaunchTemplate"]["LaunchTemplateId"])


def fleet(
    aws: Aws, lt: str, count: int, *pools: dict[str, Any], token: str = "t", spot: bool = True, **how: Any
) -> Any:
    return aws.client("ec2").create_fleet(
        Type="instant",
        ClientToken=token,
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": lt, "Version": "$Latest"},
                "Overrides": list(pools or (LARGE_A, LARGE_B)),
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        **({"SpotOptions": how} if spot else {"OnDemandOptions": how}),
    )


def ids(answer: Any) -> list[str]:
    return [instance_id for part in answer["Instances"] for instance_id in part["InstanceIds"]]


def run(aws: Aws, **what: Any) -> list[str]:
    what = {"ImageId": "ami-12c6146b", "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1, **what}
    return [instance["InstanceId"] for instance in aws.client("ec2").run_instances(**what)["Instances"]]


def refused(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_as_many_as_may_be_are_launched(make_aws: Callable[..., Aws]) -> None:
    """As many as capacity allows, up to MaxCount; none if that is less than MinCount."""
    aws = make_aws(capacity={ON_DEMAND.name: 3})
    assert len(run(aws, MinCount=1, MaxCount=2)) == 2
    with pytest.raises(ClientError) as error:
        run(aws, MinCount=2, MaxCount=5)
    assert refused(error) == "InsufficientInstanceCapacity"
    assert len(run(aws, MinCount=1, MaxCount=5)) == 1
    assert len(aws.instances()) == 3


def test_a_token_launches_once(aws: Aws) -> None:
    """The same token and parameters give the same instances, other parameters a mismatch. A token is one action's."""
    first = run(aws, ClientToken="t", MaxCount=2)
    assert run(aws, ClientToken="t", MaxCount=2) == first
    with pytest.raises(ClientError) as error:
        run(aws, ClientToken="t", MaxCount=1)
    assert refused(error) == "IdempotentParameterMismatch"
    lt = template(aws)
    made = fleet(aws, lt, 2, token="t")
    assert ids(fleet(aws, lt, 2, token="t")) == ids(made)
    with pytest.raises(ClientError) as error:
        fleet(aws, lt, 3, token="t")
    assert refused(error) == "IdempotentParameterMismatch"
    assert ids(fleet(aws, lt, 2, token="u")) != ids(made)
    assert len(aws.instances()) == 6


def test_a_refused_launch_does_not_use_up_its_token(make_aws: Callable[..., Aws]) -> None:
    """The same call succeeds once there is capacity."""
    aws = make_aws(capacity={ON_DEMAND.name: 0})
    with pytest.raises(ClientError):
        run(aws, ClientToken="t")
    aws.cloud.set_capacity(ON_DEMAND.name, 1)
    assert len(run(aws, ClientToken="t")) == 1


def test_what_the_catalogue_does_not_sell_is_refused(aws: Aws) -> None:
    """The type is unknown, not sold as spot, or not sold in that zone."""
    for type_, spot, zone, code in (
        ("c5.gigantic", False, "us-east-1a", "InvalidParameterValue"),
        ("c5.xlarge", True, "us-east-1a", "Unsupported"),
        ("c5.large", True, "us-east-1c", "Unsupported"),
    ):
        market = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
        with pytest.raises(ClientError) as error:
            run(aws, InstanceType=type_, Placement={"AvailabilityZone": zone}, **market)
        assert refused(error) == code
    assert aws.instances() == []


def test_all_of_the_launch_template_is_applied(aws: Aws) -> None:
    """Market, metadata options, profile, user data and type are applied; moto leaves the first three out."""
    iam = aws.client("iam")
    iam.create_instance_profile(InstanceProfileName="bouncer")
    lt = template(
        aws,
        InstanceMarketOptions={"MarketType": "spot"},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        IamInstanceProfile={"Name": "bouncer"},
        UserData=base64.b64encode(b"hello").decode(),
    )
    ec2 = aws.client("ec2")
    made = ec2.run_instances(LaunchTemplate={"LaunchTemplateId": lt}, MinCount=2, MaxCount=2)["Instances"]
    made = [aws.instance(instance["InstanceId"]) for instance in made]
    made += [aws.instance(ids(fleet(aws, lt, 1))[0])]
    for instance in made:
        assert instance["InstanceLifecycle"] == "spot"
        assert instance["InstanceType"] == "c5.large"
        assert instance["MetadataOptions"]["HttpTokens"] == "required"
        assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
        said = ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        assert base64.b64decode(said["UserData"]["Value"]) == b"hello"
    associated = ec2.describe_iam_instance_profile_associations()["IamInstanceProfileAssociations"]
    assert {a["InstanceId"] for a in associated} == {instance["InstanceId"] for instance in made}


def test_a_profile_named_in_the_call_goes_to_all_instances(aws: Aws) -> None:
    """moto gives the profile to the first instance only."""
    aws.client("iam").create_instance_profile(InstanceProfileName="bouncer")
    made = run(aws, MinCount=2, MaxCount=2, IamInstanceProfile={"Name": "bouncer"})
    associated = aws.client("ec2").describe_iam_instance_profile_associations()["IamInstanceProfileAssociations"]
    assert sorted(a["InstanceId"] for a in associated) == sorted(made)


def test_a_fleet_takes_the_cheapest_pool(aws: Aws) -> None:
    """The answer names the chosen override, and the instances have the call's tags."""
    made = fleet(aws, template(aws), 2, AllocationStrategy="price-capacity-optimized")
    (part,) = made["Instances"]
    assert part["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == "us-east-1b"  # SPOT_B is cheaper
    assert part["Lifecycle"] == "spot"
    assert part["InstanceType"] == "c5.large"
    assert len(part["InstanceIds"]) == 2
    assert not made.get("Errors")
    assert {i["Placement"]["AvailabilityZone"] for i in aws.instances(instance_lifecycle=["spot"])} == {"us-east-1b"}


def test_a_fleet_may_be_mixed(aws: Aws) -> None:
    """One call launches on-demand and spot capacity."""
    made = aws.client("ec2").create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {"LaunchTemplateSpecification": {"LaunchTemplateId": template(aws), "Version": "1"}, "Overrides": [LARGE_A]}
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 3,
            "OnDemandTargetCapacity": 1,
            "SpotTargetCapacity": 2,
        },
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "mark:site", "Value": "x"}]}],
    )
    assert {part["Lifecycle"]: len(part["InstanceIds"]) for part in made["Instances"]} == {"on-demand": 1, "spot": 2}
    assert len(aws.instances(**{"tag:mark:site": ["x"]})) == 3
    assert len(aws.instances(instance_lifecycle=["spot"])) == 2


def test_a_short_pool_is_named_and_the_next_one_used(make_aws: Callable[..., Aws]) -> None:
    """Errors name the pools that had nothing or too little. If no pool has capacity there are neither instances nor a
    fault."""
    aws = make_aws(capacity={SPOT_B.name: 1, SPOT_A.name: 1})
    made = fleet(aws, template(aws), 3)
    zones = [part["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] for part in made["Instances"]]
    assert zones == ["us-east-1b", "us-east-1a"]
    assert len(ids(made)) == 2
    assert {error["ErrorCode"] for error in made["Errors"]} == {"InsufficientInstanceCapacity"}
    again = aws.client("ec2").describe_launch_templates()["LaunchTemplates"][0]["LaunchTemplateId"]
    none = fleet(aws, again, 1, token="u")
    assert ids(none) == []
    assert [error["Lifecycle"] for error in none["Errors"]] == ["spot", "spot"]


def test_less_than_the_least_launches_nothing(make_aws: Callable[..., Aws]) -> None:
    """Too few for MinTargetCapacity give none. A pool above its MaxPrice, or one not sold, is left out with the
    reason."""
    aws = make_aws(capacity={SPOT_B.name: 1, SPOT_A.name: 1})
    lt = template(aws)
    assert ids(fleet(aws, lt, 3, SingleInstanceType=True, MinTargetCapacity=3)) == []
    dear = {**LARGE_A, "MaxPrice": "0.001"}
    nowhere = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1c"}
    made = fleet(aws, lt, 1, dear, nowhere, token="u")
    assert ids(made) == []
    assert {e["ErrorCode"] for e in made["Errors"]} == {"SpotMaxPriceTooLow", "InvalidFleetConfiguration"}


def test_priorities_come_before_prices_when_asked(aws: Aws) -> None:
    """On-demand with `prioritized` takes the dearer type first."""
    xlarge = {"InstanceType": "c5.xlarge", "Priority": 1.0}
    large = {"InstanceType": "c5.large", "Priority": 2.0}
    made = fleet(aws, template(aws), 1, large, xlarge, spot=False, AllocationStrategy="prioritized")
    assert made["Instances"][0]["InstanceType"] == "c5.xlarge"
    made = fleet(
        aws,
        aws.client("ec2").describe_launch_templates()["LaunchTemplates"][0]["LaunchTemplateId"],
        1,
        xlarge,
        large,
        spot=False,
        token="u",
        AllocationStrategy="lowest-price",
    )
    assert made["Instances"][0]["InstanceType"] == "c5.large"


def test_a_dry_run_launches_nothing(aws: Aws) -> None:
    """The answer is DryRunOperation, and no token is used."""
    for call in (
        lambda: run(aws, DryRun=True, ClientToken="t"),
        lambda: aws.client("ec2").create_fleet(
            DryRun=True,
            Type="instant",
            LaunchTemplateConfigs=[],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
        ),
    ):
        with pytest.raises(ClientError) as error:
            call()
        assert refused(error) == "DryRunOperation"
    assert aws.instances() == []


def test_types_unknown_to_moto_are_sold_from_the_catalogue(make_aws: Callable[..., Aws]) -> None:
    """p2 has left EC2, and is in the catalogue of 2019."""
    from mark.domain.catalog.tables import load_catalog

    offers = [offer for offer in load_catalog("aws-2019").offers if offer.instance == "p2.xlarge"]
    aws = make_aws(catalog=Catalog("test", tuple(offers), ()))
    (made,) = run(aws, InstanceType="p2.xlarge")
    assert aws.instance(made)["InstanceType"] == "p2.xlarge"
