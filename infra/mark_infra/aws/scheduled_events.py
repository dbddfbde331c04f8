"""Events that EC2 has scheduled for instances, days ahead: stops, retirements and restarts.

DescribeInstances does not show them, so DescribeInstanceStatus is asked once a minute for the instances that have such
an event. It cannot filter by tag: the answer covers the whole account, and readers pick theirs by instance id.
EventBridge sends the same events (AWS Health), but only once, so a controller that was away would miss them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from mark_infra.aws import ec2_cloud
from mark_infra.aws.gate import Gate

PERIOD_S = 60.0
# From EC2's user guide, "Scheduled events for your instances". Network maintenance is a pause of seconds, which health
# checks bridge. Power maintenance restarts the instance; only the description tells the two apart.
ENDS = ("instance-stop", "instance-retirement", "instance-reboot", "system-reboot")
MAINTENANCE, POWER = "system-maintenance", "power"
# Prefixes of the description of a finished event, which stays listed for a week.
OVER = ("[completed]", "[canceled]")


def ends_it(event: Mapping[str, Any]) -> bool:
    """Return whether this event of DescribeInstanceStatus will end or restart its instance."""
    code, description = event.get("Code", ""), event.get("Description", "").strip().lower()
    if description.startswith(OVER) or "NotBefore" not in event:
        return False
    return code in ENDS or (code == MAINTENANCE and POWER in description)


class ScheduledEvents:
    """The scheduled events of an account. `refresh` asks EC2, `of` reads its last good answer. Thread-safe."""

    def __init__(self, gate: Gate, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._monotonic = gate, monotonic
        self._asking = threading.Lock()
        self._asked_s: float | None = None
        self._first: Mapping[str, tuple[str, float]] = {}

    def of(self, instance_id: str) -> tuple[str, float] | None:
        """Return the next event of an instance: its code and the Unix time before which it does not happen."""
        return self._first.get(instance_id)

    def refresh(self) -> None:
        """Ask EC2 unless it was asked within the last minute. Raises CloudError and keeps the last good answer."""
        with self._asking:
            now_s = self._monotonic()
            if self._asked_s is not None and now_s - self._asked_s < PERIOD_S:
                return
            self._asked_s = now_s  # a failure too is retried after a minute only, because events are days ahead
            ec2 = self._gate.client("ec2")
            first: dict[str, tuple[str, float]] = {}
            filters = [{"Name": "event.code", "Values": [*ENDS, MAINTENANCE]}]
            for page in self._gate.pages(ec2.describe_instance_status, Filters=filters, MaxResults=1000):
                for status in page["InstanceStatuses"]:
                    events = [(e["NotBefore"].timestamp(), e["Code"]) for e in status.get("Events", ()) if ends_it(e)]
                    if events:
                        at_unix_s, code = min(events)
                        first[status["InstanceId"]] = (code, at_unix_s)
            self._first = first


_: type[ec2_cloud.EventSource] = ScheduledEvents
