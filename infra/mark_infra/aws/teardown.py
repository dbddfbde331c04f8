"""The end of a site: what the controller launched, which no Terraform knows of, and what is left in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mark.domain.errors import CloudError, DeniedError, NotFoundError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SITE
from mark_infra.aws.machine_images import own_images, own_snapshots

# Tags of the controller's own instance, and of conductors': see terraform/modules/controller and conductors.
CONTROLLER, CONDUCTOR = "mark:controller", "mark:conductor"
_THERE = ["pending", "running", "stopping", "stopped", "shutting-down"]
_MOST_AT_ONCE = 500
_TOLD_BY_EC2 = (
    *(":instance/", ":volume/", ":network-interface/", ":fleet/", ":spot-instances-request/"),
    *(":image/", ":snapshot/"),
)


def caller(gate: Gate) -> str:
    """The caller's account. Raises DeniedError without credentials, CloudError where AWS does not answer."""
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
    """End the controller, then every instance of the site, and wait until they are gone. Returns how many there were.

    In this order: a controller would launch anew what it misses. `group` is its Auto Scaling group; those of conductors
    are found by their tag. Repeatable. Raises CloudError, also when they are not gone within `longest_s`.
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
                some = new[start : start + _MOST_AT_ONCE]
                gate.call(gate.client("ec2").terminate_instances, InstanceIds=some)
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
    """Delete what carries the site's name and Terraform does not know: its answer was lost when it was interrupted.

    What another thing still uses is tried again for `longest_s`; what cannot be deleted then is left for `leftovers` to
    name. Raises CloudError where the list cannot be had.
    """
    until_s = monotonic() + longest_s
    left = sorted(_tagged(gate, site), key=lambda arn: ":loadbalancer/" not in arn)  # they use target groups
    while (left := [arn for arn in left if not _is_done_with(gate, arn)]) and monotonic() < until_s:
        pause(2.0)


def _conductors(gate: Gate, site: str) -> list[str]:
    """Auto Scaling groups of the site's conductors. Raises CloudError."""
    filters = [{"Name": f"tag:{CONDUCTOR}", "Values": [site]}]
    pages = gate.pages(gate.client("autoscaling").describe_auto_scaling_groups, Filters=filters)
    return [one["AutoScalingGroupName"] for page in pages for one in page["AutoScalingGroups"]]


def _empty(gate: Gate, group: str) -> None:
    """Let an Auto Scaling group have no instance, if it is there at all. Raises CloudError."""
    none: dict[str, Any] = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    try:
        gate.call(gate.client("autoscaling").update_auto_scaling_group, AutoScalingGroupName=group, **none)
    except DeniedError:
        raise
    except CloudError:
        # A group that an earlier call deletes just now takes no change, and launches nothing.
        looked = gate.call(gate.client("autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[group])
        found = looked["AutoScalingGroups"]
        if any(not one.get("Status", "").startswith("Delete") for one in found):
            raise


def _is_done_with(gate: Gate, arn: str) -> bool:
    """Delete it; False where that may succeed later."""
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
        return True  # gone, or not for us to delete
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
    """Ids and ARNs of what still carries the site's name. Raises CloudError.

    AWS's list of tagged resources shows for a while what is gone: it is asked for `settle_s` before it is believed.
    """
    until_s = monotonic() + settle_s
    while (tagged := _tagged(gate, site)) and monotonic() < until_s:
        pause(5.0)
    return sorted({*tagged, *_untold(gate, site)})


def _tagged(gate: Gate, site: str) -> list[str]:
    """ARNs by the tagging API, but for what EC2 itself tells better; none where that may not be asked."""
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
    """What EC2 has of the site: instances that end are none any more."""
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
