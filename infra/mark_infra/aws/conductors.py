"""Which instances are a pipeline's conductors: those of its Auto Scaling group, which are not the controller's own."""

from __future__ import annotations

import time
from collections.abc import Callable

from mark_infra.aws.gate import Gate

LOOK_S = 60.0  # between looks: they are few, and rarely replaced
_GROUP = "aws:autoscaling:groupName"  # EC2 Auto Scaling's own tag on what it launches


class Conductors:
    """Of the Auto Scaling group `group`, as EC2 describes its instances once a minute."""

    def __init__(self, gate: Gate, group: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._group, self._monotonic = gate, group, monotonic
        self._looked_s: float | None = None
        self._there: dict[str, str] = {}

    def addresses(self) -> dict[str, str]:
        """Private addresses of those that run, by the instance's id. Raises CloudError."""
        now_s = self._monotonic()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_S:
            filters = [
                {"Name": f"tag:{_GROUP}", "Values": [self._group]},
                {"Name": "instance-state-name", "Values": ["running"]},
            ]
            ec2 = self._gate.client("ec2")
            self._there = {
                instance["InstanceId"]: instance["PrivateIpAddress"]
                for page in self._gate.pages(ec2.describe_instances, Filters=filters)
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            }
            self._looked_s = now_s
        return self._there
