"""`as-is`: the user's present autoscaler, from `[policy]` of the service file, to check its bill against theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.domain.offer import Offer
from mark.domain.plan import Target
from mark.domain.profile import Candidate
from mark.domain.scaler import SETTINGS, HpaSettings, KedaSettings, KpaSettings
from mark.domain.service import AsIsPolicy, ResolvedService
from mark.planning.planner import PlanningContext, Policy
from mark.planning.policies.fixed import offer_named, without_functions
from mark.planning.policies.names import AS_IS
from mark.planning.policies.pod_scaler import HpaRule, KedaToZero, KpaRule, KpaToZero, PodScaler, RayRule, Rule
from mark.planning.policies.static import Static
from mark.planning.policies.target_tracking import Metric, TargetTracker, first_step_rps, sagemaker_policy

DEFAULT_UTILISATION = 0.5
ASG_SCALE_IN_S = 900.0  # the alarm that scales in looks at this many seconds
COUNTS_IN_FLIGHT = ("fewest-in-flight", "alb")  # routing
KNATIVE_CONCURRENCY, KNATIVE_RPS = 100.0, 200.0  # config-autoscaler: container-concurrency-, requests-per-second-target
RAY_ONGOING = 2.0  # AutoscalingConfig: target_ongoing_requests


def as_is(resolved: ResolvedService, evaluated: Load) -> Policy:
    """Return the user's own policy; raises BadInput if the service file lacks it or it cannot be simulated."""
    own = resolved.service.as_is
    if own is None:
        where = resolved.service.source or resolved.service.name
        raise BadInput("the policy as-is needs a section [policy]", where)
    if own.kind == "sagemaker":
        return _endpoint(own, resolved, evaluated)
    offer, able = _bought(own, resolved)
    planner: Static | TargetTracker
    if own.kind == "fixed":
        reason = f"fixed by the user, {own.min_instances * offer.usd_per_hour:.2f} $/h"
        planner = Static(AS_IS, (Target(offer.name, own.min_instances, reason),), own.min_instances * able.capacity_rps)
    elif own.kind in SETTINGS:
        return _pod_scaler(own, resolved, evaluated)
    elif own.kind == "asg":
        planner = TargetTracker(
            name=AS_IS,
            offer=offer.name,
            metric=cpu(able.capacity_rps),
            unit="CPU utilisation",
            target=_utilisation(own, resolved),
            target_rps=_utilisation(own, resolved) * able.capacity_rps,
            capacity_rps=able.capacity_rps,
            first_rps=first_step_rps(evaluated),
            min_instances=own.min_instances,
            max_instances=own.max_instances,
            scale_out_cooldown_s=own.scale_out_cooldown_s,
            scale_in_cooldown_s=own.scale_in_cooldown_s,
        )
    else:
        kinds = ", ".join(("asg", *SETTINGS, "sagemaker", "fixed"))
        raise BadInput(f"kind is one of {kinds}", _where(resolved, "kind"), own.kind)
    return Policy(planner, without_functions(resolved, [(offer, able)]), bouncers=False)


def _bought(own: AsIsPolicy, resolved: ResolvedService) -> tuple[Offer, Candidate]:
    """Return the offer of the user's type in the service's markets, and the model on it. Raises BadInput."""
    return offer_named(own.instance, resolved, resolved.service.markets, _where(resolved, "instance"))


def pod_scaler(own: AsIsPolicy, resolved: ResolvedService, evaluated: Load) -> PodScaler:
    """Return the user's HPA, KEDA, Knative or Ray Serve on their type. Raises BadInput."""
    if own.windows and own.begins is None:
        what = "a schedule needs the time at which the evaluated part begins, such as 2026-01-05T00:00:00Z"
        raise BadInput(f"{what}, because the trace has no dates", _where(resolved, "begins"), "nothing")
    offer, able = _bought(own, resolved)
    rule = pod_rule(own, resolved)
    if own.min_instances == 0:
        if isinstance(rule, HpaRule) and isinstance(rule.settings, KedaSettings):
            rule = KedaToZero(rule, rule.settings)
        elif isinstance(rule, KpaRule):
            rule = KpaToZero(rule)
    return PodScaler(
        AS_IS,
        offer.name,
        rule,
        able.capacity_rps,
        first_step_rps(evaluated),
        own.min_instances,
        own.max_instances,
        own.windows,
        own.begins,
    )


