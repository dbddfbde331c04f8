"""The replicas that Kubernetes' HPA, Knative and Ray Serve want: their documented rules as functions of numbers.

Measurements and earlier decisions go in; a count and a memory come out. `mark.domain.scaler` names the documents and
holds their defaults. KEDA hands its metrics to an HPA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.scaler import HpaSettings, KedaSettings, KpaSettings, RaySettings

MOST_MORE, GROWTH = 4, 2  # HPA's default policies of scaling up: in 15 s by 4 pods or 100 %, whichever is more
_ROUNDING = 1e-9  # Kubernetes counts in thousandths, so that a load of n pods never becomes n + 1
_RAY_ROUNDING_S = 1e-6  # Ray forgives a delay this much


def hpa_by_value(total: float, per_pod: float, current: int, tolerance: float) -> int:
    """Return HPA's count for a value averaged over all pods (type AverageValue), as KEDA's Prometheus trigger
    makes it.
    """
    if current > 0 and abs(total / (per_pod * current) - 1.0) <= tolerance:
        return current
    return math.ceil(total / per_pod - _ROUNDING)


def hpa_by_utilisation(utilisation: float, target: float, ready: int, unready: int, tolerance: float) -> int:
    """Return HPA's count for a resource: `utilisation` is the mean of the ready pods.

    Pods that are not ready are left out, but count as idle before any pod is added. If that turns the direction,
    nothing changes.
    """
    ratio, current = utilisation / target, ready + unready
    if unready and ratio > 1.0:
        ratio *= ready / current
        if ratio < 1.0:
            return current
        ready = current
    if abs(ratio - 1.0) <= tolerance:
        return current
    return math.ceil(ratio * ready - _ROUNDING)


Wishes = tuple[tuple[float, int], ...]
"""(time, wish) of HPA's recommendations within the stabilisation window, oldest first."""


def hpa_scaled(now_s: float, wish: int, current: int, wishes: Wishes, settings: HpaSettings) -> tuple[int, Wishes]:
    """Return the count after HPA's limits: down only to the highest wish of the window, up only by its default
    policies.

    Must be called every 15 s, the period of these policies.
    """
    since_s = now_s - settings.stabilization_window_s
    wishes = (*((at_s, n) for at_s, n in wishes if at_s > since_s), (now_s, wish))
    if wish < current:
        return min(current, max(n for _, n in wishes)), wishes
    return min(wish, max(GROWTH * current, current + MOST_MORE)), wishes


@dataclass(frozen=True, slots=True)
class Activity:
    """KEDA's memory: when it last asked its triggers, and when one of them was last active."""

    asked_s: float = -math.inf
    active_s: float = -math.inf


def keda_runs(
    now_s: float, active: bool, current: int, memory: Activity, settings: KedaSettings
) -> tuple[bool, Activity]:
    """Return whether any replica shall run with `minReplicaCount` zero: the number is the HPA's.

    The triggers are asked once in `pollingInterval`. The last replica goes when none was active for `cooldownPeriod`.
    """
    if now_s - memory.asked_s < settings.polling_interval_s - _ROUNDING:
        return current > 0, memory
    if active:
        return True, Activity(now_s, now_s)
    return current > 0 and now_s - memory.active_s <= settings.cooldown_period_s, Activity(now_s, memory.active_s)


@dataclass(frozen=True, slots=True)
class Panic:
    """Knative's memory: when traffic last exceeded the ready pods, and the most pods wanted since."""

    since_s: float | None = None
    most: int = 0


def kpa_scaled(
    now_s: float, stable: float, panic: float, target: float, ready: int, memory: Panic, settings: KpaSettings
) -> tuple[int, Panic]:
    """Return Knative's decision: `stable` and `panic` are the metric of all pods, averaged over either window.

    `target` is the metric that one pod shall have, utilisation included.
    """
    serving = max(1, ready)
    most = math.ceil(settings.max_scale_up_rate * serving)
    least = math.floor(serving / settings.max_scale_down_rate)
    for_stable, for_panic = (min(max(math.ceil(value / target), least), most) for value in (stable, panic))
    if math.ceil(panic / target) / serving >= settings.panic_threshold_percentage / 100.0:
        memory = Panic(now_s, memory.most)
    elif memory.since_s is not None and now_s > memory.since_s + settings.stable_window_s:
        memory = Panic()
    if memory.since_s is None:
        return for_stable, memory
    count = max(for_stable, for_panic, memory.most)
    return count, Panic(memory.since_s, count)


@dataclass(frozen=True, slots=True)
class Leaning:
    """Ray's memory: since when it has wanted more (1) or fewer (-1) replicas than its target, without a break."""

    direction: int = 0
    since_s: float = math.inf


def ray_scaled(
    now_s: float,
    ongoing: float,
    running: int,
    target: int,
    per_replica: float,
    memory: Leaning,
    settings: RaySettings,
) -> tuple[int, Leaning]:
    """Return Ray Serve's decision before `min_replicas` and `max_replicas`: `ongoing` requests wait or are served.

    `target` is its last count, `per_replica` its `target_ongoing_requests`. The order of the operations on floats is
    Ray's, so that counts are equal at every rounding.
    """
    if running == 0:
        if ongoing > 0:  # a cold start waits for no delay
            return max(math.ceil(settings.upscaling_factor), target), memory
        if target > 0:
            return target, memory
        wish = 0
    else:
        desired = running * (ongoing / (per_replica * running))
        more = desired - running
        wish = math.ceil(running + (settings.upscaling_factor if more > 0 else settings.downscaling_factor) * more)
        if math.ceil(desired) < running and wish == running:
            wish -= 1  # otherwise a small factor would hold the last step back forever
        wish = max(0, wish)
    direction = (wish > target) - (wish < target)
    if direction == 0:
        return target, Leaning()
    if direction != memory.direction:
        memory = Leaning(direction, now_s)
    delay_s = settings.upscale_delay_s if direction > 0 else settings.downscale_delay_s
    if now_s - memory.since_s + _RAY_ROUNDING_S < delay_s:
        return target, memory
    return (wish if direction > 0 or target == 1 else max(1, wish)), Leaning()
