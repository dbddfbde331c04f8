"""The autoscalers of Kubernetes, KEDA, Knative and Ray Serve on one instance type, behind the port `Planner`.

A replica is an instance. A scaler sees only the input of the real one: ready and booting replicas, CPU, the request
rate, and requests in flight, which are sampled every 5 s; its decisions are `mark.planning.policies.scalers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from mark.domain.plan import Plan, Target
from mark.domain.scaler import CronWindow, HpaSettings, KedaSettings, KpaSettings, RaySettings
from mark.planning.planner import PlanningContext
from mark.planning.policies.scalers import (
    Activity,
    Leaning,
    Panic,
    Wishes,
    hpa_by_utilisation,
    hpa_by_value,
    hpa_scaled,
    keda_runs,
    kpa_scaled,
    ray_scaled,
)
from mark.planning.policies.target_tracking import Metric, first_minute_rps

SAMPLE_S = 5.0  # requests in flight are counted this often
HPA_SYNC_S = 15.0  # kube-controller-manager's --horizontal-pod-autoscaler-sync-period


@dataclass(frozen=True, slots=True)
class ScalerView:
    """The input of a scaler. `wanted_by_others`: by cron and other triggers; an HPA takes the highest."""

    context: PlanningContext
    offer: str
    ready: int
    unready: int
    target: int  # its last decision
    wanted_by_others: int

    @property
    def live(self) -> int:
        return self.ready + self.unready


class Rule(Protocol):
    """One kind of autoscaler. Pure, as a `Planner`."""

    every_s: float

    def begin(self) -> Any: ...

    def first(self, rate_rps: float) -> int:
        """Return how many replicas it holds at a steady rate."""

    def decide(self, seen: ScalerView, memory: Any) -> tuple[int | None, Any, str]:
        """Return the count before minimum and maximum, or None to change nothing; the memory; the reason."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The memory of a `PodScaler`: its rule's, its last count, and by cron window its state and when that may
    change.
    """

    rule: Any
    count: int
    windows: tuple[tuple[bool, datetime], ...] = ()


@dataclass
class PodScaler:
    """A rule on one type. `begins` is the time at which the evaluated part begins, if there are cron windows."""

    name: str
    offer: str
    rule: Rule
    capacity_rps: float  # of one instance
    first_rps: float
    min_instances: int
    max_instances: int
    windows: tuple[CronWindow, ...] = ()
    begins: datetime | None = None
    needs_forecast: bool = False
    monitors_slo: bool = False
    replans: bool = False

    def begin(self) -> Scaled:
        return Scaled(self.rule.begin(), self.min_instances)

    def plan(self, context: PlanningContext, memory: Scaled) -> tuple[Plan, Scaled]:
        return self.plan_above(context, memory, 0)

    def plan_above(self, context: PlanningContext, memory: Scaled, floor: int) -> tuple[Plan, Scaled]:
        """Decide with one more trigger that wants `floor` replicas, and with `floor` as a minimum."""
        windows, scheduled = self._scheduled(context.now_s, memory.windows)
        least = min(self.max_instances, max(self.min_instances, floor))  # the user's maximum also limits a floor
        if context.first:
            rate_rps = first_minute_rps(context, self.first_rps)
            wish: int | None = max(scheduled, self.rule.first(rate_rps))
            kept, reason = memory.rule, f"{context.resolved.service.unit.per_s(rate_rps, '.1f')} at the start"
        elif context.last_minute_rps is None:
            wish, kept, reason = None, memory.rule, "nothing was observed"
        else:
            ready = context.fleet.ready().get(self.offer, 0)
            live = context.fleet.live().get(self.offer, 0)
            others = max(floor, scheduled)
            seen = ScalerView(context, self.offer, ready, live - ready, memory.count, others)
            wish, kept, reason = self.rule.decide(seen, memory.rule)
        count = max(least, min(self.max_instances, memory.count if wish is None else wish))
        plan = Plan(context.now_s, (Target(self.offer, count, reason),), capacity_rps=count * self.capacity_rps)
        return plan, Scaled(kept, count, windows)

    def _scheduled(
        self, now_s: float, known: tuple[tuple[bool, datetime], ...]
    ) -> tuple[tuple[tuple[bool, datetime], ...], int]:
        if self.begins is None:
            return (), 0
        now = self.begins + timedelta(seconds=now_s)
        states = known or tuple(window.state_at(now) for window in self.windows)
        # Looking up the next change of every window in every round would be slow.
        states = tuple(
            state if now < state[1] else window.state_at(now)
            for state, window in zip(states, self.windows, strict=True)
        )
        active = (w.replicas for w, (is_active, _) in zip(self.windows, states, strict=True) if is_active)
        return states, max(active, default=0)


@dataclass
class HpaRule:
    """An HPA: on CPU (`cpu`, `target` a utilisation), on a request rate (`target` per pod), or on triggers alone."""

    settings: HpaSettings
    target: float | None
    capacity_rps: float
    cpu: Metric | None = None
    every_s: float = HPA_SYNC_S

    def begin(self) -> Wishes:
        return ()

    def first(self, rate_rps: float) -> int:
        if self.target is None:
            return 0
        per_pod_rps = self.target if self.cpu is None else self.target * self.capacity_rps
        return hpa_by_value(rate_rps, per_pod_rps, 0, 0.0)

    def decide(self, seen: ScalerView, memory: Wishes) -> tuple[int | None, Wishes, str]:
        wish, reason = self._wish(seen)
        if wish is None:
            return None, memory, reason
        wish = max(wish, seen.wanted_by_others)
        count, memory = hpa_scaled(seen.context.now_s, wish, seen.live, memory, self.settings)
        return count, memory, reason

    def _wish(self, seen: ScalerView) -> tuple[int | None, str]:
        if self.target is None:
            return 0, f"the schedule wants {seen.wanted_by_others}"
        if self.cpu is None:
            rate_rps = seen.context.last_minute_rps
            assert rate_rps is not None, "a scaler is not asked while nothing is observed"
            wish = hpa_by_value(rate_rps, self.target, seen.live, self.settings.tolerance)
            return wish, f"{rate_rps:.4g} requests/s against {self.target:.4g} a replica"
        used = self.cpu(seen.context, seen.offer, seen.ready)
        if used is None:
            return None, "no value of the metric"
        wish = hpa_by_utilisation(used, self.target, seen.ready, seen.unready, self.settings.tolerance)
        return wish, f"CPU utilisation {used:.2f} against a target of {self.target:.2f}"


@dataclass
class KedaToZero:
    """KEDA with `minReplicaCount` zero: it starts the first replica and ends the last one, the HPA does the rest."""

    hpa: HpaRule
    settings: KedaSettings
    every_s: float = HPA_SYNC_S

    def begin(self) -> tuple[Wishes, Activity]:
        return self.hpa.begin(), Activity()

    def first(self, rate_rps: float) -> int:
        return self.hpa.first(rate_rps)

    def decide(
        self, seen: ScalerView, memory: tuple[Wishes, Activity]
    ) -> tuple[int | None, tuple[Wishes, Activity], str]:
        wishes, activity = memory
        by_rate = (
            self.hpa.target is not None and (seen.context.last_minute_rps or 0.0) > self.settings.activation_threshold
        )
        active = by_rate or seen.wanted_by_others > 0
        runs, activity = keda_runs(seen.context.now_s, active, seen.target, activity, self.settings)
        if not runs:
            return 0, (self.hpa.begin(), activity), "no trigger is active"
        if seen.target == 0:
            return 1, (wishes, activity), "a trigger is active"
        count, wishes, reason = self.hpa.decide(seen, wishes)
        return None if count is None else max(1, count), (wishes, activity), reason


Samples = tuple[float, ...]  # one every 5 s, the newest last


@dataclass
class KpaRule:
    """Knative: `target` is the concurrency, or the request rate, that one pod may have at 100 %."""

    settings: KpaSettings
    target: float
    busy_s: float  # of one request on an idle instance
    capacity_rps: float
    every_s: float = SAMPLE_S  # Knative ticks every 2 s; here nothing changes in between

    @property
    def per_pod(self) -> float:
        return self.target * self.settings.target_utilization_percentage / 100.0

    def begin(self) -> tuple[Samples, Panic]:
        return (), Panic()

    def first(self, rate_rps: float) -> int:
        per_pod_rps = self.per_pod / (1.0 if self.settings.metric == "rps" else self.busy_s)
        return hpa_by_value(rate_rps, min(per_pod_rps, self.capacity_rps), 0, 0.0)

    def decide(self, seen: ScalerView, memory: tuple[Samples, Panic]) -> tuple[int | None, tuple[Samples, Panic], str]:
        samples, panic = memory
        windows_rps = seen.context.windows_rps
        by_rate = float(windows_rps[-1]) if len(windows_rps) else math.nan
        value = by_rate if self.settings.metric == "rps" else seen.context.in_flight
        if value is None or math.isnan(value):
            return None, memory, "no value of the metric"
        samples = (*samples, value)[-max(1, round(self.settings.stable_window_s / SAMPLE_S)) :]
        panic_s = self.settings.stable_window_s * self.settings.panic_window_percentage / 100.0
        latest = samples[-max(1, round(panic_s / SAMPLE_S)) :]
        stable, now = math.fsum(samples) / len(samples), math.fsum(latest) / len(latest)
        count, panic = kpa_scaled(seen.context.now_s, stable, now, self.per_pod, seen.ready, panic, self.settings)
        mode = "stable" if panic.since_s is None else "panic"
        reason = f"{self.settings.metric} {stable:.4g}, lately {now:.4g}, against {self.per_pod:.4g} a replica ({mode})"
        return count, (samples, panic), reason


@dataclass(frozen=True, slots=True)
class Asleep:
    """The memory of a `KpaToZero`: its rule's, the requests that the activator holds, and since when none is wanted."""

    rule: tuple[Samples, Panic]
    held: float = 0.0
    idle_since_s: float | None = None