def pod_rule(own: AsIsPolicy, resolved: ResolvedService) -> Rule:
    """Return the rule of the user's HPA, KEDA, Knative or Ray Serve, before minimum and maximum. Raises BadInput."""
    _, able = _bought(own, resolved)
    settings = SETTINGS[own.kind]() if own.settings is None else own.settings
    rule: Rule
    if isinstance(settings, HpaSettings):
        if own.kind == "hpa":
            metric, target = cpu(able.capacity_rps), _utilisation(own, resolved)
            rule = HpaRule(settings, target, able.capacity_rps, metric)
        elif own.kind == "keda":
            target = _above_zero(own, resolved, DEFAULT_UTILISATION * able.capacity_rps)
            rule = HpaRule(settings, target, able.capacity_rps)
        else:
            rule = HpaRule(settings, None, able.capacity_rps)
    else:
        busy_s = float(able.service_s[1]) + able.overhead_s
        if isinstance(settings, KpaSettings):
            default = KNATIVE_RPS if settings.metric == "rps" else KNATIVE_CONCURRENCY
            rule = KpaRule(settings, _above_zero(own, resolved, default), busy_s, able.capacity_rps)
        else:
            rule = RayRule(settings, _above_zero(own, resolved, RAY_ONGOING), busy_s, able.capacity_rps)
    return rule


def steady_count(
    own: AsIsPolicy, resolved: ResolvedService, capacity_rps: float
) -> tuple[Callable[[float], int], float] | None:
    """Return a function of a steady rate in requests/s: the instances of `capacity_rps` that the user's target asks
    for. And return for how many seconds the scaler keeps the highest of these counts.

    Minimum and maximum are not applied. None for kinds without a target of their own: fixed, cron and SageMaker.
    """
    if own.kind in ("asg", "hpa"):
        rps = _utilisation(own, resolved) * capacity_rps
        keeps_s = own.settings.stabilization_window_s if isinstance(own.settings, HpaSettings) else ASG_SCALE_IN_S
        return lambda rate_rps: math.ceil(rate_rps / rps - 1e-9), keeps_s
    if own.kind not in ("keda", "knative", "ray"):
        return None
    rule = pod_rule(own, resolved)
    if isinstance(rule, HpaRule):
        return rule.first, rule.settings.stabilization_window_s
    if isinstance(rule, RayRule):
        return rule.first, rule.settings.downscale_delay_s
    assert isinstance(rule, KpaRule), "these are the rules of the three kinds"
    return rule.first, rule.settings.stable_window_s


def _pod_scaler(own: AsIsPolicy, resolved: ResolvedService, evaluated: Load) -> Policy:
    scaler = pod_scaler(own, resolved, evaluated)
    altered = without_functions(resolved, [_bought(own, resolved)])
    if altered.service.routing not in COUNTS_IN_FLIGHT:
        # These scalers and their own balancers look at requests in flight.
        altered = replace(altered, service=replace(altered.service, routing=COUNTS_IN_FLIGHT[0]))
    if own.min_instances == 0:
        altered = replace(altered, service=replace(altered.service, min_instances=0))
    return Policy(scaler, altered, bouncers=False, every_s=scaler.rule.every_s)


def _endpoint(own: AsIsPolicy, resolved: ResolvedService, evaluated: Load) -> Policy:
    """Return SageMaker with the user's own type, target (requests per instance and minute), bounds and cool-downs."""
    instance = own.instance if own.instance.startswith("ml.") else f"ml.{own.instance}"
    policy = sagemaker_policy(resolved, instance, False, evaluated, AS_IS)
    tracker = policy.planner
    assert isinstance(tracker, TargetTracker)
    target = tracker.target if own.target is None else own.target
    if not target > 0.0:
        raise BadInput("requests per instance and minute must be above zero", _where(resolved, "target"), own.target)
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
    """Return the busy share of the instances in service, at most one; if it is not measured, load over capacity."""

    def metric(context: PlanningContext, offer: str, in_service: int) -> float | None:
        if in_service == 0:
            return None
        if offer in context.utilization:
            return context.utilization[offer]
        if context.last_minute_rps is None:
            return None
        return min(1.0, context.last_minute_rps / (in_service * capacity_rps))

    return metric


def _utilisation(own: AsIsPolicy, resolved: ResolvedService) -> float:
    target = DEFAULT_UTILISATION if own.target is None else own.target
    if not 0.0 < target <= 1.0:
        raise BadInput("a utilisation lies above 0 and not above 1", _where(resolved, "target"), own.target)
    return target


def _above_zero(own: AsIsPolicy, resolved: ResolvedService, default: float) -> float:
    target = default if own.target is None else own.target
    if not target > 0.0:
        raise BadInput("must be above zero", _where(resolved, "target"), own.target)
    return target


def _where(resolved: ResolvedService, key: str) -> str:
    return f"{resolved.service.source or resolved.service.name} [policy] {key}"
