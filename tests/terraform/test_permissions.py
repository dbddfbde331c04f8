"""The controller may do what its code calls, and nothing else: policy against source."""

from __future__ import annotations

import re
from pathlib import Path

import mark_infra

from tests.terraform.conftest import MODULES

SOURCE = Path(mark_infra.__file__).parent
CALL = re.compile(r"\.(?:call|pages)\(\s*(?!getattr)[\w.()\"\[\]]+\.(\w+)\s*[,)]|\b_call\(\s*\"(\w+)\"")
# Run at deployment, with rights of its own.
NOT_THE_CONTROLLERS = {"teardown.py"}
# Only where a service has several target groups, and Terraform makes one.
SEVERAL_GROUPS = {"DescribeTargetGroups", "DescribeListeners", "DescribeRules", "ModifyListener", "ModifyRule"}
# One call, other actions in IAM's words (Service Authorization Reference).
OTHERWISE = {
    "DeleteMessageBatch": {"DeleteMessage"},
    "TransactWriteItems": {"PutItem", "ConditionCheckItem"},
}
# What no client of ours calls: AWS asks for it with a launch, or the machine does it at boot, or its agents.
BESIDE = {
    *("RunInstances", "PassRole", "CreateServiceLinkedRole"),
    *("GetObject", "GetParameter", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"),
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
    """Actions that the source calls, by their names in IAM."""
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
        *("CreateAction", "PassedToService", "AWSServiceName"),  # keys of conditions
        "AssumeRole",  # EC2's, of the role itself
    }


def test_the_scan_sees_the_calls() -> None:
    assert {"CreateFleet", "DescribeInstances", "ReceiveMessage", "UpdateItem", "RegisterTargets"} <= called()


def test_the_controller_may_do_what_it_calls() -> None:
    assert called() - SEVERAL_GROUPS <= allowed()


def test_the_controller_may_do_nothing_that_it_does_not_call() -> None:
    assert allowed() - BESIDE <= called()


def test_metrics_go_where_the_policy_lets_them() -> None:
    text = (MODULES / "modules" / "controller" / "main.tf").read_text(encoding="utf-8")
    from mark_infra.aws.cloudwatch import NAMESPACE

    assert f'"cloudwatch:namespace" = "{NAMESPACE}"' in text
