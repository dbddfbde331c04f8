"""`as-is`: the autoscaler the user runs today, from `[policy]` of the service file: a bill to check against theirs."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.plan import Target
from mark.domain.service import AsIsPolicy, Deployment
from mark.planning.fixed import offer_named, without_functions
from mark.planning.port import Policy, Situation
from mark.planning.reactive import PodAutoscaler
from mark.planning.static import Static
from mark.planning.target_tracking import Metric, TargetTracker, first_step_rps, sagemaker_policy

NAME = "as-is"
DEFAULT_UTILISATION = 0.5


def as_is(deployment: Deployment, evaluated: Load) -> Policy:
    """The user's own policy; raises BadInput when the service file has none or it cannot be simulated."""
    own = deployment.service.as_is
    if own is None:
        where = deployment.service.source or deployment.service.name
        raise BadInput("the policy as-is needs a section [policy]", where)
    if own.kind == "sagemaker":
        return _endpoint(own, deployment, evaluated)
    offer, able = offer_named(own.instance, deployment)
    planner: Static | PodAutoscaler | TargetTracker
    if own.kind == "fixed":
        reason = f"fixed by the user, {own.min_instances * offer.usd_per_hour:.2f} $/h"
        planner = Static(NAME, (Target(offer.name, own.min_instances, reason),), own.min_instances * able.capacity_rps)
    elif own.kind == "hpa":
        planner = PodAutoscaler(
            NAME,
            offer.name,
            able.capacity_rps,
            first_step_rps(evaluated),
            utilisation=cpu_of_all,
            target=_utilisation(own, deployment),
            min_instances=own.min_instances,
            max_instances=own.max_instances,
        )
    elif own.kind == "asg":
        planner = TargetTracker(
            name=NAME,
            offer=offer.name,
            metric=cpu(able.capacity_rps),
            unit="CPU utilisation",
            target=_utilisation(own, deployment),
            target_rps=_utilisation(own, deployment) * able.capacity_rps,
            capacity_rps=able.capacity_rps,
            first_rps=first_step_rps(evaluated),
            min_instances=own.min_instances,
            max_instances=own.max_instances,
            scale_out_cooldown_s=own.scale_out_cooldown_s,
            scale_in_cooldown_s=own.scale_in_cooldown_s,
        )
    else:
        raise BadInput("kind is one of asg, hpa, sagemaker, fixed", _where(deployment, "kind"), own.kind)
    return Policy(planner, without_functions(deployment, [(offer, able)]), bouncers=False)


def _endpoint(own: AsIsPolicy, deployment: Deployment, evaluated: Load) -> Policy:
    """SageMaker with the user's own type, target (requests per instance and minute), bounds and cool-downs."""
    instance = own.instance if own.instance.startswith("ml.") else f"ml.{own.instance}"
    policy = sagemaker_policy(deployment, instance, False, evaluated, NAME)
    tracker = policy.planner
    assert isinstance(tracker, TargetTracker)
    target = tracker.target if own.target is None else own.target
    if not target > 0.0:
        raise BadInput("requests per instance and minute must be above zero", _where(deployment, "target"), own.target)
    planner = replace(
        tracker,
        target=target,
        target_rps=target / 60.0,
        min_instances=own.min_instances,
        max_instances=own.max_instances,
        scale_out_cooldown_s=own.scale_out_cooldown_s,
        scale_in_cooldown_s=own.scale_in_cooldown_s,
    )
    return replace(policy, planner=planner)


def cpu(capacity_rps: float) -> Metric:
    """Busy share of the instances in service; where it is not measured, what the load makes of them. It ends at one."""

    def metric(situation: Situation, offer: str, in_service: int) -> float | None:
        if in_service == 0:
            return None
        if offer in situation.utilization:
            return situation.utilization[offer]
        if situation.last_minute_rps is None:
            return None
        return min(1.0, situation.last_minute_rps / (in_service * capacity_rps))

    return metric


def cpu_of_all(situation: Situation, offer: str, capacity_rps: float) -> float | None:
    """As a pod autoscaler averages it before scaling out: pods that are not ready yet count as idle."""
    ready = situation.fleet.ready().get(offer, 0)
    live = situation.fleet.live().get(offer, 0)
    busy = cpu(capacity_rps / live)(situation, offer, ready)
    return None if busy is None else busy * min(1.0, ready / live)


def _utilisation(own: AsIsPolicy, deployment: Deployment) -> float:
    target = DEFAULT_UTILISATION if own.target is None else own.target
    if not 0.0 < target <= 1.0:
        raise BadInput("a utilisation lies above 0 and not above 1", _where(deployment, "target"), own.target)
    return target


def _where(deployment: Deployment, key: str) -> str:
    return f"{deployment.service.source or deployment.service.name} [policy] {key}"
