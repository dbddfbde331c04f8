"""AWS's limits of an account's calls per second: token buckets by action, as EC2 and ELB document them.

Pure: time comes in with every call. docs/testbed.md names the sources.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark_infra.testbed.account import AccountRefusal

# (capacity, tokens per second)
_Size = tuple[float, float]

_EC2_READS, _EC2_WHOLE_READS, _EC2_WRITES = (100.0, 20.0), (50.0, 10.0), (50.0, 5.0)
# Calls with a smaller bucket if they neither filter nor page.
_WHOLE = frozenset((
    *("DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups"),
    *("DescribeSnapshots", "DescribeSpotInstanceRequests", "DescribeVolumes"),
))  # fmt: skip
_EC2: dict[str, _Size] = {
    "RunInstances": (5.0, 2.0),
    "StartInstances": (5.0, 2.0),
    "TerminateInstances": (100.0, 5.0),
    "CreateTags": (100.0, 10.0),
    "DeleteTags": (100.0, 10.0),
    "AssociateIamInstanceProfile": (100.0, 5.0),
    "CreateLaunchTemplateVersion": (100.0, 5.0),
    "ModifyLaunchTemplate": (100.0, 5.0),
    "CreateNatGateway": (10.0, 1.0),
    "DeleteNatGateway": (10.0, 1.0),
    "CreateNetworkInterface": (100.0, 5.0),
    "DeleteNetworkInterface": (100.0, 5.0),
    "CreateVpcEndpoint": (4.0, 0.3),
    "DeleteVpcEndpoints": (4.0, 0.3),
    "ModifyVpcEndpoint": (4.0, 0.3),
}
# Buckets of instances instead of requests. It is assumed that a fleet's launches count like RunInstances.
_INSTANCES: dict[str, tuple[str, _Size]] = {
    "RunInstances": ("RunInstances", (1000.0, 2.0)),
    "CreateFleet": ("RunInstances", (1000.0, 2.0)),
    "TerminateInstances": ("TerminateInstances", (1000.0, 20.0)),
    "StartInstances": ("StartInstances", (1000.0, 2.0)),
    "StopInstances": ("StopInstances", (1000.0, 20.0)),
}
_ELB_ALL, _ELB_READS, _ELB_WRITES = (40.0, 10.0), (40.0, 10.0), (20.0, 3.0)
# The calls of a category share a bucket, and all categories share another.
_ELB_CATEGORIES: dict[str, tuple[str, _Size]] = {
    "CreateLoadBalancer": ("intensive", (10.0, 0.2)),
    "SetSubnets": ("intensive", (10.0, 0.2)),
    "RegisterTargets": ("registration", (20.0, 4.0)),
    "DeregisterTargets": ("registration", (20.0, 4.0)),
}
_READS = ("Describe", "Get", "List", "Search")


@dataclass(slots=True)
class TokenBucket:
    """A bucket that is full at first, and filled at a steady rate."""

    capacity: float
    per_s: float
    tokens: float
    at_s: float

    def filled(self, now_s: float) -> float:
        """Return the present tokens."""
        self.tokens = min(self.capacity, self.tokens + max(0.0, now_s - self.at_s) * self.per_s)
        self.at_s = max(self.at_s, now_s)
        return self.tokens


class Throttle:
    """The buckets of one account in one region."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}

    def refusal(
        self, service: str, action: str, now_s: float, *, whole: bool = False, instances: int = 0
    ) -> AccountRefusal | None:
        """Return why the call is refused now, or take its tokens and return None.

        `whole`: it neither filters nor pages. `instances`: the number that it launches, starts, stops or terminates. A
        refused call takes no tokens. Only EC2 and ELB are throttled.
        """
        wanted = _wanted(service, action, whole, instances)
        buckets = []
        for name, (capacity, per_s), tokens in wanted:
            bucket = self._buckets.setdefault(name, TokenBucket(capacity, per_s, capacity, now_s))
            # a call that exceeds the capacity needs a full bucket, and leaves a debt
            if bucket.filled(now_s) < min(tokens, capacity):
                return _THROTTLED[service]
            buckets.append((bucket, tokens))
        for bucket, tokens in buckets:
            bucket.tokens -= tokens
        return None


_THROTTLED = {
    "ec2": AccountRefusal("RequestLimitExceeded", "Request limit exceeded.", 503),
    "elasticloadbalancing": AccountRefusal("Throttling", "Rate exceeded"),
}


def _wanted(service: str, action: str, whole: bool, instances: int) -> list[tuple[str, _Size, float]]:
    reads = action.startswith(_READS)
    if service == "ec2":
        of_kind = _EC2_READS if reads else _EC2_WRITES
        if whole and action in _WHOLE:
            wanted = [(f"ec2:{action} unfiltered", _EC2_WHOLE_READS, 1.0)]
        else:
            wanted = [(f"ec2:{action}", _EC2.get(action, of_kind), 1.0)]
        if action in _INSTANCES and instances > 0:
            name, size = _INSTANCES[action]
            wanted.append((f"ec2:{name} instances", size, float(instances)))
        return wanted
    if service == "elasticloadbalancing":
        otherwise = ("reads", _ELB_READS) if reads else ("writes", _ELB_WRITES)
        category, size = _ELB_CATEGORIES.get(action, otherwise)
        return [("elb", _ELB_ALL, 1.0), (f"elb:{category}", size, 1.0)]
    return []
