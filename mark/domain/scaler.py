"""Settings of autoscalers outside mark, with the names and defaults of their documents.

- Kubernetes: "Horizontal Pod Autoscaling" (algorithm details, default behavior) and kube-controller-manager's options.
- KEDA: "ScaledObject specification", and its scalers "Prometheus" and "Cron".
- Knative Serving: "Additional autoscaling configuration for Knative Pod Autoscaler", ConfigMap config-autoscaler.
- Ray Serve: `AutoscalingConfig` and its "Advanced autoscaling guide".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from mark.domain.cron import CronSchedule


def _number(default: float, least: float = 0.0, most: float = math.inf, *, above: bool = False) -> Any:
    """Return a number's field with its range, which the reader of service files checks.

    `above` excludes the minimum itself.
    """
    return field(default=default, metadata={"least": least, "most": most, "above": above})


@dataclass(frozen=True, slots=True)
class HpaSettings:
    """Kubernetes' HorizontalPodAutoscaler, on CPU or behind KEDA."""

    tolerance: float = _number(0.1, most=1.0)
    stabilization_window_s: float = _number(300.0, most=3600.0)  # of scaling down


@dataclass(frozen=True, slots=True)
class KedaSettings(HpaSettings):
    """KEDA's ScaledObject: an HPA, and its own rule between zero replicas and one."""

    polling_interval_s: float = _number(30.0, above=True)
    cooldown_period_s: float = _number(300.0)
    activation_threshold: float = _number(0.0)  # requests/s above which the trigger is active


@dataclass(frozen=True, slots=True)
class KpaSettings:
    """The Knative Pod Autoscaler."""

    metric: str = "concurrency"  # or rps
    target_utilization_percentage: float = _number(70.0, most=100.0, above=True)
    stable_window_s: float = _number(60.0, 6.0, 3600.0)
    panic_window_percentage: float = _number(10.0, 1.0, 100.0)
    panic_threshold_percentage: float = _number(200.0, 110.0, 1000.0)
    max_scale_up_rate: float = _number(1000.0, 1.0, above=True)
    max_scale_down_rate: float = _number(2.0, 1.0, above=True)
    scale_to_zero_pod_retention_period_s: float = _number(0.0)


@dataclass(frozen=True, slots=True)
class RaySettings:
    """Ray Serve's default policy, by queue length."""

    upscale_delay_s: float = _number(30.0)
    downscale_delay_s: float = _number(600.0)
    upscaling_factor: float = _number(1.0, above=True)
    downscaling_factor: float = _number(1.0, above=True)
    look_back_period_s: float = _number(30.0, above=True)


@dataclass(frozen=True, slots=True)
class CronWindow:
    """A KEDA cron trigger: `replicas` from each start until the next end, on the clock of `timezone`."""

    start: CronSchedule
    end: CronSchedule
    replicas: int
    timezone: ZoneInfo

    def state_at(self, at: datetime) -> tuple[bool, datetime]:
        """Return whether it is active at this time, and when that may change next.

        KEDA's rule: a window is active if its next end comes before its next start.
        """
        local = at.astimezone(self.timezone)
        clock = local.replace(tzinfo=None)
        start, end = self.start.next_after(clock), self.end.next_after(clock)
        assert start is not None, "a schedule without dates is refused when it is read"
        assert end is not None, "a schedule without dates is refused when it is read"
        return end < start, min(start, end).replace(tzinfo=self.timezone)


ScalerSettings = HpaSettings | KpaSettings | RaySettings
# By `[policy] kind`.
SETTINGS: dict[str, type[ScalerSettings]] = {
    "hpa": HpaSettings,
    "keda": KedaSettings,
    "knative": KpaSettings,
    "ray": RaySettings,
    "cron": KedaSettings,
}
# These may have no replica at all; HPA's minimum is one, and Ray's queue before a cold start is not simulated.
TO_ZERO = ("keda", "cron", "knative")
