"""The removal of a site's resources that Terraform does not know, and the list of any that remain."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mark.domain.errors import CloudError, DeniedError, NotFoundError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SITE
from mark_infra.aws.machine_images import own_images, own_snapshots
from mark_infra.aws.termination import in_turn, terminate

# Tags of the controller's instance and of conductors, set by terraform/modules/controller and conductors.
CONTROLLER, CONDUCTOR = "mark:controller", "mark:conductor"
_THERE = ["pending", "running", "stopping", "stopped", "shutting-down"]
_MOST_AT_ONCE = 500
_TOLD_BY_EC2 = (
    *(":instance/", ":volume/", ":network-interface/", ":fleet/", ":spot-instances-request/"),
    *(":image/", ":snapshot/"),
)


def caller(gate: Gate) -> str:
    """Return the caller's account. Raises DeniedError without credentials, CloudError without an answer."""
    return str(gate.call(gate.client("sts").get_caller_identity)["Account"])


def end_instances(
    gate: Gate,
    site: str,
    group: str | None,
    *,
    longest_s: float = 600.0,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> int:
    """Terminate the controller, then every instance of the site, and wait until they are gone; return their number.

    The controller goes first because it would replace the instances. `group` is its Auto Scaling group; the groups of
    conductors are found by their tag. Repeatable. Raises CloudError, also if instances remain after `longest_s`.
    """
    if group is not None:
        _empty(gate, group)
    for name in _conductors(gate, site):
        _empty(gate, name)
    ended: set[str] = set()
    until_s = monotonic() + longest_s
    for tag in (CONTROLLER, CONDUCTOR, SITE):
        while there := _instances(gate, tag, site):
            new = [id for id in there if id not in ended]
            for start in range(0, len(new), _MOST_AT_ONCE):
                in_turn(new[start : start + _MOST_AT_ONCE], partial(terminate, gate))
            ended.update(new)
            if monotonic() > until_s:
                raise CloudError(f"still there after {longest_s:.0f} s: {', '.join(there[:10])}")
            pause(2.0)
    return len(ended)


def end_strays(
    gate: Gate,
    site: str,
    *,
    longest_s: float = 30.0,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Delete resources with the site's tag that Terraform does not know, because it was interrupted during a creation.

    A resource that is still in use is retried for `longest_s`; after that it is left for `leftovers` to list. Raises
    CloudError if the resources cannot be listed.
    """
    until_s = monotonic() + longest_s
    left = sorted(_tagged(gate, site), key=lambda arn: ":loadbalancer/" not in arn)  # first, as they use target groups
    while (left := [arn for arn in left if not _is_done_with(gate, arn)]) and monotonic() < until_s:
        pause(2.0)


def _conductors(gate: Gate, site: str) -> list[str]:
    """Return the Auto Scaling groups of the site's conductors. Raises CloudError."""
    filters = [{"Name": f"tag:{CONDUCTOR}", "Values": [site]}]
    pages = gate.pages(gate.client("autoscaling").describe_auto_scaling_groups, Filters=filters)
    return [one["AutoScalingGroupName"] for page in pages for one in page["AutoScalingGroups"]]


def _empty(gate: Gate, group: str) -> None:
    """Set an Auto Scaling group's size to zero, if the group exists. Raises CloudError."""
    none: dict[str, Any] = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    try:
        gate.call(gate.client("autoscaling").update_auto_scaling_group, AutoScalingGroupName=group, **none)
    except DeniedError:
        raise
    except CloudError:
        # A group that is being deleted accepts no change and launches nothing.
        looked = gate.call(gate.client("autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[group])
        found = looked["AutoScalingGroups"]
        if any(not one.get("Status", "").startswith("Delete") for one in found):
            raise


def _is_done_with(gate: Gate, arn: str) -> bool:
    """Delete the resource; return False if a later try may succeed."""
    service, account, kind = (arn.split(":", 5)[n] for n in (2, 4, 5))
    call: tuple[str, str, dict[str, Any]] | None = None
    if service == "elasticloadbalancing" and kind.startswith("targetgroup/"):
        call = "elbv2", "delete_target_group", {"TargetGroupArn": arn}
    elif service == "elasticloadbalancing" and kind.startswith("loadbalancer/"):
        call = "elbv2", "delete_load_balancer", {"LoadBalancerArn": arn}
    elif service == "logs" and kind.startswith("log-group:"):
        call = "logs", "delete_log_group", {"logGroupName": kind.split(":")[1]}
    elif service == "lambda" and kind.startswith("function:"):
        call = "lambda", "delete_function", {"FunctionName": kind.split(":")[1]}
    elif service == "dynamodb" and kind.startswith("table/"):
        call = "dynamodb", "delete_table", {"TableName": kind.split("/")[1]}
    elif service == "ssm" and kind.startswith("parameter/"):
        call = "ssm", "delete_parameter", {"Name": kind.removeprefix("parameter")}
    try:
        if service == "sqs":
            queue = gate.call(gate.client("sqs").get_queue_url, QueueName=kind, QueueOwnerAWSAccountId=account)
            gate.call(gate.client("sqs").delete_queue, QueueUrl=queue["QueueUrl"])
        if call is not None:
            client, method, arguments = call
            gate.call(getattr(gate.client(client), method), **arguments)
    except (NotFoundError, DeniedError):
        return True  # gone, or deleting it is not allowed
    except CloudError:
        return False
    return True


def leftovers(
    gate: Gate,
    site: str,
    *,
    settle_s: float = 60.0,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Return the ids and ARNs of resources that still have the site's tag. Raises CloudError.

    AWS's list of tagged resources shows deleted ones for a while, so it is asked again for up to `settle_s`.
    """
    until_s = monotonic() + settle_s
    while (tagged := _tagged(gate, site)) and monotonic() < until_s:
        pause(5.0)
    return sorted({*tagged, *_untold(gate, site)})


def _tagged(gate: Gate, site: str) -> list[str]:
    """Return the tagged ARNs of the tagging API, without EC2's; an empty list if calling it is not allowed."""
    tagging, found, token = gate.client("resourcegroupstaggingapi"), [], ""
    while True:
        try:
            page = gate.call(tagging.get_resources, TagFilters=[{"Key": SITE, "Values": [site]}], PaginationToken=token)
        except DeniedError:
            return []
        found += [one["ResourceARN"] for one in page["ResourceTagMappingList"]]
        if not (token := page.get("PaginationToken", "")):
            return [arn for arn in found if not any(kind in arn for kind in _TOLD_BY_EC2)]


def _untold(gate: Gate, site: str) -> list[str]:
    """Return the ids of the site's EC2 resources, without terminated instances."""
    found = [id for tag in (SITE, CONTROLLER, CONDUCTOR) for id in _instances(gate, tag, site)]
    ec2 = gate.client("ec2")
    filters = [{"Name": f"tag:{SITE}", "Values": [site]}]
    for page in gate.pages(ec2.describe_volumes, Filters=filters):
        found += [volume["VolumeId"] for volume in page["Volumes"]]
    for page in gate.pages(ec2.describe_network_interfaces, Filters=filters):
        found += [interface["NetworkInterfaceId"] for interface in page["NetworkInterfaces"]]
    return [*found, *(image.id for image in own_images(gate, site)), *own_snapshots(gate, site)]


def _instances(gate: Gate, tag: str, site: str) -> list[str]:
    filters = [{"Name": f"tag:{tag}", "Values": [site]}, {"Name": "instance-state-name", "Values": _THERE}]
    pages = gate.pages(gate.client("ec2").describe_instances, Filters=filters)
    reservations: list[Any] = [r for page in pages for r in page["Reservations"]]
    return [instance["InstanceId"] for r in reservations for instance in r["Instances"]]
