"""A service's target groups (ELBv2): the instances registered in each, and each group's share of the requests.

A load balancer sends every target of a group the same number of requests, so each group holds instance types of similar
capacity. Its weight is the capacity of its healthy targets. The group of a Lambda function gets all requests while no
instance is healthy, and none otherwise.

During a change no request goes where no instance answers. A group gets weight only after one of its targets is healthy,
an instance stays in its old group until it is healthy in the new one, weights are removed before targets, and drained
instances keep serving until an instance that stays is healthy.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any

from mark.control.health import SHARE
from mark.domain.errors import CloudError, NotFoundError
from mark.domain.rules.capacity_classes import capacity_classes, class_weights
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import DescribedInstance
from mark_infra.aws.look_pace import LookKind, LookPace
from mark_infra.aws.site import SiteService

_log = logging.getLogger(__name__)

# The registered targets are read again this often, because another program or the balancer may have changed them.
_LOOK_S = 300.0
# A target that is not yet healthy is read again after this share of its waiting time; the first minute is urgent.
_AGAIN, _URGENT_S = 0.1, 60.0
# A group with this few healthy targets is read this often, because a balancer sends a group's share even to its last
# target when that is unhealthy.
_FEW, _WATCH_S = 3, 12.0
# Before a target is deregistered, health that is older than this is read again.
_FRESH_S = 3.0
# Seconds until a failed read is retried; and until a target whose health cannot be read counts as healthy, six times
# the time of two health checks.
_RETRY_S, _UNREAD_S = 5.0, 60.0
# Every node of a balancer uses new weights after this time.
_SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class BalancerSteps:
    """The changes to make, by group: register `new`, then set the groups' weights, then deregister `old`."""

    new: tuple[frozenset[str], ...]
    old: tuple[frozenset[str], ...]
    capacities_rps: tuple[float, ...]  # of healthy targets
    waiting_rps: tuple[float, ...]  # of targets that are not healthy yet


def steps(
    wanted: Mapping[str, tuple[int, float]],
    healthy: Sequence[Mapping[str, bool]],
    leaving: Mapping[str, float] = MappingProxyType({}),
) -> BalancerSteps:
    """Return the changes that lead from the `healthy` targets of each group to the `wanted` instances.

    `wanted` maps an instance to its group and its capacity in requests/s; `healthy` has, for each group, whether each
    registered target is healthy. An instance that changes groups stays in the old one until it is healthy in the new
    one. Instances that are `leaving` (with their capacities) stay registered until a wanted one is healthy anywhere.
    """
    of_group = [frozenset(id for id, (home, _) in wanted.items() if home == group) for group in range(len(healthy))]
    moving = frozenset(id for id, (home, _) in wanted.items() if not healthy[home].get(id, False))
    serve = {id: _serves(id, home, healthy) for id, (home, _) in wanted.items()}
    held = frozenset[str]()
    if wanted and all(group is None for group in serve.values()):
        held = frozenset(id for id in leaving if _serves(id, 0, healthy) is not None)
    capacities_rps, waiting_rps = [0.0] * len(healthy), [0.0] * len(healthy)
    for id, (home, rps) in wanted.items():
        if (group := serve[id]) is None:
            waiting_rps[home] += rps
        else:
            capacities_rps[group] += rps
    for id in held:
        capacities_rps[_serves(id, 0, healthy) or 0] += leaving[id]
    return BalancerSteps(
        tuple(wanted_here - there.keys() for wanted_here, there in zip(of_group, healthy, strict=True)),
        tuple(frozenset(there) - here - moving - held for here, there in zip(of_group, healthy, strict=True)),
        tuple(capacities_rps),
        tuple(waiting_rps),
    )


def _serves(id: str, home: int, healthy: Sequence[Mapping[str, bool]]) -> int | None:
    """Return a group in which the instance is healthy, its home group first."""
    order = (home, *(n for n in range(len(healthy)) if n != home))
    return next((n for n in order if healthy[n].get(id)), None)


