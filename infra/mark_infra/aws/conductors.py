"""The conductors of a pipeline: the instances of its Auto Scaling group, which the controller does not launch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mark.domain.errors import CloudError
from mark_infra.aws.gate import Gate

LOOK_S = 60.0  # between two reads, because conductors are few and rarely replaced
_log = logging.getLogger("mark.aws")
_GROUP = "aws:autoscaling:groupName"  # EC2 Auto Scaling's tag on its instances


class Conductors:
    """The instances of the Auto Scaling group `group`, read from EC2 once a minute."""

    def __init__(self, gate: Gate, group: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._group, self._monotonic = gate, group, monotonic
        self._looked_s: float | None = None
        self._there: dict[str, str] = {}

    def addresses(self) -> dict[str, str]:
        """Return the private addresses of running conductors by instance id.

        The last known ones while EC2 does not answer. Raises CloudError before its first answer.
        """
        now_s = self._monotonic()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_S:
            try:
                self._there = self._running()
                self._looked_s = now_s
            except CloudError as error:
                if self._looked_s is None:
                    raise
                _log.warning("conductors of %s cannot be listed: %s", self._group, error)
        return self._there

    def _running(self) -> dict[str, str]:
        filters = [
            {"Name": f"tag:{_GROUP}", "Values": [self._group]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        ec2 = self._gate.client("ec2")
        return {
            instance["InstanceId"]: instance["PrivateIpAddress"]
            for page in self._gate.pages(ec2.describe_instances, Filters=filters)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }
