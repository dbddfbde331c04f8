"""The deployer may make the calls of Terraform and of the command for its own site, and no others."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import mark_infra
from mark_infra.deploy.deployer import deployer_policies, partition_of

from tests.terraform.conftest import MODULES

MANAGED = 6144  # AWS's limit for a customer managed policy: characters without blanks
# The provider's calls to make, read, change and delete each kind of resource, by IAM's names.
NEEDED = {
    "aws_autoscaling_group": "autoscaling:CreateAutoScalingGroup UpdateAutoScalingGroup DeleteAutoScalingGroup "
    "DescribeAutoScalingGroups StartInstanceRefresh CreateOrUpdateTags ec2:RunInstances iam:PassRole "
    "iam:CreateServiceLinkedRole",
    "aws_availability_zones": "ec2:DescribeAvailabilityZones",
    "aws_budgets_budget": "budgets:ViewBudget ModifyBudget",
    "aws_caller_identity": "sts:GetCallerIdentity",
    "aws_cloudwatch_event_rule": "events:PutRule DescribeRule DeleteRule ListTagsForResource TagResource",
    "aws_cloudwatch_event_target": "events:PutTargets ListTargetsByRule RemoveTargets",
    "aws_cloudwatch_log_group": "logs:CreateLogGroup DescribeLogGroups PutRetentionPolicy DeleteLogGroup "
    "ListTagsForResource TagResource",
    "aws_cloudwatch_metric_alarm": "cloudwatch:PutMetricAlarm DescribeAlarms DeleteAlarms ListTagsForResource "
    "TagResource",
    "aws_default_security_group": "ec2:DescribeSecurityGroups RevokeSecurityGroupIngress RevokeSecurityGroupEgress "
    "CreateTags",
    "aws_dynamodb_table": "dynamodb:CreateTable DescribeTable UpdateTable DeleteTable DescribeTimeToLive "
    "UpdateTimeToLive DescribeContinuousBackups UpdateContinuousBackups ListTagsOfResource TagResource",
    "aws_eip": "ec2:AllocateAddress DescribeAddresses ReleaseAddress DisassociateAddress CreateTags",
    "aws_iam_instance_profile": "iam:CreateInstanceProfile GetInstanceProfile AddRoleToInstanceProfile "
    "RemoveRoleFromInstanceProfile DeleteInstanceProfile TagInstanceProfile",
    "aws_iam_role": "iam:CreateRole GetRole UpdateAssumeRolePolicy ListRolePolicies ListAttachedRolePolicies "
    "ListInstanceProfilesForRole DeleteRole TagRole",
    "aws_iam_role_policy": "iam:PutRolePolicy GetRolePolicy DeleteRolePolicy",
    "aws_internet_gateway": "ec2:CreateInternetGateway AttachInternetGateway DescribeInternetGateways "
    "DetachInternetGateway DeleteInternetGateway CreateTags",
    "aws_lambda_alias": "lambda:CreateAlias GetAlias UpdateAlias DeleteAlias",
    "aws_lambda_function": "lambda:CreateFunction GetFunction GetFunctionConfiguration GetFunctionCodeSigningConfig "
    "ListVersionsByFunction UpdateFunctionCode UpdateFunctionConfiguration PublishVersion PutFunctionConcurrency "
    "DeleteFunctionConcurrency DeleteFunction ListTags TagResource iam:PassRole s3:GetObjectVersion",
    "aws_lambda_permission": "lambda:AddPermission GetPolicy RemovePermission",
    "aws_launch_template": "ec2:CreateLaunchTemplate CreateLaunchTemplateVersion ModifyLaunchTemplate "
    "DescribeLaunchTemplates DescribeLaunchTemplateVersions DeleteLaunchTemplate CreateTags",
    "aws_lb": "elasticloadbalancing:CreateLoadBalancer DescribeLoadBalancers DescribeLoadBalancerAttributes "
    "ModifyLoadBalancerAttributes SetSecurityGroups SetSubnets DeleteLoadBalancer DescribeTags AddTags "
    "iam:CreateServiceLinkedRole ec2:DescribeNetworkInterfaces",
    "aws_lb_listener": "elasticloadbalancing:CreateListener DescribeListeners ModifyListener DeleteListener AddTags",
    "aws_lb_listener_rule": "elasticloadbalancing:CreateRule DescribeRules ModifyRule SetRulePriorities DeleteRule",
    "aws_lb_target_group": "elasticloadbalancing:CreateTargetGroup DescribeTargetGroups ModifyTargetGroup "
    "DescribeTargetGroupAttributes ModifyTargetGroupAttributes DeleteTargetGroup AddTags",
    "aws_lb_target_group_attachment": "elasticloadbalancing:RegisterTargets DeregisterTargets DescribeTargetHealth",
    "aws_nat_gateway": "ec2:CreateNatGateway DescribeNatGateways DeleteNatGateway CreateTags",
    "aws_partition": "",
    "aws_route": "ec2:CreateRoute DescribeRouteTables ReplaceRoute DeleteRoute",
    "aws_route53_record": "route53:ChangeResourceRecordSets GetChange GetHostedZone ListResourceRecordSets",
    "aws_route_table": "ec2:CreateRouteTable DescribeRouteTables DeleteRouteTable CreateTags",
    "aws_route_table_association": "ec2:AssociateRouteTable DisassociateRouteTable",
    "aws_s3_bucket": "s3:CreateBucket DeleteBucket ListBucket ListBucketVersions GetBucketAcl GetBucketCORS "
    "GetBucketLogging GetBucketObjectLockConfiguration GetBucketPolicy GetBucketRequestPayment GetBucketTagging "
    "GetBucketVersioning GetBucketWebsite GetAccelerateConfiguration GetEncryptionConfiguration "
    "GetLifecycleConfiguration GetReplicationConfiguration PutBucketTagging DeleteObject DeleteObjectVersion",
    "aws_s3_bucket_lifecycle_configuration": "s3:GetLifecycleConfiguration PutLifecycleConfiguration",
    "aws_s3_bucket_policy": "s3:GetBucketPolicy PutBucketPolicy DeleteBucketPolicy",
    "aws_s3_bucket_public_access_block": "s3:GetBucketPublicAccessBlock PutBucketPublicAccessBlock",
    "aws_s3_bucket_server_side_encryption_configuration": "s3:GetEncryptionConfiguration PutEncryptionConfiguration",
    "aws_s3_bucket_versioning": "s3:GetBucketVersioning PutBucketVersioning",
    "aws_s3_object": "s3:PutObject GetObject GetObjectVersion GetObjectTagging PutObjectTagging DeleteObject "
    "DeleteObjectVersion ListBucketVersions AbortMultipartUpload",
    "aws_security_group": "ec2:CreateSecurityGroup DescribeSecurityGroups RevokeSecurityGroupEgress "
    "DeleteSecurityGroup CreateTags",
    "aws_sns_topic": "sns:CreateTopic GetTopicAttributes SetTopicAttributes DeleteTopic ListTagsForResource "
    "TagResource",
    "aws_sns_topic_subscription": "sns:Subscribe GetSubscriptionAttributes Unsubscribe",
    "aws_sqs_queue": "sqs:CreateQueue GetQueueAttributes SetQueueAttributes DeleteQueue ListQueueTags TagQueue",
    "aws_sqs_queue_policy": "sqs:GetQueueAttributes SetQueueAttributes",
    "aws_ssm_parameter": "ssm:PutParameter GetParameter DescribeParameters DeleteParameter ListTagsForResource "
    "AddTagsToResource",
    "aws_subnet": "ec2:CreateSubnet DescribeSubnets ModifySubnetAttribute DeleteSubnet CreateTags",
    "aws_vpc": "ec2:CreateVpc DescribeVpcs DescribeVpcAttribute ModifyVpcAttribute DeleteVpc CreateTags",
    "aws_vpc_endpoint": "ec2:CreateVpcEndpoint DescribeVpcEndpoints ModifyVpcEndpoint DeleteVpcEndpoints "
    "DescribePrefixLists CreateTags",
    "aws_vpc_security_group_egress_rule": "ec2:AuthorizeSecurityGroupEgress DescribeSecurityGroupRules "
    "ModifySecurityGroupRules RevokeSecurityGroupEgress",
    "aws_vpc_security_group_ingress_rule": "ec2:AuthorizeSecurityGroupIngress DescribeSecurityGroupRules "
    "ModifySecurityGroupRules RevokeSecurityGroupIngress",
}
# Our own calls, in the modules that run where mark deploy runs.
OURS = ["deploy/*.py", "aws/machine_images.py", "aws/teardown.py", "aws/termination.py", "aws/key_parameter.py"]
CALL = re.compile(
    r"""client\("(?P<client>[a-z0-9]+)"\)\.(?P<method>[a-z][a-z0-9_]+)|\b(?P<name>s3|ssm|ec2|quotas|tagging)\.(?P<by_name>[a-z]+_[a-z0-9_]+)\b"""
)
SERVICES = {"quotas": "servicequotas", "tagging": "tag", "service-quotas": "servicequotas"}
OTHERWISE = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "servicequotas:GetAwsDefaultServiceQuota": "servicequotas:GetAWSDefaultServiceQuota",
}
# Calls of SiteReleases through the controller's store.
STORE = {f"dynamodb:{name}Item" for name in ("ConditionCheck", "Delete", "Get", "Put", "Update")} | {"dynamodb:Query"}
UNNAMED = "Subscriptions"  # AWS cannot name one for changing or ending it, so a name in the policy would deny it
# Read-only actions on kinds of resources that AWS lets no policy narrow.
READING = re.compile(r"[a-z0-9]+:(Describe|Get|List)[A-Za-z]*\*?")


def policies(bucket: str | None = "states", zone: str | None = "Zmark") -> dict[str, Any]:
    options = {"state_bucket": bucket, "hosted_zone": zone, "domain": None if zone is None else "models.example.org"}
    return deployer_policies("mark", "eu-west-1", "123456789012", **options)


def statements() -> list[dict[str, Any]]:
    return [one for policy in policies().values() for one in policy["Statement"]]


def actions(statement: dict[str, Any]) -> list[str]:
    found: str | list[str] = statement["Action"]
    return [found] if isinstance(found, str) else found


def allowed(action: str) -> bool:
    return any(fnmatchcase(action, pattern) for one in statements() for pattern in actions(one))


def used() -> set[str]:
    kinds = {
        kind
        for file in MODULES.rglob("*.tf")
        if ".terraform" not in file.parts
        for kind in re.findall(r'^(?:resource|data) "(aws_\w+)"', file.read_text(encoding="utf-8"), re.M)
    }
    assert kinds <= NEEDED.keys(), "say here what it needs"
    found: set[str] = set()
    for kind in kinds:
        service = ""
        for word in NEEDED[kind].split():
            service, _, action = word.rpartition(":") if ":" in word else (service, "", word)
            found.add(f"{service}:{action}")
    return found


def called() -> set[str]:
    found: set[str] = set()
    source = Path(mark_infra.__file__).parent
    for file in (file for pattern in OURS for file in source.glob(pattern)):
        for call in CALL.finditer(file.read_text(encoding="utf-8")):
            service, method = call["client"] or call["name"], call["method"] or call["by_name"]
            name = f"{SERVICES.get(service, service)}:{''.join(part.capitalize() for part in method.split('_'))}"
            found.add(OTHERWISE.get(name, name))
    return found


def test_the_scan_sees_our_own_calls() -> None:
    assert {"ssm:PutParameter", "s3:ListBucket", "ec2:TerminateInstances", "sts:GetCallerIdentity"} <= called()
    assert {"ec2:CreateImage", "ec2:DeregisterImage", "ec2:RunInstances", "logs:GetLogEvents"} <= called()


def test_the_deployer_may_do_all_that_is_called() -> None:
    assert sorted(action for action in used() | called() | STORE if not allowed(action)) == []


def test_no_statement_allows_everything() -> None:
    for one in statements():
        assert set(one) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        for action in actions(one):
            assert not re.fullmatch(r"\*|[a-z0-9]+:\*", action), action
        if one["Resource"] == "*" and one["Sid"] != UNNAMED:
            assert all(READING.fullmatch(action) for action in actions(one)), one["Sid"]


def test_what_is_changed_is_the_sites_by_name_or_tag() -> None:
    for one in statements():
        if all(READING.fullmatch(action) for action in actions(one)) or one["Sid"] == UNNAMED:
            continue
        tags = one.get("Condition", {}).get("StringEquals", {})
        by_tag = any(key.endswith(("/mark:site", "/mark:controller", "/mark:conductor")) for key in tags)
        resources = [one["Resource"]] if isinstance(one["Resource"], str) else one["Resource"]
        by_name = all("mark" in resource or "states" in resource for resource in resources)
        # AWS names its own roles, and a template names the instances that it launches.
        assert by_tag or by_name or one["Sid"] in ("AmazonsOwnRoles", "LaunchTheController"), one["Sid"]


def test_tags_are_given_by_conditions_that_aws_knows() -> None:
    """The Service Authorization Reference lists no template among the conditions of ec2:CreateTags."""
    known = re.compile(r"aws:(RequestTag|ResourceTag)/mark:(site|controller|conductor)|ec2:CreateAction")
    for one in statements():
        if "ec2:CreateTags" in actions(one):
            keys = [key for tests in one["Condition"].values() for key in tests]
            assert [key for key in keys if not known.fullmatch(key)] == [], one["Sid"]
            assert any("mark:" in key for key in keys), one["Sid"]


def test_each_policy_is_short_enough_for_the_longest_names() -> None:
    longest = deployer_policies(
        "m" * 20, "us-gov-west-1", "1" * 12, state_bucket="b" * 63, hosted_zone="Z" * 32, domain="d" * 253
    )
    for name, policy in longest.items():
        assert len(json.dumps(policy, separators=(",", ":"))) <= MANAGED, name
    assert "${" not in json.dumps(longest)


def test_what_is_not_named_is_not_opened() -> None:
    def of_others(state: dict[str, Any]) -> set[str]:
        names = {one["Sid"] for one in state["Statement"]}
        return {name for name in names if name.startswith(("TerraformsState", "Domain"))} - {"DomainsChange"}

    both = {"TerraformsState", "TerraformsStateFiles", "Domain", "DomainsZone"}
    assert of_others(policies()["state"]) == both
    assert of_others(policies(None)["state"]) == {"Domain", "DomainsZone"}
    assert of_others(policies(None, None)["state"]) == set()
    assert partition_of("us-gov-west-1") == "aws-us-gov"
    assert partition_of("cn-north-1") == "aws-cn"
    assert partition_of("eu-central-1") == "aws"