def believed_silent(silent: Collection[str], healthy: Collection[str]) -> frozenset[str]:
    """Return the silent instances that get no more requests although the balancer has found them healthy.

    The result is empty if all healthy instances are silent, or more than may be given up at a time, because then our
    own network is the likelier cause.
    """
    found = frozenset(silent) & frozenset(healthy)
    most = max(1, math.floor(SHARE * len(healthy)))
    return found if len(found) <= most and len(found) < len(healthy) else frozenset()


@dataclass(slots=True)
class _Group:
    arn: str
    healthy: dict[str, bool] = field(default_factory=dict)  # by registered target, as the balancer reports it
    looked_s: float | None = None  # time of the last successful read
    failed_s: float = -math.inf  # time of the last failed read
    waits_s: float = 0.0  # since when a target has been waiting to become healthy
    unread_s: dict[str, float] = field(default_factory=dict)  # by target that may be healthy now: its last report

    def due(self, now_s: float, watched: bool, pace: LookPace) -> bool:
        """Return whether to read the group's targets now. `watched` groups have a share that could go elsewhere."""
        if now_s - self.failed_s < _RETRY_S:
            return False
        kind, period_s = LookKind.REST, _LOOK_S
        if not all(self.healthy.values()):
            waited_s = now_s - self.waits_s
            kind, period_s = LookKind.SOON if waited_s < _URGENT_S else LookKind.WATCH, _AGAIN * waited_s
        elif watched and self.healthy and len(self.healthy) <= _FEW:
            kind, period_s = LookKind.WATCH, _WATCH_S
        period_s = max(min(period_s, _LOOK_S), pace.least_s(self.arn, kind))
        return self.looked_s is None or now_s - self.looked_s >= period_s

    def answered(self, states: Mapping[str, str], now_s: float) -> None:
        """Take over the states that DescribeTargetHealth returned."""
        healthy = {id: state == "healthy" for id, state in states.items() if state != "draining"}
        if any(not well and self.healthy.get(id, True) for id, well in healthy.items()):
            self.waits_s = now_s
        self.healthy, self.looked_s, self.failed_s = healthy, now_s, -math.inf
        self.unread_s = {id: now_s for id, state in states.items() if state == "initial"}

    def registered(self, ids: Collection[str], now_s: float) -> None:
        self.healthy.update(dict.fromkeys(ids, False))
        self.unread_s.update(dict.fromkeys(ids, now_s))
        self.waits_s = now_s

    def unanswered(self, now_s: float) -> None:
        """Note a failed read; targets that could not be read for long count as healthy."""
        self.failed_s = now_s
        self.healthy |= {id: True for id, since_s in self.unread_s.items() if now_s - since_s >= _UNREAD_S}


@dataclass(slots=True)
class _Forward:
    """The forward action of some listener rules: to one group for each capacity class, or to a function's group."""

    groups: list[_Group]
    rules: tuple[str, ...]
    function_group: str | None = None
    shares: dict[str, int] = field(default_factory=dict)  # as last set
    changed_s: float = -math.inf
    checked_s: float = 0.0

    def known(self) -> bool:
        """Return whether the targets of all groups have been read at least once."""
        return all(group.looked_s is not None for group in self.groups)

    def watches(self, group: _Group) -> bool:
        """Return whether the group has a share that another group could take."""
        chooses = len(self.groups) > 1 or self.function_group is not None
        return chooses and self.shares.get(group.arn, 0) > 0

    def serves(self, instance_id: str) -> bool:
        """Return whether the instance is healthy in a group that gets requests.

        Before the first read every group is assumed to get some.
        """
        return any(group.healthy.get(instance_id) and self.shares.get(group.arn, 1) for group in self.groups)

    def wanted_shares(self, to_do: BalancerSteps) -> dict[str, int]:
        capacities_rps = to_do.capacities_rps
        alone = not any(capacities_rps)
        if alone and self.function_group is None:
            if self.shares and (any(to_do.old) or not any(to_do.waiting_rps)):
                return self.shares  # the last leaving instance gets requests until it has left
            capacities_rps, alone = to_do.waiting_rps, False
        weights = [0] * len(self.groups) if alone else class_weights(capacities_rps)
        shares = {group.arn: weight for group, weight in zip(self.groups, weights, strict=True)}
        return shares if self.function_group is None else {**shares, self.function_group: int(alone)}


