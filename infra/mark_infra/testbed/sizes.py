"""AWS's size limits of requests, which moto does not check. docs/testbed.md names the sources. Pure."""

from __future__ import annotations

from typing import Protocol

from mark_infra.testbed.account import AccountRefusal
from mark_infra.testbed.aws_request import AwsRequest, user_data_size

USER_DATA_BYTES = 16_384
PARAMETER_CHARACTERS = {"Standard": 4096, "Intelligent-Tiering": 8192, "Advanced": 8192}
FUNCTION_BYTES = 250 * 1024**2  # unzipped
REQUEST_BYTES = 50 * 1024**2  # of a package in the request
RULES_PER_BALANCER = TARGET_GROUPS_PER_BALANCER = 100
TARGETS_PER_BALANCER = 1000


class Stock(Protocol):
    """The existing resources, as far as limits need them."""

    def unzipped_bytes(self, bucket: str, key: str) -> int | None:
        """Return the unzipped size of a package in a bucket; None if unknown."""

    def rules(self, listener_arn: str) -> int:
        """Return the number of rules of all listeners of its balancer, without default rules."""

    def target_groups(self, listener_arn: str) -> frozenset[str]:
        """Return the target groups to which the balancer of this listener or rule forwards."""

    def targets(self, group_arn: str) -> int:
        """Return the number of targets in all target groups of the group's balancer."""


def too_large(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    """Return why AWS refuses the request's size, or None."""
    of = _SIZES.get((request.service, request.action))
    return None if of is None else of(request, stock)


def _user_data(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    text = str(request.parameters.get("UserData", request.parameters.get("LaunchTemplateData.UserData", "")))
    if user_data_size(text) <= USER_DATA_BYTES:
        return None
    return AccountRefusal("InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES} bytes")


def _parameter(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    tier = str(request.parameters.get("Tier", "Standard"))
    most = PARAMETER_CHARACTERS.get(tier, PARAMETER_CHARACTERS["Standard"])
    if len(str(request.parameters.get("Value", "")).encode()) <= most:
        return None
    text = f"{tier} tier parameters support a maximum parameter value of {most} characters."
    return AccountRefusal("ValidationException", text)


def _package(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    code = request.parameters.get("Code", request.parameters)
    if len(code.get("ZipFile") or "") * 3 // 4 > REQUEST_BYTES:
        return AccountRefusal("RequestEntityTooLargeException", "Request must be smaller than 69905067 bytes", 413)
    unzipped = stock.unzipped_bytes(str(code.get("S3Bucket", "")), str(code.get("S3Key", "")))
    if unzipped is None or unzipped <= FUNCTION_BYTES:
        return None
    text = f"Unzipped size must be smaller than {FUNCTION_BYTES} bytes"
    return AccountRefusal("InvalidParameterValueException", text)


def _forward(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    listener = str(request.parameters.get("ListenerArn", request.parameters.get("RuleArn", "")))
    if request.action == "CreateRule" and stock.rules(listener) >= RULES_PER_BALANCER:
        return AccountRefusal("TooManyRules", "The maximum number of rules on a load balancer has been reached")
    new = {str(value) for key, value in request.parameters.items() if key.endswith("TargetGroupArn")}
    if len(stock.target_groups(listener) | new) > TARGET_GROUPS_PER_BALANCER:
        text = "The maximum number of unique target groups per load balancer has been reached"
        return AccountRefusal("TooManyUniqueTargetGroupsPerLoadBalancer", text)
    return None


def _targets(request: AwsRequest, stock: Stock) -> AccountRefusal | None:
    new = len(request.groups("Targets.member"))
    if stock.targets(str(request.parameters.get("TargetGroupArn", ""))) + new <= TARGETS_PER_BALANCER:
        return None
    return AccountRefusal("TooManyTargets", "The maximum number of targets per load balancer has been reached")


_SIZES = {
    ("ec2", "RunInstances"): _user_data,
    ("ec2", "CreateLaunchTemplate"): _user_data,
    ("ec2", "CreateLaunchTemplateVersion"): _user_data,
    ("ssm", "PutParameter"): _parameter,
    ("lambda", "CreateFunction"): _package,
    ("lambda", "UpdateFunctionCode"): _package,
    ("elasticloadbalancing", "CreateRule"): _forward,
    ("elasticloadbalancing", "ModifyRule"): _forward,
    ("elasticloadbalancing", "ModifyListener"): _forward,
    ("elasticloadbalancing", "RegisterTargets"): _targets,
}
