"""ELBv2 as one service's balancer uses it. After every call it notes whether a request would be lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site


class FakeElb:
    """A fake ELBv2 that is also the session of a gate. New targets are `initial` until `pass_checks`."""

    def __init__(self, groups: list[str], rules: list[str]) -> None:
        self.targets: dict[str, dict[str, str]] = {group: {} for group in groups}
        self.rules: dict[str, list[dict[str, Any]]] = {
            rule: [{"Type": "forward", "Order": 1, "TargetGroupArn": groups[0]}] for rule in rules
        }
        self.said: list[str] = []
        self.lost: list[str] = []  # calls after which a request could be lost although a target was healthy
        self.functions: set[str] = set()  # groups of functions, whose target always answers
        self.ends = False  # may a rule lose all healthy targets?
        self.mute = False  # is DescribeTargetHealth refused?

    def gate(self) -> Gate:
        return Gate(Site("mark", "eu-west-1", "sqlite:none"), session=self)

    def client(self, service: str, **_: Any) -> FakeElb:
        assert service == "elbv2"
        return self

    def pass_checks(self, ids: Collection[str] | None = None) -> None:
        """Make all targets healthy, or only these."""
        for targets in self.targets.values():
            targets.update({id: "healthy" for id in targets if ids is None or id in ids})

    def routed(self, rule: str) -> set[str]:
        """Return the healthy targets to which the rule sends requests."""
        asked = [self.targets.get(group, {}) for group, share in self.shares(rule).items() if share]
        return {id for targets in asked for id, state in targets.items() if state == "healthy"}

    def healthy(self) -> set[str]:
        """Return the groups with a healthy target."""
        return {group for group, targets in self.targets.items() if "healthy" in targets.values()}

    def shares(self, rule: str) -> dict[str, int]:
        (action,) = self.rules[rule]
        if "TargetGroupArn" in action:
            return {action["TargetGroupArn"]: 1}
        return {one["TargetGroupArn"]: one["Weight"] for one in action["ForwardConfig"]["TargetGroups"]}

    # Calls of the API.

    def describe_target_health(self, *, TargetGroupArn: str) -> dict[str, Any]:
        self._said("describe_target_health")
        if self.mute:
            error = {"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}
            raise ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "DescribeTargetHealth")
        found = self.targets[TargetGroupArn].items()
        return {"TargetHealthDescriptions": [{"Target": {"Id": id}, "TargetHealth": {"State": s}} for id, s in found]}

    def register_targets(self, *, TargetGroupArn: str, Targets: list[dict[str, str]]) -> None:
        with self._changes("register_targets"):
            for target in Targets:
                self.targets[TargetGroupArn].setdefault(target["Id"], "initial")

    def deregister_targets(self, *, TargetGroupArn: str, Targets: list[dict[str, str]]) -> None:
        with self._changes("deregister_targets"):
            for target in Targets:
                del self.targets[TargetGroupArn][target["Id"]]

    def describe_rules(self, *, RuleArns: list[str]) -> dict[str, Any]:
        self._said("describe_rules")
        if missing := [arn for arn in RuleArns if arn not in self.rules]:
            error = {"Error": {"Code": "RuleNotFound", "Message": missing[0]}}
            raise ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "DescribeRules")
        return {"Rules": [{"RuleArn": arn, "IsDefault": False, "Actions": self.rules[arn]} for arn in RuleArns]}

    def modify_rule(self, *, RuleArn: str, Actions: list[dict[str, Any]]) -> None:
        with self._changes("modify_rule"):
            self.rules[RuleArn] = Actions

    @contextmanager
    def _changes(self, call: str) -> Iterator[None]:
        """Note a call that leaves a rule without healthy targets although it had some before."""
        served = [rule for rule in self.rules if self.routed(rule)]
        yield
        self._said(call)
        if not self.ends:
            self.lost += [f"{call}: {rule} asks no healthy target any more" for rule in served if not self.routed(rule)]

    def _said(self, call: str) -> None:
        self.said.append(call)
        healthy = self.healthy()
        for rule in self.rules:
            asked = {group for group, share in self.shares(rule).items() if share}
            if healthy and not asked <= healthy | self.functions:
                self.lost.append(f"{call}: {rule} asks {sorted(asked - healthy)}")