@dataclass
class KpaToZero:
    """Knative with `min-scale` zero. While no pod is ready its activator holds the requests, and counts them."""

    kpa: KpaRule
    every_s: float = SAMPLE_S

    def begin(self) -> Asleep:
        return Asleep(self.kpa.begin())

    def first(self, rate_rps: float) -> int:
        return self.kpa.first(rate_rps)

    def decide(self, seen: ScalerView, memory: Asleep) -> tuple[int | None, Asleep, str]:
        context = seen.context
        newest_rps = float(context.windows_rps[-1]) if len(context.windows_rps) else 0.0
        held = 0.0 if seen.ready else memory.held + SAMPLE_S * (0.0 if math.isnan(newest_rps) else newest_rps)
        if seen.target == 0 and not held:
            return 0, self.begin(), "no requests"  # without pods there are no samples
        if context.in_flight is not None:
            context = replace(context, in_flight=context.in_flight + round(held))
        count, rule, reason = self.kpa.decide(replace(seen, context=context), memory.rule)
        since_s = (memory.idle_since_s or context.now_s) if count == 0 else None
        if since_s is not None and context.now_s - since_s < self.kpa.settings.scale_to_zero_pod_retention_period_s:
            count = 1
        return count, Asleep(rule, held, since_s), reason