class Balancer:
    """The target groups of one service. Calls may be repeated; without groups they do nothing. Thread-safe.

    `capacity_rps`: requests/s of one instance, by offer. `pace` is shared by the balancers of a site. Each term of the
    process needs a new object, because another process may have made changes in between.
    """

    def __init__(
        self,
        gate: Gate,
        service: SiteService,
        capacity_rps: Mapping[str, float],
        *,
        pace: LookPace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate, self._capacity_rps, self._monotonic = gate, capacity_rps, monotonic
        self._pace = pace or LookPace()
        self._forwards = _forwards(service)
        self._class_of = capacity_classes(capacity_rps, len(service.target_groups)) if self._forwards else {}
        self._lock = Lock()

    def has(self, instance_id: str) -> bool:
        """Return whether the balancer may still send requests to the instance; true before the first read."""
        groups = [group for forward in self._forwards for group in forward.groups]
        return any(group.looked_s is None or instance_id in group.healthy for group in groups)

    def registered(self, instance_id: str) -> bool:
        """Return whether the instance is a known target of any group."""
        return any(instance_id in group.healthy for forward in self._forwards for group in forward.groups)

    def serves(self, instance_id: str) -> bool:
        """Return whether the balancer sends requests to the instance, by its own health checks.

        True without groups. A target whose health cannot be read for a minute counts as healthy.
        """
        return all(forward.serves(instance_id) for forward in self._forwards)

    def sync(
        self, machines_now: Callable[[], Collection[DescribedInstance]], silent: Collection[str] = frozenset()
    ) -> None:
        """Register exactly these instances, each in its group, and set the weights to match.

        Draining instances stay only while no other one is healthy. `silent` are the ids of instances whose bouncers do
        not answer. Raises CloudError after all other changes have been tried.
        """
        if not self._forwards:
            return
        with self._lock:
            now_s = self._monotonic()
            due = [
                group
                for forward in self._forwards
                for group in forward.groups
                if group.due(now_s, forward.watches(group), self._pace)
            ]
            errors = [error for group in due if (error := self._looked(group, now_s)) is not None]
            machines = machines_now()
            for forward in self._forwards:
                self._sync(forward, machines, silent, now_s)
            if errors:
                raise errors[0]

    def _sync(
        self, forward: _Forward, machines: Collection[DescribedInstance], silent: Collection[str], now_s: float
    ) -> None:
        groups = forward.groups
        to_do = self._steps(forward, machines, silent)
        stale = [g for g in groups if g.looked_s is not None and now_s - max(g.looked_s, g.failed_s) >= _FRESH_S]
        if any(to_do.old) and stale:
            for group in stale:
                self._looked(group, now_s)
            to_do = self._steps(forward, machines, silent)
        for group, new in zip(groups, to_do.new, strict=True):
            if new:
                self._gate.call(self._elb.register_targets, TargetGroupArn=group.arn, Targets=_targets(new))
                group.registered(new, now_s)
        if not forward.known():
            return  # weights need the health of every group
        shares = forward.wanted_shares(to_do)
        changed = shares != forward.shares
        if changed or now_s - forward.checked_s >= _LOOK_S:
            for rule in self._described(forward.rules):
                self._weigh(rule, shares)
            # Weights found by a new controller may be old, so they need no time to settle.
            forward.changed_s = now_s if changed and forward.shares else forward.changed_s
            forward.shares, forward.checked_s = shares, now_s
        settled = now_s - forward.changed_s >= _SETTLE_S
        for group, old in zip(groups, to_do.old, strict=True):
            if old and (settled or shares[group.arn]):
                self._deregister(group, old, now_s)

    def _steps(
        self, forward: _Forward, machines: Collection[DescribedInstance], silent: Collection[str]
    ) -> BalancerSteps:
        groups = forward.groups
        healthy = {id for group in groups for id, well in group.healthy.items() if well}
        wanted, leaving = dict[str, tuple[int, float]](), dict[str, float]()
        for machine in machines:
            home = self._home(machine, groups)
            if machine.draining_unix_s is None:
                wanted[machine.id] = home, self._rps(machine, home)
            else:
                leaving[machine.id] = self._rps(machine, home)
        for id in believed_silent(silent, healthy & wanted.keys()):
            wanted[id] = wanted[id][0], 0.0
        return steps(wanted, [group.healthy for group in groups], leaving)

    def _home(self, machine: DescribedInstance, groups: Sequence[_Group]) -> int:
        """Return the group of the instance's class; an instance of an offer no longer sold stays in its group."""
        known = self._class_of.get(machine.offer)
        if known is not None:
            return known
        return next((n for n, group in enumerate(groups) if machine.id in group.healthy), 0)

    def _rps(self, machine: DescribedInstance, index: int) -> float:
        """Return the instance's capacity; for an offer no longer sold, the median capacity of its group's offers."""
        if machine.offer in self._capacity_rps:
            return self._capacity_rps[machine.offer]
        alike = [self._capacity_rps[offer] for offer, group in self._class_of.items() if group == index]
        every = sorted(alike or self._capacity_rps.values())
        return every[len(every) // 2] if every else 1.0

    @property
    def _elb(self) -> Any:
        return self._gate.client("elbv2")

    def _look(self, group: _Group, now_s: float) -> None:
        answer = self._gate.call(self._elb.describe_target_health, TargetGroupArn=group.arn)
        group.answered(dict(_states(answer)), now_s)

    def _looked(self, group: _Group, now_s: float) -> CloudError | None:
        """Read the group's targets; return the error of a failed read, so that the last known state is used."""
        try:
            self._look(group, now_s)
        except CloudError as error:
            group.unanswered(now_s)
            return error
        return None

    def _deregister(self, group: _Group, ids: Collection[str], now_s: float) -> None:
        try:
            self._gate.call(self._elb.deregister_targets, TargetGroupArn=group.arn, Targets=_targets(ids))
        except CloudError:
            # A terminated instance may have been deregistered by AWS already.
            self._look(group, now_s)
            if not group.healthy.keys().isdisjoint(ids):
                raise
        for id in ids:
            group.healthy.pop(id, None)
            group.unread_s.pop(id, None)

    def _described(self, rules: Sequence[str]) -> list[dict[str, Any]]:
        """Return the listener rules that still exist."""
        if not rules:
            return []
        try:
            found: list[dict[str, Any]] = self._gate.call(self._elb.describe_rules, RuleArns=list(rules))["Rules"]
        except NotFoundError:
            if len(rules) == 1:
                _log.warning("listener rule %s is gone: a deployment has replaced it", rules[0])
                return []
            return [rule for arn in rules for rule in self._described([arn])]
        return found

    def _weigh(self, rule: Mapping[str, Any], shares: Mapping[str, int]) -> None:
        """Make a rule forward to exactly these groups in these shares."""
        actions = [_shared(action, shares) for action in rule["Actions"]]
        if actions != rule["Actions"]:
            self._gate.call(self._elb.modify_rule, RuleArn=rule["RuleArn"], Actions=actions)


def _forwards(service: SiteService) -> list[_Forward]:
    if not service.target_groups:
        return []
    found = [_forward(service.target_groups, service.listener_rules, service.function_group)]
    if service.grpc_groups:
        found.append(_forward(service.grpc_groups, service.grpc_rules))
    return found


def _forward(groups: Sequence[str], rules: Sequence[str], function_group: str | None = None) -> _Forward:
    return _Forward([_Group(arn) for arn in groups], tuple(rules), function_group)


def _states(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in answer["TargetHealthDescriptions"]:
        yield one["Target"]["Id"], one.get("TargetHealth", {}).get("State", "")


def _shared(action: dict[str, Any], shares: Mapping[str, int]) -> dict[str, Any]:
    """Return the action with these shares; the same object if nothing changes."""
    if action["Type"] != "forward":
        return action
    config = action.get("ForwardConfig", {})
    said = {group["TargetGroupArn"]: group.get("Weight", 1) for group in config.get("TargetGroups", [])}
    if said == shares:
        return action
    groups = [{"TargetGroupArn": arn, "Weight": weight} for arn, weight in shares.items()]
    others = {key: value for key, value in action.items() if key != "TargetGroupArn"}
    return {**others, "ForwardConfig": {**config, "TargetGroups": groups}}


def _targets(ids: Collection[str]) -> list[dict[str, str]]:
    return [{"Id": id} for id in sorted(ids)]
