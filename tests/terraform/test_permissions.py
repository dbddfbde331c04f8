"""The controller may make the calls that its code makes, and no others: policy against source."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import mark_infra
import pytest

from tests.terraform.conftest import MODULES
from tests.terraform.mocked_site import ACCOUNT, APPLIED, REGION, resources

SOURCE = Path(mark_infra.__file__).parent
CALL = re.compile(r"\.(?:call|pages)\(\s*(?!getattr)[\w.()\"\[\], =]+?\.(\w+)\s*[,)]|\b_call\(\s*\"(\w+)\"")
# These modules run at deployment, or in `mark advise --act`, with the rights of a person.
NOT_THE_CONTROLLERS = {"machine_images.py", "teardown.py", "scalable_minimum.py"}
# A call whose actions have other names in IAM (Service Authorization Reference).
OTHERWISE = {
    "DeleteMessageBatch": {"DeleteMessage"},
    "TransactWriteItems": {"PutItem", "ConditionCheckItem"},
}
# No client of ours makes these calls: AWS checks them at a launch, or the machine or its agents make them.
BESIDE = {
    *("RunInstances", "PassRole", "CreateServiceLinkedRole"),
    *("GetObjectVersion", "GetParameter", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"),
    *(
        "UpdateInstanceInformation",
        "CreateControlChannel",
        "CreateDataChannel",
        "OpenControlChannel",
        "OpenDataChannel",
    ),
    "InvokeFunction",  # through aioboto3, without the gate
}


def called() -> set[str]:
    """Return the IAM names of the actions that the source calls."""
    found: set[str] = set()
    for file in [*(SOURCE / "aws").glob("*.py"), SOURCE / "store" / "dynamodb.py"]:
        if file.name in NOT_THE_CONTROLLERS:
            continue
        for names in CALL.findall(file.read_text(encoding="utf-8")):
            name = "".join(part.capitalize() for part in (names[0] or names[1]).split("_"))
            found |= OTHERWISE.get(name, {name})
    return found


def allowed() -> set[str]:
    text = (MODULES / "modules" / "controller" / "main.tf").read_text(encoding="utf-8")
    return set(re.findall(r'"[a-z0-9]+:([A-Z]\w+)"', text)) - {
        *("CreateAction", "PassedToService", "AWSServiceName"),  # condition keys
        "AssumeRole",  # EC2 assumes the role itself
    }


def test_the_scan_sees_the_calls() -> None:
    assert {"CreateFleet", "DescribeInstances", "ReceiveMessage", "UpdateItem", "RegisterTargets"} <= called()


def test_the_controller_may_do_what_it_calls() -> None:
    assert called() <= allowed()


def test_the_controller_may_do_nothing_that_it_does_not_call() -> None:
    assert allowed() - BESIDE <= called()


def test_metrics_go_where_the_policy_lets_them() -> None:
    text = (MODULES / "modules" / "controller" / "main.tf").read_text(encoding="utf-8")
    from mark_infra.aws.cloudwatch import NAMESPACE

    assert f'"cloudwatch:namespace" = "{NAMESPACE}"' in text


EC2, ELB = f"arn:aws:ec2:{REGION}:{ACCOUNT}", f"arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}"
LAMBDA, ROLES = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function", f"arn:aws:iam::{ACCOUNT}:role"
TAG, NEW_TAG = "aws:ResourceTag/mark:site", "aws:RequestTag/mark:site"
TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}
# Of site "mark": resources of its own that it may act on, and resources of a site whose name begins with its name,
# which it may not touch.
ROLE = f"{ROLES}/mark/mark/bouncers/mark-a-bouncer"
TARGETS = ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets")
Thing = tuple[str, dict[str, str]]  # a resource, and the context of the request
# Of site "mark": a resource of its own that it may act on, and one that it may not, also of a site whose name begins
# with its name.
OWN_AND_NOT: list[tuple[str, Thing, Thing]] = [
    (
        "ec2:CreateFleet",
        (f"{EC2}:launch-template/lt-1", {TAG: "mark"}),
        (f"{EC2}:launch-template/lt-1", {TAG: "mark-2"}),
    ),
    ("ec2:CreateFleet", (f"{EC2}:launch-template/lt-1", {TAG: "mark"}), (f"{EC2}:network-interface/*", {})),
    ("ec2:RunInstances", (f"{EC2}:network-interface/*", {}), (f"{EC2}:security-group/sg-other", {})),
    ("ec2:RunInstances", (f"{EC2}:launch-template/lt-1", {TAG: "mark"}), (f"{EC2}:launch-template/lt-1", {})),
    ("ec2:RunInstances", (f"{EC2}:instance/*", {NEW_TAG: "mark"}), (f"{EC2}:instance/*", {NEW_TAG: "mark-2"})),
    ("ec2:RunInstances", (f"{EC2}:volume/*", {NEW_TAG: "mark"}), (f"{EC2}:volume/*", {})),
    ("ec2:TerminateInstances", (f"{EC2}:instance/i-1", {TAG: "mark"}), (f"{EC2}:instance/i-1", {TAG: "mark-2"})),
    ("ec2:CreateTags", (f"{EC2}:instance/i-1", {TAG: "mark"}), (f"{EC2}:instance/i-1", {})),
    (TARGETS[0], (f"{ELB}:targetgroup/mark-a/1", {TAG: "mark"}), (f"{ELB}:targetgroup/mark-a/1", {})),
    (TARGETS[1], (f"{ELB}:targetgroup/mark-a/1", {TAG: "mark"}), (f"{ELB}:targetgroup/mark-2-a/1", {TAG: "mark-2"})),
    (
        "elasticloadbalancing:ModifyRule",
        (f"{ELB}:listener-rule/app/mark/1/2/3", {TAG: "mark"}),
        (f"{ELB}:listener-rule/app/mark/1/2/3", {TAG: "mark-2"}),
    ),
    (
        "elasticloadbalancing:ModifyRule",
        (f"{ELB}:listener-rule/app/mark/1/2/3", {TAG: "mark"}),
        (f"{ELB}:listener-rule/app/other/1/2/3", {}),
    ),
    (
        "lambda:InvokeFunction",
        (f"{LAMBDA}:mark_a-overflow:3", {}),
        (f"{LAMBDA}:mark-2_a-overflow:3", {}),
    ),
    ("lambda:InvokeFunction", (f"{LAMBDA}:mark_a-overflow:3", {}), (f"{LAMBDA}:other:3", {})),
    ("lambda:UpdateAlias", (f"{LAMBDA}:mark_a-overflow", {}), (f"{LAMBDA}:mark-2_a-overflow", {})),
    ("lambda:UpdateAlias", (f"{LAMBDA}:mark_a-overflow", {}), (f"{LAMBDA}:other", {})),
    ("iam:PassRole", (ROLE, TO_EC2), (f"{ROLES}/mark/mark-2/bouncers/mark-2-a-bouncer", TO_EC2)),
    ("iam:PassRole", (ROLE, TO_EC2), (f"{ROLES}/mark-controller", TO_EC2)),
    ("iam:PassRole", (ROLE, TO_EC2), (ROLE, {"iam:PassedToService": "lambda.amazonaws.com"})),
]


def may(policy: dict[str, Any], action: str, resource: str, context: dict[str, str]) -> bool:
    """Decide as IAM does, as far as this policy goes: no denials, patterns with stars, StringEquals."""
    for statement in policy["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow"
        conditions = statement.get("Condition", {"StringEquals": {}})
        assert set(conditions) == {"StringEquals"}
        if (
            action in several(statement["Action"])
            and any(fnmatchcase(resource, pattern) for pattern in several(statement["Resource"]))
            and all(context.get(key) in several(values) for key, values in conditions["StringEquals"].items())
        ):
            return True
    return False


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def controllers_policy(state: dict[str, Any]) -> dict[str, Any]:
    text = resources(state, "aws_iam_role_policy")["module.controller.aws_iam_role_policy.this"]["policy"]
    policy: dict[str, Any] = json.loads(text)
    return policy


@pytest.mark.slow
def test_another_sites_things_are_out_of_reach(applied: dict[str, Any]) -> None:
    policy = controllers_policy(applied)
    for action, own, other in OWN_AND_NOT:
        assert may(policy, action, *own), (action, own)
        assert not may(policy, action, *other), (action, other)


@pytest.mark.slow
def test_rights_reach_what_the_site_really_has(applied: dict[str, Any]) -> None:
    """The resources have the tags and names that the controller's rights require."""
    policy, services = controllers_policy(applied), len(APPLIED)
    for kind, count, action, arn in (
        ("aws_launch_template", services + 1, "ec2:CreateFleet", f"{EC2}:launch-template/{{id}}"),
        ("aws_lb_target_group", 2 * services, "elasticloadbalancing:RegisterTargets", f"{ELB}:targetgroup/{{name}}/1"),
        (
            "aws_lb_listener_rule",
            2 * services + 1,
            "elasticloadbalancing:ModifyRule",
            f"{ELB}:listener-rule/app/mark/1/2/3",
        ),
        ("aws_lambda_function", services, "lambda:InvokeFunction", f"{LAMBDA}:{{function_name}}:3"),
        ("aws_lambda_function", services, "lambda:UpdateAlias", f"{LAMBDA}:{{function_name}}"),
    ):
        found = {at: one for at, one in resources(applied, kind).items() if "module.controller" not in at}
        assert len(found) == count
        for one in found.values():
            context = {f"aws:ResourceTag/{key}": value for key, value in (one["tags"] or {}).items()}
            assert may(policy, action, arn.format(**one), context), arn.format(**one)
    roles = resources(applied, "aws_iam_role")
    for at, role in roles.items():
        arn = f"{ROLES}{role['path'] or '/'}{role['name']}"
        assert may(policy, "iam:PassRole", arn, TO_EC2) == ("module.fleet[" in at), arn
    for at, one in resources(applied, "aws_s3_object").items():
        arn = f"arn:aws:s3:::{one['bucket']}/{one['key']}"
        assert may(policy, "s3:GetObjectVersion", arn, {}) == ("function/" not in at), arn