@dataclass
class RayRule:
    """Ray Serve: `target` is `target_ongoing_requests`."""

    settings: RaySettings
    target: float
    busy_s: float
    capacity_rps: float
    every_s: float = SAMPLE_S  # Ray's loop turns every 0.1 s; here nothing changes in between
    scaled: Callable[..., tuple[int, Any]] = ray_scaled

    def begin(self) -> tuple[Samples, Leaning]:
        return (), Leaning()

    def first(self, rate_rps: float) -> int:
        return hpa_by_value(rate_rps, min(self.target / self.busy_s, self.capacity_rps), 0, 0.0)

    def decide(
        self, seen: ScalerView, memory: tuple[Samples, Leaning]
    ) -> tuple[int | None, tuple[Samples, Leaning], str]:
        samples, leaning = memory
        if seen.context.in_flight is None:
            return None, memory, "no value of the metric"
        samples = (*samples, seen.context.in_flight)[-max(1, round(self.settings.look_back_period_s / SAMPLE_S)) :]
        ongoing = math.fsum(samples) / len(samples)
        count, leaning = self.scaled(
            seen.context.now_s, ongoing, seen.ready, seen.target, self.target, leaning, self.settings
        )
        return count, (samples, leaning), f"{ongoing:.4g} ongoing requests against {self.target:.4g} a replica"
