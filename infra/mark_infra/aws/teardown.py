"""The end of a site: what the controller launched, which no Terraform knows of, and what is left in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mark.domain.errors import CloudError, NotFoundError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SITE

CONTROLLER = "mark:controller"  # tag of the controller's own instance, see terraform/modules/controller
_THERE = ["pending", "running", "stopping", "stopped", "shutting-down"]
_MOST_AT_ONCE = 500


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

    In this order: a controller would launch anew what it misses. `group` is its Auto Scaling group. Repeatable. Raises
    CloudError, also when they are not gone within `longest_s`.
    """
    if group is not None:
        try:
            gate.call(
                gate.client("autoscaling").update_auto_scaling_group,
                AutoScalingGroupName=group,
                MinSize=0,
                MaxSize=0,
                DesiredCapacity=0,
            )
        except NotFoundError:
            pass
        except CloudError as error:
            if "not found" not in str(error):  # a ValidationError, as Auto Scaling has it
                raise
    ended: set[str] = set()
    until_s = monotonic() + longest_s
    for tag in (CONTROLLER, SITE):
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


def leftovers(gate: Gate, site: str) -> list[str]:
    """Ids and ARNs of what still carries the site's name. Raises CloudError."""
    found = [*_instances(gate, SITE, site), *_instances(gate, CONTROLLER, site)]
    ec2 = gate.client("ec2")
    filters = [{"Name": f"tag:{SITE}", "Values": [site]}]
    for page in gate.pages(ec2.describe_volumes, Filters=filters):
        found += [volume["VolumeId"] for volume in page["Volumes"]]
    for page in gate.pages(ec2.describe_network_interfaces, Filters=filters):
        found += [interface["NetworkInterfaceId"] for interface in page["NetworkInterfaces"]]
    return sorted(found)


def _instances(gate: Gate, tag: str, site: str) -> list[str]:
    filters = [{"Name": f"tag:{tag}", "Values": [site]}, {"Name": "instance-state-name", "Values": _THERE}]
    pages = gate.pages(gate.client("ec2").describe_instances, Filters=filters)
    reservations: list[Any] = [r for page in pages for r in page["Reservations"]]
    return [instance["InstanceId"] for r in reservations for instance in r["Instances"]]
