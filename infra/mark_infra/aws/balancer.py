"""A service's target groups (ELBv2): which instances are in them, and how much each group gets where a listener
forwards to several.

A balancer sends every target of a group the same, so with several groups each holds instance types of similar capacity,
and its weight is the capacity of those in it that are ready.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

from mark.domain.errors import CloudError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import DescribedInstance

# How often it is looked up what is registered: another program, or the balancer itself, may have changed it.
_LOOK_S = 300.0
_MOST_WEIGHT = 999


def spread(capacity_rps: Mapping[str, float], groups: int) -> dict[str, int]:
    """Which of `groups` groups an offer belongs to: in order of capacity, as many instance types in each as may be."""
    types: dict[str, float] = {}
    for offer, rps in capacity_rps.items():
        types.setdefault(offer.partition("/")[0], rps)
    order = {kind: n for n, kind in enumerate(sorted(types, key=lambda kind: (types[kind], kind)))}
    return {offer: order[offer.partition("/")[0]] * groups // len(order) for offer in capacity_rps}


def weights(capacities_rps: Sequence[float]) -> list[int]:
    """Whole weights as ELB takes them, 0 to 999, in proportion; all 1 while there is no capacity."""
    most = max(capacities_rps)
    if most <= 0.0:
        return [1] * len(capacities_rps)
    # What serves at all gets something.
    return [max(1, round(_MOST_WEIGHT * rps / most)) if rps > 0.0 else 0 for rps in capacities_rps]


class Balancer:
    """The target groups of one service. Repeatable; without groups it does nothing. Thread-safe.

    `capacity_rps`: requests/s of one instance, by offer.
    """

    def __init__(
        self,
        gate: Gate,
        groups: Sequence[str],
        capacity_rps: Mapping[str, float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate, self._groups, self._capacity_rps = gate, tuple(groups), capacity_rps
        self._group_of = spread(capacity_rps, len(groups)) if groups else {}
        self._monotonic = monotonic
        self._lock = Lock()
        self._registered: dict[str, set[str]] = {}  # by group; empty: not known yet
        self._looked_s = 0.0
        self._weights: list[int] = []  # as last set, in order of groups

    def has(self, instance_id: str) -> bool:
        """May the balancer still send requests there? True, too, while that is not known yet."""
        if not self._groups:
            return False
        return not self._registered or any(instance_id in ids for ids in self._registered.values())

    def sync(self, wanted_now: Callable[[], Collection[DescribedInstance]]) -> None:
        """These and no others, each in its group, with weights to suit. Raises CloudError."""
        if not self._groups:
            return
        with self._lock:
            now_s = self._monotonic()
            if not self._registered or now_s - self._looked_s >= _LOOK_S:
                self._registered, self._looked_s = {group: self._look(group) for group in self._groups}, now_s
            wanted: defaultdict[str, set[str]] = defaultdict(set)
            capacities_rps = [0.0] * len(self._groups)
            for machine in wanted_now():
                index = self._group_of[machine.offer]
                wanted[self._groups[index]].add(machine.id)
                if machine.ready_unix_s is not None:
                    capacities_rps[index] += self._capacity_rps[machine.offer]
            for group in self._groups:
                has = self._registered[group]
                if new := sorted(wanted[group] - has):
                    self._gate.call(self._elb.register_targets, TargetGroupArn=group, Targets=_targets(new))
                    has.update(new)
                if old := sorted(has - wanted[group]):
                    self._deregister(group, old)
            if len(self._groups) > 1 and (share := weights(capacities_rps)) != self._weights:
                self._weigh(dict(zip(self._groups, share, strict=True)))
                self._weights = share

    @property
    def _elb(self) -> Any:
        return self._gate.client("elbv2")

    def _look(self, group: str) -> set[str]:
        answer = self._gate.call(self._elb.describe_target_health, TargetGroupArn=group)
        return {
            health["Target"]["Id"]
            for health in answer["TargetHealthDescriptions"]
            if health.get("TargetHealth", {}).get("State") != "draining"
        }

    def _deregister(self, group: str, ids: list[str]) -> None:
        try:
            self._gate.call(self._elb.deregister_targets, TargetGroupArn=group, Targets=_targets(ids))
        except CloudError:
            # What was terminated may have left by itself.
            self._registered[group] = self._look(group)
            if not self._registered[group].isdisjoint(ids):
                raise
        self._registered[group].difference_update(ids)

    def _weigh(self, weight_of: Mapping[str, int]) -> None:
        """Set the weights in every listener's default and rules that forward to several of the groups."""
        found = self._gate.call(self._elb.describe_target_groups, TargetGroupArns=list(self._groups))
        balancers = sorted({arn for group in found["TargetGroups"] for arn in group["LoadBalancerArns"]})
        for balancer in balancers:
            for listener in self._gate.call(self._elb.describe_listeners, LoadBalancerArn=balancer)["Listeners"]:
                arn = listener["ListenerArn"]
                for rule in self._gate.call(self._elb.describe_rules, ListenerArn=arn)["Rules"]:
                    actions = [_weighed(action, weight_of) for action in rule["Actions"]]
                    if actions == rule["Actions"]:
                        continue
                    if rule["IsDefault"]:
                        self._gate.call(self._elb.modify_listener, ListenerArn=arn, DefaultActions=actions)
                    else:
                        self._gate.call(self._elb.modify_rule, RuleArn=rule["RuleArn"], Actions=actions)


def _weighed(action: dict[str, Any], weight_of: Mapping[str, int]) -> dict[str, Any]:
    config = action.get("ForwardConfig", {})
    groups = config.get("TargetGroups", [])
    if sum(group["TargetGroupArn"] in weight_of for group in groups) < 2:
        return action
    groups = [{**g, "Weight": weight_of.get(g["TargetGroupArn"], g.get("Weight", 1))} for g in groups]
    return {**action, "ForwardConfig": {**config, "TargetGroups": groups}}


def _targets(ids: Sequence[str]) -> list[dict[str, str]]:
    return [{"Id": id} for id in ids]
