"""ELBv2 as one service's balancer uses it, which says after every call whether a request would be lost."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site


class FakeElb:
    """New targets are `initial` until `pass_checks`. Also the session of a gate to it."""

    def __init__(self, groups: list[str], rules: list[str]) -> None:
        self.targets: dict[str, dict[str, str]] = {group: {} for group in groups}
        self.rules: dict[str, list[dict[str, Any]]] = {
            rule: [{"Type": "forward", "Order": 1, "TargetGroupArn": groups[0]}] for rule in rules
        }
        self.said: list[str] = []
        self.lost: list[str] = []  # after which call a request could be lost though somebody was healthy
        self.functions: set[str] = set()  # groups whose target always answers

    def gate(self) -> Gate:
        return Gate(Site("mark", "eu-west-1", "sqlite:none"), session=self)

    def client(self, service: str, **_: Any) -> FakeElb:
        assert service == "elbv2"
        return self

    def pass_checks(self) -> None:
        for targets in self.targets.values():
            targets.update(dict.fromkeys(targets, "healthy"))

    def healthy(self) -> set[str]:
        """Groups with a healthy target."""
        return {group for group, targets in self.targets.items() if "healthy" in targets.values()}

    def shares(self, rule: str) -> dict[str, int]:
        (action,) = self.rules[rule]
        if "TargetGroupArn" in action:
            return {action["TargetGroupArn"]: 1}
        return {one["TargetGroupArn"]: one["Weight"] for one in action["ForwardConfig"]["TargetGroups"]}

    # The calls

    def describe_target_health(self, *, TargetGroupArn: str) -> dict[str, Any]:
        found = self.targets[TargetGroupArn].items()
        self._said("describe_target_health")
        return {"TargetHealthDescriptions": [{"Target": {"Id": id}, "TargetHealth": {"State": s}} for id, s in found]}

    def register_targets(self, *, TargetGroupArn: str, Targets: list[dict[str, str]]) -> None:
        for target in Targets:
            self.targets[TargetGroupArn].setdefault(target["Id"], "initial")
        self._said("register_targets")

    def deregister_targets(self, *, TargetGroupArn: str, Targets: list[dict[str, str]]) -> None:
        for target in Targets:
            del self.targets[TargetGroupArn][target["Id"]]
        self._said("deregister_targets")

    def describe_rules(self, *, RuleArns: list[str]) -> dict[str, Any]:
        self._said("describe_rules")
        if missing := [arn for arn in RuleArns if arn not in self.rules]:
            error = {"Error": {"Code": "RuleNotFound", "Message": missing[0]}}
            raise ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "DescribeRules")
        return {"Rules": [{"RuleArn": arn, "IsDefault": False, "Actions": self.rules[arn]} for arn in RuleArns]}

    def modify_rule(self, *, RuleArn: str, Actions: list[dict[str, Any]]) -> None:
        self.rules[RuleArn] = Actions
        self._said("modify_rule")

    def _said(self, call: str) -> None:
        self.said.append(call)
        healthy = self.healthy()
        for rule in self.rules:
            asked = {group for group, share in self.shares(rule).items() if share}
            if healthy and not asked <= healthy | self.functions:
                self.lost.append(f"{call}: {rule} asks {sorted(asked - healthy)}")
